"""The operations of a graph as calls: what is sent, and how the answer is read.

Each function has the parameters of the method of `Graph` that it stands for. What a server cannot
honour is refused.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import orjson

from omnigraph.client import answers
from omnigraph.client.http import CONDITION, Answer, HttpCall, json_bytes, json_of, segment
from omnigraph.client.records import RemoteInput, record_chunks
from omnigraph.client.refusals import NeedsStorageError, refuse, refuse_engine
from omnigraph.client.snapshot import RemoteSnapshot
from omnigraph.graph import (
    MEMORY_MAX_DEFAULT,
    BlobSelector,
    BlobStat,
    Catalog,
    CommitPage,
    FeedPage,
    FeedRequest,
    GraphCommit,
    Job,
    LoadResult,
    MergeResult,
    MutationResult,
    QueryResult,
    ReadTarget,
    Report,
    SchemaApplied,
    SchemaChanges,
    Selection,
    Snapshot,
    SourceText,
    Tag,
    commit_id_of,
    one_target,
)
from omnigraph.names import MAIN, ArgumentError, is_ulid
from omnigraph.schema import MigrationPlan, compile_schema
from omnigraph.syntax.given import GivenSource, given_source
from omnigraph.syntax.grammar import decode_source
from omnigraph.write.load.formats.kinds import format_named

Json = dict[str, Any]
T = TypeVar("T")
Target = ReadTarget | Snapshot | RemoteSnapshot | GraphCommit | str | datetime | None
NDJSON: Final = "application/x-ndjson"
PAGE_CHANGES_DEFAULT: Final = 1000
_LINES: Final = {"Accept": NDJSON}
_ANY: Final = ("branch", "commit", "tag", "time")
_DOMAIN: Final = "0" * 26
"""Identities are known to the graph only; a schema that is compiled here needs some."""


def list_graphs() -> HttpCall[list[dict[str, str]]]:
    """Return the graphs of a server; the call goes to the server itself."""
    return HttpCall("GET", "graphs", json_of(lambda shape: list(shape["graphs"])), is_read=True)


# -- what is read ---------------------------------------------------------------------------------


def ref(target: Target, *kinds: Literal["branch", "commit", "tag", "time"]) -> Json:
    """Return the fields that name what to read; `kinds` are those that the route takes."""
    if target is None:
        return {}
    if isinstance(target, RemoteSnapshot):
        return {"branch": target.branch}
    if isinstance(target, Snapshot):
        raise NeedsStorageError("a snapshot of a local graph", "name a branch or a commit")
    if isinstance(target, datetime):
        target = ReadTarget.at(target)
    elif isinstance(target, GraphCommit):
        target = ReadTarget.commit(target.graph_commit_id)
    elif isinstance(target, str):
        # A name is a branch, else a tag: `_or_tag`. An id is a commit.
        target = ReadTarget.commit(target) if is_ulid(target) else ReadTarget.branch(target)
    given: object = target
    if not isinstance(given, ReadTarget):
        raise ArgumentError.of("target", "a branch, tag or commit, or a `ReadTarget`", given)
    if target.kind not in kinds:
        allowed = " or ".join(kinds)
        raise NeedsStorageError(f"a target by {target.kind}", f"here it reads by {allowed}")
    names = {"branch": "branch", "commit": "snapshot", "tag": "tag", "time": "at"}
    return {names[target.kind]: target.value}


def _or_tag(call: HttpCall[T], *targets: Target) -> HttpCall[T]:
    """Let a name that no branch has stand for a tag, as on a local graph."""
    names = (each for each in targets if isinstance(each, str) and each != MAIN)
    return replace(call, maybe_tags=frozenset(name for name in names if not is_ulid(name)))


def snapshot_of(target: Target) -> HttpCall[RemoteSnapshot]:
    """Return what a branch publishes."""
    params = ref(target, "branch")
    return HttpCall("GET", "snapshot", json_of(RemoteSnapshot.of), params=params, is_read=True)


def snapshot() -> HttpCall[RemoteSnapshot]:
    """Return what `main` publishes."""
    return snapshot_of(None)


# -- queries --------------------------------------------------------------------------------------


def query(
    text: str | bytes | SourceText | None = None,
    name: str | None = None,
    params: Mapping[str, object] | None = None,
    *,
    target: Target = None,
    branch: str | None = None,
    explain: bool = False,
    profile: bool = False,
    timeout_s: float | None = None,
    rows_max: int | None = None,
    memory_max: int | None = MEMORY_MAX_DEFAULT,
    cancelled: threading.Event | None = None,
    strict_params: bool = True,
) -> HttpCall[QueryResult]:
    """Run a read of a text on one snapshot, or without a text the stored one of this name."""
    refuse(memory_max=memory_max != MEMORY_MAX_DEFAULT, cancelled=cancelled)
    target = one_target(target, branch)
    if text is None:
        refuse(explain=explain, profile=profile, timeout_s=timeout_s, rows_max=rows_max)
        body = _given(params=params, expect_mutation=False, strict_params=strict_params or None)
        body |= ref(target, "branch", "commit")
        return _arrow(f"queries/{segment(name or '')}", body)
    body = _given(
        query=_source(text).text,
        name=name,
        params=params,
        explain=explain or None,
        profile=profile or None,
        timeout_ms=None if timeout_s is None else round(timeout_s * 1000),
        max_rows=rows_max,
        strict_params=strict_params or None,
    )
    return _or_tag(_arrow("query", body | ref(target, *_ANY), _source(text)), target)


def _arrow(path: str, body: Json, source: SourceText | None = None) -> HttpCall[QueryResult]:
    headers = {"Accept": answers.ARROW}
    return HttpCall(
        "POST", path, answers.read, json=body, headers=headers, is_read=True, source=source
    )


def mutate(
    text: str | bytes | SourceText | None = None,
    name: str | None = None,
    params: Mapping[str, object] | None = None,
    *,
    branch: str | None = None,
    expected_head: str | None = None,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    retries: int = 0,
    embed: str = "missing",
    actor_id: str | None = None,
    external_blob_bases: Sequence[str] = (),
) -> HttpCall[MutationResult]:
    """Run a mutation of a text as one commit, or without a text the stored one of this name."""
    refuse(
        embed=embed != "missing", actor_id=actor_id, external_blob_bases=tuple(external_blob_bases)
    )
    if text is None:
        path, body = f"queries/{segment(name or '')}", _given(expect_mutation=True)
    else:
        path, body = "mutate", _given(query=_source(text).text, name=name)
    body |= _given(params=params, branch=branch, message=message, retries=retries or None)
    body |= _given(properties=dict(properties) if properties else None)
    headers = {}
    if expected_head is not None:
        path, headers = f"{path}/if-graph-commit", {CONDITION: expected_head}
    read = json_of(answers.mutation)
    return HttpCall(
        "POST",
        path,
        read,
        json=body,
        headers=headers,
        source=None if text is None else _source(text),
    )


def list_queries() -> HttpCall[list[Json]]:
    """Return the stored queries, by name."""
    return HttpCall("GET", "queries", json_of(lambda shape: list(shape["queries"])), is_read=True)


# -- loads ----------------------------------------------------------------------------------------


def load(
    data: RemoteInput,
    *,
    mode: str,
    format: str | None = None,  # noqa: A002 - the name that `Graph.load` has
    branch: str | None = None,
    from_branch: str | None = None,
    reader: str = "strict",
    expected_head: str | None = None,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    job: str | Job | None = None,
    embed: str = "missing",
    actor_id: str | None = None,
    external_blob_bases: Sequence[str] = (),
    on_error: str = "fail",
    quarantine: str | Path | None = None,
    max_errors: int | None = None,
    on_duplicate: str = "error",
    missing: str | None = None,
    null_cells: str = "null",
    edges: str | None = None,
    cascade: bool = False,
    order_by: Sequence[str] = (),
    engine: str = "auto",
    spark: object | None = None,
    progress: bool | Report = False,
    cancelled: threading.Event | None = None,
    dry_run: bool = False,
) -> HttpCall[LoadResult]:
    """Load graph records (paths, globs, bytes, an open file, objects) as one commit; streamed.

    JSON lines and arrays, also compressed, and folders of an export as `jsonl`; tables are refused.

    `reader="compatible"` sends everything at once. `progress` shows nothing: the server works.
    """
    refuse_engine(engine, spark)
    refuse(
        actor_id=actor_id,
        external_blob_bases=tuple(external_blob_bases),
        on_error=on_error != "fail",
        quarantine=quarantine,
        max_errors=max_errors is not None,
        order_by=tuple(order_by),
        null_cells=null_cells != "null",
    )
    refuse(progress=not isinstance(progress, bool), cancelled=cancelled)
    refuse(job=isinstance(job, Job))
    options = {
        "expected_head": expected_head,
        "message": message,
        "properties": json_bytes(dict(properties)).decode() if properties else None,
        "job": job if isinstance(job, str) else None,
        "embed": None if embed == "missing" else embed,
        "on_duplicate": None if on_duplicate == "error" else on_duplicate,
        "missing": missing,
        "edges": edges,
        "cascade": cascade or None,
        "dry_run": dry_run or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    form = None if format is None else format_named(format)
    chunks = record_chunks(data, form, is_strict=reader != "compatible")
    read = json_of(answers.load)
    if reader == "compatible":
        refuse(**given)
        text = b"".join(chunks).decode()
        body = _given(branch=branch, mode=mode, data=text) | _given(**{"from": from_branch})
        return HttpCall("POST", "ingest", read, json=body)
    refuse(reader=reader != "strict")
    return HttpCall(
        "POST",
        # An older server knows no options: it answers 404 instead of ignoring them.
        "load/ndjson/with-options" if given else "load/ndjson",
        read,
        params={"mode": mode, "branch": branch, "from": from_branch, **given},
        content=chunks,
        headers={"Content-Type": NDJSON},
    )


# -- branches -------------------------------------------------------------------------------------


def branch_list() -> HttpCall[list[str]]:
    """Return the names of all branches, sorted, `main` first."""
    return HttpCall("GET", "branches", json_of(_main_first), is_read=True)


def _main_first(shape: Json) -> list[str]:
    return sorted(shape["branches"], key=lambda name: (name != MAIN, name))


def branch_create(name: str, *, actor_id: str | None = None) -> HttpCall[str | None]:
    """Create a branch at the head of `main`; return the actor."""
    return branch_create_from(MAIN, name, actor_id=actor_id)


def branch_create_from(
    source: str, name: str, *, actor_id: str | None = None
) -> HttpCall[str | None]:
    """Create a branch at the head of another one; return the actor."""
    refuse(actor_id=actor_id)
    return HttpCall("POST", "branches", _actor, json={"name": name, "from": source})


def branch_delete(name: str, *, actor_id: str | None = None) -> HttpCall[str | None]:
    """Delete a branch that no other one was created from; return the actor."""
    refuse(actor_id=actor_id)
    return HttpCall("DELETE", f"branches/{segment(name)}", _actor)


def branch_merge(
    source: str,
    target: str = MAIN,
    *,
    strategy: str = "row",
    prefer: str | None = None,
    resolve_file: str | os.PathLike[str] | None = None,
    schema: str | None = None,
    allow_data_loss: bool = False,
    check_schema: Callable[[str], None] | None = None,
    dry_run: bool = False,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    retries: int = 0,
    external_blob_bases: Sequence[str] = (),
    actor_id: str | None = None,
    job: str | Job | None = None,
    engine: str = "auto",
    spark: object | None = None,
) -> HttpCall[MergeResult]:
    """Merge a branch into another one as one commit with two parents, or not at all."""
    refuse_engine(engine, spark)
    refuse(actor_id=actor_id, external_blob_bases=tuple(external_blob_bases), job=job)
    refuse(check_schema=check_schema)
    body = _given(
        source=source,
        target=target,
        strategy=strategy,
        prefer=prefer,
        schema=schema,
        allow_data_loss=allow_data_loss or None,
        resolutions=None if resolve_file is None else _json_lines(Path(resolve_file).read_bytes()),
        dry_run=dry_run or None,
        message=message,
        properties=dict(properties) if properties else None,
        retries=retries or None,
    )
    return HttpCall("POST", "branches/merge", json_of(answers.merge), json=body, is_read=dry_run)


def merge_conflicts(source: str, target: str = MAIN, *, strategy: str = "row") -> HttpCall[None]:
    """Yield a line of JSON for every row in conflict, with its images on all sides."""
    params = {"source": source, "target": target, "strategy": strategy}
    return _stream("GET", "branches/conflicts", params=params)


# -- history --------------------------------------------------------------------------------------


def list_commits(
    branch: str | None = None, *, limit: int | None = None, before: int | None = None
) -> HttpCall[list[GraphCommit]]:
    """Return commits newest first, with those that the branch inherited."""

    def read(shape: Json) -> list[GraphCommit]:
        found = [answers.sure_commit(one) for one in shape["commits"]]
        if before is None:
            return found
        return [commit for commit in found if commit.manifest_version < before][:limit]

    # A server pages by ids of commits, a graph by versions.
    params = {"branch": branch, "limit": limit if before is None else None}
    return HttpCall("GET", "commits", json_of(read), params=params, is_read=True)


def get_commit(commit_id: str | GraphCommit) -> HttpCall[GraphCommit]:
    """Find one commit on any branch."""
    read = json_of(answers.sure_commit)
    return HttpCall("GET", f"commits/{segment(commit_id_of(commit_id))}", read, is_read=True)


def head_commit_id(branch: str | None = None) -> HttpCall[str]:
    """Return the id of a branch's newest commit."""
    read = json_of(lambda shape: str(shape["commits"][0]["graph_commit_id"]))
    return HttpCall("GET", "commits", read, params={"branch": branch, "limit": 1}, is_read=True)


