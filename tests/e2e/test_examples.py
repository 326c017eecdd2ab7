"""The scripts under `examples/` run, and tell the story that they promise."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.pages import ROOT

FOLDER = ROOT / "examples"
STORIES = {
    "agent_memory": [
        "   careful: insert Fact ines-lisbon",
        "   careful: fast_forward",
        "   divergent update for id 'Omar'",
        "   Ines: Ines will visit Lisbon in May (0.9)",
        "   now: Omar, engineer, Oslo",
        "   then: Omar, engineer, None",
    ],
    "knowledge_graph": [
        "   14 entities, 2 rejected, by spark",
        "   0 inserted, 0 updated, 5 unchanged",
        "   1970 A Relational Model of Data",
        "   The Entity-Relationship Model: Chen",
        "   2024 Property Graphs in Practice",
    ],
    "change_stream": [
        "   2 changes, the copy holds {'A-1': 100, 'A-2': 50}",
        "   A-1: 100 -> 70",
        "   A-3: None -> 10",
        "   0 changes",
        "   A-3 is gone",
        "   True: {'A-1': 70, 'A-2': 80}",
        "   commits of the stream: ['0', '1', '2']",
    ],
}
"""Lines that each script prints, step by step, among others."""


def told(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    runpy.run_path(str(FOLDER / f"{name}.py"))["main"](folder)
    return capsys.readouterr().out.splitlines()


def check(name: str, lines: list[str]) -> None:
    steps = [line.partition(".")[0] for line in lines if not line.startswith(" ")]
    assert steps == [str(number + 1) for number in range(len(steps))]
    # Of two files with one time Spark may take either first: inside a step any order will do.
    step_of = {
        line: sum(not before.startswith(" ") for before in lines[: lines.index(line)])
        for line in STORIES[name]
    }
    assert list(step_of.values()) == sorted(step_of.values())


def test_the_memory_of_agents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("agent_memory", told("agent_memory", tmp_path, capsys))


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["knowledge_graph", "change_stream"])
def test_what_runs_on_spark(
    name: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(name, told(name, tmp_path, capsys))


def test_every_script_is_listed_run_and_opens_with_what_it_shows() -> None:
    scripts = {path.stem: path for path in FOLDER.glob("*.py")}
    assert set(scripts) == set(STORIES)
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name, path in scripts.items():
        opening = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert f"python examples/{name}.py [FOLDER]" in opening
        assert "Shows: " in opening
        assert f"]({name}.py)" in listed
