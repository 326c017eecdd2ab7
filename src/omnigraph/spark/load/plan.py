"""The arguments and results of the tasks of a bulk load: frozen and picklable.

A task gets what to read and where to write, and returns records: uncommitted fragments, side files,
bounded lists of problems with their totals. It raises only for bugs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from omnigraph.errors import OmnigraphError
from omnigraph.names import TableKey
from omnigraph.schema import Catalog, EntityType
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.spark.load.key_set import KeySet
from omnigraph.spark.load.side_files import SideFiles
from omnigraph.store.records import DatasetVersion, WrittenFragment
from omnigraph.write.embed.tasks import EmbedOrder
from omnigraph.write.load.check.hashing import HashScheme
from omnigraph.write.load.formats.description import FileSource
from omnigraph.write.load.formats.files import InputFile
from omnigraph.write.rules.unique import unique_tuples
from omnigraph.write.rules.violations import ViolationLog
from omnigraph.write.stage.columns import Integers

FRAME_SOURCE: Final = 1 << 22
"""Sources from this number on are partitions of a DataFrame: their rows have no line in a file."""
VIOLATIONS_ALL: Final = 1 << 62
ID: Final = "id"
CARDINALITY: Final = "card"
ABSENT: Final = "absent"
"""The side file of the properties that staged rows do not name."""
NEEDS: Final = "needs"
"""The run of the ids of rows that lack a required property: they have to be stored."""
MADE: Final = "made"
"""The side file of the rows whose id was made, in parts where other rows have given ones."""
ENDS: Final = "ends"
"""The side file of the ends of staged edges, as numbers of nodes."""


@dataclass(frozen=True)
class ParquetSplit:
    """Some row groups of one parquet file; `first_rows` numbers the first row of each."""

    source: int
    file: InputFile
    columns: Mapping[str, str]
    """The column of a property, where it has another name."""
    groups: tuple[int, ...]
    first_rows: tuple[int, ...]
    rows: int


@dataclass(frozen=True)
class LinesSplit:
    """Bytes of a file of graph records: the lines that begin in them."""

    source: int
    path: str
    start: int
    end: int


@dataclass(frozen=True)
class RecordsSplit:
    """A whole file of graph records, in a format that cannot be split."""

    source: int
    path: str
    form: str


@dataclass(frozen=True)
class RowsSplit:
    """A whole file of rows of one type."""

    source: int
    file: InputFile
    rows_of: FileSource


Split: TypeAlias = ParquetSplit | LinesSplit | RecordsSplit | RowsSplit


@dataclass(frozen=True)
class FileTask:
    """Splits that one task reads, in order. Graph records hold all types, other files one."""

    splits: tuple[Split, ...]
    table_key: str | None = None


@dataclass(frozen=True)
class LoadContext:
    """What holds for all tasks of one load."""

    files: SideFiles
    scheme: HashScheme
    catalog: Catalog
    bases: Mapping[str, DatasetVersion]
    conversion: ConversionMode
    replaces: bool
    """Whether the rows replace what is stored, or join it."""
    external_blob_bases: tuple[str, ...] = ()
    sets: Mapping[str, KeySet] = field(default_factory=dict)
    """Node ids, by table: the ends of edges whose node types are all here are checked at once."""
    keeps_rejected: bool = False
    """Whether rejected records are written to a file, with all that is wrong with them."""
    ends: frozenset[str] = frozenset()
    """Node tables that edges of the load may end in."""
    keeps_ends: bool = False
    """Whether the ends of edges that were looked up are kept, for the topology."""
    embed: EmbedOrder | None = None
    """Which vectors tasks make, if any."""
    tracks_absent: bool = False
    """Whether tasks note which properties rows do not name."""
    keeps_absent: bool = False
    """Whether stored rows keep properties that rows do not name."""
    null_cells_are_absent: bool = False
    """Whether a null of a table means that the row does not name the property."""
    matches_edges: bool = False
    """Whether edges without an id may stand for stored ones."""

    def entity_type(self, table_key: str) -> EntityType:
        """Return the type of a table."""
        kind, name = TableKey(table_key).parts
        types: Mapping[str, EntityType] = (
            self.catalog.node_types if kind == "node" else self.catalog.edge_types
        )
        return types[name]


def unique_runs(entity_type: EntityType) -> dict[str, tuple[str, ...]]:
    """Name the tuples that rows must not share, without the key, whose tuple is the id."""
    tuples = unique_tuples(entity_type)
    return {f"unique-{number}": members for number, members in enumerate(tuples)}


@dataclass(frozen=True)
class Runs:
    """Where rows came from: consecutive numbers as (first, count)."""

    first: Integers
    count: Integers

    def at(self, rows: Integers) -> Integers:
        """Return the positions of some rows, given by their number."""
        ends = np.cumsum(self.count)
        run = np.searchsorted(ends, rows, side="right")
        return self.first[run] + rows - (ends[run] - self.count[run])


def runs_of(positions: Integers) -> Runs:
    """Write positions as runs."""
    if not len(positions):
        nothing = np.zeros(0, np.int64)
        return Runs(nothing, nothing)
    breaks = np.flatnonzero(np.diff(positions) != 1) + 1
    starts = np.concatenate([np.zeros(1, np.int64), breaks])
    ends = np.concatenate([breaks, np.array([len(positions)], np.int64)])
    return Runs(positions[starts], ends - starts)


@dataclass(frozen=True)
class StagedPart:
    """What one task has staged of one type."""

    table_key: str
    order: int
    """Orders the parts of a type as their input was."""
    records: int
    fragments: tuple[WrittenFragment, ...]
    ids_are_new: bool
    positions: Runs
    side_files: Mapping[str, str]
    missing: ViolationLog
    """Ends of written edges without a node."""
    embedded: str | None = None
    """The file that says which vectors were made, and from what."""
    absent: frozenset[str] = frozenset()
    """The properties that some rows do not name."""
    absent_everywhere: frozenset[str] = frozenset()
    """The properties that no row names."""
    changes_texts: bool = False
    """Whether a row names the text of a required vector that it lacks."""
    lacks_without_id: bool = False
    """Whether a row without an id lacks a required property, which a stored edge may keep."""
    made: int = 0
    """How many rows have an id that the load has made."""

    @property
    def rows(self) -> int:
        """How many rows were written."""
        return sum(fragment.rows for fragment in self.fragments)


@dataclass(frozen=True)
class TaskOutcome:
    """What one task has staged, and what was wrong with the rows that it rejected."""

    parts: tuple[StagedPart, ...]
    problems: ViolationLog
    bad_records: int = 0
    rejected: str | None = None
    """The file of rejected records, if they are wanted."""
    lines: Mapping[int, int] = field(default_factory=dict)
    """How many lines each source had, for sources that are pieces of a file."""
    unreadable: tuple[str, str] | None = None
    """A source that cannot be read, and why."""
    respelled: frozenset[str] = frozenset()
    """Node tables of which the input spells ids in another way."""
    failure: OmnigraphError | None = None
    """What ended the task: the driver raises it."""
