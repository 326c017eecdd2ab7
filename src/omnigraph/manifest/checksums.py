"""The sums of the graph's files: `_checksums.lance`.

    path         file, relative to the root of the graph
    size         bytes
    digest       `xxh3:<hex>` over the bytes, or `etag:<tag>` of an object store
    recorded_at  microseconds since the Unix epoch
    check        64 bits over the other four

1. Rows are only added. Of several rows with one path the newest counts; one without a digest says
   that the file was removed on purpose, and counts as no row.
2. Rows are added in batches, off the caller's path (`omnigraph.maintenance.background`). A failure
   is logged and never fails a write. A process that dies loses its last batch: those files are
   then without a checksum, which is not damage.
3. A row whose `check` does not fit is damage of this table, never of the file that it names.
4. A file belongs to the path where it lies. Branches share the files of what they were cut from,
   a merge that adopts a version writes none, and a renamed type keeps its directory: none of
   them changes a row. A second name of a local file gets the sum of the first one.
5. `cleanup` deletes the rows of files that no longer exist; rows of `__manifest` versions only
   when it has removed the version itself: the row of one that has vanished is its only trace.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.manifest.layout import CHECKSUMS, MANIFEST, TABLE_FOLDERS
from omnigraph.store import Store
from omnigraph.store.digests import Note, check_word, hash_file, tag_digest
from omnigraph.store.errors import DatasetNotFoundError, ObjectNotFoundError, StaleBaseError
from omnigraph.store.filters import StartsWith
from omnigraph.store.objects.protocol import ObjectInfo
from omnigraph.store.records import (
    ROW_ADDRESS,
    ROW_ID,
    DatasetVersion,
    ScanRequest,
    StagedTransaction,
)
from omnigraph.store.retries import commit_retried

BATCH_FILES: Final = 512
"""While writes continue, sums are stored once this many files wait."""
_ATTEMPTS_MAX: Final = 5
_ASKED_ONE_BY_ONE_MAX: Final = 16
_REQUESTS_AT_ONCE_MAX: Final = 8
_COLUMNS: Final = ("path", "size", "digest", "recorded_at", "check")

SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.utf8(), nullable=False),
        pa.field("size", pa.int64()),
        pa.field("digest", pa.utf8()),
        pa.field("recorded_at", pa.int64(), nullable=False),
        pa.field("check", pa.uint64(), nullable=False),
    ]
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FileSum:
    """What a file was when it was written."""

    size: int
    digest: str


@dataclass(frozen=True)
class Sums:
    """The sums of some files by path, and how many rows of the table were damaged."""

    by_path: Mapping[str, FileSum] = field(default_factory=dict)
    damaged_rows: int = 0


class ChecksumTable:
    """Stores the notes of a store's ledger, and reads them back. Safe to share between threads."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._datasets = store.datasets
        self._ledger = store.ledger
        self._clock = clock
        self._guard = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many files wait for their sums to be stored."""
        return self._ledger.waiting

    def record(self) -> None:
        """Store what is noted; a failure is logged, and the next call tries again."""
        notes = self._ledger.take()
        if not notes:
            return
        try:
            notes = self._measured(notes)
            self._append(notes)
        except OmnigraphError as error:
            self._ledger.put_back(notes)
            _log.warning("the checksums of %s files are not stored yet: %s", len(notes), error)

    def adopt(self, paths: Sequence[str]) -> int:
        """Store sums of files that have none, as they are now; return how many that were."""
        adopted = 0
        for start in range(0, len(paths), BATCH_FILES):
            notes = self._measured([Note(path) for path in paths[start : start + BATCH_FILES]])
            self._append(notes)
            adopted += len(notes)
        return adopted

    def forget(self, paths: Iterable[str]) -> None:
        """Store that these files are about to be removed on purpose, with what else is noted."""
        self._ledger.note_gone(paths)
        self.record()

    def sums(self, location: str) -> Sums:
        """Return the sums of the files under a directory; raises when the table is unreadable."""
        try:
            head = self._datasets.head_version(CHECKSUMS)
        except DatasetNotFoundError:
            return Sums()
        request = ScanRequest(
            columns=_COLUMNS, row_filter=StartsWith("path", f"{location}/"), with_row_id=True
        )
        rows = self._datasets.open(CHECKSUMS, version=head).scan(request).read_all()
        rows = rows.sort_by(ROW_ID)
        found: dict[str, FileSum] = {}
        damaged = 0
        for path, size, digest, at, check in zip(
            *(rows[name].to_pylist() for name in _COLUMNS), strict=True
        ):
            if check != _check(path, size, digest, at):
                damaged += 1
            elif digest is None:
                found.pop(path, None)
            else:
                found[path] = FileSum(size, digest)
        return Sums(found, damaged)

    def drop_gone(self) -> bool:
        """Delete rows of files that no longer exist, and rows that a newer one has replaced."""
        try:
            handle = self._datasets.open(CHECKSUMS)
        except DatasetNotFoundError:
            return False
        request = ScanRequest(columns=("path", "digest"), with_row_id=True, with_row_address=True)
        # Rows first: a row is stored after its file exists.
        rows = handle.scan(request).read_all()
        paths = rows["path"]
        newest = rows.group_by("path").aggregate([(ROW_ID, "max")])[f"{ROW_ID}_max"]
        is_newest = pc.is_in(rows[ROW_ID], newest.combine_chunks())
        live = pc.and_(is_newest, pc.is_valid(rows["digest"]))
        stays = pc.and_(live, pa.chunked_array([self._is_kept(paths)]))
        leaving = rows.filter(pc.invert(stays))[ROW_ADDRESS]
        if not len(leaving):
            return False
        staged = self._datasets.stage_update(handle.at, deleted=leaving.combine_chunks())
        try:
            # Rows that others add meanwhile may land below.
            self._datasets.commit_staged(staged, exact=False)
        except StaleBaseError:
            return False  # Rows were added meanwhile; the next cleanup finds these again.
        return True

    def _is_kept(self, paths: pa.ChunkedArray) -> pa.Array:
        """Return for each path whether its row is still needed."""
        homes = [home_of(path) for path in paths.to_pylist()]
        present = {home: self._present(home) for home in sorted(set(homes))}
        return pa.array(
            [
                path in present[home] or _is_lost_version(path, present[home])
                for path, home in zip(paths.to_pylist(), homes, strict=True)
            ],
            pa.bool_(),
        )

    def _present(self, home: str) -> frozenset[str]:
        return frozenset(info.path for info in self._store.objects.list(home))

    # -- measuring --------------------------------------------------------------------------------

    def _measured(self, notes: Sequence[Note]) -> list[Note]:
        """Return the notes with size and digest; files that were deleted meanwhile are left out."""
        notes = self._with_digests_of_copies(notes)
        open_paths = [n.path for n in notes if n.digest is None and not n.is_gone]
        known = self._measure(open_paths)
        found = []
        for note in notes:
            if note.is_gone or (note.digest is not None and note.size is not None):
                found.append(note)
            elif note.path in known:
                size, digest = known[note.path]
                found.append(replace(note, size=size, digest=digest))
        return found

    def _with_digests_of_copies(self, notes: Sequence[Note]) -> list[Note]:
        """Give second names of local files the sums of the first ones, if those are known."""
        copied = [n.copy_of for n in notes if n.copy_of is not None and n.digest is None]
        if not copied or not self._store.settings.root.is_local:
            return list(notes)
        known = {
            note.path: FileSum(note.size, note.digest)
            for note in notes
            if note.size is not None and note.digest is not None
        }
        homes = {home_of(path) for path in copied if path not in known}
        for home in sorted(homes):
            known = {**self.sums(home).by_path, **known}
        found = []
        for note in notes:
            first = known.get(note.copy_of or "")
            if first is None or note.digest is not None or note.size not in (None, first.size):
                found.append(note)
            else:
                found.append(replace(note, size=first.size, digest=first.digest))
        return found

    def _measure(self, paths: Sequence[str]) -> dict[str, tuple[int, str]]:
        root = self._store.settings.root
        if not root.is_local:
            return {i.path: (i.size, tag_digest(i.tag)) for i in self._infos(paths)}
        found = {}
        for path in dict.fromkeys(paths):
            try:
                found[path] = hash_file(root, path)
            except ObjectNotFoundError:
                continue
        return found

    def _infos(self, paths: Sequence[str]) -> Iterator[ObjectInfo]:
        """Ask for objects one by one where they are few, by directory where they are many."""
        objects = self._store.objects
        by_directory: dict[str, set[str]] = {}
        for path in paths:
            by_directory.setdefault(path.rpartition("/")[0], set()).add(path)
        single: list[str] = []
        for directory, wanted in by_directory.items():
            if len(wanted) <= _ASKED_ONE_BY_ONE_MAX:
                single += sorted(wanted)
            else:
                yield from (info for info in objects.list(directory) if info.path in wanted)
        for info in _at_once(objects.head, single):
            if info is not None:
                yield info

    # -- storing ----------------------------------------------------------------------------------

    def _append(self, notes: Sequence[Note]) -> None:
        if not notes:
            return
        rows = _rows(notes, self._clock.now_us())

        def stage() -> StagedTransaction | None:
            try:
                head = self._datasets.head_version(CHECKSUMS)
            except DatasetNotFoundError:
                if not self._datasets.exists(MANIFEST):
                    return None  # The graph was removed: its folder must not come back.
                return self._datasets.stage_create(CHECKSUMS, SCHEMA, rows=rows)
            return self._datasets.stage_append(DatasetVersion(CHECKSUMS, None, head), rows)

        with self._guard:
            # Rows of several writers may land in any order.
            commit_retried(self._datasets, stage, attempts_max=_ATTEMPTS_MAX, exact=False)


def home_of(path: str) -> str:
    """Return the dataset, or the folder, that a file lies in.

    >>> home_of("nodes/00ff/data/a.lance"), home_of("__manifest/_refs/tags/a.json")
    ('nodes/00ff', '__manifest')
    """
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in TABLE_FOLDERS else parts[0]


def _is_lost_version(path: str, present: frozenset[str]) -> bool:
    """Whether a version of `__manifest` has vanished from a lineage that is still there."""
    directory, _, name = path.rpartition("/")
    is_version = directory.startswith(MANIFEST) and name.endswith(".manifest")
    return is_version and any(other.startswith(f"{directory}/") for other in present)


def _rows(notes: Sequence[Note], recorded_at: int) -> pa.Table:
    columns = {
        "path": [note.path for note in notes],
        "size": [note.size for note in notes],
        "digest": [note.digest for note in notes],
        "recorded_at": [recorded_at] * len(notes),
        "check": [_check(n.path, n.size, n.digest, recorded_at) for n in notes],
    }
    return pa.table(columns, schema=SCHEMA)


def _check(path: str, size: int | None, digest: str | None, recorded_at: int) -> int:
    return check_word(f"{path}\0{size}\0{digest}\0{recorded_at}")


def _at_once(
    look: Callable[[str], ObjectInfo | None], paths: Sequence[str]
) -> Iterator[ObjectInfo | None]:
    if len(paths) <= 1 or not threading.main_thread().is_alive():
        # An interpreter that shuts down can start no threads.
        yield from map(look, paths)
        return
    with ThreadPoolExecutor(min(_REQUESTS_AT_ONCE_MAX, len(paths)), "checksums") as pool:
        yield from pool.map(look, paths)
