"""Reads one version of a Lance dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import serialize_row_addrs
from lance.fragment import DataFile, RowIdSequence
from lance.query import FullTextQuery

from omnigraph.names import nearest_name
from omnigraph.store.datasets import BlobContent
from omnigraph.store.errors import InvalidScanError, StorageError
from omnigraph.store.filters import Filter, OneOf, filter_columns
from omnigraph.store.lance.errors import lance_failures, read_error
from omnigraph.store.lance.recent_rows import RecentRows
from omnigraph.store.lance.sql import render_filter
from omnigraph.store.lance.text import text_query
from omnigraph.store.records import (
    DISTANCE,
    ROW_ADDRESS,
    ROW_CREATED,
    ROW_ID,
    ROW_UPDATED,
    SCORE,
    DatasetVersion,
    FragmentInfo,
    IndexInfo,
    IndexSegment,
    ScanRequest,
    VectorSearch,
)

_VIRTUAL_COLUMNS: Final = frozenset(
    {ROW_ID, ROW_ADDRESS, ROW_CREATED, ROW_UPDATED, DISTANCE, SCORE}
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


_FRAGMENTS_NAMED_MAX: Final = 512
"""Above this, naming the fragments of a scan costs more than it spares."""


class _LanceBlob:
    """A `BlobContent` over a file of Lance."""

    def __init__(self, file: lance.BlobFile, guarded: Callable[[Callable[[], Any]], Any]) -> None:
        self._file = file
        self._guarded = guarded

    @property
    def size(self) -> int:
        return int(self._guarded(self._file.size))

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._guarded(lambda: self._file.read_range(offset, length)))


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
    ) -> None:
        """Wrap a dataset; `extends` is the version to which this one has only added rows."""
        self.at = at
        self.dataset = dataset
        """The library's object; for the other modules of the adapter only."""
        self._recent = recent or RecentRows()
        # Rows that are added change neither the fragments nor the indexes that are there.
        self._indexes: tuple[IndexInfo, ...] | None = extends._indexes if extends else None
        self._files: dict[int, tuple[int, str]] = dict(extends._files) if extends else {}
        # Distinguishes a version that was cleaned up under this handle from a damaged one.
        self._missing = missing

    def private_dataset(self) -> lance.LanceDataset:
        """Return the same version as an object that is not shared; costs no request.

        Some calls of pylance (reading transactions, refs, building indexes) need an object for
        themselves: on a shared one they fail, or make others fail, with "already borrowed".
        """
        return self.dataset.checkout_version(self.at.version)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.dataset.schema

    def scan(self, request: ScanRequest | None = None) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(*self.batches(request or ScanRequest()))

    def batches(self, request: ScanRequest) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        scanner = self._scanner(request)
        # The reader knows its schema; asking the scanner for it would plan the scan twice.
        reader = self._guarded(scanner.to_reader)
        return reader.schema, self._batches(reader)

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
            return int(self._guarded(self.dataset.count_rows))
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
        [file] = self._guarded(lambda: self.dataset.take_blobs(column, ids=[row_id]))
        return None if file is None else _LanceBlob(file, self._guarded)

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
        return tuple(_fragment_info(fragment.metadata) for fragment in self.dataset.get_fragments())

    def fragment_ids(self) -> list[int]:
        """Return the numbers of the fragments; for the other modules of the adapter only."""
        return list(self.dataset.fragment_ids())

    def files_of(self, fragment_ids: Sequence[int]) -> Iterator[tuple[int, int, str]]:
        """Yield number, rows with deleted ones and files: less than `fragments`, for less time."""
        for number in fragment_ids:
            known = self._files.get(number)
            if known is None:
                metadata = self.fragment(number).metadata
                known = self._files[number] = metadata.physical_rows, fragment_identity(metadata)
            yield number, *known

    def row_ids(self, fragment_id: int) -> pa.Array:
        inline = self.fragment(fragment_id).metadata.row_id_meta
        if inline is None:
            raise InvalidScanError(
                path=self.at.location, reason=f"fragment {fragment_id} names no row ids"
            )
        return RowIdSequence.from_inline_metadata(inline).to_pyarrow()

    def indexes(self) -> tuple[IndexInfo, ...]:
        if self._indexes is None:
            described = self._guarded(self.dataset.describe_indices)
            infos = (_index_info(index) for index in described)
            self._indexes = tuple(sorted(infos, key=lambda info: info.name))
        return self._indexes

    def _read(self, request: ScanRequest) -> pa.Table:
        """Read rows whole: without Python in between, for look-ups that happen all the time."""
        scanner = self._scanner(request)
        return self._guarded(scanner.to_table)

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
        make = self._native_scanner if request.nearest is None else self.dataset.scanner
        scanner: lance.LanceScanner = self._guarded(lambda: make(**options))
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
        return frozenset(self.schema.names) | _VIRTUAL_COLUMNS

    def _check_columns(self, columns: Iterable[str]) -> None:
        for name in columns:
            if name in self._known_columns:
                continue
            near = nearest_name(name, self.schema.names)
            hint = f"; did you mean `{near}`?" if near else ""
            raise InvalidScanError(
                path=self.at.location,
                reason=f"there is no column `{name}` among"
                f" {', '.join(f'`{known}`' for known in self.schema.names)}{hint}",
            )

    def _empty(self, names: list[str]) -> pa.Table:
        return self.scan(ScanRequest(columns=tuple(names), limit=0)).read_all()

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except lance_failures() as error:
            raise self._translated(error) from error

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except lance_failures() as error:
            raise self._translated(error) from error

    def _translated(self, error: BaseException) -> StorageError:
        return self._missing(self.at) or read_error(error, self.at.location)


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


def fragment_identity(metadata: lance.FragmentMetadata) -> str:
    """Name the files by which a fragment's content is fixed: equal names, equal rows."""
    names = [_data_identity(metadata)]
    if metadata.deletion_file is not None:
        names.append(metadata.deletion_file.path(metadata.id))
    return "|".join(names)


def _data_identity(metadata: lance.FragmentMetadata) -> str:
    return "|".join(data_file_name(file) for file in metadata.files)


def data_file_name(file: DataFile) -> str:
    """Return the name of a data file; the library's own property builds a class on every call."""
    return str(vars(file)["_path"])


def _fragment_info(metadata: lance.FragmentMetadata) -> FragmentInfo:
    return FragmentInfo(
        fragment_id=metadata.id,
        physical_rows=metadata.physical_rows,
        deleted_rows=metadata.num_deletions,
        data_bytes=sum(file.file_size_bytes or 0 for file in metadata.files),
        identity=fragment_identity(metadata),
        data_identity=_data_identity(metadata),
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
