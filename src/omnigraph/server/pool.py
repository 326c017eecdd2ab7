"""The engine is plain synchronous Python: it runs in a bounded pool of threads.

A client that goes away cancels its call: the event of the call is set, and the engine stops at its
next check. Looking for that costs a task, so it begins only when a call takes longer than most.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

THREADS_DEFAULT: Final = 8
_SHORT_S: Final = 0.05

T = TypeVar("T")
Receive = Callable[[], Awaitable[Any]]


class ClientGoneError(Exception):
    """The client has closed its connection: there is nobody to answer."""


class EnginePool:
    """Runs calls of the engine outside of the event loop."""

    def __init__(self, threads: int = THREADS_DEFAULT) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="omnigraph-engine")

    async def run(self, call: Callable[..., T], *args: object) -> T:
        """Run a call to its end, whether or not its client stays."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(call, *args))

    def start(self, call: Callable[[], None]) -> None:
        """Run a call that nobody waits for."""
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
