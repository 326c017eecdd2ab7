"""Merges across schema changes as text, in both directions.

The sections are those of `test_merge_cases.py`. What a side does to its schema is in `source
schema` and `target schema`, a second change in `… schema 2`; `source before` and `target before`
are done before it, `… between` between both, `source` and `target` after it. `swapped options` are
the arguments for the other direction. `outcome` also has the steps of the target's schema, and what
was dropped.

A merge that succeeded is followed by one in the other direction: it has no conflict, and then both
branches have the same rows and the same types.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from merge.test_merge_cases import heads, merge, refusal, rows_of, summary
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph, ReadTarget
from support.cases import Case, check_case, difference, load_cases
from support.merge_sides import SOURCE, TARGET, Start


@pytest.fixture(autouse=True)
def engine() -> str:
    """Merge in this process: one case alone is merged by tasks."""
    return "local"


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
