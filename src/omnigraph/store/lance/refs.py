"""Dataset branches and tags in Lance."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from omnigraph.dataclass import dataclass
from omnigraph.store.digests import Ledger
from omnigraph.store.durability import PathFlusher
from omnigraph.store.errors import (
    InvalidLocationError,
    ObjectNotFoundError,
    RefExistsError,
    RefInUseError,
    RefNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from omnigraph.store.lance.errors import (
    is_not_found,
    lance_failures,
    read_error,
    reason_of,
    says,
    write_error,
)
from omnigraph.store.lance.handle import LanceHandle
from omnigraph.store.lance.layout import (
    branch_of_ref,
    branch_ref_path,
    branch_refs_directory,
    lineage_path,
    manifest_path,
    tag_ref_path,
    tag_refs_directory,
)
from omnigraph.store.lance.opener import LanceOpener
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.records import BranchInfo, DatasetVersion, TagInfo
from omnigraph.store.uri import checked_path

_ATTEMPTS_MAX: Final = 100
"""How often a listing of refs is repeated when one of them is deleted meanwhile."""


@dataclass(frozen=True)
class LanceRefs:
    """Creates, deletes and lists the branches and tags of datasets."""

    opener: LanceOpener
    objects: ObjectStore
    flusher: PathFlusher
    ledger: Ledger
    is_local: bool

    def create_branch(
        self, location: str, name: str, *, from_branch: str | None = None, from_version: int
    ) -> DatasetVersion:
        if self.objects.head(branch_ref_path(location, checked_path(name))) is not None:
            raise RefExistsError(path=location, kind="branch", name=name)
        source = self._loose(DatasetVersion(location, from_branch, from_version))
        reference = (from_branch, from_version)
        options = self.opener.options
        try:
            source.private_dataset().create_branch(name, reference, storage_options=options)
        except lance_failures() as error:
            is_left_whole = says(error, ("clone operation should not enter",))
            is_left_torn = says(error, ("for object of size 0 bytes",))
            # Files of another version lie there, and Lance does not find the wanted one.
            is_left_elsewhere = is_not_found(error) and lineage_path(location, name) in str(error)
            if not (is_left_whole or is_left_torn or is_left_elsewhere):
                self._require_version(source.at, error)
                raise _ref_error(error, location, kind="branch", name=name) from error
            # Lance makes the files first and the ref last; the process that made these died in
            # between.
            self.objects.delete_prefix(lineage_path(location, name))
            self.opener.forget_lineage(location, name)
            try:
                source.private_dataset().create_branch(name, reference, storage_options=options)
            except lance_failures() as again:
                raise _ref_error(again, location, kind="branch", name=name) from again
        ref, first = branch_ref_path(location, name), manifest_path(location, name, from_version)
        self.flusher.files([ref, *self._files_of_branch(location, name)])
        self.ledger.note((), [ref, first])
        return DatasetVersion(location, name, from_version)

    def delete_branch(self, location: str, name: str) -> None:
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            try:
                self.opener.any_main(location).branches.delete(checked_path(name))
                break
            except lance_failures() as error:
                if not _is_race(error) or attempt == _ATTEMPTS_MAX:
                    raise _ref_error(error, location, kind="branch", name=name) from error
            if not self.has_branch(location, name):
                # The branch is deleted; Lance met the race while it removed files, so some stay.
                break
        self.opener.forget_lineage(location, name)
        self.ledger.note_gone([branch_ref_path(location, name)])
        self.flusher.directory_of(branch_ref_path(location, name))

    def list_branches(self, location: str) -> tuple[BranchInfo, ...]:
        found = self._listed(location, self.opener.any_main(location).branches.list)
        return tuple(
            BranchInfo(name, entry["parent_branch"], entry["parent_version"])
            for name, entry in sorted(found.items())
        )

    def branch(self, location: str, name: str) -> BranchInfo | None:
        """Describe one branch by its own file; None where that is missing or cannot be read."""
        try:
            ref = json.loads(self.objects.get(branch_ref_path(location, name)).data)
            return BranchInfo(name, ref["parentBranch"], int(ref["parentVersion"]))
        except (ObjectNotFoundError, ValueError, TypeError, LookupError):
            return None

    def branch_names(self, location: str) -> tuple[str, ...]:
        """List the names alone; Lance reads every branch's file to list them."""
        infos = self.objects.list(branch_refs_directory(checked_path(location)))
        return tuple(sorted(branch_of_ref(info.path) for info in infos))

    def has_branch(self, location: str, name: str) -> bool:
        return self.objects.head(branch_ref_path(location, checked_path(name))) is not None

    def create_tag(
        self, location: str, name: str, *, branch: str | None = None, version: int
    ) -> None:
        handle = self._loose(DatasetVersion(location, branch, version))
        try:
            handle.private_dataset().tags.create(checked_path(name), (branch, version))
        except lance_failures() as error:
            self._require_version(handle.at, error)
            raise _ref_error(error, location, kind="tag", name=name) from error
        self.flusher.files([tag_ref_path(location, name)])
        self.ledger.note((), [tag_ref_path(location, name)])

    def delete_tag(self, location: str, name: str) -> None:
        try:
            self.opener.any_main(location).tags.delete(checked_path(name))
        except lance_failures() as error:
            raise _ref_error(error, location, kind="tag", name=name) from error
        self.ledger.note_gone([tag_ref_path(location, name)])
        self.flusher.directory_of(tag_ref_path(location, name))

    def list_tags(self, location: str) -> tuple[TagInfo, ...]:
        found = self._listed(location, self.opener.any_main(location).tags.list)
        return tuple(
            TagInfo(name, entry["branch"], entry["version"])
            for name, entry in sorted(found.items())
        )

    def torn_refs(self, location: str) -> tuple[str, ...]:
        """Return the files of refs that are empty; Lance cannot list any ref while there is one."""
        directories = (branch_refs_directory(checked_path(location)), tag_refs_directory(location))
        infos = (info for directory in directories for info in self.objects.list(directory))
        return tuple(info.path for info in infos if info.size == 0)

    def _listed(self, location: str, look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            try:
                return look()
            except lance_failures() as error:
                if not _is_race(error) or attempt == _ATTEMPTS_MAX:
                    raise read_error(error, location) from error
        raise AssertionError("the last attempt returns or raises")

    def _loose(self, at: DatasetVersion) -> LanceHandle:
        """Open a version where it lies; the caller has made it loose."""
        handle = self.opener.open_loose(at)
        if handle is None:
            raise StorageUnavailableError(
                path=at.location, reason=f"version {at.version} was packed meanwhile; try again"
            )
        return handle

    def _require_version(self, at: DatasetVersion, error: BaseException) -> None:
        """Return the right error when a ref cannot be made because its version was removed."""
        missing = self.opener.missing_version(at)
        if missing is not None:
            raise missing from error

    def _files_of_branch(self, location: str, name: str) -> list[str]:
        if not self.is_local:
            return []
        return [info.path for info in self.objects.list(lineage_path(location, name))]


def _is_race(error: BaseException) -> bool:
    """Whether a ref was deleted between Lance's listing and its read of each."""
    return is_not_found(error) and "/_refs/" in str(error)


def _ref_error(error: BaseException, location: str, *, kind: str, name: str) -> StorageError:
    if says(error, ("already exists",)):
        return RefExistsError(path=location, kind=kind, name=name)
    if says(error, ("referenced",)):
        return RefInUseError(path=location, name=name, reason=reason_of(error))
    if says(error, ("does not exist", "ref not found")):
        return RefNotFoundError(path=location, kind=kind, name=name)
    if says(error, ("ref is invalid",)):
        return InvalidLocationError(path=name, reason=reason_of(error))
    return write_error(error, location)
