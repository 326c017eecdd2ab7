"""Jobs tell their stages to whoever asked, and end when they are no longer wanted."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Self

import pytest

from omnigraph.engine import LoadCancelledError
from omnigraph.progress import Progress
from omnigraph.spark.jobs import Jobs

ENDED_MAX_S = 30.0


class Session:
    """As much of a session as jobs need: its frames run until their tag is interrupted."""

    def __init__(self) -> None:
        self.running, self.interrupted = threading.Event(), threading.Event()

    def addTag(self, tag: str) -> None:  # noqa: N802 - as Spark spells it
        self.tag = tag

    def interruptTag(self, tag: str) -> None:  # noqa: N802 - as Spark spells it
        assert tag == self.tag
        self.interrupted.set()

    def mapInArrow(self, *_: object) -> Self:  # noqa: N802 - as Spark spells it
        return self

    def collect(self) -> list[Any]:
        self.running.set()
        assert self.interrupted.wait(ENDED_MAX_S), "nobody interrupts the job"
        raise RuntimeError("interrupted")


def test_a_job_that_is_cancelled_is_interrupted() -> None:
    session: Any = Session()
    cancelled = threading.Event()
    told: list[Mapping[str, object]] = []
    jobs = Jobs(session, tag="t", progress=Progress(None, told.append), cancelled=cancelled)
    waiter = threading.Thread(target=lambda: session.running.wait() and cancelled.set())
    waiter.start()
    with pytest.raises(LoadCancelledError):
        jobs.rows("read", session, lambda *_: None)
    waiter.join()
    assert session.interrupted.is_set()
    assert told[0] == {"stage": "read", "seconds": 0.0}
