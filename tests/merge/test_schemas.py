"""Merges across schemas: what the text cases do not show."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from omnigraph.graph import Graph, ReadTarget
from omnigraph.graph.cluster_guard import InsideClusterError
from omnigraph.manifest.errors import SchemaApplyInProgressError
from omnigraph.manifest.layout import MANIFEST
from omnigraph.merge.commit import MergeCommits
from omnigraph.merge.conflicts import MergeConflictError, ReadSetConflictError
from omnigraph.merge.decision_file import DecisionFileError
from omnigraph.merge.request import MergeRequest, RevertRequest
from omnigraph.names import BranchName
from support.cases import Case, load_cases
from support.embedding_fixtures import no_provider, server, vectors
from support.embedding_server import EmbeddingServer
from support.entities import entities
from support.inline_engine import take_everything
from support.merge_sides import act
from support.places import Place, repository_of

__all__ = ["no_provider", "server"]

BASE = "node Doc { slug: String @key   note: String?   size: I32? }\nedge Cites: Doc -> Doc\n"
WIDER = BASE.replace("size: I32?", "size: I32?   tag: String?")
RANK = "   rank: I32 @default(1)"
NOTES = "node Note {{ key: String @key  text: String  other: String?  vec: Vector(4)? {} }}\n"


@pytest.fixture(autouse=True)
def engine() -> str:
    """Merge in this process, unless a test says otherwise."""
    return "local"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = Place(str(tmp_path / "graph")).init(BASE)
    put(made, "main", slug="a", note="old")
    made.branch_create("draft")
    return made


def put(graph: Graph, branch: str, **data: object) -> None:
    line = json.dumps({"type": "Doc", "data": data})
    graph.load(line.encode(), mode="merge", branch=branch)


def rows(graph: Graph, branch: str) -> list[str]:
    graph.sync_branch(branch)
    return entities(graph)


BY_TASKS = [
    case
    for case in load_cases("merge_schemas")
    if case.name
    in (
        "a property that one side added: rows of the other side have what was filled in",
        "both sides insert a row, and one does not know the new property",
        "a renamed property, and values of the other side under the old name",
        "a new type with rows and edges to rows that were there",
    )
]


@pytest.mark.parametrize("case", BY_TASKS, ids=str)
@pytest.mark.parametrize("direction", [("draft", "main"), ("main", "draft")])
def test_tasks_see_rows_as_the_merged_schema_does(
    case: Case, direction: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for way in ("local", "spark"):
        graph = Place(str(tmp_path / way)).init(case.sections["schema"])
        act(graph, {"base": case.sections["base"]}, "base", "main")
        graph.branch_create("draft")
        act(graph, case.sections, "source", "draft")
        act(graph, case.sections, "target", "main")
        if way == "spark":
            take_everything(monkeypatch)
        try:
            result = graph.branch_merge(*direction, engine=way)
            told.append((result.counts, rows(graph, direction[1])))
        except MergeConflictError as error:
            told.append((error.conflicts, rows(graph, direction[1])))
    assert told[0] == told[1]


def test_the_source_of_a_new_type_can_go(graph: Graph) -> None:
    graph.apply_schema(BASE + "node Tag { name: String @key }\n", branch="draft")
    graph.mutate('query q() { insert Tag { name: "red" } }', branch="draft")
    graph.branch_merge("draft", "main")
    graph.branch_delete("draft")
    graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert "Tag red" in rows(Graph.open(graph.uri, durability="process"), "main")


def test_a_new_type_of_main_is_taken_by_pointer_and_written_as_a_fork(graph: Graph) -> None:
    graph.apply_schema(BASE + "node Tag { name: String @key }\n")
    graph.mutate('query q() { insert Tag { name: "red" } }')
    graph.branch_merge("main", "draft")
    sides = [graph.snapshot_of(ReadTarget.branch(branch)) for branch in ("main", "draft")]
    entries = [side.entries["node:Tag"] for side in sides]
    assert entries[0].at == entries[1].at
    graph.mutate('query q() { insert Tag { name: "blue" } }', branch="draft")
    assert "Tag blue" not in rows(graph, "main")
    assert "Tag blue" in rows(graph, "draft")


def test_a_pointer_to_other_columns_is_not_taken(graph: Graph) -> None:
    put(graph, "main", slug="b")
    graph.apply_schema(WIDER, branch="draft")
    graph.branch_merge("main", "draft")
    assert rows(graph, "draft") == ["Doc a note=old", "Doc b"]
    graph.mutate('query q() { update Doc set { tag: "x" } where slug = "b" }', branch="draft")
    assert "Doc b tag=x" in rows(graph, "draft")


def test_a_schema_of_the_target_that_changes_meanwhile_is_a_lost_race(graph: Graph) -> None:
    graph.apply_schema(WIDER, branch="draft")
    left = [BASE.replace("size: I32?", "size: I32?   rank: I32?")]

    def meanwhile(_schema: str) -> None:
        if left:
            other = Graph.open(graph.uri, durability="process", auto_optimize=False)
            other.apply_schema(left.pop())

    with pytest.raises(ReadSetConflictError, match="graph_head:main"):
        graph.branch_merge("draft", check_schema=meanwhile)
    left.append(BASE.replace("size: I32?", "size: I32?   rank: I32?   level: I32?"))
    graph.branch_merge("draft", check_schema=meanwhile, retries=1)
    properties = graph.snapshot_of(ReadTarget.branch("main")).catalog.node_types["Doc"].properties
    assert set(properties) == {"slug", "note", "size", "tag", "rank", "level"}


def test_a_schema_change_that_is_under_way_counts_as_a_retry(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.apply_schema(WIDER, branch="draft")
    repository = repository_of(graph)
    other = repository_of(Place(graph.uri).open())
    main = repository.branches.resolve(BranchName("main"))
    pauses: list[float] = []
    with ExitStack() as changing:
        changing.enter_context(other.branch_locks.take(main.branch, operation_id="OP"))
        other.branches.set_schema_lock(main)

        def finish(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 2:
                other.branches.clear_schema_lock(main)
                changing.close()

        monkeypatch.setattr(repository.clock, "sleep", finish)
        with pytest.raises(SchemaApplyInProgressError):
            graph.branch_merge("draft")
        assert graph.branch_merge("draft", retries=2).outcome == "fast_forward"
    assert len(pauses) == 2


def test_a_version_that_was_purged_before_the_lock_is_not_taken_by_pointer(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    tagged = BASE + "node Tag { name: String @key%s }\n"
    graph.apply_schema(tagged % "  kind: String?")
    graph.mutate('query q() { insert Tag { name: "red", kind: "k" } }')
    before = MergeCommits._require_source
    left = [tagged % ""]

    def purge_first(commits: MergeCommits, request: MergeRequest | RevertRequest) -> None:
        if left:
            other = Graph.open(graph.uri, durability="process", auto_optimize=False)
            assert not other.apply_schema(left.pop(), allow_data_loss=True).warnings
        before(commits, request)

    monkeypatch.setattr(MergeCommits, "_require_source", purge_first)
    graph.branch_merge("main", "draft")
    assert not left
    assert "Tag red" in rows(Graph.open(graph.uri, durability="process"), "draft")


def test_a_merge_leaves_no_mark_of_its_schema_change(graph: Graph) -> None:
    graph.apply_schema(WIDER, branch="draft")
    graph.branch_merge("draft")
    names = repository_of(graph).store.datasets.branch_names(MANIFEST)
    assert not [name for name in names if name.startswith("__schema_apply_lock__")]
    files = Path(graph.uri, "_schema.pg").read_text(encoding="utf-8")
    assert files == graph.schema_source()


def test_a_dry_run_reserves_no_numbers_and_asks_no_one(graph: Graph) -> None:
    graph.apply_schema(WIDER, branch="draft")
    repository = repository_of(graph)
    before = repository.reader.latest(repository.branches.resolve(graph.snapshot().branch)).version

    def refuse(_schema: str) -> None:
        raise AssertionError("a dry run changes no schema")

    planned = graph.branch_merge("draft", dry_run=True, check_schema=refuse)
    assert [step.kind for step in planned.schema_changes.steps] == ["add_property"]
    after = repository.reader.latest(repository.branches.resolve(graph.snapshot().branch)).version
    assert after == before


def test_conflicts_of_schemas_can_be_edited_and_given_back(graph: Graph, tmp_path: Path) -> None:
    graph.apply_schema(BASE.replace("size: I32?", "size: I64?"), branch="draft")
    graph.apply_schema(BASE.replace("   size: I32?", ""))
    [line] = [json.loads(line) for line in graph.merge_conflicts("draft")]
    assert (line["kind"], line["take"], line["name"]) == ("schema_conflict", None, "node:Doc.size")
    file = tmp_path / "decided.jsonl"
    file.write_text(json.dumps(line | {"take": "target"}))
    graph.branch_merge("draft", resolve_file=file)
    assert "size" not in graph.schema_source()


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("property:9999", "line 2: property:9999 is on no side of this merge"),
        ("constraint:1:card", "line 2: constraint:1:card is on no side of this merge"),
        ("type:1", "line 2: type:1 is not in conflict"),
    ],
)
def test_a_decision_about_a_schema_that_decides_nothing_is_refused(
    graph: Graph, tmp_path: Path, schema: str, problem: str
) -> None:
    graph.apply_schema(BASE.replace("size: I32?", "size: I64?"), branch="draft")
    graph.apply_schema(BASE.replace("   size: I32?", ""))
    [line] = [json.loads(line) for line in graph.merge_conflicts("draft")]
    file = tmp_path / "decided.jsonl"
    given = [line | {"take": "target"}, {"schema": schema, "take": "target"}]
    file.write_text("\n".join(map(json.dumps, given)))
    for dry_run in (True, False):
        with pytest.raises(DecisionFileError, match=re.escape(problem)):
            graph.branch_merge("draft", resolve_file=file, dry_run=dry_run)
    # A line without `take` decides nothing, and says so.
    file.write_text("\n".join(map(json.dumps, [given[0], given[1] | {"take": None}])))
    graph.branch_merge("draft", resolve_file=file)


def test_a_conflict_that_no_side_settles_does_not_offer_a_side(
    graph: Graph, tmp_path: Path
) -> None:
    graph.apply_schema(BASE.replace(" @key", ""), branch="draft")
    put(graph, "main", slug="a", note="new")
    for side in (None, "source", "target"):
        with pytest.raises(MergeConflictError, match="changed the key of Doc") as raised:
            graph.branch_merge("draft", schema=side)
        assert "--schema" not in str(raised.value.hint)
        assert "branch conflicts draft --into main" in str(raised.value.hint)
    [line] = [json.loads(line) for line in graph.merge_conflicts("draft")]
    file = tmp_path / "decided.jsonl"
    file.write_text(json.dumps(line | {"take": "target"}))
    with pytest.raises(DecisionFileError, match=r"line 1: .* not settled by a side"):
        graph.branch_merge("draft", resolve_file=file)


def test_a_decision_about_a_schema_may_be_about_what_rows_would_lose(
    graph: Graph, tmp_path: Path
) -> None:
    graph.mutate('query q() { update Doc set { size: 7 } where slug = "a" }', branch="draft")
    graph.apply_schema(BASE.replace("   size: I32?", ""))
    [line] = [json.loads(line) for line in graph.merge_conflicts("draft")]
    assert line["kind"] == "schema_dropped"
    file = tmp_path / "decided.jsonl"
    file.write_text(json.dumps(line | {"take": "target"}))
    with pytest.raises(MergeConflictError):
        graph.branch_merge("draft", resolve_file=file)
    merged = graph.branch_merge("draft", resolve_file=file, allow_data_loss=True)
    assert [each.count for each in merged.dropped_values] == [1]


def test_a_chosen_schema_that_no_apply_could_reach_is_listed_as_what_it_does(graph: Graph) -> None:
    graph.apply_schema(
        BASE.replace("size: I32?", "extent: I32? @rename_from(size)"), branch="draft"
    )
    graph.apply_schema(BASE.replace("size: I32?", "size: I64?"))
    merged = graph.branch_merge("draft", schema="source")
    kinds = [step.kind for step in merged.schema_changes.steps]
    assert kinds == ["rename_property", "retype_property"]


def test_a_property_that_both_sides_added_is_one_identity_on_both(graph: Graph) -> None:
    for branch in ("draft", "main"):
        graph.apply_schema(WIDER, branch=branch)
    graph.branch_merge("draft", "main")
    graph.branch_merge("main", "draft")
    tags = [
        graph.snapshot_of(ReadTarget.branch(branch)).catalog.node_types["Doc"].properties["tag"]
        for branch in ("draft", "main")
    ]
    known = [{tag.property_id, *tag.also} for tag in tags]
    assert known[0] == known[1]
    assert len(known[0]) == 2


def test_a_branch_from_before_a_property_gets_its_value_also_where_another_declared_it_at_once(
    graph: Graph,
) -> None:
    """`draft` adds it to a type with rows, `main` declares the type with it."""
    tag, ranked = (f"{BASE}node Tag {{ name: String @key{more} }}\n" for more in ("", RANK))
    graph.apply_schema(tag, branch="draft")
    graph.mutate('query q() { insert Tag { name: "red" } }', branch="draft")
    graph.branch_create_from("draft", "early")
    graph.apply_schema(ranked, branch="draft")
    graph.apply_schema(ranked)
    graph.mutate('query q() { insert Tag { name: "blue", rank: 4 } }', branch="main")
    graph.mutate('query q() { insert Tag { name: "grey" } }', branch="early")
    graph.branch_merge("draft")
    graph.branch_merge("main", "draft")
    graph.branch_merge("draft", "early")
    expected = ["Doc a note=old", "Tag blue rank=4", "Tag grey rank=1", "Tag red rank=1"]
    assert rows(graph, "early") == expected
    graph.branch_merge("early", "draft")
    assert rows(graph, "draft") == expected


@pytest.mark.parametrize("brings_up_to_date", [True, False])
def test_a_graph_of_a_cluster_takes_rows_of_a_branch_that_declared_the_same(
    tmp_path: Path, *, brings_up_to_date: bool
) -> None:
    graph = Place(str(tmp_path / "graphs" / "docs.omni")).init(BASE)
    put(graph, "main", slug="a", note="old")
    graph.branch_create("draft")
    for branch in ("draft", "main"):
        graph.apply_schema(WIDER, branch=branch)
    (tmp_path / "__cluster").mkdir()
    (tmp_path / "__cluster" / "state.json").write_text("{}")
    held = graph.with_schema(graph.snapshot().schema.schema_hash)
    graph.mutate('query q() { update Doc set { tag: "x" } where slug = "a" }', branch="draft")
    if brings_up_to_date:
        graph.branch_merge("main", "draft")
    graph.branch_merge("draft", "main")
    assert graph.branch_merge("draft", "main").outcome == "already_up_to_date"
    assert graph.branch_merge("main", "draft", dry_run=True).outcome != "conflicts"
    # Only numbers have changed: a server goes on with the queries that it has checked.
    held.mutate('query q() { update Doc set { size: 3 } where slug = "a" }')
    found = held.query("query q() { match { $d: Doc } return { $d.tag as tag, $d.size as size } }")
    assert list(found.to_pylist()) == [{"tag": "x", "size": 3}]
    graph.apply_schema(WIDER.replace("tag: String?", "tag: String?   more: I32?"), branch="draft")
    with pytest.raises(InsideClusterError):
        graph.branch_merge("draft", "main")


# -- vectors ---------------------------------------------------------------------------------------


@pytest.fixture
def model(server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A provider whose model is `m1`."""
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "m1")
    return server.url


