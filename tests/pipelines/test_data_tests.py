"""`omnigraph test`: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from omnigraph import Graph, ReadTarget
from omnigraph.pipelines.data_tests.compare import Mismatch, compare_rows
from omnigraph.pipelines.data_tests.model import SampledFixture
from omnigraph.pipelines.data_tests.sample import draw_sample
from support.cases import Case, check_case, load_cases
from support.json_shapes import problems
from support.pages import DOCS, ROOT, blocks_of
from support.terminal import Terminal

SECONDS = re.compile(r"in \d+\.\d\d s")
SCHEMA = "node Paper { doi: String @key  title: String  year: I32? }\nedge Cites: Paper -> Paper\n"
QUERIES = "query all() { match { $p: Paper } return { $p.doi, $p.year } }\n"
FILE = """\
schema: papers.pg
queries: [papers.gq]
fixtures: {small: [{type: Paper, data: {doi: a, title: A, year: 1}}]}
tests:
  - {name: holds, fixture: small, query: all, expect: {rows: [{p.doi: a}]}}
  - {name: "fails <&\\u0001>", fixture: small, query: all, expect: {rows: [{p.doi: "<b>"}]}}
  - {name: fails too, fixture: small, query: all, expect: {rows: []}}
"""


@pytest.fixture
def papers(omnigraph: Terminal) -> Terminal:
    """A terminal in a folder with a schema, queries and a test file."""
    Path("papers.pg").write_text(SCHEMA)
    Path("papers.gq").write_text(QUERIES)
    Path("papers.test.yaml").write_text(FILE)
    return omnigraph


@pytest.mark.parametrize("case", load_cases("data_tests"), ids=str)
def test_a_file_has_these_results_or_mistakes(
    case: Case, omnigraph: Terminal, update_cases: bool
) -> None:
    for name, text in case.sections.items():
        if "." in name:
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(text + "\n")
    Path("t.test.yaml").write_text(
        f"{case.sections['head']}\n{case.sections['file']}\n".lstrip("\n")
    )
    done = omnigraph("test", *shlex.split(case.sections.get("flags", "")))
    shown = SECONDS.sub("in TIME", done.out) + "".join(
        f"! {one}\n" for one in done.err.splitlines()
    )
    shown = shown.replace(str(Path.cwd()), "HERE")
    check_case(case, "output", f"{shown}[exit {done.code}]", update_cases)


# -- comparing ------------------------------------------------------------------------------------


def test_every_expected_row_finds_a_row_if_there_is_a_way() -> None:
    expected = [{"a": 1}, {"b": 2}, {"a": 1, "b": 2}]
    found = [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 9, "b": 2}]
    for rows in (found, found[::-1]):
        assert compare_rows(expected, rows, ordered=False, exactly=False) is None
    lacking = compare_rows(expected, found[:2], ordered=False, exactly=False)
    assert lacking is not None
    assert len(lacking.missing) == 1
    assert lacking.extra == ()


def test_repeated_rows_count() -> None:
    twice = [{"a": 1}, {"a": 1}]
    assert compare_rows(twice, twice, ordered=False, exactly=False) is None
    assert compare_rows(twice, twice[:1], ordered=False, exactly=False) == Mismatch(({"a": 1},))
    assert compare_rows(twice[:1], twice, ordered=False, exactly=False) == Mismatch((), ({"a": 1},))


# -- the example ----------------------------------------------------------------------------------


def test_the_example_holds_and_the_guide_shows_it(omnigraph: Terminal) -> None:
    example = ROOT / "examples" / "testing"
    done = omnigraph("test", str(example), "--json")
    assert (done.code, done.json["failed"], done.json["skipped"]) == (0, 0, 0)
    titled = {one.title: one.body for one in blocks_of(DOCS / "guide" / "testing.md") if one.title}
    for name in ("papers.pg", "papers2.pg", "papers.gq", "papers.test.yaml"):
        assert titled[name] == (example / name).read_text(encoding="utf-8"), name


# -- options --------------------------------------------------------------------------------------


def test_a_test_may_give_what_a_graph_refuses(papers: Terminal) -> None:
    """Numbers of more than 64 bits have no form in some encoders."""
    Path("papers.test.yaml").write_text(
        """\
