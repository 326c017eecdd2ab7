"""Old versions of a dataset, many of them in one file: how they are stored and read.

Lance writes the whole list of fragments with each version, so the files of neighbouring versions
are nearly equal. A *pack* holds the files of many versions, compressed together, under
`_versions/<first>-<last>-<digest>.pack`; versions in this range that it lacks cannot be packed. A
version that has a file of its own is *loose*.

1. A version is loose, or in a pack, or both; the bytes are the same. It is removed from one place
   after it is durable in the other, so a reader that looks at both finds it in one of them.
2. What a packed version refers to is in the pack itself, or is referred to by the version that
   *covers* it, which is loose, or is packed and covered in turn. So Lance, which knows loose
   versions only, removes none of it while they are there (`omnigraph.store.lance.packing`).
3. A file that is not on the disk although a packed version refers to it is in one of the packs.
4. A pack never changes, and its name follows from its content and from its header: what covers a
   version may change when packs are taken apart and made again.
5. A reader writes nothing under the root: a packed version is opened in a temporary directory whose
   other parts are links to the real ones. Nobody writes through it: a commit or a ref would be lost
   with the directory (`LanceOpener.open_loose`).

Packs are made on local disks only.

    magic    8 bytes
    length   4 bytes, of the header
    header   JSON: the versions, and the sizes of what follows
    body     Zstandard: version files, then other files, then the names of what versions refer to
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import lance
import pyarrow as pa
import xxhash
from lance.dataset import Session  # type: ignore[attr-defined]  # exported without saying so

from omnigraph.dataclass import dataclass
from omnigraph.store.errors import (
    CorruptObjectError,
    ObjectNotFoundError,
    StorageError,
    os_failure,
)
from omnigraph.store.lance.layout import VERSIONS_DIR, lineage_path, manifest_path
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.records import DatasetVersion, FileKind, NeededFile, VersionInfo
from omnigraph.store.uri import Root, join_path

_SUFFIX: Final = ".pack"
_MAGIC: Final = b"OGPACK1\n"
_LENGTH_BYTES: Final = 4
_LEVEL: Final = 9
_CONTENTS_MAX: Final = 2
"""How many packs are kept in memory: readers of history ask for neighbours."""
_HEADERS_MAX: Final = 256
_PLACE: Final = "omnigraph-version-"
"""How the temporary directories are named that versions are opened in; the process follows."""
_DEAD_AFTER_S: Final = 3_600
"""A process that is not found may live in another container with the same temporary directory."""
_LINKED_FOLDERS: Final = ("data", "_deletions", "_indices", "_transactions")


@dataclass(frozen=True)
class PackedVersion:
    """One version in a pack."""

    info: VersionInfo
    covered_by: int
    """The version that refers to everything that the pack does not hold."""
    start: int
    size: int


@dataclass(frozen=True)
class Pack:
    """What the header of a pack says."""

    path: str
    versions: Mapping[int, PackedVersion]
    files: Mapping[str, tuple[int, int]]
    """Start and size of the other files that it holds, by their path under the root."""
    with_files: bool
    """Whether files of its versions may be in packs, in this one or in another."""
    names: tuple[int, int]
    body_size: int
    digest: str


@dataclass(frozen=True)
class PackContent:
    """A pack with its body in memory."""

    pack: Pack
    body: bytes

    def version_file(self, version: int) -> bytes:
        """Return the bytes of a version's file."""
        packed = self.pack.versions[version]
        return self.body[packed.start : packed.start + packed.size]

    def file(self, path: str) -> bytes:
        """Return the bytes of another file."""
        start, size = self.pack.files[path]
        return self.body[start : start + size]

    def needed(self) -> dict[int, list[tuple[str, FileKind]]]:
        """Return what each version refers to, by path under the root."""
        start, size = self.pack.names
        found: dict[str, list[list[str]]] = json.loads(self.body[start : start + size])
        return {
            int(version): [(path, FileKind(kind)) for path, kind in files]
            for version, files in found.items()
        }


