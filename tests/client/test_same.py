"""A graph of a server, and one that is awaited, behave as a local one does."""

from __future__ import annotations

import datetime
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from omnigraph import AsyncGraph, Graph, ReadTarget
from omnigraph.client import RemoteGraph
from omnigraph.errors import OmnigraphError
from omnigraph.graph import BranchNotFoundError, ByteRange, FeedRequest, Selection
from omnigraph.graph.arguments import TwoTargetsError
from omnigraph.names import ArgumentError
from omnigraph.query.params import ParamsError
from omnigraph.write.rules.violations import CreateConflictError
from support.lineage import without_lineage
from support.ways import QUERIES, RECORDS, SCHEMA, WAYS, reached

MAIN = ReadTarget.branch("main")
ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


def names(graph: Any, **given: Any) -> list[str]:
    return [row["p.name"] for row in graph.query(QUERIES, "everyone", **given).to_pylist()]


# -- results --------------------------------------------------------------------------------------


def test_rows_come_with_their_types(graph: Any) -> None:
    result = graph.query(QUERIES, "everyone")
    assert result.json_rows() == [
        {"p.name": "ann", "p.age": 1, "p.born": "1990-02-03"},
        {"p.name": "bob", "p.age": None, "p.born": None},
    ]
    assert [str(column.prop_type) for column in result.columns] == ["String", "I32?", "Date?"]
    assert (result.query_name, result.target.branch) == ("everyone", "main")
    assert result.graph_commit_id == graph.head_commit_id_for_branch()


def test_a_read_names_a_branch_a_commit_or_a_tag(graph: Any) -> None:
    first = graph.head_commit_id_for_branch()
    graph.tag_create("v1")
    graph.branch_create("draft")
    graph.mutate('query q() { insert Person { name: "dan" } }', branch="draft")
    assert names(graph, target=ReadTarget.branch("draft")) == ["ann", "bob", "dan"]
    for target in (None, MAIN, ReadTarget.commit(first), ReadTarget.tag("v1")):
        assert names(graph, target=target) == ["ann", "bob"]


def test_a_target_may_be_a_text_or_a_moment_and_a_branch_has_a_name_of_its_own(
    graph: Any,
) -> None:
    first = graph.get_commit(graph.head_commit_id_for_branch())
    name = "01J00000000000000000000000"
    for branch in ("draft", name):
        graph.branch_create(branch)
        graph.mutate('query q() { insert Person { name: "dan" } }', branch=branch)
        assert names(graph, branch=branch) == ["ann", "bob", "dan"]
    assert names(graph, target="draft") == ["ann", "bob", "dan"]
    graph.mutate('query q() { insert Person { name: "eve" } }')
    moment = datetime.datetime.fromtimestamp(first.created_at / 1e6, datetime.UTC)
    for target in (first, first.graph_commit_id, moment + datetime.timedelta(microseconds=1)):
        assert names(graph, target=target) == ["ann", "bob"]
    with pytest.raises(TwoTargetsError):
        names(graph, target="draft", branch="draft")
    with pytest.raises(ArgumentError, match="target: expected a branch, tag or commit"):
        names(graph, target=7)


def test_a_read_explains_itself_and_is_measured(graph: Any) -> None:
    plan = graph.query(QUERIES, "everyone", explain=True)
    assert plan.row_count == 0
    assert plan.explanation()["plan"]
    measured = graph.query(QUERIES, "everyone", profile=True)
    assert measured.row_count == 2
    assert measured.explanation_text()


def test_a_mutation_is_one_commit(graph: Any) -> None:
    head = graph.head_commit_id_for_branch()
    result = graph.mutate(QUERIES, "grow", {"n": "ann", "a": 9}, expected_head=head)
    assert (result.affected_nodes, result.branch, result.query_name) == (1, "main", "grow")
    assert result.commit == graph.get_commit(result.commit.graph_commit_id)
    assert (result.commit.parent_commit_id, result.commit.operation) == (head, "mutation")
    assert graph.mutate(QUERIES, "grow", {"n": "nobody", "a": 9}).commit is None


