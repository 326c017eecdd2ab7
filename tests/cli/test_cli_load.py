"""`omnigraph load` and its old name."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.cli.app import run
from omnigraph.graph import Graph

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n"
RECORDS = """\
{"type": "Person", "data": {"name": "a", "age": 3}}
{"type": "Person", "data": {"name": "b"}}
{"edge": "Knows", "from": "a", "to": "b"}
"""


@pytest.fixture
def root(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> str:
    (tmp_path / "schema.pg").write_text(SCHEMA)
    (tmp_path / "data.jsonl").write_text(RECORDS)
    root = str(tmp_path / "graph.omni")
    assert run(["init", "--schema", str(tmp_path / "schema.pg"), root]) == 0
    capfd.readouterr()
    return root


def data(root: str) -> str:
    return str(Path(root).parent / "data.jsonl")


def test_load_says_what_it_did_and_where(root: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["load", root, "--data", data(root), "--mode", "append", "--as", "ada"]) == 0
    seen = capfd.readouterr()
    assert seen.err == f"omnigraph load → {root} (direct, local)\n"
    assert seen.out.startswith(
        "loaded 3 entities into main (append)\n  node Person: 2\n  edge Knows: 1\ncommit "
    )


def test_load_has_its_fields_as_json(root: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["load", root, "--data", data(root), "--mode", "merge", "--json"]) == 0
    shape = json.loads(capfd.readouterr().out)
    assert shape.pop("commit")["graph_manifest_version"] == 2
    assert shape.pop("bytes_written") > 0
    assert set(shape.pop("seconds")) == {"read", "validate", "write", "commit"}
    counters = dict.fromkeys(("updated", "unchanged", "deleted", "rejected", "superseded"), 0)
    own = {**counters, "nulled": {}, "warnings": []}
    assert shape == {
        "uri": root,
        "branch": "main",
        "branch_created": False,
        "mode": "merge",
        "engine": "local",
        "engine_reason": f"the input, about {len(RECORDS)} bytes, fits into memory",
        "durability": "full",
        "nodes": [{"name": "Person", "entities_loaded": 2, "inserted": 2, **own}],
        "edges": [{"name": "Knows", "entities_loaded": 1, "inserted": 1, **own}],
        "total_entities": 3,
        "inserted": 3,
        **counters,
        "nulled": 0,
        "warnings": [],
    }


def test_merges_keep_or_empty_what_a_file_does_not_name(
    root: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["load", root, "--data", data(root), "--mode", "append"]) == 0
    named = Path(root).parent / "named.jsonl"
    named.write_text('{"type": "Person", "data": {"name": "a"}}\n' * 2)
    capfd.readouterr()
    merge = ["load", root, "--data", str(named), "--mode", "merge", "--on-duplicate", "first"]
    assert run(merge) == 0
    assert "1 unchanged, 1 superseded\nnothing to commit" in capfd.readouterr().out
    assert run([*merge, "--missing", "null"]) == 0
    said = capfd.readouterr().out
    assert "1 updated, 1 superseded\n1 values of Person.age became null\ncommit" in said


def test_load_with_from_makes_the_branch(root: str, capfd: pytest.CaptureFixture[str]) -> None:
    args = ["load", "--store", root, "--data", data(root), "--mode", "append"]
    assert run([*args, "--branch", "etl", "--from", "main", "--json"]) == 0
    shape = json.loads(capfd.readouterr().out)
    assert (shape["branch"], shape["base_branch"], shape["branch_created"]) == ("etl", "main", True)


def test_violations_are_listed_and_end_with_one(
    root: str, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = '{"type": "Person", "data": {"name": 1}}\n{"type": "Person"}\n'
    Path(data(root)).write_text(bad)
    assert run(["load", root, "--data", data(root), "--mode", "append"]) == 1
    error = capfd.readouterr().err
    assert "line 1: Person: strict property 'name' expects String, got 1" in error
    assert "line 2: Person: non-nullable property 'name' has null or invalid values" in error
    assert "2 violations, nothing was written (required 1, type 1)" in error


@pytest.mark.parametrize(
    "args",
    [["--mode", "append"], ["--data", "x.jsonl"], ["--data", "x.jsonl", "--mode", "upsert"]],
)
def test_data_and_mode_are_required(
    root: str, args: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["load", root, *args]) == 2
    assert "Error" in capfd.readouterr().err


def test_ingest_warns_reads_what_load_would_not_and_is_not_listed(
    root: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path(data(root)).write_text('{"type": "Person",\n "data": {"name": "a", "x": 1}, "y": 2}')
    assert run(["ingest", root, "--data", data(root), "--json"]) == 0
    seen = capfd.readouterr()
    shape = json.loads(seen.out)
    assert "deprecated" in seen.err
    assert (shape["mode"], shape["base_branch"], shape["actor_id"]) == ("merge", "main", None)
    assert run(["--help"]) == 0
    assert "ingest" not in capfd.readouterr().out


def test_a_dry_run_prints_the_counts_and_writes_nothing(
    root: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["load", root, "--data", data(root), "--mode", "merge"]
    assert run([*arguments, "--dry-run"]) == 0
    assert capfd.readouterr().out == (
        "would load 3 entities into main (merge)\n  node Person: 2\n  edge Knows: 1\n"
        "3 inserted\ndry run, nothing was written\n"
    )
    assert run([*arguments, "--dry-run", "--json"]) == 0
    shape = json.loads(capfd.readouterr().out)
    assert (shape["dry_run"], shape["commit"], shape["inserted"]) == (True, None, 3)
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["inserted"] == 3
    Path(data(root)).write_text('{"edge": "Knows", "from": "a", "to": "z"}\n')
    assert run([*arguments, "--dry-run"]) == 1
    assert "dst 'z' not found in Person" in capfd.readouterr().err


def test_an_overwrite_may_take_edges_along(root: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["load", root, "--data", data(root), "--mode", "append"]) == 0
    Path(data(root)).write_text('{"type": "Person", "data": {"name": "b"}}\n')
    overwrite = ["load", root, "--data", data(root), "--mode", "overwrite"]
    assert run(overwrite) == 1
    assert "src 'a' not found in Person" in capfd.readouterr().err
    assert run([*overwrite, "--cascade"]) == 0
    assert "edge Knows: 1 removed with their nodes" in capfd.readouterr().out
    assert run(["load", root, "--data", data(root), "--mode", "merge", "--cascade"]) == 1
    assert "`cascade` is for mode `overwrite`" in capfd.readouterr().err


def people(root: str) -> list[tuple[str, int | None]]:
    """Load what is in the graph back from it."""
    with Graph.open(root, mode="read_only") as graph:
        found = [json.loads(line)["data"] for line in graph.export_lines(types=["Person"])]
    return [(one["name"], one["age"]) for one in found]


PEOPLE = "name,age\na,3\nb,\n"


@pytest.mark.parametrize(
    "args",
    [
        ["ROOT", "people.csv", "--node", "Person"],
        ["ROOT", "--node", "Person=people.csv"],
        ["ROOT", "--data", "people.csv", "--node", "Person"],
        ["--store", "ROOT", "people.csv", "--node", "Person"],
        ["ROOT", "people.txt", "--node", "Person", "--format", "csv", "--option", "delimiter=;"],
        ["ROOT", "who.csv", "--node", "Person", "--map", "name=who,age=years"],
        ["ROOT", "part-*.csv", "--node", "Person"],
        ["ROOT", "part-1.csv", "part-2.csv", "--node", "Person"],
        ["ROOT", "people.json"],
    ],
)
def test_a_table_is_given_with_its_type(
    root: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    args: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(PEOPLE)
    Path("people.txt").write_text(PEOPLE.replace(",", ";"))
    Path("who.csv").write_text(PEOPLE.replace("name,age", "who,years"))
    Path("part-1.csv").write_text("name,age\na,3\n")
    Path("part-2.csv").write_text("name\nb\n")
    nodes = [
        {"type": "Person", "data": {"name": name, "age": age}}
        for name, age in [("a", 3), ("b", None)]
    ]
    Path("people.json").write_text(json.dumps(nodes))
    args = [root if word == "ROOT" else word for word in args]
    assert run(["load", *args, "--mode", "append"]) == 0, capfd.readouterr().err
    assert people(root) == [("a", 3), ("b", None)]


def test_several_tables_are_one_commit_and_ends_are_mapped(
    root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(PEOPLE)
    pq.write_table(pa.table({"a": ["a"], "b": ["b"]}), "k.parquet")
    tables = ["--node", "Person=people.csv", "--edge", "Knows=k.parquet"]
    for mapping in (["--map", "src=a,dst=b"], ["--map", "Knows:src=a", "--map", "Knows:dst=b"]):
        assert run(["load", root, *tables, *mapping, "--mode", "overwrite"]) == 0
        assert "loaded 3 entities" in capfd.readouterr().out
    for wrong, words in (
        (["--map", "name=a"], "--map is for one table: name it, --map TYPE:PROPERTY=COLUMN"),
        (["--map", "src"], "--map src: expected PROPERTY=COLUMN"),
        (["--option", "x"], "--option x: expected NAME=VALUE"),
    ):
        assert run(["load", root, *tables, *wrong, "--mode", "merge"]) == 2
        assert words in capfd.readouterr().err
    assert run(["load", root, "people.csv", "--mode", "merge", "--map", "name=a"]) == 2
    assert run(["load", root, "people.csv", *tables, "--mode", "merge"]) == 2
    assert run(["load", root, "people.csv", "--mode", "merge"]) == 1
    assert "people.csv is CSV, expected graph records" in capfd.readouterr().err


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_an_exported_folder_comes_back_in_one_call(
    root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["load", root, "data.jsonl", "--mode", "append"]) == 0
    assert run(["export", root, "--format", form, "--out", "out"]) == 0
    assert run(["init", "--schema", "out/schema.pg", "copy.omni"]) == 0
    assert run(["load", "copy.omni", "out", "--mode", "append"]) == 0
    assert people("copy.omni") == [("a", 3), ("b", None)]
