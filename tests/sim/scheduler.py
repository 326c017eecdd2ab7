"""Threads of which exactly one runs, on a clock that only they move.

A *task* is one thread. It gives control back with `wait`, and the task that wakes first goes on:
who that is follows from the waits, and those are drawn from one seed. So a schedule can be
repeated.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from support.faulty_store import SimulatedDeath

START_US: Final = 1_750_000_000_000_000
DAY_S: Final = 24 * 3600.0
SWITCHES_MAX: Final = 100_000
REAL_S_MAX: Final = 120.0
_MTIME_STEP_S: Final = 0.012
"""How long the kernel may give new files the modification time of old ones."""


class Task:
    """One thread of a schedule."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.wake_s = 0.0
        self.is_done = False
        self.go = threading.Event()


class Scheduler:
    """Decides which task runs, and what time it is."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.trace: list[str] = []
        self.failure: BaseException | None = None
        self._tasks: list[Task] = []
        self._finished = threading.Event()
        self._switches = 0
        self._jumps: list[tuple[int, int]] = [(0, START_US)]
        """Real nanoseconds from which on files count as written at this virtual microsecond."""

    def run(self, names: Sequence[str], body: Callable[[Task], None]) -> None:
        """Run a task for each name until all have ended; raise what the first one raised."""
        self._tasks = [Task(name, number) for number, name in enumerate(names)]
        threads = [
            threading.Thread(target=self._live, args=(task, body), name=task.name, daemon=True)
            for task in self._tasks
        ]
        for thread in threads:
            thread.start()
        self._tasks[0].go.set()
        if not self._finished.wait(REAL_S_MAX):
            raise AssertionError("a task blocks its thread instead of giving control back")
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    def wait(self, task: Task, seconds: float) -> None:
        """Let others go on until this much time has passed for the running task."""
        self._check()
        task.wake_s = self.now_s + seconds
        following = self._first()
        if following is not task:
            following.go.set()
            task.go.wait()
            task.go.clear()
        self._check()
        self.now_s = max(self.now_s, task.wake_s)

    def jump(self, seconds: float) -> None:
        """Let much time pass for everybody at once."""
        time.sleep(_MTIME_STEP_S)
        self.now_s += seconds
        self._jumps.append((time.time_ns(), self.now_us))
        time.sleep(_MTIME_STEP_S)

    @property
    def now_us(self) -> int:
        """The wall clock of storage."""
        return START_US + round(self.now_s * 1_000_000)

    def in_virtual_time(self, real_us: int) -> int:
        """Return when a file was written that has this modification time; exact up to jumps."""
        position = bisect_right(self._jumps, (real_us * 1_000, 1 << 62)) - 1
        return self._jumps[position][1]

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(text)

    def fail(self, error: BaseException) -> None:
        """End the schedule: every other task dies where it is."""
        self.failure = self.failure or error

    def _check(self) -> None:
        self._switches += 1
        if self._switches > SWITCHES_MAX:
            self.fail(AssertionError(f"the schedule has more than {SWITCHES_MAX} switches"))
        if self.failure is not None:
            raise SimulatedDeath("the schedule is over")

    def _first(self) -> Task:
        return min(
            (task for task in self._tasks if not task.is_done), key=lambda t: (t.wake_s, t.number)
        )

    def _live(self, task: Task, body: Callable[[Task], None]) -> None:
        task.go.wait()
        task.go.clear()
        try:
            body(task)
        except SimulatedDeath:
            pass  # Only the end of the schedule gets here.
        except BaseException as error:  # noqa: BLE001 - raised by `run`
            self.fail(error)
        task.is_done = True
        if all(each.is_done for each in self._tasks):
            self._finished.set()
        else:
            self._first().go.set()
