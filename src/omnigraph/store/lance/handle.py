"""Reads one version of a Lance dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import serialize_row_addrs
from lance.fragment import DataFile, RowIdSequence
from lance.query import FullTextQuery

from omnigraph.store.datasets import BlobContent
from omnigraph.store.errors import InvalidScanError, StorageError, unknown_column
from omnigraph.store.filters import Filter, OneOf, filter_columns
from omnigraph.store.lance.deletions import bitmap_offsets, listed_offsets
from omnigraph.store.lance.errors import lance_failures, read_error
from omnigraph.store.lance.layout import row_id_range
from omnigraph.store.lance.recent_rows import RecentRows
from omnigraph.store.lance.sql import render_filter
from omnigraph.store.lance.text import text_query
from omnigraph.store.lance.written_rows import WrittenRows
from omnigraph.store.records import (
    ROW_ADDRESS,
    ROW_ID,
    VIRTUAL_COLUMNS,
    DatasetVersion,
    FragmentInfo,
    IndexInfo,
    IndexSegment,
    ScanRequest,
    VectorSearch,
)

_SCAN_DEFAULTS: Final[dict[str, Any]] = {
    "prefilter": False,
    "scan_in_order": True,
    "use_stats": True,
    "fast_search": False,
    "strict_batch_size": False,
    "disable_scoring_autoprojection": False,
}
"""The default of the library's builder."""
_ADDRESSES_AS_FILTER_MAX: Final = 10_000
"""Above this, reading the touched fragments' addresses beats parsing a long list."""
_CALLS_MAX: Final = 4
"""How often a call is tried: between two of them a version is packed or unpacked as a whole."""
_FRAGMENTS_NAMED_MAX: Final = 512
"""Above this, naming the fragments of a scan costs more than it spares."""


_OF_COLUMNS: Final = ("schema", "column_ids")
"""What a handle remembers of its columns."""


Reopen = Callable[[DatasetVersion, lance.LanceDataset, BaseException], lance.LanceDataset | None]


