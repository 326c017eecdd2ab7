"""Sending requests: what a call is, and the errors that come back.

A call is a value: method, path, what to send, and how to read the answer. The synchronous and the
asynchronous client send the same calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import httpx2
import orjson

import omnigraph.graph  # noqa: F401 - its import defines the classes of errors
from omnigraph.errors import OmnigraphError, OutcomeUnknownError, UnavailableError
from omnigraph.wire.http_errors import error_of

T = TypeVar("T")
CONDITION: Final = "Omnigraph-If-Graph-Commit"
TIMEOUT: Final = httpx2.Timeout(60.0, read=None)
"""Queries and loads take as long as they take; reaching the server does not."""


class ServerUnreachableError(UnavailableError):
    """A server does not answer; nothing was sent."""

    code = "OG-SERVER-UNREACHABLE"
    hint = "check the address, and that the server runs"

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"{url} does not answer: {reason}")


class AnswerLostError(OutcomeUnknownError):
    """The connection broke before the answer came: a write may have happened."""

    code = "OG-ANSWER-LOST"
    hint = "look at the newest commits of the branch before you try again"

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"the answer of {url} was lost: {reason}")


@dataclass(frozen=True)
class HttpCall(Generic[T]):
    """One request, and how to read its answer."""

    method: str
    path: str
    read: Callable[[bytes], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    json: object = None
    content: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(self, client: httpx2.Client | httpx2.AsyncClient) -> httpx2.Request:
        """Return the request to send."""
        headers = dict(self.headers)
        content = self.content
        if self.json is not None:
            content = orjson.dumps(self.json)
            headers.setdefault("Content-Type", "application/json")
        return client.build_request(
            self.method, self.path, params=_flat(self.params), content=content, headers=headers
        )

    def answer(self, status: int, body: bytes) -> T:
        """Return the result that an answer stands for, or raise its error."""
        if status >= 300:
            raise error_of(status, body, classes=error_classes())
        return self.read(body)


def _flat(params: Mapping[str, Any]) -> httpx2.QueryParams:
    """Return a query string; a list is a parameter that repeats."""
    given = {name: value for name, value in params.items() if value is not None}
    return httpx2.QueryParams(given)


def segment(name: str) -> str:
    """Return one part of a path; a slash of a name is no separator."""
    return quote(name, safe="")


def json_of(read: Callable[[Any], T]) -> Callable[[bytes], T]:
    """Return a reader of JSON answers."""
    return lambda data: read(orjson.loads(data))


def failure(error: httpx2.HTTPError, url: str) -> OmnigraphError:
    """Return the error that a failed request stands for."""
    if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)):
        return ServerUnreachableError(url, str(error) or type(error).__name__)
    return AnswerLostError(url, str(error) or type(error).__name__)


@cache
def error_classes() -> dict[str, type[OmnigraphError]]:
    """Return the classes of the library's errors by code; the most special one of a code."""
    found: dict[str, type[OmnigraphError]] = {}
    kinds: list[type[OmnigraphError]] = [OmnigraphError]
    while kinds:
        kind = kinds.pop(0)
        found[kind.code] = kind
        kinds += kind.__subclasses__()
    return found
