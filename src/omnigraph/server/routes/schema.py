"""The schema of a graph."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph.errors import ConflictError
from omnigraph.graph import SchemaApplied, SourceText, require_queries_hold
from omnigraph.names import MAIN
from omnigraph.server.call import Call, json_answer
from omnigraph.server.routes.shapes import commit_shape
from omnigraph.wire.requests import SchemaApplyRequest


class ClusterOwnsSchemaError(ConflictError):
    """The schema of a graph in a cluster is changed by the cluster."""

    code = "OG-HTTP-CLUSTER-SCHEMA"
    hint = "change the schema file of the cluster, then `omnigraph cluster apply`"
    template = "the schema of this graph is applied by its cluster"


async def show(call: Call) -> Response:
    """Return the schema as text."""
    call.authorize("read")
    return json_answer({"schema_source": await call.run(call.served.graph.schema_source)})


async def apply(call: Call) -> Response:
    """Make a schema the accepted one."""
    request = await call.body(SchemaApplyRequest)
    call.authorize("schema_apply", target_branch=MAIN)
    served = call.served
    if served.is_in_cluster:
        raise ClusterOwnsSchemaError
    served.require_no_export()
    with call.admitted(len(request.schema_source.encode())):
        applied = await call.run(_apply, call, request)
    steps = [{**step.to_json(), "text": step.render()} for step in applied.plan.steps]
    shape: dict[str, object] = {
        "uri": served.graph.uri,
        "step_count": len(steps),
        **applied.to_json(),
    }
    shape |= {"steps": steps, "commit": commit_shape(applied.commit)}
    if applied.warnings:
        shape["warnings"] = list(applied.warnings)
    return json_answer(shape)


def _apply(call: Call, request: SchemaApplyRequest) -> SchemaApplied:
    served = call.served
    require_queries_hold(served.queries, request.schema_source)
    return served.graph.apply_schema(
        # Only a text: a bare text may be the name of a file, which would be one of this machine.
        SourceText(request.schema_source),
        allow_data_loss=request.allow_data_loss,
        actor_id=call.actor,
        message=request.message,
        properties=request.properties,
    )
