"""Hops as array operations, against the rules of the language spelled out in loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.search.topology import traverse
from omnigraph.search.topology.csr import build_csr
from omnigraph.search.topology.traverse import (
    Adjacency,
    Reached,
    Steps,
    chunks,
    degrees,
    has_edge,
    has_neighbour,
    neighbour_set,
    neighbours,
    reach,
    reach_count,
    reach_levels,
    reach_set,
    steps,
)
from support.adjacency import Edges, edge_lists

Case = tuple[Edges, str, list[int]]


def adjacency(edges: Edges, direction: str) -> Adjacency:
    pairs = np.array(edges.pairs, np.int32).reshape(-1, 2)
    counts = (edges.sources, edges.targets)
    out = build_csr(pairs[:, 0], pairs[:, 1], counts=counts, same_type=edges.same_type)
    back = build_csr(pairs[:, 1], pairs[:, 0], counts=counts[::-1], same_type=edges.same_type)
    if direction == "both":
        return Adjacency((out, back), True, edges.targets)
    if direction == "in":
        return Adjacency((back,), edges.same_type, edges.sources)
    return Adjacency((out,), edges.same_type, edges.targets)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Edges, a direction, and start nodes that may repeat."""
    edges = draw(edge_lists())
    direction = draw(st.sampled_from(("out", "in", "both") if edges.same_type else ("out", "in")))
    nodes = st.integers(0, edges.start_count(direction) - 1)
    return edges, direction, draw(st.lists(nodes, max_size=10))


def array(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


def pairs(found: Reached) -> list[tuple[int, int]]:
    return list(zip(found.rows.tolist(), found.nodes.tolist(), strict=True))


def triples(found: Steps) -> list[tuple[int, int, int]]:
    columns = (found.rows, found.nodes, found.edges)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(cases())
def test_steps_take_every_edge_record_of_every_row(case: Case) -> None:
    edges, direction, rows = case
    found = steps(adjacency(edges, direction), array(rows))
    assert triples(found) == edges.steps(direction, rows)


@given(cases())
def test_neighbours_come_once_per_row(case: Case) -> None:
    edges, direction, rows = case
    expected = [
        (row, end)
        for row, node in enumerate(rows)
        for end in sorted(edges.reach(direction, node, 1, 1))
    ]
    assert pairs(neighbours(adjacency(edges, direction), array(rows))) == expected


@given(cases(), st.integers(1, 4), st.integers(0, 3))
def test_reach_follows_the_rules_for_hops(case: Case, low: int, more: int) -> None:
    edges, direction, rows = case
    expected = [
        (row, end)
        for row, node in enumerate(rows)
        for end in sorted(edges.reach(direction, node, low, low + more))
    ]
    graph = adjacency(edges, direction)
    found = reach(graph, array(rows), min_hops=low, max_hops=low + more)
    assert pairs(found) == expected
    together = reach_set(graph, array(rows), min_hops=low, max_hops=low + more)
    assert together.tolist() == sorted({end for _, end in expected})


@given(cases(), st.integers(1, 4), st.integers(0, 3))
def test_a_hop_walked_backwards_finds_the_same_pairs(case: Case, low: int, more: int) -> None:
    edges, direction, rows = case
    opposite = {"out": "in", "in": "out", "both": "both"}[direction]
    written_from = range(edges.start_count(opposite))
    expected = [
        (row, start)
        for row, node in enumerate(rows)
        for start in written_from
        if node in edges.reach(opposite, start, low, low + more)
    ]
    graph = adjacency(edges, direction)
    found = reach(graph, array(rows), min_hops=low, max_hops=low + more, loop_end="source")
    assert pairs(found) == expected
    together = reach_set(graph, array(rows), min_hops=low, max_hops=low + more, loop_end="source")
    assert together.tolist() == sorted({end for _, end in expected})


@given(cases(), st.integers(1, 3), st.integers(0, 3))
def test_answers_do_not_depend_on_sizes_of_chunks_and_marks(
    case: Case, low: int, more: int
) -> None:
    edges, direction, rows = case
    graph = adjacency(edges, direction)

    def answers() -> list[object]:
        return [
            pairs(reach(graph, array(rows), min_hops=low, max_hops=low + more)),
            pairs(neighbours(graph, array(rows))),
            neighbour_set(graph, array(rows)).tolist(),
        ]

    usual = answers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traverse, "_NODES_PER_VALUE_MAX", 0)
        assert answers() == usual
        patch.setattr(traverse, "_MARKS_MAX", 12)
        patch.setattr(traverse, "_STEPS_AT_ONCE_MAX", 2)
        assert answers() == usual


@given(cases())
def test_the_neighbour_set_forgets_who_reached_whom(case: Case) -> None:
    edges, direction, rows = case
    expected = {end for row in rows for end in edges.reach(direction, row, 1, 1)}
    found = neighbour_set(adjacency(edges, direction), array(rows))
    assert found.tolist() == sorted(expected)


