"""Reads and mutations of a text."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any, Final

import orjson
from starlette.responses import Response

from omnigraph.graph import QueryKindError, QueryResult, QueryTimeoutError, ReadTarget
from omnigraph.server.call import Call, json_answer
from omnigraph.server.errors import RequestError
from omnigraph.server.http.decode import branch_name
from omnigraph.server.pool import timed_at_once, timed_in_thread
from omnigraph.server.routes.answers import read_answer
from omnigraph.server.routes.shapes import commit_shape
from omnigraph.wire.requests import (
    ChangeRequest,
    InvokeStoredQueryRequest,
    QueryRequest,
    ReadRequest,
)

INLINE_S: Final = 0.005
"""How long a read may hold up other requests."""
_FEW_ROWS: Final = 100
CONDITION: Final = "omnigraph-if-graph-commit"


class WrongRouteError(QueryKindError):
    """A mutation was sent to a route of reads, or the reverse."""

    def _message(self) -> str:
        found, route = self._wanted()
        return f"the query '{self.name}' contains {found}: use {route}"

    def _hint(self) -> str:
        return f"send it to {self._wanted()[1]}"

    def _wanted(self) -> tuple[str, str]:
        return ("mutations", "POST /mutate") if self.is_mutation else ("no mutation", "POST /query")


async def query(call: Call) -> Response:
    """Run a read query of a text."""
    request = await call.body(QueryRequest)
    target, branch = await call.read_target(
        request.branch, request.snapshot, request.tag, request.at
    )
    call.authorize("read", branch=branch)
    options = ReadOptions(
        request.explain,
        request.profile,
        request.timeout_ms,
        request.max_rows,
        request.strict_params,
    )
    params = checked_params(request.params)
    return await read(call, request.query, request.name, params, target, options=options)


async def legacy_read(call: Call) -> Response:
    """Run a read query, in the older shape."""
    request = await call.body(ReadRequest)
    target, branch = await call.read_target(request.branch, request.snapshot)
    call.authorize("read", branch=branch)
    params = checked_params(request.params)
    text, name = request.query_source, request.query_name
    limits = call.serving.query_limits

    def run(cancelled: threading.Event) -> bytes:
        result = call.served.graph.query(
            text,
            name,
            params,
            target=target,
            timeout_s=limits.timeout_ms / 1000,
            rows_max=limits.rows_max,
            memory_max=limits.memory_max,
            cancelled=cancelled,
            strict_params=False,
        )
        shape = result.envelope()
        order = ("query_name", "target", "row_count", "columns", "rows")
        return orjson.dumps({key: shape[key] for key in order if shape[key] != [] or key == "rows"})

    return json_answer(await call.run_cancellable(run))


@dataclass(frozen=True)
class ReadOptions:
    """How a read is to be answered, and the limits that its request asks for."""

    explain: bool = False
    profile: bool = False
    timeout_ms: int | None = None
    rows_max: int | None = None
    strict_params: bool = False
    """Whether a parameter that the query does not declare is an error, not a warning."""


async def read(
    call: Call,
    text: str,
    name: str | None,
    params: dict[str, Any],
    target: ReadTarget,
    *,
    options: ReadOptions | None = None,
) -> Response:
    """Run a read and answer in the form that the request accepts."""
    chosen = options or ReadOptions()
    limits = call.serving.query_limits.lowered(chosen.timeout_ms, chosen.rows_max)
    served = call.served
    accept = call.request.headers.get("accept", "")

    def run(cancelled: threading.Event | None, timeout_s: float) -> QueryResult:
        try:
            return served.graph.query(
                text,
                name,
                params,
                target=target,
                explain=chosen.explain,
                profile=chosen.profile,
                timeout_s=timeout_s,
                rows_max=limits.rows_max,
                memory_max=limits.memory_max,
                cancelled=cancelled,
                strict_params=chosen.strict_params,
            )
        except QueryKindError as error:
            raise WrongRouteError(error.name, is_mutation=True) from error

    def timed(cancelled: threading.Event) -> tuple[Response, float]:
        result, took = timed_in_thread(lambda: run(cancelled, limits.timeout_ms / 1000))
        return read_answer(result, accept), took if result.row_count <= _FEW_ROWS else 1.0

    habits, kind = call.serving.habits, (served.graph_id, text, name)
    if served.is_near and chosen.timeout_ms is None and habits.is_short(kind):
        try:
            found, took = timed_at_once(lambda: run(None, INLINE_S))
            habits.note(kind, took)
            return read_answer(found, accept)
        except QueryTimeoutError:
            habits.note(kind, INLINE_S)
    answer, took = await call.run_cancellable(timed)
    habits.note(kind, took)
    return answer


async def mutate(call: Call) -> Response:
    """Run a mutation query of a text as one commit."""
    refuse_condition(call, "/mutate/if-graph-commit")
    return await _mutate(call, None)


async def mutate_if(call: Call) -> Response:
    """Run a mutation query if the branch has the expected head."""
    return await _mutate(call, condition(call))


async def _mutate(call: Call, expected_head: str | None) -> Response:
    request = await call.body(ChangeRequest)
    text = _one(request.query, request.query_source, "query", "query_source")
    if text is None:
        raise RequestError("Object missing required field `query`", status=422)
    name = _one(request.name, request.query_name, "name", "query_name")
    branch = branch_name(request.branch)
    call.authorize("change", branch=branch)
    params = checked_params(request.params)
    return await change(
        call, text, name, params, branch=branch, expected_head=expected_head, request=request
    )


async def change(
    call: Call,
    text: str,
    name: str | None,
    params: dict[str, Any],
    *,
    branch: str,
    expected_head: str | None,
    request: ChangeRequest | InvokeStoredQueryRequest,
) -> Response:
    """Run a mutation under admission; `request` has what its commit says."""
    # The usual library: a number of a request may have more than 64 bits.
    size = len(text.encode()) + len(json.dumps(params))
    with call.admitted(size):
        try:
            result = await call.run(
                lambda: call.served.graph.mutate(
                    text,
                    name,
                    params,
                    branch=branch,
                    expected_head=expected_head,
                    message=request.message,
                    properties=request.properties,
                    retries=request.retries,
                    actor_id=call.actor,
                )
            )
        except QueryKindError as error:
            raise WrongRouteError(error.name, is_mutation=False) from error
    return json_answer({**result.to_json(), "commit": commit_shape(result.commit)})


def _one(value: str | None, older: str | None, name: str, old_name: str) -> str | None:
    if value is not None and older is not None:
        raise RequestError(f"`{name}` and `{old_name}` are the same: give one", status=422)
    return value if value is not None else older


def checked_params(given: Any) -> dict[str, Any]:
    """Return parameters as an object."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise RequestError("params must be an object")
    return given


def condition(call: Call) -> str:
    """Return the head that a conditional write expects: one raw id."""
    value = call.header_once(CONDITION)
    if (
        not value
        or value == "*"
        or value.startswith(("W/", '"'))
        or value.endswith('"')
        or "," in value
    ):
        raise RequestError("Omnigraph-If-Graph-Commit must be one id of a commit")
    return value


def refuse_condition(call: Call, instead: str) -> None:
    """Raise when the header of a conditional write stands on another route."""
    if call.request.headers.getlist(CONDITION):
        raise RequestError(f"Omnigraph-If-Graph-Commit needs the route {instead}")