def commit_revert(
    commit_id: str | GraphCommit,
    *,
    branch: str | None = None,
    prefer: str | None = None,
    check_schema: Callable[[str], None] | None = None,
    external_blob_bases: Sequence[str] = (),
    actor_id: str | None = None,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    retries: int = 0,
    job: str | Job | None = None,
) -> HttpCall[MergeResult]:
    """Undo what one commit changed, as a new commit; conflicts are those of a merge."""
    refuse(actor_id=actor_id, external_blob_bases=tuple(external_blob_bases), job=job)
    refuse(check_schema=check_schema)
    path = f"commits/{segment(commit_id_of(commit_id))}/revert"
    body = _given(branch=branch, prefer=prefer, message=message, retries=retries or None)
    body |= _given(properties=dict(properties) if properties else None)
    return HttpCall("POST", path, json_of(answers.revert), json=body)


def tag_list() -> HttpCall[list[Tag]]:
    """Return all tags, sorted by name."""
    read = json_of(lambda shape: [answers.tag(one) for one in shape["tags"]])
    return HttpCall("GET", "tags", read, is_read=True)


def tag_create(name: str, target: Target = None, *, actor_id: str | None = None) -> HttpCall[Tag]:
    """Name a commit, by default the head of `main`, and keep its versions."""
    refuse(actor_id=actor_id)
    body = _given(name=name, graph_commit_id=ref(target, "commit").get("snapshot"))
    return HttpCall("POST", "tags", json_of(answers.tag), json=body)


