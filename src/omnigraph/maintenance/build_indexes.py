"""From what a schema declares to the indexes that are stored.

| column | index |
|---|---|
| `id` of nodes; `id`, `src`, `dst` of edges | BTREE, always |
| any member of `@index`, `@key` or `@unique` that is a number, Bool, time, enum, String | BTREE |
| single-property `@index` or `@key` of a node, String without enum | full text, and the BTREE |
| the same with the note `@substring` | NGRAM, and both |
| single-property `@index` of a node, Vector | by size: none below `VECTOR_ROWS_MIN` rows |
| list, Blob | none |

An index is a set of segments, each over some fragments. Fragments that no segment covers are
scanned, so an index never changes the result of a query. Folding builds a segment over the
uncovered fragments, takes in older segments that are not much larger (so their number grows with
the logarithm of the rows) and drops segments of which nothing is left.

Text, substring and vector segments hold stable row ids, and a row that was changed keeps its id. If
a new segment covered the changed row, the old segment would still hold its old content under the
same id, and readers could not tell which of the two is current. So fragments with changed rows get
no segment of their own: they stay uncovered, and when there are enough of them the whole index is
built again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.maintenance.workers import MaintenanceWorkers, SegmentPlan
from omnigraph.schema import EntityType, Property
from omnigraph.store.datasets import DatasetHandle, DatasetStore
from omnigraph.store.filters import IsNull, Negation
from omnigraph.store.records import (
    ROW_ADDRESS,
    ROW_CREATED,
    ROW_UPDATED,
    FragmentInfo,
    IndexInfo,
    IndexKind,
    IndexSpec,
    ScanRequest,
    StagedTransaction,
)
from omnigraph.store.text_index import TEXT_PARAMETERS
from omnigraph.values import PropType, Scalar

VECTOR_ROWS_MIN: Final = 10_000
"""With fewer rows, comparing with every vector is exact and quick."""
VECTOR_GROWTH_MAX: Final = 4
"""A vector index is trained again when the rows have grown by this factor."""
CHANGED_ROWS_MAX: Final = 10_000
"""An index that holds row ids is built again when more changed rows than this are uncovered."""
CHANGED_SHARE_MAX: Final = 20
"""Nor may they be more than one in this many rows."""
REBUILT_ROWS_MAX: Final = 10_000
"""Up to this many rows an index is built again at once: that costs a tenth of a second."""
_FOLD_FACTOR: Final = 2
_ADDRESS_FRAGMENT_SHIFT: Final = 32
_VECTOR_KINDS: Final = frozenset({IndexKind.IVF_FLAT, IndexKind.IVF_PQ, IndexKind.IVF_HNSW_SQ})
_ROW_ID_KINDS: Final = _VECTOR_KINDS | {IndexKind.INVERTED, IndexKind.NGRAM}
METRIC_NOTE: Final = "metric"
SUBSTRING_NOTE: Final = "substring"
DEFAULT_METRIC: Final = "cosine"
NOTHING_TO_TRAIN_ON: Final = "property has no non-null vectors to train on yet"


@dataclass(frozen=True)
class PendingIndex:
    """A declared index that cannot be built yet."""

    table_key: str
    property: str
    reason: str


@dataclass(frozen=True)
class IndexWork:
    """What is missing in the indexes of one dataset version."""

    segments: tuple[SegmentPlan, ...] = ()
    replaced: tuple[str, ...] = ()
    """Segments to remove, by uuid."""
    pending: tuple[PendingIndex, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.segments and not self.replaced


# -- what is declared ------------------------------------------------------------------------------


def declared_indexes(declared: EntityType) -> tuple[IndexSpec, ...]:
    """Return the indexes that a type wants, whatever is stored."""
    is_edge = hasattr(declared, "from_type")
    found: dict[tuple[str, IndexKind], IndexSpec] = {}
    for spec in (
        *(_btree(name) for name in (("id", "src", "dst") if is_edge else ("id",))),
        *_member_indexes(declared),
        *(() if is_edge else _single_indexes(declared)),
    ):
        found.setdefault((spec.column, spec.kind), spec)
    return tuple(found.values())


def _member_indexes(declared: EntityType) -> Iterator[IndexSpec]:
    for members in (*declared.indices, *declared.unique_constraints):
        for name in members:
            prop = declared.properties.get(name)
            if prop is None or prop.prop_type.is_plain_scalar:
                yield _btree(name)


def _single_indexes(declared: EntityType) -> Iterator[IndexSpec]:
    for members in declared.indices:
        if len(members) == 1 and members[0] in declared.properties:
            yield from _property_indexes(declared.properties[members[0]])


def _property_indexes(prop: Property) -> Iterator[IndexSpec]:
    if _is_free_text(prop.prop_type):
        name = f"{prop.name}_text_idx"
        yield IndexSpec(prop.name, IndexKind.INVERTED, name, TEXT_PARAMETERS)
        if any(note.name == SUBSTRING_NOTE for note in prop.annotations):
            yield IndexSpec(prop.name, IndexKind.NGRAM, f"{prop.name}_ngram_idx")
    elif prop.prop_type.is_vector:
        parameters = {"metric": metric_of(prop)}
        yield IndexSpec(prop.name, IndexKind.IVF_HNSW_SQ, parameters=parameters)


def metric_of(prop: Property) -> str:
    """Return how distances of a vector property are measured: `@metric`, else cosine."""
    values = [note.value for note in prop.annotations if note.name == METRIC_NOTE]
    return values[0] if values and values[0] is not None else DEFAULT_METRIC


def _is_free_text(prop_type: PropType) -> bool:
    is_text = prop_type.scalar is Scalar.STRING and not prop_type.is_list
    return is_text and not prop_type.is_enum


def _btree(column: str) -> IndexSpec:
    return IndexSpec(column, IndexKind.BTREE)


# -- what is missing -------------------------------------------------------------------------------


def plan_indexes(handle: DatasetHandle, declared: EntityType, *, anew: bool = False) -> IndexWork:
    """Compare what a type wants with what one dataset version has.

    An empty table wants nothing. Indexes that are no longer declared are removed. `anew`
    replaces all of them, without reading any.
    """
    fragments = tuple(handle.fragments())
    if not any(fragment.rows for fragment in fragments):
        return IndexWork()
    stored = handle.indexes()
    wanted = declared_indexes(declared)
    table = _Table(handle, declared.table_key, fragments)
    usable = () if anew else stored
    works = [_plan_index(table, spec, usable) for spec in wanted]
    kept = [find_index(usable, spec.column, spec.kind) for spec in wanted]
    undeclared = [
        segment.uuid for index in stored if index not in kept for segment in index.segments
    ]
    return IndexWork(
        segments=tuple(segment for work in works for segment in work.segments),
        replaced=(*undeclared, *(uuid for work in works for uuid in work.replaced)),
        pending=tuple(pending for work in works for pending in work.pending),
    )


def only_stored(work: IndexWork, handle: DatasetHandle) -> IndexWork:
    """Return the part of the work that concerns indexes which exist."""
    names = {index.name for index in handle.indexes()}
    segments = tuple(plan for plan in work.segments if plan.spec.full_name in names)
    return IndexWork(segments, work.replaced, work.pending)


@dataclass(frozen=True)
class _Table:
    """One dataset version."""

    handle: DatasetHandle
    table_key: str
    fragments: tuple[FragmentInfo, ...]

    def changed(self, fragment_ids: tuple[int, ...]) -> frozenset[int]:
        """Return which fragments hold a row that an older fragment held before."""
        request = ScanRequest(
            columns=(ROW_CREATED, ROW_UPDATED), with_row_address=True, fragment_ids=fragment_ids
        )
        found: set[int] = set()
        for batch in self.handle.scan(request):
            is_changed = pc.less(batch[ROW_CREATED], batch[ROW_UPDATED])
            addresses = batch[ROW_ADDRESS].filter(is_changed)
            numbers = pc.shift_right(addresses, pa.scalar(_ADDRESS_FRAGMENT_SHIFT, pa.uint64()))
            found.update(pc.unique(numbers).to_pylist())
        return frozenset(found)


def _plan_index(table: _Table, spec: IndexSpec, stored: Sequence[IndexInfo]) -> IndexWork:
    handle, fragments = table.handle, table.fragments
    existing = find_index(stored, spec.column, spec.kind)
    is_vector = spec.kind in _VECTOR_KINDS
    if existing is not None:
        name = existing.name
        kind = IndexKind(existing.kind)
        spec = IndexSpec(spec.column, kind, name, spec.parameters)
        coverage = _Coverage.of(existing, fragments)
        if kind in _ROW_ID_KINDS and coverage.uncovered:
            changed = table.changed(coverage.uncovered)
            if changed:
                return _fold_changed(spec, coverage, changed, table)
        return _fold(spec, coverage, is_vector=is_vector)
    everything = SegmentPlan(spec, tuple(f.fragment_id for f in fragments))
    if not is_vector:
        return IndexWork((everything,))
    if not _has_vectors(handle, spec.column):
        pending = PendingIndex(table.table_key, spec.column, NOTHING_TO_TRAIN_ON)
        return IndexWork(pending=(pending,))
    rows = sum(fragment.rows for fragment in fragments)
    return IndexWork((everything,)) if rows >= VECTOR_ROWS_MIN else IndexWork()


def find_index(stored: Iterable[IndexInfo], column: str, kind: IndexKind) -> IndexInfo | None:
    """Find a stored index by column and kind, whatever its name; vector kinds count as one."""
    kinds = _VECTOR_KINDS if kind in _VECTOR_KINDS else {kind}
    return next((i for i in stored if i.columns == (column,) and i.kind in kinds), None)


def _has_vectors(handle: DatasetHandle, column: str) -> bool:
    request = ScanRequest(columns=("id",), row_filter=Negation(IsNull(column)), limit=1)
    return bool(handle.scan(request).read_all().num_rows)


@dataclass(frozen=True)
class _Segment:
    """A stored segment and what it still covers."""

    uuid: str
    fragment_ids: tuple[int, ...]
    rows: int


@dataclass(frozen=True)
class _Coverage:
    """How far a stored index reaches in one dataset version."""

    segments: tuple[_Segment, ...]
    uncovered: tuple[int, ...]
    uncovered_rows: int
    rows: int
    fragment_ids: tuple[int, ...] = field(default=())

    @classmethod
    def of(cls, index: IndexInfo, fragments: Sequence[FragmentInfo]) -> _Coverage:
        rows = {fragment.fragment_id: fragment.rows for fragment in fragments}
        segments = []
        for stored in index.segments:
            alive = tuple(number for number in stored.fragment_ids if number in rows)
            segments.append(_Segment(stored.uuid, alive, sum(rows[number] for number in alive)))
        covered = {number for segment in segments for number in segment.fragment_ids}
        uncovered = tuple(number for number in rows if number not in covered)
        return cls(
            tuple(segments),
            uncovered,
            sum(rows[number] for number in uncovered),
            sum(rows.values()),
            tuple(rows),
        )


def _fold(spec: IndexSpec, coverage: _Coverage, *, is_vector: bool) -> IndexWork:
    dead = [segment.uuid for segment in coverage.segments if not segment.fragment_ids]
    if is_vector and coverage.rows >= VECTOR_GROWTH_MAX * _trained_rows(coverage):
        everything = SegmentPlan(spec, coverage.fragment_ids)
        return IndexWork((everything,), tuple(segment.uuid for segment in coverage.segments))
    if not coverage.uncovered:
        return IndexWork(replaced=tuple(dead))
    taken = [] if is_vector else list(_smaller(coverage))
    numbers = [number for segment in taken for number in segment.fragment_ids]
    folded = SegmentPlan(spec, tuple(sorted({*coverage.uncovered, *numbers})))
    return IndexWork((folded,), (*dead, *(segment.uuid for segment in taken)))


def _fold_changed(
    spec: IndexSpec, coverage: _Coverage, changed: frozenset[int], table: _Table
) -> IndexWork:
    """Build everything again, or leave fragments with changed rows uncovered."""
    rows = sum(one.rows for one in table.fragments if one.fragment_id in changed)
    may_wait = rows <= CHANGED_ROWS_MAX and rows * CHANGED_SHARE_MAX <= coverage.rows
    if coverage.rows > REBUILT_ROWS_MAX and may_wait:
        covered = replace(
            coverage,
            uncovered=tuple(n for n in coverage.uncovered if n not in changed),
            uncovered_rows=coverage.uncovered_rows - rows,
        )
        return _fold(spec, covered, is_vector=spec.kind in _VECTOR_KINDS)
    everything = SegmentPlan(spec, coverage.fragment_ids)
    return IndexWork((everything,), tuple(segment.uuid for segment in coverage.segments))


def _trained_rows(coverage: _Coverage) -> int:
    return max((segment.rows for segment in coverage.segments), default=0)


def _smaller(coverage: _Coverage) -> Iterator[_Segment]:
    """Choose the segments that are worth building again together with what is uncovered."""
    gathered = coverage.uncovered_rows
    for segment in sorted(coverage.segments, key=lambda s: s.rows):
        if not segment.fragment_ids:
            continue
        if segment.rows > _FOLD_FACTOR * gathered:
            return
        gathered += segment.rows
        yield segment


# -- building --------------------------------------------------------------------------------------


def stage_indexes(
    datasets: DatasetStore, handle: DatasetHandle, work: IndexWork, workers: MaintenanceWorkers
) -> StagedTransaction:
    """Build what is missing in a dataset version."""
    segments = workers.index(handle.at, work.segments) if work.segments else ()
    return datasets.stage_create_index(handle.at, segments=segments, replaced=work.replaced)


def uncovered(handle: DatasetHandle) -> tuple[int, int]:
    """Return how many fragments, and rows in them, some index does not cover.

    Without any index that is all of them.
    """
    fragments = handle.fragments()
    found = [_Coverage.of(index, fragments) for index in handle.indexes()]
    if not found:
        return len(fragments), sum(fragment.rows for fragment in fragments)
    return (
        max(len(coverage.uncovered) for coverage in found),
        max(coverage.uncovered_rows for coverage in found),
    )
