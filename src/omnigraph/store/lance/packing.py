"""Makes packs of old versions, and takes them apart again. `packs` says what a pack is.

Which versions can be packed follows from what they refer to:

1. The newest `LOOSE_MIN` versions stay loose, and so does what a branch or tag pins.
2. A version of a table can be packed when the next one refers to everything that it refers to. That
   holds after rows were added. It does not hold before a compaction, a change of rows or a change
   of indexes; such a version stays loose and covers those below it. So no file of a table goes.
3. Versions of a dataset that is read in one go (`__manifest`) are packed together with the files
   that the version above them does not refer to. Those files are removed unless a loose version
   needs them. The caller holds the lock of the branch: no version appears and no pin is made.
4. Packs of a dataset are made, and versions of it removed, by one process at a time.

A caller that needs a version to be loose, because Lance itself reads it, makes it so and does the
rest alone, too: a branch or a tag that is made from it, a restore, a cleanup.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.store.digests import Ledger
from omnigraph.store.durability import PathFlusher
from omnigraph.store.errors import os_failure
from omnigraph.store.lance.errors import read_failures
from omnigraph.store.lance.layout import (
    VERSIONS_DIR,
    lineage_path,
    manifest_path,
    manifest_version,
    relative_to_root,
)
from omnigraph.store.lance.opener import LanceOpener
from omnigraph.store.lance.packs import Pack, Packs, packed_bytes
from omnigraph.store.lance.refs import LanceRefs
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.records import DatasetVersion, FileKind
from omnigraph.store.uri import Root, join_path

LOOSE_MIN: Final = 128
"""The newest versions are those that writers start from and most readers read."""
PACKED_MIN: Final = 128
"""Fewer versions than this are not worth a file, and a look at what they refer to.

All newer versions are looked at, too: two for each that is packed.
"""
PACKED_MAX: Final = 256
LOOKED_AT_MAX: Final = 1_024
"""Lance lists what a version refers to together with all loose versions above it.