class LanceHandle:
    """A `DatasetHandle` over one open Lance dataset."""

    def __init__(
        self,
        dataset: lance.LanceDataset,
        at: DatasetVersion,
        *,
        missing: Callable[[DatasetVersion], StorageError | None],
        recent: RecentRows | None = None,
        extends: LanceHandle | None = None,
        changed_fragments: Collection[int] | None = None,
        read_deletions: Callable[[LanceHandle, lance.FragmentMetadata], bytes] | None = None,
        written: WrittenRows | None = None,
        reopen: Reopen | None = None,
    ) -> None:
        """Wrap a dataset.

        `extends` is the version before this one. It has the same fragments, except for new ones and
        for `changed_fragments`; None means that rows were added and nothing else was done.
        `reopen` opens a version that was packed or unpacked since, given what has failed and how;
        None when that is not what has happened.
        """
        self.at = at
        self.dataset = dataset
        """The library's object; for the other modules of the adapter only."""
        self._recent = recent or RecentRows()
        # Rows that are added change neither the fragments nor the indexes that are there.
        grown = extends if changed_fragments is None else None
        self._indexes: tuple[IndexInfo, ...] | None = grown._indexes if grown else None
        self._files: dict[int, tuple[int, str]] = dict(grown._files) if grown else {}
        self._infos = {} if extends is None else extends.known_fragments(changed_fragments or ())
        if extends is not None:
            # Such a version has the columns of the one before, so that nobody asks the library.
            known = vars(extends)
            vars(self).update({name: known[name] for name in _OF_COLUMNS if name in known})
        self._read_deletions = read_deletions
        self._written = written or WrittenRows()
        # Distinguishes a version that was cleaned up under this handle from a damaged one.
        self._missing = missing
        self._reopen = reopen

    def private_dataset(self) -> lance.LanceDataset:
        """Return the same version as an object that is not shared; costs no request.

        Some calls of pylance (reading transactions, refs, building indexes) need an object for
        themselves: on a shared one they fail, or make others fail, with "already borrowed".
        """
        return self.dataset.checkout_version(self.at.version)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.dataset.schema

    @property
    def absent_columns(self) -> tuple[str, ...]:
        return ()

    def scan(self, request: ScanRequest | None = None) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(*self.batches(request or ScanRequest()))

    def batches(self, request: ScanRequest) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        # The reader knows its schema; asking the scanner for it would plan the scan twice.
        reader = self._guarded(lambda: self._scanner(request).to_reader())
        return reader.schema, self._batches(reader, request)

    def find(self, column: str, values: Sequence[str]) -> pa.Table:
        request = ScanRequest(
            columns=(column,),
            row_filter=OneOf(column, tuple(values)),
            with_row_id=True,
            with_row_address=True,
        )
        recent = self._recent.of(self, column)
        rest = tuple(number for number in self.fragment_ids() if number not in recent)
        if not recent or len(rest) > _FRAGMENTS_NAMED_MAX:
            return self._read(request)
        found = self._read(replace(request, fragment_ids=rest))
        hits = [
            (value, *rows[value]) for rows in recent.values() for value in values if value in rows
        ]
        if not hits:
            return found
        names = (column, ROW_ID, ROW_ADDRESS)
        columns = dict(zip(names, zip(*hits, strict=True), strict=True))
        more = pa.table({name: columns[name] for name in found.schema.names}, schema=found.schema)
        return pa.concat_tables([found, more])

    def count(self, row_filter: Filter | None = None) -> int:
        if row_filter is None:
            # It is another dataset when the call is repeated.
            return int(self._guarded(lambda: self.dataset.count_rows()))  # noqa: PLW0108
        self._check_columns(filter_columns(row_filter))
        text = render_filter(row_filter)
        return int(self._guarded(lambda: self.dataset.count_rows(filter=text)))

    def take(
        self, row_ids: Sequence[int] | pa.Array, columns: Sequence[str] | None = None
    ) -> pa.Table:
        names = self._names(columns)
        wanted = _integers(row_ids)
        if not wanted:
            return self._empty(names)
        return self._guarded(lambda: self.dataset._take_rows(wanted, columns=names))

    def take_addresses(
        self, addresses: Sequence[int] | pa.Array, columns: Sequence[str] | None = None
    ) -> pa.Table:
        names = self._names(columns)
        wanted = pa.array(_integers(addresses), pa.uint64())
        if not len(wanted):
            return self._empty(names)
        asked = [name for name in names if name != ROW_ADDRESS]
        if len(wanted) <= _ADDRESSES_AS_FILTER_MAX:
            request = ScanRequest(
                columns=tuple(asked),
                row_filter=OneOf(ROW_ADDRESS, tuple(wanted.to_pylist())),
                with_row_address=True,
            )
            found = self.scan(request).read_all()
        else:
            found = self._filtered_fragments(asked, wanted)
        positions = pc.index_in(wanted, value_set=found[ROW_ADDRESS].combine_chunks())
        return found.take(positions.drop_null()).select(names)

    def read_blobs(self, column: str, row_ids: Sequence[int]) -> tuple[bytes | None, ...]:
        self._check_columns([column])
        if not row_ids:
            return ()
        distinct = list(dict.fromkeys(row_ids))
        found = self._guarded(
            lambda: self.dataset.read_blobs(column, ids=distinct, preserve_order=True)
        )
        contents = dict(zip(distinct, (content for _, content in found), strict=True))
        return tuple(contents[row_id] for row_id in row_ids)

    def open_blob(self, column: str, row_id: int) -> BlobContent | None:
        self._check_columns([column])
        blob = _LanceBlob(self, column, row_id)
        return None if self.repeated(blob.file) is None else blob

    def fragments(self, wanted: Callable[[int], bool] | None = None) -> tuple[FragmentInfo, ...]:
        if wanted is None:
            return self._fragments
        # Describing a fragment costs much more than naming it.
        return tuple(
            _fragment_info(self.fragment(number).metadata)
            for number in self.fragment_ids()
            if wanted(number)
        )

    @cached_property
    def _fragments(self) -> tuple[FragmentInfo, ...]:
        if not self._infos:
            fragments = self.dataset.get_fragments()
            return tuple(_fragment_info(fragment.metadata) for fragment in fragments)
        return tuple(
            self._infos.get(number) or _fragment_info(self.fragment(number).metadata)
            for number in self.fragment_ids()
        )

    def known_fragments(self, except_for: Collection[int]) -> dict[int, FragmentInfo]:
        """Return what is known of the fragments, without asking the library; for other versions."""
        known = self.__dict__.get("_fragments", self._infos.values())
        return {one.fragment_id: one for one in known if one.fragment_id not in except_for}

    def fragment_ids(self) -> list[int]:
        """Return the numbers of the fragments; for the other modules of the adapter only."""
        return list(self.dataset.fragment_ids())

    def files_of(self, fragment_ids: Sequence[int]) -> Iterator[tuple[int, int, str]]:
        """Yield number, rows with deleted ones and files: less than `fragments`, for less time."""
        for number in fragment_ids:
            known = self._files.get(number)
            if known is None:
                metadata = self.fragment(number).metadata
                known = self._files[number] = metadata.physical_rows, "|".join(file_names(metadata))
            yield number, *known

    def has_written(self, fragment_id: int, columns: Collection[str]) -> bool:
        if not columns:
            return False
        first = self.fragment(fragment_id).metadata.files[0]
        wanted = (field for field in self._lance_fields if field.name() in columns)
        return any(number in first.fields for field in wanted for number in _numbers(field))

    @cached_property
    def _lance_fields(self) -> tuple[Any, ...]:
        return tuple(self.dataset.lance_schema.fields())

    def row_ids(self, fragment_id: int) -> pa.Array:
        inline = self.fragment(fragment_id).metadata.row_id_meta
        if inline is None:
            raise InvalidScanError(
                path=self.at.location, reason=f"fragment {fragment_id} names no row ids"
            )
        return RowIdSequence.from_inline_metadata(inline).to_pyarrow()

    @cached_property
    def column_ids(self) -> tuple[tuple[str, int], ...]:
        fields = self.dataset.lance_schema.fields()
        return tuple((field.name(), field.id()) for field in fields)

    def written_rows(self, fragment_id: int) -> pa.Table | None:
        files = self.fragment(fragment_id).metadata.files
        return self._written.of(data_file_name(files[0]), self.column_ids) if files else None

    def deleted_row_ids(self, fragment_id: int) -> npt.NDArray[np.uint64]:
        metadata = self.fragment(fragment_id).metadata
        if metadata.deletion_file is None:
            return np.empty(0, np.uint64)
        offsets = self.deleted_offsets(metadata)
        named = metadata.row_id_meta
        inline = None if named is None else json.loads(named.json()).get("Inline")
        span = None if inline is None else row_id_range(bytes(inline))
        if span is not None:
            return offsets.astype(np.uint64) + np.uint64(span[0])
        found: npt.NDArray[np.uint64] = self.row_ids(fragment_id).to_numpy()[offsets]
        return found

    def deleted_offsets(self, metadata: lance.FragmentMetadata) -> npt.NDArray[np.uint32]:
        """Return which rows of a fragment are deleted; for the other modules of the adapter."""
        if metadata.deletion_file is None:
            return np.empty(0, np.uint32)
        if self._read_deletions is None:
            return self._dead_offsets(metadata)
        data = self._read_deletions(self, metadata)
        is_listed = metadata.deletion_file.file_type == "array"
        try:
            return listed_offsets(data) if is_listed else bitmap_offsets(data)
        except (ValueError, IndexError, OSError, pa.ArrowException):
            # Of a form that is not known here, or damaged: then the library says so.
            return self._dead_offsets(metadata)

    def _dead_offsets(self, metadata: lance.FragmentMetadata) -> npt.NDArray[np.uint32]:
        """Find deleted rows by those that are left."""
        request = ScanRequest(columns=(), with_row_address=True, fragment_ids=(metadata.id,))
        live = self._read(request)[ROW_ADDRESS].to_numpy() & np.uint64(2**32 - 1)
        is_dead = np.ones(metadata.physical_rows, np.bool_)
        is_dead[live] = False
        return np.flatnonzero(is_dead).astype(np.uint32)

    def indexes(self) -> tuple[IndexInfo, ...]:
        if self._indexes is None:
            described = self._guarded(lambda: self.dataset.describe_indices())  # noqa: PLW0108
            infos = (_index_info(index) for index in described)
            self._indexes = tuple(sorted(infos, key=lambda info: info.name))
        return self._indexes

    def _read(self, request: ScanRequest) -> pa.Table:
        """Read rows whole: without Python in between, for look-ups that happen all the time."""
        return self._guarded(lambda: self._scanner(request).to_table())

    def _scanner(self, request: ScanRequest) -> lance.LanceScanner:
        names = None if request.columns is None else self._names(request.columns)
        options: dict[str, Any] = {
            **_SCAN_DEFAULTS,
            "columns": names,
            "limit": request.limit,
            "offset": request.offset,
            "with_row_id": request.with_row_id,
            "with_row_address": request.with_row_address,
            "batch_size": request.batch_rows,
            "use_scalar_index": request.use_scalar_indexes,
        }
        if request.row_filter is not None:
            self._check_columns(filter_columns(request.row_filter))
            options["filter"] = render_filter(request.row_filter)
        if request.fragment_ids is not None:
            options["fragments"] = [self.fragment(number) for number in request.fragment_ids]
        if request.row_ids is not None:
            options["row_addr_allowlist"] = serialize_row_addrs(request.row_ids)
        if request.blobs_as_bytes:
            options["blob_handling"] = "all_binary"
        options |= self._search_options(request)
        is_plain = request.nearest is None
        scanner: lance.LanceScanner = self._guarded(
            lambda: (self._native_scanner if is_plain else self.dataset.scanner)(**options)
        )
        return scanner

    def _native_scanner(self, **options: Any) -> lance.LanceScanner:
        """Skip the library's builder, whose copies of the options take longer than a look-up."""
        text: FullTextQuery | None = options.pop("full_text_query", None)
        if text is not None:
            options["full_text_query"] = text.inner
        if "fragments" in options:
            options["fragments"] = [fragment._fragment for fragment in options["fragments"]]
        return lance.LanceScanner(self.dataset._ds.scanner(**options), self.dataset)

    def _search_options(self, request: ScanRequest) -> dict[str, object]:
        if request.nearest is None and request.text is None:
            return {}
        options: dict[str, object] = {"prefilter": True, "disable_scoring_autoprojection": True}
        if request.nearest is not None:
            self._check_columns([request.nearest.column])
            options["nearest"] = _nearest(request.nearest)
        if request.text is not None:
            self._check_columns([request.text.column])
            options["full_text_query"] = text_query(request.text)
            options["fast_search"] = request.text.covered_only
        return options

    def fragment(self, number: int) -> lance.LanceFragment:
        """Return the library's object; for the other modules of the adapter only."""
        fragment = self.dataset.get_fragment(number)
        if fragment is None:
            raise InvalidScanError(
                path=self.at.location,
                reason=f"version {self.at.version} has no fragment {number}",
            )
        return fragment

    def _filtered_fragments(self, columns: list[str], wanted: pa.Array) -> pa.Table:
        numbers = pc.unique(pc.shift_right(wanted, pa.scalar(32, pa.uint64()))).to_pylist()
        present = {fragment.fragment_id for fragment in self.dataset.get_fragments()}
        request = ScanRequest(
            columns=tuple(columns),
            with_row_address=True,
            fragment_ids=tuple(number for number in numbers if number in present),
        )
        reader = self.scan(request)
        kept = [batch.filter(pc.is_in(batch[ROW_ADDRESS], value_set=wanted)) for batch in reader]
        return pa.Table.from_batches(kept, schema=reader.schema)

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        if columns is None:
            return list(self.schema.names)
        self._check_columns(columns)
        return list(columns)

    @cached_property
    def _known_columns(self) -> frozenset[str]:
        return frozenset(self.schema.names) | VIRTUAL_COLUMNS

    def _check_columns(self, columns: Iterable[str]) -> None:
        for name in columns:
            if name not in self._known_columns:
                raise unknown_column(self.at.location, name, self.schema.names)

    def _empty(self, names: list[str]) -> pa.Table:
        return self.scan(ScanRequest(columns=tuple(names), limit=0)).read_all()

    def _batches(
        self, reader: pa.RecordBatchReader, request: ScanRequest
    ) -> Iterator[pa.RecordBatch]:
        for tries_left in reversed(range(_CALLS_MAX)):
            used, is_begun = self.dataset, False
            try:
                for batch in reader:
                    is_begun = True
                    yield batch
                return
            except lance_failures() as error:
                # Rows that were passed on cannot be taken back; the next scan reads the pack.
                if not self._is_reopened(used, error) or is_begun or not tries_left:
                    raise self._translated(error) from error
            reader = self._guarded(lambda: self._scanner(request).to_reader())

    def guarded(self, call: Callable[[lance.LanceDataset], Any], *, path: str) -> Any:
        """Call the library with a dataset that is not shared, for the other modules.

        Errors name `path`.
        """
        return self._guarded(lambda: call(self.private_dataset()), path=path)

    def repeated(self, call: Callable[[], Any]) -> Any:
        """Call the library; again when the version was packed or unpacked under this handle."""
        return self._guarded(call)

    def _guarded(self, call: Callable[[], Any], *, path: str | None = None) -> Any:
        """Call the library; again when the version was packed or unpacked under this handle.

        Lance reads a part of a version's file only when it is needed: indexes, transactions.
        """
        for _ in range(_CALLS_MAX - 1):
            used = self.dataset
            try:
                return call()
            except lance_failures() as error:
                if not self._is_reopened(used, error):
                    raise self._translated(error, path) from error
        try:
            return call()
        except lance_failures() as error:
            raise self._translated(error, path) from error

    def _is_reopened(self, used: lance.LanceDataset, error: BaseException) -> bool:
        """Whether there is another dataset now than the one that has failed."""
        if self.dataset is not used:
            return True  # By another thread.
        reopened = None if self._reopen is None else self._reopen(self.at, used, error)
        if reopened is not None:
            self.dataset = reopened
        return reopened is not None

    def _translated(self, error: BaseException, path: str | None = None) -> StorageError:
        return self._missing(self.at) or read_error(error, path or self.at.location)


