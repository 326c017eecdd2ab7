"""Whatever text a caller gives, a call succeeds or ends in a typed error that can be shown."""

from __future__ import annotations

import inspect
import json
import unicodedata
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from omnigraph import Graph, OmnigraphError, ReadTarget
from omnigraph.changes import tokens
from omnigraph.graph import FeedRequest, InvalidActorError, InvalidTextError, Selection
from omnigraph.names import ArgumentError
from omnigraph.wire import error_json
from support.lineage import without_lineage

SCHEMA = (
    "node P { k: String @key  n: I64?  t: String? @index  b: Blob? }\nedge E: P -> P { w: String? }"
)
ADD = "query q($s: String) { insert P { k: $s } }"
FIND = "query q($s: String) { match { $p: P { k: $s } } return { $p.k } }"
ROW = b'{"type":"P","data":{"k":"a"}}'
UNFIT_TEXT = (InvalidTextError, ArgumentError)
"""Of a text that cannot be stored, and of what is no text."""

NASTY = [
    "\ud800",
    "\udfff",
    "\udcff",
    *"\0\a\b\t\n\v\f\r\x1b\x7f\x85\x9b\xa0\xad",
    *"\u034f\u115f\u200b\u200d\u200e\u2028\u2029\u202e\u2066\u3000\ufe0f\ufeff\uff1a\uff2f\uffff",
    *"aA0 /\\.:;'\"`$%{}[]()<>?&@#*_-~=é😀",
    "..",
    "://",
    "omnigraph:",
    "s3://K:S@b/",
    "?sig=secret",
]
texts = st.one_of(
    st.lists(st.sampled_from(NASTY), max_size=8).map("".join),
    st.text(st.characters(), max_size=8),
    st.sampled_from(["", " ", "x" * 300, "\ud800" * 300, "é" * 70_000, "a\nomnigraph:recovery"]),
)
values = st.recursive(
    texts | st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=3,
)

