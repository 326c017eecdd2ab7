"""Large merges as Spark tasks.

1. Candidates of base against source, and of base against target, meet in the bucket of their id. A
   task that has a bucket sees everything that both sides did to its ids, and decides about them by
   the truth table that decides about whole tables in process.
2. Tasks return the ids and addresses of rows that the merge writes or that conflict, never rows.
   Rules are checked by the driver, over the columns that rules look at.
3. Each task copies some of the rows from the version that has them into fragments of the target. A
   side file, which all tasks map into memory, lists the rows.
4. While tasks run, `__staging/<operation>.json` names the tables that they read and write.
5. Tables with little to compare are done by the driver: a job costs more than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.mapped_table import mapped, mapping_of
from omnigraph.changes.table_changes import (
    RowChanges,
    compared_changes,
    differing_fragments,
)
from omnigraph.merge.parts import (
    Part,
    RewrittenRows,
    RowTarget,
    StoredPart,
    stored_batches,
)
from omnigraph.merge.rows import TableMerge, three_way
from omnigraph.merge.workers import (
    LocalMergeWorkers,
    differs_by,
    joined,
    write_batches,
)
from omnigraph.spark.diff import candidate_tasks
from omnigraph.spark.diff_tasks import (
    DiffTable,
    ReadCandidates,
    refs_of,
)
from omnigraph.spark.load.side_files import SideFiles
from omnigraph.spark.task_store import opened_version
from omnigraph.store import open_store
from omnigraph.write.stage.staging_record import DatasetBase, StagingRecords

if TYPE_CHECKING:
    from omnigraph.manifest import Repository, Snapshot
    from omnigraph.merge.tables import MergedTable, Views
    from omnigraph.schema import EntityType
    from omnigraph.schema.mapping import TypeMapping
    from omnigraph.spark.jobs import JobRunner
    from omnigraph.store.datasets import DatasetHandle, DatasetStore
    from omnigraph.store.records import DatasetVersion, WrittenFragment

BUCKET_ROWS: Final = 250_000
"""How many candidates of all sides one task decides about."""
ROWS_MIN: Final = 100_000
"""A table with fewer candidates is merged by the driver."""
WRITTEN_ROWS: Final = 1_000_000
"""How many rows one task writes: those of a full fragment."""
_SOURCE: Final = 0
_TARGET: Final = 1


@dataclass(frozen=True)
class MergeTuning:
    """Limits that tests lower, to exercise the paths of large merges."""

    bucket_rows: int = BUCKET_ROWS
    rows_min: int = ROWS_MIN
    written_rows: int = WRITTEN_ROWS


@dataclass(frozen=True)
class SparkMergeWorkers:
    """Works as tasks of Spark jobs."""

    files: SideFiles
    datasets: DatasetStore
    jobs: JobRunner
    tuning: MergeTuning = MergeTuning()
    name: str = "spark"

    @property
    def _local(self) -> LocalMergeWorkers:
        return LocalMergeWorkers(self.datasets)

    def classify(self, table: MergedTable) -> TableMerge:
        """Decide about the rows of each bucket in one task."""
        entity_type, handles = table.entity_type, table.handles
        differing = [differing_fragments(handles.base, handles.source)]
        if not table.target_is_base:
            differing.append(differing_fragments(handles.base, handles.target))
        rows = sum(each.rows for each in differing)
        if rows <= self.tuning.rows_min:
            return self._local.classify(table)
        buckets = -(-rows // self.tuning.bucket_rows)
        versions = [_at(handles.source), _at(handles.target)]
        tables = tuple(
            DiffTable(entity_type, "", _at(handles.base), versions[number], 0, buckets)
            for number in range(len(differing))
        )
        tasks = tuple(
            task for number, each in enumerate(differing) for task in candidate_tasks(number, each)
        )
        parts = self.jobs.bucketed(
            "merge",
            ReadCandidates(self.files.settings, tables, tasks),
            buckets,
            _Decide(self.files, entity_type, _Versions(_at(handles.base), *versions), table.views),
        )
        return joined(parts)

    def write(
        self, target: RowTarget, parts: Sequence[Part], kept: RewrittenRows | None = None
    ) -> Sequence[WrittenFragment]:
        """Write stored rows as tasks, and rows that were made here by the driver."""
        stored = [part for part in parts if isinstance(part, StoredPart)]
        if sum(len(part.ids) for part in stored) <= self.tuning.rows_min:
            return self._local.write(target, parts, kept)
        asked = [one for part in stored for one in self._pieces(part, kept)]
        answers = self.jobs.calls("write", _Write(self.files, target), asked)
        fragments = [fragment for answer in answers for fragment in answer]
        made = [part for part in parts if not isinstance(part, StoredPart)]
        if made:
            fragments += self._local.write(target, made, kept)
        return fragments

    def _pieces(self, part: StoredPart, kept: RewrittenRows | None) -> Iterator[_Piece]:
        columns = {"row_id": pa.array(part.refs.row_ids, pa.uint64())}
        if kept is not None:
            places = pc.index_in(part.ids, value_set=kept.ids).to_numpy()
            columns["id"] = part.ids
            columns["kept"] = pa.array(kept.row_ids[places], pa.uint64())
        path = self.files.write("rows", pa.table(columns))
        count = len(part.refs)
        for start in range(0, count, self.tuning.written_rows):
            rows = min(self.tuning.written_rows, count - start)
            mapping = mapping_of(part.handle)
            yield _Piece(part.handle.at, mapping, part.nulled, path, start, rows)


@contextmanager
def spark_merge_workers(
    repository: Repository, snapshots: Sequence[Snapshot], jobs: JobRunner
) -> Iterator[SparkMergeWorkers]:
    """Lend workers for one merge of some snapshots."""
    operation_id = repository.clock.ulid()
    entries = {entry.state: entry for one in snapshots for entry in one.entries.values()}
    bases = [
        DatasetBase(entry.location, entry.table_branch, entry.table_version)
        for entry in entries.values()
    ]
    store = repository.store
    files = SideFiles(store.settings, operation_id)
    with StagingRecords(store.objects, repository.clock).hold(operation_id, bases):
        try:
            yield SparkMergeWorkers(files, store.datasets, jobs)
        finally:
            files.remove()


def _at(handle: DatasetHandle | None) -> DatasetVersion | None:
    return None if handle is None else handle.at


# -- inside of tasks -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Versions:
    """The three versions of a table; a side that is None does not have it."""

    base: DatasetVersion | None
    source: DatasetVersion | None
    target: DatasetVersion | None


@dataclass(frozen=True)
class _Decide:
    """Decides about the rows of one bucket."""

    files: SideFiles
    entity_type: EntityType
    versions: _Versions
    views: Views

    def __call__(self, batches: Iterable[pa.RecordBatch], number: int) -> TableMerge:  # noqa: ARG002 - buckets need no names
        rows = pa.Table.from_batches([batch for batch in batches if batch.num_rows])
        datasets = open_store(self.files.settings).datasets
        handles = self.views.of(
            opened_version(datasets, self.versions.base),
            opened_version(datasets, self.versions.source),
            opened_version(datasets, self.versions.target),
        )
        source = self._changes(rows, _SOURCE, handles.base, handles.source)
        target = self._changes(rows, _TARGET, handles.base, handles.target)
        return three_way(source, target, *differs_by(self.entity_type, handles))

    def _changes(
        self,
        rows: pa.Table,
        side: int,
        before: DatasetHandle | None,
        after: DatasetHandle | None,
    ) -> RowChanges:
        of_side = rows.filter(pc.equal(rows["table"], side))
        if not of_side.num_rows:
            return RowChanges.none()
        return compared_changes(
            before,
            after,
            refs_of(of_side.filter(of_side["is_before"])),
            refs_of(of_side.filter(pc.invert(of_side["is_before"]))),
            columns=self.entity_type.arrow_schema.names,
            blobs=self.entity_type.blob_properties,
        )


@dataclass(frozen=True)
class _Piece:
    """Some rows of one version, listed in a side file, and how the merged schema sees them."""

    at: DatasetVersion
    mapping: TypeMapping | None
    nulled: tuple[str, ...]
    path: str
    start: int
    rows: int


@dataclass(frozen=True)
class _Write:
    """Writes some rows as fragments of the target."""

    files: SideFiles
    target: RowTarget

    def __call__(self, piece: _Piece, number: int) -> tuple[WrittenFragment, ...]:  # noqa: ARG002 - pieces need no names
        datasets = open_store(self.files.settings).datasets
        at = piece.at
        handle = datasets.open(at.location, branch=at.branch, version=at.version)
        if piece.mapping is not None:
            handle = mapped(handle, piece.mapping)
        listed = self.files.read(piece.path).slice(piece.start, piece.rows).combine_chunks()
        kept = None
        if "kept" in listed.column_names:
            kept = RewrittenRows(listed["id"].chunk(0), listed["kept"].to_numpy())
        row_ids, entity_type = listed["row_id"].to_numpy(), self.target.entity_type
        batches = stored_batches(handle, row_ids, entity_type, piece.nulled)
        return tuple(write_batches(datasets, self.target, batches, kept))
