"""Shows what a long job is doing: a live line on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TextIO, TypeAlias

Report: TypeAlias = Callable[[Mapping[str, object]], None]
"""Is called with events of a job: its `stage`, the `seconds` of it, and what is counted."""
Look: TypeAlias = Callable[[], Mapping[str, int]]
"""Returns what is known about a stage: `tasks` and `done`, or `records`; nothing where unknown."""

_log: Final = logging.getLogger(__name__)
_TERMINAL_S: Final = 0.2
_LINE_S: Final = 10.0
_REPORT_S: Final = 1.0
_BAR: Final = 24


def _nothing_known() -> Mapping[str, int]:
    return {}


class Progress:
    """Shows stages on a stream and reports them to a caller; silent when there is neither."""

    def __init__(self, stream: TextIO | None = None, report: Report | None = None) -> None:
        self._stream = stream
        self._report = report
        self._width = 0
        """How long the line is that a terminal shows."""

    @classmethod
    def on_stderr(cls, report: Report | None = None) -> Progress:
        """Return a progress that writes to stderr."""
        return cls(sys.stderr, report)

    @contextmanager
    def stage(self, name: str, look: Look = _nothing_known) -> Iterator[None]:
        """Show one stage while it runs."""
        if self._stream is None and self._report is None:
            yield
            return
        is_terminal = _is_live(self._stream)
        done = threading.Event()
        watcher = threading.Thread(
            target=self._watch, args=(name, look, done, is_terminal), daemon=True
        )
        started = time.monotonic()
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            if is_terminal and self._width:
                self._replace(f"{name}: {time.monotonic() - started:.1f} s")
                self._write("\n")
                self._width = 0

    def _watch(self, name: str, look: Look, done: threading.Event, is_terminal: bool) -> None:
        started = time.monotonic()
        step_s = _TERMINAL_S if is_terminal else _LINE_S if self._report is None else _REPORT_S
        self._send({"stage": name, "seconds": 0.0})
        while not done.wait(step_s):
            known = look()
            seconds = time.monotonic() - started
            self._send({"stage": name, "seconds": round(seconds, 3), **known})
            line = _line(name, known, seconds, has_bar=is_terminal)
            if is_terminal:
                self._replace(line)
            else:
                self._write(f"{line}\n")

    def _send(self, event: dict[str, object]) -> None:
        if self._report is None:
            return
        try:
            self._report(event)
        except Exception:  # noqa: BLE001 - a function of the caller may raise anything
            _log.warning("the progress function raised and is not called again", exc_info=True)
            self._report = None

    def _replace(self, line: str) -> None:
        """Overwrite the current line; without escape codes where they are not wanted."""
        # A notebook returns to the start of a line, and knows no other escape codes.
        is_plain = bool(os.environ.get("NO_COLOR")) or not _is_terminal(self._stream)
        shown = line.ljust(self._width) if is_plain else f"\x1b[K{line}"
        self._width = len(line)
        self._write(f"\r{shown}")

    def _write(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _is_live(stream: TextIO | None) -> bool:
    """Whether a line can be written again: on a terminal, and in a cell of a notebook."""
    return _is_terminal(stream) or type(stream).__module__.startswith("ipykernel.")


def _line(name: str, known: Mapping[str, int], seconds: float, *, has_bar: bool) -> str:
    """Return one line about a stage.

    >>> _line("reading", {"records": 12000}, 3.2, has_bar=True)
    'reading: 12,000 records, 3 s'
    >>> _line("merging", {"tasks": 4, "done": 1}, 3.2, has_bar=False)
    'merging: 1/4 tasks, 3 s'
    """
    tasks, done = known.get("tasks", 0), known.get("done", 0)
    if not tasks:
        records = known.get("records", 0)
        counted = f" {records:,} records," if records else ""
        return f"{name}:{counted} {seconds:.0f} s"
    line = f"{name}: {done}/{tasks} tasks, {seconds:.0f} s"
    filled = _BAR * done // tasks
    return f"[{'=' * filled}{' ' * (_BAR - filled)}] {line}" if has_bar else line
