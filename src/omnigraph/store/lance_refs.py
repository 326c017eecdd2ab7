"""Dataset branches and tags in Lance."""

from __future__ import annotations

from omnigraph.store.durability import PathFlusher
from omnigraph.store.errors import (
    InvalidLocationError,
    RefExistsError,
    RefInUseError,
    RefNotFoundError,
    StorageError,
)
from omnigraph.store.lance_errors import (
    LANCE_FAILURES,
    read_failures,
    reason_of,
    says,
    write_error,
)
from omnigraph.store.lance_layout import (
    branch_of_ref,
    branch_ref_path,
    branch_refs_directory,
    lineage_path,
    tag_ref_path,
)
from omnigraph.store.lance_opener import LanceOpener
from omnigraph.store.objects import ObjectStore
from omnigraph.store.records import BranchInfo, DatasetVersion, TagInfo
from omnigraph.store.uri import checked_path


class LanceRefs:
    """Everything that names versions."""

    def __init__(
        self, opener: LanceOpener, objects: ObjectStore, flusher: PathFlusher, *, is_local: bool
    ) -> None:
        self._opener = opener
        self._objects = objects
        self._flusher = flusher
        self._is_local = is_local

    def create_branch(
        self, location: str, name: str, *, from_branch: str | None = None, from_version: int
    ) -> DatasetVersion:
        """Cut a branch."""
        if self._objects.head(branch_ref_path(location, checked_path(name))) is not None:
            raise RefExistsError(path=location, kind="branch", name=name)
        source = self._opener.open(location, branch=from_branch, version=from_version)
        try:
            source.dataset.create_branch(
                name, (from_branch, from_version), storage_options=self._opener.options
            )
        except LANCE_FAILURES as error:
            raise _ref_error(error, location, kind="branch", name=name) from error
        self._flusher.files(
            [
                branch_ref_path(location, name),
                *self._files_of_branch(location, name),
            ]
        )
        return DatasetVersion(location, name, from_version)

    def delete_branch(self, location: str, name: str) -> None:
        """Remove a branch that nothing was cut from."""
        dataset = self._opener.any_main(location)
        try:
            dataset.branches.delete(checked_path(name))
        except LANCE_FAILURES as error:
            raise _ref_error(error, location, kind="branch", name=name) from error
        self._opener.forget_lineage(location, name)
        self._flusher.directory_of(branch_ref_path(location, name))

    def list_branches(self, location: str) -> tuple[BranchInfo, ...]:
        """List the dataset's branches by name."""
        with read_failures(location):
            found = self._opener.any_main(location).branches.list()
        return tuple(
            BranchInfo(name, entry["parent_branch"], entry["parent_version"])
            for name, entry in sorted(found.items())
        )

    def branch_names(self, location: str) -> tuple[str, ...]:
        """List the names alone; Lance reads every branch's file to list them."""
        infos = self._objects.list(branch_refs_directory(checked_path(location)))
        return tuple(sorted(branch_of_ref(info.path) for info in infos))

    def has_branch(self, location: str, name: str) -> bool:
        """Whether a branch exists."""
        return self._objects.head(branch_ref_path(location, checked_path(name))) is not None

    def create_tag(
        self, location: str, name: str, *, branch: str | None = None, version: int
    ) -> None:
        """Pin a version."""
        handle = self._opener.open(location, branch=branch, version=version)
        try:
            handle.dataset.tags.create(checked_path(name), (branch, version))
        except LANCE_FAILURES as error:
            raise _ref_error(error, location, kind="tag", name=name) from error
        self._flusher.files([tag_ref_path(location, name)])

    def delete_tag(self, location: str, name: str) -> None:
        """Unpin a version."""
        try:
            self._opener.any_main(location).tags.delete(checked_path(name))
        except LANCE_FAILURES as error:
            raise _ref_error(error, location, kind="tag", name=name) from error
        self._flusher.directory_of(tag_ref_path(location, name))

    def list_tags(self, location: str) -> tuple[TagInfo, ...]:
        """List the dataset's tags by name."""
        with read_failures(location):
            found = self._opener.any_main(location).tags.list()
        return tuple(
            TagInfo(name, entry["branch"], entry["version"])
            for name, entry in sorted(found.items())
        )

    def _files_of_branch(self, location: str, name: str) -> list[str]:
        if not self._is_local:
            return []
        return [info.path for info in self._objects.list(lineage_path(location, name))]


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