def tag_delete(name: str, *, actor_id: str | None = None) -> HttpCall[None]:
    """Forget a tag."""
    refuse(actor_id=actor_id)
    return HttpCall("DELETE", f"tags/{segment(name)}", _nothing)


# -- changes --------------------------------------------------------------------------------------


def commit_changes(
    commit_id: str | GraphCommit,
    selection: Selection | None = None,
    *,
    limit: int = PAGE_CHANGES_DEFAULT,
    page_token: str | None = None,
) -> HttpCall[CommitPage]:
    """Return a page of what one commit changed, with the rows before and after."""
    params = {"limit": limit, "page_token": page_token, **_selected(selection)}
    path = f"commits/{segment(commit_id_of(commit_id))}/changes"
    return HttpCall("GET", path, json_of(answers.commit_page), params=params, is_read=True)


def poll_changes(request: FeedRequest, *, branch: str | None = None) -> HttpCall[FeedPage]:
    """Return a page of what happened on a branch since a cursor."""
    params = {
        "branch": branch,
        "cursor": request.cursor,
        "start": request.start,
        "page_token": request.page_token,
        "limit": request.limit,
        **_selected(request.selection),
    }
    if request.schema_changes != SchemaChanges.REFUSE:
        params["schema_changes"] = str(request.schema_changes)
    return HttpCall("GET", "changes", json_of(answers.feed_page), params=params, is_read=True)


