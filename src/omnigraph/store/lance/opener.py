"""Opens dataset versions, finds heads and reads the transaction of a version.

One Lance session holds the caches of all datasets under a root. Open versions are cached,
bounded in number, by (location, branch, version): a version never changes, so none is stale.

The head of a lineage is the highest version that its directory lists. Cleanup leaves gaps: it may
keep version 5, which a tag pins, and remove 6 and 7 while 8 is the head. So the absence of "known
head + 1" proves nothing by itself, and on local disks these facts hold instead:

1. Adding or removing a version changes the time stamp of the directory (`st_ctime_ns`, which
   cannot be set back).
2. A cached head is a pair of version and time stamp. The stamp was read before the directory was
   listed, or after a commit of our own made the version. Versions of `__manifest` and of tables are
   added under the lock of a branch, which a paused process keeps, so no process adds one between
   that commit and the read of the stamp. Derived tables have no lock: there a wrong guess costs one
   append that is refused, and that changes the stamp.
3. While the stamp is the same nothing was removed since, so there is no gap above the cached head
   and a walk upwards finds the head. The walk is needed: the clock behind the stamp ticks every few
   milliseconds, and a version may have been added within the same tick.
4. When the stamp differs, or the file system keeps whole seconds only, the directory is listed.

On object stores Lance lists the directory every time; its names sort the newest first.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final

import lance
from lance import LanceOperation
from lance.dataset import Session  # type: ignore[attr-defined]  # exported without saying so

from omnigraph.dataclass import dataclass
from omnigraph.store.errors import (
    CorruptObjectError,
    DatasetNotFoundError,
    DatasetVersionNotFoundError,
    ObjectNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from omnigraph.store.lance.errors import (
    is_not_found,
    is_other_version,
    lance_failures,
    read_error,
    read_failures,
)
from omnigraph.store.lance.handle import LanceHandle
from omnigraph.store.lance.layout import (
    VERSIONS_DIR,
    lineage_path,
    manifest_path,
    manifest_timestamp_us,
    manifest_version,
    relative_to_root,
    transaction_name,
    transaction_summary,
)
from omnigraph.store.lance.packs import Packs
from omnigraph.store.lance.recent_rows import RecentRows
from omnigraph.store.lance.written_rows import WrittenRows
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.records import DatasetVersion, OperationKind, TransactionInfo, VersionInfo
from omnigraph.store.uri import Root, checked_path, join_path, normalise_options

HANDLES_MAX: Final = 256
_INDEX_CACHE_BYTES: Final = 512 * 1024 * 1024
_METADATA_CACHE_BYTES: Final = 128 * 1024 * 1024
_PROBE_STEPS_MAX: Final = 64
_LOOKS_MAX: Final = 2
"""A version that is neither loose nor packed may have been unpacked between the two looks."""
_SECOND_NS: Final = 1_000_000_000
TAIL_BYTES: Final = 16 * 1024
"""A version names its transaction behind its list of fragments, close to the end of the file."""

_KINDS: Final[dict[type, OperationKind]] = {
    LanceOperation.Append: OperationKind.APPEND,
    LanceOperation.Update: OperationKind.UPDATE,
    LanceOperation.Delete: OperationKind.DELETE,
    LanceOperation.Overwrite: OperationKind.OVERWRITE,
    LanceOperation.CreateIndex: OperationKind.CREATE_INDEX,
    LanceOperation.Rewrite: OperationKind.REWRITE,
    LanceOperation.Restore: OperationKind.RESTORE,
    LanceOperation.Merge: OperationKind.MERGE,
    LanceOperation.Project: OperationKind.PROJECT,
    LanceOperation.UpdateConfig: OperationKind.METADATA,
    LanceOperation.Clone: OperationKind.CLONE,
}


@dataclass(frozen=True)
class _KnownHead:
    """A head, and the time stamp of its directory that belongs to it (local disks only)."""

    version: int
    stamp_ns: int


class LanceOpener:
    """Everything that only reads."""

    def __init__(
        self,
        root: Root,
        objects: ObjectStore,
        *,
        storage_options: Mapping[str, str] | None,
        handles_max: int,
    ) -> None:
        self._root = root
        self._objects = objects
        self.options = normalise_options(root, storage_options) or None
        self._handles_max = handles_max
        self._session = _new_session()
        self._lock = threading.Lock()
        self._handles: OrderedDict[DatasetVersion, LanceHandle] = OrderedDict()
        self._known_heads: dict[tuple[str, str | None], _KnownHead] = {}
        self._recent = RecentRows()
        self.written = WrittenRows()
        self.packs = Packs(root, objects)
        self._process = os.getpid()

    def open(
        self, location: str, *, branch: str | None = None, version: int | None = None
    ) -> LanceHandle:
        """Open one version, the newest when `version` is `None`."""
        self._check_process()
        if version is None:
            version = self.head_version(location, branch=branch)
        at = DatasetVersion(checked_path(location), branch, version)
        cached = self._cached(at)
        return cached if cached is not None else self.open_cold(at)

    def exists(
        self, location: str, *, branch: str | None = None, version: int | None = None
    ) -> bool:
        """Whether the lineage has this version, or any; it need not be readable."""
        if version is not None:
            return self._is_stored(DatasetVersion(checked_path(location), branch, version))
        try:
            self.head_version(location, branch=branch)
        except DatasetNotFoundError:
            return False
        return True

    def head_version(self, location: str, *, branch: str | None = None) -> int:
        """Return the newest version number without opening it."""
        checked_path(location)
        if self._root.is_local:
            return self._local_head(location, branch)
        return self._remote_head(location, branch)

    def transaction(self, at: DatasetVersion) -> TransactionInfo:
        """Return the transaction of a version."""
        found: TransactionInfo = self.at(at).guarded(
            lambda dataset: self._transaction(at, dataset), path=self._version_name(at)
        )
        return found

    def _transaction(self, at: DatasetVersion, dataset: lance.LanceDataset) -> TransactionInfo:
        """Read a transaction in Lance's own terms; `dataset` is that version and not shared."""
        try:
            found = self._named_transaction(at, dataset)
        except TypeError:
            # pylance cannot rebuild a compaction that rewrote an index as well.
            return self._transaction_from_file(at, dataset)
        kind = _KINDS.get(type(found.operation))
        if kind is None:
            # pylance has no class for a reservation of fragment ids, and for some others.
            kind = self._kind_from_file(at, dataset)
        return TransactionInfo(at.version, found.uuid, kind)

    def _named_transaction(
        self, at: DatasetVersion, dataset: lance.LanceDataset
    ) -> lance.Transaction:
        found = dataset.read_transaction(at.version)
        if found is None:
            raise CorruptObjectError(
                path=self._version_name(at), reason="the version names no transaction"
            )
        return found

    def uuid_of(self, at: DatasetVersion, opened: lance.LanceDataset) -> str:
        """Return the transaction id of a version that was just made, and is not shared yet."""
        with read_failures(self._version_name(at)):
            try:
                return self._named_transaction(at, opened).uuid
            except TypeError:
                return self._transaction_from_file(at, opened).uuid

    def is_made_by(self, at: DatasetVersion, *, read_version: int, uuid: str) -> bool:
        """Whether the stored version surely is a transaction's; on local disks one short read.

        False proves nothing: the transaction may be named elsewhere in the file, and on object
        stores it is always False.
        """
        if not self._root.is_local:
            return False
        path = manifest_path(at.location, at.branch, at.version)
        try:
            with open(f"{self._root.prefix}/{path}", "rb") as file:  # noqa: PTH123 - on every commit
                file.seek(-min(TAIL_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
                return transaction_name(read_version, uuid).encode() in file.read()
        except OSError:
            return False

    def uuid_at(self, at: DatasetVersion) -> str | None:
        """Return the transaction id of a version, `None` when it is not there or cannot be read."""
        try:
            return self.transaction(at).uuid
        except StorageError:
            return None

    def at(self, base: DatasetVersion) -> LanceHandle:
        """Open exactly this version."""
        return self.open(base.location, branch=base.branch, version=base.version)

    def any_main(self, location: str) -> lance.LanceDataset:
        """Open any version of the main lineage for the caller alone: refs belong to the dataset."""
        known = self._any_of_lineage(location, None)
        if known is None or self.packs.is_laid_out(known.dataset):
            # In the directory of a packed version there are no refs.
            known = self.open(location)
        return known.private_dataset()

    def open_loose(self, at: DatasetVersion) -> LanceHandle | None:
        """Open a version where it lies, for a commit or a ref; None when it is in a pack."""
        handle = self.at(at)
        if not self.packs.is_laid_out(handle.dataset):
            return handle
        # Another process may have taken the pack apart since.
        handle = self.open_cold(at)
        return None if self.packs.is_laid_out(handle.dataset) else handle

    def has_gap_since(self, base: DatasetVersion) -> bool:
        """Whether a version or one after it has no file any more, on local disks.

        It is in a pack, or a cleanup has removed it. Lance passes over it and lands a commit on the
        head that undoes what it has changed.
        """
        if not self._root.is_local:
            return False
        location, branch = base.location, base.branch
        try:
            head = self.head_version(location, branch=branch)
        except DatasetNotFoundError:
            return False  # The commit finds that out, too, and says what became of it.
        versions = range(base.version, head + 1)
        return not all(self._has_version(location, branch, one) for one in versions)

    def uri(self, location: str, branch: str | None) -> str:
        """Return the name under which Lance finds a lineage."""
        return self._root.join(lineage_path(location, branch))

    def remember(
        self,
        dataset: lance.LanceDataset,
        at: DatasetVersion,
        *,
        extends: LanceHandle | None = None,
        changed_fragments: Collection[int] | None = None,
    ) -> LanceHandle:
        """Cache an open version."""
        handle = LanceHandle(
            dataset,
            at,
            missing=self.missing_version,
            recent=self._recent,
            extends=extends,
            changed_fragments=changed_fragments,
            read_deletions=self._read_deletions,
            written=self.written,
            reopen=self._reopened,
        )
        with self._lock:
            self._handles[at] = handle
            self._handles.move_to_end(at)
            while len(self._handles) > self._handles_max:
                self._handles.popitem(last=False)
        return handle

    def load(self, at: DatasetVersion) -> lance.LanceDataset:
        """Open a version without the cache, in Lance's own terms."""
        for _ in range(_LOOKS_MAX):
            try:
                return self._load_loose(at)
            except lance_failures() as error:
                if not is_not_found(error):
                    raise
            packed = self.packed(at)
            if packed is not None:
                return packed
        return self._load_loose(at)

    def _load_loose(self, at: DatasetVersion) -> lance.LanceDataset:
        return lance.dataset(
            self.uri(at.location, at.branch),
            version=at.version,
            storage_options=self.options,
            session=self._session,
        )

    def packed(self, at: DatasetVersion) -> lance.LanceDataset | None:
        """Open a version out of its pack; None when it has a file of its own, or no pack."""
        if not self._root.is_local or self._has_version(at.location, at.branch, at.version):
            return None
        return self.packs.open(at, session=self._session)

    def _reopened(
        self, at: DatasetVersion, failed: lance.LanceDataset, error: BaseException
    ) -> lance.LanceDataset | None:
        """Open a version again that may have been packed or unpacked since; None when it was not.

        A loose version that has lost its files may still be whole in a pack.
        """
        if not self._root.is_local:
            return None
        for _ in range(_LOOKS_MAX):
            is_loose = self._has_version(at.location, at.branch, at.version)
            if is_loose and self.packs.is_laid_out(failed):
                with suppress(*lance_failures()):
                    return self._load_loose(at)
            packed = self.packs.open(at, session=self._session)
            if packed is not None:
                return packed
            if is_loose and is_not_found(error):
                # It may have been packed and unpacked again, with the call in between.
                with suppress(*lance_failures()):
                    return self._load_loose(at)
        return None

    def describe(self, at: DatasetVersion) -> VersionInfo:
        """Describe one version, as a listing of all versions does."""
        # Not through the cache: describing hundreds of versions would empty it.
        dataset = self.load(at)
        created_us = manifest_timestamp_us(dataset._ds.serialized_manifest())
        return VersionInfo(
            version=at.version,
            created_us=created_us,
            rows=dataset.count_rows(),
            fragments=len(dataset.fragment_ids()),
        )

    def note_head(self, at: DatasetVersion) -> None:
        """Remember a version that a commit of our own has just made."""
        if not self._root.is_local:
            return
        stamp_ns = self._stamp_ns(at.location, at.branch)
        if stamp_ns is None or self._has_version(at.location, at.branch, at.version + 1):
            return
        with self._lock:
            self._known_heads[at.location, at.branch] = _KnownHead(at.version, stamp_ns)

    def forget(self, location: str) -> None:
        """Drop cached handles of a dataset that has been deleted."""
        with self._lock:
            for at in [at for at in self._handles if at.location == location]:
                del self._handles[at]
            for lineage in [known for known in self._known_heads if known[0] == location]:
                del self._known_heads[lineage]

    def forget_all(self) -> None:
        """Drop all cached handles, and what the library and packs have in memory."""
        with self._lock:
            self._handles.clear()
            self._known_heads.clear()
            self._session = _new_session()
            self._recent, self.written = RecentRows(), WrittenRows()
        self.packs.forget()

    def forget_lineage(self, location: str, branch: str | None) -> None:
        """Drop the cached handles of one lineage."""
        with self._lock:
            for at in [a for a in self._handles if (a.location, a.branch) == (location, branch)]:
                del self._handles[at]
            self._known_heads.pop((location, branch), None)

    def open_cold(self, at: DatasetVersion) -> LanceHandle:
        """Open a version without the cache."""
        try:
            dataset = self.load(at)
        except lance_failures() as error:
            if is_other_version(error) and self.exists(
                at.location, branch=at.branch, version=at.version
            ):
                reason = "the file says that it is another version"
                raise CorruptObjectError(path=self._version_name(at), reason=reason) from error
            if is_not_found(error):
                raise self._absent(at) from error
            raise read_error(error, self._version_name(at)) from error
        return self.remember(dataset, at)

    def _read_deletions(self, handle: LanceHandle, fragment: lance.FragmentMetadata) -> bytes:
        deletion = fragment.deletion_file
        if deletion is None:
            raise ValueError(f"fragment {fragment.id} has no deleted rows")
        base = lineage_path(handle.at.location, handle.at.branch)
        if deletion.base_id is not None:
            # A branch refers to the deletions of the lineage that it was cut from.
            base = relative_to_root(handle.dataset.base_paths()[deletion.base_id].path, self._root)
        return self._objects.get(join_path(base, deletion.path(fragment.id))).data

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            error = StorageUnavailableError(
                path=self._root.uri,
                reason="it was opened before a fork, which stops the threads of storage",
            )
            error.hint = "open the graph in the child, or start processes with `spawn`"
            raise error

    def _cached(self, at: DatasetVersion) -> LanceHandle | None:
        with self._lock:
            handle = self._handles.get(at)
            if handle is not None:
                self._handles.move_to_end(at)
        return handle

    def _version_name(self, at: DatasetVersion) -> str:
        return manifest_path(at.location, at.branch, at.version)

    def _absent(self, at: DatasetVersion) -> StorageError:
        try:
            head = self.head_version(at.location, branch=at.branch)
        except DatasetNotFoundError as error:
            return error
        return DatasetVersionNotFoundError(
            path=at.location, branch=at.branch, version=at.version, head=head
        )

    def missing_version(self, at: DatasetVersion) -> StorageError | None:
        """Return the right error when a handle fails because its version was cleaned up."""
        return None if self._is_stored(at) else self._absent(at)

    def _is_stored(self, at: DatasetVersion) -> bool:
        path = manifest_path(at.location, at.branch, at.version)
        is_found = self._objects.head(path) is not None or self.packs.find(at) is not None
        # It may have been unpacked between the two looks.
        return is_found or self._objects.head(path) is not None

    def _local_head(self, location: str, branch: str | None) -> int:
        stamp_ns = self._stamp_ns(location, branch)
        if stamp_ns is None:
            raise DatasetNotFoundError(path=location, branch=branch)
        with self._lock:
            known = self._known_heads.get((location, branch))
        if known is not None and known.stamp_ns == stamp_ns and stamp_ns % _SECOND_NS:
            head = self._climb(location, branch, known.version)
            if head is not None:
                return head
        try:
            names = os.listdir(self._versions_directory(location, branch))  # noqa: PTH208 - names alone, thousands of them
        except (FileNotFoundError, NotADirectoryError):
            raise DatasetNotFoundError(path=location, branch=branch) from None
        except OSError as error:
            raise read_error(error, location) from error
        head = self._newest(names, location, branch)
        with self._lock:
            self._known_heads[location, branch] = _KnownHead(head, stamp_ns)
        return head

    def _versions_directory(self, location: str, branch: str | None) -> str:
        return f"{self._root.prefix}/{lineage_path(location, branch)}/{VERSIONS_DIR}"

    def _stamp_ns(self, location: str, branch: str | None) -> int | None:
        """Return the time stamp of a lineage's directory of versions; `None`: there is none."""
        try:
            return os.stat(self._versions_directory(location, branch)).st_ctime_ns  # noqa: PTH116 - on every read
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise read_error(error, location) from error

    def _newest(self, names: list[str], location: str, branch: str | None) -> int:
        found = [version for name in names if (version := manifest_version(name)) is not None]
        if not found:
            raise DatasetNotFoundError(path=location, branch=branch)
        return max(found)

    def _climb(self, location: str, branch: str | None, known: int) -> int | None:
        """Walk up from a known head in a directory from which nothing was removed since."""
        if not self._has_version(location, branch, known):
            return None
        for version in range(known, known + _PROBE_STEPS_MAX):
            if not self._has_version(location, branch, version + 1):
                return version
        return None

    def _has_version(self, location: str, branch: str | None, version: int) -> bool:
        # Called for every read of the graph: a path object, or an exception of `stat`, would cost
        # more than the call itself.
        return os.access(f"{self._root.prefix}/{manifest_path(location, branch, version)}", os.F_OK)

    def _remote_head(self, location: str, branch: str | None) -> int:
        handle = self._any_of_lineage(location, branch)
        try:
            if handle is not None:
                return int(handle.dataset.latest_version)
            newest = lance.dataset(
                self.uri(location, branch),
                storage_options=self.options,
                session=self._session,
            )
        except lance_failures() as error:
            if is_not_found(error):
                raise DatasetNotFoundError(path=location, branch=branch) from error
            failure = read_error(error, location)
            if isinstance(failure, CorruptObjectError):
                return self._listed_head(location, branch)
            raise failure from error
        self.remember(newest, DatasetVersion(location, branch, newest.version))
        return int(newest.version)

    def _listed_head(self, location: str, branch: str | None) -> int:
        """Find the newest version by name alone, for the case that it cannot be read."""
        directory = join_path(lineage_path(location, branch), VERSIONS_DIR)
        names = [info.path.rsplit("/", 1)[1] for info in self._objects.list(directory)]
        return self._newest(names, location, branch)

    def _any_of_lineage(self, location: str, branch: str | None) -> LanceHandle | None:
        with self._lock:
            for at, handle in reversed(self._handles.items()):
                if (at.location, at.branch) == (location, branch):
                    return handle
        return None

    def _kind_from_file(self, at: DatasetVersion, dataset: lance.LanceDataset) -> OperationKind:
        try:
            return self._transaction_from_file(at, dataset).kind
        except (CorruptObjectError, ObjectNotFoundError):
            # Versions carry their transaction inside too, so the file may be missing.
            return OperationKind.OTHER

    def _transaction_from_file(
        self, at: DatasetVersion, dataset: lance.LanceDataset
    ) -> TransactionInfo:
        tracked = dataset.tracked_files(min_version=at.version).read_all().to_pylist()
        for row in tracked:
            if row["version"] == at.version and row["type"] == "transaction file":
                path = join_path(lineage_path(at.location, at.branch), row["path"])
                uuid, kind = transaction_summary(self._objects.get(path).data)
                return TransactionInfo(at.version, uuid, kind)
        raise CorruptObjectError(
            path=self._version_name(at), reason="the version names no transaction"
        )


def _new_session() -> Session:
    return Session(
        index_cache_size_bytes=_INDEX_CACHE_BYTES,
        metadata_cache_size_bytes=_METADATA_CACHE_BYTES,
    )
