"""The arrays of a `Csr`, and changes that must equal building anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.search.topology import csr as module
from omnigraph.search.topology.csr import (
    Csr,
    build_csr,
    id_type,
    pair_range,
    renumbered_csr,
    with_edges,
    without_edges,
)
from support.adjacency import Edges, edge_lists


def built(edges: Edges, chosen: list[int] | None = None) -> Csr:
    """The outgoing direction of some edges, all by default, under their own numbers."""
    numbers = list(range(len(edges.pairs))) if chosen is None else chosen
    pairs = np.array([edges.pairs[number] for number in numbers], np.int32).reshape(-1, 2)
    return build_csr(
        pairs[:, 0],
        pairs[:, 1],
        counts=(edges.sources, edges.targets),
        same_type=edges.same_type,
        edges=np.array(numbers, np.int32),
    )


def triples(csr: Csr) -> list[tuple[int, int, int]]:
    columns = (csr.step_starts(), csr.neighbours, csr.edges)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def assert_equal(left: Csr, right: Csr) -> None:
    assert triples(left) == triples(right)
    assert left.indptr.tolist() == right.indptr.tolist()
    assert left.loops.tolist() == right.loops.tolist()
    assert left.has_parallel == right.has_parallel


@given(edge_lists())
def test_steps_are_in_order_of_start_neighbour_and_edge(edges: Edges) -> None:
    expected = sorted((a, b, number) for number, (a, b) in enumerate(edges.pairs))
    assert triples(built(edges)) == expected


@given(edge_lists())
def test_facts_about_loops_and_parallel_edges_are_right(edges: Edges) -> None:
    csr = built(edges)
    loops = {a for a, b in edges.pairs if a == b} if edges.same_type else set()
    assert csr.loops.tolist() == sorted(loops)
    assert csr.has_parallel == (len(set(edges.pairs)) < len(edges.pairs))


@given(edge_lists())
def test_order_is_the_same_when_the_numbers_do_not_fit_one_word(edges: Edges) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PACKED_BITS", 0)
        in_two_sorts = built(edges)
    assert_equal(in_two_sorts, built(edges))


@given(edge_lists(), st.data())
def test_removing_edges_equals_building_without_them(edges: Edges, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(edges.pairs), max_size=len(edges.pairs)))
    left = without_edges(built(edges), np.array(kept, np.bool_))
    assert_equal(left, built(edges, [number for number, stays in enumerate(kept) if stays]))


@given(edge_lists(), st.data())
def test_adding_edges_equals_building_with_them(edges: Edges, data: st.DataObject) -> None:
    old = data.draw(st.lists(st.booleans(), min_size=len(edges.pairs), max_size=len(edges.pairs)))
    first = [number for number, is_old in enumerate(old) if is_old]
    second = [number for number, is_old in enumerate(old) if not is_old]
    assert_equal(with_edges(built(edges, first), built(edges, second)), built(edges))


@given(edge_lists(), st.data())
def test_renumbering_moves_nodes_and_edges(edges: Edges, data: st.DataObject) -> None:
    gaps = st.lists(st.integers(1, 3), min_size=40, max_size=40)
    node_map, end_map, edge_map = (np.cumsum(data.draw(gaps)).astype(np.int32) for _ in range(3))
    if edges.same_type:
        end_map = node_map
    moved = renumbered_csr(
        built(edges), node_map=node_map, end_map=end_map, edge_map=edge_map, node_count=200
    )
    expected = sorted(
        (int(node_map[a]), int(end_map[b]), int(edge_map[number]))
        for number, (a, b) in enumerate(edges.pairs)
    )
    assert triples(moved) == expected
    assert moved.node_count == 200
    assert moved.loops.tolist() == [int(node_map[loop]) for loop in built(edges).loops]


@given(edge_lists(), st.integers(0, 5))
def test_appended_nodes_have_no_edges(edges: Edges, extra: int) -> None:
    base = built(edges)
    grown = renumbered_csr(
        base, node_map=None, end_map=None, edge_map=None, node_count=base.node_count + extra
    )
    assert triples(grown) == triples(base)
    assert grown.node_count == base.node_count + extra


@given(edge_lists())
def test_pair_range_finds_every_record_of_a_pair(edges: Edges) -> None:
    csr = built(edges)
    pairs = [(a, b) for a in range(edges.sources) for b in range(edges.targets)]
    starts, ends = (np.array(column, np.int32) for column in zip(*pairs, strict=True))
    first, last = pair_range(csr, starts, ends)
    assert [(last - first).tolist()] == [[edges.pairs.count(pair) for pair in pairs]]


def test_a_direction_costs_at_most_twelve_bytes_per_edge() -> None:
    random = np.random.default_rng(1)
    pairs = random.integers(0, 10_000, (100_000, 2)).astype(np.int32)
    csr = build_csr(pairs[:, 0], pairs[:, 1], counts=(10_000, 10_000), same_type=True)
    assert csr.nbytes <= 12 * csr.edge_count


def test_ids_are_wide_only_when_they_must_be() -> None:
    assert (id_type(2**31 - 1).itemsize, id_type(2**31).itemsize) == (4, 8)
