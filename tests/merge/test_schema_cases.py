"""Merges across schema changes as text, in both directions.

The sections are those of `test_merge_cases.py`. What a side does to its schema is in `source
schema` and `target schema`, a second change in `… schema 2`; `source before` and `target before`
are done before it, `source` and `target` after it. `swapped options` are the arguments for the
other direction. `outcome` also has the steps of the target's schema, and what was dropped.

A merge that succeeded is followed by one in the other direction: it has no conflict, and then both
branches have the same rows and the same types.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from merge.test_merge_cases import SOURCE, TARGET, heads, merge, refusal, rows_of, summary, write
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph, ReadTarget
from support.cases import Case, check_case, difference, load_cases
from support.places import Place

Start = Callable[[Case], Graph]


@pytest.fixture(autouse=True)
def engine() -> str:
    """Merge in this process: one case alone is merged by tasks."""
    return "local"


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Path]:
    """Make both sides of each case once; every merge works on a copy."""
    made: dict[str, Path] = {}

    def template(case: Case) -> Path:
        if str(case) not in made:
            path = tmp_path_factory.mktemp("template") / "graph"
            with Place(str(path)).init(case.sections["schema"]) as graph:
                write(graph, case.sections.get("base", ""), TARGET)
                graph.branch_create("base")
                graph.branch_create(SOURCE)
                act(graph, case.sections, "source", SOURCE)
                act(graph, case.sections, "target", TARGET)
            made[str(case)] = path
        return made[str(case)]

    return template


@pytest.fixture
def start(templates: Callable[[Case], Path], tmp_path: Path) -> Start:
    def copy(case: Case) -> Graph:
        shutil.copytree(templates(case), tmp_path / "graph")
        return Place(str(tmp_path / "graph")).open()

    return copy


def act(graph: Graph, sections: Mapping[str, str], side: str, branch: str) -> None:
    """Do what one side does to its rows and to its schema."""
    write(graph, sections.get(f"{side} before", ""), branch)
    for name in (f"{side} schema", f"{side} schema 2"):
        if name in sections:
            graph.apply_schema(sections[name], branch=branch)
    write(graph, sections.get(side, ""), branch)


def outcome(graph: Graph, case: Case, source: str, target: str, folder: Path) -> list[str]:
    base, before = rows_of(graph, "base"), heads(graph)
    swapped = case.sections.get("swapped options") if source == TARGET else None
    try:
        result = merge(graph, case, source, target, folder, given=swapped)
    except OmnigraphError as error:
        return refusal(graph, error, before)
    merged = rows_of(graph, target)
    assert graph.branch_merge(source, target).outcome == "already_up_to_date"
    graph.branch_merge(target, source)
    assert rows_of(graph, source) == merged, "the branches differ after both merges"
    assert types_of(graph, source) == types_of(graph, target)
    lines = summary(result)
    lines += [f"schema: {step.describe()}" for step in result.schema_changes.steps]
    lines += [
        f"dropped: {one.table_key} {one.property}: {one.count}" for one in result.dropped_values
    ]
    return [*lines, *difference(base, merged)]


def types_of(graph: Graph, branch: str) -> list[str]:
    catalog = graph.snapshot_of(ReadTarget.branch(branch)).catalog
    types = (*catalog.node_types.values(), *catalog.edge_types.values())
    return sorted(f"{each.table_key} {sorted(each.properties)}" for each in types)


@pytest.mark.parametrize("case", load_cases("merge_schemas"), ids=str)
def test_a_merge_across_schemas_comes_to_what_its_case_says(
    case: Case, start: Start, tmp_path: Path, update_cases: bool
) -> None:
    lines = outcome(start(case), case, SOURCE, TARGET, tmp_path)
    check_case(case, "outcome", "\n".join(lines), update_cases)


@pytest.mark.parametrize("case", load_cases("merge_schemas"), ids=str)
def test_a_merge_across_schemas_in_the_other_direction_comes_to_what_its_case_says(
    case: Case, start: Start, tmp_path: Path, update_cases: bool
) -> None:
    lines = outcome(start(case), case, TARGET, SOURCE, tmp_path)
    check_case(case, "swapped", "\n".join(lines), update_cases)
