"""Connections: how many there may be, and how long one may take to send a request.

1. A connection that sends nothing, half a request line, or a byte now and then is closed after a
   while; it costs no thread and no task until its headers are complete.
2. A body may take as long as it needs while it moves: a deadline is put off when enough bytes have
   come, and does not run while the server itself does not read.
3. How slowly a client reads its answer is not limited here: streams have their share of memory.
4. A connection beyond the limit is answered with 503 and closed.

Every refusal is a JSON error, as those of routes are. A request that comes whole costs nothing of
this: a timer is set only for what is incomplete.
"""

from __future__ import annotations

import asyncio
import resource
from asyncio.events import TimerHandle
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import ClassVar, Final

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

FILES_KEPT: Final = 1024
"""Open files that are left for storage."""
_BODY_STEP: Final = 1024
"""So many bytes of a body put off its deadline."""


@dataclass(frozen=True)
class ConnectionLimits:
    """What one process allows."""

    connections_max: int = 16_384
    header_bytes_max: int = 65_536
    idle_max_s: float = 120.0
    """Until the first byte."""
    header_max_s: float = 30.0
    """From the first byte of a request to the end of its headers."""
    body_idle_max_s: float = 60.0
    """Between a KiB of a body and the next, or its end."""

    def fitted(self) -> ConnectionLimits:
        """Raise the limit of open files as far as allowed; return limits that fit below it."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self.connections_max + FILES_KEPT
        if soft != resource.RLIM_INFINITY and soft < wanted:
            allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
            soft = allowed
            kept = min(FILES_KEPT, soft // 2)
            return replace(self, connections_max=min(self.connections_max, soft - kept))
        return self


class Connection(HttpToolsProtocol):
    """One connection of a client."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()
    _timer: TimerHandle | None = None
    _deadline: float | None = None
    _is_whole = True
    """Whether no request is incomplete."""
    _has_headers = False
    _count = 0
    """Bytes of headers, or of the body since the deadline was put off."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # narrower than asyncio says, as uvicorn has it
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections_max:
            self._refuse(503, "too many connections: try again later")
            return
        self._set_deadline(self.limits.idle_max_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of requests."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_whole:
            self._deadline = None
        else:
            self._count_incomplete(len(data))

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._is_whole = self._has_headers = False
        self._count, self._deadline = 0, None
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End the headers of a request."""
        self._has_headers = True
        self._count, self._deadline = 0, None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End a request."""
        self._is_whole = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(400, msg)

    def _count_incomplete(self, count: int) -> None:
        """Look at what came of a request that is not whole yet."""
        self._count += count
        if not self._has_headers:
            if self._count > self.limits.header_bytes_max:
                self._refuse(
                    431, f"the headers have more than {self.limits.header_bytes_max} bytes"
                )
            elif self._deadline is None:
                self._set_deadline(self.limits.header_max_s)
        elif self._deadline is None or self._count >= _BODY_STEP:
            self._count = 0
            self._set_deadline(self.limits.body_idle_max_s)

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = self.loop.time() + seconds
        if self._timer is None:
            self._timer = self.loop.call_at(self._deadline, self._look)

    def _look(self) -> None:
        """Close the connection if its deadline has passed; otherwise look again at it."""
        self._timer = None
        if self._deadline is None or self.transport.is_closing():
            return
        if self._waits_for_us():
            self._set_deadline(self.limits.body_idle_max_s)
        elif self._deadline > self.loop.time():
            self._timer = self.loop.call_at(self._deadline, self._look)
        elif self._is_whole:
            # Nothing was asked.
            self.transport.close()
        else:
            self._refuse(408, "the request did not come in time")

    def _waits_for_us(self) -> bool:
        """Whether the client cannot send, because the server does not read."""
        is_told_to_wait = self._has_headers and self.cycle.waiting_for_100_continue
        return self.flow.read_paused or is_told_to_wait

    def _refuse(self, status: int, text: str) -> None:
        """Answer with an error if no answer has begun, and close the connection."""
        if not self._is_answering():
            self.transport.write(_error_bytes(status, text))
        self.transport.close()

    def _is_answering(self) -> bool:
        # There is no cycle before the first request.
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.response_started and not cycle.response_complete


def _error_bytes(status: int, text: str) -> bytes:
    shape = {"error": text} | ({"code": "bad_request"} if status == 400 else {})
    body = orjson.dumps(shape)
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        "x-content-type-options: nosniff\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body


def protocol(limits: ConnectionLimits) -> type[Connection]:
    """Return the protocol of a server with these limits."""
    return type("LimitedConnection", (Connection,), {"limits": limits})
