"""Finds files of a dataset that no version refers to.

Attempts that failed, or are still running, leave such files: the caller decides by age and by what
running jobs have declared. Files are listed before the versions are read, so a file that is
committed meanwhile is never reported.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from omnigraph.store.errors import DatasetNotFoundError
from omnigraph.store.lance.errors import (
    is_not_found,
    lance_failures,
    read_error,
    read_failures,
)
from omnigraph.store.lance.layout import (
    VERSIONS_DIR,
    lineage_path,
    manifest_version,
    relative_to_root,
)
from omnigraph.store.lance.opener import LanceOpener
from omnigraph.store.lance.refs import LanceRefs
from omnigraph.store.objects.protocol import ObjectInfo, ObjectStore
from omnigraph.store.uri import Root, join_path

_LOOKS_MAX: Final = 4
"""How often in a row versions may go, into a pack or for good, while they are read."""


def unreferenced_files(
    location: str, *, root: Root, opener: LanceOpener, refs: LanceRefs, objects: ObjectStore
) -> tuple[ObjectInfo, ...]:
    """Return the files under a dataset that no version of any of its lineages needs."""
    present = objects.list(location)
    branches = refs.branch_names(location)
    lineages = [lineage_path(location, branch) for branch in (None, *branches)]
    needed: set[str] = set()
    for branch in (None, *branches):
        try:
            needed |= _tracked(location, branch, root=root, opener=opener)
        except DatasetNotFoundError:
            if branch is None or refs.has_branch(location, branch):
                raise  # Otherwise it was deleted since it was listed, and needs nothing.
    return tuple(info for info in present if not _is_needed(info.path, needed, lineages, location))


def _tracked(location: str, branch: str | None, *, root: Root, opener: LanceOpener) -> set[str]:
    table = _tracked_table(location, branch, opener)
    return {
        join_path(relative_to_root(row["base_uri"], root), row["path"])
        for row in table.select(["base_uri", "path"]).to_pylist()
    }


def _tracked_table(location: str, branch: str | None, opener: LanceOpener) -> pa.Table:
    for _ in range(_LOOKS_MAX):
        dataset = opener.open(location, branch=branch).dataset
        try:
            return dataset.tracked_files().read_all()
        except lance_failures() as error:
            if not is_not_found(error):
                raise read_error(error, location) from error
    with read_failures(location):
        return opener.open(location, branch=branch).dataset.tracked_files().read_all()


def _is_needed(path: str, needed: set[str], lineages: list[str], location: str) -> bool:
    if path in needed or path.startswith(join_path(location, "_refs") + "/"):
        return True
    directory, _, name = path.rpartition("/")
    if f"{directory}.lance" in needed:
        # Large values lie in a directory that is named after their data file.
        return True
    in_live_lineage = directory in {join_path(lineage, VERSIONS_DIR) for lineage in lineages}
    is_detached = name.startswith("d") and manifest_version(name) is None and "manifest" in name
    return in_live_lineage and not is_detached
