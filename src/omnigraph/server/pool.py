"""The engine is plain synchronous Python: it runs in a bounded pool of threads.

A client that goes away cancels its call: the event of the call is set, and the engine stops at its
next check. Looking for that costs a task, so it begins only when a call takes longer than most.

A thread costs more than a point lookup: two hand-overs of the interpreter's lock. `Habits` knows
the queries that were short each of the last times; such a call may run at once, with a limit of
time that stands far below what other clients notice. A call is short by its processor time: how
long it took by the clock depends on the other requests, and under load no call would be short.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

THREADS_DEFAULT: Final = 8
_DELAY_MAX: Final = 8
"""How many times longer than its processor time a short call takes, when others run too."""
_DELAY_AT_ONCE_MAX: Final = 4
"""The same of a call on the event loop, which competes with fewer."""
_SHORT_S: Final = 0.05
_SHORT_CALL_S: Final = 0.001
_SHORT_RUNS: Final = 8
_KINDS_MAX: Final = 4096

T = TypeVar("T")
Receive = Callable[[], Awaitable[Any]]


def timed_in_thread(call: Callable[[], T]) -> tuple[T, float]:
    """Run a call; return its processor time too, or a part of its time if it mostly waits."""
    began_s, began_here_s = time.monotonic(), time.thread_time()
    found = call()
    own_s, whole_s = time.thread_time() - began_here_s, time.monotonic() - began_s
    return found, cost_s(own_s, whole_s)


def cost_s(own_s: float, whole_s: float) -> float:
    """Return what a call in a thread costs, from its processor time and its time by the clock.

    >>> cost_s(0.0002, 0.004), cost_s(0.0002, 0.08)
    (0.0005, 0.01)
    """
    return max(own_s, whole_s / _DELAY_MAX)


def timed_at_once(call: Callable[[], T]) -> tuple[T, float]:
    """Run a call on the event loop; return a guess at its processor time.

    Asking for that time would take longer than the call.
    """
    began_s = time.monotonic()
    found = call()
    return found, (time.monotonic() - began_s) / _DELAY_AT_ONCE_MAX


class Habits:
    """How long calls of the same kind took the last times. Used by one thread, the event loop."""

    def __init__(self) -> None:
        self._short_runs: OrderedDict[Hashable, int] = OrderedDict()

    def is_short(self, key: Hashable) -> bool:
        """Whether calls of this kind have been short for long enough."""
        return self._short_runs.get(key, 0) >= _SHORT_RUNS

    def note(self, key: Hashable, seconds: float) -> None:
        """Remember one call; a long one counts as much as several short ones."""
        runs = self._short_runs.pop(key, 0)
        runs = min(runs + 1, 2 * _SHORT_RUNS) if seconds < _SHORT_CALL_S else runs - _SHORT_RUNS
        self._short_runs[key] = max(runs, 0)
        if len(self._short_runs) > _KINDS_MAX:
            self._short_runs.popitem(last=False)


class ClientGoneError(Exception):
    """The client has closed its connection: no answer can be sent."""


class EnginePool:
    """Runs calls of the engine outside of the event loop."""

    def __init__(self, threads: int = THREADS_DEFAULT) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="omnigraph-engine")

    async def run(self, call: Callable[..., T], *args: object) -> T:
        """Run a call to its end, whether or not its client stays."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(call, *args))

    def start(self, call: Callable[[], None]) -> None:
        """Run a call without waiting for it."""
        try:
            self._threads.submit(call)
        except RuntimeError:
            # The pool is closed already.
            call()

    async def run_cancellable(self, call: Callable[[threading.Event], T], receive: Receive) -> T:
        """Run a call that looks at an event, which is set when the client goes away."""
        cancelled = threading.Event()
        work = asyncio.ensure_future(self.run(call, cancelled))
        done, _ = await asyncio.wait((work,), timeout=_SHORT_S)
        if done:
            return work.result()
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                cancelled.set()
                await asyncio.wait((work,))
                raise ClientGoneError
            return work.result()
        finally:
            cancelled.set()
            gone.cancel()

    def close(self) -> None:
        """Wait for what is running, and stop."""
        self._threads.shutdown(wait=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
