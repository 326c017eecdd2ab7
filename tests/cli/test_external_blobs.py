"""Blobs that lie outside of a graph, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.terminal import Terminal

SCHEMA = "node Doc { name: String @key  body: Blob? }\n"


@pytest.fixture
def outside(omnigraph: Terminal, tmp_path: Path) -> Path:
    """Return a file outside of the graph `docs.omni`, which has a branch `draft`."""
    (tmp_path / "docs.pg").write_text(SCHEMA)
    path = tmp_path / "in" / "a.bin"
    path.parent.mkdir()
    path.write_bytes(b"hello")
    (tmp_path / "docs.jsonl").write_text(
        json.dumps({"type": "Doc", "data": {"name": "far", "body": path.as_uri()}})
    )
    assert omnigraph("init", "--schema", "docs.pg", "docs.omni").code == 0
    assert omnigraph("branch", "create", "draft", "--store", "docs.omni").code == 0
    return path


def load(command: str, mode: str, branch: str = "main") -> list[str]:
    return [command, "docs.omni", "--data", "docs.jsonl", "--mode", mode, "--branch", branch]


def exported(omnigraph: Terminal, branch: str = "main") -> list[object]:
    lines = omnigraph("export", "docs.omni", "--branch", branch).out.splitlines()
    return [json.loads(line)["data"]["body"] for line in lines]


@pytest.mark.parametrize("command", ["load", "ingest"])
def test_a_load_reads_blobs_only_from_below_the_named_bases(
    omnigraph: Terminal, outside: Path, command: str
) -> None:
    denied = omnigraph(*load(command, "merge"))
    assert denied.code == 1
    assert "new external Blob URI ingress is denied for this graph" in denied.err
    wrong = omnigraph(*load(command, "merge"), "--external-blob-base", str(outside.parent))
    assert wrong.code == 1
    assert "is no base of external blobs: expected an absolute URL" in wrong.err
    bases = ["--external-blob-base", "s3://lake", "--external-blob-base", outside.parent.as_uri()]
    assert omnigraph(*load(command, "merge"), *bases).code == 0
    outside.unlink()
    assert exported(omnigraph) == ["base64:aGVsbG8="]


def test_a_merge_and_a_revert_read_blobs_only_from_below_the_named_bases(
    omnigraph: Terminal, outside: Path
) -> None:
    bases = ["--external-blob-base", outside.parent.as_uri()]
    # Only overwriting keeps a reference.
    assert omnigraph(*load("load", "overwrite", "draft"), *bases).code == 0
    other = {"type": "Doc", "data": {"name": "other"}}
    Path("other.jsonl").write_text(json.dumps(other))
    args = ["load", "docs.omni", "--data", "other.jsonl", "--mode"]
    assert omnigraph(*args, "append").code == 0
    merge = ["branch", "merge", "draft", "--store", "docs.omni"]
    denied = omnigraph(*merge)
    assert denied.code == 1
    assert "--external-blob-base" in denied.err
    assert omnigraph(*merge, *bases).code == 0
    assert exported(omnigraph) == ["base64:aGVsbG8=", None]

    emptied = omnigraph(*args, "overwrite", "--branch", "draft", "--json").json["commit"]
    revert = ["commit", "revert", emptied["graph_commit_id"], "--branch", "draft"]
    assert omnigraph(*revert, "--store", "docs.omni").code == 1
    assert omnigraph(*revert, "--store", "docs.omni", *bases).code == 0
    assert exported(omnigraph, "draft") == ["base64:aGVsbG8="]


def test_a_mutation_copies_blobs_from_below_the_named_bases(
    omnigraph: Terminal, outside: Path
) -> None:
    text = "query add($b: Blob) { insert Doc { name: 'far', body: $b } }".replace("'", '"')
    mutate = ["mutate", "--store", "docs.omni", "-e", text]
    mutate += ["--params", json.dumps({"b": outside.as_uri()})]
    denied = omnigraph(*mutate)
    assert denied.code == 1
    assert "new external Blob URI ingress is denied for this graph" in denied.err
    assert "--external-blob-base" in denied.err
    bases = ["--external-blob-base", outside.parent.as_uri()]
    assert omnigraph(*mutate, *bases).code == 0
    outside.unlink()
    assert exported(omnigraph) == ["base64:aGVsbG8="]
    gone = omnigraph(*mutate, *bases)
    assert gone.code != 0
    assert f"external blob {outside.as_uri()} cannot be read" in gone.err