schema: papers.pg
queries: [papers.gq]
tests:
  - name: too large
    load: [{type: Paper, data: {doi: a, title: A, year: 99999999999999999999}}]
    expect: {error: year}
  - {name: other rows, query: all, expect: {rows: [{p.year: 99999999999999999999}]}}
"""
    )
    done = papers("test")
    assert (done.code, "1 failed" in done.out) == (1, True), done
    assert 'missing {"p.year": 99999999999999999999}' in done.out
    assert papers("test", "--json").json["passed"] == 1


def test_k_chooses_by_name_or_file_and_a_text_that_matches_nothing_is_an_error(
    papers: Terminal,
) -> None:
    chosen = papers("test", "-k", "TOO", "--json")
    assert [one["name"] for one in chosen.json["files"][0]["tests"]] == ["fails too"]
    assert papers("test", "-k", "papers.test", "--json").json["failed"] == 2
    nothing = papers("test", "-k", "nothing")
    assert (nothing.code, "no test matches -k 'nothing'" in nothing.err) == (2, True)
    Path("empty").mkdir()
    assert papers("test", "empty").code == 2


def test_fail_fast_stops_after_the_first_failure(papers: Terminal) -> None:
    Path("zz.test.yaml").write_text(FILE)
    done = papers("test", "--fail-fast", "--json")
    assert done.code == 1
    assert problems("test", done.json) == []
    assert [len(file["tests"]) for file in done.json["files"]] == [2]


def test_json_has_all_rows_that_differ(papers: Terminal) -> None:
    [_, failed, _] = papers("test", "--json").json["files"][0]["tests"]
    assert failed["state"] == "failed"
    assert failed["line"] == 6
    assert failed["problems"] == [
        {"message": "rows differ", "missing": [{"p.doi": "<b>"}], "extra": [{"p.doi": "a"}]}
    ]


def test_junit_names_suites_cases_and_failures(papers: Terminal) -> None:
    assert papers("test", "--junit", "out.xml", "papers.test.yaml").code == 1
    root = ET.parse("out.xml").getroot()  # noqa: S314 - our own file
    check_junit(root)
    [suite] = root
    assert (suite.get("name"), suite.get("failures")) == ("papers.test.yaml", "2")
    assert [case.get("name") for case in suite] == ["holds", "fails <&\\x01>", "fails too"]
    failure = suite[1].find("failure")
    assert failure is not None
    assert failure.get("message") == "rows differ"
    assert failure.text == 'rows differ\nmissing {"p.doi":"<b>"}\nextra   {"p.doi":"a"}'


# What junit-10.xsd of the xUnit plugin of Jenkins says: attributes that an element needs, those
# that it may have, and its children.
JUNIT = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"name", "tests", "failures", "errors", "time", "skipped", "file", "timestamp", "hostname"},
        {"testcase", "properties", "system-out", "system-err"},
    ),
    "testcase": ({"name"}, {"name", "time", "classname", "group"}, {"skipped", "error", "failure"}),
    "failure": (set(), {"type", "message"}, set()),
    "skipped": (set(), {"type", "message"}, set()),
}
TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")


def check_junit(element: ET.Element) -> None:
    needed, allowed, children = JUNIT[element.tag]
    assert needed <= set(element.attrib) <= allowed, element.tag
    assert {child.tag for child in element} <= children
    assert TIME.fullmatch(element.get("time", "0"))
    for child in element:
        check_junit(child)


def test_update_writes_snapshots_that_differ_and_never_rows(papers: Terminal) -> None:
    text = FILE + "  - {name: shot, fixture: small, query: all, snapshot: shots/all.jsonl}\n"
    Path("papers.test.yaml").write_text(text)
    done = papers("test", "-k", "shot", "--update")
    assert done.code == 0
    assert "wrote shots/all.jsonl" in done.out
    assert Path("shots/all.jsonl").read_text() == '{"p.doi":"a","p.year":1}\n'
    assert "wrote" not in papers("test", "-k", "shot", "--update").out
    # A column that the result no longer has is a difference, although all others are equal.
    Path("shots/all.jsonl").write_text('{"p.doi":"a"}\n')
    assert papers("test", "-k", "shot").code == 1
    assert papers("test", "-k", "fails", "--update").code == 1
    assert Path("papers.test.yaml").read_text() == text


def test_a_broken_file_stops_all_of_them_and_json_names_every_mistake(papers: Terminal) -> None:
    for name in ("x.test.yaml", "y.test.yaml"):
        Path(name).write_text("tset: []\n")
    done = papers("test", "--json")
    assert (done.code, done.out) == (2, "")
    error = json.loads(done.err)
    assert problems("error", error) == []
    assert [
        one["file"] for one in error["details"]["diagnostics"] if one["code"] == "unknown_key"
    ] == [
        "x.test.yaml",
        "y.test.yaml",
    ]


# -- samples --------------------------------------------------------------------------------------


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A graph of a chain: paper n cites paper n + 1."""
    path = tmp_path / "real.omni"
    rows = [{"type": "Paper", "data": {"doi": f"p{n:02}", "title": "T"}} for n in range(40)]
    edges = [{"edge": "Cites", "from": f"p{n:02}", "to": f"p{n + 1:02}"} for n in range(39)]
    with Graph.init(path, SCHEMA, durability="process") as graph:
        lines = "".join(json.dumps(row) + "\n" for row in [*rows, *edges])
        graph.load(lines.encode(), mode="append")
        graph.tags.create("v1")
        graph.mutate('query q() { delete Paper where doi = "p00" }')
    return path


