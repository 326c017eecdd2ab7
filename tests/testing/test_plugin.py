"""The pytest plugin and `graph_fixture`, in a pytest of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.testing import FixtureGraph

pytest_plugins = ["pytester"]

SCHEMA = "node Paper { doi: String @key  title: String? }"
DATA_TESTS = """\
schema: papers.pg
queries: [papers.gq]
fixtures: {small: [{type: Paper, data: {doi: a}}]}
tests:
  - {name: holds, fixture: small, query: all, expect: {rows: [{p.doi: a}]}}
  - {name: fails, fixture: small, query: all, expect: {rows: [{p.doi: b}]}}
  - {name: shot, fixture: small, query: all, snapshot: shot.jsonl}
"""
PYTHON_TESTS = """\
from pathlib import Path
from omnigraph.testing import graph_fixture

papers = graph_fixture(Path("papers.pg"), [{"type": "Paper", "data": {"doi": "a"}}])
COUNT = "query q() { match { $p: Paper } return { count($p) as n } }"

def test_one_writes(papers):
    papers.mutate('query q() { insert Paper { doi: "b" } }')
    assert papers.query(COUNT).to_pylist() == [{"n": 2}]

def test_another_sees_nothing_of_it(papers):
    assert papers.query(COUNT).to_pylist() == [{"n": 1}]
    assert papers.branch == "test-2"
"""
PLUGIN = ("-p", "no:omnigraph", "-p", "omnigraph.testing.plugin", "-p", "no:cacheprovider")


def test_files_of_tests_are_collected_and_fixtures_share_one_graph(
    pytester: pytest.Pytester,
) -> None:
    pytester.path.joinpath("papers.pg").write_text(SCHEMA)
    pytester.path.joinpath("papers.gq").write_text(
        "query all() { match { $p: Paper } return { $p.doi } }\n"
    )
    pytester.path.joinpath("papers.test.yaml").write_text(DATA_TESTS)
    pytester.makepyfile(test_python=PYTHON_TESTS)
    done = pytester.runpytest_subprocess(*PLUGIN, "--omnigraph-update")
    done.assert_outcomes(passed=4, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*papers.test.yaml .F.*",
            "*rows differ*",
            'missing {"p.doi":"b"}',
            'extra   {"p.doi":"a"}',
            "FAILED papers.test.yaml::fails*",
        ]
    )
    assert pytester.path.joinpath("shot.jsonl").read_text() == '{"p.doi":"a"}\n'


def test_a_broken_file_is_an_error_of_the_collection(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("papers.test.yaml").write_text("tsets: []\n")
    done = pytester.runpytest_subprocess(*PLUGIN)
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*papers.test.yaml:1:1 error unknown_key tsets:*"])


def test_a_fixture_is_built_when_it_is_used_and_removed_when_it_is_closed(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"type": "Paper", "data": {"doi": "a"}}\n')
    papers = FixtureGraph(SCHEMA, rows)
    with papers.branch() as graph:
        folder = Path(graph.uri)
        assert graph.query("query q() { match { $p: Paper } return { $p.doi } }").row_count == 1
    papers.close()
    assert not folder.exists()
    with papers.branch() as graph:
        assert graph.branch == "test-2"
    papers.close()
