"""What the tasks of a load have staged, as the driver sees it: parts, sets of ids, a readable view.

Rows of a type are numbered over all of its parts, in the order of the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.schema import EntityType
from omnigraph.spark.load.absent_files import AbsentFiles
from omnigraph.spark.load.plan import ABSENT, ID, StagedPart
from omnigraph.spark.load.side_files import SideFiles
from omnigraph.write.stage.columns import concatenated, flat

if TYPE_CHECKING:
    from omnigraph.write.stage.columns import Integers


@dataclass(frozen=True)
class StagedType:
    """All parts of one type."""

    entity_type: EntityType
    files: SideFiles
    parts: tuple[StagedPart, ...]

    @property
    def table_key(self) -> str:
        """The table that the rows go to."""
        return self.entity_type.table_key

    @property
    def records(self) -> int:
        """How many records were read."""
        return sum(part.records for part in self.parts)

    @property
    def rows(self) -> int:
        """How many rows were written."""
        return sum(part.rows for part in self.parts)

    @property
    def absent(self) -> frozenset[str]:
        """The properties that some rows do not name."""
        return frozenset(name for part in self.parts for name in part.absent)

    @property
    def absent_everywhere(self) -> frozenset[str]:
        """The properties that no row names."""
        found = [part.absent_everywhere for part in self.parts if part.rows]
        return frozenset.intersection(*found) if found else frozenset()

    @property
    def absent_files(self) -> AbsentFiles:
        """What rows do not name."""
        return AbsentFiles(self.run_paths(ABSENT))

    @property
    def ids_are_new(self) -> bool:
        """Whether the load made every id itself."""
        return all(part.ids_are_new for part in self.parts)

    @cached_property
    def first_rows(self) -> Integers:
        """The number of the first row of every part."""
        counts = np.array([part.rows for part in self.parts], np.int64)
        return np.cumsum(counts) - counts

    def runs(self, kind: str) -> tuple[pa.Table, ...]:
        """Map the sorted runs of hashes of one kind into memory."""
        return tuple(
            self.files.read(part.side_files[kind]) for part in self.parts if kind in part.side_files
        )

    def run_paths(self, kind: str) -> tuple[tuple[str, int], ...]:
        """Return the files of one kind, each with the number of its part's first row."""
        return tuple(
            (part.side_files[kind], int(first))
            for part, first in zip(self.parts, self.first_rows, strict=True)
            if kind in part.side_files
        )

    def ids(self) -> pa.Array:
        """Return all ids that the input gave, in no order; only for few rows."""
        runs = [flat(run["id"]) for run in self.runs(ID)]
        return concatenated(*runs) if runs else pa.array([], pa.utf8())

    def positions(self, rows: Integers) -> Integers:
        """Return where rows came from."""
        part_numbers = np.searchsorted(self.first_rows, rows, side="right") - 1
        found = np.zeros(len(rows), np.int64)
        for number in np.unique(part_numbers).tolist():
            own = part_numbers == number
            found[own] = self.parts[number].positions.at(rows[own] - self.first_rows[number])
        return found


@dataclass
class StagedGraph:
    """The parts of all types, as they come in."""

    files: SideFiles
    parts: dict[str, list[StagedPart]] = field(default_factory=dict)

    def add(self, parts: Sequence[StagedPart]) -> None:
        """Take the parts of one task."""
        for part in parts:
            self.parts.setdefault(part.table_key, []).append(part)

    def of(self, entity_type: EntityType) -> StagedType | None:
        """Return what was staged of a type, in the order of the input."""
        parts = self.parts.get(entity_type.table_key)
        if parts is None:
            return None
        return StagedType(
            entity_type, self.files, tuple(sorted(parts, key=lambda part: part.order))
        )
