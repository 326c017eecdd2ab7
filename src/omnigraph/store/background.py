"""Work in the background, in parallel with the caller.

Writing small files takes a disk or an object store longer than it takes this process, so steps that
do not wait for each other are worth doing at the same time. What is started here must be harmless
when the caller fails meanwhile: it may write unreferenced files, and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

_Answer = TypeVar("_Answer")
_AT_ONCE_MAX: Final = 64
"""Most calls wait for the disk. A write that is being published must not queue behind the rows of
those that are being prepared; threads are started only when they are needed."""


class Background(Protocol):
    """Runs calls in the background."""

    def start(self, call: Callable[[], _Answer]) -> Future[_Answer]:
        """Start a call; the caller waits on the future for its result or error."""
        ...

    def end_threads(self) -> None:
        """Let threads end when they have nothing left to do; a later call starts new ones."""
        ...


class InThreads:
    """Runs calls in a few threads of its own."""

    def __init__(self, at_once_max: int = _AT_ONCE_MAX, name: str = "omnigraph-background") -> None:
        self._at_once_max = at_once_max
        self._name = name
        self._pool = self._new_pool()
        self._process = os.getpid()

    def _new_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._at_once_max, thread_name_prefix=self._name)

    def start(self, call: Callable[[], _Answer]) -> Future[_Answer]:
        if os.getpid() != self._process:
            # A forked child has none of the threads, and would wait for them forever.
            return Inline().start(call)
        try:
            return self._pool.submit(call)
        except RuntimeError:
            # The interpreter is shutting down and can start no threads, or these were just ended.
            return Inline().start(call)

    def end_threads(self) -> None:
        if os.getpid() != self._process:
            return  # A forked child has none of them.
        ended, self._pool = self._pool, self._new_pool()
        ended.shutdown(wait=False)


class Inline:
    """Runs each call at once, so that effects have one order, as fault sweeps need."""

    def start(self, call: Callable[[], _Answer]) -> Future[_Answer]:
        future: Future[_Answer] = Future()
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)
        return future

    def end_threads(self) -> None:
        """Do nothing: there are none."""