def test_a_sample_is_the_same_for_a_seed_and_holds_all_edges_between_its_nodes(real: Path) -> None:
    tag = ReadTarget.tag("v1")

    def drawn(seed: int, follow: tuple[str, ...] = ()) -> tuple[set[str], set[tuple[str, str]]]:
        sample = draw_sample(SampledFixture(str(real), tag, {"Paper": 10}, follow, seed))
        nodes = set(sample.tables["node:Paper"]["id"].to_pylist())
        edges = sample.tables.get("edge:Cites")
        pairs = [] if edges is None else edges.select(["src", "dst"]).to_pylist()
        return nodes, {(one["src"], one["dst"]) for one in pairs}

    nodes, edges = drawn(1)
    assert len(nodes) == 10
    assert drawn(1) == (nodes, edges)
    assert drawn(2)[0] != nodes
    follows = {(f"p{n:02}", f"p{n + 1:02}") for n in range(39)}
    assert edges == {pair for pair in follows if set(pair) <= nodes}
    grown, between = drawn(1, ("Cites",))
    assert grown == nodes | {to for source, to in follows if source in nodes}
    assert between == {pair for pair in follows if set(pair) <= grown}


def test_tests_on_a_sample_read_the_graph_and_leave_it_alone(papers: Terminal, real: Path) -> None:
    before = sorted(real.rglob("*"))
    Path("s.test.yaml").write_text(
        "queries: [papers.gq]\n"
        "fixtures:\n"
        '  tagged: {graph: real.omni, at: "tag:v1"}\n'
        "  few: {graph: real.omni, sample: {Paper: 3}, seed: 7}\n"
        "  none: {graph: real.omni, sample: {Papr: 3}}\n"
        "  edgeless: {graph: real.omni, sample: {Paper: 1, follow: [Citse]}}\n"
        "tests:\n"
        "  - name: all\n"
        "    fixture: tagged\n"
        "    load: []\n"
        "    expect: {nodes: {Paper: 40}, edges: {Cites: 39}}\n"
        "  - {name: few, fixture: few, load: [], expect: {nodes: {Paper: 3}}}\n"
        "  - {name: unknown, fixture: none, load: [], expect: {nodes: {Paper: 3}}}\n"
        "  - {name: unknown edge, fixture: edgeless, load: [], expect: {nodes: {Paper: 3}}}\n"
    )
    tests = papers("test", "s.test.yaml", "--json").json["files"][0]["tests"]
    assert [one["state"] for one in tests] == ["passed", "passed", "failed", "failed"]
    assert tests[2]["problems"][0]["message"] == (
        "fixture 'none': the graph of the fixture has no node type 'Papr'; did you mean 'Paper'?"
    )
    assert "no edge type 'Citse'; did you mean 'Cites'?" in tests[3]["problems"][0]["message"]
    assert sorted(real.rglob("*")) == before


