"""Mutations as text: a schema, stored records and a query; what changes must be what is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.errors import OmnigraphError
from omnigraph.graph import ChangedRows, Graph
from support.cases import Case, check_case, difference, load_cases
from support.clocks import ManualClock
from support.entities import entities, store_records
from support.places import Place

Start = Callable[[Case], Graph]
COUNTS = ("inserted", "updated", "replaced", "deleted", "unchanged")


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Make each stored graph once; cases work on copies."""
    made: dict[tuple[str, str], Path] = {}

    def template(schema: str, records: str) -> Path:
        if (schema, records) not in made:
            path = tmp_path_factory.mktemp("template") / "graph"
            store_records(Place(str(path)).init(schema, clock=ManualClock()), records)
            made[schema, records] = path
        return made[schema, records]

    return template


@pytest.fixture
def start(templates: Callable[[str, str], Path], tmp_path: Path) -> Start:
    def copy(case: Case) -> Graph:
        path = templates(case.sections["schema"], case.sections.get("stored", ""))
        shutil.copytree(path, tmp_path / "graph")
        return Place(str(tmp_path / "graph")).open(clock=ManualClock(first_ulid=1_000))

    return copy


@pytest.mark.parametrize("case", load_cases("mutate"), ids=str)
def test_a_mutation_does_what_its_case_says(case: Case, start: Start, update_cases: bool) -> None:
    graph = start(case)
    before, head = entities(graph), graph.snapshot().commit_id
    outcome = _run(graph, case)
    after = entities(graph)
    changed = graph.snapshot().commit_id != head
    lines = [outcome, *([] if changed else ["no commit"]), *difference(before, after)]
    check_case(case, "result", "\n".join(lines), update_cases)


def _run(graph: Graph, case: Case) -> str:
    params = json.loads(case.sections.get("params") or "null")
    try:
        result = graph.mutate(case.sections["query"], params=params)
    except OmnigraphError as error:
        assert len(graph.list_commits()) <= 2, "a refused mutation has made a commit"
        return f"{error.code} {error}"
    head = graph.snapshot().commit_id
    assert result.commit is None or result.commit.graph_commit_id == head
    counts = "".join(f"\n{_counted(each)}" for each in result.counts)
    return f"{result.affected_nodes} nodes, {result.affected_edges} edges{counts}"


def _counted(rows: ChangedRows) -> str:
    shape = rows.to_json()
    counts = [f"{shape[name]} {name}" for name in COUNTS if shape[name]]
    return f"{shape['entity_kind']} {shape['type_name']}: {', '.join(counts)}"