def test_a_mutation_says_what_its_commit_is_about_and_counts_by_type(graph: Any) -> None:
    note = {"message": "older", "properties": {"ticket": "7"}}
    result = graph.mutate(QUERIES, "grow", {"n": "ann", "a": 9}, retries=2, **note)
    assert (result.commit.message, result.commit.properties) == ("older", {"ticket": "7"})
    counts = result.counts[0]
    assert (counts.table_key, counts.updated, counts.inserted) == ("node:Person", 1, 0)
    with pytest.raises(CreateConflictError) as caught:
        graph.mutate('query q() { create Person { name: "ann" } }')
    assert caught.value.graph_commit_id == result.commit.graph_commit_id
    assert "written by commit" in str(caught.value)


def test_objects_and_undeclared_parameters_are_the_same(graph: Any) -> None:
    text = 'match { $p: Person { name: "ann" } } return { $p.* as person, count(*) as n }'
    result = graph.query(text)
    assert result.json_rows()[0]["person"]["name"] == "ann"
    assert result.to_pylist()[0]["person"]["born"] == datetime.date(1990, 2, 3)
    declared = "query q($n: I64?) { match { $p: Person } return { $p.name } }"
    with pytest.raises(ParamsError, match="declares no such parameter"):
        graph.query(declared, params={"m": 1})
    assert len(graph.query(declared, params={"m": 1}, strict_params=False).warnings) == 1


def test_a_load_reports_what_it_has_done(graph: Any) -> None:
    result = graph.load(RECORDS, mode="merge", branch="etl", from_branch="main")
    assert (result.branch_created, result.base_branch, result.total_entities) == (True, "main", 3)
    assert (result.inserted, result.updated, result.unchanged) == (0, 0, 3)
    added = graph.load(b'{"type": "Person", "data": {"name": "dan"}}', mode="append")
    assert (added.inserted, added.nodes, added.commit.operation) == (1, (("Person", 1),), "load")


def test_records_are_read_from_files_globs_and_streams(graph: Any, tmp_path: Path) -> None:
    for name in ("dan", "eve"):
        record = f'{{"type": "Person", "data": {{"name": "{name}"}}}}'
        (tmp_path / f"{name}.jsonl").write_text(record, encoding="utf-8")
    assert graph.load(tmp_path / "dan.jsonl", mode="append").total_entities == 1
    assert graph.load(str(tmp_path / "*.jsonl"), mode="merge").total_entities == 2
    with (tmp_path / "eve.jsonl").open("rb") as file:
        assert graph.load(file, mode="merge").unchanged == 1
    assert names(graph) == ["ann", "bob", "dan", "eve"]


def test_the_compatible_reader_is_lenient(graph: Any) -> None:
    record = b'{"type": "Person", "data": {"name": "dan", "age": "old", "shoe": 3}}'
    graph.load(record, mode="merge", reader="compatible")
    assert graph.query(QUERIES, "everyone").json_rows()[2]["p.age"] is None


def test_branches_are_created_listed_merged_and_deleted(graph: Any) -> None:
    graph.branches.create("b")
    graph.branch_create_from("b", "a/x")
    assert graph.branches.list() == graph.branch_list() == ["main", "a/x", "b"]
    graph.mutate(QUERIES, "grow", {"n": "ann", "a": 5}, branch="a/x")
    plan = graph.branch_merge("a/x", dry_run=True)
    assert [(each.table_key, each.updated) for each in plan.counts] == [("node:Person", 1)]
    merged = graph.branches.merge("a/x", message="grown up")
    assert str(merged.outcome) == "fast_forward"
    assert str(graph.branch_merge("a/x").outcome) == "already_up_to_date"
    graph.branch_delete("a/x")
    graph.branches.delete("b")
    assert graph.branch_list() == ["main"]


def test_conflicts_are_listed_and_settled_by_a_file(graph: Any, tmp_path: Path) -> None:
    graph.branch_create("b")
    graph.mutate(QUERIES, "grow", {"n": "ann", "a": 5}, branch="b")
    graph.mutate(QUERIES, "grow", {"n": "ann", "a": 6})
    planned = graph.branch_merge("b", dry_run=True)
    assert (str(planned.outcome), planned.is_dry_run, planned.commit) == ("conflicts", True, None)
    assert [found.entity_id for found in planned.conflicts] == ["ann"]
    [line] = graph.merge_conflicts("b")
    path = tmp_path / "settled.jsonl"
    path.write_text(line.replace('"take": null', '"take": "source"'), encoding="utf-8")
    assert str(graph.branch_merge("b", resolve_file=path, dry_run=True).outcome) == "merged"
    assert str(graph.branch_merge("b", resolve_file=str(path)).outcome) == "merged"
    assert graph.query(QUERIES, "everyone").to_pylist()[0]["p.age"] == 5


