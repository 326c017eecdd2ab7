"""Branches: listing, creating, deleting, merging."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Job, MergeResult, require_queries_hold
from omnigraph.names import MAIN
from omnigraph.server.call import Call, json_answer
from omnigraph.server.errors import ClusterOwnsSchemaError
from omnigraph.server.http.decode import branch_name
from omnigraph.server.routes.shapes import NAMESPACE, commit_shape, steps_shape
from omnigraph.wire.requests import BranchCreateRequest, BranchMergeRequest

BYTES: Final = 256
"""What a change of branches counts for in admission."""


async def list_(call: Call) -> Response:
    """List the branches."""
    call.authorize("read")
    names = await call.run(call.served.graph.branch_list)
    return json_answer({"branches": sorted(names)})


async def create(call: Call) -> Response:
    """Cut a branch from the head of another one."""
    request = await call.body(BranchCreateRequest)
    name, source = branch_name(request.name), branch_name(request.from_)
    call.authorize("branch_create", branch=source, target_branch=name)
    graph = call.served.graph
    call.served.require_no_export()
    with call.admitted(BYTES):
        await call.run(lambda: graph.branch_create_from(source, name, actor_id=call.actor))
    shape = {"uri": graph.uri, "from": source, "name": name, "actor_id": call.actor}
    return json_answer(shape)


async def delete(call: Call) -> Response:
    """Delete a branch."""
    name = branch_name(call.params["branch"])
    call.authorize("branch_delete", target_branch=name)
    await _delete(call, name)
    shape = {"uri": call.served.graph.uri, "name": name, "actor_id": call.actor}
    return json_answer(shape)


async def _delete(call: Call, name: str) -> None:
    graph = call.served.graph
    call.served.require_no_export()
    with call.admitted(BYTES):
        await call.run(lambda: graph.branch_delete(name, actor_id=call.actor))


async def merge(call: Call) -> Response:
    """Merge a branch into another one."""
    request = await call.body(BranchMergeRequest)
    source, target = branch_name(request.source), branch_name(request.target, MAIN)
    if request.dry_run:
        call.authorize("read", branch=source)
        call.authorize("read", branch=target)
    else:
        call.authorize("branch_merge", branch=source, target_branch=target)
    with call.admitted(BYTES):
        result = await call.run(lambda: _merge(call, request, source, target))
    shape: dict[str, Any] = result.to_json()
    if result.schema_changes.steps:
        shape["schema_changes"] = steps_shape(result.schema_changes)
    if result.commit is not None:
        shape["commit"] = commit_shape(result.commit)
    if request.delete_branch and not request.dry_run:
        problem = await _deleted(call, source)
        shape["branch_deleted"] = problem is None
        if problem is not None:
            shape["branch_delete_error"] = problem
    return json_answer(shape)


def _merge(call: Call, request: BranchMergeRequest, source: str, target: str) -> MergeResult:
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        # The usual library: a number of a request may have more than 64 bits.
        file.writelines(json.dumps(row).encode() + b"\n" for row in request.resolutions or ())
        file.flush()
        return call.served.graph.branch_merge(
            source,
            target,
            strategy=request.strategy,
            prefer=request.prefer,
            schema=request.schema,
            allow_data_loss=request.allow_data_loss,
            check_schema=partial(require_may_take, call, target),
            resolve_file=None if request.resolutions is None else Path(file.name),
            dry_run=request.dry_run,
            message=request.message,
            properties=request.properties,
            retries=request.retries,
            actor_id=call.actor,
            job=Job(NAMESPACE, "merge"),
        )


def require_may_take(call: Call, target: str, schema: str) -> None:
    """Refuse a schema that a schema apply on the target would refuse."""
    call.authorize("schema_apply", target_branch=target)
    call.served.require_no_export()
    if target != MAIN:
        return
    if call.served.is_in_cluster:
        raise ClusterOwnsSchemaError
    require_queries_hold(call.served.queries, schema)


async def _deleted(call: Call, name: str) -> str | None:
    """Delete a merged branch; return why not if that fails."""
    try:
        call.authorize("branch_delete", target_branch=name)
        await _delete(call, name)
    except OmnigraphError as error:
        return str(error)
    return None
