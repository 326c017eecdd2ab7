"""Which files the versions of a dataset refer to.

Lance lists them for a whole lineage at once, which is quick and fails as a whole when one version
cannot be read. Then the versions are read one by one. A version that goes into a pack or comes out
of one meanwhile is looked for again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import lance

from omnigraph.store.errors import StorageError
from omnigraph.store.lance.errors import read_failures
from omnigraph.store.lance.handle import data_file_name
from omnigraph.store.lance.layout import (
    VERSIONS_DIR,
    lineage_path,
    manifest_path,
    manifest_version,
    relative_to_root,
)
from omnigraph.store.lance.opener import LanceOpener
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.records import DatasetVersion, FileKind, NeededFile
from omnigraph.store.uri import Root, join_path

_KINDS: Final = {
    "manifest": FileKind.VERSION,
    "transaction file": FileKind.TRANSACTION,
    "data file": FileKind.ROWS,
    "deletion file": FileKind.DELETIONS,
    "index file": FileKind.INDEX,
}
_INDICES_DIR: Final = "_indices"
_LOOKS_MAX: Final = 3
"""A version may be packed and unpacked again while it is looked for."""


def needed_files(
    location: str,
    branch: str | None,
    versions: Collection[int],
    *,
    root: Root,
    opener: LanceOpener,
    objects: ObjectStore,
) -> Iterator[NeededFile]:
    """Yield the files that some versions of a lineage refer to."""
    left = frozenset(versions)
    for _ in range(_LOOKS_MAX):
        found = list(_looked_up(location, branch, left, root=root, opener=opener, objects=objects))
        yield from found
        left -= {file.version for file in found}
        if not left:
            return


def _looked_up(
    location: str,
    branch: str | None,
    versions: frozenset[int],
    *,
    root: Root,
    opener: LanceOpener,
    objects: ObjectStore,
) -> Iterator[NeededFile]:
    directory = join_path(lineage_path(location, branch), VERSIONS_DIR)
    names = (info.path.rpartition("/")[2] for info in objects.list(directory))
    stored = {version for name in names if (version := manifest_version(name)) is not None}
    packed = versions - stored
    if packed:
        found_packed = opener.packs.needed_files(location, branch)
        yield from (file for file in found_packed if file.version in packed)
    wanted = versions - packed
    if not wanted:
        return
    if stored <= wanted:
        try:
            at = DatasetVersion(location, branch, max(wanted))
            with read_failures(location):
                found = list(_tracked(opener.open_cold(at).dataset, wanted, root))
        except StorageError:
            pass
        else:
            yield from found
            return
    present = [info.path for info in objects.list(location)]
    for version in sorted(wanted):
        at = DatasetVersion(location, branch, version)
        try:
            dataset = opener.open_cold(at).dataset
            if opener.packs.is_laid_out(dataset):
                continue  # Its pack says what it needs.
            found = list(_of_version(at, dataset, present, root))
        except StorageError:
            continue
        yield from found


def _tracked(
    dataset: lance.LanceDataset, wanted: frozenset[int], root: Root
) -> Iterator[NeededFile]:
    bases: dict[str, str] = {}
    for batch in dataset.tracked_files():
        for row in batch.to_pylist():
            base, kind = row["base_uri"], _KINDS.get(row["type"])
            if row["version"] not in wanted or kind is None:
                continue
            if base not in bases:
                bases[base] = relative_to_root(base, root)
            yield NeededFile(row["version"], join_path(bases[base], row["path"]), kind)


def _of_version(
    at: DatasetVersion, dataset: lance.LanceDataset, present: list[str], root: Root
) -> Iterator[NeededFile]:
    own = lineage_path(at.location, at.branch)
    with read_failures(at.location):
        bases = {
            number: relative_to_root(base.path, root)
            for number, base in dataset.base_paths().items()
        }
        segments = {
            segment.uuid for index in dataset.describe_indices() for segment in index.segments
        }
        fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    yield NeededFile(
        at.version, manifest_path(at.location, at.branch, at.version), FileKind.VERSION
    )
    for fragment in fragments:
        for file in fragment.files:
            base = own if file.base_id is None else bases[file.base_id]
            path = join_path(base, "data", data_file_name(file))
            yield NeededFile(at.version, path, FileKind.ROWS)
        deletion = fragment.deletion_file
        if deletion is not None:
            base = own if deletion.base_id is None else bases[deletion.base_id]
            path = join_path(base, deletion.path(fragment.id))
            yield NeededFile(at.version, path, FileKind.DELETIONS)
    for path in present:
        parts = path.split("/")
        if len(parts) > 2 and parts[-3] == _INDICES_DIR and parts[-2] in segments:
            yield NeededFile(at.version, path, FileKind.INDEX)
