"""Second names for the files of a source, in the directory of a target."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import pyarrow as pa
from lance import FragmentMetadata, LanceOperation
from lance.fragment import DataFile, DeletionFile
from lance.schema import LanceSchema

from omnigraph.dataclass import dataclass
from omnigraph.store.errors import CorruptObjectError, InvalidScanError
from omnigraph.store.lance.handle import LanceHandle, data_file_name
from omnigraph.store.lance.layout import data_path, lineage_path, relative_to_root
from omnigraph.store.lance.links.difference import column_numbers
from omnigraph.store.lance.staging import has_blob_columns, staged_record
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.records import (
    DatasetVersion,
    OperationKind,
    RowCounts,
    StagedFile,
    StagedTransaction,
)
from omnigraph.store.uri import Root, join_path

_COPIES_AT_ONCE_MAX: Final = 8
_SUFFIX: Final = ".lance"
_DELETION_ID_BITS: Final = 63


@dataclass(frozen=True)
class Copies:
    """Gives files of a source second names in the directory of a target."""

    base: DatasetVersion
    source: LanceHandle
    objects: ObjectStore
    root: Root

    def staged_create(self, schema: pa.Schema) -> StagedTransaction | None:
        """Stage a new dataset with all rows of the source; None where its files do not fit."""
        numbers = column_numbers(LanceSchema.from_pyarrow(schema))
        if not self.source.schema.equals(schema, check_metadata=True):
            return None
        if numbers != column_numbers(self.source.dataset.lance_schema):
            return None
        parts = [fragment.metadata for fragment in self.source.dataset.get_fragments()]
        if any(part.deletion_file is not None or part.overlays for part in parts):
            # The library creates no dataset of which rows are deleted.
            return None
        fragments: list[FragmentMetadata] = []
        files: list[StagedFile] = []
        for number, part in enumerate(parts):
            data, needed = self.data_files(part, keeps_names=False)
            fragments.append(FragmentMetadata(number, data, part.physical_rows))
            files += needed
        self.make(files)
        return staged_record(
            self.base,
            LanceOperation.Overwrite(schema, fragments),
            kind=OperationKind.OVERWRITE,
            files=tuple(files),
            counts=RowCounts(inserted=sum(part.physical_rows for part in parts)),
        )

    def data_files(
        self, fragment: FragmentMetadata, *, keeps_names: bool
    ) -> tuple[list[DataFile], list[StagedFile]]:
        """Return the data files of a fragment of the source as files of the target."""
        data: list[DataFile] = []
        files: list[StagedFile] = []
        for file in fragment.files:
            name = self._data_name(file, keeps_name=keeps_names)
            path = data_path(self.base.location, self.base.branch, name)
            source = join_path(self._home(file.base_id), "data", data_file_name(file))
            files.append(_copied(source, path, file.file_size_bytes))
            files += self._blob_files(source, path)
            data.append(
                DataFile(
                    name,
                    list(file.fields),
                    list(file.column_indices),
                    file.file_major_version,
                    file.file_minor_version,
                    file.file_size_bytes,
                )
            )
        return data, files

    def deletion(self, fragment: FragmentMetadata, number: int) -> tuple[DeletionFile, StagedFile]:
        """Return the deleted rows of a fragment of the source as those of one of the target."""
        known, base = fragment.deletion_file, self.base
        if known is None:
            raise InvalidScanError(
                path=base.location, reason=f"fragment {fragment.id} has all its rows"
            )
        source = join_path(self._home(known.base_id), known.path(fragment.id))
        renamed = _deletion_file(known, known.id)
        path = join_path(lineage_path(base.location, base.branch), renamed.path(number))
        if self._is_taken(path):
            renamed = _deletion_file(known, secrets.randbits(_DELETION_ID_BITS))
            path = join_path(lineage_path(base.location, base.branch), renamed.path(number))
        return renamed, _copied(source, path, None)

    def _data_name(self, file: DataFile, *, keeps_name: bool) -> str:
        name = data_file_name(file)
        path = data_path(self.base.location, self.base.branch, name)
        return name if keeps_name and not self._is_taken(path) else uuid.uuid4().hex + _SUFFIX

    def _is_taken(self, path: str) -> bool:
        return self.objects.head(path) is not None

    def make(self, files: Sequence[StagedFile]) -> None:
        """Make the second names."""
        copies = [(file.copy_of, file.path) for file in files if file.copy_of is not None]
        if self.root.is_local or len(copies) < 2:
            for source, target in copies:
                self.objects.copy(source, target)
            return
        # Each copy is a request for which the storage takes its time.
        with ThreadPoolExecutor(_COPIES_AT_ONCE_MAX) as pool:
            for copied in [pool.submit(partial(self.objects.copy, *each)) for each in copies]:
                copied.result()

    def _blob_files(self, source: str, path: str) -> Iterator[StagedFile]:
        """Yield the files of large values that belong to a data file."""
        if not has_blob_columns(self.source.schema):
            return
        folders = source.removesuffix(_SUFFIX), path.removesuffix(_SUFFIX)
        for info in self.objects.list(folders[0]):
            name = info.path.removeprefix(f"{folders[0]}/")
            yield _copied(info.path, join_path(folders[1], name), info.size)

    def _home(self, base_id: int | None) -> str:
        """Return the directory of the lineage in which a file of the source is."""
        if base_id is None:
            return lineage_path(self.source.at.location, self.source.at.branch)
        base = self.source.dataset.base_paths().get(base_id)
        if base is None:
            raise CorruptObjectError(
                path=self.source.at.location, reason=f"the version names no directory {base_id}"
            )
        return relative_to_root(base.path, self.root)


def _copied(source: str, path: str, size: int | None) -> StagedFile:
    return StagedFile(path, size, copy_of=source)


def _deletion_file(known: DeletionFile, number: int) -> DeletionFile:
    """Return a list of deleted rows under another number."""
    return DeletionFile(
        read_version=known.read_version,
        id=number,
        file_type=known.file_type,
        num_deleted_rows=known.num_deleted_rows,
        base_id=None,
    )