def test_a_conflict_of_a_text_with_a_line_separator_is_settled_by_its_line(
    graph: Any, tmp_path: Path
) -> None:
    graph.branch_create("b")
    graph.mutate(QUERIES, "grow", {"n": "bob", "a": 5}, branch="b")
    graph.mutate(QUERIES, "grow", {"n": "bob", "a": 6})
    [line] = graph.merge_conflicts("b")
    assert "\u2028" in line
    path = tmp_path / "settled.jsonl"
    path.write_text(line.replace('"take": null', '"take": "source"'), encoding="utf-8")
    assert str(graph.branch_merge("b", resolve_file=path).outcome) == "merged"


def test_commits_keep_what_they_were_made_for(graph: Any) -> None:
    newest, root = graph.commits.list()
    assert (newest.operation, newest.message) == ("load", "the first")
    assert without_lineage(newest.properties) == {"batch": "7"}
    assert graph.list_commits(limit=1) == [newest]
    assert graph.list_commits(before=newest.manifest_version) == [root]
    graph.branch_create("b")
    changed = graph.mutate(QUERIES, "grow", {"n": "ann", "a": 5}, branch="b")
    assert changed.commit.graph_branch == "b"


def test_a_commit_is_undone(graph: Any) -> None:
    changed = graph.mutate(QUERIES, "grow", {"n": "ann", "a": 5})
    undone = graph.commit_revert(changed.commit.graph_commit_id)
    assert undone.commit.operation == "revert"
    assert graph.query(QUERIES, "everyone").to_pylist()[0]["p.age"] == 1


def test_a_commit_stands_for_its_id(graph: Any) -> None:
    changed = graph.mutate(QUERIES, "grow", {"n": "ann", "a": 5}).commit
    assert graph.commits.get(changed) == graph.commits.get(changed.graph_commit_id)
    assert len(graph.changes.of_commit(changed).changes) == 1
    assert graph.commits.revert(changed).commit.operation == "revert"


def test_a_text_names_a_branch_else_a_tag_else_a_commit(graph: Any) -> None:
    first = graph.head_commit_id_for_branch()
    graph.tag_create("v1", ReadTarget.commit(first))
    graph.branch_create("dev")
    graph.mutate('query m() { insert Person { name: "Zoe" } }')
    lines = {
        name: len(list(graph.export_lines(types=["Person"], target=name)))
        for name in ("main", "v1", "dev", first)
    }
    assert lines == {"main": 3, "v1": 2, "dev": 2, first: 2}
    assert len(graph.query(QUERIES, "everyone", target="v1")) == 2
    assert len(list(graph.changes_between("v1", "main"))) == 1
    assert len(list(graph.changes_between("v1", "v1"))) == 0
    with pytest.raises(BranchNotFoundError, match="nope"):
        graph.query(QUERIES, "everyone", target="nope")
    with pytest.raises(BranchNotFoundError, match="nope"):
        list(graph.changes_between("v1", "nope"))


def test_tags_are_named_listed_and_forgotten(graph: Any) -> None:
    head = graph.head_commit_id_for_branch()
    tag = graph.tags.create("v1", ReadTarget.commit(head))
    assert (tag.name, tag.commit_id) == ("v1", head)
    assert [one.name for one in graph.tag_list()] == ["v1"]
    graph.tag_delete("v1")
    assert graph.tags.list() == []