class _LanceBlob:
    """A `BlobContent` over a file of Lance, which is opened again when its dataset was."""

    def __init__(self, handle: LanceHandle, column: str, row_id: int) -> None:
        self._handle = handle
        self._column = column
        self._row_id = row_id
        # The directory of a packed version stays as long as the dataset.
        self._opened: tuple[lance.LanceDataset, lance.BlobFile | None] | None = None

    def file(self) -> lance.BlobFile | None:
        """Return the library's file; None for a null."""
        dataset = self._handle.dataset
        if self._opened is None or self._opened[0] is not dataset:
            [file] = dataset.take_blobs(self._column, ids=[self._row_id])
            self._opened = (dataset, file)
        return self._opened[1]

    @property
    def size(self) -> int:
        return int(self._handle.repeated(lambda: self._present().size()))

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._handle.repeated(lambda: self._present().read_range(offset, length)))

    def _present(self) -> lance.BlobFile:
        file = self.file()
        if file is None:
            raise ValueError("the value is null")
        return file


def _numbers(field: Any) -> Iterator[int]:
    """Yield the numbers of a column and of its parts; files list those of the innermost."""
    yield field.id()
    for child in field.children():
        yield from _numbers(child)


def _integers(values: Sequence[int] | pa.Array) -> list[int]:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return list(values.to_pylist())
    return list(values)


