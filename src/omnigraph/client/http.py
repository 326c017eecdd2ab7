"""Sending requests: what a call is, and the errors that come back.

A call is a value: method, path, what to send, and how to read the answer. The synchronous and the
asynchronous client send the same calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import httpx2
import orjson

import omnigraph.graph.late
import omnigraph.schema
from omnigraph.errors import (
    CorruptError,
    OmnigraphError,
    OutcomeUnknownError,
    UnavailableError,
)
from omnigraph.graph import BranchNotFoundError, TagNotFoundError
from omnigraph.late import load_all
from omnigraph.syntax import SourceError, SourceText
from omnigraph.wire.http_errors import error_of

T = TypeVar("T")
CONDITION: Final = "Omnigraph-If-Graph-Commit"
TIMEOUT: Final = httpx2.Timeout(60.0, read=None)
"""Queries and loads take as long as they take; reaching the server does not."""

NOT_FOUND: Final = 404
BROKEN: Final = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)
"""What a connection raises that the server has closed meanwhile."""


class ServerUnreachableError(UnavailableError):
    """A server does not answer; nothing was changed."""

    code = "OG-SERVER-UNREACHABLE"
    hint = "check the address, and that the server runs"
    template = "{url} does not answer: {reason}"
    url: str
    reason: str


class AnswerLostError(OutcomeUnknownError):
    """The connection broke before the answer came: a write may have happened."""

    code = "OG-ANSWER-LOST"
    hint = "look at the newest commits of the branch before you try again"
    template = "the answer of {url} was lost: {reason}"
    url: str
    reason: str


class StreamBrokenError(UnavailableError):
    """A stream ended before its end: what came of it is incomplete."""

    code = "OG-STREAM-BROKEN"
    hint = "discard what came, and ask again"
    template = "the stream of {url} broke off: {reason}"
    url: str
    reason: str


class AnswerMismatchError(CorruptError):
    """An answer is not what was asked for."""

    code = "OG-ANSWER-MISMATCH"
    hint = "ask again; if it happens again, something between here and the server changes answers"
    template = "the answer of {url} has the {what} {found}, expected {expected}"
    url: str
    what: str
    expected: str
    found: str


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class HttpCall(Generic[T]):
    """One request, and how to read its answer.

    `content` is bytes, or what yields them. A call that `is_read` changes nothing and may be
    repeated. `source` is the text that positions in errors refer to. `maybe_tags` are
    names that stand for tags where there is no branch of that name.
    """

    method: str
    path: str
    read: Callable[[Answer], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    json: object = None
    content: bytes | Iterable[bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_read: bool = False
    accepted: tuple[int, ...] = ()
    source: SourceText | None = None
    maybe_tags: frozenset[str] = frozenset()

    def request(
        self, client: httpx2.Client | httpx2.AsyncClient, content: Any = None
    ) -> httpx2.Request:
        """Return the request to send; `content` replaces that of the call."""
        headers = dict(self.headers)
        if content is None:
            content = self.content
        if self.json is not None:
            content = json_bytes(self.json)
            headers.setdefault("Content-Type", "application/json")
        given = {name: value for name, value in self.params.items() if value is not None}
        return client.build_request(
            self.method,
            self.path,
            params=httpx2.QueryParams(given),
            content=content,
            headers=headers,
        )

    def with_tag(self, status: int, body: bytes) -> HttpCall[T] | None:
        """Return the call to send when a name that it has is not that of a branch."""
        if status != NOT_FOUND or not self.maybe_tags:
            return None
        error = self.error(status, body)
        if not isinstance(error, BranchNotFoundError) or error.branch not in self.maybe_tags:
            return None
        name = error.branch
        return replace(
            self,
            json=_with_tag(self.json, name),
            params=_with_tag(self.params, name),
            maybe_tags=self.maybe_tags - {name},
        )

    def finds_no_tag(self, status: int, body: bytes) -> bool:
        """Whether an answer says that a tag does not exist."""
        return status == NOT_FOUND and isinstance(self.error(status, body), TagNotFoundError)

    def is_refused(self, status: int) -> bool:
        """Whether an answer stands for an error."""
        return status >= 300 and status not in self.accepted

    def result(self, answer: Answer) -> T:
        """Return the result that an answer stands for, or raise its error."""
        if self.is_refused(answer.status):
            raise self.error(answer.status, answer.body)
        return self.read(answer)

    def error(self, status: int, body: bytes) -> OmnigraphError:
        """Return the error that an answer stands for."""
        error = error_of(status, body, classes=error_classes())
        if self.source is not None and isinstance(error, SourceError):
            return error.named(self.source)
        return error

    def failure(self, error: httpx2.HTTPError, url: str) -> OmnigraphError:
        """Return the error that a request without an answer stands for."""
        reason = str(error) or type(error).__name__
        unsent = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
        if self.is_read or isinstance(error, unsent):
            return ServerUnreachableError(url, reason)
        return AnswerLostError(url, reason)


def _with_tag(fields: Any, name: str) -> Any:
    """Return the fields of a request with a tag in place of the branch of this name."""
    if not isinstance(fields, Mapping):
        return fields
    return {
        ("tag" if (key, value) == ("branch", name) else key): (
            f"tag:{name}" if value == f"branch:{name}" else value
        )
        for key, value in fields.items()
    }


def segment(name: str) -> str:
    """Return one part of a path; a slash of a name is no separator.

    >>> segment("a/b")
    'a%2Fb'
    """
    return quote(name, safe="")


def json_bytes(value: object) -> bytes:
    """Return the JSON of a request; the server says what is wrong with a number beyond 64 bits."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()


def json_of(read: Callable[[Any], T]) -> Callable[[Answer], T]:
    """Return a reader of JSON answers."""
    return lambda answer: read(orjson.loads(answer.body))


def headers_of(token: str | None) -> dict[str, str]:
    """Return the headers of every request."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


class Lines:
    r"""Cuts a stream of bytes into lines; only a line feed ends one.

    >>> cut = Lines()
    >>> list(cut.of(b'a\nb')), list(cut.of(b'c\n')), cut.rest
    ([b'a\n'], [b'bc\n'], b'')
    """

    def __init__(self) -> None:
        self.rest = b""

    def of(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that a chunk ends."""
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"


@cache
def error_classes() -> dict[str, type[OmnigraphError]]:
    """Return the classes of the library's errors by code; the most special one of a code.

    A client knows nothing of those that only a server raises. Importing a room defines its errors.
    """
    for face in (omnigraph.graph, omnigraph.graph.late, omnigraph.schema):
        load_all(face)
    found: dict[str, type[OmnigraphError]] = {}
    kinds: list[type[OmnigraphError]] = [OmnigraphError]
    while kinds:
        kind = kinds.pop(0)
        if not kind.__module__.startswith("omnigraph.server."):
            found[kind.code] = kind
        kinds += kind.__subclasses__()
    return found
