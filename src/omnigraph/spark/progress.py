"""Shows what a bulk job is doing: a live line on a terminal, now and then a line elsewhere.

Only this module uses a `sparkContext`, and only to read: classic sessions have one and know how far
their jobs are, Connect sessions have none. What is not known is not shown.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TextIO

from omnigraph.engine import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TERMINAL_S: Final = 0.2
_LINE_S: Final = 10.0
_REPORT_S: Final = 1.0
_BAR: Final = 24


class Progress:
    """Shows stages on a stream and reports them to a caller; silent when there is neither."""

    def __init__(self, stream: TextIO | None = None, report: Report | None = None) -> None:
        self._stream = stream
        self._report = report
        self._width = 0
        """How long the line is that a terminal shows."""

    @classmethod
    def on_stderr(cls) -> Progress:
        """Return a progress that writes to stderr."""
        return cls(sys.stderr)

    @contextmanager
    def stage(self, name: str, spark: SparkSession) -> Iterator[None]:
        """Show one stage while it runs."""
        if self._stream is None and self._report is None:
            yield
            return
        is_terminal = self._stream is not None and self._stream.isatty()
        done = threading.Event()
        watcher = threading.Thread(
            target=self._watch, args=(name, spark, done, is_terminal), daemon=True
        )
        started = time.monotonic()
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            if is_terminal:
                self._replace(f"{name}: {time.monotonic() - started:.1f} s")
                self._write("\n")

    def _watch(
        self, name: str, spark: SparkSession, done: threading.Event, is_terminal: bool
    ) -> None:
        started = time.monotonic()
        step_s = _TERMINAL_S if is_terminal else _LINE_S if self._report is None else _REPORT_S
        self._tell({"stage": name, "seconds": 0.0})
        while not done.wait(step_s):
            tasks, done_tasks = _look(spark)
            seconds = time.monotonic() - started
            told: dict[str, object] = {"stage": name, "seconds": round(seconds, 3)}
            self._tell(told | ({"tasks": tasks, "done": done_tasks} if tasks else {}))
            line = f"{name}: {seconds:.0f} s"
            if tasks:
                line = f"{name}: {done_tasks}/{tasks} tasks, {seconds:.0f} s"
                if is_terminal:
                    filled = _BAR * done_tasks // tasks
                    line = f"[{'=' * filled}{' ' * (_BAR - filled)}] {line}"
            if is_terminal:
                self._replace(line)
            else:
                self._write(f"{line}\n")

    def _tell(self, event: dict[str, object]) -> None:
        if self._report is not None:
            self._report(event)

    def _replace(self, line: str) -> None:
        """Overwrite the current line; without escape codes where they are not wanted."""
        is_plain = bool(os.environ.get("NO_COLOR"))
        shown = line.ljust(self._width) if is_plain else f"\x1b[K{line}"
        self._width = len(line)
        self._write(f"\r{shown}")

    def _write(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()


def _look(spark: SparkSession) -> tuple[int, int]:
    """Return how many tasks the running stages have and have done; none where that is unknown."""
    # Connect sessions refuse, and a session that is stopping may raise anything.
    with suppress(Exception):
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return (
            sum(stage.numTasks for stage in known),
            sum(stage.numCompletedTasks for stage in known),
        )
    return 0, 0


def application_id(spark: SparkSession) -> str | None:
    """Return the id of the session's Spark application; None on Connect."""
    with suppress(Exception):
        found: str = spark.sparkContext.applicationId
        return found
    return None


def classic_parallelism(spark: SparkSession) -> int | None:
    """Return how many tasks a classic session runs at once; None on Connect."""
    with suppress(Exception):
        found: int = spark.sparkContext.defaultParallelism
        return found
    return None
