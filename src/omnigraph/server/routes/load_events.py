"""A load that reports its progress: server-sent events, the last one `result` or `error`.

The load runs whether or not its events are read; they are few, and those that are not read are
dropped. A client that goes away cancels a job of Spark; what this process does is finished.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import orjson
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Report
from omnigraph.server.call import Call
from omnigraph.wire.http_errors import http_answer

EVENTS: Final = "text/event-stream"
_QUEUED_MAX: Final = 100
_TICK_S: Final = 1.0

Load = Callable[[Report, threading.Event], Mapping[str, Any]]


class LoadEvents(StreamingResponse):
    """The events of one load; when the answer ends early, the load is cancelled."""

    def __init__(self, events: AsyncIterator[bytes], cancelled: threading.Event) -> None:
        super().__init__(events, media_type=EVENTS, headers={"Cache-Control": "no-store"})
        self._cancelled = cancelled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._cancelled.set()


def load_events(call: Call, load: Load) -> Response:
    """Start a load, and answer with its events."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[str, Mapping[str, Any]]] = asyncio.Queue()
    cancelled = threading.Event()

    def report(event: Mapping[str, object]) -> None:
        if queue.qsize() < _QUEUED_MAX:
            loop.call_soon_threadsafe(queue.put_nowait, ("progress", event))

    def run() -> tuple[str, Mapping[str, Any]]:
        try:
            return "result", load(report, cancelled)
        except OmnigraphError as error:
            status, shape = http_answer(error)
            return "error", {"status": status, **shape}

    work = asyncio.ensure_future(call.run(run))
    return LoadEvents(_events(call, work, queue), cancelled)


async def _events(
    call: Call,
    work: asyncio.Future[tuple[str, Mapping[str, Any]]],
    queue: asyncio.Queue[tuple[str, Mapping[str, Any]]],
) -> AsyncIterator[bytes]:
    began = call.serving.clock.monotonic_s()
    yield _event("progress", {"stage": "load", "seconds": 0.0})
    while not work.done():
        waiting = asyncio.ensure_future(queue.get())
        await asyncio.wait((work, waiting), timeout=_TICK_S, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            yield _event(*waiting.result())
            continue
        waiting.cancel()
        if not work.done():
            seconds = round(call.serving.clock.monotonic_s() - began, 3)
            yield _event("progress", {"stage": "load", "seconds": seconds})
    yield _event(*work.result())


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(data))
