"""The schemas of a graph: one per branch."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from omnigraph.graph import (
    ReadTarget,
    SchemaApplied,
    SourceText,
    queries_that_break,
    require_queries_hold,
)
from omnigraph.names import MAIN
from omnigraph.server.call import Call, json_answer
from omnigraph.server.errors import ClusterOwnsSchemaError
from omnigraph.server.http.decode import branch_name
from omnigraph.server.routes.differences import readable, shown
from omnigraph.server.routes.shapes import commit_shape, steps_shape
from omnigraph.wire.requests import BranchQuery, SchemaApplyRequest, SchemaDiffQuery


async def show(call: Call) -> Response:
    """Return the schema of a branch as text."""
    asked = call.query(BranchQuery).branch
    branch = branch_name(asked)
    # Without a branch the question is about the graph, as it has always been.
    call.authorize("read", branch=None if asked is None else branch)
    source = await call.run(lambda: call.served.graph.schema.source(branch=branch))
    return json_answer({"schema_source": source})


async def diff(call: Call) -> Response:
    """Return the steps from the schema of one state to that of another."""
    query = call.query(SchemaDiffQuery)
    before, after = await readable(call, query.from_), await readable(call, query.to)
    first, second = (ReadTarget.commit(ref["graph_commit_id"]) for ref in (before, after))
    found = await call.run(lambda: call.served.graph.schema.diff(first, second))
    return json_answer(
        {
            "from": shown(before),
            "to": shown(after),
            "supported": found.supported,
            "step_count": len(found.steps),
            "steps": steps_shape(found),
        }
    )


async def apply(call: Call) -> Response:
    """Make a schema the accepted one of a branch."""
    request = await call.body(SchemaApplyRequest)
    branch = branch_name(request.branch)
    call.authorize("schema_apply", target_branch=branch)
    served = call.served
    if served.is_in_cluster and branch == MAIN:
        raise ClusterOwnsSchemaError
    served.require_no_export()
    with call.admitted(len(request.schema_source.encode())):
        applied = await call.run(_apply, call, request, branch)
    shape: dict[str, object] = {
        "uri": served.graph.uri,
        "step_count": len(applied.plan.steps),
        **applied.to_json(),
    }
    shape |= {"steps": steps_shape(applied.plan), "commit": commit_shape(applied.commit)}
    if applied.warnings:
        shape["warnings"] = list(applied.warnings)
    return json_answer(shape)


def _apply(call: Call, request: SchemaApplyRequest, branch: str) -> SchemaApplied:
    served = call.served
    if branch == MAIN:
        require_queries_hold(served.queries, request.schema_source)
    applied = served.graph.schema.apply(
        # Only a text: a bare text may be the name of a file, which would be one of this machine.
        SourceText(request.schema_source),
        branch=branch,
        allow_data_loss=request.allow_data_loss,
        actor_id=call.actor,
        message=request.message,
        properties=request.properties,
    )
    if branch == MAIN or not applied.applied:
        return applied
    return replace(applied, warnings=(*applied.warnings, *_unfit(call, request, branch)))


def _unfit(call: Call, request: SchemaApplyRequest, branch: str) -> list[str]:
    """Return a warning for each stored query that no longer runs on a branch."""
    return [
        f"the stored query '{problem.key}' does not fit branch '{branch}': {problem.message}"
        for problem in queries_that_break(call.served.queries, request.schema_source)
    ]
