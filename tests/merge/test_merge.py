"""Merges case by case: the truth table, rules, settling, revert, crashes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.failpoints import FailpointError, arm, disarm
from omnigraph.graph import Graph, ReadTarget
from omnigraph.manifest import GraphCommit, Snapshot
from omnigraph.manifest.history import History
from omnigraph.manifest.layout import Incarnation
from omnigraph.merge.conflicts import (
    ConflictKind,
    Conflicts,
    MergeConflictError,
    ReadSetConflictError,
)
from omnigraph.merge.decision_file import DecisionFileError
from omnigraph.merge.merger import Merger, SameBranchError
from omnigraph.merge.request import MergeRequest
from omnigraph.merge.resolve import NotInConflictError
from omnigraph.merge.stage import stage_table
from omnigraph.names import BranchName
from omnigraph.write.export.exporter import stream_lines
from omnigraph.write.stage.external_blobs import BlobSourceDeniedError, BlobSourceUnreadableError
from support.lineage import without_lineage
from support.places import repository_of, session_of

SCHEMA = """
node Doc {
    slug: String @key
    note: String?
    size: F64?
    flag: Bool?
    on: Date?
    at: Vector(2)?
    tags: [String]?
    body: Blob?
    code: String? @unique
}
edge Cites: Doc -> Doc @card(0..2) { weight: F64? }
"""

Values = dict[str, Any]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    root = str(tmp_path / "g.omni")
    return Graph.init(root, SCHEMA, durability="process", auto_optimize=False)


def put(graph: Graph, branch: str, *records: Values) -> None:
    lines = "\n".join(json.dumps(record) for record in records)
    graph.load(lines.encode(), mode="merge", branch=branch)


def doc(slug: str, **values: Any) -> Values:
    return {"type": "Doc", "data": {"slug": slug, **values}}


def cites(edge_id: str, source: str, target: str, weight: float | None = None) -> Values:
    return {
        "edge": "Cites",
        "from": source,
        "to": target,
        "data": {"id": edge_id, "weight": weight},
    }


def delete(graph: Graph, branch: str, slug: str) -> None:
    graph.mutate(f'query d() {{ delete Doc where slug = "{slug}" }}', branch=branch)


def docs(graph: Graph, branch: str) -> dict[str, Values]:
    snapshot = graph.snapshot_of(ReadTarget.branch(branch))
    found = [json.loads(line) for line in stream_lines(snapshot, ["Doc"])]
    return {
        each["data"]["slug"]: {
            key: value
            for key, value in each["data"].items()
            if value is not None and key not in ("slug", "id")
        }
        for each in found
    }


OLD: Values = {"note": "old"}
MINE: Values = {"note": "mine"}
THEIRS: Values = {"note": "theirs"}
GONE = None

TRUTH_TABLE = [
    # base, source, target, expected (a row, GONE, or the kind of conflict)
    (GONE, MINE, GONE, MINE),
    (GONE, GONE, THEIRS, THEIRS),
    (GONE, MINE, MINE, MINE),
    (GONE, MINE, THEIRS, ConflictKind.DIVERGENT_INSERT),
    (OLD, OLD, OLD, OLD),
    (OLD, OLD, THEIRS, THEIRS),
    (OLD, OLD, GONE, GONE),
    (OLD, MINE, OLD, MINE),
    (OLD, GONE, OLD, GONE),
    (OLD, GONE, GONE, GONE),
    (OLD, MINE, MINE, MINE),
    (OLD, MINE, THEIRS, ConflictKind.DIVERGENT_UPDATE),
    (OLD, GONE, THEIRS, ConflictKind.DELETE_VS_UPDATE),
    (OLD, MINE, GONE, ConflictKind.DELETE_VS_UPDATE),
]
KINDS_OF_COLUMNS = {
    "text": (OLD, MINE, THEIRS),
    "floats": ({"size": 0.0}, {"size": -0.0}, {"size": 1.5}),
    "null": ({}, {"note": ""}, {"flag": False}),
    "dates": ({"on": "1970-01-01"}, {"on": "9999-12-31"}, {"on": "0001-01-01"}),
    "lists": ({"tags": []}, {"tags": ["a"]}, {"tags": ["a", "b"]}),
    "vectors": ({"at": [0.0, 1.0]}, {"at": [-0.0, 1.0]}, {"at": [1.0, 0.0]}),
    "blobs": ({"body": "base64:YQ=="}, {"body": "base64:Yg=="}, {"body": "base64:"}),
}


@pytest.mark.parametrize("kind", KINDS_OF_COLUMNS)
def test_every_cell_of_the_truth_table_holds_for_every_kind_of_column(
    graph: Graph, kind: str
) -> None:
    """All rows without a conflict in one merge; every conflict is named, and changes nothing."""
    images = dict(zip(("old", "mine", "theirs"), KINDS_OF_COLUMNS[kind], strict=True))

    def image(row: Any) -> Any:
        return images[row["note"]] if isinstance(row, dict) else row

    cells = {
        f"r{number:02}": tuple(image(part) for part in cell)
        for number, cell in enumerate(TRUTH_TABLE)
    }
    put(graph, "main", *(doc(n, **c[0]) for n, c in cells.items() if c[0] is not None))
    graph.branch_create("draft")
    for branch, side in (("draft", 1), ("main", 2)):
        for name, cell in cells.items():
            if cell[side] is None and cell[0] is not None:
                delete(graph, branch, name)
        put(graph, branch, *(doc(n, **c[side]) for n, c in cells.items() if c[side] is not None))
    conflicts = {n: c[3] for n, c in cells.items() if isinstance(c[3], ConflictKind)}
    before = docs(graph, "main")
    with pytest.raises(MergeConflictError) as caught:
        graph.branch_merge("draft")
    assert {found.entity_id: found.kind for found in caught.value.conflicts} == conflicts
    assert docs(graph, "main") == before
    graph.branch_merge("draft", prefer="target")
    expected = {n: c[2] if n in conflicts else c[3] for n, c in cells.items()}
    now = docs(graph, "main")
    assert {n: now.get(n) for n in cells} == _decoded(expected)
    assert graph.branch_merge("draft").outcome == "already_up_to_date"


def _decoded(rows: dict[str, Any]) -> dict[str, Any]:
    """Return rows as an export spells them: dates are days."""
    days = {"1970-01-01": 0, "9999-12-31": 2932896, "0001-01-01": -719162}
    return {
        name: row
        if row is None
        else {k: days.get(v, v) if k == "on" else v for k, v in row.items()}
        for name, row in rows.items()
    }


# -- rules -----------------------------------------------------------------------------------------


def test_a_merge_that_breaks_rules_names_all_of_them_and_changes_nothing(graph: Graph) -> None:
    put(graph, "main", doc("a"), doc("b"), doc("c"), doc("d"), cites("e1", "a", "b"))
    graph.branch_create("draft")
    delete(graph, "draft", "b")
    put(graph, "draft", doc("x", code="same"), cites("e2", "a", "c"), cites("e3", "a", "d"))
    put(graph, "main", doc("y", code="same"), cites("e4", "a", "b"), cites("e5", "c", "b"))
    before = graph.head_commit_id_for_branch("main")
    with pytest.raises(MergeConflictError) as caught:
        graph.branch_merge("draft")
    found = [(each.table_key, each.kind, each.entity_id) for each in caught.value.conflicts]
    assert found == [
        ("node:Doc", ConflictKind.UNIQUE_VIOLATION, "x"),
        ("edge:Cites", ConflictKind.ORPHAN_EDGE, "e4"),
        ("edge:Cites", ConflictKind.ORPHAN_EDGE, "e5"),
        ("edge:Cites", ConflictKind.CARDINALITY_VIOLATION, None),
    ]
    messages = [each.message for each in caught.value.conflicts]
    assert messages[0] == "@unique violation on Doc.code: value 'same' held by 'y' and 'x'"
    assert messages[1] == "dst 'b' not found in Doc"
    assert messages[3] == "@card violation on edge Cites: source 'a' has 3 edges (max 2)"
    assert graph.head_commit_id_for_branch("main") == before
    assert graph.recovery_status() == []


def test_an_edge_to_a_node_that_the_target_deleted_is_an_orphan(graph: Graph) -> None:
    put(graph, "main", doc("a"), doc("b"))
    graph.branch_create("draft")
    delete(graph, "draft", "b")
    put(graph, "main", cites("e1", "a", "b"))
    with pytest.raises(MergeConflictError) as caught:
        graph.branch_merge("main", "draft")
    assert [each.kind for each in caught.value.conflicts] == [ConflictKind.ORPHAN_EDGE]


@pytest.mark.parametrize("strategy", ["row", "property"])
def test_an_edge_that_only_the_target_has_is_an_orphan_when_its_node_goes(
    graph: Graph, strategy: str
) -> None:
    """The merge does not write to the table of the edge, and its conflict is in that table."""
    put(graph, "main", doc("a"), doc("b"))
    graph.branch_create("draft")
    delete(graph, "draft", "b")
    put(graph, "main", cites("e1", "a", "b"), cites("e2", "b", "b"))
    expected = [
        ("edge:Cites", ConflictKind.ORPHAN_EDGE, "e1", "dst 'b' not found in Doc"),
        ("edge:Cites", ConflictKind.ORPHAN_EDGE, "e2", "src 'b' not found in Doc"),
        ("edge:Cites", ConflictKind.ORPHAN_EDGE, "e2", "dst 'b' not found in Doc"),
    ]

    def told(found: Conflicts) -> list[tuple[str, ConflictKind, str | None, str]]:
        return [(each.table_key, each.kind, each.entity_id, each.message) for each in found]

    with pytest.raises(MergeConflictError) as caught:
        graph.branch_merge("draft", strategy=strategy)
    assert told(caught.value.conflicts) == expected
    planned = graph.branch_merge("draft", strategy=strategy, dry_run=True)
    assert told(planned.conflicts) == expected
    shape = planned.to_json()
    assert (planned.outcome, shape["outcome"], shape["dry_run"]) == ("conflicts", "conflicts", True)
    assert shape["merge_conflicts"] == [each.to_json() for each in planned.conflicts]


def test_undoing_a_commit_whose_node_is_linked_since_names_the_edge(graph: Graph) -> None:
    put(graph, "main", doc("a"))
    put(graph, "main", doc("b"))
    commit = graph.head_commit_id_for_branch()
    put(graph, "main", cites("e1", "a", "b"))
    with pytest.raises(MergeConflictError) as caught:
        graph.commit_revert(commit)
    found = [(each.table_key, each.kind, each.entity_id) for each in caught.value.conflicts]
    assert found == [("edge:Cites", ConflictKind.ORPHAN_EDGE, "e1")]


NAMESAKES = """
node Doc { slug: String @key }
node Likes { slug: String @key  code: String? @unique }
edge Likes: Doc -> Doc { code: String? @unique }
"""


@pytest.fixture
def namesakes(tmp_path: Path) -> Graph:
    """A graph in which a node type and an edge type have one name, and a branch of it."""
    root = str(tmp_path / "namesakes.omni")
    graph = Graph.init(root, NAMESAKES, durability="process", auto_optimize=False)
    put(graph, "main", doc("a"), doc("b"), likes("n", code="old"), liked("e", code="old"))
    graph.branch_create("draft")
    return graph


def likes(slug: str, **values: Any) -> Values:
    return {"type": "Likes", "data": {"slug": slug, **values}}


def liked(edge_id: str, **values: Any) -> Values:
    return {"edge": "Likes", "from": "a", "to": "b", "data": {"id": edge_id, **values}}


@pytest.mark.parametrize(
    ("mine", "theirs", "table_key", "entity_id"),
    [
        ([liked("e1", code="x"), likes("n1")], liked("e2", code="x"), "edge:Likes", "e1"),
        ([likes("n1", code="x"), liked("e1")], likes("n2", code="x"), "node:Likes", "n1"),
    ],
    ids=["edge", "node"],
)
def test_a_conflict_names_the_table_also_when_a_node_and_an_edge_type_have_one_name(
    namesakes: Graph, mine: list[Values], theirs: Values, table_key: str, entity_id: str
) -> None:
    put(namesakes, "draft", *mine)
    put(namesakes, "main", theirs)
    with pytest.raises(MergeConflictError) as caught:
        namesakes.branch_merge("draft")
    found = [(each.table_key, each.kind, each.entity_id) for each in caught.value.conflicts]
    assert found == [(table_key, ConflictKind.UNIQUE_VIOLATION, entity_id)]


def test_a_file_settles_rows_of_namesakes(namesakes: Graph, tmp_path: Path) -> None:
    put(namesakes, "draft", likes("n", code="mine"), liked("e", code="mine"))
    put(namesakes, "main", likes("n", code="theirs"), liked("e", code="theirs"))
    lines = [json.loads(line) for line in namesakes.merge_conflicts("draft")]
    kinds = [(line["entity_kind"], line["type"], line["id"]) for line in lines]
    assert kinds == [("edge", "Likes", "e"), ("node", "Likes", "n")]
    path = tmp_path / "decisions.jsonl"
    path.write_text("\n".join(json.dumps(line | {"take": "source"}) for line in lines))
    namesakes.branch_merge("draft", resolve_file=path)
    stored = [json.loads(line) for line in stream_lines(namesakes.snapshot(), ["Likes"])]
    assert [each["data"]["code"] for each in stored] == ["mine", "mine"]


def test_a_line_that_may_mean_two_types_is_refused(namesakes: Graph, tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_text('{"type": "Likes", "id": "e", "take": "source"}')
    with pytest.raises(DecisionFileError, match="give entity_kind too"):
        namesakes.branch_merge("draft", resolve_file=path)


def test_broken_rules_are_listed_where_no_row_is_in_conflict(graph: Graph, tmp_path: Path) -> None:
    put(graph, "main", doc("a"), doc("b"), doc("c"), doc("d"))
    graph.branch_create("draft")
    delete(graph, "draft", "b")
    put(graph, "draft", cites("e2", "a", "c"), cites("e3", "a", "d"))
    put(graph, "main", cites("e1", "a", "b"), cites("e4", "a", "a"))
    text = "\n".join(graph.merge_conflicts("draft"))
    found = [json.loads(line) for line in text.splitlines()]
    assert [(line["type"], line["id"], line["kind"]) for line in found] == [
        ("Cites", "e1", "orphan_edge"),
        ("Cites", None, "cardinality_violation"),
    ]
    assert found[0]["message"] == "dst 'b' not found in Doc"
    path = tmp_path / "decisions.jsonl"
    path.write_text(text)
    with pytest.raises(MergeConflictError):
        graph.branch_merge("draft", resolve_file=path)
    path.write_text(json.dumps(found[0] | {"take": "delete"}))
    with pytest.raises(NotInConflictError):
        graph.branch_merge("draft", resolve_file=path)


def test_merging_main_into_a_branch_points_at_what_main_has(graph: Graph) -> None:
    graph.branch_create("draft")
    put(graph, "main", doc("a"))
    graph.branch_merge("main", "draft")
    main = graph.snapshot_of(ReadTarget.branch("main")).entry("node:Doc")
    draft = graph.snapshot_of(ReadTarget.branch("draft")).entry("node:Doc")
    assert (main.table_version, main.table_branch) == (draft.table_version, draft.table_branch)
    put(graph, "draft", doc("b"))
    assert set(docs(graph, "draft")) == {"a", "b"}
    assert set(docs(graph, "main")) == {"a"}


def test_a_branch_may_go_once_it_is_merged(graph: Graph) -> None:
    graph.branch_create("draft")
    put(graph, "draft", doc("a", body="base64:YQ=="))
    graph.branch_merge("draft")
    graph.branch_delete("draft")
    graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert docs(graph, "main") == {"a": {"body": "base64:YQ=="}}


def test_a_branch_is_not_merged_into_itself(graph: Graph) -> None:
    with pytest.raises(SameBranchError, match="distinct source and target"):
        graph.branch_merge("main", "main")


def test_sizing_and_merging_compute_the_base_once(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(graph, "main", doc("a"))
    graph.branch_create("draft")
    put(graph, "draft", doc("b"))
    put(graph, "main", doc("c"))
    computed: list[tuple[str, str]] = []
    merge_base_of = History.merge_base_of

    def counted(self: History, *, source: Snapshot, target: Snapshot) -> GraphCommit | None:
        computed.append((source.commit_id, target.commit_id))
        return merge_base_of(self, source=source, target=target)

    monkeypatch.setattr(History, "merge_base_of", counted)
    resolve = repository_of(graph).branches.resolve
    request = MergeRequest(source=resolve(BranchName("draft")), target=resolve(BranchName("main")))
    merger = Merger(repository_of(graph), session_of(graph).committer)
    assert merger.work_bytes(request) > 0
    assert len(merger.snapshots(request)) == 3
    assert merger.merge(request).outcome == "merged"
    assert len(computed) == 1


# -- settling --------------------------------------------------------------------------------------


@pytest.fixture
def diverged(graph: Graph) -> Graph:
    put(graph, "main", doc("a", note="old", size=1.0), doc("b", note="old"), doc("c", note="old"))
    graph.branch_create("draft")
    put(graph, "draft", doc("a", note="mine", size=1.0), doc("b", note="mine"))
    delete(graph, "draft", "c")
    put(
        graph,
        "main",
        doc("a", note="old", size=2.0),
        doc("b", note="theirs"),
        doc("c", note="theirs"),
    )
    return graph


@pytest.mark.parametrize(
    ("prefer", "expected"),
    [
        ("source", {"a": {"note": "mine", "size": 1.0}, "b": {"note": "mine"}}),
        (
            "target",
            {"a": {"note": "old", "size": 2.0}, "b": {"note": "theirs"}, "c": {"note": "theirs"}},
        ),
    ],
)
def test_a_preference_settles_all_rows(
    diverged: Graph, prefer: str, expected: dict[str, Values]
) -> None:
    result = diverged.branch_merge("draft", prefer=prefer)
    assert docs(diverged, "main") == expected
    assert result.resolved == {f"take {prefer}": 3}
    assert result.commit is not None
    assert without_lineage(result.commit.properties) == {f"resolved by take {prefer}": "3"}


def test_different_properties_of_one_row_combine_and_the_same_one_is_named(
    diverged: Graph,
) -> None:
    with pytest.raises(MergeConflictError) as caught:
        diverged.branch_merge("draft", strategy="property")
    assert [each.message for each in caught.value.conflicts] == [
        "divergent update for id 'b' on note",
        "delete/update conflict for id 'c'",
    ]
    diverged.branch_merge("draft", strategy="property", prefer="target")
    assert docs(diverged, "main")["a"] == {"note": "mine", "size": 2.0}


def test_a_file_settles_rows_one_by_one(diverged: Graph, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in diverged.merge_conflicts("draft")]
    assert [(line["id"], line["kind"]) for line in lines] == [
        ("a", "divergent_update"),
        ("b", "divergent_update"),
        ("c", "delete_vs_update"),
    ]
    assert lines[2]["source"] is None
    assert lines[2]["base"]["properties"]["note"] == "old"
    lines[0]["take"] = "base"
    lines[1]["data"] = {"slug": "b", "note": "by hand"}
    path = tmp_path / "decisions.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    with pytest.raises(MergeConflictError) as caught:
        diverged.branch_merge("draft", resolve_file=path)
    assert [each.entity_id for each in caught.value.conflicts] == ["c"]
    lines[2]["take"] = "delete"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    diverged.branch_merge("draft", resolve_file=path)
    assert docs(diverged, "main") == {
        "a": {"note": "old", "size": 1.0},
        "b": {"note": "by hand"},
    }


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 1: it is not JSON"),
        ('{"type": "Doc"}', "it needs type and id"),
        ('{"type": "Dog", "id": "a", "take": "base"}', "no type 'Dog'"),
        ('{"type": "Doc", "id": "a", "take": "mine"}', "take is 'mine'"),
        ('{"type": "Doc", "id": "a", "data": {"nope": 1}}', "no property 'nope'"),
        ('{"type": "Doc", "id": "a", "data": {"slug": "z"}}', "slug makes the id 'z', not 'a'"),
        ('{"type": "Cites", "id": "e", "data": {}}', "needs from and to"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(
    diverged: Graph, tmp_path: Path, line: str, problem: str
) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_text(line)
    with pytest.raises(DecisionFileError, match=problem):
        diverged.branch_merge("draft", resolve_file=path)


@pytest.mark.parametrize(
    "line",
    [
        {"type": "Doc", "id": "other", "take": "source"},
        {"type": "Doc", "id": "other", "data": {"slug": "other"}},
        {"type": "Doc", "id": "nowhere", "take": "target"},
        {"type": "Cites", "id": "e", "take": "delete"},
    ],
    ids=["take", "data", "no such row", "table without changes"],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_decision_about_a_row_that_needs_none_is_refused(
    diverged: Graph, tmp_path: Path, line: dict[str, object], dry_run: bool
) -> None:
    put(diverged, "draft", doc("other", note="only here"))
    before = diverged.head_commit_id_for_branch()
    path = tmp_path / "decisions.jsonl"
    path.write_text(f'{json.dumps(line)}\n{{"type": "Doc", "id": "a", "take": "source"}}\n')
    with pytest.raises(NotInConflictError, match=f"not in conflict: {line['type']} '{line['id']}'"):
        diverged.branch_merge("draft", resolve_file=path, prefer="source", dry_run=dry_run)
    assert diverged.head_commit_id_for_branch() == before
    idle = {"type": line["type"], "id": line["id"], "take": None}
    path.write_text(json.dumps(idle))
    diverged.branch_merge("draft", resolve_file=path, prefer="source", dry_run=dry_run)


def test_what_is_written_down_for_a_row_goes_before_the_rules(graph: Graph, tmp_path: Path) -> None:
    put(graph, "main", doc("a", note="old", size=1.0), doc("b", note="old", size=1.0))
    graph.branch_create("draft")
    put(graph, "draft", doc("a", note="new", size=1.0), doc("b", note="new", size=1.0))
    put(graph, "main", doc("a", note="old", size=2.0), doc("b", note="old", size=2.0))
    path = tmp_path / "decisions.jsonl"
    path.write_text('{"type": "Doc", "id": "a", "take": "base"}')
    result = graph.branch_merge("draft", strategy="property", resolve_file=path, prefer="target")
    assert docs(graph, "main") == {
        "a": {"note": "old", "size": 1.0},
        "b": {"note": "new", "size": 2.0},
    }
    assert result.resolved == {"take base": 1, "property": 1}


# -- revert ----------------------------------------------------------------------------------------


def test_a_commit_is_undone_and_later_changes_stay(graph: Graph) -> None:
    put(graph, "main", doc("a", note="one"), doc("b", note="one"))
    put(graph, "main", doc("a", note="two"), doc("c"))
    undone = graph.head_commit_id_for_branch()
    put(graph, "main", doc("b", note="three"))
    result = graph.commit_revert(undone, actor_id="ada")
    assert docs(graph, "main") == {"a": {"note": "one"}, "b": {"note": "three"}}
    assert result.commit is not None
    assert result.commit.merged_parent_commit_id is None
    assert without_lineage(result.commit.properties) == {"reverted_commit_id": undone}
    assert graph.commit_revert(undone).outcome == "already_up_to_date"


def test_what_was_changed_again_since_stands_in_the_way(graph: Graph) -> None:
    put(graph, "main", doc("a", note="one"))
    put(graph, "main", doc("a", note="two"))
    undone = graph.head_commit_id_for_branch()
    put(graph, "main", doc("a", note="three"))
    with pytest.raises(MergeConflictError) as caught:
        graph.commit_revert(undone)
    assert [each.kind for each in caught.value.conflicts] == [ConflictKind.DIVERGENT_UPDATE]
    graph.commit_revert(undone, prefer="source")
    assert docs(graph, "main") == {"a": {"note": "one"}}


# -- blobs outside of the graph --------------------------------------------------------------------


@dataclass(frozen=True)
class Outside:
    """A file outside of the graph, and where it lies."""

    path: Path

    @property
    def uri(self) -> str:
        return f"file://{self.path}"

    @property
    def bases(self) -> list[str]:
        return [f"file://{self.path.parent}"]


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.bin").write_bytes(b"hello")
    return Outside(tmp_path / "in" / "a.bin")


def refer(graph: Graph, branch: str, outside: Outside) -> None:
    """Give a row a reference that stays one: only overwriting keeps them."""
    record = json.dumps(doc("far", body=outside.uri)).encode()
    graph.load(record, mode="overwrite", branch=branch, external_blob_bases=outside.bases)


@pytest.mark.parametrize("is_update", [False, True])
def test_external_blobs_of_copied_rows_become_bytes_of_the_graph(
    graph: Graph, outside: Outside, is_update: bool
) -> None:
    if is_update:
        put(graph, "main", doc("far", note="old"))
    graph.branch_create("draft")
    refer(graph, "draft", outside)
    put(graph, "main", doc("z"))
    before = graph.head_commit_id_for_branch()
    with pytest.raises(BlobSourceDeniedError, match=r"1 external blobs .* such as file://"):
        graph.branch_merge("draft")
    assert graph.head_commit_id_for_branch() == before
    assert graph.recovery_status() == []
    graph.branch_merge("draft", external_blob_bases=outside.bases)
    outside.path.unlink()
    assert docs(graph, "main") == {"far": {"body": "base64:aGVsbG8="}, "z": {}}
    assert docs(graph, "draft") == {"far": {"body": outside.uri}}, "the source stays as it is"
    assert graph.branch_merge("draft").outcome == "already_up_to_date"


def test_an_external_blob_that_cannot_be_read_stops_a_merge(graph: Graph, outside: Outside) -> None:
    graph.branch_create("draft")
    refer(graph, "draft", outside)
    outside.path.unlink()
    with pytest.raises(BlobSourceUnreadableError):
        graph.branch_merge("draft", external_blob_bases=outside.bases)
    assert docs(graph, "main") == {}


def test_a_reference_written_by_hand_needs_the_same_permission(
    diverged: Graph, outside: Outside, tmp_path: Path
) -> None:
    path = tmp_path / "decisions.jsonl"
    decision = {"type": "Doc", "id": "b", "data": {"slug": "b", "body": outside.uri}}
    path.write_text(json.dumps(decision))
    with pytest.raises(BlobSourceDeniedError):
        diverged.branch_merge("draft", resolve_file=path, prefer="target")
    diverged.branch_merge(
        "draft", resolve_file=path, prefer="target", external_blob_bases=outside.bases
    )
    assert docs(diverged, "main")["b"] == {"body": "base64:aGVsbG8="}


def test_a_merge_by_pointer_touches_no_blob(graph: Graph, outside: Outside) -> None:
    graph.branch_create("draft")
    refer(graph, "main", outside)
    outside.path.unlink()
    graph.branch_merge("main", "draft")
    assert docs(graph, "draft") == {"far": {"body": outside.uri}}


# -- races -----------------------------------------------------------------------------------------


def merge_back(other: Graph) -> None:
    other.branch_merge("main", "draft")


def merge_newer(other: Graph) -> None:
    delete(other, "draft", "b")
    other.branch_merge("draft", "main")


@pytest.mark.parametrize(
    ("meanwhile", "expected"), [(merge_back, {"a", "b", "c", "z"}), (merge_newer, {"a", "c", "z"})]
)
@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_merge_between_two_looks_of_another_one_takes_nothing_back(
    graph: Graph,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[Graph], None],
    expected: set[str],
    looks: int,
) -> None:
    put(graph, "main", doc("a"), doc("b"))
    graph.branch_create("draft")
    put(graph, "draft", doc("c"))
    put(graph, "main", doc("z"))
    other = Graph.open(graph.uri, durability="process", auto_optimize=False)
    look, seen = History.snapshot, []

    def interrupted(history: History, incarnation: Incarnation) -> Snapshot:
        found = look(history, incarnation)
        seen.append(incarnation)
        if len(seen) == looks:
            meanwhile(other)
        return found

    monkeypatch.setattr(History, "snapshot", interrupted)
    with suppress(ReadSetConflictError):
        graph.branch_merge("draft")
    monkeypatch.undo()
    assert len(seen) >= looks
    graph.branch_merge("draft")
    assert set(docs(graph, "main")) == expected


def test_a_source_that_was_made_again_is_not_merged(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(graph, "main", doc("a"))
    graph.branch_create("draft")
    put(graph, "draft", doc("b"))

    def recreated(*arguments: Any, **options: Any) -> Any:
        other = Graph.open(graph.uri, durability="process", auto_optimize=False)
        other.branch_delete("draft")
        other.branch_create("draft")
        return stage_table(*arguments, **options)

    monkeypatch.setattr("omnigraph.merge.commit.stage_table", recreated)
    with pytest.raises(ReadSetConflictError, match="branch_merge_source_incarnation:draft"):
        graph.branch_merge("draft")
    assert set(docs(graph, "main")) == {"a"}


@pytest.mark.parametrize("retries", [0, 1])
def test_a_merge_that_lost_a_race_is_computed_again_with_retries(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    put(graph, "main", doc("a"))
    graph.branch_create("draft")
    put(graph, "draft", doc("b"))
    put(graph, "main", doc("c"))
    left = ["z"]

    def raced(*arguments: Any, **options: Any) -> Any:
        if left:
            other = Graph.open(graph.uri, durability="process", auto_optimize=False)
            put(other, "main", doc(left.pop()))
        return stage_table(*arguments, **options)

    monkeypatch.setattr("omnigraph.merge.commit.stage_table", raced)
    if not retries:
        with pytest.raises(ReadSetConflictError, match="graph_head:main"):
            graph.branch_merge("draft")
        return
    done = graph.branch_merge("draft", retries=retries, message="m", properties={"by": "test"})
    assert set(docs(graph, "main")) == {"a", "b", "c", "z"}
    assert done.commit is not None
    assert (done.commit.message, without_lineage(done.commit.properties)) == ("m", {"by": "test"})


# -- crashes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point",
    [
        "write.post_stage",
        "write.turn_taken",
        "recovery.sidecar_write",
        "write.after_first_table",
        "write.post_phase_b_pre_manifest_commit",
        "recovery.sidecar_confirm",
        "graph_publish.after_commit_append",
        "write.sidecar_deleted",
    ],
)
def test_a_merge_that_dies_is_there_as_a_whole_or_not_at_all(
    graph: Graph, tmp_path: Path, point: str
) -> None:
    put(graph, "main", doc("a", note="old"), doc("b"), cites("e1", "a", "b"))
    graph.branch_create("draft")
    put(graph, "draft", doc("a", note="new"), doc("c"), cites("e2", "c", "a"))
    delete(graph, "draft", "b")
    put(graph, "main", doc("z"))
    before, source = docs(graph, "main"), docs(graph, "draft")
    after = source | {"z": {}}
    arm(point)
    try:
        with pytest.raises(FailpointError):
            graph.branch_merge("draft")
    finally:
        disarm()
    again = Graph.open(str(tmp_path / "g.omni"), durability="process", auto_optimize=False)
    assert docs(again, "main") in (before, after)
    is_there = docs(again, "main") == after
    assert is_there == (
        point
        in (
            "recovery.sidecar_confirm",
            "graph_publish.after_commit_append",
            "write.sidecar_deleted",
        )
    )
    assert again.recovery_status() == []
    result = again.branch_merge("draft")
    assert result.outcome == ("already_up_to_date" if is_there else "merged")
    assert docs(again, "main") == after
    edges = again.query(
        "query q() { match { $a: Doc $b: Doc $a cites $b } return { $a.slug, $b.slug } }"
    )
    assert edges.to_pylist() == [{"a.slug": "c", "b.slug": "a"}]