@given(cases())
def test_levels_are_the_distances_from_a_set(case: Case) -> None:
    edges, direction, rows = case
    if not edges.same_type or not rows:
        return
    near = {end for start, end, _ in edges.hops(direction) if start in rows} - set(rows)
    levels = list(reach_levels(adjacency(edges, direction), array(rows), max_hops=9))
    assert levels[0].tolist() == sorted(set(rows))
    assert (levels[1].tolist() if len(levels) > 1 else []) == sorted(near)
    seen = Counter(node for level in levels for node in level.tolist())
    assert set(seen.values()) <= {1}


@given(cases())
def test_degrees_count_records(case: Case) -> None:
    edges, direction, rows = case
    graph = adjacency(edges, direction)
    records = edges.degree(direction)
    everyone = range(edges.start_count(direction))
    ends = {node: edges.reach(direction, node, 1, 1) for node in everyone}
    assert degrees(graph).tolist() == [records[node] for node in everyone]
    assert degrees(graph, array(rows)).tolist() == [records[node] for node in rows]
    assert has_neighbour(graph, array(rows)).tolist() == [bool(ends[node]) for node in rows]


@given(cases(), st.data())
def test_pairs_are_tested(case: Case, data: st.DataObject) -> None:
    edges, direction, rows = case
    graph = adjacency(edges, direction)
    other = st.integers(0, graph.target_count - 1)
    ends = data.draw(st.lists(other, min_size=len(rows), max_size=len(rows)))
    expected = [step for step in edges.steps(direction, rows) if step[1] == ends[step[0]]]
    joined = {row for row, _, _ in expected}
    found = has_edge(graph, array(rows), array(ends))
    assert found.tolist() == [row in joined for row in range(len(rows))]


@given(cases(), st.integers(1, 4), st.integers(0, 3), st.sampled_from(("target", "source")))
def test_reached_nodes_are_counted_without_listing_them(
    case: Case, low: int, more: int, loop_end: traverse.LoopEnd
) -> None:
    edges, direction, rows = case
    graph = adjacency(edges, direction)
    if not graph.same_type:
        return
    hops = {"min_hops": low, "max_hops": low + more}
    for node in rows:
        found = reach_set(graph, array([node]), **hops, loop_end=loop_end)
        assert reach_count(graph, node, **hops, loop_end=loop_end) == len(found)


@given(cases(), st.integers(1, 6))
def test_chunks_cover_all_rows_within_the_bound(case: Case, bound: int) -> None:
    edges, direction, rows = case
    graph = adjacency(edges, direction)
    parts = list(chunks(graph, array(rows), rows_max=bound))
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(len(rows)))
    for part in parts:
        taken = int(degrees(graph, array(rows)[part]).sum())
        assert taken <= bound or part.stop - part.start == 1


class StoppedError(Exception):
    """What a test's guard raises."""


class StopAt:
    """Raises at the n-th question, or when too many rows are announced."""

    def __init__(self, *, checks: int = 10**9, rows: int = 10**9) -> None:
        self.checks, self.rows = checks, rows

    def check(self) -> None:
        self.checks -= 1
        if self.checks < 0:
            raise StoppedError

    def expect(self, rows: int) -> None:
        if rows > self.rows:
            raise StoppedError


CLIQUE = Edges(tuple((a, b) for a in range(30) for b in range(30)), 30, 30, True)
CALLS: dict[str, Callable[[Adjacency, StopAt], object]] = {
    "steps": lambda graph, guard: steps(graph, array([0, 1, 2]), guard=guard),
    "neighbours": lambda graph, guard: neighbours(graph, array([0, 1, 2]), guard=guard),
    "neighbour_set": lambda graph, guard: neighbour_set(graph, array([0, 1, 2]), guard=guard),
    "reach": lambda graph, guard: reach(
        graph, array([0, 1, 2]), min_hops=1, max_hops=3, guard=guard
    ),
    "reach repeated": lambda graph, guard: reach(
        graph, array([0] * 3), min_hops=1, max_hops=3, guard=guard
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("direction", ["out", "both"])
def test_too_many_rows_are_refused_before_they_are_made(name: str, direction: str) -> None:
    graph = adjacency(CLIQUE, direction)
    CALLS[name](graph, StopAt(rows=10_000))
    with pytest.raises(StoppedError):
        CALLS[name](graph, StopAt(rows=40))


@pytest.mark.parametrize("name", CALLS)
def test_work_stops_when_the_guard_says_so(name: str) -> None:
    with pytest.raises(StoppedError):
        CALLS[name](adjacency(CLIQUE, "out"), StopAt(checks=0))


def test_a_long_search_asks_between_levels() -> None:
    line = Edges(tuple((a, a + 1) for a in range(40)), 41, 41, True)
    guard = StopAt(checks=20)
    with pytest.raises(StoppedError):
        reach(adjacency(line, "out"), array([0]), min_hops=1, max_hops=40, guard=guard)


def test_a_twenty_hop_search_from_a_hub_stays_linear_in_edges() -> None:
    seen: list[int] = []

    class Counting(StopAt):
        def expect(self, rows: int) -> None:
            seen.append(rows)

    found = reach(adjacency(CLIQUE, "out"), array([0]), min_hops=1, max_hops=20, guard=Counting())
    assert len(found) == 30
    assert sum(seen) <= 2 * len(CLIQUE.pairs)
