"""Errors that only a server raises, each with its HTTP status."""

from __future__ import annotations

from typing import ClassVar

from omnigraph.errors import (
    ConflictError,
    DeniedError,
    InvalidInputError,
    NotFoundError,
    OmnigraphError,
)
from omnigraph.names import MAIN


class UnauthorizedError(DeniedError):
    """The request has no token, or one that is not known."""

    code = "OG-HTTP-UNAUTHORIZED"
    status: ClassVar[int] = 401
    hint = "send `Authorization: Bearer TOKEN`"
    template = "{problem}"
    problem: str


class ForbiddenError(DeniedError):
    """A policy, or the lack of one, refuses the request."""

    code = "OG-HTTP-FORBIDDEN"
    hint = "ask for a rule that permits it, or act as someone who may"
    template = "{problem}"
    problem: str


class PolicyFailedError(OmnigraphError):
    """The policy of a graph could not be evaluated for a request; this is no denial."""

    code = "OG-HTTP-POLICY"
    hint = "the log of the server has the details"
    template = "policy: {reason}"
    reason: str


class UnknownGraphError(NotFoundError):
    """No graph of this id is served."""

    code = "OG-HTTP-GRAPH"
    hint = "`GET /graphs` lists the graphs that are served"
    template = "graph '{graph_id}' not found"
    graph_id: str


class RequestError(InvalidInputError):
    """A request that cannot be read: its body, its content type, its query string, its headers."""

    code = "OG-HTTP-REQUEST"
    hint = "`GET /openapi.json` describes every request"
    template = "{problem}"
    problem: str
    status: int = 400


class BodyTooLargeError(InvalidInputError):
    """A body is larger than its route takes."""

    code = "OG-HTTP-BODY-SIZE"
    hint = "send less at once; `POST load/ndjson` takes a load of any size"
    status: ClassVar[int] = 413
    template = "the body is larger than {limit} bytes"
    limit: int
    resource: str | None = None
    actual: int = 0

    @property
    def details(self) -> dict[str, object] | None:
        """The limit, where the route names it."""
        if self.resource is None:
            return None
        limit = {"resource": self.resource, "limit": self.limit, "actual": self.actual}
        return {"resource_limit": limit}


class TooManyRequestsError(ConflictError):
    """An actor has too many writes in flight, or too many bytes of them."""

    code = "OG-HTTP-ADMISSION"
    status: ClassVar[int] = 429
    hint = "try again later"
    template = "too many requests of '{actor}': {problem}"
    actor: str
    problem: str


class StreamBusyError(InvalidInputError):
    """Another stream of the graph, or too many streams of the process, are open."""

    code = "OG-HTTP-STREAMS"
    hint = "try again when the other export is finished"
    template = "{resource}: the limit is {limit}"
    resource: str
    limit: int
    actual: int

    @property
    def details(self) -> dict[str, object]:
        """The limit that was reached."""
        limit = {"resource": self.resource, "limit": self.limit, "actual": self.actual}
        return {"resource_limit": limit}


class StoredQueryNotFoundError(NotFoundError):
    """No stored query of this name, or none that the caller may see."""

    code = "OG-HTTP-STORED-QUERY"
    hint = "`GET queries` lists the stored queries"
    template = "stored query not found"


class StoredQueryUnfitError(InvalidInputError):
    """A stored query does not compile against the schema of the branch that it should run on."""

    code = "OG-HTTP-QUERY-UNFIT"
    template = "the stored query '{name}' does not fit the schema of branch '{branch}': {problem}"
    name: str
    branch: str
    problem: str

    def _hint(self) -> str:
        if self.branch == MAIN:
            return "run it on the newest state; stored queries are checked against that of main"
        return f"bring the branch up to date: `omnigraph branch merge main --into {self.branch}`"


class BootRefusedError(InvalidInputError):
    """The server does not start as it is configured."""

    code = "OG-SERVE"

    def __init__(self, problem: str, hint: str) -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(problem)


class ClusterOwnsSchemaError(ConflictError):
    """The schema of `main` of a graph in a cluster is changed by the cluster."""

    code = "OG-HTTP-CLUSTER-SCHEMA"
    hint = "change the schema file of the cluster, then `omnigraph cluster apply`"
    template = "the schema of this graph is applied by its cluster"
