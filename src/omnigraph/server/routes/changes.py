"""The changes of a commit, the change feed, and baselines for it.

Nothing here shows a detail of storage: what is not foreseen is one sentence.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

import orjson
from starlette.responses import Response

from omnigraph.errors import CorruptError, OmnigraphError
from omnigraph.graph import (
    PAGE_CHANGES_MAX,
    CommitNotFoundError,
    FeedRequest,
    Selection,
    check_page,
)
from omnigraph.names import MAIN
from omnigraph.server.call import JSON, Call, json_answer
from omnigraph.server.errors import ForbiddenError, RequestError
from omnigraph.server.http.decode import branch_name
from omnigraph.server.http.streams import ARROW, NDJSON, chunked
from omnigraph.server.routes.answers import accepted
from omnigraph.server.routes.change_rows import feed_bytes
from omnigraph.server.routes.export import open_stream
from omnigraph.wire.outcomes import outcome_of
from omnigraph.wire.requests import ChangeBaselineRequest, ChangesQuery, CommitChangesQuery

PAGE_CHANGES_DEFAULT = 1000
_PAGE_CHANGES = "commit_changes_page_changes"
_log = logging.getLogger(__name__)
T = TypeVar("T")


class ChangesInternalError(CorruptError):
    """Something that was not foreseen while changes were read."""

    code = "OG-HTTP-CHANGES"
    hint = "the log of the server has the details"
    template = "internal error while reading changes"


def _without_details(call: Callable[[], T]) -> T:
    """Run a read of changes; a failure of storage becomes one sentence."""
    try:
        return call()
    except OmnigraphError as error:
        if outcome_of(error).http_status < 500:
            raise
        _log.exception("changes")
        raise ChangesInternalError from error


async def of_commit(call: Call) -> Response:
    """Return a page of what a commit changed."""
    query = call.query(CommitChangesQuery)
    limit = _limit(query)
    graph, commit_id = call.served.graph, call.params["commit_id"]
    commit = await call.run(graph.get_commit, commit_id)
    try:
        call.authorize("read", branch=commit.graph_branch or MAIN)
    except ForbiddenError as error:
        raise CommitNotFoundError(commit_id) from error
    selection = _selection(query)
    page = await call.run(
        _without_details,
        lambda: graph.commit_changes(
            commit_id, selection, limit=limit, page_token=query.page_token
        ).to_json(),
    )
    return json_answer(page)


async def poll(call: Call) -> Response:
    """Return a page of what happened on a branch."""
    query = call.query(ChangesQuery)
    branch = branch_name(query.branch)
    if sum(each is not None for each in (query.cursor, query.start, query.page_token)) > 1:
        raise RequestError("cursor, start and page_token are mutually exclusive")
    if query.start == "":
        raise RequestError("start is empty: expected now, beginning or after:<commit id>")
    limit = _limit(query)
    call.authorize("read", branch=branch)
    request = FeedRequest(
        _selection(query),
        cursor=query.cursor,
        start=query.start,
        page_token=query.page_token,
        limit=limit,
        schema_changes=query.schema_changes,
    )
    graph = call.served.graph
    form = accepted(call.request.headers.get("accept", ""), (JSON, ARROW))

    def shown() -> Response:
        page = graph.poll_changes(request, branch=branch)
        headers = {"Vary": "Accept"}
        if form == ARROW:
            return Response(feed_bytes(page), headers=headers, media_type=ARROW)
        return json_answer(page.to_json(), headers=headers)

    return await call.run(_without_details, shown)


async def baseline(call: Call) -> Response:
    """Stream every entity of a branch, and at the end where the feed goes on."""
    request = await call.body(ChangeBaselineRequest)
    branch = branch_name(request.branch)
    call.authorize("export", branch=branch)
    selection, graph = _selection(request), call.served.graph

    def make() -> Iterator[bytes]:
        lines, handshake = graph.baseline(branch=branch, selection=selection)

        def with_end() -> Iterator[bytes]:
            yield from lines
            yield orjson.dumps({"baseline": handshake}) + b"\n"

        return chunked(with_end())

    return await open_stream(call, make, media_type=NDJSON)


def _limit(query: ChangesQuery | CommitChangesQuery) -> int:
    """Return how many changes a page may have, before anything is looked up."""
    limit = PAGE_CHANGES_DEFAULT if query.limit is None else query.limit
    check_page(_PAGE_CHANGES, limit=PAGE_CHANGES_MAX, actual=limit)
    return limit


def _selection(query: ChangesQuery | CommitChangesQuery | ChangeBaselineRequest) -> Selection:
    return Selection.of(query.kind or None, query.type or None, query.op or None)
