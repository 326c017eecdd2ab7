"""`omnigraph mutate`, as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.cli.app import run
from omnigraph.graph import Graph

SCHEMA = "node Crew { tag: String @key   rank: I32? }\nedge Mentors: Crew -> Crew\n"
ADD = "query add($t: String) { insert Crew { tag: $t } insert Mentors { from: $t, to: $t } }"


@pytest.fixture
def store(tmp_path: Path) -> str:
    root = str(tmp_path / "graph")
    Graph.init(root, SCHEMA, durability="process").close()
    return root


def outputs(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = run(["mutate", *args])
    caught = capsys.readouterr()
    return code, caught.out, caught.err


def test_it_says_what_changed(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = outputs(capsys, "--store", store, "-e", ADD, "--params", '{"t": "ann"}')
    assert (code, out, err) == (0, "changed main via add: 1 nodes, 1 edges\n", "")


def test_it_names_the_actor(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--store", store, "-e", ADD, "--params", '{"t": "ann"}', "--as", "me")
    assert outputs(capsys, *args)[1].splitlines()[1] == "actor_id: me"


def test_json_is_the_envelope(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--store", store, "-e", ADD, "--params", '{"t": "ann"}', "--json")
    shape = json.loads(outputs(capsys, *args)[1])
    assert shape["affected_nodes"] == 1
    assert shape["commit"]["graph_commit_id"] == Graph.open(store).head_commit_id_for_branch()


def test_nothing_matched_is_a_success_without_a_commit(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'query q() { delete Crew where tag = "x" }'
    code, out, _ = outputs(capsys, "--store", store, "-e", text, "--json")
    assert code == 0
    assert json.loads(out)["commit"] is None


def test_queries_and_parameters_come_from_files(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.gq").write_text(ADD + ' query other() { insert Crew { tag: "o" } }')
    (tmp_path / "p.json").write_text('{"t": "ann"}')
    files = ("--query", str(tmp_path / "q.gq"), "--params-file", str(tmp_path / "p.json"))
    code, out, _ = outputs(capsys, "add", "--store", store, *files)
    assert (code, out) == (0, "changed main via add: 1 nodes, 1 edges\n")
    code, _, err = outputs(capsys, "--store", store, *files)
    assert code == 1
    assert "2 queries" in err


def test_a_branch_is_changed_by_name(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    Graph.open(store).branch_create("draft")
    args = ("--store", store, "-e", ADD, "--params", '{"t": "ann"}', "--branch", "draft")
    assert outputs(capsys, *args)[1] == "changed draft via add: 1 nodes, 1 edges\n"


def test_a_lost_compare_and_swap_is_exit_code_4(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    head = Graph.open(store).head_commit_id_for_branch()
    args = ("--store", store, "-e", ADD, "--params", '{"t": "ann"}', "--if-commit", head)
    assert outputs(capsys, *args)[0] == 0
    now = Graph.open(store).head_commit_id_for_branch()
    code, out, err = outputs(capsys, *args)
    assert (code, out) == (4, "")
    assert err.startswith(f"error: the head of the branch is {now}, not {head}\n")
    code, out, err = outputs(capsys, *args, "--json")
    assert (code, err) == (4, "")
    assert json.loads(out) == {
        "error": f"the head of the branch is {now}, not {head}",
        "precondition_failure": {"expected": head, "actual": now},
    }


@pytest.mark.parametrize(
    ("args", "code", "part"),
    [
        (("-e", " "), 1, "blank"),
        (("stored",), 1, "needs a server"),
        (("-e", ADD, "--params", "{"), 1, "not JSON"),
        (("-e", ADD, "--params", '{"t": NaN}'), 1, "NaN"),
        (("-e", ADD, "--params", "[1]"), 1, "params must be a JSON object"),
        (("-e", ADD), 1, "parameter 't' not provided"),
        (("-e", "query q() { match { $c: Crew } return { $c } }"), 1, "omnigraph query q"),
        (("-e", ADD, "--params", '{"t": "a"}', "--branch", "x"), 1, "branch 'x' not found"),
        (("-e", ADD, "--as", "omnigraph:me", "--params", '{"t": "a"}'), 1, "reserved"),
        (("-e", ADD, "--query", __file__), 2, "mutually exclusive"),
        (("-e", ADD, "--params", "{}", "--params-file", __file__), 2, "mutually exclusive"),
    ],
)
def test_wrong_requests_are_refused(
    store: str, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], code: int, part: str
) -> None:
    found, out, err = outputs(capsys, "--store", store, *args)
    assert (found, out) == (code, "")
    assert part in err


def test_the_old_name_works_with_a_warning(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["change", "--store", store, "-e", ADD, "--params", '{"t": "ann"}']) == 0
    caught = capsys.readouterr()
    assert caught.out == "changed main via add: 1 nodes, 1 edges\n"
    assert "omnigraph mutate" in caught.err
