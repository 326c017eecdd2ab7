"""Bulk load: records or tables become one commit, or nothing.

1. The input is read once. Rows are converted and judged one by one while it is read; what is wrong
   anywhere in it is reported together, and then nothing is written.
2. All types of one call are one commit; an edge may name a node of the same call in any order.
3. An input without rows makes no commit.
4. `append` and `merge` that lose a race before any effect are judged and staged again on the newer
   state, with the rows as they were converted and the files as they were written. `overwrite` is
   handed back to the caller, unless only upkeep has moved its tables.
5. A branch that the call has made is removed again when the load fails.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import pyarrow as pa

from omnigraph.errors import InvalidInputError, OmnigraphError, OutcomeUnknownError
from omnigraph.manifest import CommitDraft
from omnigraph.manifest.catalogs import catalog_of
from omnigraph.manifest.errors import (
    BranchNotFoundError,
    ExpectedVersionMismatchError,
    SchemaMovedError,
)
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.publish import Requirements
from omnigraph.names import MAIN, BranchName
from omnigraph.recovery import WriterKind
from omnigraph.schema import EdgeType, NodeType
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.schema.values.ids import EndpointRemap, build_endpoint_remap
from omnigraph.write.columns import Mask, flat, last_rows
from omnigraph.write.delta import GraphDelta, TableDelta, WriteMode
from omnigraph.write.external_blobs import ExternalBlobs
from omnigraph.write.load_rows import LoadSettings, TypeRows
from omnigraph.write.prepare import KeptRows, prepare
from omnigraph.write.protocol import WriteJob
from omnigraph.write.spool import MEMORY_MAX, SpoolRoom
from omnigraph.write.validate import validate, value_violations
from omnigraph.write.validate_endpoints import edge_ends
from omnigraph.write.validate_unique import judged_columns
from omnigraph.write.validate_values import add_row_errors
from omnigraph.write.violations import ViolationLog

if TYPE_CHECKING:
    from omnigraph.manifest import GraphCommit, Published, Repository, Snapshot
    from omnigraph.schema import Catalog
    from omnigraph.write.load_source import LoadSource
    from omnigraph.write.protocol import Committer

_log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 5
_PAUSE_S: Final = 0.02
_PAUSE_MAX_S: Final = 0.5


class UnknownChoiceError(InvalidInputError):
    """A setting has none of its values."""

    code = "OG-CHOICE"

    def __init__(self, what: str, found: str, known: tuple[str, ...]) -> None:
        self.what = what
        self.found = found
        self.known = known
        super().__init__(f"unknown {what} '{found}': expected {', '.join(known)}")


Choice = TypeVar("Choice", bound=StrEnum)


def choice(kind: type[Choice], text: str, what: str) -> Choice:
    """Read one of the values of a setting.

    >>> choice(WriteMode, "merge", "load mode")
    <WriteMode.MERGE: 'merge'>
    """
    try:
        return kind(text)
    except ValueError:
        raise UnknownChoiceError(what, text, tuple(kind)) from None


@dataclass(frozen=True)
class LoadOptions:
    """How and where to load."""

    mode: WriteMode
    target: Incarnation | BranchName
    """A life of a branch, or a name that is looked up, or created with `from_branch`."""
    from_branch: BranchName | None = None
    actor_id: str | None = None
    expected_head: str | None = None
    message: str | None = None
    conversion: ConversionMode = ConversionMode.STRICT
    external_blob_bases: tuple[str, ...] = ()
    memory_max: int = MEMORY_MAX
    """Rows beyond so many bytes wait in files."""


@dataclass(frozen=True)
class LoadResult:
    """What a load has done; counts are records read, by type and sorted by name."""

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: str
    nodes: tuple[tuple[str, int], ...]
    edges: tuple[tuple[str, int], ...]
    commit: GraphCommit | None
    actor_id: str | None

    @property
    def total_entities(self) -> int:
        """How many records were read."""
        return sum(count for _, count in self.nodes + self.edges)

    def to_json(self) -> dict[str, object]:
        """Return the result as programs see it."""
        shape: dict[str, object] = {
            "branch": self.branch,
            "base_branch": self.base_branch,
            "branch_created": self.branch_created,
            "mode": self.mode,
            "nodes": [{"name": name, "entities_loaded": count} for name, count in self.nodes],
            "edges": [{"name": name, "entities_loaded": count} for name, count in self.edges],
            "total_entities": self.total_entities,
            "commit": None if self.commit is None else self.commit.to_json(),
        }
        if self.actor_id is not None:
            shape["actor_id"] = self.actor_id
        return shape


class Loader:
    """Loads into the branches of one graph."""

    def __init__(self, repository: Repository, committer: Committer) -> None:
        self._repository = repository
        self._committer = committer

    def load(self, source: LoadSource, options: LoadOptions) -> LoadResult:
        """Read everything, judge it, and commit it once."""
        with self._target(options) as target, SpoolRoom(options.memory_max) as room:
            snapshot = self._repository.history.snapshot(target.incarnation)
            if options.expected_head is not None:
                self._repository.publisher.require(
                    target.incarnation, Requirements(expected_head=options.expected_head)
                )
            catalog = catalog_of(snapshot.schema)
            collected = self._collect(source, catalog, options, room)
            commit = None
            if not collected.delta.is_empty:
                job = _Load(collected.delta, catalog, options, source.place)
                commit = self._commit(job, snapshot).commit
            return _result(options, target, collected, commit)

    # -- where ------------------------------------------------------------------------------------

    @contextmanager
    def _target(self, options: LoadOptions) -> Iterator[_Target]:
        target = self._find(options)
        try:
            yield target
        except OutcomeUnknownError:
            # The load may be there, and the branch with it.
            raise
        except BaseException:
            if target.is_new:
                self._take_back(target)
            raise

    def _find(self, options: LoadOptions) -> _Target:
        branches = self._repository.branches
        if isinstance(options.target, Incarnation):
            return _Target(options.target, is_new=False)
        try:
            return _Target(branches.resolve(options.target), is_new=False)
        except BranchNotFoundError:
            if options.from_branch is None:
                raise
        source = branches.resolve(options.from_branch)
        operation_id = self._repository.clock.ulid()
        made = branches.create(options.target, source=source, operation_id=operation_id)
        return _Target(made, is_new=True)

    def _take_back(self, target: _Target) -> None:
        repository = self._repository
        try:
            if repository.branches.is_alive(target.incarnation):
                repository.branches.delete(
                    target.incarnation.branch,
                    bound=BranchName(MAIN),
                    operation_id=repository.clock.ulid(),
                )
        except OmnigraphError as error:
            _log.warning("branch %s stays behind: %s", target.incarnation.branch, error)

    # -- what -------------------------------------------------------------------------------------

    def _collect(
        self, source: LoadSource, catalog: Catalog, options: LoadOptions, room: SpoolRoom
    ) -> _Collected:
        storage_options = self._repository.store.settings.storage_options
        external = ExternalBlobs(options.external_blob_bases, storage_options)
        settings = LoadSettings(options.conversion, self._repository.clock, external)
        log = ViolationLog()
        types: dict[str, TypeRows] = {}

        def rows_of(owner: NodeType | EdgeType) -> TypeRows:
            if owner.table_key not in types:
                types[owner.table_key] = TypeRows(owner, settings, room, log)
            return types[owner.table_key]

        source.read(catalog, rows_of, log)
        read = {key: _Read(rows, *rows.finish()) for key, rows in types.items()}
        remaps = {key: _remap(part) for key, part in read.items() if part.rows.spellings}
        tables = {
            key: _folded(_remapped(part, remaps, log), options.mode, room)
            for key, part in read.items()
        }
        delta = GraphDelta(tables)
        if log.total:
            value_violations(delta, catalog, log)
            log.require_clean(source.place)
        counts = {key: rows.records_read for key, rows in types.items()}
        return _Collected(delta, counts)

    # -- committing -------------------------------------------------------------------------------

    def _commit(self, load: _Load, snapshot: Snapshot) -> Published:
        schema_hash = snapshot.schema.schema_hash
        kept: KeptRows = {}
        attempt = 1
        while True:
            try:
                return self._attempt(load, snapshot, kept)
            except ExpectedVersionMismatchError as error:
                is_repeatable = load.options.mode is not WriteMode.OVERWRITE
                if attempt >= ATTEMPTS_MAX or not (is_repeatable or error.is_only_maintenance):
                    raise
            self._pause(attempt)
            attempt += 1
            snapshot = self._repository.history.snapshot(snapshot.incarnation)
            if snapshot.schema.schema_hash != schema_hash:
                raise SchemaMovedError(schema_hash, snapshot.schema.schema_hash)

    def _attempt(self, load: _Load, snapshot: Snapshot, kept: KeptRows) -> Published:
        clock = self._repository.clock
        options = load.options
        validated = validate(load.delta, snapshot, load.catalog, operation="load", place=load.place)
        operation_id = clock.ulid()
        tables = prepare(
            load.delta,
            snapshot,
            snapshot.incarnation,
            self._repository,
            operation_id=operation_id,
            kept=kept,
        )
        job = WriteJob(
            kind=WriterKind.LOAD,
            incarnation=snapshot.incarnation,
            operation_id=operation_id,
            draft=CommitDraft(
                graph_commit_id=clock.ulid(),
                operation="load",
                actor_id=options.actor_id,
                created_at=clock.now_us(),
                message=options.message,
            ),
            schema_hash=snapshot.schema.schema_hash,
            tables=tables,
            reads=validated.reads,
            expected_head=options.expected_head,
        )
        return self._committer.commit(job, revalidate=validated.revalidate)

    def _pause(self, attempt: int) -> None:
        clock = self._repository.clock
        clock.sleep(clock.jitter(0.0, min(_PAUSE_S * 2**attempt, _PAUSE_MAX_S)))


@dataclass(frozen=True)
class _Target:
    incarnation: Incarnation
    is_new: bool


@dataclass(frozen=True)
class _Read:
    """Everything that was read of one type."""

    rows: TypeRows
    table: pa.Table
    positions: pa.Array


@dataclass(frozen=True)
class _Collected:
    delta: GraphDelta
    counts: dict[str, int]


@dataclass(frozen=True)
class _Load:
    """A load that has been read."""

    delta: GraphDelta
    catalog: Catalog
    options: LoadOptions
    place: str


def _remap(read: _Read) -> EndpointRemap:
    spellings = read.rows.spellings
    if spellings is None:
        raise ValueError("there is no other spelling to remap")
    return build_endpoint_remap(*spellings, flat(read.table["id"]))


def _remapped(read: _Read, remaps: dict[str, EndpointRemap], log: ViolationLog) -> _Read:
    """Rewrite the ends of edges that use another spelling of an id of the same load."""
    owner = read.rows.owner
    if not isinstance(owner, EdgeType):
        return read
    table = read.table
    for end, node_type in edge_ends(owner):
        remap = remaps.get(f"node:{node_type}")
        if remap is None:
            continue
        found = remap.apply(flat(table[end]))
        add_row_errors(
            log,
            found.errors,
            type_name=owner.name,
            name=end,
            rule="endpoint",
            positions=read.positions,
        )
        place = table.schema.get_field_index(end)
        table = table.set_column(place, table.schema.field(end), found.ids)
    return _Read(read.rows, table, read.positions)


def _folded(read: _Read, mode: WriteMode, room: SpoolRoom) -> TableDelta:
    """Keep the last row of every id where that is what the mode means."""
    owner, table = read.rows.owner, read.table
    records = table.select(judged_columns(owner))
    rows, positions = table, read.positions
    is_folded = mode is WriteMode.MERGE and not read.rows.ids_are_new
    kept = last_rows(table["id"]) if is_folded else None
    if kept is not None:
        mask = np.zeros(table.num_rows, np.bool_)
        mask[kept] = True
        rows, positions = _filtered(table, mask, room), positions.filter(pa.array(mask))
    return TableDelta(
        table_key=owner.table_key,
        mode=mode,
        rows=rows,
        deleted=pa.array([], pa.utf8()),
        positions=positions,
        records=records,
        record_positions=read.positions,
        ids_are_new=read.rows.ids_are_new,
    )


def _filtered(table: pa.Table, mask: Mask, room: SpoolRoom) -> pa.Table:
    """Keep some rows, in a file again when there are many."""
    spool = room.spool(table.schema)
    start = 0
    for batch in table.to_batches():
        spool.append(batch.filter(pa.array(mask[start : start + batch.num_rows])))
        start += batch.num_rows
    return spool.finish()


def _result(
    options: LoadOptions, target: _Target, collected: _Collected, commit: GraphCommit | None
) -> LoadResult:
    counts = sorted(collected.counts.items())
    return LoadResult(
        branch=str(target.incarnation.branch),
        base_branch=None if options.from_branch is None else str(options.from_branch),
        branch_created=target.is_new,
        mode=str(options.mode),
        nodes=_of_kind(counts, "node:"),
        edges=_of_kind(counts, "edge:"),
        commit=commit,
        actor_id=options.actor_id,
    )


def _of_kind(counts: list[tuple[str, int]], prefix: str) -> tuple[tuple[str, int], ...]:
    return tuple((key.removeprefix(prefix), n) for key, n in counts if key.startswith(prefix))
