"""Loads as text: a schema, a stored graph, an input, and what comes out in each mode."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from support.cases import Case, check_case, difference, load_cases
from support.clocks import ManualClock
from support.entities import store_records
from support.loads import graph_lines, problem_lines
from support.places import Place

MODES = "append merge overwrite"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """Graphs that cases start from, each made once."""
    return {}


def _start(case: Case, made: dict[tuple[str, str], Path], folder: pytest.TempPathFactory) -> Graph:
    key = case.sections["schema"], case.sections.get("stored", "")
    if key not in made:
        made[key] = folder.mktemp("template") / "graph"
        store_records(Place(str(made[key])).init(key[0], clock=ManualClock()), key[1])
    copy = folder.mktemp("case") / "graph"
    shutil.copytree(made[key], copy)
    return Place(str(copy)).open(clock=ManualClock(first_ulid=1_000))


def _outcome(case: Case, graph: Graph, mode: str) -> list[str]:
    before = graph_lines(graph)
    head = graph.snapshot().commit_id
    reader = case.sections.get("reader", "strict")
    try:
        result = graph.load(case.sections["input"].encode(), mode=mode, reader=reader)
    except OmnigraphError as error:
        assert graph_lines(graph) == before, "a refused load has changed something"
        assert graph.snapshot().commit_id == head
        return problem_lines(error)
    after = graph_lines(graph)
    if result.commit is None:
        assert after == before
        return ["no commit"]
    assert graph.snapshot().commit_id == result.commit.graph_commit_id
    return difference(before, after) or ["no difference"]


def _check(
    case: Case,
    made: dict[tuple[str, str], Path],
    folder: pytest.TempPathFactory,
    update_cases: bool,
) -> None:
    outcomes: dict[str, list[str]] = {}
    for mode in case.sections.get("modes", MODES).split():
        text = "\n".join(_outcome(case, _start(case, made, folder), mode))
        outcomes.setdefault(text, []).append(mode)
    parts = [f"{', '.join(modes)}:\n{text}" for text, modes in outcomes.items()]
    check_case(case, "outcome", "\n".join(parts), update_cases)


@pytest.mark.parametrize("case", load_cases("load"), ids=str)
def test_a_load_does_what_its_case_says(
    case: Case,
    made: dict[tuple[str, str], Path],
    tmp_path_factory: pytest.TempPathFactory,
    update_cases: bool,
) -> None:
    _check(case, made, tmp_path_factory, update_cases)


@pytest.mark.parametrize("case", load_cases("rules"), ids=str)
def test_a_load_keeps_every_rule_as_its_case_says(
    case: Case,
    made: dict[tuple[str, str], Path],
    tmp_path_factory: pytest.TempPathFactory,
    update_cases: bool,
) -> None:
    _check(case, made, tmp_path_factory, update_cases)