def embedded(tmp_path: Path, note: str) -> Graph:
    graph = Place(str(tmp_path / "notes")).init(NOTES.format(note))
    graph.mutate('query q() { insert Note { key: "a", text: "A", other: "A" } }')
    graph.embed()
    graph.branch_create("draft")
    return graph


@pytest.mark.parametrize("into", ["draft", "main"])
@pytest.mark.parametrize("changer", ["draft", "main"])
def test_vectors_of_rows_that_were_written_for_another_model_are_made_again(
    tmp_path: Path, model: str, changer: str, into: str
) -> None:
    graph = embedded(tmp_path, '@embed(text, model="m1")')
    other = "main" if changer == "draft" else "draft"
    graph.apply_schema(NOTES.format('@embed(text, model="m2")'), branch=changer)
    graph.mutate('query q() { insert Note { key: "b", text: "B" } }', branch=other)
    given = {"key": "c", "text": "C", "vec": [1, 2, 3, 4]}
    line = json.dumps({"type": "Note", "data": given})
    graph.load(line.encode(), mode="merge", branch=other, embed="off")
    graph.branch_merge("main" if into == "draft" else "draft", into)
    graph.sync_branch(into)
    found = vectors(graph)
    assert found["b"] is None, "made by the old model"
    assert found["c"] == [1, 2, 3, 4], "given by a user"
    assert found["a"] is not None, "no side has changed this row"