def baseline(*, branch: str | None = None, selection: Selection | None = None) -> HttpCall[None]:
    """Return every entity of a branch as lines of JSON, and where the feed goes on after them."""
    body = _given(branch=branch) | _selected(selection)
    return _stream("POST", "changes/baseline", json=body)


def changes_between(
    before: Target,
    after: Target,
    selection: Selection | None = None,
    *,
    engine: str = "auto",
    spark: object | None = None,
) -> HttpCall[None]:
    """Yield what differs between two states, with the rows of both sides."""
    refuse_engine(engine, spark)
    params = {"from": _spelled(before), "to": _spelled(after), **_selected(selection)}
    return _or_tag(_stream("GET", "diff", params=params), before, after)


def _spelled(target: Target) -> str:
    """Return a ref that means only one thing."""
    [(kind, value)] = (ref(target, *_ANY) or {"branch": MAIN}).items()
    spelled = {"snapshot": "commit", "at": "time"}
    return f"{spelled.get(kind, kind)}:{value}"


def _selected(selection: Selection | None) -> Json:
    if selection is None:
        return {}
    parts = {"kind": selection.kinds, "type": selection.types, "op": selection.ops}
    return {name: sorted(part) for name, part in parts.items() if part is not None}


# -- exports and blobs ----------------------------------------------------------------------------


