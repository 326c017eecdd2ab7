"""Everything that the operators of one running query share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from functools import cached_property, partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.query.bindings import Bindings
from omnigraph.query.plan.plan import (
    EntityId,
    NearestRanking,
    Predicate,
    PropertyValue,
    Ranking,
    TextMatch,
)
from omnigraph.read.access.path_chooser import PathChooser
from omnigraph.read.access.table_reader import TableReader
from omnigraph.read.access.text_matcher import TextMatcher
from omnigraph.read.column_names import column_name, stored_column
from omnigraph.read.limits import Guard
from omnigraph.read.planner import Estimates, Measured
from omnigraph.read.profile import Profile
from omnigraph.read.row_table import RowIds, RowTable
from omnigraph.search.coverage import IndexFacts

ROWS_AT_ONCE: Final = 1 << 22

Embed: TypeAlias = Callable[[NearestRanking, str, str], tuple[float, ...]]
"""Turns the text of a ranking of a table into a vector of the property's dimension and model."""


@dataclass(frozen=True, eq=False)
class ScoreMap:
    """The scores of ranked nodes, by ascending row id."""

    row_ids: RowIds
    scores: npt.NDArray[np.float64]
    ranks: RowIds
    """The position of each node in the ranking, best first: it breaks ties."""

    def of(self, row_ids: RowIds) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Return the score of each node, and whether it has one."""
        positions, is_known = self._find(row_ids)
        return np.where(is_known, self.scores[positions], np.nan), is_known

    def best_first(self) -> RowIds:
        """Return the nodes in the order of the ranking."""
        ordered = np.empty(len(self.row_ids), np.int64)
        ordered[self.ranks] = self.row_ids
        return ordered

    def ranks_of(self, row_ids: RowIds) -> RowIds:
        """Return the position of each node in the ranking; all of them must have one."""
        return self.ranks[self._find(row_ids)[0]]

    def _find(self, row_ids: RowIds) -> tuple[RowIds, npt.NDArray[np.bool_]]:
        if not len(self.row_ids):
            raise LookupError("the ranking is empty")
        positions = np.searchsorted(self.row_ids, row_ids)
        positions[positions == len(self.row_ids)] = 0
        return positions, self.row_ids[positions] == row_ids


@dataclass(eq=False)
class Context:
    """One running query: its snapshot, its request, its limits and the scores found so far."""

    tables: TableReader
    bindings: Bindings
    guard: Guard
    adjacency: PathChooser
    texts: TextMatcher
    profile: Profile
    indexes: IndexFacts
    folds: bool = True
    embed: Embed | None = None
    rows_at_once: int = ROWS_AT_ONCE
    """An aggregate over more rows than this is made in batches."""
    measure: Callable[[Context, str, tuple[Predicate, ...]], Measured | None] | None = None
    """Counts nodes that pass filters where that is cheap."""
    scores: dict[Ranking, ScoreMap] = field(default_factory=dict)
    found: dict[tuple[str, tuple[Predicate, ...]], RowIds] = field(default_factory=dict)
    """Nodes of a type that pass filters, where these were evaluated on the whole type."""

    @cached_property
    def estimates(self) -> Estimates:
        """How many rows are expected."""
        measure = None if self.measure is None else partial(self.measure, self)
        return Estimates(self.tables.row_count, self.bindings, measure)

    def columns(self, rows: RowTable, values: Iterable[PropertyValue | EntityId]) -> pa.Table:
        """Fetch values of variables for all rows, as a table of `variable.property` columns."""
        wanted: dict[str, dict[str, str]] = {}
        for value in values:
            wanted.setdefault(value.variable, {})[stored_column(value)] = column_name(value)
        # A table without columns would not know how many rows it has.
        found: dict[str, pa.Array] = {"": pa.nulls(rows.count)}
        for variable, names in wanted.items():
            entities = rows.entities[variable]
            self.guard.claim(f"reading `{variable}`", rows=rows.count, cells=len(names))
            fetched = self.tables.fetch(entities.table_key, entities.row_ids, tuple(names))
            found |= {names[stored]: column for stored, column in fetched.items()}
        return pa.table(found)

    def text_rows(self, rows: RowTable) -> Callable[[TextMatch, pa.Table], pa.Array]:
        """Return a function that evaluates full-text predicates over these rows."""

        def answer(predicate: TextMatch, table: pa.Table) -> pa.Array:
            entities = rows.entities[predicate.field.variable]
            matches = self.texts.matches(entities.table_key, predicate, self.bindings)
            if matches is None:
                return pa.nulls(rows.count, pa.bool_())
            column = table[column_name(predicate.field)]
            is_absent = column.is_null().to_numpy(zero_copy_only=False)
            return pa.array(np.isin(entities.row_ids, matches), mask=is_absent)

        return answer