Call = Callable[[Graph, str], object]
CALLS: dict[str, Call] = {
    "actor of a load": lambda g, t: g.load(ROW, mode="merge", actor_id=t),
    "actor of a mutation": lambda g, t: g.mutate(ADD, params={"s": "a"}, actor_id=t),
    "message of a load": lambda g, t: g.load(ROW, mode="merge", message=t),
    "message of a merge": lambda g, t: g.branch_merge("dev", message=t),
    "name of a property": lambda g, t: g.load(ROW, mode="merge", properties={t: "x"}),
    "value of a property": lambda g, t: g.load(ROW, mode="merge", properties={"x": t}),
    "expected head of a load": lambda g, t: g.load(ROW, mode="merge", expected_head=t),
    "expected head": lambda g, t: g.mutate(ADD, params={"s": "a"}, expected_head=t),
    "commit": lambda g, t: g.get_commit(t),
    "commit to read": lambda g, t: g.query(FIND, params={"s": "a"}, target=ReadTarget.commit(t)),
    "commit to revert": lambda g, t: g.commit_revert(t),
    "commit whose changes are asked for": lambda g, t: g.commit_changes(t),
    "id to delete": lambda g, t: g.delete_rows({"node:P": [t]}),
    "type to delete from": lambda g, t: g.delete_rows({t: ["a"]}),
    "target": lambda g, t: g.query(FIND, params={"s": "a"}, target=t),
    "page token": lambda g, t: g.commit_changes(g.snapshot().commit_id, page_token=t),
    "cursor": lambda g, t: g.poll_changes(FeedRequest(Selection(), cursor=t)),
    "type of a selection": lambda g, t: g.poll_changes(
        FeedRequest(Selection(types=frozenset({t})))
    ),
    "tag": lambda g, t: g.tag_create(t),
    "tag to delete": lambda g, t: g.tag_delete(t),
    "tag to read": lambda g, t: g.snapshot_of(ReadTarget.tag(t)),
    "branch": lambda g, t: g.branch_create(t),
    "branch to cut from": lambda g, t: g.branch_create_from(t, "x"),
    "branch to delete": lambda g, t: g.branch_delete(t),
    "branch to merge": lambda g, t: g.branch_merge(t),
    "branch to read": lambda g, t: g.snapshot_of(ReadTarget.branch(t)),
    "branch to load": lambda g, t: g.load(ROW, mode="merge", branch=t),
    "branch to open": lambda g, t: Graph.open(g.uri, branch=t),
    "text of a query": lambda g, t: g.query(t),
    "name of a query": lambda g, t: g.query(FIND, t, {"s": "a"}),
    "name of a parameter": lambda g, t: g.query(FIND, params={t: "a"}),
    "key": lambda g, t: g.query(FIND, params={"s": t}),
    "new key": lambda g, t: g.mutate(ADD, params={"s": t}),
    "schema": lambda g, t: g.plan_schema(t),
    # An empty text is a schema: that of a graph without types.
    "schema to apply": lambda g, t: g.apply_schema(t, branch="schemas"),
    "mode": lambda g, t: g.load(ROW, mode=t),
    "records": lambda g, t: g.load(t.encode(errors="surrogatepass"), mode="append"),
    "key of a record": lambda g, t: g.load(
        json.dumps({"type": "P", "data": {"k": t}}).encode(), mode="merge"
    ),
    "type of a record": lambda g, t: g.load(
        json.dumps({"type": t, "data": {"k": "a"}}).encode(), mode="merge"
    ),
    "blob of a record": lambda g, t: g.load(
        json.dumps({"type": "P", "data": {"k": "a", "b": t}}).encode(), mode="merge"
    ),
    "base of external blobs": lambda g, t: g.load(ROW, mode="merge", external_blob_bases=[t]),
    "type of tables": lambda g, t: g.load({t: [{"k": "a"}]}, mode="merge"),
    "type of an export": lambda g, t: list(g.export_lines(types=[t])),
    "type to embed": lambda g, t: g.embed([t]),
    "id of an entity": lambda g, t: g.blob("node", "P", t, "b"),
    "property": lambda g, t: g.blob("node", "P", "a", t),
    "id at a version": lambda g, t: g.entity_at("node:P", t, 2),
    "table at a version": lambda g, t: g.entity_at(t, "a", 2),
    "operation": lambda g, t: g.recovery_show(t),
    "operation to quarantine": lambda g, t: g.recovery_quarantine(t),
    "root": lambda g, t: Graph.open(f"{g.uri}/../{t}"),
    "whole root": lambda g, t: Graph.open(f"s3://{t}"),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    root = tmp_path_factory.mktemp("unclear") / "g"
    with Graph.init(root, SCHEMA, durability="process", auto_optimize=False) as made:
        made.branch_create("dev")
        made.branch_create("schemas")
        yield made


def require_shown(text: str) -> None:
    text.encode()
    found = {c for c in text if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"}}
    assert found <= {"\n"}, text
    assert "K:S@" not in text
    assert "sig=secret" not in text


def succeeds_or_says_why(call: Callable[[], object]) -> None:
    try:
        call()
    except OmnigraphError as error:
        require_shown(str(error))
        require_shown(repr(error))
        require_shown(error.hint or "")
        if hasattr(error, "render"):
            require_shown(error.render())
        json.dumps(error_json(error), ensure_ascii=False)


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=max(12, settings.default.max_examples // 10), deadline=None)
@example(text="\ud800")
@example(text="a\nomnigraph:recovery")
@example(text="\x1b[31m")
@example(text="")
@given(text=texts)
def test_any_text_is_taken_or_refused_with_a_typed_error(
    graph: Graph, name: str, text: str
) -> None:
    succeeds_or_says_why(lambda: CALLS[name](graph, text))


@settings(max_examples=max(60, settings.default.max_examples // 10), deadline=None)
@given(params=st.dictionaries(st.just("s") | texts, values, max_size=2))
def test_any_parameters_are_taken_or_refused_with_a_typed_error(
    graph: Graph, params: dict[str, object]
) -> None:
    succeeds_or_says_why(lambda: graph.query(FIND, params=params))


# -- deep nesting ---------------------------------------------------------------------------------

DEPTHS = (100, 200, 300, 990, 1020, 1100, 3_000, 50_000)


@pytest.mark.parametrize("depth", DEPTHS)
def test_values_that_nest_deep_are_refused_with_a_typed_error(
    graph: Graph, tmp_path: Path, depth: int
) -> None:
    value: Any = "x"
    for _ in range(depth):
        value = [value] if depth % 200 else {"a": value}
    body = b"[" * depth + b"1" + b"]" * depth
    token = body[: tokens.TOKEN_CHARACTERS_MAX // 2]
    sealed = urlsafe_b64encode(token + sha256(token).digest()).decode().rstrip("=")
    record = b'{"type":"P","data":{"k":"deep","t":%s}}' % body
    decisions = tmp_path / "decisions.jsonl"
    decisions.write_bytes(b'{"type":"P","id":"a","data":{"k":%s}}' % body)
    calls: list[Callable[[], object]] = [
        lambda: graph.query(FIND, params={"s": value}),
        lambda: graph.mutate(ADD, params={"s": value}),
        lambda: graph.load(ROW, mode="merge", properties={"a": value}),
        lambda: graph.load(record, mode="merge"),
        lambda: graph.load(body, mode="merge"),
        lambda: graph.branch_merge("dev", resolve_file=decisions),
        lambda: graph.commit_changes(graph.snapshot().commit_id, page_token=sealed),
        lambda: graph.query(f"query q() {{ match {{ $p: P {{ k: {body.decode()} }} }} }}"),
        lambda: graph.plan_schema(f"node P {{ k: {body.decode()} }}"),
    ]
    for call in calls:
        with pytest.raises(OmnigraphError) as caught:
            call()
        require_shown(str(caught.value))
    # What follows a value that is too deep can be read after a line, and not inside an array.
    graph.load(record, mode="merge", on_error="quarantine", quarantine=tmp_path / "aside")
    for number, bad in enumerate((record, body)):
        place = {"on_error": "quarantine", "quarantine": tmp_path / f"other{number}"}
        load = partial(graph.load, bad, mode="merge", reader="compatible")
        succeeds_or_says_why(load)
        succeeds_or_says_why(partial(load, **place))


# -- actors and what commits say ------------------------------------------------------------------

REQUIRED: dict[str, Any] = {
    "data": ROW,
    "ids": {"node:P": ["a"]},
    "mode": "merge",
    "text": ADD,
    "params": {"s": "a"},
    "name": "x",
    "source": "dev",
    "commit_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "desired": SCHEMA,
    "uri": "nowhere.omni",
    "schema": SCHEMA,
    "nodes": {},
    "policy": None,
}


def calls_that_take(name: str) -> list[str]:
    found = {
        method: inspect.signature(call).parameters
        for method, call in inspect.getmembers(Graph, callable)
        if not method.startswith("_")
    }
    return [method for method, parameters in found.items() if name in parameters]


def call_with(graph: Graph, method: str, given: dict[str, object], folder: Path) -> object:
    """Call a method with these arguments, and what else it needs."""
    call = getattr(graph, method)
    needed = {
        name: REQUIRED[name]
        for name, parameter in inspect.signature(call).parameters.items()
        if name in REQUIRED and (parameter.default is parameter.empty or name == "params")
    }
    if "path" in inspect.signature(call).parameters:
        (folder / "s.pg").write_text(SCHEMA)
        needed["path"] = folder / "s.pg"
    if method == "embed":
        needed.pop("mode", None)
    return call(**needed, **given)


UNFIT_ACTORS = [
    "",
    " ",
    " ann",
    "ann ",
    "ann\n",
    "a\nomnigraph:recovery",
    "a\tb",
    "a\x1b[31mb",
    "a\x7fb",
    "a\x9bb",
    "a\u2028b",
    "a\u202eb",
    "a\ud800",
    "x" * 257,
    "omnigraph:",
    "omnigraph:recovery",
    "Omnigraph:x",
    "OMNIGRAPH:x",
    "omnigraph :x",
    "\uff4fmnigraph:x",
    "omnigraph\uff1ax",
    "\u200bomnigraph:x",
    "omni\u200dgraph:x",
    "om\u00adnigraph:x",
    "\ufeffomnigraph:x",
    "\U0001d428mnigraph:x",
    7,
]


@pytest.mark.parametrize("method", calls_that_take("actor_id"))
def test_every_call_refuses_an_actor_that_is_none(
    graph: Graph, tmp_path: Path, method: str
) -> None:
    before = graph.head_commit_id_for_branch()
    for actor in UNFIT_ACTORS:
        with pytest.raises(InvalidActorError) as caught:
            call_with(graph, method, {"actor_id": actor}, tmp_path)
        assert caught.value.code == "OG-ACTOR"
        require_shown(str(caught.value))
    assert graph.head_commit_id_for_branch() == before


@pytest.mark.parametrize("actor", ["ann", "omnigraph", "Ann B.", "svc/etl@host", "å", "x" * 256])
def test_other_actors_are_kept(graph: Graph, actor: str) -> None:
    graph.load(
        json.dumps({"type": "P", "data": {"k": actor}}).encode(), mode="merge", actor_id=actor
    )
    assert graph.list_commits(limit=1)[0].actor_id == actor


UNFIT_MESSAGES = ["a\ud800", "a\x1b[31m", "\0", "a\u2028b", "a\u202eb", "x" * 65_537, 7]


@pytest.mark.parametrize("method", calls_that_take("message"))
def test_every_call_refuses_a_message_that_no_commit_can_keep(
    graph: Graph, tmp_path: Path, method: str
) -> None:
    for message in UNFIT_MESSAGES:
        with pytest.raises(UNFIT_TEXT) as caught:
            call_with(graph, method, {"message": message}, tmp_path)
        require_shown(str(caught.value))


@pytest.mark.parametrize("method", calls_that_take("properties"))
def test_every_call_refuses_properties_that_no_commit_can_keep(
    graph: Graph, tmp_path: Path, method: str
) -> None:
    unfit: list[dict[Any, Any]] = [
        {"": "x"},
        {" ": "x"},
        {"a\nb": "x"},
        {"\ud800": "x"},
        {"x" * 257: "x"},
        {7: "x"},
        {"x": None},
        {"x": {}},
        {"x": "\ud800"},
        {"x": "\x1b"},
        {str(n): "x" for n in range(257)},
    ]
    for properties in unfit:
        with pytest.raises(UNFIT_TEXT) as caught:
            call_with(graph, method, {"properties": properties}, tmp_path)
        require_shown(str(caught.value))


@pytest.mark.parametrize("method", calls_that_take("expected_head"))
def test_every_call_refuses_an_expected_head_that_is_no_id(
    graph: Graph, tmp_path: Path, method: str
) -> None:
    for head in ("\ud800", "a\nb", "x" * 300, 7):
        with pytest.raises(UNFIT_TEXT):
            call_with(graph, method, {"expected_head": head}, tmp_path)


def test_a_message_may_have_lines(graph: Graph) -> None:
    row = b'{"type":"P","data":{"k":"lines"}}'
    graph.load(row, mode="merge", message="a\n\tb\r\n", properties={"why": "a\nb"})
    commit = graph.list_commits(limit=1)[0]
    assert (commit.message, without_lineage(commit.properties)) == ("a\n\tb\r\n", {"why": "a\nb"})