def test_vectors_stay_where_text_and_model_are_the_same(tmp_path: Path, model: str) -> None:
    graph = embedded(tmp_path, '@embed(text, model="m1")')
    graph.apply_schema(NOTES.format('@embed(other, model="m1")'), branch="draft")
    graph.mutate('query q() { insert Note { key: "s", text: "S", other: "S" } }')
    graph.mutate('query q() { insert Note { key: "t", text: "T", other: "U" } }')
    graph.branch_merge("draft", "main")
    found = vectors(graph)
    assert found["s"] is not None
    assert found["t"] is None


@pytest.mark.parametrize("into", ["draft", "main"])
def test_vectors_are_known_by_numbers_and_not_by_names(
    tmp_path: Path, model: str, into: str
) -> None:
    graph = embedded(tmp_path, '@embed(text, model="m1")')
    renamed = NOTES.format('@rename_from(vec) @embed(text, model="m2")')
    renamed = renamed.replace("node Note", 'node Memo @rename_from("Note")')
    graph.apply_schema(renamed.replace("vec:", "line:"), branch="draft")
    graph.mutate('query q() { insert Note { key: "b", text: "B" } }')
    graph.branch_merge("main" if into == "draft" else "draft", into)
    graph.sync_branch(into)
    found = graph.query("query q() { match { $n: Memo } return { $n.key as k, $n.line as v } }")
    assert {row["k"]: row["v"] is None for row in found.to_pylist()} == {"a": False, "b": True}
