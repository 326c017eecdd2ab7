"""Signals that end a stream after the micro-batch that is running."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def signals_that_stop(stop: threading.Event, *, is_wanted: bool) -> Iterator[None]:
    """Let SIGINT and SIGTERM set an event; the second one interrupts.

    To be entered after Spark was started, which has a handler of its own for SIGINT.
    """
    if not is_wanted:
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {one: signal.signal(one, handle) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
