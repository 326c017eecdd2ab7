"""The operations of a graph as calls: what is sent, and how the answer is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from omnigraph.client import answers
from omnigraph.client.http import CONDITION, HttpCall, json_of, segment
from omnigraph.graph import (
    CommitPage,
    FeedPage,
    FeedRequest,
    GraphCommit,
    LoadResult,
    MergeResult,
    MutationResult,
    QueryResult,
    ReadTarget,
    Selection,
    Tag,
)

Json = dict[str, Any]
NDJSON: Final = "application/x-ndjson"
_LINES: Final = {"Accept": NDJSON}


def _ref(target: ReadTarget | None) -> Json:
    """Return the fields that name what to read."""
    if target is None:
        return {}
    names = {"branch": "branch", "commit": "snapshot", "tag": "tag"}
    if target.kind not in names:
        raise ValueError(f"a server does not read by {target.kind}")
    return {names[target.kind]: target.value}


def query(
    text: str,
    name: str | None,
    params: Mapping[str, object] | None,
    target: ReadTarget | None,
    options: Json,
) -> HttpCall[QueryResult]:
    """Run a read query of a text."""
    body = answers.without_nulls({"query": text, "name": name, "params": params} | options)
    return HttpCall(
        "POST", "query", answers.read, json=body | _ref(target), headers={"Accept": answers.ARROW}
    )


def invoke(
    name: str,
    params: Mapping[str, object] | None,
    target: ReadTarget | None,
) -> HttpCall[QueryResult]:
    """Run a stored read."""
    body = answers.without_nulls({"params": params, "expect_mutation": False}) | _ref(target)
    headers = {"Accept": answers.ARROW}
    return HttpCall("POST", f"queries/{segment(name)}", answers.read, json=body, headers=headers)


def mutate(
    text: str,
    name: str | None,
    params: Mapping[str, object] | None,
    branch: str | None,
    expected_head: str | None,
) -> HttpCall[MutationResult]:
    """Run a mutation query of a text."""
    body = answers.without_nulls({"query": text, "name": name, "params": params, "branch": branch})
    return _conditional("mutate", body, expected_head)


def invoke_mutation(
    name: str,
    params: Mapping[str, object] | None,
    branch: str | None,
    expected_head: str | None,
) -> HttpCall[MutationResult]:
    """Run a stored mutation."""
    body = answers.without_nulls({"params": params, "branch": branch, "expect_mutation": True})
    return _conditional(f"queries/{segment(name)}", body, expected_head)


def _conditional(path: str, body: Json, expected_head: str | None) -> HttpCall[MutationResult]:
    read = json_of(answers.mutation)
    if expected_head is None:
        return HttpCall("POST", path, read, json=body)
    headers = {CONDITION: expected_head}
    return HttpCall("POST", f"{path}/if-graph-commit", read, json=body, headers=headers)


def load(data: Any, mode: str, branch: str | None, base: str | None) -> HttpCall[LoadResult]:
    """Load records that are the body."""
    return HttpCall(
        "POST",
        "load/ndjson",
        json_of(answers.load),
        params={"mode": mode, "branch": branch, "from": base},
        content=data,
        headers={"Content-Type": NDJSON},
    )


def branch_list() -> HttpCall[list[str]]:
    """List the branches, `main` first."""
    return HttpCall("GET", "branches", json_of(_main_first))


def _main_first(shape: Json) -> list[str]:
    return sorted(shape["branches"], key=lambda name: (name != "main", name))


def branch_create(source: str | None, name: str) -> HttpCall[None]:
    """Create a branch."""
    body = answers.without_nulls({"name": name, "from": source})
    return HttpCall("POST", "branches", _nothing, json=body)


def branch_delete(name: str) -> HttpCall[None]:
    """Delete a branch."""
    return HttpCall("DELETE", f"branches/{segment(name)}", _nothing)


def branch_merge(source: str, target: str, options: Json) -> HttpCall[MergeResult]:
    """Merge a branch into another one."""
    body = answers.without_nulls({"source": source, "target": target} | options)
    return HttpCall("POST", "branches/merge", json_of(answers.merge), json=body)


def merge_conflicts(source: str, target: str, strategy: str) -> HttpCall[list[str]]:
    """Return a line for every conflict of a merge."""
    params = {"source": source, "target": target, "strategy": strategy}
    return HttpCall("GET", "branches/conflicts", _text_lines, params=params, headers=_LINES)


def list_commits(branch: str | None, limit: int | None) -> HttpCall[list[GraphCommit]]:
    """List commits, newest first."""
    params = {"branch": branch, "limit": limit}
    return HttpCall(
        "GET",
        "commits",
        json_of(lambda shape: [answers.sure_commit(one) for one in shape["commits"]]),
        params=params,
    )


def get_commit(commit_id: str) -> HttpCall[GraphCommit]:
    """Find one commit."""
    return HttpCall("GET", f"commits/{segment(commit_id)}", json_of(answers.sure_commit))


def commit_revert(commit_id: str, branch: str | None, prefer: str | None) -> HttpCall[MergeResult]:
    """Undo a commit."""
    body = answers.without_nulls({"branch": branch, "prefer": prefer})
    path = f"commits/{segment(commit_id)}/revert"
    return HttpCall("POST", path, json_of(answers.revert), json=body)


def commit_changes(
    commit_id: str, selection: Selection | None, limit: int, page_token: str | None
) -> HttpCall[CommitPage]:
    """Return a page of what a commit changed."""
    params = {"limit": limit, "page_token": page_token, **_selected(selection)}
    path = f"commits/{segment(commit_id)}/changes"
    return HttpCall("GET", path, json_of(answers.commit_page), params=params)


def poll_changes(request: FeedRequest, branch: str | None) -> HttpCall[FeedPage]:
    """Return a page of the change feed."""
    params = {
        "branch": branch,
        "cursor": request.cursor,
        "start": request.start,
        "page_token": request.page_token,
        "limit": request.limit,
        **_selected(request.selection),
    }
    return HttpCall("GET", "changes", json_of(answers.feed_page), params=params)


def _selected(selection: Selection | None) -> Json:
    if selection is None:
        return {}
    parts = {"kind": selection.kinds, "type": selection.types, "op": selection.ops}
    return {name: sorted(part) for name, part in parts.items() if part is not None}


def snapshot(branch: str | None) -> HttpCall[Json]:
    """Return what a branch publishes."""
    return HttpCall("GET", "snapshot", json_of(dict), params={"branch": branch})


def schema_source() -> HttpCall[str]:
    """Return the schema as text."""
    return HttpCall("GET", "schema", json_of(lambda shape: str(shape["schema_source"])))


def apply_schema(source: str, *, allow_data_loss: bool) -> HttpCall[Json]:
    """Apply a schema."""
    body = {"schema_source": source, "allow_data_loss": allow_data_loss}
    return HttpCall("POST", "schema/apply", json_of(dict), json=body)


def tag_list() -> HttpCall[list[Tag]]:
    """List the tags."""
    return HttpCall("GET", "tags", json_of(lambda s: [answers.tag(one) for one in s["tags"]]))


def tag_create(name: str, commit_id: str | None) -> HttpCall[Tag]:
    """Name a commit."""
    body = answers.without_nulls({"name": name, "graph_commit_id": commit_id})
    return HttpCall("POST", "tags", json_of(answers.tag), json=body)


def tag_delete(name: str) -> HttpCall[None]:
    """Forget a tag."""
    return HttpCall("DELETE", f"tags/{segment(name)}", _nothing)


def diff(before: str, after: str, selection: Selection | None) -> HttpCall[list[Json]]:
    """Return what differs between two states."""
    params = {"from": before, "to": after, **_selected(selection)}
    return HttpCall("GET", "diff", answers.lines, params=params, headers=_LINES)


def _nothing(_: bytes) -> None:
    return None


def _text_lines(data: bytes) -> list[str]:
    return data.decode().splitlines()
