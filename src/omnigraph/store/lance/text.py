"""Full-text queries in Lance's form, its tokenizer, and its text index over rows in memory."""

from __future__ import annotations

import itertools
from typing import Any, Final

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.query import FullTextOperator, FullTextQuery, MatchQuery, PhraseQuery

from omnigraph.dataclass import dataclass
from omnigraph.store.lance.errors import lance_failures, read_error
from omnigraph.store.records import ROW_ID, SCORE, TextSearch
from omnigraph.store.text_index import ANALYSIS_PARAMETERS, TEXT_PARAMETERS

_EXPANSIONS_MAX: Final = 2**31 - 1
"""How many stored tokens one fuzzy token may stand for. Lance's default of 50 loses rows."""
_COLUMN: Final = "text"
_MEMORY: Final = "an index in memory"
_ANALYSIS: Final[dict[str, Any]] = dict(ANALYSIS_PARAMETERS)
_INDEX: Final[dict[str, Any]] = dict(TEXT_PARAMETERS)

_numbers = itertools.count()


def tokens_of(text: str) -> tuple[str, ...]:
    """Return the tokens of a text as an index stores them, in order."""
    return tuple(token.text for token in lance.tokenize(text, **_ANALYSIS))


def text_query(search: TextSearch) -> FullTextQuery:
    """Return a search in Lance's form."""
    if search.mode == "phrase":
        return PhraseQuery(search.query, search.column)
    operator = FullTextOperator.AND if search.mode == "all" else FullTextOperator.OR
    return MatchQuery(
        search.query,
        search.column,
        fuzziness=search.fuzziness,
        max_expansions=_EXPANSIONS_MAX,
        operator=operator,
    )


@dataclass(frozen=True, eq=False)
class MemoryTextIndex:
    """A `TextIndex` over a Lance dataset of its own."""

    row_ids: npt.NDArray[np.int64]
    dataset: lance.LanceDataset

    @classmethod
    def of(
        cls, row_ids: npt.NDArray[np.int64], texts: pa.Array | pa.ChunkedArray
    ) -> MemoryTextIndex:
        """Index texts, each of which belongs to a row."""
        # Two stores of one name would be one store.
        location = f"memory://omnigraph-text-{next(_numbers)}"
        try:
            dataset = lance.write_dataset(
                pa.table({_COLUMN: texts}), location, enable_stable_row_ids=True
            )
            dataset.create_scalar_index(_COLUMN, "INVERTED", **_INDEX)
        except lance_failures() as error:
            raise read_error(error, _MEMORY) from error
        return cls(row_ids, dataset)

    def search(self, search: TextSearch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        wanted = TextSearch(_COLUMN, search.query, search.mode, search.fuzziness)
        try:
            found = self.dataset.scanner(
                columns=[SCORE],
                with_row_id=True,
                full_text_query=text_query(wanted),
                disable_scoring_autoprojection=True,
            ).to_table()
        except lance_failures() as error:
            raise read_error(error, _MEMORY) from error
        rows = found[ROW_ID].to_numpy().astype(np.int64)
        return self.row_ids[rows], found[SCORE].cast(pa.float64()).to_numpy()