def export_lines(*, types: Sequence[str] = (), target: Target = None) -> HttpCall[None]:
    """Yield one line of graph JSONL per entity of one state, by type and id."""
    body = {"type_names": list(types), **ref(target, *_ANY)}
    return _or_tag(_stream("POST", "export", json=body), target)


def export_arrow(*, types: Sequence[str] = (), target: Target = None) -> HttpCall[None]:
    """Return the rows of one state as Arrow streams, one per type."""
    body = {"type_names": list(types), **ref(target, *_ANY)}
    headers = {"Accept": answers.ARROW}
    call = HttpCall("POST", "export", _nothing, json=body, headers=headers, is_read=True)
    return _or_tag(call, target)


def blob(
    entity: Literal["node", "edge"],
    type_name: str,
    entity_id: str,
    property: str,  # noqa: A002 - what the schema calls it
    *,
    target: Target = None,
) -> HttpCall[BlobStat]:
    """Return one Blob value of a node or an edge: what it is, and its bytes in parts."""
    cell = BlobSelector(entity, type_name, entity_id, property)
    return HttpCall(
        "HEAD",
        "blob",
        lambda answer: answers.blob_stat(cell, answer),
        params={**cell.to_json(), **ref(target, *_ANY)},
        is_read=True,
        accepted=(302,),
    )


# -- the schema -----------------------------------------------------------------------------------


def schema_source(*, branch: str | None = None) -> HttpCall[str]:
    """Return the accepted schema text of a branch, by default of `main`."""
    read = json_of(lambda shape: str(shape["schema_source"]))
    return HttpCall("GET", "schema", read, params=_given(branch=branch), is_read=True)


def catalog(*, branch: str | None = None) -> HttpCall[Catalog]:
    """Return what the accepted schema of a branch declares, by default of `main`.

    The numbers of types are not those of the graph.
    """
    read = json_of(lambda s: compile_schema(s["schema_source"], domain=_DOMAIN).catalog)
    return HttpCall("GET", "schema", read, params=_given(branch=branch), is_read=True)


def schema_diff(before: Target, after: Target) -> HttpCall[MigrationPlan]:
    """Return the steps from the schema of one state to that of another, by identity."""
    params = {"from": _spelled(before), "to": _spelled(after)}
    read = json_of(answers.schema_difference)
    return HttpCall("GET", "schema/diff", read, params=params, is_read=True)


def apply_schema(
    desired: GivenSource,
    *,
    branch: str | None = None,
    allow_data_loss: bool = False,
    actor_id: str | None = None,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> HttpCall[SchemaApplied]:
    """Make a desired schema the accepted one of a branch, by default of `main`."""
    refuse(actor_id=actor_id)
    # A file is one of this machine: a server takes a text.
    source = _source(given_source(desired, suffix=".pg", letter="S"))
    body: Json = {"schema_source": source.text, "allow_data_loss": allow_data_loss}
    given = dict(properties) if properties else None
    body |= _given(branch=branch, message=message, properties=given)
    read = json_of(answers.applied)
    return HttpCall("POST", "schema/apply", read, json=body, source=source)


def apply_schema_file(
    path: str | os.PathLike[str],
    *,
    branch: str | None = None,
    allow_data_loss: bool = False,
    actor_id: str | None = None,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> HttpCall[SchemaApplied]:
    """Make the schema in a file the accepted one of a branch."""
    return apply_schema(
        Path(path),
        branch=branch,
        allow_data_loss=allow_data_loss,
        actor_id=actor_id,
        message=message,
        properties=properties,
    )


# -- small parts ----------------------------------------------------------------------------------


def _stream(
    method: str, path: str, *, params: Json | None = None, json: object = None
) -> HttpCall[None]:
    return HttpCall(
        method, path, _nothing, params=params or {}, json=json, headers=_LINES, is_read=True
    )


def _source(text: str | bytes | SourceText) -> SourceText:
    if isinstance(text, bytes):
        return decode_source(text, "<text>", "Q")
    return SourceText(text) if isinstance(text, str) else text


def _given(**fields: object) -> Json:
    """Leave out what was not given."""
    return {name: value for name, value in fields.items() if value is not None}


def _json_lines(data: bytes) -> list[Json]:
    return [orjson.loads(line) for line in data.splitlines() if line.strip()]


def _actor(answer: Answer) -> str | None:
    found: str | None = orjson.loads(answer.body)["actor_id"]
    return found


def _nothing(_: Answer) -> None:
    return None
