"""Merges as text: what both sides do to a base, and what the merge makes of it.

`base` holds records. `source` and `target` hold what each side does then, one line each: records
are loaded in mode `merge`, everything else is a statement of a mutation. A first line `overwrite`
replaces the types of the records. `options` are arguments of `branch_merge`, `decisions` is a
decision file.

`outcome` is the kind of the merge with its counts, and how the target then differs from the base;
or the conflicts. The merge runs again in the other direction, from target to source. It must come
to the same outcome, or to that of the section `swapped`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.merge.conflicts import Conflict, MergeConflictError
from omnigraph.merge.result import MergeResult
from support.cases import Case, check_case, difference, load_cases
from support.entities import entities
from support.merge_sides import SOURCE, TARGET, Start


def rows_of(graph: Graph, branch: str) -> list[str]:
    graph.sync_branch(branch)
    return entities(graph)


def heads(graph: Graph) -> list[str]:
    return [graph.head_commit_id_for_branch(branch) for branch in (SOURCE, TARGET)]


def merge(
    graph: Graph, case: Case, source: str, target: str, folder: Path, *, given: str | None = None
) -> MergeResult:
    """Merge with the options of a case, or with those that are given."""
    options = json.loads(given or case.sections.get("options") or "{}")
    if "decisions" in case.sections:
        file = folder / "decisions.jsonl"
        file.write_text(case.sections["decisions"])
        options["resolve_file"] = file
    return graph.branch_merge(source, target, **options)


def outcome(graph: Graph, case: Case, source: str, target: str, folder: Path) -> list[str]:
    base, before = rows_of(graph, "base"), heads(graph)
    try:
        result = merge(graph, case, source, target, folder)
    except OmnigraphError as error:
        return refusal(graph, error, before)
    again = graph.branch_merge(source, target)
    assert again.outcome == "already_up_to_date", "the same merge has something to do again"
    return [*summary(result), *difference(base, rows_of(graph, target))]


def refusal(graph: Graph, error: OmnigraphError, before: list[str]) -> list[str]:
    """Return what a refused merge says; it has changed nothing."""
    assert heads(graph) == before, "a refused merge has made a commit"
    assert graph.recovery_status() == []
    if isinstance(error, MergeConflictError):
        return [spelled(conflict) for conflict in error.conflicts]
    return [f"{error.code} {error}"]


def spelled(conflict: Conflict) -> str:
    subject = conflict.table_key if conflict.entity_id is None else f"{conflict.table_key} "
    return f"{conflict.kind} {subject}{conflict.entity_id or ''}: {conflict.message}"


def summary(result: MergeResult) -> list[str]:
    counts = [
        f"{each.table_key}: {each.inserted} inserted, {each.updated} updated,"
        f" {each.deleted} deleted"
        for each in result.counts
    ]
    resolved = [f"resolved by {rule}: {rows}" for rule, rows in result.resolved.items()]
    return [str(result.outcome), *counts, *resolved]


@pytest.mark.parametrize("case", load_cases("merge"), ids=str)
def test_a_merge_comes_to_what_its_case_says(
    case: Case, start: Start, tmp_path: Path, update_cases: bool
) -> None:
    lines = outcome(start(case), case, SOURCE, TARGET, tmp_path)
    check_case(case, "outcome", "\n".join(lines), update_cases)


@pytest.mark.parametrize("case", load_cases("merge"), ids=str)
def test_a_merge_in_the_other_direction_comes_to_the_same_or_to_what_is_written(
    case: Case, start: Start, tmp_path: Path, update_cases: bool
) -> None:
    lines = outcome(start(case), case, TARGET, SOURCE, tmp_path)
    section = "swapped" if "swapped" in case.sections else "outcome"
    check_case(case, section, "\n".join(lines), update_cases and section == "swapped")
