"""Tags: named commits."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph.graph import ReadTarget
from omnigraph.server.call import Call, json_answer
from omnigraph.server.routes.branches import BYTES
from omnigraph.wire.requests import TagCreateRequest


async def list_(call: Call) -> Response:
    """List the tags by name."""
    call.authorize("read")
    tags = await call.run(call.served.graph.tag_list)
    return json_answer({"tags": [tag.to_json() for tag in tags]})


async def create(call: Call) -> Response:
    """Name a commit."""
    request = await call.body(TagCreateRequest)
    call.authorize("branch_create", target_branch=request.name)
    graph, commit_id = call.served.graph, request.graph_commit_id
    target = None if commit_id is None else ReadTarget.commit(commit_id)
    with call.admitted(BYTES):
        tag = await call.run(lambda: graph.tag_create(request.name, target, actor_id=call.actor))
    return json_answer({"uri": graph.uri, **tag.to_json()})


async def delete(call: Call) -> Response:
    """Forget a tag; the commit stays."""
    name = call.params["name"]
    call.authorize("branch_delete", target_branch=name)
    graph = call.served.graph
    with call.admitted(BYTES):
        await call.run(lambda: graph.tag_delete(name, actor_id=call.actor))
    return json_answer({"uri": graph.uri, "name": name})
