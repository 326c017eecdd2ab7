"""A request as it came in: its headers, its id, and how far its body was read."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.requests import Request

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_REQUEST_ID: Final = "x-request-id"
_REQUEST_ID_MAX: Final = 128
_REST_MAX: Final = 65_536


class IndexedHeaders(Headers):
    """Headers by name. Each request asks for a dozen, and most of them are not there."""

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        super().__init__(raw=raw)
        # Of several headers of one name the first counts.
        self._first = dict(reversed(raw))

    def __getitem__(self, key: str) -> str:
        return self._first[key.lower().encode("latin-1")].decode("latin-1")

    def get(self, key: str, default: Any = None) -> Any:
        """Return the first value of a header."""
        value = self._first.get(key.lower().encode("latin-1"))
        return default if value is None else value.decode("latin-1")


class _Body:
    """The body as it comes. An object apart from its request, which would hold itself otherwise."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_read = False

    async def receive(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self.is_read = True
        return message


class IncomingRequest(Request):
    """A request that knows how far its body was read.

    The rest of a large body that nothing asks for would be received to its end, for the sake of the
    next request on the same connection. Such a connection is closed instead.
    """

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive) -> None:
        self._incoming = _Body(receive)
        super().__init__(scope, self._incoming.receive)

    @cached_property
    def headers(self) -> Headers:
        """The headers."""
        return IndexedHeaders(self.scope["headers"])

    @property
    def has_rest(self) -> bool:
        """Whether much of the body was not read, as far as its headers tell."""
        if self._incoming.is_read:
            return False
        declared = self.headers.get("content-length", "")
        is_large = declared.isdigit() and int(declared) > _REST_MAX
        return is_large or "transfer-encoding" in self.headers


class RequestIds:
    """Names requests: a text of this process, and a number."""

    def __init__(self, start: str) -> None:
        self._start = start
        self._numbers = itertools.count(1)

    def of(self, request: Request) -> str:
        """Return the id that the client gave, if it is fit to be shown, else a new one."""
        given = request.headers.get(_REQUEST_ID, "")
        if 0 < len(given) <= _REQUEST_ID_MAX and given.isascii() and given.isprintable():
            return given
        return f"{self._start}-{next(self._numbers)}"
