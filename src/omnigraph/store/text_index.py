"""How texts are split into tokens, and text indexes in memory.

1. `TEXT_PARAMETERS` are the settings of every full-text index, stored or not, so the same text has
   the same tokens everywhere.
2. An index in memory is made by the same code as a stored one: over the same rows it gives the same
   matches and the same scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.store.records import TextSearch

ANALYSIS_PARAMETERS: Final[Mapping[str, str | int | float | bool]] = {
    "base_tokenizer": "simple",
    "language": "English",
    "max_token_length": 40,
    "lower_case": True,
    "stem": True,
    "remove_stop_words": True,
    "ascii_folding": True,
}
TEXT_PARAMETERS: Final[Mapping[str, str | int | float | bool]] = {
    **ANALYSIS_PARAMETERS,
    # Phrase queries need the positions of tokens.
    "with_position": True,
}
FUZZINESS_MAX: Final = 2
"""With more, an index cannot find all stored tokens that are near a long one."""


class TextIndex(Protocol):
    """A full-text index over some rows. Safe between threads."""

    def search(self, search: TextSearch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the rows that match, with their relevance, in any order."""
        ...


def index_texts(row_ids: npt.NDArray[np.int64], texts: pa.Array | pa.ChunkedArray) -> TextIndex:
    """Index texts in memory, each of which belongs to a row."""
    from omnigraph.store.lance.text import MemoryTextIndex  # noqa: PLC0415 - heavy, not fork-safe

    return MemoryTextIndex.of(row_ids, texts)


def analysed(text: str) -> tuple[str, ...]:
    """Return the tokens of a text as an index stores them, in order.

    >>> analysed("The Ships' introduction")
    ('ship', 'introduct')
    """
    from omnigraph.store.lance.text import tokens_of  # noqa: PLC0415 - heavy, not fork-safe

    return tokens_of(text)
