"""Plans reads of the change feed, for a batch and for each micro-batch of a stream.

1. The feed follows the chain of first parents of a branch, oldest first, as
   `omnigraph.changes.feed` does; what a merge brought in are the changes of the merge.
2. Both ends of a range are part of it. The columns are those of the schema at its end. A commit in
   the range that changed the columns of a type is refused, whatever is selected, unless such
   commits are asked for: then all rows are read as these columns, in frames of all types as those
   of the commit. What a row did not have is what the schema change gave it.
3. Every version that a task will open is opened here first. What cleanup has taken is then a gap
   that names its commit, before any task has started.
4. Commits that only rearrange files are not looked at: they changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from omnigraph.changes.commit_changes import ParentlessCommitError
from omnigraph.changes.diff import ChangeGapError, changed_pairs, handles_of
from omnigraph.changes.feed import SchemaChanges
from omnigraph.changes.table_changes import differing_fragments
from omnigraph.changes.type_pairs import TypePair
from omnigraph.manifest.errors import DatasetMissingError, VersionRemovedError
from omnigraph.manifest.snapshot import open_entry
from omnigraph.names import TableKey, choice
from omnigraph.schema import read_ir
from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.mapping import TypeMapping, map_type
from omnigraph.spark.change_rows import (
    CAUSE,
    ChangeSlice,
    FeedCommit,
    FeedFrame,
    SlicesPartition,
    read_slices,
    viewed,
)
from omnigraph.spark.source.options import (
    SCHEMA_CHANGES,
    SourceOptionError,
    SourceOptions,
    feed_subject,
    refuse_options,
)
from omnigraph.spark.source.pin import COMMIT_ID, open_pinned, read_repository
from omnigraph.spark.source.scan import Pin
from omnigraph.spark.source.tables import PARTITION_ROWS, columns_of, find_type, grouped_by_rows
from omnigraph.store.batching import grouped
from omnigraph.store.errors import DatasetVersionNotFoundError

if TYPE_CHECKING:
    from omnigraph.manifest import Entry, GraphCommit, Snapshot
    from omnigraph.manifest.history import History
    from omnigraph.manifest.rows import AcceptedSchema
    from omnigraph.schema import EntityType
    from omnigraph.store.records import FragmentInfo

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

_REARRANGING: Final = frozenset({"optimize", "ensure_indices"})


@dataclass(frozen=True)
class FeedScan:
    """Whose changes are read, and as which columns."""

    pin: Pin
    frame: FeedFrame
    subject: tuple[str, str] | None = None
    """Kind and name of the one type."""
    location: str | None = None
    """The dataset of that type, which keeps its place when the type is renamed."""
    schema_changes: SchemaChanges = SchemaChanges.REFUSE
    declared: tuple[EntityType, AcceptedSchema] | None = None
    """That type, and the schema in which it is declared so."""

    def takes(self, entry: Entry | None) -> bool:
        """Whether changes of a dataset are read."""
        return entry is not None and self.location in (None, entry.location)


def plan_feed(options: SourceOptions, pin: Pin) -> FeedScan:
    """Check what a read of changes asks for, on the snapshot whose schema it has."""
    subject = feed_subject(options)
    wish = choice(SchemaChanges, options[SCHEMA_CHANGES] or "refuse", f"`{SCHEMA_CHANGES}`")
    snapshot = open_pinned(pin)
    if subject is None:
        refuse_options(options, "readChangeFeed without `node` or `edge`", ("columns",))
        return FeedScan(pin, FeedFrame.of_all(), schema_changes=wish)
    entity_type = find_type(snapshot, *subject)
    frame = FeedFrame.of_type(entity_type, _columns(options, entity_type))
    location = snapshot.entry(entity_type.table_key).location
    return FeedScan(pin, frame, subject, location, wish, (entity_type, snapshot.schema))


def _columns(options: SourceOptions, entity_type: EntityType) -> tuple[str, ...]:
    columns = columns_of(options, entity_type)
    taken = {field.name for field in CAUSE}
    for column in columns:
        if column in taken:
            problem = f"must leave out `{column}`: the change feed has a column of that name"
            raise SourceOptionError("columns", problem)
    return columns


# -- a batch ---------------------------------------------------------------------------------------


class FeedReader(DataSourceReader):
    """Reads the changes of a range of commits."""

    def __init__(self, scan: FeedScan, options: SourceOptions) -> None:
        self._scan = scan
        self._options = options

    @property
    def schema(self) -> pa.Schema:
        """The columns of the frame."""
        return self._scan.frame.schema

    def partitions(self) -> list[InputPartition]:
        """Return the slices of each task, in the order of the commits."""
        # Not when the reader is made: a stream asks the same options for its columns.
        refuse_options(self._options, "a batch", ("maxCommitsPerTrigger",))
        expected = f"`{EARLIEST}`, or the first commit, tag or manifest version to be read"
        starting = self._options.require("startingVersion", expected)
        history = read_repository(self._scan.pin.settings).history
        chain = chain_of(self._scan.pin)
        first = first_of(chain, starting, history)
        if first > len(chain) - 1 and self._options["endingVersion"] is not None:
            problem = f"lies before `startingVersion` '{starting}'"
            raise SourceOptionError("endingVersion", problem)
        found = partitions_of(self._scan, changes_of(self._scan, history, chain[first:]))
        # Spark gives a reader without partitions one of its own making.
        return found or [SlicesPartition(self._scan.pin.settings, self._scan.frame, ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_slices(partition)


def plan_feed_batch(options: SourceOptions, pin: Pin) -> FeedReader:
    """Plan the read of a range of commits: it ends at the pin, or at an earlier commit."""
    ending = options["endingVersion"]
    if ending is not None:
        chain = chain_of(pin)
        place = last_of(chain, ending, read_repository(pin.settings).history)
        pin = Pin(pin.settings, pin.branch, chain[place].graph_commit_id)
    return FeedReader(plan_feed(options, pin), options)


def chain_of(pin: Pin) -> tuple[GraphCommit, ...]:
    """Return the chain of first parents of a snapshot, oldest first."""
    return tuple(reversed(open_pinned(pin).state.commits()))


# -- places ----------------------------------------------------------------------------------------


def first_of(chain: Sequence[GraphCommit], text: str, history: History) -> int:
    """Return the position in a chain of the first commit to read."""
    if text.strip().lower() == EARLIEST:
        return 1
    if text.isdecimal():
        return next(
            (n for n, commit in enumerate(chain) if commit.manifest_version >= int(text)),
            len(chain),
        )
    return _place(chain, text, history, option="startingVersion")


def last_of(chain: Sequence[GraphCommit], text: str, history: History) -> int:
    """Return the position in a chain of the last commit to read: at least the first of all."""
    if text.isdecimal():
        return max(sum(commit.manifest_version <= int(text) for commit in chain), 1) - 1
    return _place(chain, text, history, option="endingVersion")


def _place(chain: Sequence[GraphCommit], text: str, history: History, *, option: str) -> int:
    is_id = COMMIT_ID.fullmatch(text) is not None
    commit_id = text if is_id else history.tagged_commit(text).graph_commit_id
    for number, commit in enumerate(chain):
        if commit.graph_commit_id == commit_id:
            return number
    problem = f"'{text}' is no commit in what is read of the history of this branch"
    raise SourceOptionError(option, problem)


# -- slices ----------------------------------------------------------------------------------------


def changes_of(
    scan: FeedScan, history: History, commits: Iterable[GraphCommit]
) -> Iterator[ChangeSlice]:
    """Yield what commits changed, in their order."""
    for commit in commits:
        if commit.operation in _REARRANGING:
            continue
        try:
            yield from _slices(scan, history, commit)
        except (VersionRemovedError, DatasetMissingError, DatasetVersionNotFoundError) as error:
            raise ChangeGapError(commit.graph_commit_id) from error


def snapshot_slices(
    scan: FeedScan, snapshot: Snapshot, commit: GraphCommit
) -> Iterator[ChangeSlice]:
    """Yield everything that a snapshot holds, as inserts: what a stream begins with."""
    catalog = snapshot.catalog
    entity_types: list[EntityType] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    for entity_type in sorted(
        entity_types, key=lambda one: (TableKey(one.table_key).is_edge, one.table_key)
    ):
        entry = snapshot.entries.get(entity_type.table_key)
        if entry is not None and scan.takes(entry):
            fragments = open_entry(snapshot.datasets, entry).fragments()
            yield from _inserts(_told(commit), entity_type, entry, fragments)


def _slices(scan: FeedScan, history: History, commit: GraphCommit) -> list[ChangeSlice]:
    if commit.parent_commit_id is None:
        raise ParentlessCommitError(commit.graph_commit_id)
    before = history.snapshot_of_commit(commit.parent_commit_id)
    after = history.snapshot_of_commit(commit.graph_commit_id)
    pairs = list(changed_pairs(before, after, boundary=scan.schema_changes.boundary))
    pairs.sort(key=lambda pair: (TableKey(pair.table_key).is_edge, pair.table_key))
    return [
        one
        for pair in pairs
        if scan.takes(pair.after or pair.before)
        for one in _slices_of(scan, pair, before, after, _told(commit))
    ]


def _slices_of(
    scan: FeedScan, pair: TypePair, before: Snapshot, after: Snapshot, commit: FeedCommit
) -> Iterator[ChangeSlice]:
    shown = _shown(scan, pair, before, after)
    old, new = handles_of(pair, before, after)
    differing = differing_fragments(viewed(old, shown.before), viewed(new, shown.after))
    if pair.after is not None and differing.are_only_added:
        added = _inserts(commit, shown.entity_type, pair.after, differing.only_after)
        yield from (replace(one, after_view=shown.after) for one in added)
        return
    yield ChangeSlice(
        commit,
        shown.entity_type,
        *pair.versions,
        differing.rows,
        before_view=shown.before,
        after_view=shown.after,
    )


@dataclass(frozen=True)
class _Shown:
    """The type as which the rows of both sides are shown, and how they become it."""

    entity_type: EntityType
    before: TypeMapping | None = None
    after: TypeMapping | None = None


def _shown(scan: FeedScan, pair: TypePair, before: Snapshot, after: Snapshot) -> _Shown:
    if scan.schema_changes is SchemaChanges.REFUSE:
        return _Shown(pair.entity_type)
    wanted, schema = scan.declared or (pair.entity_type, after.schema)
    schemas = {each.schema_hash: each for each in (before.schema, after.schema, schema)}
    aliases = Aliases.of(*(read_ir(each.ir) for each in schemas.values()))
    old, new = (
        None if side is None else map_type(side, wanted, aliases)
        for side in (pair.sides.before, pair.sides.after)
    )
    return _Shown(wanted, old, new)


def _inserts(
    commit: FeedCommit,
    entity_type: EntityType,
    entry: Entry,
    added: Sequence[FragmentInfo],
) -> Iterator[ChangeSlice]:
    rows_of = {one.fragment_id: one.rows for one in added if one.rows}
    for group in grouped_by_rows([one for one in added if one.rows]):
        rows = sum(rows_of[fragment_id] for fragment_id in group)
        yield ChangeSlice(commit, entity_type, None, entry.at, rows, group)


def _told(commit: GraphCommit) -> FeedCommit:
    return FeedCommit(commit.graph_commit_id, commit.manifest_version, commit.created_at)


def partitions_of(scan: FeedScan, slices: Iterable[ChangeSlice]) -> list[InputPartition]:
    """Group neighbouring slices until they are enough work for a task."""
    groups = grouped(slices, PARTITION_ROWS, lambda one: one.rows)
    return [SlicesPartition(scan.pin.settings, scan.frame, tuple(group)) for group in groups]