def _nearest(search: VectorSearch) -> dict[str, object]:
    options: dict[str, object] = {
        "column": search.column,
        "q": pa.array(search.query, pa.float32()),
        "k": search.k,
        "metric": search.metric,
        "use_index": search.use_index,
    }
    if search.refine_factor is not None:
        options["refine_factor"] = search.refine_factor
    return options


def file_names(metadata: lance.FragmentMetadata) -> tuple[str, ...]:
    """Name all files of a fragment: equal names, equal content of every column."""
    names = [data_file_name(file) for file in metadata.files]
    return (*names, *_deletion_files(metadata))


def _deletion_files(metadata: lance.FragmentMetadata) -> tuple[str, ...]:
    deletion = metadata.deletion_file
    return () if deletion is None else (deletion.path(metadata.id),)


def data_file_name(file: DataFile) -> str:
    """Return the name of a data file; the library's own property builds a class on every call."""
    return str(vars(file)["_path"])


def _fragment_info(metadata: lance.FragmentMetadata) -> FragmentInfo:
    # Files of columns that were added later follow the file with which the rows were written.
    first = data_file_name(metadata.files[0])
    return FragmentInfo(
        fragment_id=metadata.id,
        physical_rows=metadata.physical_rows,
        deleted_rows=metadata.num_deletions,
        data_bytes=sum(file.file_size_bytes or 0 for file in metadata.files),
        identity="|".join((first, *_deletion_files(metadata))),
        data_identity=first,
        files=file_names(metadata),
    )


def _index_info(index: Any) -> IndexInfo:
    return IndexInfo(
        name=index.name,
        kind=str(index.index_type).upper(),
        columns=tuple(index.field_names),
        rows_covered=index.num_rows_indexed,
        segments=tuple(
            IndexSegment(
                uuid=segment.uuid,
                fragment_ids=tuple(sorted(segment.fragment_ids)),
                dataset_version=segment.dataset_version_at_last_update,
            )
            for segment in index.segments
        ),
    )
