"""Stored queries: their catalog, and running them by name.

A name that is unknown and one that the caller may not invoke give the same answer, byte for byte.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.responses import Response

from omnigraph.graph import QuerySelectionError, SourceError, StoredQuery, require_kind
from omnigraph.names import MAIN
from omnigraph.server.call import Call, json_answer
from omnigraph.server.errors import (
    ForbiddenError,
    RequestError,
    StoredQueryNotFoundError,
    StoredQueryUnfitError,
)
from omnigraph.server.http.decode import BODY_MAX, branch_name, read_body
from omnigraph.server.routes.query import (
    ReadOptions,
    change,
    checked_params,
    condition,
    read,
    refuse_condition,
)
from omnigraph.wire.requests import InvokeStoredQueryRequest

_log = logging.getLogger(__name__)


async def catalog(call: Call) -> Response:
    """List the stored queries."""
    call.authorize("read", branch=MAIN)
    return json_answer({"queries": call.served.queries.catalog()})


async def invoke(call: Call) -> Response:
    """Run a stored query."""
    refuse_condition(call, "/queries/{name}/if-graph-commit")
    request = await _body(call)
    return await _invoke(call, request, None)


async def invoke_if(call: Call) -> Response:
    """Run a stored mutation if the branch has the expected head."""
    expected = condition(call)
    request = await _body(call)
    return await _invoke(call, request, expected)


async def _body(call: Call) -> InvokeStoredQueryRequest:
    data = await read_body(call.request, BODY_MAX)
    if not data.strip() or data.strip() == b"null":
        return InvokeStoredQueryRequest()
    return await call.decoded(data, InvokeStoredQueryRequest, 400)


async def _invoke(
    call: Call, request: InvokeStoredQueryRequest, expected_head: str | None
) -> Response:
    stored = _find(call)
    require_kind(stored.query, expect_mutation=request.expect_mutation)
    is_mutation = stored.query.is_mutation
    if is_mutation and request.snapshot is not None:
        raise RequestError("a mutation runs on a branch: leave the snapshot away")
    if expected_head is not None and not is_mutation:
        raise RequestError(f"'{stored.name}' is a read: it takes no condition")
    params = checked_params(request.params)
    text = stored.source.text
    if not is_mutation:
        target, branch = await call.read_target(request.branch, request.snapshot)
        call.authorize("read", branch=branch)
        _note(call, stored)
        options = ReadOptions(strict_params=request.strict_params)
        with _fitting(stored, branch):
            return await read(call, text, stored.name, params, target, options=options)
    branch = branch_name(request.branch)
    call.authorize("change", branch=branch)
    _note(call, stored)
    with _fitting(stored, branch):
        return await change(
            call,
            text,
            stored.name,
            params,
            branch=branch,
            expected_head=expected_head,
            request=request,
        )


@contextmanager
def _fitting(stored: StoredQuery, branch: str) -> Iterator[None]:
    """Name the branch when a stored query does not compile against its schema.

    It compiles against that of `main`; another branch, or an older state, may have another one.
    """
    try:
        yield
    except SourceError as error:
        raise StoredQueryUnfitError(stored.name, branch, str(error)) from error


def _find(call: Call) -> StoredQuery:
    try:
        call.authorize("invoke_query")
        return call.served.queries.find(call.params["name"])
    except (ForbiddenError, QuerySelectionError) as error:
        raise StoredQueryNotFoundError from error


def _note(call: Call, stored: StoredQuery) -> None:
    _log.info(
        "stored query invoked",
        extra={
            "graph_id": call.served.graph_id,
            "actor_id": call.actor,
            "query": stored.name,
            "kind": "mutation" if stored.query.is_mutation else "read",
        },
    )
