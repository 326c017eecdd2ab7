"""`omnigraph embed`: on files and on a graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.app import run
from omnigraph.graph import Graph

SCHEMA = 'node Note { key: String @key  text: String?  vec: Vector(3)? @embed("text") }\n'
RECORD = {"type": "Note", "data": {"key": "a", "text": "alpha"}}


@pytest.fixture(autouse=True)
def mocked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OMNIGRAPH_EMBED_PROVIDER", raising=False)
    monkeypatch.delenv("OMNIGRAPH_PROFILE", raising=False)


def called(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    code = run([str(arg) for arg in args])
    found = capsys.readouterr()
    return code, found.out, found.err


def spec(folder: Path) -> Path:
    path = folder / "spec.json"
    path.write_text('{"dimension": 3, "types": {"Note": {"target": "vec", "fields": ["text"]}}}')
    return path


def test_a_file_is_embedded_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps(RECORD))
    args = (
        "embed",
        "--input",
        source,
        "--output",
        tmp_path / "out.jsonl",
        "--spec",
        spec(tmp_path),
    )
    code, out, _ = called(capsys, *args, "--json")
    assert code == 0
    assert json.loads(out) == {
        "input": str(source),
        "output": str(tmp_path / "out.jsonl"),
        "records": 1,
        "selected_records": 1,
        "embedded_records": 1,
        "cleaned_records": 0,
        "mode": "fill_missing",
        "dimension": 3,
        "model": "",
    }
    assert len(json.loads((tmp_path / "out.jsonl").read_text())["data"]["vec"]) == 3
    code, out, _ = called(capsys, *args, "--clean")
    assert (code, "cleaned 0" in out) == (0, True)


@pytest.mark.parametrize(
    "spelling", ["sources: {raw_seed: ./in.jsonl}", "seed: {data: ./in.jsonl}"]
)
def test_a_manifest_names_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spelling: str
) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(RECORD))
    manifest = tmp_path / "seed.yaml"
    types = "{Note: {target: vec, fields: [text]}}"
    manifest.write_text(f"{spelling}\nembeddings: {{dimension: 3, types: {types}}}\n")
    code, out, _ = called(capsys, "embed", "--seed", manifest, "--json")
    assert code == 0
    assert json.loads(out)["embedded_records"] == 1
    assert (tmp_path / "build" / "seed.embedded.jsonl").exists()


def test_a_graph_is_embedded_as_one_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "g"
    with Graph.init(root, SCHEMA, durability="process") as graph:
        graph.mutate('query q() { insert Note { key: "a", text: "alpha" } }', embed="off")
    code, out, _ = called(capsys, "embed", "--store", root, "--type", "Note", "--json")
    assert code == 0
    shape: dict[str, Any] = json.loads(out)
    assert shape["types"] == [{"name": "Note", "embedded_records": 1}]
    assert shape["commit"]["graph_commit_id"]
    for address in ((root,), ("--store", root), ("--uri", root)):
        code, out, _ = called(capsys, "embed", *address)
        assert (code, "0 Note" in out) == (0, True)
    code, out, _ = called(capsys, "embed", "--store", root, "--reembed-all")
    assert (code, "1 Note (1 texts sent)" in out) == (0, True)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ((), "give --seed MANIFEST"),
        (("--input", "a"), "give --seed MANIFEST"),
        (("--seed", "a", "--input", "b"), "--input does not go with --seed"),
        (("--clean", "--reembed-all"), "mutually exclusive"),
        (("--store", "g", "--seed", "a"), "--seed does not go with --store"),
        (("--store", "g", "--clean"), "--clean does not go with --store"),
        (("g.omni", "--clean"), "--clean does not go with URI"),
        (("--seed", "a", "--branch", "b"), "--branch does not go with a file"),
        (("--seed", "nowhere.yaml"), "nowhere.yaml cannot be read"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], problem: str
) -> None:
    code, _, err = called(capsys, "embed", *args)
    assert code == 2
    assert problem in err


def test_a_bad_record_is_an_error_of_the_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"type": "Note"}')
    args = ("embed", "--input", source, "--output", tmp_path / "o", "--spec", spec(tmp_path))
    code, _, err = called(capsys, *args)
    assert code == 1
    assert "line 1 is missing object field 'data'" in err
