"""A lock for the short reads of a process, so that its threads do not slow each other down.

A read that is answered from memory takes a fraction of a millisecond and releases the lock of the
interpreter some six times, in file probes and in calls of NumPy and Arrow. With several threads
each release lets another thread in, and the reader has to wait for it: most of the time goes into
switching threads. Threads that wait for this lock do not wait for the interpreter, so a read runs
to its end.

1. One read of the process holds the lock. It is an optimization: no result depends on it, and reads
   without it are right.
2. A read that has held it for `SHORT_S` loses it when another read wants it, and goes on without
   it: it is overtaken. So long reads run in parallel, and nobody waits for storage, for a slow
   read or for a read that waits itself. Each read that was overtaken and still runs adds `SHORT_S`
   to this time: many long reads at once would slow each other down in the same way.
3. A read that calls the store releases it (`release_own`).
4. A switch of threads for every read would cost more than the reads. A thread that makes short
   reads again and again therefore keeps the lock between them for `RUN_S` while others wait, and
   gives it up then. If it does not come back, the next read takes the lock from it as from a long
   read.
5. Every wait has a bound. A read that has waited `WAIT_S` runs without the lock.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Final

SHORT_S: Final = 0.001
"""How long a read holds the lock while others wait for it."""
RUN_S: Final = sys.getswitchinterval()
"""How long a thread keeps the lock between its reads while others wait for it: as long as the
interpreter lets a thread run that calls nothing."""
WAIT_S: Final = 1.0
_GAP_S: Final = 0.000_1
"""A thread that comes back so soon reads again and again."""
_QUICK_MIN: Final = 4
_QUICK_MAX: Final = 16
_NOT_QUICK: Final = 8
"""A gap or a long read counts as much as this many short reads: once may be a busy machine."""
_OVERTAKEN_MAX: Final = 7


class _Hold:
    """One read that holds the lock, or has lost it."""

    __slots__ = ("_lock", "began_s", "is_kept", "is_overtaken", "is_quick", "thread")

    def __init__(self, lock: ShortReadLock, began_s: float) -> None:
        self._lock = lock
        self.began_s = began_s
        self.thread = threading.get_ident()
        self.is_quick = False
        """Whether its thread makes short reads again and again."""
        self.is_kept = False
        """Whether the read has ended, and its thread keeps the lock for the next one."""
        self.is_overtaken = False

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release(self)


class _Habit(threading.local):
    """The last reads of a thread."""

    ended_s: float = 0.0
    quick: int = 0
    """How many short reads followed each other without a gap, less those that were others."""

    def note(self, *, is_quick: bool) -> None:
        """Count a read, or a gap before it."""
        self.quick = min(self.quick + 1, _QUICK_MAX) if is_quick else self.quick - _NOT_QUICK
        self.quick = max(self.quick, 0)


class ShortReadLock:
    """The lock of the short reads of one process."""

    def __init__(
        self,
        *,
        short_s: float = SHORT_S,
        run_s: float = RUN_S,
        wait_s: float = WAIT_S,
        is_on: bool = True,
    ) -> None:
        self._short_s = short_s
        self._run_s = run_s
        self._wait_s = wait_s
        self._is_on = is_on
        self._habit = _Habit()
        self.reset()

    @property
    def is_held(self) -> bool:
        """Whether a read holds the lock."""
        return self._lock.locked()

    def reset(self) -> None:
        """Forget all holders: a process that was forked has none of the threads."""
        self._lock = threading.Lock()
        self._first = threading.Lock()
        """Held by the read that waits for the lock; others wait for this one."""
        self._guard = threading.Lock()
        """Held for a moment, while the holder changes."""
        self._holder: _Hold | None = None
        self._overtaken = 0
        self._run_ends_s = 0.0

    def held(self) -> _Hold:
        """Take the lock, or stop waiting for it; `with` releases it."""
        hold = _Hold(self, time.monotonic())
        if not self._is_on:
            return hold
        habit = self._habit
        if hold.began_s - habit.ended_s > _GAP_S:
            habit.note(is_quick=False)
        hold.is_quick = habit.quick >= _QUICK_MIN
        if self._takes_at_once(hold):
            self._holder = hold
        elif not self._has_own(hold) and self._first.acquire(timeout=self._wait_s):
            try:
                self._wait(hold)
            finally:
                self._first.release()
        return hold

    def release(self, hold: _Hold) -> None:
        """Release the lock, unless the read has lost it."""
        if not self._is_on:
            return
        habit, now_s = self._habit, time.monotonic()
        habit.ended_s = now_s
        habit.note(is_quick=now_s - hold.began_s < self._short_s)
        with self._guard:
            if hold.is_overtaken:
                hold.is_overtaken = False
                self._overtaken -= 1
            elif self._holder is hold:
                # If nobody waits, taking the lock again costs nothing.
                hold.is_kept = hold.is_quick and now_s < self._run_ends_s and self._first.locked()
                if not hold.is_kept:
                    self._unlock()

    def release_own(self) -> None:
        """Release the lock if a read of this thread holds it."""
        holder = self._holder
        if holder is None or holder.thread != threading.get_ident():
            return
        with self._guard:
            if self._holder is holder:
                self._unlock()

    def _takes_at_once(self, hold: _Hold) -> bool:
        """Whether the lock was free; at the end of a run it is left to the read that waits."""
        if hold.began_s > self._run_ends_s and self._first.locked():
            return False
        return self._lock.acquire(blocking=False)

    def _has_own(self, hold: _Hold) -> bool:
        """Whether this thread has the lock already: kept for this read, or by one around it."""
        holder = self._holder
        if holder is None or holder.thread != hold.thread:
            return False
        with self._guard:
            if self._holder is not holder:
                return False
            if not holder.is_kept:
                return True
            if hold.began_s > self._run_ends_s:
                self._unlock()
                return False
            self._holder = hold
            return True

    def _wait(self, hold: _Hold) -> None:
        """Wait for the lock as the first of those that wait, or take it from a long read."""
        while True:
            seen = self._holder
            now_s = time.monotonic()
            if self._lock.acquire(timeout=max(self._until_s(seen, now_s) - now_s, 0)):
                self._holder = hold
                break
            if self._takes_over(hold, seen):
                break
        hold.began_s = time.monotonic()
        self._run_ends_s = hold.began_s + self._run_s

    def _until_s(self, seen: _Hold | None, now_s: float) -> float:
        """Return when the lock may be taken from its holder."""
        if seen is None:
            return now_s + self._short_s
        short_s = self._short_s * (1 + min(self._overtaken, _OVERTAKEN_MAX))
        if not seen.is_quick:
            return seen.began_s + short_s
        # The thread gives it up by itself at the end of its run.
        return max(seen.began_s, self._run_ends_s) + short_s

    def _takes_over(self, hold: _Hold, seen: _Hold | None) -> bool:
        """Become the holder of a lock that another thread has held for long.

        Without a known holder the lock was left by a thread that was interrupted.
        """
        with self._guard:
            if self._holder is not seen:
                return False
            if seen is not None and not seen.is_kept:
                seen.is_overtaken = True
                self._overtaken += 1
            self._holder = hold
            return True

    def _unlock(self) -> None:
        self._holder = None
        # It is not locked if a thread was stopped between taking it and saying so, for as long
        # as a long read, and another one has taken it over meanwhile.
        if self._lock.locked():
            self._lock.release()


def _has_interpreter_lock() -> bool:
    """Whether threads of this interpreter take turns; from Python 3.13 on there are others."""
    asked = getattr(sys, "_is_gil_enabled", None)
    return asked is None or bool(asked())


SHORT_READS: Final = ShortReadLock(is_on=_has_interpreter_lock())
os.register_at_fork(after_in_child=SHORT_READS.reset)
