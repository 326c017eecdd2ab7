"""Small writes tidy up after themselves.

Every commit of a handle is noted. When a table has gathered more than `SMALL_MAX` small fragments
or fragments with deleted rows, they are compacted and folded into the indexes under the ordinary
protocol: in a background thread while the handle lives on, or when it is closed. Indexes that exist
are extended earlier, at `UNCOVERED_MAX` fragments, because every probe has to read those. The same
goes for `__manifest` and the derived commit tables.

Small is relative: fragments are sorted into sizes by powers of `_TIER_FACTOR`, and only fragments
up to the size of which there are too many are rewritten. So a table of a million rows is not
rewritten because of 65 new ones, and the number of fragments grows with the logarithm of the rows.

Nothing here can fail a write: a problem is logged, and the next commit tries again.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

from omnigraph.errors import OmnigraphError
from omnigraph.manifest.layout import COMMIT_ACTORS, COMMITS
from omnigraph.manifest.tidy import needs_tidying, tidy
from omnigraph.recovery import WriterKind
from omnigraph.store.records import CompactionOptions
from omnigraph.write.indices import uncovered_fragments
from omnigraph.write.upkeep import tidy_dataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omnigraph.manifest import Repository
    from omnigraph.manifest.layout import Incarnation
    from omnigraph.store.records import FragmentInfo
    from omnigraph.write.optimize import Upkeep
    from omnigraph.write.protocol import WriteJob

SMALL_MAX: Final = 64
UNCOVERED_MAX: Final = 8
"""A probe reads every fragment that its index does not cover: more than this cost too much."""
CHECK_EVERY: Final = 8
"""A long-lived handle looks at its tables after this many of its own commits."""
_TIER_FACTOR: Final = 32
_TARGET_ROWS_MAX: Final = 1_000_000
_OWN_KINDS: Final = frozenset({WriterKind.OPTIMIZE, WriterKind.ENSURE_INDICES})

_log = logging.getLogger(__name__)


def tail_to_compact(fragments: Sequence[FragmentInfo]) -> CompactionOptions | None:
    """Say up to which size fragments are worth rewriting together; None when none are."""
    target = _TIER_FACTOR
    while target <= _TARGET_ROWS_MAX * _TIER_FACTOR:
        bound = min(target, _TARGET_ROWS_MAX)
        if sum(fragment.rows < bound for fragment in fragments) > SMALL_MAX:
            return CompactionOptions(target_rows=bound)
        target *= _TIER_FACTOR
    if sum(fragment.deleted_rows > 0 for fragment in fragments) > SMALL_MAX:
        return CompactionOptions(target_rows=1, deleted_share_min=0.0)
    return None


class AutoOptimize:
    """Notes the commits of one handle and tidies up behind them. Safe to share between threads."""

    def __init__(self, repository: Repository, upkeep: Upkeep, *, enabled: bool = True) -> None:
        self._repository = repository
        self._upkeep = upkeep
        self._enabled = enabled
        self._guard = threading.Lock()
        self._counts: Counter[tuple[Incarnation, str]] = Counter()
        self._commits: Counter[Incarnation] = Counter()
        self._worker: threading.Thread | None = None

    def note(self, job: WriteJob) -> None:
        """Remember which tables a commit has written; start tidying when it is time."""
        if not self._enabled or job.kind in _OWN_KINDS:
            return
        with self._guard:
            self._counts.update((job.incarnation, table.table_key) for table in job.tables)
            self._commits[job.incarnation] += 1
            if self._commits[job.incarnation] < CHECK_EVERY or self._is_busy():
                return
            self._start(*self._take())

    def close(self) -> None:
        """Tidy up what this handle has written, and wait for what is under way."""
        with self._guard:
            worker = self._worker
            tables, branches = self._take()
        if worker is not None:
            worker.join()
        if self._enabled:
            self._tidy(tables, branches)

    def _take(self) -> tuple[set[tuple[Incarnation, str]], set[Incarnation]]:
        tables, branches = set(self._counts), set(self._commits)
        self._counts.clear()
        self._commits.clear()
        return tables, branches

    def _is_busy(self) -> bool:
        return self._worker is not None and self._worker.is_alive()

    def _start(self, tables: set[tuple[Incarnation, str]], branches: set[Incarnation]) -> None:
        self._worker = threading.Thread(
            target=self._tidy, args=(tables, branches), name="auto-optimize", daemon=True
        )
        self._worker.start()

    def _tidy(self, tables: set[tuple[Incarnation, str]], branches: set[Incarnation]) -> None:
        for incarnation in sorted(branches):
            try:
                self._tidy_branch(
                    incarnation, sorted(key for owner, key in tables if owner == incarnation)
                )
            except OmnigraphError as error:
                _log.info("tidying up on branch %s was put off: %s", incarnation.branch, error)

    def _tidy_branch(self, incarnation: Incarnation, keys: Iterable[str]) -> None:
        datasets, reader = self._repository.store.datasets, self._repository.reader
        entries = reader.latest(incarnation).entries
        due: dict[str, CompactionOptions | None] = {}
        for key in keys:
            entry = entries.get(key)
            if entry is None or entry.owner != incarnation.text:
                continue
            handle = datasets.open(
                entry.location, branch=entry.table_branch, version=entry.table_version
            )
            options = tail_to_compact(handle.fragments())
            if options is not None or uncovered_fragments(handle) > UNCOVERED_MAX:
                due[key] = options
        if due:
            self._upkeep.compact_tail(incarnation, due)
        if needs_tidying(reader, incarnation):
            tidy(datasets, reader, incarnation)
        for location in (COMMITS, COMMIT_ACTORS):
            if datasets.exists(location):
                handle = datasets.open(location)
                if len(handle.fragments()) > SMALL_MAX:
                    tidy_dataset(datasets, location)
