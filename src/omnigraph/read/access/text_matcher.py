"""Full-text predicates and rankings: which nodes of a type match.

1. The result does not depend on indexes. Texts that no stored index covers are analysed as an
   index would (`omnigraph.store.text_index`), so covered and uncovered rows match alike.
2. Tokens of a fuzzy query are analysed like stored ones before letters are compared.
3. A relevance is BM25. Rows of one ranking are measured with the statistics of all rows when there
   is no index or when it covers less than half of them, else with those of the covered rows, to
   which uncovered rows add their own.

| | no index | index over a part | index over all |
|---|---|---|---|
| any token, phrase | index in memory | the store, which reads the rest | the store |
| fuzzy, up to two letters | index in memory | the store, and an index in memory | the store |
| fuzzy, more letters | every text is tokenized | the same | the same |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.query.bindings import Bindings
from omnigraph.query.plan.plan import TextMatch
from omnigraph.read.access.table_reader import TableReader
from omnigraph.read.row_table import RowIds, ascending_ids
from omnigraph.search.coverage import ColumnIndex, IndexFacts
from omnigraph.search.text.edit_distance import within_edits
from omnigraph.search.text.indexes import TextIndexes
from omnigraph.store.filters import Filter
from omnigraph.store.records import ROW_ID, SCORE, ScanRequest, TextSearch
from omnigraph.store.text_index import FUZZINESS_MAX, TextIndex, analysed

EDITS_DEFAULT: Final = 2
TERMS_MAX: Final = 1_000
"""How many different words a fuzzy query may have: each is compared with all stored ones."""
_CHECKED_ROWS: Final = 4_096

Scored = tuple[RowIds, npt.NDArray[np.float64]]


class TextQueryError(InvalidInputError):
    """A full-text query has too many words."""

    code = "OG-QUERY-TEXT"
    hint = "use search or match_text for long texts"
    template = "a fuzzy query may have {terms_max} different words, and this one has {terms}"
    terms: int
    terms_max: int


@dataclass(eq=False)
class TextMatcher:
    """Searches the store for rows that an index covers, and an index in memory for the others.

    Equal predicates are evaluated once per query.
    """

    tables: TableReader
    indexes: IndexFacts
    in_memory: TextIndexes
    _found: dict[tuple[str, TextSearch], RowIds] = field(default_factory=dict)

    def matches(self, table_key: str, predicate: TextMatch, bindings: Bindings) -> RowIds | None:
        """Return the row ids that match, ascending; None when the predicate is unknown."""
        search = text_search(predicate, bindings)
        if search is None:
            return None
        if (table_key, search) not in self._found:
            find = self._fuzzy if search.fuzziness else self._plain
            self._found[table_key, search] = ascending_ids(find(table_key, search))
        return self._found[table_key, search]

    def ranked(
        self, table_key: str, search: TextSearch, row_filter: Filter | None, among: RowIds | None
    ) -> Scored:
        """Return the row ids that match, with their relevance, in any order."""
        index = self._index(table_key, search.column)
        rows = self.tables.row_count(table_key)
        if index is not None and index.missing_rows * 2 <= rows:
            return self._stored(table_key, search, row_filter, among)
        row_ids, scores = self._memory(table_key, search.column, None).search(search)
        allowed = self._allowed(table_key, row_filter) if among is None else among
        if allowed is None:
            return row_ids, scores
        is_allowed = np.isin(row_ids, allowed)
        return row_ids[is_allowed], scores[is_allowed]

    # -- kinds of searches ----------------------------------------------------------------------

    def _plain(self, table_key: str, search: TextSearch) -> RowIds:
        if self._index(table_key, search.column) is None:
            return self._memory(table_key, search.column, None).search(search)[0]
        return self._stored(table_key, search, None, None)[0]

    def _fuzzy(self, table_key: str, search: TextSearch) -> RowIds:
        terms = tuple(dict.fromkeys(analysed(search.query)))
        if len(terms) > TERMS_MAX:
            raise TextQueryError(terms=len(terms), terms_max=TERMS_MAX)
        if not terms:
            return np.empty(0, np.int64)
        if search.fuzziness > FUZZINESS_MAX:
            return self._spelled_nearly(table_key, search, terms)
        wanted = replace(search, query=" ".join(terms))
        index = self._index(table_key, search.column)
        if index is None:
            return self._memory(table_key, search.column, None).search(wanted)[0]
        # The store compares rows that it does not cover without any tolerance.
        wanted = replace(wanted, covered_only=True)
        found = self._stored(table_key, wanted, None, None)[0]
        if index.is_whole:
            return found
        rest = self._memory(table_key, search.column, index).search(wanted)[0]
        return np.concatenate([found, rest])

    def _spelled_nearly(self, table_key: str, search: TextSearch, terms: Sequence[str]) -> RowIds:
        """Compare every word of every text with every term."""
        row_ids, texts = self._texts(table_key, search.column, None)
        words: dict[str, int] = {}
        owners: list[int] = []
        numbers: list[int] = []
        for row, text in enumerate(texts.to_pylist()):
            if row % _CHECKED_ROWS == 0:
                self.tables.guard.check()
            found = [words.setdefault(token, len(words)) for token in analysed(text or "")]
            numbers += found
            owners += [row] * len(found)
        vocabulary = list(words)
        is_near = np.zeros(len(vocabulary), np.bool_)
        for term in terms:
            self.tables.guard.check()
            is_near |= within_edits(vocabulary, term, search.fuzziness)
        is_hit = is_near[np.array(numbers, np.int64)]
        return ascending_ids(row_ids[np.array(owners, np.int64)[is_hit]])

    # -- where rows are -------------------------------------------------------------------------

    def _index(self, table_key: str, column: str) -> ColumnIndex | None:
        return self.indexes.of(self.tables.snapshot, table_key).text(column)

    def _stored(
        self, table_key: str, search: TextSearch, row_filter: Filter | None, among: RowIds | None
    ) -> Scored:
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

    def _memory(self, table_key: str, column: str, stored: ColumnIndex | None) -> TextIndex:
        """Return an index over all rows, or over those that a stored one does not cover."""
        return self.in_memory.of(
            self.tables.snapshot.entry(table_key).at,
            column,
            covers_all=stored is None,
            read=lambda: self._texts(table_key, column, stored),
            check=self.tables.guard.check,
        )

    def _texts(
        self, table_key: str, column: str, stored: ColumnIndex | None
    ) -> tuple[RowIds, pa.ChunkedArray]:
        request = ScanRequest(
            columns=(column,),
            with_row_id=True,
            fragment_ids=None if stored is None else stored.missing_fragments,
        )
        table = self.tables.scan(table_key, request)
        return table[ROW_ID].to_numpy().astype(np.int64), table[column]

    def _allowed(self, table_key: str, row_filter: Filter | None) -> RowIds | None:
        if row_filter is None:
            return None
        request = ScanRequest(columns=(), row_filter=row_filter, with_row_id=True)
        found = self.tables.scan(table_key, request)[ROW_ID]
        return np.asarray(found.to_numpy(), np.int64)


_MODES: Final[dict[str, Literal["any", "phrase"]]] = {
    "search": "any",
    "match_text": "phrase",
    "fuzzy": "any",
}


def text_search(predicate: TextMatch, bindings: Bindings) -> TextSearch | None:
    """Return what to look for; None when a part of the predicate is null."""
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
        fuzziness=max(edits, 0),
    )
