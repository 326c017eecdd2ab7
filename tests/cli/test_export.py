"""`omnigraph export`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.cli.app import run

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"
RECORDS = b"""{"type": "Person", "data": {"name": "bob"}}
{"type": "Person", "data": {"name": "ann"}}
{"edge": "Knows", "from": "ann", "to": "bob"}
"""


@pytest.fixture
def root(tmp_path: Path) -> str:
    path = str(tmp_path / "g.omni")
    with Graph.init(path, SCHEMA, durability="process", auto_optimize=False) as graph:
        graph.load(RECORDS, mode="append")
        graph.branch_create("draft")
        graph.load(b'{"type": "Person", "data": {"name": "eve"}}', mode="append")
    return path


def names(text: str) -> list[str]:
    records = [json.loads(line) for line in text.splitlines()]
    return [record["data"]["name"] for record in records if "type" in record]


def test_records_go_to_standard_output(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", root]) == 0
    assert names(capsys.readouterr().out) == ["ann", "bob", "eve"]
    assert run(["export", root, "--branch", "draft", "--type", "Person", "--jsonl"]) == 0
    written = capsys.readouterr()
    assert names(written.out) == ["ann", "bob"]
    assert "--jsonl has no effect" in written.err


@pytest.mark.parametrize("export_format", ["jsonl", "parquet"])
def test_files_go_to_a_folder(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], export_format: str
) -> None:
    out = tmp_path / "out"
    asked = ["export", root, "--format", export_format, "--out", str(out), "--engine", "local"]
    assert run([*asked, "--json"]) == 0
    shape = json.loads(capsys.readouterr().out)
    assert (shape["total_entities"], shape["engine"], shape["format"]) == (
        4,
        "local",
        export_format,
    )
    assert (out / "nodes" / "Person" / f"part-00000.{export_format}").exists()
    assert run(asked) == 1
    assert "expected an empty folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [["--format", "parquet"], ["--engine", "spark"], ["--json"], ["--table", "Person"]],
)
def test_what_makes_no_sense_is_a_usage_error(root: str, flags: list[str]) -> None:
    assert run(["export", root, *flags]) == 2


def test_an_unknown_type_is_refused(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", root, "--type", "Persn"]) == 1
    assert "unknown export type 'Persn'" in capsys.readouterr().err
