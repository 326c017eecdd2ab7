"""What a prompt and a notebook show of graphs, results, commits, differences, plans and schemas."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import omnigraph
from omnigraph import Graph, ReadTarget, compile_schema
from omnigraph.display import Displayed
from omnigraph.graph.arguments import TwoTargetsError
from omnigraph.graph.session import GraphClosedError
from omnigraph.manifest.snapshot import NaiveMomentError
from omnigraph.read.result import ColumnNotFoundError, TwoColumnsNeededError
from omnigraph.syntax.given import SourceFileError

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
PEOPLE = "query people() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
KNOWN = "query known() { match { $p: Person  $p knows $q } return { $p.name as a, $q.name as b } }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = omnigraph.init(tmp_path / "g.omni", SCHEMA)
    made.load(
        b'{"type":"Person","data":{"name":"Ann","age":41}}\n'
        b'{"type":"Person","data":{"name":"<b>"}}\n'
        b'{"edge":"Knows","from":"Ann","to":"<b>"}\n',
        mode="append",
    )
    return made


def test_a_result_prints_as_a_table(graph: Graph) -> None:
    assert repr(graph.query(PEOPLE)).splitlines() == [
        "2 rows of people from main",
        "p.name  p.age",
        "<b>     null",
        "Ann     41",
    ]


def test_values_are_not_markup_in_a_notebook(graph: Graph) -> None:
    html = graph.query(PEOPLE)._repr_html_()
    assert "<td>&lt;b&gt;</td>" in html
    assert "<td><b></td>" not in html


def test_a_long_result_says_how_much_is_left_out(graph: Graph) -> None:
    lines = "".join(f'{{"type":"Person","data":{{"name":"p{n:03}"}}}}\n' for n in range(50))
    graph.load(lines.encode(), mode="append")
    assert repr(graph.query(PEOPLE)).splitlines()[-1] == "… 32 more"


def test_a_result_iterates_and_is_indexed(graph: Graph) -> None:
    result = graph.query(PEOPLE)
    assert list(result) == result.to_pylist()
    assert result[-1] == {"p.name": "Ann", "p.age": 41}
    assert result[1:].to_pylist() == [{"p.name": "Ann", "p.age": 41}]
    assert result["p.age"] == [None, 41]
    with pytest.raises(IndexError):
        _ = result[2]
    with pytest.raises(ColumnNotFoundError, match=r"no column 'age'"):
        _ = result["age"]


def test_short_names_of_the_forms(graph: Graph) -> None:
    pytest.importorskip("pandas")
    result = graph.query(PEOPLE)
    assert result.arrow().equals(result.to_arrow())
    assert result.df().equals(result.to_pandas())


def test_a_result_becomes_a_networkx_graph(graph: Graph) -> None:
    pytest.importorskip("networkx")
    made = graph.query(KNOWN).to_networkx("a", "b")
    assert list(made.edges()) == [("Ann", "<b>")]


def test_every_row_is_an_edge_of_a_networkx_graph_whatever_its_columns_are_called(
    graph: Graph,
) -> None:
    pytest.importorskip("networkx")
    pairs = 'match { $p: Person { name: "Ann" }  $q: Person }'
    for name in ("key", "self", "u_for_edge"):
        text = f"{pairs} return {{ $p.name as a, $p.name as b, $p.age as {name} }}"
        made = graph.query(text).to_networkx()
        assert list(made.edges(data=True)) == [("Ann", "Ann", {name: 41})] * 2
    same = "match { $p: Person  $p knows $q } return { $p.name as n, $q.name as n }"
    assert list(graph.query(same).to_networkx().edges()) == [("Ann", "<b>")]


def test_a_row_without_one_of_its_ends_adds_no_edge(graph: Graph) -> None:
    pytest.importorskip("networkx")
    text = "match { $p: Person  optional { $p knows $q } } return { $p.name as a, $q.name as b }"
    made = graph.query(text).to_networkx()
    assert sorted(made.nodes()) == ["<b>", "Ann"]
    assert list(made.edges()) == [("Ann", "<b>")]


def test_a_networkx_graph_needs_two_columns(graph: Graph) -> None:
    pytest.importorskip("networkx")
    with pytest.raises(TwoColumnsNeededError, match="this result has one"):
        graph.query("match { $p: Person } return { $p.name }").to_networkx()


def test_a_read_without_a_name_prints_none(graph: Graph) -> None:
    result = graph.query("match { $p: Person } return { $p.name }")
    assert repr(result).splitlines()[0] == "2 rows from main"


def test_a_text_is_a_branch_before_it_is_the_id_of_a_commit(graph: Graph) -> None:
    graph.branches.create("01J00000000000000000000000")
    found = graph.query(PEOPLE, target="01J00000000000000000000000")
    assert found.target.branch == "01J00000000000000000000000"


def test_a_graph_shows_where_it_is_and_what_it_has(graph: Graph) -> None:
    assert repr(graph) == f"<Graph {graph.uri} branch=main>"
    html = graph._repr_html_()
    assert "<td>node:Person</td><td>2</td>" in html
    assert "<td>edge:Knows</td><td>1</td>" in html


def test_a_part_of_a_graph_shows_where_it_is_and_the_schema_its_types(graph: Graph) -> None:
    for part in (graph.branches, graph.commits, graph.tags, graph.changes, graph.maintenance):
        assert repr(part) == f"<{type(part).__name__} of {graph.uri} branch=main>"
    assert repr(graph.schema) == f"<GraphSchema of {graph.uri} branch=main>"
    assert "<td>age: I32?, name: String @key</td>" in graph.schema._repr_html_()
    graph.close()
    assert repr(graph.tags).endswith(" branch=main closed>")
    assert "closed" in graph.schema._repr_html_()


def test_everything_that_people_look_at_is_a_table(graph: Graph) -> None:
    graph.branches.create("b")
    before = graph.snapshot()
    plan = graph.schema.plan(SCHEMA.replace("age: I32?", "age: I32?  mail: String?")).plan
    shown: list[Displayed] = [
        before,
        graph.schema.catalog(),
        graph.commits.list()[0],
        graph.changes.difference("main", "b"),
        plan,
    ]
    titles = [str(each).splitlines()[0] for each in shown]
    assert titles[0] == f"branch main at commit {before.commit_id}"
    assert titles[1] == "1 node types, 1 edge types"
    assert titles[2] == f"commit {before.commit_id} (load)"
    assert titles[3].startswith("0 changes between versions")
    assert titles[4] == "1 steps, supported"


def test_a_catalog_shows_the_keys_of_nodes_and_edges() -> None:
    text = """
    node Person { name: String @key  age: I32? }
    edge Knows: Person -> Person
    edge Rates: Person -> Person { year: I32  @key(src, dst, year) }
    """
    shown = repr(compile_schema(text, domain="01J" + "0" * 23).catalog)
    assert "name: String @key" in shown
    assert "Rates: Person -> Person @key(src, dst, year)" in shown
    assert "Knows: Person -> Person @key" not in shown


def test_a_text_names_a_branch_a_tag_or_a_commit(graph: Graph) -> None:
    first = graph.snapshot().commit_id
    graph.tags.create("v1")
    graph.branches.create("draft")
    graph.mutate('query m() { insert Person { name: "Cy" } }')
    now = datetime.now(UTC) + timedelta(hours=1)
    sizes = {
        target: len(graph.query(PEOPLE, target=target)) for target in ("main", "v1", "draft", first)
    }
    assert sizes == {"main": 3, "v1": 2, "draft": 2, first: 2}
    assert len(graph.query(PEOPLE, target=now)) == 3
    assert len(graph.query(PEOPLE, branch="draft")) == 2
    assert len(graph.changes.difference("v1", "main").changes) == 1


def test_a_branch_wins_over_a_tag_of_its_name(graph: Graph) -> None:
    graph.tags.create("same")
    graph.mutate('query m() { insert Person { name: "Cy" } }')
    graph.branches.create("same")
    assert len(graph.query(PEOPLE, target="same")) == 3
    assert len(graph.query(PEOPLE, target=ReadTarget.tag("same"))) == 2


def test_targets_that_cannot_be_meant(graph: Graph) -> None:
    with pytest.raises(NaiveMomentError):
        graph.query(PEOPLE, target=datetime(2026, 1, 1))
    with pytest.raises(TwoTargetsError):
        graph.query(PEOPLE, target="main", branch="main")


def test_a_closed_graph_says_so(graph: Graph) -> None:
    graph.close()
    graph.close()
    for use in (graph.snapshot, graph.branches.list, lambda: graph.query(PEOPLE)):
        with pytest.raises(GraphClosedError, match="is closed"):
            use()
    assert repr(graph).endswith("closed>")


def test_a_schema_may_be_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kg.pg").write_text(SCHEMA)
    with omnigraph.init("a.omni", Path("kg.pg")) as one, omnigraph.init("b.omni", "kg.pg") as two:
        assert one.schema.source() == two.schema.source() == SCHEMA
        assert not two.schema.plan("kg.pg").plan.steps


def test_a_schema_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceFileError, match=r"cannot read nowhere\.pg"):
        omnigraph.init(tmp_path / "g.omni", "nowhere.pg")


def test_the_package_names_its_version() -> None:
    assert omnigraph.__version__[0].isdigit()


def test_results_of_writes_are_tables(graph: Graph) -> None:
    loaded = graph.load([{"type": "Person", "data": {"name": "Ann"}}], mode="merge")
    assert repr(loaded).splitlines()[1:] == [
        "type    records  inserted  updated  unchanged  deleted  rejected",
        "Person  1        0         0        1          0        0",
    ]
    changed = graph.mutate('query m() { update Person set { age: 5 } where name = "Ann" }')
    assert repr(changed).splitlines()[1:] == [
        "type         inserted  updated  replaced  deleted  unchanged",
        "node:Person  0         1        0         0        0",
    ]
    graph.branches.create("b")
    assert repr(graph.branches.merge("b", "main")) == "merge of b into main: already_up_to_date"


def test_conflicts_of_a_merge_are_a_table(graph: Graph) -> None:
    graph.branches.create("b")
    for branch, age in (("main", 1), ("b", 2)):
        graph.mutate(
            'query m($age: I32) { update Person set { age: $age } where name = "Ann" }',
            params={"age": age},
            branch=branch,
        )
    found = graph.branches.merge("b", "main", dry_run=True)
    assert repr(found).splitlines() == [
        "dry run of a merge of b into main: conflicts",
        "conflict          type         id",
        "divergent_update  node:Person  Ann",
    ]


def test_a_list_of_commits_has_a_line_for_each(graph: Graph) -> None:
    graph.mutate(
        'query m() { insert Person { name: "Eve" } }', message="more\nof it", actor_id="ada"
    )
    newest, loaded, made = graph.commits.list()
    assert repr([newest, loaded, made]).count("\n") == 0
    assert repr(newest).startswith(f"<commit {newest.graph_commit_id} (mutation): more")
    assert ", on main by ada, 20" in repr(newest)
    assert str(loaded).splitlines()[0] == f"commit {loaded.graph_commit_id} (load)"


def test_what_maintenance_and_exports_return_is_a_table(graph: Graph, tmp_path: Path) -> None:
    applied = graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  mail: String?"))
    assert repr(applied).startswith("schema applied to main: 1 steps, supported\nstep ")
    assert repr(graph.maintenance.optimize()).startswith("maintenance: commit 01")
    assert repr(graph.maintenance.cleanup(keep_versions=9)).startswith("would remove, with confirm")
    assert repr(graph.maintenance.repair()).startswith("repair, nothing written without confirm")
    assert "node:Person  nodes/Person" in repr(graph.export(tmp_path / "out"))
    compiled = compile_schema(SCHEMA, domain="01J00000000000000000000000")
    assert repr(compiled).startswith("1 node types, 1 edge types")


def test_a_difference_that_was_not_compared_names_both_sides_and_iterates(graph: Graph) -> None:
    graph.branches.create("b")
    graph.mutate('query m() { insert Person { name: "Eve" } }', branch="b")
    found = graph.changes.diff("main", "b")
    assert repr(found).startswith("difference from main at commit 01")
    assert "Store" not in repr(found)
    assert [row["id"] for row in found] == ["Eve"]