def pack_span(file_name: str) -> range | None:
    """Return the versions that a pack was made of, or None for other files of `_versions`.

    >>> pack_span("1-64-00ff.pack"), pack_span("18446744073709551612.manifest")
    (range(1, 65), None)
    """
    parts = file_name.removesuffix(_SUFFIX).split("-")
    if not file_name.endswith(_SUFFIX) or not all(part.isdecimal() for part in parts[:2]):
        return None
    return range(int(parts[0]), int(parts[1]) + 1) if len(parts) == 3 else None


def packed_bytes(
    versions: Sequence[tuple[VersionInfo, int, bytes]],
    *,
    span: range,
    files: Mapping[str, bytes],
    with_files: bool,
    needed: Mapping[int, Sequence[tuple[str, FileKind]]],
) -> tuple[str, bytes]:
    """Return name and bytes of a pack of the versions that were looked at, `span`.

    `versions` are those that can be packed, each with what covers it and with its file.
    """
    names = json.dumps({v: [[path, kind.value] for path, kind in needed[v]] for v in needed})
    parts = [data for _, _, data in versions] + list(files.values()) + [names.encode()]
    body = b"".join(parts)
    digest = xxhash.xxh3_128(body).hexdigest()
    header = {
        "versions": [
            [info.version, info.created_us, info.rows, info.fragments, covered_by, len(data)]
            for info, covered_by, data in versions
        ],
        "files": [[path, len(data)] for path, data in files.items()],
        "names": len(names.encode()),
        "with_files": with_files,
        "digest": digest,
    }
    header["check"] = _check(header)
    spelled = json.dumps(header).encode()
    packed = pa.Codec("zstd", compression_level=_LEVEL).compress(body, asbytes=True)
    name = f"{span.start}-{span.stop - 1}-{header['check']}{_SUFFIX}"
    length = len(spelled).to_bytes(_LENGTH_BYTES, "little")
    return name, b"".join((_MAGIC, length, spelled, packed))


def _check(header: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in header.items() if name != "check"}
    return xxhash.xxh3_64(json.dumps(rest).encode()).hexdigest()


def _header(path: str, start: bytes) -> tuple[Pack, int]:
    """Read the header of a pack; return it and where the body starts."""
    try:
        if not start.startswith(_MAGIC):
            raise ValueError("it does not start like a pack")
        begin = len(_MAGIC) + _LENGTH_BYTES
        end = begin + int.from_bytes(start[len(_MAGIC) : begin], "little")
        header = json.loads(start[begin:end])
        if header["check"] != _check(header):
            raise ValueError("its header has another check")
        return _pack_of(path, header), end
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptObjectError(path=path, reason=f"the pack cannot be read: {error}") from error


def _pack_of(path: str, header: Mapping[str, Any]) -> Pack:
    position = 0
    versions: dict[int, PackedVersion] = {}
    for version, created_us, rows, fragments, covered_by, size in header["versions"]:
        info = VersionInfo(version=version, created_us=created_us, rows=rows, fragments=fragments)
        versions[version] = PackedVersion(info, covered_by, position, size)
        position += size
    files: dict[str, tuple[int, int]] = {}
    for name, size in header["files"]:
        files[name] = (position, size)
        position += size
    return Pack(
        path=path,
        versions=versions,
        files=files,
        with_files=header["with_files"],
        names=(position, header["names"]),
        body_size=position + header["names"],
        digest=header["digest"],
    )