Where most commits change rows, nearly all versions stay loose: below this many they are left alone.
"""
PACKED_BYTES_MAX: Final = 32 * 1024 * 1024
"""A pack is read as a whole."""

_FILE_KINDS: Final = {
    "data file": FileKind.ROWS,
    "deletion file": FileKind.DELETIONS,
    "index file": FileKind.INDEX,
}

LOCK: Final = ".og-packs.lock"
"""Hidden, so it is no object of the store; it is never removed."""

Files = frozenset[tuple[str, FileKind]]
"""Paths under the root."""


@dataclass(frozen=True)
class _Choice:
    """What goes into a pack."""

    covered_by: Mapping[int, int]
    """The versions to pack, and the loose version that covers each."""
    held: frozenset[str] = frozenset()
    """Other files that the pack holds."""
    with_files: bool = False


class LancePacking:
    """Everything that writes or removes packs."""

    def __init__(
        self,
        root: Root,
        *,
        objects: ObjectStore,
        opener: LanceOpener,
        refs: LanceRefs,
        flusher: PathFlusher,
        ledger: Ledger,
    ) -> None:
        self._root = root
        self._objects = objects
        self._opener = opener
        self._packs: Packs = opener.packs
        self._refs = refs
        self._flusher = flusher
        self._ledger = ledger
        self._guard = threading.Lock()
        self._unpackable: dict[tuple[str, str | None], range] = {}
        """The versions that were looked at last in which there was nothing to pack."""

    def pack(self, location: str, *, branch: str | None = None, with_files: bool = False) -> int:
        """Put old versions of a lineage into a pack, if there are enough; return how many.

        With `with_files` the pack also holds files that only old versions need; the caller then
        holds the lock of the branch.
        """
        if not self.is_due(location, branch=branch):
            return 0
        with self.alone(location):
            return self._pack(location, branch, with_files=with_files)

    def is_due(self, location: str, *, branch: str | None = None) -> bool:
        """Whether there are enough old versions."""
        return self._root.is_local and self._due(location, branch) is not None

    @contextmanager
    def alone(self, location: str) -> Iterator[None]:
        """Keep others from making packs of a dataset, and from removing its versions.

        Otherwise a version could be packed that is covered by one which goes at this moment.
        """
        if not self._root.is_local:
            yield
            return
        path = self._root.local_path(location) / LOCK
        with _opened(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _pack(self, location: str, branch: str | None, *, with_files: bool) -> int:
        span = self._due(location, branch)
        if span is None:
            return 0  # Another process was faster.
        loose = self._loose(location, branch)
        pinned = self._pinned(location, branch)
        files = self._files(location, branch, loose, span)
        chosen = [version for version in files if version in span and version not in pinned]
        if with_files and chosen:
            chosen = self._few_bytes_of_files(chosen, files)
            span = range(span.start, chosen[-1] + 1)
        choice = _with_files(chosen, files) if with_files else _covered(chosen, files)
        if not choice.covered_by:
            self._note_unpackable(location, branch, span)
            return 0
        self._write(location, branch, span, choice, files)
        return len(choice.covered_by)

    @contextmanager
    def loose(self, at: DatasetVersion) -> Iterator[None]:
        """Make a version loose, and keep it so for the block."""
        if not self._has_dataset(at.location):
            yield  # The caller finds out.
            return
        with self.alone(at.location):
            self._restore(at)
            yield

    def _has_dataset(self, location: str) -> bool:
        return self._root.is_local and self._root.local_path(location).is_dir()

    def _restore(self, at: DatasetVersion) -> None:
        if self._is_loose(at):
            return
        pack = self._packs.find(at)
        if pack is not None:
            self._unpack(at.location, at.branch, pack, {at.version})

    def release(self, location: str, branch: str | None, going: Collection[int] | None) -> int:
        """Take packs apart that cannot stay when versions go; return how many went with them.

        What stays becomes loose. None means that it is not known which versions go.
        """
        packs = [pack for pack in self._packs.of(location, branch) if _is_touched(pack, going)]
        leaving = frozenset(going or ())
        # A version may need files that another pack holds: no pack goes before all are restored.
        for pack in packs:
            self._unpack(location, branch, pack, set(pack.versions) - leaving)
        self._ledger.note_gone(pack.path for pack in packs)
        for pack in packs:
            self._objects.delete(pack.path)
        if packs:
            # A pack that a power failure brings back would name files that are gone by then.
            self._flusher.directory_of(packs[0].path)
        packed = {version for pack in packs for version in pack.versions}
        return len((packed & leaving) - set(self._loose(location, branch)))

    def restore_pinned(self, location: str, branch: str | None) -> None:
        """Make every version loose that a branch or tag pins: Lance's cleanup reads those."""
        if not self._packs.spans(location, branch):
            return
        for version in sorted(self._pinned(location, branch)):
            self._restore(DatasetVersion(location, branch, version))

    # -- what is packed ---------------------------------------------------------------------------

    def _due(self, location: str, branch: str | None) -> range | None:
        """Return the newest range of versions that is worth a pack.

        It contains no version that was looked at before, so a version that cannot be packed is
        looked at once.
        """
        loose = self._loose(location, branch)
        spans = list(self._packs.spans(location, branch).values())
        with self._guard:
            spans.append(self._unpackable.get((location, branch), range(0)))
        old = [v for v in loose[:-LOOSE_MIN] if not any(v in span for span in spans)]
        while old:
            floor = max((span.stop for span in spans if span.stop <= old[-1]), default=0)
            above = [version for version in old if version >= floor]
            if len(above) >= PACKED_MIN:
                chosen = self._few_bytes(location, branch, above[-PACKED_MAX:])
                is_near = len(loose) - loose.index(chosen[0]) <= LOOKED_AT_MAX
                return range(chosen[0], chosen[-1] + 1) if is_near else None
            old = old[: len(old) - len(above)]
        return None

    def _few_bytes(self, location: str, branch: str | None, versions: list[int]) -> list[int]:
        """Return the first of some versions whose files fit into memory together; at least one."""
        left = PACKED_BYTES_MAX
        for count, version in enumerate(versions):
            info = self._objects.head(manifest_path(location, branch, version))
            left -= 0 if info is None else info.size
            if left < 0:
                return versions[: max(count, 1)]
        return versions

    def _few_bytes_of_files(self, versions: list[int], files: Mapping[int, Files]) -> list[int]:
        """Return the first of some versions of which the other files fit, too; at least one."""
        following = dict(pairwise(files))
        left = PACKED_BYTES_MAX
        for count, version in enumerate(versions):
            going = files[version] - files.get(following.get(version, version), frozenset())
            infos = (self._objects.head(path) for path, _ in going)
            left -= sum(info.size for info in infos if info is not None)
            if left < 0:
                return versions[: max(count, 1)]
        return versions

    def _note_unpackable(self, location: str, branch: str | None, span: range) -> None:
        with self._guard:
            before = self._unpackable.get((location, branch), span)
            adjacent = range(min(before.start, span.start), max(before.stop, span.stop))
            self._unpackable[location, branch] = adjacent

    def _files(
        self, location: str, branch: str | None, loose: Sequence[int], span: range
    ) -> dict[int, Files]:
        """Return what loose versions refer to, from the first of `span` on, in order.

        A version of which nothing is known is left out.
        """
        found: dict[int, set[tuple[str, FileKind]]] = {
            version: set() for version in loose if version >= span.start
        }
        seen: set[int] = set()
        # Neighbours refer to nearly the same files, so most rows spell one that is known.
        known: dict[tuple[str, ...], tuple[str, FileKind] | None] = {}
        for batch in self._tracked(location, branch, first=span.start):
            versions = batch["version"].to_pylist()
            seen.update(versions)
            words = (_words(batch[name]) for name in ("base_uri", "path", "type"))
            for version, key in zip(versions, zip(*words, strict=True), strict=True):
                if key not in known:
                    known[key] = self._file(*key)
                file = known[key]
                if file is not None and version in found:
                    found[version].add(file)
        return {version: frozenset(files) for version, files in found.items() if version in seen}

    def _file(self, base_uri: str, path: str, kind: str) -> tuple[str, FileKind] | None:
        """Return the path under the root of what Lance lists; None for a version or transaction."""
        if kind not in _FILE_KINDS:
            return None
        return join_path(relative_to_root(base_uri, self._root), path), _FILE_KINDS[kind]

    def _unneeded(self, location: str, branch: str | None, choice: _Choice) -> frozenset[str]:
        """Return the files of the lineage in a pack that no loose version refers to."""
        own = f"{lineage_path(location, branch)}/"
        names = {path.removeprefix(own): path for path in choice.held if path.startswith(own)}
        if not names:
            return frozenset()
        wanted = pa.array(sorted(names), pa.utf8())
        for batch in self._tracked(location, branch, first=None):
            hits = batch.filter(pc.is_in(batch["path"], value_set=wanted))
            for row in hits.select(["version", "path"]).to_pylist():
                # A name of another lineage may be equal; then the file stays for nothing.
                if row["version"] not in choice.covered_by:
                    names.pop(row["path"], None)
        return frozenset(names.values())

    def _tracked(
        self, location: str, branch: str | None, *, first: int | None
    ) -> Iterator[pa.RecordBatch]:
        dataset = self._opener.open(location, branch=branch).private_dataset()
        with read_failures(location):
            yield from dataset.tracked_files(min_version=first)

    def _pinned(self, location: str, branch: str | None) -> set[int]:
        branches = self._refs.list_branches(location)
        tags = self._refs.list_tags(location)
        return {
            *(one.parent_version for one in branches if one.parent_branch == branch),
            *(one.version for one in tags if one.branch == branch),
        }

    # -- files ------------------------------------------------------------------------------------

    def _write(
        self,
        location: str,
        branch: str | None,
        span: range,
        choice: _Choice,
        files: Mapping[int, Files],
    ) -> None:
        unneeded = self._unneeded(location, branch, choice)
        versions = [DatasetVersion(location, branch, v) for v in sorted(choice.covered_by)]
        infos = {at.version: self._opener.describe(at) for at in versions}
        paths = {v: manifest_path(location, branch, v) for v in sorted(choice.covered_by)}
        contents = {v: self._objects.get(path).data for v, path in paths.items()}
        name, data = packed_bytes(
            [(infos[v], choice.covered_by[v], contents[v]) for v in paths],
            span=span,
            files={path: self._objects.get(path).data for path in sorted(choice.held)},
            with_files=choice.with_files,
            needed={v: sorted(files[v]) for v in paths},
        )
        target = join_path(lineage_path(location, branch), VERSIONS_DIR, name)
        self._objects.put(target, data)
        self._packs.read_back(target)  # It is about to be the only copy.
        self._ledger.note((), [target])
        # A scrub takes what vanishes without such a note for damage.
        self._ledger.note_gone([*paths.values(), *sorted(unneeded)])
        for path in paths.values():
            self._objects.delete(path)
        if unneeded:
            # A loose version that a power failure brings back is read before the pack.
            self._flusher.directory_of(target)
        for path in sorted(unneeded):
            self._objects.delete(path)

    def _unpack(
        self, location: str, branch: str | None, pack: Pack, versions: Collection[int]
    ) -> None:
        if not versions:
            return
        content = self._packs.content(pack)
        needed = content.needed() if pack.with_files else {}
        restored = []
        for version in sorted(versions, reverse=True):
            at = DatasetVersion(location, branch, version)
            # What a version refers to is there before the version.
            for path, _ in needed.get(version, ()):
                data = None if self._objects.head(path) else self._packs.file(at, path)
                if data is not None:
                    self._objects.put(path, data)
                    restored.append(path)
            path = manifest_path(location, branch, version)
            if self._objects.head(path) is None:
                self._objects.put(path, content.version_file(version))
                restored.append(path)
        self._ledger.note((), restored)
        self._opener.forget_lineage(location, branch)

    def _loose(self, location: str, branch: str | None) -> list[int]:
        directory = join_path(lineage_path(location, branch), VERSIONS_DIR)
        try:
            names = os.listdir(f"{self._root.prefix}/{directory}")  # noqa: PTH208 - names alone
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(v for name in names if (v := manifest_version(name)) is not None)

    def _is_loose(self, at: DatasetVersion) -> bool:
        return self._objects.head(manifest_path(at.location, at.branch, at.version)) is not None


