"""Differences of two states, the conflicts of a merge, and undoing a commit.

Both lists come as pages of JSON, or whole as lines of JSON where the request accepts those. A page
token holds the two commits, so that all pages show the same states.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, Final

import orjson
from starlette.responses import Response

from omnigraph.graph import (
    BranchNotFoundError,
    CommitNotFoundError,
    Graph,
    Job,
    ReadTarget,
    Selection,
    VersionRemovedError,
)
from omnigraph.names import MAIN
from omnigraph.server.call import JSON, Call, json_answer
from omnigraph.server.errors import ForbiddenError, RequestError
from omnigraph.server.http.decode import branch_name
from omnigraph.server.http.streams import NDJSON, chunked
from omnigraph.server.routes.answers import accepted
from omnigraph.server.routes.branches import BYTES, require_may_take
from omnigraph.server.routes.export import line_stream
from omnigraph.server.routes.shapes import NAMESPACE, commit_shape
from omnigraph.wire.requests import ConflictsQuery, DiffQuery, RevertRequest

LIMIT_DEFAULT: Final = 1000
LIMIT_MAX: Final = 8192
_LINES: Final = "application/x-ndjson"
_DIGITS_MAX: Final = 18
"""A number of so many digits fits into 64 bits."""
_SKIPPED_MAX: Final = 10**_DIGITS_MAX
_COMMIT: Final = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}\Z")
_KINDS: Final = ("branch", "tag", "commit", "version", "time")


async def diff(call: Call) -> Response:
    """Return what differs between two states."""
    query = call.query(DiffQuery)
    graph = call.served.graph
    before, after = await readable(call, query.from_), await readable(call, query.to)
    skip = _skipped(query.page_token, before["graph_commit_id"], after["graph_commit_id"])
    selection = Selection.of(query.kind or None, query.type or None, query.op or None)

    def changes() -> Iterator[dict[str, Any]]:
        first, second = (ReadTarget.commit(ref["graph_commit_id"]) for ref in (before, after))
        return graph.changes_between(first, second, selection, engine="local")

    if accepted(call.request.headers.get("accept", ""), (JSON, _LINES)) == _LINES:
        return await line_stream(call, lambda: _lines(changes()), media_type=NDJSON)
    limit = _limit(query.limit)
    header, page = await call.run(lambda: _changes_page(changes(), skip, limit))
    shape: dict[str, Any] = {"from": shown(before), "to": shown(after), **header}
    shape["changes"] = page[:limit]
    if len(page) > limit:
        token = [before["graph_commit_id"], after["graph_commit_id"], skip + limit]
        shape["next_page_token"] = _token(token)
    return json_answer(shape)


async def conflicts(call: Call) -> Response:
    """Return what conflicts between two branches."""
    query = call.query(ConflictsQuery)
    source, target = branch_name(query.source), branch_name(query.target, MAIN)
    for branch in (source, target):
        call.authorize("read", branch=branch)
    graph = call.served.graph

    def lines() -> Iterator[str]:
        return graph.merge_conflicts(source, target, strategy=query.strategy)

    if accepted(call.request.headers.get("accept", ""), (JSON, _LINES)) == _LINES:
        encoded = lambda: chunked(f"{line}\n".encode() for line in lines())  # noqa: E731
        return await line_stream(call, encoded, media_type=NDJSON)
    skip, limit = _skipped(query.page_token, source, target), _limit(query.limit)
    found, total = await call.run(lambda: _page(lines(), skip, limit))
    shape: dict[str, Any] = {
        "source": source,
        "target": target,
        "conflicts": found,
        "total": total,
    }
    if total > skip + limit:
        shape["next_page_token"] = _token([source, target, skip + limit])
    return json_answer(shape)


async def revert(call: Call) -> Response:
    """Undo what one commit changed, as a new commit."""
    request = await call.body(RevertRequest)
    branch = branch_name(request.branch)
    call.authorize("change", branch=branch)
    graph, commit_id = call.served.graph, call.params["commit_id"]
    await _require_readable_commit(call, commit_id, branch)
    with call.admitted(BYTES):
        result = await call.run(
            lambda: graph.commit_revert(
                commit_id,
                branch=branch,
                prefer=request.prefer,
                check_schema=partial(require_may_take, call, branch),
                actor_id=call.actor,
                message=request.message,
                properties=request.properties,
                retries=request.retries,
                job=Job(NAMESPACE, "revert"),
            )
        )
    shape = {"reverted": commit_id, "branch": branch, "commit": commit_shape(result.commit)}
    return json_answer(shape)


async def _require_readable_commit(call: Call, commit_id: str, branch: str) -> None:
    """Raise unless the actor may read what reverting a commit brings to a branch.

    Undoing a deletion inserts the rows that were deleted. A commit of another branch that may not
    be read is as good as none.
    """
    commit = await call.run(call.served.graph.get_commit, commit_id)
    landed_on = commit.graph_branch or MAIN
    if landed_on == branch:
        return
    try:
        call.authorize("read", branch=landed_on)
    except ForbiddenError as error:
        raise CommitNotFoundError(commit_id) from error


# -- refs -----------------------------------------------------------------------------------------


async def readable(call: Call, name: str) -> dict[str, str]:
    """Find what a ref means, and decide about it; so also about a branch that does not exist."""
    try:
        found = await call.run(_ref, call.served.graph, name)
    except BranchNotFoundError as error:
        call.authorize("read", branch=error.branch)
        raise
    except VersionRemovedError:
        # The error names the newest version of `main`.
        call.authorize("read", branch=MAIN)
        raise
    call.authorize("read", branch=found["branch"])
    return found


def _ref(graph: Graph, name: str) -> dict[str, str]:
    """Find the commit that a ref means, and the branch that a policy is asked about."""
    kind, colon, rest = name.partition(":")
    if colon and kind in _KINDS:
        return _of_kind(graph, kind, rest, name)
    candidates = []
    if name in graph.branch_list():
        candidates.append("branch")
    if any(tag.name == name for tag in graph.tag_list()):
        candidates.append("tag")
    if len(candidates) > 1:
        shown = " or ".join(f"{one}:{name}" for one in candidates)
        raise RequestError(f"'{name}' may be {shown}: say which")
    if candidates:
        return _of_kind(graph, candidates[0], name, name)
    if name.isascii() and name.isdigit():
        return _of_kind(graph, "version", name, name)
    return _of_kind(graph, "commit" if _COMMIT.match(name) else "branch", name, name)


def _of_kind(graph: Graph, kind: str, name: str, ref: str) -> dict[str, str]:
    if kind == "version":
        snapshot = graph.snapshot_at_version(_number(name, kind))
    elif kind == "time":
        snapshot = graph.snapshot_of(ReadTarget.at(_number(name, kind)))
    else:
        make = {"branch": ReadTarget.branch, "tag": ReadTarget.tag, "commit": ReadTarget.commit}
        snapshot = graph.snapshot_of(make[kind](name))
    return {"ref": ref, "graph_commit_id": snapshot.commit_id, "branch": str(snapshot.branch)}


def _number(name: str, kind: str) -> int:
    """Return the number of a version or a time, which storage keeps in 64 bits."""
    if not (name.isascii() and name.isdigit()) or len(name) > _DIGITS_MAX:
        raise RequestError(f"'{name}' is no {kind}")
    return int(name)


def shown(found: dict[str, str]) -> dict[str, str]:
    """Return a ref as answers show it."""
    return {"ref": found["ref"], "graph_commit_id": found["graph_commit_id"]}


# -- pages ----------------------------------------------------------------------------------------


def _limit(given: int | None) -> int:
    limit = LIMIT_DEFAULT if given is None else given
    if not 1 <= limit <= LIMIT_MAX:
        raise RequestError(f"limit must be 1 to {LIMIT_MAX}")
    return limit


def _token(parts: list[object]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(parts)).decode()


def _skipped(token: str | None, *bound: str) -> int:
    """Return how many rows earlier pages had; a token of another list is an error."""
    if token is None:
        return 0
    try:
        *given, skip = orjson.loads(base64.urlsafe_b64decode(token))
    except (ValueError, TypeError) as error:
        raise RequestError("cursor rejected: it is no page token") from error
    if given != list(bound) or type(skip) is not int or not 0 <= skip <= _SKIPPED_MAX:
        raise RequestError("cursor rejected: it belongs to another list")
    return skip


def _changes_page(
    items: Iterator[dict[str, Any]], skip: int, limit: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what the list begins with, and the changes of one page and the one after it."""
    first = next(items, None)
    if first is None:
        return {}, []
    is_header = "schema_changes" in first
    changes = items if is_header else chain([first], items)
    return first if is_header else {}, list(islice(changes, skip, skip + limit + 1))


def _page(lines: Iterator[str], skip: int, limit: int) -> tuple[list[Any], int]:
    """Return the rows of one page and how many there are; no more than the page is held."""
    found, total = [], 0
    for line in lines:
        if skip <= total < skip + limit:
            found.append(orjson.loads(line))
        total += 1
    return found, total


def _lines(rows: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    return chunked(orjson.dumps(row) + b"\n" for row in rows)
