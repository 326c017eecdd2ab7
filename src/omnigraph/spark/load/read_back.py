"""Reads staged rows back into the driver, when hashes could not prove that no rule is broken.

The staged columns that rules across rows look at are read once, by the driver, into what the
in-process engine keeps of a load: a few numbers per row, in memory up to a budget and in files
beyond it. Then that engine's own rules decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.schema import EdgeType
from omnigraph.spark.load.absent_files import write_absent
from omnigraph.spark.load.key_set import sorted_run
from omnigraph.spark.load.plan import ABSENT, ID, MADE, StagedPart, runs_of
from omnigraph.spark.load.stored_tasks import as_blobs
from omnigraph.spark.task_store import task_store
from omnigraph.store.records import ScanRequest
from omnigraph.write.load.rows.absent import with_placeholders
from omnigraph.write.load.rows.check_rows import CheckedRows
from omnigraph.write.load.rows.row_parts import Destination, RowPart, TableBases
from omnigraph.write.load.rows.types import ROW, LoadedType
from omnigraph.write.rules.unique import unique_tuples
from omnigraph.write.rules.violations import ViolationLog
from omnigraph.write.stage.columns import flat

if TYPE_CHECKING:
    from omnigraph.manifest import Snapshot
    from omnigraph.spark.load.plan import LoadContext
    from omnigraph.spark.load.positions import InputPositions
    from omnigraph.spark.load.staged import StagedType
    from omnigraph.spark.load.staged_views import StagedViews
    from omnigraph.store.datasets import DatasetHandle
    from omnigraph.write.load.check.hashing import HashScheme
    from omnigraph.write.load.rows.spool import SpoolBudget
    from omnigraph.write.stage.columns import Integers, Mask


class _ViewPart(RowPart):
    """Rows that are read from staged fragments; no copy is made here."""

    def __init__(
        self,
        destination: Destination,
        budget: SpoolBudget,
        handle: DatasetHandle,
        fragment_ids: tuple[int, ...],
        blobs: Sequence[str] = (),
    ) -> None:
        super().__init__(destination, budget, may_stream=False)
        self._handle = handle
        self._fragment_ids = fragment_ids
        self._blobs = frozenset(blobs)

    def append(self, batch: pa.RecordBatch) -> None:
        """Count rows that are there already."""
        self.row_count += batch.num_rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read all rows in their order."""
        names = tuple(self._schema.names if columns is None else columns)
        blobs = self._blobs.intersection(names)
        request = ScanRequest(
            columns=names, fragment_ids=self._fragment_ids, blobs_as_bytes=bool(blobs)
        )
        for batch in self._handle.scan(request):
            read = batch
            for name in blobs:
                place = batch.schema.get_field_index(name)
                read = read.set_column(place, self._schema.field(name), as_blobs(batch[name]))
            yield read


def loaded_types(
    types: Mapping[str, StagedType],
    *,
    inputs: InputPositions,
    views: StagedViews,
    snapshot: Snapshot,
    bases: TableBases,
    hasher: HashScheme,
    budget: SpoolBudget,
    is_overwrite: bool,
) -> dict[str, LoadedType]:
    """Return the staged rows in the form in which the rules look at them."""
    found = {}
    for key, staged in types.items():
        destination = Destination(
            bases, snapshot.entry(key), staged.entity_type.arrow_schema, is_overwrite
        )
        loaded = LoadedType(
            staged.entity_type, destination, hasher, budget, may_stream=False, is_merge=False
        )
        if staged.rows:
            rows = views.rows(staged).fragment_ids
            blobs = staged.entity_type.blob_properties
            loaded.fresh = _ViewPart(destination, budget, views.handle(staged), rows, blobs)
            _fill(loaded, staged, inputs)
        found[key] = loaded
    return found


def _fill(loaded: LoadedType, staged: StagedType, inputs: InputPositions) -> None:
    """Read the columns that rules look at; all rows are staged in one way."""
    entity_type = staged.entity_type
    ends = ("src", "dst") if isinstance(entity_type, EdgeType) else ()
    members = (name for members in unique_tuples(entity_type) for name in members)
    columns = tuple(dict.fromkeys(("id", *ends, *members)))
    start = 0
    for batch in loaded.fresh.batches(columns):
        for piece, part, first in _by_part(staged, batch, start):
            numbers = np.arange(start, start + piece.num_rows)
            start += piece.num_rows
            absent = staged.absent_files.masks(staged.files, entity_type, numbers)
            loaded.add(
                CheckedRows(
                    rows=piece,
                    positions=pa.array(inputs.of(staged.positions(numbers))),
                    bad=np.zeros(piece.num_rows, np.bool_),
                    log=ViolationLog(),
                    ids_are_new=part.ids_are_new,
                    absent=absent,
                    made=_made(staged, part, first, piece.num_rows),
                )
            )


def combined_part(
    context: LoadContext, loaded: LoadedType, positions: Integers, order: int
) -> StagedPart:
    """Write the rows that several records were combined into."""
    entity_type, scheme = loaded.entity_type, context.scheme
    rows = loaded.overlaid_rows
    table = loaded.pick(rows, loaded.destination.schema.names).drop_columns([ROW])
    absent = loaded.absent.take(rows)
    batches = table.combine_chunks().to_batches()
    schema = entity_type.arrow_schema
    written = [
        with_placeholders(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        for batch in batches
    ]
    fragments = task_store(context.files).datasets.write_fragments(
        context.bases[loaded.table_key], pa.RecordBatchReader.from_batches(schema, written)
    )
    ids = flat(table["id"])
    run = sorted_run(scheme.texts(ids), ids, np.arange(len(rows)))
    name = loaded.table_key.replace(":", "-")
    return StagedPart(
        table_key=loaded.table_key,
        order=order,
        records=0,
        fragments=fragments,
        ids_are_new=False,
        positions=runs_of(positions),
        side_files={
            ID: context.files.write(f"{ID}-{name}", run),
            ABSENT: write_absent(context.files, entity_type, [(absent, len(rows))]),
        },
        missing=ViolationLog(),
        absent=frozenset(absent),
    )


def _by_part(
    staged: StagedType, batch: pa.RecordBatch, start: int
) -> Iterator[tuple[pa.RecordBatch, StagedPart, int]]:
    """Divide a batch by the parts that its rows are of; each with its first row in the part."""
    end = start + batch.num_rows
    ends = [*staged.first_rows[1:].tolist(), staged.rows]
    at = start
    for part, part_end in zip(staged.parts, ends, strict=True):
        if at < part_end and at < end:
            upto = min(part_end, end)
            yield batch.slice(at - start, upto - at), part, at - (part_end - part.rows)
            at = upto


def _made(staged: StagedType, part: StagedPart, first: int, count: int) -> Mask | None:
    """Return which of some rows of a part have an id that was made, if only some have."""
    if MADE not in part.side_files:
        return None
    rows = staged.files.read(part.side_files[MADE])["row"].to_numpy()
    low, high = np.searchsorted(rows, (first, first + count))
    made = np.zeros(count, np.bool_)
    made[rows[low:high] - first] = True
    return made