def _words(column: pa.Array) -> list[str]:
    """Return texts as Python has them; the conversion of a dictionary's elements is slow."""
    if pa.types.is_dictionary(column.type):
        words = column.dictionary.to_pylist()
        return [words[code] for code in column.indices.to_pylist()]
    return list(column.to_pylist())


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("ab")
    except OSError as error:
        raise os_failure(str(path), error) from error


def _is_touched(pack: Pack, going: Collection[int] | None) -> bool:
    """Whether a pack cannot stay as it is when these versions go."""
    if going is None:
        return True
    leaving = frozenset(going)
    return any(
        version in leaving or packed.covered_by in leaving
        for version, packed in pack.versions.items()
    )


def _covered(chosen: Sequence[int], files: Mapping[int, Files]) -> _Choice:
    """Return the versions that can be packed without a file of rows.

    `files` has every loose version from the first chosen one on, in order.
    """
    following = dict(pairwise(files))
    covered_by: dict[int, int] = {}
    for version in sorted(chosen, reverse=True):
        above = following.get(version)
        if above is not None and files[version] <= files[above]:
            covered_by[version] = covered_by.get(above, above)
    return _Choice(covered_by)


def _with_files(chosen: Sequence[int], files: Mapping[int, Files]) -> _Choice:
    """Return the versions with all files that the version above them does not refer to."""
    covered_by = min((v for v in files if chosen and v > chosen[-1]), default=None)
    if covered_by is None:
        return _Choice({})
    held = frozenset[tuple[str, FileKind]]().union(*(files[v] for v in chosen)) - files[covered_by]
    paths = frozenset(path for path, _ in held)
    return _Choice(dict.fromkeys(chosen, covered_by), paths, with_files=True)
