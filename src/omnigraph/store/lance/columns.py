"""Other columns for the rows that a dataset has, without writing the rows again.

A dataset's schema gives every column a number, and a data file lists the numbers of its columns.
So a column keeps its values under another name, with another nullability or at another place when
it keeps its number; a number that no file lists reads as null. Only values that are stored nowhere
are written: as further files of the fragments, one per fragment.

Numbers are never used twice while a file lists them. The library's `Merge` adds files; a column
that it does not write can neither change its nullability nor get the name that another one had.
`Project` changes the schema alone. Neither can add rows in the same transaction: rows are staged on
the view of this one (`open_staged`) and committed after it (`following`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance import FragmentMetadata, LanceOperation
from lance.schema import LanceSchema

from omnigraph.dataclass import dataclass
from omnigraph.store.errors import InvalidScanError
from omnigraph.store.lance.errors import lance_failures
from omnigraph.store.lance.handle import LanceHandle, data_file_name
from omnigraph.store.lance.layout import data_path
from omnigraph.store.lance.messages import message_fields, message_of, number_field
from omnigraph.store.lance.staging import stage_error, staged_record
from omnigraph.store.records import (
    ColumnSource,
    OperationKind,
    RowCounts,
    ScanRequest,
    StagedFile,
    StagedTransaction,
)
from omnigraph.values import is_blob_field

_NAME_FIELD: Final = 2
_NUMBER_FIELD: Final = 3
_PARENT_FIELD: Final = 4
_NO_PARENT: Final = 2**64 - 1
"""How a message spells -1."""
_FILLED_AT_ONCE: Final = 65_536


def columns_transaction(
    handle: LanceHandle, schema: pa.Schema, sources: Mapping[str, ColumnSource]
) -> StagedTransaction:
    """Stage other columns; files are written only for values that are not stored yet."""
    return _Columns(handle, schema, sources).staged()


@dataclass(frozen=True)
class _Columns:
    handle: LanceHandle
    schema: pa.Schema
    sources: Mapping[str, ColumnSource]

    def staged(self) -> StagedTransaction:
        written = self._written
        if not written:
            operation: LanceOperation.BaseOperation = LanceOperation.Project(self._final({}))
            return staged_record(
                self.handle.at,
                operation,
                kind=OperationKind.PROJECT,
                files=(),
                counts=RowCounts(),
            )
        fragments: list[FragmentMetadata] = []
        files: list[StagedFile] = []
        numbers: dict[str, list[int]] = {}
        for fragment in self.handle.private_dataset().get_fragments():
            before = {data_file_name(file) for file in fragment.metadata.files}
            after, numbers = self._with_columns(fragment, written)
            fragments.append(after)
            files += self._files(after, before)
        return staged_record(
            self.handle.at,
            LanceOperation.Merge(fragments, self._final(numbers)),
            kind=OperationKind.MERGE,
            files=tuple(files),
            counts=RowCounts(),
        )

    # -- which columns are written ----------------------------------------------------------------

    @cached_property
    def _written(self) -> tuple[str, ...]:
        """Names of the columns whose values are not stored yet."""
        if not self.handle.fragment_ids():
            return ()
        needed = [field.name for field in self.schema if self._is_new(field)]
        if needed:
            # Together with written columns the library accepts no other change of nullability, and
            # no column under the name of another one.
            needed += [
                field.name
                for field in self.schema
                if field.name not in needed
                and (self._is_relaxed_or_required(field) or self._takes_a_name_over(field))
            ]
        for name in needed:
            if is_blob_field(self.schema.field(name)):
                raise InvalidScanError(
                    path=self.handle.at.location,
                    reason=f"the blobs of `{name}` cannot be written as a column of their own",
                )
        return tuple(needed)

    def _is_new(self, field: pa.Field) -> bool:
        source = self.sources[field.name]
        if source.stored is None:
            return source.fill is not None
        return not self._is_kept(field, source.stored)

    def _is_kept(self, field: pa.Field, stored: str) -> bool:
        before = self.handle.schema.field(stored)
        return is_blob_field(field) or before.type == field.type

    def _is_relaxed_or_required(self, field: pa.Field) -> bool:
        stored = self.sources[field.name].stored
        if stored is None or not self._is_kept(field, stored):
            return False
        return bool(self.handle.schema.field(stored).nullable != field.nullable)

    def _takes_a_name_over(self, field: pa.Field) -> bool:
        """Whether a column gets the name that another one had."""
        return field.name != self.sources[field.name].stored and (
            field.name in self.handle.schema.names
        )

    # -- writing ----------------------------------------------------------------------------------

    def _with_columns(
        self, fragment: lance.LanceFragment, names: Sequence[str]
    ) -> tuple[FragmentMetadata, dict[str, list[int]]]:
        """Write columns of one fragment; return it with their file, and their numbers."""
        # Inside the library's call a column may not have a name that the dataset has already.
        own_names = [f"column {number}" for number in range(len(names))]
        schema = pa.schema(
            [
                self.schema.field(name).with_name(own)
                for name, own in zip(names, own_names, strict=True)
            ]
        )
        # Writing locks the library's fragment: the generator reads through the shared dataset.
        batches = self._values(fragment.metadata, names, schema)
        try:
            after, merged = fragment.merge_columns(
                pa.RecordBatchReader.from_batches(schema, batches)
            )
        except lance_failures() as error:
            raise stage_error(error, self.handle.at.location) from error
        known = _messages(merged)
        return after, {
            name: [_number(message) for message in known[own]]
            for name, own in zip(names, own_names, strict=True)
        }

    def _values(
        self, fragment: FragmentMetadata, names: Sequence[str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the written columns of the live rows of a fragment, in their order."""
        sources = [self.sources[name] for name in names]
        stored = tuple(dict.fromkeys(s.stored for s in sources if s.stored is not None))
        for rows, batch in self._stored_batches(fragment, stored):
            arrays = []
            for field, source in zip(schema, sources, strict=True):
                if source.stored is None and source.fill is None:
                    arrays.append(pa.nulls(rows, field.type))
                elif source.stored is None:
                    arrays.append(pa.repeat(source.fill, rows))
                else:
                    arrays.append(pc.cast(batch[source.stored], field.type))
            yield pa.record_batch(arrays, schema=schema)

    def _stored_batches(
        self, fragment: FragmentMetadata, stored: tuple[str, ...]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        if stored:
            request = ScanRequest(columns=stored, fragment_ids=(fragment.id,))
            for batch in self.handle.scan(request):
                yield batch.num_rows, batch
            return
        empty = pa.record_batch([], schema=pa.schema([]))
        left = fragment.num_rows
        while left:
            rows = min(left, _FILLED_AT_ONCE)
            yield rows, empty
            left -= rows

    def _files(self, fragment: FragmentMetadata, before: set[str]) -> Iterator[StagedFile]:
        at = self.handle.at
        for file in fragment.files:
            name = data_file_name(file)
            if name not in before:
                yield StagedFile(data_path(at.location, at.branch, name), file.file_size_bytes)

    # -- the schema -------------------------------------------------------------------------------

    def _final(self, written: Mapping[str, Sequence[int]]) -> LanceSchema:
        """Return the new schema with the numbers of kept, written and empty columns."""
        dataset = self.handle.dataset
        stored = _messages(dataset.lance_schema)
        used = [
            dataset.max_field_id,
            *(number for numbers in written.values() for number in numbers),
        ]
        used += [_number(message) for group in stored.values() for message in group]
        free = max(used) + 1
        messages: list[bytes] = []
        for name, group in _messages(LanceSchema.from_pyarrow(self.schema)).items():
            source = self.sources[name].stored
            if name in written:
                numbers = list(written[name])
            elif source is not None and self._is_kept(self.schema.field(name), source):
                numbers = [_number(message) for message in stored[source]]
            else:
                numbers = list(range(free, free + len(group)))
                free += len(group)
            messages += _numbered(group, numbers)
        metadata = {
            key.decode(): value.decode()
            for key, value in (self.handle.schema.metadata or {}).items()
        }
        return LanceSchema._from_protos(json.dumps(metadata), *messages)


def _messages(schema: LanceSchema) -> dict[str, list[bytes]]:
    """Return the messages of each column: its own, then those of its children, by column name."""
    columns: dict[str, list[bytes]] = {}
    own: list[bytes] = []
    arguments: Any = schema.__reduce__()[1]
    for message in arguments[1:]:
        fields = {field: value for field, _, value in message_fields(message)}
        if fields.get(_PARENT_FIELD) == _NO_PARENT:
            own = columns[bytes(fields[_NAME_FIELD]).decode()] = []
        own.append(message)
    return columns


def _number(message: bytes) -> int:
    # The number 0 is not spelled.
    found = (value for field, _, value in message_fields(message) if field == _NUMBER_FIELD)
    return int(next(found, 0))


def _numbered(group: Sequence[bytes], numbers: Sequence[int]) -> Iterator[bytes]:
    """Yield the messages of one column with other numbers."""
    renumbered = dict(zip(map(_number, group), numbers, strict=True))
    for message in group:
        fields = list(message_fields(message))
        parents = [int(value) for field, _, value in fields if field == _PARENT_FIELD]
        parent = parents[0] if parents else 0
        kept = [each for each in fields if each.field not in (_NUMBER_FIELD, _PARENT_FIELD)]
        yield message_of(
            [
                *kept,
                number_field(_NUMBER_FIELD, renumbered[_number(message)]),
                number_field(_PARENT_FIELD, renumbered.get(parent, _NO_PARENT)),
            ]
        )
