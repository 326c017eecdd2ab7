"""A table as another schema sees it: a view over stored rows, nothing is written.

1. Names, types and fills are those of the wanted type. A column that is not stored has the value
   of its mapping in every row, else null.
2. Row ids, addresses and fragments are those of the stored table. Only a schema change replaces
   columns of a fragment in place, and a mapping says exactly what it wrote. So a fragment of the
   view and one of the wanted table hold equal rows where their `identity` is the same, unless the
   rows were written with a column that the stored table does not have any longer
   (`absent_columns`, `has_written`).
3. A filter may name wanted columns. On a stored column it is asked of the stored one; on a column
   that is not stored it is decided here, by the three-valued logic of SQL. It is rejected where the
   stored column has a type that is not just narrower: values that do not fit are null in the view.
4. A search needs the stored column itself: it is rejected where the column is missing or has
   another type.
5. Blobs are read by their stored column. A description of a blob is passed on as it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.mapping import ColumnMapping, TypeMapping
from omnigraph.store.blob_contents import BLOB_DESCRIPTION
from omnigraph.store.datasets import BlobContent, DatasetHandle
from omnigraph.store.errors import InvalidScanError, unknown_column
from omnigraph.store.filters import (
    AllOf,
    AnyOf,
    Comparison,
    Contains,
    Filter,
    IsNull,
    Negation,
    OneOf,
    StartsWith,
    Value,
)
from omnigraph.store.records import (
    VIRTUAL_COLUMNS,
    DatasetVersion,
    FragmentInfo,
    IndexInfo,
    ScanRequest,
)
from omnigraph.values import is_blob_field

_COMPARE: Final[Mapping[str, Callable[[pa.Scalar, Value], pa.Scalar]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_WIDENED: Final[Mapping[pa.DataType, tuple[pa.DataType, ...]]] = {
    pa.int32(): (pa.int64(),),
    pa.uint32(): (pa.uint64(), pa.int64()),
    pa.float32(): (pa.float64(),),
    pa.date32(): (pa.date64(),),
}
"""Types whose values are all in another one, so that both compare alike."""
_EVERY_ROW: Final = AllOf(())
_NO_ROW: Final = AnyOf(())


def mapped(handle: DatasetHandle, mapping: TypeMapping) -> DatasetHandle:
    """Return the table as the wanted type sees it; the handle itself when nothing differs."""
    return handle if mapping.is_identity else _MappedTable(handle, mapping)


def mapping_of(handle: DatasetHandle) -> TypeMapping | None:
    """Return how a view looks at its table; None for a table as it is stored."""
    return handle.mapping if isinstance(handle, _MappedTable) else None


def unshown_values(
    handle: DatasetHandle, row_ids: npt.NDArray[np.uint64], columns: Collection[str]
) -> npt.NDArray[np.bool_]:
    """Mark the rows with a stored value that the view shows as null: its type cannot hold it."""
    found = np.zeros(len(row_ids), np.bool_)
    if not isinstance(handle, _MappedTable):
        return found
    narrowed = [each for each in handle.mapping.narrowed if each.field.name in columns]
    if not narrowed:
        return found
    names = list(dict.fromkeys(each.stored for each in narrowed if each.stored is not None))
    rows = handle.stored.take(pa.array(row_ids, pa.uint64()), names).combine_chunks()
    for batch in rows.to_batches():
        for each in narrowed:
            found |= np.asarray(each.misfits(batch))
    return found


@dataclass(frozen=True)
class _MappedTable:
    """A `DatasetHandle` over another one."""

    stored: DatasetHandle
    mapping: TypeMapping

    @property
    def at(self) -> DatasetVersion:
        return self.stored.at

    @property
    def schema(self) -> pa.Schema:
        return self.mapping.wanted.arrow_schema

    @property
    def absent_columns(self) -> tuple[str, ...]:
        return tuple(each.field.name for each in self.mapping.columns if each.stored is None)

    def scan(self, request: ScanRequest | None = None) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(*self.batches(request or ScanRequest()))

    def batches(self, request: ScanRequest) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        columns = self._columns(request.columns)
        has_rows = request.with_row_id or request.with_row_address
        asked = self._stored_request(request, _stored_names(columns, or_id=not has_rows))
        schema, found = self.stored.batches(asked)
        further = [name for name in schema.names if name not in (asked.columns or ())]
        view = _View(columns, tuple(further), blobs_as_bytes=request.blobs_as_bytes)
        return view.of(_no_rows(schema)).schema, map(view.of, found)

    def find(self, column: str, values: Sequence[str]) -> pa.Table:
        [wanted] = self._columns([column])
        if wanted.mapping is None or wanted.mapping.stored is None:
            request = ScanRequest(
                columns=(column,),
                row_filter=OneOf(column, tuple(values)),
                with_row_id=True,
                with_row_address=True,
            )
            return self.scan(request).read_all()
        found = self.stored.find(self._searched(column), values)
        return found.rename_columns(
            [column if name == wanted.mapping.stored else name for name in found.column_names]
        )

    def count(self, row_filter: Filter | None = None) -> int:
        return self.stored.count(None if row_filter is None else self._translated(row_filter))

    def take(
        self, row_ids: Sequence[int] | pa.Array, columns: Sequence[str] | None = None
    ) -> pa.Table:
        return self._taken(self.stored.take, row_ids, columns)

    def take_addresses(
        self, addresses: Sequence[int] | pa.Array, columns: Sequence[str] | None = None
    ) -> pa.Table:
        return self._taken(self.stored.take_addresses, addresses, columns)

    def read_blobs(self, column: str, row_ids: Sequence[int]) -> tuple[bytes | None, ...]:
        stored = self._column(column).stored
        return (None,) * len(row_ids) if stored is None else self.stored.read_blobs(stored, row_ids)

    def open_blob(self, column: str, row_id: int) -> BlobContent | None:
        stored = self._column(column).stored
        return None if stored is None else self.stored.open_blob(stored, row_id)

    def fragments(self, wanted: Callable[[int], bool] | None = None) -> tuple[FragmentInfo, ...]:
        return self.stored.fragments(wanted)

    def has_written(self, fragment_id: int, columns: Collection[str]) -> bool:
        wanted = (each.stored for each in self.mapping.columns if each.field.name in columns)
        return self.stored.has_written(fragment_id, {name for name in wanted if name is not None})

    def row_ids(self, fragment_id: int) -> pa.Array:
        return self.stored.row_ids(fragment_id)

    @property
    def column_ids(self) -> tuple[tuple[str, int], ...]:
        stored = dict(self.stored.column_ids)
        return tuple(
            (each.field.name, stored[each.stored])
            for each in self.mapping.columns
            if each.stored is not None
        )

    def written_rows(self, fragment_id: int) -> pa.Table | None:  # noqa: ARG002 - a view keeps none
        return None  # They are in memory as they were written, not as the view shows them.

    def deleted_row_ids(self, fragment_id: int) -> npt.NDArray[np.uint64]:
        return self.stored.deleted_row_ids(fragment_id)

    def indexes(self) -> tuple[IndexInfo, ...]:
        """Describe the indexes of the columns that the wanted type has too."""
        names = {each.stored: each.field.name for each in self.mapping.columns}
        return tuple(
            replace(index, columns=tuple(names[column] for column in index.columns))
            for index in self.stored.indexes()
            if all(column in names for column in index.columns)
        )

    # -- columns ----------------------------------------------------------------------------------

    @cached_property
    def _by_name(self) -> dict[str, ColumnMapping]:
        return {each.field.name: each for each in self.mapping.columns}

    def _column(self, name: str) -> ColumnMapping:
        if name not in self._by_name:
            raise unknown_column(self.at.location, name, self._by_name)
        return self._by_name[name]

    def _columns(self, names: Iterable[str] | None) -> tuple[_Column, ...]:
        return tuple(
            _Column(name, None if name in VIRTUAL_COLUMNS else self._column(name))
            for name in (self._by_name if names is None else names)
        )

    def _searched(self, name: str) -> str:
        """Return the stored name of a column that a search looks into."""
        column = self._column(name)
        if column.stored is None:
            reason = f"`{name}` is not stored here and cannot be searched"
            raise InvalidScanError(path=self.at.location, reason=reason)
        if self.stored.schema.field(column.stored).type != column.field.type:
            reason = f"`{name}` is stored with another type and cannot be searched"
            raise InvalidScanError(path=self.at.location, reason=reason)
        return column.stored

    def _require_exact(self, column: ColumnMapping, stored: str) -> None:
        """Reject a filter on a column of which the view may not have every stored value."""
        found, wanted = self.stored.schema.field(stored).type, column.field.type
        if found != wanted and wanted not in _WIDENED.get(found, ()):
            reason = f"`{column.field.name}` is stored as {found}: rows cannot be filtered by it"
            raise InvalidScanError(path=self.at.location, reason=reason)

    def _taken(
        self,
        take: Callable[[Sequence[int] | pa.Array, Sequence[str] | None], pa.Table],
        rows: Sequence[int] | pa.Array,
        names: Sequence[str] | None,
    ) -> pa.Table:
        columns = self._columns(names)
        found = take(rows, _stored_names(columns, or_id=True)).combine_chunks()
        view = _View(columns, further=(), blobs_as_bytes=False)
        parts = [view.of(batch) for batch in found.to_batches() or [_no_rows(found.schema)]]
        return pa.Table.from_batches(parts)

    # -- requests ---------------------------------------------------------------------------------

    def _stored_request(self, request: ScanRequest, columns: tuple[str, ...]) -> ScanRequest:
        row_filter, nearest, text = request.row_filter, request.nearest, request.text
        return replace(
            request,
            columns=columns,
            row_filter=None if row_filter is None else self._translated(row_filter),
            nearest=None
            if nearest is None
            else replace(nearest, column=self._searched(nearest.column)),
            text=None if text is None else replace(text, column=self._searched(text.column)),
        )

    def _translated(self, row_filter: Filter, *, is_negated: bool = False) -> Filter:
        """Return the filter for the stored columns, with negations at its leaves only.

        Then an unknown leaf has the same effect as a false one: the row is not returned.
        """
        match row_filter:
            case Negation(part):
                return self._translated(part, is_negated=not is_negated)
            case AllOf(parts) | AnyOf(parts):
                inner = tuple(self._translated(part, is_negated=is_negated) for part in parts)
                is_all = isinstance(row_filter, AllOf) != is_negated
                return AllOf(inner) if is_all else AnyOf(inner)
            case _:
                return self._leaf(row_filter, is_negated=is_negated)

    def _leaf(
        self, leaf: Comparison | OneOf | IsNull | StartsWith | Contains, *, is_negated: bool
    ) -> Filter:
        if leaf.column in VIRTUAL_COLUMNS:
            return Negation(leaf) if is_negated else leaf
        column = self._column(leaf.column)
        if column.stored is not None:
            self._require_exact(column, column.stored)
            stored = replace(leaf, column=column.stored)
            return Negation(stored) if is_negated else stored
        matches = _constant(leaf, column.fill)
        return _EVERY_ROW if matches is not None and matches != is_negated else _NO_ROW


@dataclass(frozen=True)
class _Column:
    """A column of the answer; a virtual one has no mapping."""

    name: str
    mapping: ColumnMapping | None

    @property
    def stored(self) -> str | None:
        return self.name if self.mapping is None else self.mapping.stored


@dataclass(frozen=True)
class _View:
    """What a stored batch becomes."""

    columns: tuple[_Column, ...]
    further: tuple[str, ...]
    """Columns that the scan added to those that were asked for, such as row ids."""
    blobs_as_bytes: bool

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = [*(column.name for column in self.columns), *self.further]
        arrays = [self._array(column, batch) for column in self.columns]
        arrays += [batch[name] for name in self.further]
        fields = [pa.field(n, a.type) for n, a in zip(names, arrays, strict=True)]
        return pa.record_batch(arrays, schema=pa.schema(fields))

    def _array(self, column: _Column, batch: pa.RecordBatch) -> pa.Array:
        mapping = column.mapping
        if mapping is None:
            return batch[column.name]
        if not is_blob_field(mapping.field):
            return mapping.column(batch)
        if mapping.stored is not None:
            return batch[mapping.stored]
        kind = pa.large_binary() if self.blobs_as_bytes else BLOB_DESCRIPTION
        return pa.nulls(batch.num_rows, kind)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)


def _stored_names(columns: Iterable[_Column], *, or_id: bool) -> tuple[str, ...]:
    """Return what must be read; `id` where a scan without columns would return no row count."""
    names = tuple(dict.fromkeys(c.stored for c in columns if c.stored is not None))
    return names or (("id",) if or_id else ())


def _constant(
    leaf: Comparison | OneOf | IsNull | StartsWith | Contains, fill: pa.Scalar | None
) -> bool | None:
    """Decide a leaf for a column with one value in every row; None where that is unknown."""
    if isinstance(leaf, IsNull):
        return fill is None
    if fill is None:
        return None
    match leaf:
        case Comparison(_, operator, value):
            answer: bool | None = _COMPARE[operator](fill, value).as_py()
            return answer
        case OneOf(_, values):
            answers = [pc.equal(fill, value).as_py() for value in values]
            return True if True in answers else None if None in answers else False
        case StartsWith(_, prefix):
            return str(fill.as_py()).startswith(prefix)
        case Contains(_, part):
            return part in str(fill.as_py())
