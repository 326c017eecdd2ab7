from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.manifest.commits import GraphCommit, distances, merge_base
from support.manifests import commit


def by_id(*commits: GraphCommit) -> dict[str, GraphCommit]:
    return {c.graph_commit_id: c for c in commits}


def base_of(source: str, target: str, *commits: GraphCommit) -> str | None:
    found = merge_base(source, target, commits)
    return found.graph_commit_id if found else None


def test_a_record_survives_its_stored_form() -> None:
    whole = GraphCommit(
        "C1", "dev.X", 7, "C0", "M0", "ann", 123, "merge", "why", {"pipeline": "p", "batch": "9"}
    )
    for one in (whole, commit("C2", "C1", version=3)):
        row = one.row()
        assert GraphCommit.from_row(row.object_id, row.metadata, one.manifest_version) == one
        assert "manifest_version" not in row.metadata


@pytest.mark.parametrize("operation", ["optimize", "ensure_indices", "recovery", "repair"])
def test_maintenance_is_maintenance(operation: str) -> None:
    assert commit("C1", operation=operation).is_maintenance


@pytest.mark.parametrize("operation", ["init", "load", "mutation", "merge", "schema_apply"])
def test_everything_else_is_content(operation: str) -> None:
    assert not commit("C1", operation=operation).is_maintenance


def test_the_public_branch_is_the_incarnation_without_its_last_part() -> None:
    assert commit("C1").graph_branch is None
    named = replace(commit("C1"), manifest_branch="team/etl.v2.01JC0000000000000000000000")
    assert named.graph_branch == "team/etl.v2"


def test_distances_take_the_shortest_way_over_both_parents() -> None:
    history = by_id(commit("A"), commit("B", "A"), commit("C", "B"), commit("D", "C", merged="A"))
    assert distances("D", history) == {"D": 0, "C": 1, "A": 1, "B": 2}


def test_a_parent_without_a_record_is_a_dead_end() -> None:
    history = by_id(commit("B", "gone"), commit("C", "B", merged="elsewhere"))
    assert distances("C", history) == {"C": 0, "B": 1}
    assert base_of("C", "D", commit("C", "gone"), commit("D", "gone")) is None


def test_a_fork_point_is_the_base_of_two_branches() -> None:
    history = commit("A"), commit("B", "A"), commit("M", "B"), commit("S", "B")
    assert base_of("S", "M", *history) == "B"
    assert base_of("B", "M", *history) == "B"
    assert base_of("M", "M", *history) == "M"


def test_a_merge_moves_the_base_to_what_was_merged() -> None:
    history = [
        commit("A"),
        commit("S1", "A"),
        commit("M1", "A", merged="S1"),
        commit("S2", "S1"),
        commit("M2", "M1"),
    ]
    assert base_of("S2", "M2", *history) == "S1"


def test_of_equally_near_candidates_the_later_in_the_manifest_wins_then_the_larger_id() -> None:
    sides = [commit("X", version=3), commit("Y", version=5)]
    heads = [commit("S", "X", merged="Y"), commit("T", "Y", merged="X")]
    assert base_of("S", "T", *sides, *heads) == "Y"
    level = [replace(side, manifest_version=3) for side in sides]
    assert base_of("S", "T", *level, *heads) == "Y"
    assert base_of("S", "T", replace(sides[0], manifest_version=9), sides[1], *heads) == "X"


def test_a_criss_cross_has_one_base() -> None:
    history = [
        commit("A", version=1),
        commit("S1", "A", version=2),
        commit("T1", "A", version=2),
        commit("S2", "S1", merged="T1", version=3),
        commit("T2", "T1", merged="S1", version=3),
    ]
    assert base_of("S2", "T2", *history) == "T1"


@st.composite
def histories(draw: st.DrawFn) -> list[GraphCommit]:
    """Random histories: up to two earlier parents each, some of them without a record."""
    commits: list[GraphCommit] = []
    for number in range(draw(st.integers(1, 12))):
        earlier = [*(c.graph_commit_id for c in commits), "gone", None]
        commits.append(
            commit(
                f"C{number:02}",
                draw(st.sampled_from(earlier)),
                merged=draw(st.sampled_from(earlier)),
                version=draw(st.integers(1, 4)),
            )
        )
    return commits


def walks(head: str, commits: dict[str, GraphCommit], length: int) -> set[str]:
    """Everything that some walk of exactly this length reaches: the definition, step by step."""
    reached = {head} if head in commits else set()
    for _ in range(length):
        reached = {
            parent
            for name in reached
            for parent in (commits[name].parent_commit_id, commits[name].merged_parent_commit_id)
            if parent in commits
        }
    return reached


@given(histories(), st.data())
def test_merge_base_agrees_with_the_definition(
    commits: list[GraphCommit], data: st.DataObject
) -> None:
    known = by_id(*commits)
    source, target = (data.draw(st.sampled_from(sorted(known))) for _ in range(2))
    sums: dict[str, int] = {}
    for name in known:
        both = [
            min((n for n in range(len(commits)) if name in walks(head, known, n)), default=None)
            for head in (source, target)
        ]
        if both[0] is not None and both[1] is not None:
            sums[name] = both[0] + both[1]
    expected = None
    for name, total in sorted(sums.items()):
        better = expected is None or (-total, known[name].manifest_version, name) > (
            -sums[expected],
            known[expected].manifest_version,
            expected,
        )
        expected = name if better else expected
    assert base_of(source, target, *commits) == expected
    assert base_of(target, source, *commits) == expected
