"""One POST with a limit on its whole time, by the standard library alone.

A socket's own timeout starts anew with every byte, so a server that sends slowly can hold a caller
for ever. A timer therefore closes the connection when the time is over.
"""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

_BODY_MAX_BYTES: Final = 256 << 20
_SCHEMES: Final = ("http://", "https://")


@dataclass(frozen=True)
class Answer:
    """The answer of a server."""

    status: int
    body: bytes
    retry_after_s: float = 0.0
    """How long the server asks to wait before the next attempt."""


class NoAnswerError(Exception):
    """There was no answer: a refused or lost connection, or the time was over."""

    def __init__(self, reason: str, *, timed_out: bool) -> None:
        self.timed_out = timed_out
        super().__init__(reason)


@dataclass
class _Connections:
    """The sockets of one request, so that another thread can end them.

    A connection drops its socket once the answer begins; the sockets are therefore held here.
    """

    sockets: list[socket.socket] = field(default_factory=list)
    is_over: bool = False

    def end(self) -> None:
        self.is_over = True
        for opened in self.sockets:
            with suppress(OSError):
                # Closing alone would leave a read in another thread waiting.
                opened.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for opened in self.sockets:
            opened.close()


def post(url: str, *, headers: Mapping[str, str], body: bytes, limit_s: float) -> Answer:
    """Send a request and read the answer within `limit_s`; follows no redirect."""
    if not url.startswith(_SCHEMES):
        raise NoAnswerError(f"expected a URL that starts with http:// or https://, got {url}",
                            timed_out=False)  # fmt: skip
    connections = _Connections()
    opener = urllib.request.build_opener(_Handler(connections), _NoRedirect())
    request = urllib.request.Request(  # noqa: S310 - the scheme has been checked
        url, data=body, headers=dict(headers), method="POST"
    )
    timer = threading.Timer(limit_s, connections.end)
    timer.daemon = True
    timer.start()
    try:
        answer = _answer(opener, request, limit_s)
        if connections.is_over:
            raise TimeoutError
        return answer
    except (OSError, http.client.HTTPException) as error:
        timed_out = connections.is_over or isinstance(error, TimeoutError)
        reason = f"no answer within {limit_s * 1000:.0f} ms" if timed_out else str(error)
        raise NoAnswerError(reason, timed_out=timed_out) from error
    finally:
        timer.cancel()
        connections.close()


def _answer(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, limit_s: float
) -> Answer:
    try:
        with opener.open(request, timeout=limit_s) as response:
            return Answer(response.status, _read(response))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, _read(error), _seconds(error.headers.get("Retry-After")))


def _read(response: Any) -> bytes:
    body: bytes = response.read(_BODY_MAX_BYTES + 1)
    if len(body) > _BODY_MAX_BYTES:
        raise http.client.HTTPException(f"the answer is longer than {_BODY_MAX_BYTES} bytes")
    return body


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isascii() and text.isdecimal() else 0.0


class _Handler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens connections and notes their sockets."""

    def __init__(self, connections: _Connections) -> None:
        super().__init__()
        self._connections = connections

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self._open(http.client.HTTPConnection, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self._open(http.client.HTTPSConnection, req)

    def _open(
        self, kind: type[http.client.HTTPConnection], req: urllib.request.Request
    ) -> http.client.HTTPResponse:
        def made(host: str, **options: Any) -> http.client.HTTPConnection:
            connection = kind(host, **options)
            connect = connection.connect

            def noted() -> None:
                connect()
                self._connections.sockets.append(connection.sock)

            connection.connect = noted  # type: ignore[method-assign]  # for one connection only
            return connection

        return self.do_open(made, req)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another server."""

    def redirect_request(self, *_: object) -> None:
        return None
