"""What people and callers see of a stage while it runs."""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping

import pytest

from omnigraph.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Looks:
    """Counts the looks at a stage, and lets the stage end after some of them."""

    def __init__(self, wanted: int, known: Mapping[str, int]) -> None:
        self._left = wanted
        self._known = known
        self.enough = threading.Event()

    def __call__(self) -> Mapping[str, int]:
        self._left -= 1
        if self._left <= 0:
            self.enough.set()
        return self._known


def test_a_terminal_has_one_live_line_and_at_last_the_seconds() -> None:
    terminal, looks = Terminal(), Looks(2, {"records": 12_000})
    with Progress(terminal).stage("reading", looks):
        assert looks.enough.wait(30)
    first, *_, last = terminal.getvalue().split("\r")[1:]
    assert first == "\x1b[Kreading: 12,000 records, 0 s"
    assert last.startswith("\x1b[Kreading: 0.")
    assert last.endswith(" s\n")


def test_a_notebook_has_a_live_line_without_escape_codes() -> None:
    cell = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    looks = Looks(2, {"tasks": 4, "done": 1})
    with Progress(cell).stage("merging", looks):
        assert looks.enough.wait(30)
    first, *_, last = cell.getvalue().split("\r")[1:]
    assert first == "[======                  ] merging: 1/4 tasks, 0 s"
    assert last.startswith("merging: 0.")
    assert "\x1b" not in cell.getvalue()


def test_a_stage_that_ends_at_once_leaves_no_line() -> None:
    terminal = Terminal()
    with Progress(terminal).stage("reading"):
        pass
    assert terminal.getvalue() == ""


def test_a_caller_gets_an_event_for_every_stage() -> None:
    events: list[Mapping[str, object]] = []
    looks = Looks(1, {"tasks": 4, "done": 1})
    progress = Progress(report=events.append)
    with progress.stage("merging", looks):
        assert looks.enough.wait(30)
    assert events[0] == {"stage": "merging", "seconds": 0.0}
    assert {**events[1], "seconds": 0} == {"stage": "merging", "seconds": 0, "tasks": 4, "done": 1}


def test_a_function_that_raises_is_called_once_and_ends_no_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[Mapping[str, object]] = []

    def fail(event: Mapping[str, object]) -> None:
        events.append(event)
        raise ValueError("of the caller")

    progress = Progress(None, fail)
    for name in ("reading", "writing"):
        with progress.stage(name):
            pass
    assert [event["stage"] for event in events] == ["reading"]
    assert "is not called again" in caplog.text
    assert "of the caller" in caplog.text


def test_without_a_stream_and_a_caller_nothing_is_watched() -> None:
    looks = Looks(1, {})
    before = threading.active_count()
    with Progress().stage("reading", looks):
        assert threading.active_count() == before
    assert not looks.enough.is_set()