def test_changes_of_commits_the_feed_and_differences_agree(graph: Any) -> None:
    before = graph.head_commit_id_for_branch()
    start = graph.poll_changes(FeedRequest(Selection()))
    graph.mutate(QUERIES, "grow", {"n": "ann", "a": 5})
    page = graph.changes.of_commit(graph.head_commit_id_for_branch())
    assert [(one["op"], one["id"]) for one in page.changes] == [("update", "ann")]
    feed = graph.changes.poll(FeedRequest(Selection(), cursor=start.cursor))
    assert [block.changes for block in feed.blocks] == [page.changes]
    assert feed.caught_up
    rows = list(graph.changes_between(ReadTarget.commit(before), MAIN))
    assert rows == page.changes
    none = graph.changes_between(ReadTarget.commit(before), MAIN, Selection.of(ops=["delete"]))
    assert list(none) == []


def test_a_baseline_ends_with_the_cursor_after_it(graph: Any) -> None:
    lines, handshake = graph.baseline(selection=Selection.of(types=["Person"]))
    assert [line.endswith(b"\n") for line in lines] == [True, True]
    assert handshake["snapshot_commit_id"] == graph.head_commit_id_for_branch()
    request = FeedRequest(Selection.of(types=["Person"]), cursor=handshake["resume_cursor"])
    assert graph.poll_changes(request).blocks == ()


def test_an_export_is_taken_back_by_a_load(graph: Any) -> None:
    lines = list(graph.export_lines())
    assert len(lines) == 3
    # The note of bob has a line separator, which ends no line of JSON.
    assert b"\xe2\x80\xa8" in lines[2]
    assert graph.load(b"".join(lines), mode="merge").unchanged == 3
    assert len(list(graph.export_lines(types=["Knows"], target=MAIN))) == 1


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_an_export_to_a_folder_has_the_same_files(form: str, tmp_path: Path) -> None:
    root = tmp_path / "people.omni"
    with Graph.init(root, SCHEMA, durability="process") as made:
        made.load(RECORDS, mode="append")
        made.tag_create("v1")
        made.mutate('query q() { insert Person { name: "dan" } }')
        made.export(tmp_path / "here", format=form, target=ReadTarget.tag("v1"))
    with reached("remote", root) as graph:
        result = graph.export(tmp_path / "there", format=form, target=ReadTarget.tag("v1"))
        assert (result.rows, result.engine, result.branch) == (3, "local", "main")
        with pytest.raises(OmnigraphError, match="expected an empty folder"):
            graph.export(tmp_path / "there")
        some = graph.export(tmp_path / "some", types=["Knows"])
        assert [file.table_key for file in some.files] == ["edge:Knows"]
    here, there = (
        {
            str(path.relative_to(tmp_path / side)): path.read_bytes().replace(
                str(tmp_path / side).encode(), b"OUT"
            )
            for path in (tmp_path / side).rglob("*")
            if path.is_file()
        }
        for side in ("here", "there")
    )
    assert sorted(here) == sorted(there)
    if form == "parquet":
        for name in (name for name in here if name.endswith(".parquet")):
            first, second = (pq.read_table(tmp_path / side / name) for side in ("here", "there"))
            assert first.equals(second)
            assert first.schema == second.schema
    else:
        assert here == there


def test_reads_exports_and_blobs_name_a_tag_or_a_moment(graph: Any) -> None:
    moment = graph.get_commit(graph.head_commit_id_for_branch()).created_at
    graph.tag_create("v1")
    graph.mutate('query q() { insert Person { name: "dan" } }')
    head = graph.head_commit_id_for_branch()
    for target in (ReadTarget.tag("v1"), ReadTarget.at(moment)):
        assert names(graph, target=target) == ["ann", "bob"]
        assert len(list(graph.export_lines(target=target))) == 3
        blob = graph.blob("node", "Person", "ann", "photo", target=target)
        assert (blob.read(), blob.stat.snapshot_id != head) == (bytes([1, 2, 3]), True)
        changed = graph.changes_between(target, MAIN)
        assert [(one["op"], one["id"]) for one in changed] == [("insert", "dan")]


