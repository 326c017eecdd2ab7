"""What a handle does after its writes, off the caller's path.

Every commit of a handle is remembered. A background thread wakes up after `URGENT_COMMITS` commits,
or `PAUSE_S` after the first one, and

1. adds the commits to the derived commit tables, all of them in one append, and the checksums of
   the files that were written to `_checksums.lance`: when there are many, or no write is coming;
2. compacts a table that has more than `SMALL_MAX` small fragments, or fragments with deleted rows,
   under the ordinary protocol. The same goes for `__manifest` and the derived tables;
3. puts the files of old versions of all of them together into packs.

While writes keep coming that is all: listing fragments costs nothing, and the cost of one run is
spread over `SMALL_MAX` writes. Indexes are extended when they do not cover more than
`UNCOVERED_ROWS_MAX` rows or, once a handle has been quiet for a pause, more than `UNCOVERED_MAX`
fragments: every probe has to read those. Tables that a large load has left without an index are not
touched: that would keep a process from ending for as long as the load took. Then the thread ends.
Closing the handle does the rest in the caller's thread.

Small is relative: fragments are sorted into sizes by powers of `_TIER_FACTOR`, and only fragments
up to the size of which there are too many are rewritten. So a table of a million rows is not
rewritten because of 65 new ones, and the number of fragments grows with the logarithm of the rows.
Of `__manifest` and the commit tables, which are read when a graph is opened, fewer may stay of each
size (`crowded_sizes`).

Nothing here can fail a write: a problem is logged, and the next commit tries again. A process that
dies leaves the commit tables behind, and the next open for writing brings them up to date.
`enabled=False` starts no thread: writers record their own commits, nothing is compacted.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakSet

from omnigraph.errors import OmnigraphError
from omnigraph.maintenance.build_indexes import uncovered
from omnigraph.maintenance.optimize import Maintenance
from omnigraph.maintenance.table_maintenance import compact_dataset
from omnigraph.manifest import GraphCommit, Repository
from omnigraph.manifest.checksums import BATCH_FILES
from omnigraph.manifest.compact import compact_manifest, pack_manifest
from omnigraph.manifest.layout import CHECKSUMS, COMMIT_ACTORS, COMMITS, MANIFEST, Incarnation
from omnigraph.store.records import CompactionOptions, FragmentInfo
from omnigraph.write.commit.appends import MAINTENANCE
from omnigraph.write.commit.job import WriteJob

SMALL_MAX: Final = 64
READ_AT_OPEN_MAX: Final = 8
"""Opening a graph reads all of `__manifest`, and for writing the ids of all recorded commits. A
fragment takes as long as 1,000 rows there."""
UNCOVERED_MAX: Final = 8
"""A probe reads every fragment that its index does not cover: more than this cost too much."""
UNCOVERED_ROWS_MAX: Final = 2_048
"""Nor may a probe read more rows than this in addition to its index."""
TAIL_ROWS_MAX: Final = 100_000
"""More rows than this come from a load, whose indexing is left to `optimize`."""
URGENT_COMMITS: Final = 32
"""After this many commits a handle does not wait for its pause to end."""
PAUSE_S: Final = 0.25
_TIER_FACTOR: Final = 32
_TARGET_ROWS_MAX: Final = 1_000_000

_log = logging.getLogger(__name__)


def tail_to_compact(fragments: Sequence[FragmentInfo]) -> CompactionOptions | None:
    """Return up to which size fragments are worth rewriting together; None when none are."""
    rows = [fragment.rows for fragment in fragments]
    target = _TIER_FACTOR
    while target <= _TARGET_ROWS_MAX * _TIER_FACTOR:
        bound = min(target, _TARGET_ROWS_MAX)
        if sum(count < bound for count in rows) > SMALL_MAX:
            return CompactionOptions(target_rows=bound)
        target *= _TIER_FACTOR
    return _deletions_to_compact(fragments)


def crowded_sizes(
    fragments: Sequence[FragmentInfo], *, is_closing: bool
) -> CompactionOptions | None:
    """Return the same for a dataset that is read as a whole when a graph is opened.

    Of each size `READ_AT_OPEN_MAX` may stay. Of the smallest, which every commit adds, `SMALL_MAX`
    may stay until the handle is closed. The largest crowded size takes all smaller ones with it.
    """
    rows = [fragment.rows for fragment in fragments]
    options, least = None, 0
    for bound in (_TIER_FACTOR, _TIER_FACTOR**2, _TIER_FACTOR**3, _TARGET_ROWS_MAX):
        stay = SMALL_MAX if bound == _TIER_FACTOR and not is_closing else READ_AT_OPEN_MAX
        if sum(least <= count < bound for count in rows) > stay:
            options = CompactionOptions(target_rows=bound)
        least = bound
    return options or _deletions_to_compact(fragments)


def _deletions_to_compact(fragments: Sequence[FragmentInfo]) -> CompactionOptions | None:
    if sum(fragment.deleted_rows > 0 for fragment in fragments) > SMALL_MAX:
        return CompactionOptions(target_rows=1, deleted_share_min=0.0)
    return None


@dataclass
class _Pending:
    """What has been written since the last run."""

    tables: set[tuple[Incarnation, str]] = field(default_factory=set)
    branches: set[Incarnation] = field(default_factory=set)
    commits: list[GraphCommit] = field(default_factory=list)
    has_files: bool = False
    """Whether files were written that belong to no commit."""

    def __bool__(self) -> bool:
        return bool(self.branches or self.commits or self.has_files)

    def add(self, other: _Pending) -> None:
        self.tables |= other.tables
        self.branches |= other.branches
        self.commits += other.commits
        self.has_files |= other.has_files


class BackgroundMaintenance:
    """Compacts and indexes after the commits of one handle. Safe to share between threads."""

    def __init__(
        self, repository: Repository, maintenance: Maintenance, *, enabled: bool = True
    ) -> None:
        self._repository = repository
        self._maintenance = maintenance
        self._enabled = enabled
        self._wake = threading.Condition()
        self._pending = _Pending()
        self._written = 0
        self._closers = 0
        self._worker: threading.Thread | None = None

    def remember(self, job: WriteJob) -> None:
        """Remember which tables a commit has written."""
        if not self._enabled or job.kind in MAINTENANCE:
            return
        with self._wake:
            self._written += 1
            self._pending.tables.update((job.incarnation, table.table_key) for table in job.tables)
            self._pending.branches.add(job.incarnation)
            self._wake_worker()

    def record(self, commit: GraphCommit) -> None:
        """Add a commit to the derived tables: soon, or at once without a worker."""
        if not self._enabled:
            self._repository.commit_tables.record([commit])
            self._repository.checksums.record()
            return
        with self._wake:
            self._pending.commits.append(commit)
            self._wake_worker()

    def record_files(self) -> None:
        """Store the checksums of files that belong to no commit, such as those of a branch."""
        if not self._enabled:
            self._repository.checksums.record()
            return
        with self._wake:
            self._pending.has_files = True
            self._wake_worker()

    def close(self) -> None:
        """Finish the maintenance of what this handle has written; no thread runs afterwards."""
        self._stop()
        try:
            pending = self._take()
            self._record(pending)
            if self._enabled:
                self._compact(pending, is_quiet=True, is_closing=True)
            # Compaction commits too, and a worker for that would write after this call.
            self._record_pending()
            self._repository.checksums.record()
        finally:
            self._resume()

    def settle(self) -> None:
        """Record what was written so far, so that the worker leaves no file without a checksum."""
        self._stop()
        try:
            self._record_pending()
            self._repository.checksums.record()
        finally:
            self._resume()

    def record_rest(self) -> None:
        """Record what is still waiting, when the process ends without closing the handle."""
        self._stop()
        self._record(self._take())
        self._repository.checksums.record()

    # -- the worker -------------------------------------------------------------------------------

    def _stop(self) -> None:
        """Let the worker finish its current step, and start no other; pending work stays."""
        with self._wake:
            self._closers += 1
            self._wake.notify_all()
            worker = self._worker
        if worker is not None:
            worker.join()

    def _resume(self) -> None:
        """Allow workers again; one starts at once when there were writes meanwhile."""
        with self._wake:
            self._closers -= 1
            if self._pending:
                self._wake_worker()

    def _wake_worker(self) -> None:
        """Start the worker, or wake it up when much is pending; the caller holds the lock."""
        is_running = self._worker is not None and self._worker.is_alive()
        if not is_running and not self._closers:
            self._worker = threading.Thread(target=self._work, name="auto-optimize", daemon=True)
            _LIVE.add(self)
            self._worker.start()
        elif self._is_urgent():
            self._wake.notify()

    def _is_urgent(self) -> bool:
        return self._closers > 0 or self._written >= URGENT_COMMITS

    def _work(self) -> None:
        waiting = _Pending()
        while True:
            with self._wake:
                self._wake.wait_for(self._is_urgent, timeout=PAUSE_S)
                fresh, self._pending, self._written = self._pending, _Pending(), 0
                is_quiet = not fresh
                if self._closers or (is_quiet and not waiting):
                    fresh.add(waiting)
                    self._pending, self._worker = fresh, None
                    return
            self._record(fresh)
            waiting.add(_Pending(fresh.tables, fresh.branches, has_files=not is_quiet))
            self._compact(waiting, is_quiet=is_quiet)
            if is_quiet or self._repository.checksums.waiting >= BATCH_FILES:
                self._repository.checksums.record()
            if is_quiet:
                waiting = _Pending()

    def _take(self) -> _Pending:
        with self._wake:
            pending, self._pending, self._written = self._pending, _Pending(), 0
        return pending

    def _record_pending(self) -> None:
        """Record the pending commits; the tables that they have written stay pending."""
        with self._wake:
            commits, self._pending.commits = self._pending.commits, []
        self._record(_Pending(commits=commits))

    def _record(self, pending: _Pending) -> None:
        if pending.commits:
            self._repository.commit_tables.record(pending.commits)

    def _compact(self, pending: _Pending, *, is_quiet: bool, is_closing: bool = False) -> None:
        for incarnation in sorted(pending.branches):
            keys = sorted(key for owner, key in pending.tables if owner == incarnation)
            try:
                self._compact_branch(incarnation, keys, is_quiet=is_quiet)
                self._compact_derived(is_closing=is_closing)
                self._compact_manifest(incarnation, is_closing=is_closing)
                self._pack(incarnation, keys)
            except OmnigraphError as error:
                _log.info("maintenance of branch %s was put off: %s", incarnation.branch, error)
            except RuntimeError:
                if threading.main_thread().is_alive():
                    raise
                return  # The interpreter is shutting down and starts no threads any more.

    def _compact_branch(
        self, incarnation: Incarnation, keys: Sequence[str], *, is_quiet: bool
    ) -> None:
        datasets, reader = self._repository.store.datasets, self._repository.reader
        entries = reader.latest(incarnation).entries
        due: dict[str, CompactionOptions | None] = {}
        wants_indexes, is_small = is_quiet, True
        for key in keys:
            entry = entries.get(key)
            if entry is None or entry.owner_branch != incarnation.text:
                continue
            handle = datasets.open(
                entry.location, branch=entry.table_branch, version=entry.table_version
            )
            options = tail_to_compact(handle.fragments())
            fragments, rows = uncovered(handle) if options or is_quiet else (0, 0)
            is_tail = rows <= TAIL_ROWS_MAX
            if options is not None or (fragments > UNCOVERED_MAX and is_tail):
                due[key] = options
                wants_indexes |= rows > UNCOVERED_ROWS_MAX
                is_small &= is_tail
        if due:
            with_indexes = wants_indexes and is_small
            self._maintenance.compact_tail(incarnation, due, with_indexes=with_indexes)

    def _compact_derived(self, *, is_closing: bool) -> None:
        datasets = self._repository.store.datasets
        for location in (COMMITS, COMMIT_ACTORS, CHECKSUMS):
            if not datasets.exists(location):
                continue
            # By sizes: otherwise a long history would be rewritten every time.
            fragments = datasets.open(location).fragments()
            if location == CHECKSUMS:
                options = tail_to_compact(fragments)
            else:
                options = crowded_sizes(fragments, is_closing=is_closing)
            if options is not None:
                compact_dataset(datasets, location, options)
            datasets.pack_versions(location)

    def _pack(self, incarnation: Incarnation, keys: Iterable[str]) -> None:
        """Put the files of old versions together: a commit then costs the same after thousands."""
        datasets = self._repository.store.datasets
        entries = self._repository.reader.latest(incarnation).entries
        for key in keys:
            entry = entries.get(key)
            if entry is not None and entry.owner_branch == incarnation.text:
                datasets.pack_versions(entry.location, branch=entry.table_branch)
        if datasets.has_versions_to_pack(MANIFEST, branch=incarnation.lance_branch):
            pack_manifest(self._repository, incarnation)

    def _compact_manifest(self, incarnation: Incarnation, *, is_closing: bool) -> None:
        """Compact the small fragments of a branch's manifest."""
        reader = self._repository.reader
        fragments = reader.open(incarnation, reader.head_version(incarnation)).fragments()
        options = crowded_sizes(fragments, is_closing=is_closing)
        if options is not None:
            compact_manifest(self._repository, incarnation, options)


_LIVE: Final[WeakSet[BackgroundMaintenance]] = WeakSet()


@atexit.register
def _end_workers() -> None:
    """Keep workers from running inside the library while the interpreter shuts down."""
    for handle in list(_LIVE):
        handle.record_rest()
