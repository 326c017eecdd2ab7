"""`omnigraph query`, as a user meets it."""

from __future__ import annotations

import json

import pytest

from omnigraph.cli.app import run
from omnigraph.cli.output.formats import TableStyle, read_lines
from omnigraph.graph import Graph

SCHEMA = "node Crew { tag: String @key   rank: I32?   skills: [String]? }\n"
DATA = b"""\
{"type": "Crew", "data": {"tag": "ann", "rank": 5, "skills": ["helm, ropes"]}}
{"type": "Crew", "data": {"tag": "bo \\"the\\nbold\\""}}
"""
COLUMNS = "$c.tag as tag, $c.rank as rank, $c.skills as skills"
ALL = f"query all() {{ match {{ $c: Crew }} return {{ {COLUMNS} }} order {{ tag }} }}"
ONE = "query one($t: String) { match { $c: Crew { tag: $t } } return { $c.rank } }"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("query") / "graph")
    graph = Graph.init(root, SCHEMA, durability="process")
    graph.load(DATA, mode="append")
    return root


def outputs(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = run(["query", *args])
    caught = capsys.readouterr()
    return code, caught.out, caught.err


def test_a_table_is_the_default(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = outputs(capsys, "--store", store, "-e", ALL)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "2 rows from branch main via all",
        "tag            | rank | skills",
        "---------------+------+----------------",
        'ann            | 5    | ["helm, ropes"]',
        'bo "the\\nbold" | null | null',
    ]


def test_csv_quotes_what_needs_it(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = outputs(capsys, "--store", store, "-e", ALL, "--format", "csv")
    assert out == ('tag,rank,skills\nann,5,"[""helm, ropes""]"\n"bo ""the\nbold""",null,null\n')


def test_pairs_are_separated_by_blank_lines(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = outputs(capsys, "--store", store, "-e", ALL, "--format", "kv")
    assert out.splitlines()[:6] == [
        "2 rows from branch main via all",
        "row 1",
        "tag: ann",
        "rank: 5",
        'skills: ["helm, ropes"]',
        "",
    ]


def test_json_lines_begin_with_metadata(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = outputs(capsys, "--store", store, "-e", ALL, "--format", "jsonl")
    first, *rows = [json.loads(line) for line in out.splitlines()]
    assert first == {
        "kind": "metadata",
        "query_name": "all",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 2,
    }
    assert [row["tag"] for row in rows] == ["ann", 'bo "the\nbold"']


def test_json_is_the_envelope(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    params = ("--params", '{"t": "ann"}')
    _, out, _ = outputs(capsys, "one", "--store", store, "-e", ALL + ONE, *params, "--json")
    shape = json.loads(out)
    assert shape["rows"] == [{"c.rank": 5}]
    assert shape["columns"] == ["c.rank"]
    assert shape["graph_commit_id"]


def test_an_old_commit_can_be_read(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = Graph.open(store).list_commits()[-1].graph_commit_id
    _, out, _ = outputs(capsys, "--store", store, "--snapshot", first, "-e", ALL)
    assert out.splitlines()[0] == f"0 rows from snapshot {first} via all"


def test_explain_shows_the_plan_only(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outputs(capsys, "--store", store, "-e", ALL, "--explain")
    assert code == 0
    assert "NodeScan c: Crew" in out
    assert "ann" not in out


def test_what_was_measured_is_told_on_stderr(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, err = outputs(capsys, "--store", store, "-e", ALL, "--analyze")
    assert out.startswith("2 rows")
    assert "elapsed_ms" in err


def test_limits_are_errors(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = outputs(capsys, "--store", store, "-e", ALL, "--max-rows", "1")
    assert (code, out) == (1, "")
    assert "2 rows" in err
    code, _, err = outputs(capsys, "--store", store, "-e", ALL, "--timeout", "0")
    assert code == 1
    assert "did not finish" in err


@pytest.mark.parametrize(
    "args", [("--json", "--format", "csv"), ("--branch", "main", "--snapshot", "x")]
)
def test_options_that_exclude_each_other_are_refused(
    store: str, capsys: pytest.CaptureFixture[str], args: tuple[str, ...]
) -> None:
    code, _, err = outputs(capsys, "--store", store, "-e", ALL, *args)
    assert code == 2
    assert "mutually exclusive" in err


def test_a_mutation_names_the_right_verb(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = outputs(capsys, "--store", store, "-e", 'query m() { insert Crew { tag: "x" } }')
    assert code == 1
    assert "use omnigraph mutate m" in err


def test_read_is_the_old_name(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["read", "--store", store, "-e", ALL]) == 0
    assert "omnigraph query" in capsys.readouterr().err


def test_wide_cells_are_cut_or_wrapped() -> None:
    result = {
        "query_name": "q",
        "target": {"branch": None, "snapshot": "S"},
        "row_count": 1,
        "columns": ["a"],
        "rows": [{"a": "0123456789"}],
    }
    cut = list(read_lines(result, "table", TableStyle(column_width_max=3)))
    assert cut == ["1 rows from snapshot S via q", "a", "--------", "0123456…"]
    wrapped = list(read_lines(result, "table", TableStyle(column_width_max=8, layout="wrap")))
    assert wrapped[3:] == ["01234567", "89"]
    empty = {**result, "columns": [], "rows": [], "row_count": 0}
    assert list(read_lines(empty, "table"))[1:] == ["(no rows)"]
    assert list(read_lines(empty, "kv"))[1:] == ["(no rows)"]
