"""Full-text predicates: which nodes of a type match, whatever else the query asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.query.plan.plan import TextMatch
from omnigraph.read.bindings import Bindings
from omnigraph.read.rows import RowIds
from omnigraph.read.tables import TableReader
from omnigraph.store.filters import Filter
from omnigraph.store.records import ROW_ID, SCORE, ScanRequest, TextSearch

EDITS_DEFAULT: Final = 2
_EDITS_MAX: Final = 2**32 - 1


class TextMatcher(Protocol):
    """Answers full-text predicates of one query."""

    def matches(self, table_key: str, predicate: TextMatch, bindings: Bindings) -> RowIds | None:
        """Return the row ids that match, ascending; None when the predicate is unknown."""
        ...

    def ranked(
        self, table_key: str, search: TextSearch, row_filter: Filter | None, among: RowIds | None
    ) -> tuple[RowIds, npt.NDArray[np.float64]]:
        """Return the row ids that match, with their relevance, in any order."""
        ...


@dataclass(eq=False)
class StoreTextMatcher:
    """Asks the store; equal predicates are asked once per query."""

    tables: TableReader
    _found: dict[tuple[str, TextSearch], RowIds] = field(default_factory=dict)

    def matches(self, table_key: str, predicate: TextMatch, bindings: Bindings) -> RowIds | None:
        """Return the row ids that match, ascending; None when the predicate is unknown."""
        search = text_search(predicate, bindings)
        if search is None:
            return None
        if (table_key, search) not in self._found:
            row_ids, _ = self.ranked(table_key, search, None, None)
            self._found[table_key, search] = np.sort(row_ids)
        return self._found[table_key, search]

    def ranked(
        self, table_key: str, search: TextSearch, row_filter: Filter | None, among: RowIds | None
    ) -> tuple[RowIds, npt.NDArray[np.float64]]:
        """Return the row ids that match, with their relevance, in any order."""
        request = ScanRequest(
            columns=(SCORE,),
            row_filter=row_filter,
            with_row_id=True,
            row_ids=None if among is None else tuple(among.tolist()),
            text=search,
        )
        table = self.tables.scan(table_key, request)
        return (
            table[ROW_ID].to_numpy().astype(np.int64),
            table[SCORE].cast(pa.float64()).to_numpy(),
        )


_MODES: Final[dict[str, Literal["any", "phrase"]]] = {
    "search": "any",
    "match_text": "phrase",
    "fuzzy": "any",
}


def text_search(predicate: TextMatch, bindings: Bindings) -> TextSearch | None:
    """Return what to ask the store; None when a part of the predicate is null."""
    query = bindings.text(predicate.query)
    edits: int | None = 0
    if predicate.function == "fuzzy":
        edits = EDITS_DEFAULT if predicate.edits is None else bindings.integer(predicate.edits)
    if query is None or edits is None:
        return None
    return TextSearch(
        column=predicate.field.property,
        query=query,
        mode=_MODES[predicate.function],
        fuzziness=min(max(edits, 0), _EDITS_MAX),
    )