def test_a_load_has_options(graph: Any) -> None:
    head = graph.head_commit_id_for_branch()
    twice = b'{"type": "Person", "data": {"name": "dan", "age": 1}}\n' * 2
    tried = graph.load(twice, mode="merge", on_duplicate="last", dry_run=True)
    assert (tried.is_dry_run, tried.inserted, tried.commit) == (True, 1, None)
    assert graph.head_commit_id_for_branch() == head
    loaded = graph.load(
        twice,
        mode="merge",
        on_duplicate="last",
        expected_head=head,
        message="why not",
        properties={"batch": "7", "a=b": "c=d"},
        embed="off",
    )
    commit = graph.get_commit(loaded.commit.graph_commit_id)
    own = without_lineage(commit.properties)
    assert (commit.message, own) == ("why not", {"batch": "7", "a=b": "c=d"})
    named = b'{"type": "Person", "data": {"name": "dan"}}'
    assert graph.load(named, mode="merge").unchanged == 1
    emptied = graph.load(named, mode="merge", missing="null")
    assert dict(emptied.node_counts["Person"].nulled) == {"age": 1}
    assert emptied.nulled == 1
    one = b'{"type": "Person", "data": {"name": "bob"}}'
    gone = graph.load(one, mode="overwrite", cascade=True)
    assert dict(gone.cascaded) == {"Knows": 1}


def test_blobs_are_read_whole_and_in_parts(graph: Any) -> None:
    blob = graph.blob("node", "Person", "ann", "photo")
    assert (blob.stat.kind, blob.stat.size, blob.stat.uri) == ("managed", 3, None)
    assert blob.stat.snapshot_id == graph.head_commit_id_for_branch()
    assert blob.read() == bytes([1, 2, 3])
    for wanted, expected in (
        (ByteRange(1, 2), [2, 3]),
        (ByteRange(offset=2), [3]),
        (ByteRange(length=99), [1, 2, 3]),
    ):
        assert b"".join(blob.chunks(wanted)) == bytes(expected)
    assert graph.blob("node", "Person", "bob", "photo", target=MAIN).read() == b""


def test_the_schema_is_shown_and_changed(graph: Any) -> None:
    assert graph.schema.source() == SCHEMA
    assert sorted(graph.catalog().node_types) == ["Person"]
    applied = graph.apply_schema(SCHEMA.replace("age: I32?", "age: I32?  nick: String?"))
    assert applied.applied
    assert applied.commit.operation == "schema_apply"
    assert [step["kind"] for step in applied.plan.to_json()["steps"]] == ["add_property"]
    assert "add property node:Person.nick" in applied.plan.render()
    assert not graph.apply_schema(graph.schema_source()).applied


def test_a_branch_has_a_schema_of_its_own(graph: Any) -> None:
    graph.branch_create("wide")
    wider = SCHEMA.replace("age: I32?", "age: I32?  nick: String?")
    applied = graph.schema.apply(wider, branch="wide")
    assert (applied.applied, applied.branch) == (True, "wide")
    assert (graph.schema.source(), graph.schema.source(branch="wide")) == (SCHEMA, wider)
    assert "nick" in graph.schema.catalog(branch="wide").node_types["Person"].properties
    found = graph.schema.diff(MAIN, "wide")
    assert [step.to_json()["kind"] for step in found.steps] == ["add_property"]
    assert "add property node:Person.nick" in found.render()
    assert graph.schema.diff("wide", "wide").steps == ()
    slim = SCHEMA.replace("  note: String?", "")
    dropped = graph.schema.apply(slim, allow_data_loss=True)
    assert [kept.to_json() for kept in dropped.kept_for] == [
        {"type": "node:Person", "branch": "wide"}
    ]


def test_a_snapshot_lists_its_datasets(graph: Any) -> None:
    shape = graph.snapshot_of(MAIN).to_json()
    assert [(one["type_name"], one["entity_count"]) for one in shape["datasets"]] == [
        ("Knows", 1),
        ("Person", 2),
    ]
    assert graph.refresh().to_json() == graph.snapshot().to_json() == shape


# -- errors ---------------------------------------------------------------------------------------

