"""What a route is: one row of the table that routing and OpenAPI are made from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import UnionType
from typing import TypeAlias

from starlette.responses import Response

from omnigraph.server.call import Call
from omnigraph.wire.responses import ErrorOutput

Handler: TypeAlias = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True)
class Route:
    """One operation of the API.

    `request` is the record of a JSON body, `raw_body` the media type of another one; `response` is
    the record of a JSON answer, or a media type. `forms` are the other media types that a request
    may ask for with `Accept`. `errors` are the statuses beyond those of every protected route.
    """

    method: str
    path: str
    operation_id: str
    summary: str
    handler: Handler
    response: type | UnionType | str
    forms: tuple[str, ...] = ()
    request: type | None = None
    query: type | None = None
    raw_body: str | None = None
    body_optional: bool = False
    errors: tuple[int, ...] = ()
    error: type = ErrorOutput
    headers: tuple[str, ...] = ()
    successor: str | None = None
    """The route that replaces this one; its answers then carry `Deprecation`."""
    is_public: bool = False

    @property
    def has_graph(self) -> bool:
        """Whether the path names a graph."""
        return "{graph_id}" in self.path
