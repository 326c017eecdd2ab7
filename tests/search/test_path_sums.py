"""Totals over steps are those of the steps written out."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.search.topology.csr import Ints, build_csr
from omnigraph.search.topology.path_sums import (
    Walk,
    arrived_totals,
    step_bound,
    step_counts,
    step_totals,
)
from omnigraph.search.topology.traverse import Adjacency, neighbours, reach, steps

NODES = 6
PAIRS = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=14)
WALKS = (
    Walk(),
    Walk(by_record=True),
    Walk(min_hops=1, max_hops=2),
    Walk(min_hops=2, max_hops=3, loop_end="source"),
)


def adjacency_of(pairs: list[tuple[int, int]], *, is_both: bool) -> Adjacency:
    starts, ends = (np.array([pair[end] for pair in pairs], np.int64) for end in (0, 1))
    counts = (NODES, NODES)
    out = build_csr(starts, ends, counts=counts, same_type=True)
    into = build_csr(ends, starts, counts=counts, same_type=True)
    return Adjacency((out, into) if is_both else (out,), True, NODES)


def taken(adjacency: Adjacency, nodes: Ints, walk: Walk) -> list[tuple[int, int, int]]:
    """Return the row, the end and the edge of each step."""
    if walk.by_record:
        found = steps(adjacency, nodes)
        return list(
            zip(found.rows.tolist(), found.nodes.tolist(), found.edges.tolist(), strict=True)
        )
    reached = neighbours(adjacency, nodes)
    if not walk.is_single:
        reached = reach(
            adjacency,
            nodes,
            min_hops=walk.min_hops,
            max_hops=walk.max_hops,
            loop_end=walk.loop_end,
        )
    return [
        (row, end, 0)
        for row, end in zip(reached.rows.tolist(), reached.nodes.tolist(), strict=True)
    ]


@pytest.mark.parametrize("walk", WALKS)
@given(
    pairs=PAIRS,
    chosen=st.one_of(st.none(), st.lists(st.integers(0, NODES - 1), max_size=5)),
    is_both=st.booleans(),
)
def test_totals_are_those_of_the_steps(
    walk: Walk, pairs: list[tuple[int, int]], chosen: list[int] | None, is_both: bool
) -> None:
    adjacency = adjacency_of(pairs, is_both=is_both)
    nodes = None if chosen is None else np.array(chosen, np.int64)
    starts = np.arange(NODES) if nodes is None else nodes
    weights = np.array([3, -1, 0, 5, 2, 7])
    expected: dict[int, list[int]] = defaultdict(list)
    for row, end, edge in taken(adjacency, starts, walk):
        expected[row].append(int(weights[end]) + (10 * edge if walk.by_record else 0))

    def worth(ends: Ints, records: Ints | None) -> Ints:
        return weights[ends] + (0 if records is None else 10 * records)

    rows = range(len(starts))
    assert step_counts(adjacency, nodes, walk).tolist() == [len(expected[row]) for row in rows]
    sums = step_totals(adjacency, nodes, walk, worth, with_edges=walk.by_record)
    assert sums.tolist() == [sum(expected[row]) for row in rows]
    best = step_totals(
        adjacency, nodes, walk, worth, add=np.maximum, nothing=-9, with_edges=walk.by_record
    )
    assert best.tolist() == [max(expected[row], default=-9) for row in rows]
    assert step_bound(adjacency, nodes, walk) >= sum(map(len, expected.values()))


@pytest.mark.parametrize("walk", WALKS)
@given(pairs=PAIRS, chosen=st.lists(st.integers(0, NODES - 1), max_size=4, unique=True))
def test_totals_where_steps_arrive_are_those_of_the_steps(
    walk: Walk, pairs: list[tuple[int, int]], chosen: list[int]
) -> None:
    adjacency = adjacency_of(pairs, is_both=False)
    nodes = np.array(sorted(chosen), np.int64)
    weights = np.arange(1, len(nodes) + 1)
    expected = [0] * NODES
    for row, end, _ in taken(adjacency, nodes, walk):
        expected[end] += int(weights[row])
    found = arrived_totals(adjacency, nodes, walk, lambda starts, _: weights[starts])
    assert found.tolist() == expected