FAILURES: dict[str, Callable[[Any], Any]] = {
    "parse": lambda g: g.query("query q( {"),
    "type": lambda g: g.query("query q() { match { $p: Persn } return { $p.name } }"),
    "kind": lambda g: g.query(QUERIES, "grow", {"n": "a", "a": 1}),
    "read as mutation": lambda g: g.mutate(QUERIES, "everyone"),
    "name": lambda g: g.query(QUERIES, "nope"),
    "parameter": lambda g: g.query(
        "query q($n: I32) { match { $p: Person { age: $n } } return { $p.name } }",
        params={"n": "x"},
    ),
    "large number": lambda g: g.query(
        "query q($n: I64) { match { $p: Person { age: $n } } return { $p.name } }",
        params={"n": 10**30},
    ),
    "rows": lambda g: g.query(QUERIES, "everyone", rows_max=1),
    "branch": lambda g: g.query(QUERIES, "everyone", target=ReadTarget.branch("nope")),
    "commit": lambda g: g.get_commit("nope"),
    "tag": lambda g: g.query(QUERIES, "everyone", target=ReadTarget.tag("nope")),
    "validation": lambda g: g.load(b'{"type": "Person", "data": {"nme": 1}}', mode="merge"),
    "key": lambda g: g.load(RECORDS, mode="append"),
    "missing file": lambda g: g.load("nowhere.jsonl", mode="append"),
    "load head": lambda g: g.load(RECORDS, mode="merge", expected_head="0" * 26),
    "load twice": lambda g: g.load(RECORDS + RECORDS, mode="merge"),
    "load edges": lambda g: g.load(
        b'{"type": "Person", "data": {"name": "x"}}', mode="overwrite", dry_run=True
    ),
    "head": lambda g: g.mutate(QUERIES, "grow", {"n": "ann", "a": 1}, expected_head="0" * 26),
    "exists": lambda g: (g.branch_create("b"), g.branch_create("b")),
    "main": lambda g: g.branch_delete("main"),
    "bad name": lambda g: g.branch_create("a//b"),
    "merge": lambda g: (
        g.branch_create("m"),
        g.mutate(QUERIES, "grow", {"n": "ann", "a": 5}, branch="m"),
        g.mutate(QUERIES, "grow", {"n": "ann", "a": 6}),
        g.branch_merge("m"),
    ),
    "no tag": lambda g: g.tag_delete("nope"),
    "cursor": lambda g: g.poll_changes(FeedRequest(Selection(), cursor="x")),
    "start": lambda g: g.poll_changes(FeedRequest(Selection(), start="x")),
    "export type": lambda g: list(g.export_lines(types=["Nope"])),
    "blob property": lambda g: g.blob("node", "Person", "ann", "age"),
    "blob null": lambda g: g.blob("node", "Person", "nobody", "photo"),
    "blob range": lambda g: list(
        g.blob("node", "Person", "ann", "photo").chunks(ByteRange(offset=9))
    ),
    "schema": lambda g: g.apply_schema("node person {}"),
    "migration": lambda g: g.apply_schema(SCHEMA.replace("since: Date?", "since: Bool?")),
    "schema of no branch": lambda g: g.apply_schema(SCHEMA + "node New {}", branch="nope"),
}


@pytest.mark.parametrize("way", WAYS[1:])
def test_errors_are_the_same(way: str, tmp_path: Path) -> None:
    found = {}
    for each in ("local", way):
        root = tmp_path / each.replace(" ", "-") / "people.omni"
        root.parent.mkdir()
        with Graph.init(root, SCHEMA, durability="process") as made:
            made.load(RECORDS, mode="append")
        with reached(each, root) as graph:
            found[each] = {name: _failure(graph, fail) for name, fail in FAILURES.items()}
    differing = {
        name: (expected, found[way][name])
        for name, expected in found["local"].items()
        if expected != found[way][name]
    }
    assert differing == {}


def _failure(graph: Any, fail: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return what an error shows; then put the graph back into its state."""
    try:
        fail(graph)
    except OmnigraphError as error:
        render = getattr(error, "render", None)
        text = None if render is None else render()
        shown = (ULID.sub("ID", str(error)), error.hint, error.details, text)
        return type(error), error.code, *shown
    finally:
        for name in graph.branch_list()[1:]:
            graph.branch_delete(name)
    return ("no error",)


# -- the face -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RemoteGraph, AsyncGraph])
def test_methods_take_what_those_of_a_local_graph_take(kind: type) -> None:
    for name, method in vars(kind).items():
        local = getattr(Graph, name, None)
        if name.startswith("_") or local is None or not inspect.isfunction(method):
            continue
        if name in ("open", "connect", "close"):
            continue
        expected = list(inspect.signature(local).parameters)
        assert list(inspect.signature(method).parameters) == expected, name
