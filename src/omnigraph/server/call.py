"""One request on its way through the server: who asks, for which graph, and what for.

The order is that of the contract: token, graph, body and query string, authorization, admission,
operation. A route calls these steps one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec
import orjson
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.clock import Clock, SystemClock
from omnigraph.errors import NotFoundError
from omnigraph.graph import BranchNotFoundError, ReadTarget, TagNotFoundError
from omnigraph.names import MAIN
from omnigraph.server.admission import ANONYMOUS, Admission
from omnigraph.server.errors import RequestError
from omnigraph.server.graphs import Graphs, ServedGraph
from omnigraph.server.http.decode import (
    BODY_MAX,
    branch_name,
    decode_json,
    decode_query,
    read_body,
    require_json,
)
from omnigraph.server.http.transport import Transport
from omnigraph.server.limits import QueryLimits
from omnigraph.server.pool import EnginePool, Habits
from omnigraph.server.tokens import LiveTokens

JSON: Final = "application/json"
_DECODED_AT_ONCE_MAX: Final = 65_536
"""Larger bodies are decoded in a thread: other requests do not wait for it."""
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


@dataclass
class Serving:
    """What all requests of a process share."""

    tokens: LiveTokens
    graphs: Graphs
    admission: Admission
    pool: EnginePool
    requires_bearer: bool
    clock: Clock = field(default_factory=SystemClock)
    habits: Habits = field(default_factory=Habits)
    follow: Callable[[], None] = lambda: None
    """Called before a request is looked at: puts the revision in force into `graphs`."""
    refused_revision: int | None = None
    """The newest revision of the cluster, if it cannot be served."""
    transport: Transport = field(default_factory=Transport)
    query_limits: QueryLimits = field(default_factory=QueryLimits)


class Call:
    """A request of a route."""

    def __init__(
        self,
        serving: Serving,
        request: Request,
        params: Mapping[str, str],
        actor: str | None,
        served: ServedGraph | None,
    ) -> None:
        self.serving = serving
        self.request = request
        self.params = params
        self.actor = actor
        self._served = served

    @property
    def served(self) -> ServedGraph:
        """The graph of the path."""
        if self._served is None:
            raise TypeError("the route has no graph")
        return self._served

    # -- decoding ---------------------------------------------------------------------------------

    async def body(self, kind: type[T], *, limit: int = BODY_MAX, shape_status: int = 422) -> T:
        """Return the body as a record."""
        require_json(self.request.headers.get("content-type"))
        return await self.decoded(await read_body(self.request, limit), kind, shape_status)

    async def decoded(self, data: bytes, kind: type[T], shape_status: int) -> T:
        """Return JSON as a record."""
        if len(data) <= _DECODED_AT_ONCE_MAX:
            return decode_json(data, kind, shape_status=shape_status)
        return await self.run(lambda: decode_json(data, kind, shape_status=shape_status))

    def query(self, kind: type[S]) -> S:
        """Return the query string as a record."""
        return decode_query(self.request.scope["query_string"], kind)

    def header_once(self, name: str) -> str | None:
        """Return the only value of a header; a second one is an error."""
        values = self.request.headers.getlist(name)
        if len(values) > 1:
            raise RequestError(f"the header {name} stands twice")
        return values[0] if values else None

    # -- deciding ---------------------------------------------------------------------------------

    def authorize(
        self, action: str, *, branch: str | None = None, target_branch: str | None = None
    ) -> None:
        """Raise unless the actor may do it on the graph of the path."""
        self.served.gate.require(self.actor, action, branch=branch, target_branch=target_branch)

    def unnamed(self, error: BranchNotFoundError | TagNotFoundError) -> NotFoundError:
        """Return the error of an unknown name; one near it is for those who may list names."""
        if error.nearest is None or self.served.gate.allows(self.actor, "read"):
            return error
        if isinstance(error, BranchNotFoundError):
            return BranchNotFoundError(error.branch)
        return TagNotFoundError(error.tag)

    def admitted(self, size: int) -> AbstractContextManager[None]:
        """Reserve a write of so many bytes for the length of a `with` block, or raise."""
        return self.serving.admission.reserved(self.actor or ANONYMOUS, size)

    # -- running ----------------------------------------------------------------------------------

    async def run(self, call: Callable[..., T], *args: object) -> T:
        """Run a call of the engine to its end, even when the client goes away."""
        return await self.serving.pool.run(call, *args)

    async def run_cancellable(self, call: Callable[[threading.Event], T]) -> T:
        """Run a read of the engine; a client that goes away cancels it."""
        return await self.serving.pool.run_cancellable(call, self.request.receive)

    async def read_target(
        self,
        branch: str | None,
        snapshot: str | None,
        tag: str | None = None,
        at: int | None = None,
    ) -> tuple[ReadTarget, str]:
        """Return what to read, and the branch that a policy is asked about."""
        if sum(each is not None for each in (branch, snapshot, tag, at)) > 1:
            raise RequestError("give a branch or a snapshot, not both")
        graph = self.served.graph
        named = ReadTarget.tag(tag) if tag is not None else None
        if at is not None:
            named = ReadTarget.at(at)
        if named is not None:
            found = await self.run(graph.snapshot_of, named)
            return named, str(found.branch)
        if snapshot is not None:
            commit = await self.run(graph.get_commit, snapshot)
            return ReadTarget.commit(snapshot), commit.graph_branch or MAIN
        name = branch_name(branch)
        return ReadTarget.branch(name), name


def json_answer(
    shape: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON answer."""
    data = shape if isinstance(shape, bytes) else orjson.dumps(shape)
    return Response(data, status, headers, JSON)
