"""A terminal in an empty directory, and a small graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.place_fixtures import bucket, s3
from support.terminal import SCHEMA, Terminal

__all__ = ["bucket", "s3"]

DESIRED = """\
node Person { name: String @key  years: I32? @rename_from(age) }
edge Knows: Person -> Person { since: Date? }
"""
QUERIES = """\
query all() { match { $p: Person } return { $p.name } }
query grow($n: String, $age: I32) { update Person set { age: $age } where name = $n }
"""
BAD_QUERIES = "query all() { match { $p: Person } return { $p.nmae } }\n"


@pytest.fixture
def omnigraph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    monkeypatch.chdir(tmp_path)
    files = {"s.pg": SCHEMA, "next.pg": DESIRED, "q.gq": QUERIES, "bad.gq": BAD_QUERIES}
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    return Terminal(capsys)


@pytest.fixture
def graph(omnigraph: Terminal, tmp_path: Path) -> str:
    assert omnigraph("init", "--schema", "s.pg", "g.omni").code == 0
    return str(tmp_path / "g.omni")