# -- scaffold, schema plan ------------------------------------------------------------------------


def test_scaffold_writes_what_a_query_reads_and_a_file_that_runs(papers: Terminal) -> None:
    Path("papers.test.yaml").unlink()
    Path("papers.gq").write_text(
        QUERIES + "query cited($doi: String) { match { $a: Paper { doi: $doi } $a cites $b }"
        " return { $b.year } }\n"
    )
    done = papers("test", "--scaffold", "cited")
    assert (done.code, done.out) == (0, "wrote cited.test.yaml\n")
    assert Path("cited.test.yaml").read_text() == (
        "# A test of the query cited: change the rows, and say what it returns for them.\n"
        'schema: "papers.pg"\n'
        'queries: ["papers.gq"]\n'
        "fixtures:\n"
        "  small:\n"
        '    - {type: "Paper", data: {doi: "paper-1", title: "", year: 0}}\n'
        '    - {edge: "Cites", from: "paper-1", to: "paper-1"}\n'
        "tests:\n"
        "  - name: cited\n"
        "    fixture: small\n"
        "    query: cited\n"
        '    params: {doi: ""}\n'
        "    expect: {rows: []}\n"
    )
    assert papers("test").code == 0
    assert "exists already" in papers("test", "--scaffold", "cited").err
    assert papers("test", "--scaffold", "nothing").code == 1
    assert papers("test", "--schema", "papers.pg").code == 2
    Path("other.pg").write_text(SCHEMA)
    assert "2 files *.pg: name one by --schema" in papers("test", "--scaffold", "all").err


def test_schema_plan_lists_the_queries_tests_and_contracts_that_a_change_breaks(
    papers: Terminal,
) -> None:
    Path("papers.test.yaml").write_text(
        FILE + "  - {name: holds anyway, query_text: 'query q() { match { $p: Paper } return"
        " { $p.doi } }', expect: {rows: []}}\n"
        "expectations: [{type: Paper, rules: [{not_null: year}, {unique: [doi]}]}]\n"
    )
    Path("next.pg").write_text(SCHEMA.replace("  year: I32?", "  born: I32? @rename_from(year)"))
    assert papers("init", "--schema", "papers.pg", "g.omni").code == 0
    plan = ("schema", "plan", "g.omni", "--schema", "next.pg", "--tests", ".")
    done = papers(*plan, "--json")
    assert done.code == 0
    assert problems("schema-plan", done.json) == []
    assert [(one["kind"], one["name"]) for one in done.json["breaks"]] == [
        ("query", "all"),
        ("test", "holds"),
        ("contract", "Paper: not null year"),
    ]
    lines = papers(*plan).out.splitlines()
    assert lines[-4] == "breaks:"
    assert lines[-1].startswith(
        "- contract Paper: not null year (papers.test.yaml): 'Paper' has no property 'year'"
    )
    same = papers("schema", "plan", "g.omni", "--schema", "papers.pg", "--tests", ".")
    assert same.out.splitlines()[-1] == "breaks: nothing"


def test_without_java_pipelines_are_skipped_unless_spark_was_asked_for(
    papers: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    Path("social.yaml").write_text("version: 1\n")
    Path("papers.test.yaml").write_text(
        "schema: papers.pg\n"
        "tests: [{name: a, pipeline: social.yaml, expect: {nodes: {Paper: 0}}}]\n"
    )
    skipped = papers("test")
    assert skipped.code == 0
    assert "skipped a: pipelines run on Spark: Spark needs Java 17" in skipped.out
    failed = papers("test", "--engine", "spark")
    assert failed.code == 1
    assert "Spark needs Java 17" in failed.out


def test_tests_and_contracts_do_without_spark() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import omnigraph.pipelines.data_tests.run, omnigraph.pipelines.contracts.run\n"
        "import omnigraph.pipelines.data_tests.scaffold, omnigraph.pipelines.data_tests.breaks\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
