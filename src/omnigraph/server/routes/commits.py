"""Commits, and what a branch publishes."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph.graph import ReadTarget
from omnigraph.server.call import Call, json_answer
from omnigraph.server.errors import RequestError
from omnigraph.server.http.decode import branch_name
from omnigraph.server.routes.shapes import commit_shape
from omnigraph.wire.requests import BranchQuery, CommitsQuery


async def snapshot(call: Call) -> Response:
    """Return what a branch publishes."""
    branch = branch_name(call.query(BranchQuery).branch)
    call.authorize("read", branch=branch)
    graph = call.served.graph
    found = await call.run(lambda: graph.snapshot_of(ReadTarget.branch(branch)))
    return json_answer(found.to_json())


async def list_(call: Call) -> Response:
    """List the commits of a branch, newest first."""
    query = call.query(CommitsQuery)
    branch = branch_name(query.branch)
    if query.limit is not None and query.limit < 1:
        raise RequestError("limit must be 1 or more")
    call.authorize("read", branch=branch)
    graph, limit = call.served.graph, query.limit

    def find() -> list[dict[str, object]]:
        before = None if query.before is None else graph.get_commit(query.before).manifest_version
        commits = graph.list_commits(branch, limit=limit, before=before)
        return [commit_shape(commit) for commit in commits]

    return json_answer({"commits": await call.run(find)})


async def show(call: Call) -> Response:
    """Return one commit of any branch."""
    call.authorize("read")
    commit = await call.run(call.served.graph.get_commit, call.params["commit_id"])
    return json_answer(commit_shape(commit))