class Packs:
    """Finds and reads the packs under one root. Safe to share between threads."""

    def __init__(self, root: Root, objects: ObjectStore) -> None:
        self._root = root
        self._objects = objects
        self._guard = threading.Lock()
        self._headers: OrderedDict[str, Pack] = OrderedDict()
        self._contents: OrderedDict[str, PackContent] = OrderedDict()
        self._places: set[str] = set()
        """The names of the temporary directories in which versions are open."""
        self._is_swept = False

    def forget(self) -> None:
        """Drop all packs from memory."""
        with self._guard:
            self._headers.clear()
            self._contents.clear()

    def spans(self, location: str, branch: str | None) -> dict[str, range]:
        """Return the packs of a lineage: path, and the versions that each was made of."""
        if not self._root.is_local:
            return {}
        directory = join_path(lineage_path(location, branch), VERSIONS_DIR)
        try:
            names = os.listdir(f"{self._root.prefix}/{directory}")  # noqa: PTH208 - names alone
        except (FileNotFoundError, NotADirectoryError):
            return {}
        # Most names are those of versions.
        packs = sorted(name for name in names if name.endswith(_SUFFIX))
        found = ((join_path(directory, name), pack_span(name)) for name in packs)
        return {path: span for path, span in found if span is not None}

    def of(self, location: str, branch: str | None) -> tuple[Pack, ...]:
        """Return the packs of a lineage, by name."""
        found = (self._pack(path) for path in self.spans(location, branch))
        return tuple(pack for pack in found if pack is not None)

    def _readable(self, location: str, branch: str | None) -> list[Pack]:
        """Return the packs of a lineage without those that are damaged."""
        packs = []
        for path in self.spans(location, branch):
            with suppress(StorageError):
                packs += [pack for pack in (self._pack(path),) if pack is not None]
        return packs

    def find(self, at: DatasetVersion) -> Pack | None:
        """Return a pack that holds a version."""
        for path, span in self.spans(at.location, at.branch).items():
            pack = self._pack(path) if at.version in span else None
            if pack is not None and at.version in pack.versions:
                return pack
        return None

    def versions_in(self, path: str) -> frozenset[int]:
        """Return the versions that a pack holds."""
        pack = self._pack(path)
        return frozenset() if pack is None else frozenset(pack.versions)

    def read_back(self, path: str) -> None:
        """Read a pack that was just written; raises an error unless it is there and sound."""
        pack = self._pack(path)
        if pack is None:
            raise ObjectNotFoundError(path=path)
        self.content(pack)

    def content(self, pack: Pack) -> PackContent:
        """Read a whole pack; raises `CorruptObjectError` when it is damaged."""
        with self._guard:
            known = self._contents.get(pack.path)
        if known is not None:
            return known
        data = self._objects.get(pack.path).data
        stored, start = _header(pack.path, data)
        try:
            body = pa.Codec("zstd").decompress(
                data[start:], decompressed_size=stored.body_size, asbytes=True
            )
        except (OSError, pa.ArrowException) as error:
            raise CorruptObjectError(path=pack.path, reason=str(error)) from error
        if xxhash.xxh3_128(body).hexdigest() != stored.digest:
            raise CorruptObjectError(path=pack.path, reason="its content has another digest")
        content = PackContent(stored, body)
        with self._guard:
            self._contents[pack.path] = content
            while len(self._contents) > _CONTENTS_MAX:
                self._contents.popitem(last=False)
        return content

    def needed_files(self, location: str, branch: str | None) -> Iterator[NeededFile]:
        """Yield what packed versions need: packs, and files that are in none.

        The versions of a pack that cannot be read are left out.
        """
        packs = self._readable(location, branch)
        homes = {path: pack.path for pack in packs for path in pack.files}
        for pack in packs:
            needed: Mapping[int, Sequence[tuple[str, FileKind]]] = {}
            with suppress(StorageError):
                needed = self.content(pack).needed()
            for version, files in needed.items():
                yield NeededFile(version, pack.path, FileKind.VERSION)
                for path, kind in files:
                    shown = FileKind.VERSION if path in homes else kind
                    yield NeededFile(version, homes.get(path, path), shown)

    def file(self, at: DatasetVersion, path: str) -> bytes | None:
        """Return a file that a packed version refers to, if it is in a pack."""
        for pack in self._readable(at.location, at.branch):
            if path in pack.files:
                return self.content(pack).file(path)
        return None

    def open(self, at: DatasetVersion, *, session: Session) -> lance.LanceDataset | None:
        """Open a packed version; None when no pack holds it."""
        pack = self.find(at)
        if pack is None:
            return None
        try:
            content = self.content(pack)
        except ObjectNotFoundError:
            return None  # It has been unpacked since.
        directory = self._laid_out(at, content)
        try:
            dataset = lance.dataset(str(directory), version=at.version, session=session)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._places.add(directory.name)
        # Lance reads the rest of the version's file later: it stays as long as the dataset.
        weakref.finalize(dataset, _leave, directory, self._places, os.getpid())
        return dataset

    def make_folders(self, at: DatasetVersion, dataset: lance.LanceDataset) -> None:
        """Make the directories that a packed version has links to, for files that are written.

        The library cannot make a directory at the place of a link to one that is not there yet.
        """
        if not self.is_laid_out(dataset):
            return
        home = Path(self._root.prefix) / lineage_path(at.location, at.branch)
        try:
            for folder in _LINKED_FOLDERS:
                (home / folder).mkdir(exist_ok=True)
        except OSError as error:
            raise os_failure(str(home), error) from error

    def is_laid_out(self, dataset: lance.LanceDataset) -> bool:
        """Whether a dataset was opened out of a pack, in a temporary directory."""
        return bool(self._places) and dataset.uri.rpartition("/")[2] in self._places

    def _laid_out(self, at: DatasetVersion, content: PackContent) -> Path:
        """Return a new directory in which a packed version can be opened."""
        directory = None
        try:
            directory = Path(tempfile.mkdtemp(prefix=f"{_PLACE}{os.getpid()}-"))
            self._lay_out(directory, at, content)
        except OSError as error:
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)
            raise os_failure(tempfile.tempdir or "a temporary directory", error) from error
        if not self._is_swept:
            self._is_swept = True
            _sweep(directory.parent)
        return directory

    def _lay_out(self, directory: Path, at: DatasetVersion, content: PackContent) -> None:
        lineage = lineage_path(at.location, at.branch)
        home = Path(self._root.prefix) / lineage
        own = manifest_path(at.location, at.branch, at.version).removeprefix(f"{lineage}/")
        _write(directory / own, content.version_file(at.version))
        if not content.pack.with_files:
            for folder in _LINKED_FOLDERS:
                (directory / folder).symlink_to(home / folder)
            return
        for path, _ in content.needed()[at.version]:
            name = path.removeprefix(f"{lineage}/")
            if name == path:
                continue  # It belongs to another lineage, whose place the version names in full.
            data = content.file(path) if path in content.pack.files else None
            if data is None and not (home / name).exists():
                data = self.file(at, path)
            if data is not None:
                _write(directory / name, data)
            else:
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (directory / name).symlink_to(home / name)

    def _pack(self, path: str) -> Pack | None:
        with self._guard:
            known = self._headers.get(path)
        if known is not None:
            return known
        try:
            with open(f"{self._root.prefix}/{path}", "rb") as file:  # noqa: PTH123 - as elsewhere
                start = file.read(len(_MAGIC) + _LENGTH_BYTES)
                start += file.read(int.from_bytes(start[len(_MAGIC) :], "little"))
        except FileNotFoundError:
            return None
        pack, _ = _header(path, start)
        with self._guard:
            self._headers[path] = pack
            while len(self._headers) > _HEADERS_MAX:
                self._headers.popitem(last=False)
        return pack


def _leave(directory: Path, places: set[str], process: int) -> None:
    """Remove the temporary directory of a version that nobody reads any more."""
    places.discard(directory.name)
    if os.getpid() == process:  # What a process has opened outlives its children.
        shutil.rmtree(directory, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed have left in the temporary directory."""
    for place in folder.glob(f"{_PLACE}*-*"):
        process = place.name.removeprefix(_PLACE).partition("-")[0]
        with suppress(OSError):
            is_old = time.time() - place.stat().st_mtime > _DEAD_AFTER_S
            if is_old and process.isdecimal() and not _is_alive(int(process)):
                shutil.rmtree(place, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
