"""Topologies made from rows."""

from __future__ import annotations

import pytest

from omnigraph.search.topology import build as topology_build
from omnigraph.search.topology.build import build_topology
from omnigraph.search.topology.topology import Topology
from omnigraph.search.topology.traverse import neighbours, steps
from omnigraph.store import Store
from omnigraph.store.records import ROW_ID, ScanRequest
from support.edge_world import EDGES, PEOPLE, PLACES, World, same_topology, spelled


def build(world: World) -> Topology:
    return build_topology(world.handles(), world.states())


def test_a_topology_holds_every_edge_in_both_directions(store: Store) -> None:
    world = World.create(store)
    world.add_nodes(["ann", "bo", "cy", "di"])
    world.add_edges([("ann", "bo"), ("ann", "bo"), ("bo", "cy"), ("cy", "cy")])
    topology = build(world)
    assert spelled(topology, world.handles()) == world.expected()
    assert sorted(
        zip(topology.incoming.neighbours, topology.incoming.step_starts(), strict=True)
    ) == sorted(zip(topology.out.step_starts(), topology.out.neighbours, strict=True))
    assert topology.out.loops.tolist() == topology.incoming.loops.tolist() == [2]


def test_ends_of_different_types_are_numbered_apart(store: Store) -> None:
    world = World.create(store, to_people=False)
    world.add_nodes(["ann", "bo", "cy"])
    world.add_nodes(["rome"], PLACES)
    world.add_edges([("cy", "rome"), ("ann", "rome")])
    topology = build(world)
    assert (topology.sources.count, topology.targets.count) == (3, 1)
    assert spelled(topology, world.handles()) == world.expected()
    assert topology.out.loops.tolist() == []
    start, end = topology.ends("in")
    assert (start.count, end.count) == (1, 3)


def test_an_undirected_hop_needs_ends_of_one_type(store: Store) -> None:
    world = World.create(store, to_people=False)
    with pytest.raises(KeyError):
        build(world).adjacency("both")


def test_a_query_goes_from_scanned_rows_to_fetched_properties(store: Store) -> None:
    world = World.create(store)
    world.add_nodes(["ann", "bo", "cy"])
    world.delete(PEOPLE, ["ann"])
    world.add_nodes(["di"])
    world.add_edges([("bo", "di"), ("di", "cy"), ("bo", "cy")])
    topology = build(world)
    people = world.open(PEOPLE)
    scanned = people.scan(ScanRequest(columns=("id",), with_row_id=True)).read_all()
    start = topology.sources.dense(scanned[ROW_ID])
    found = neighbours(topology.adjacency("out"), start)
    fetched = people.take(topology.targets.row_ids(found.nodes).tolist(), ["id"])["id"].to_pylist()
    named = [
        (scanned["id"][row].as_py(), end)
        for row, end in zip(found.rows.tolist(), fetched, strict=True)
    ]
    assert sorted(named) == [("bo", "cy"), ("bo", "di"), ("di", "cy")]


def test_bound_edges_come_in_order_of_their_row_ids(store: Store) -> None:
    world = World.create(store)
    world.add_nodes(["ann", "bo"])
    world.add_edges([("ann", "bo"), ("ann", "ann"), ("ann", "bo")])
    topology = build(world)
    taken = steps(topology.adjacency("both"), topology.sources.dense(topology.sources.row_ids()))
    row_ids = topology.edges.row_ids(taken.edges).tolist()
    assert list(zip(taken.rows.tolist(), row_ids, strict=True)) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 2),
    ]


def test_edges_without_ends_are_counted_and_left_out(store: Store) -> None:
    world = World.create(store)
    world.add_nodes(["ann", "bo"])
    world.add_edges([("ann", "ghost"), ("ann", "bo"), ("ghost", "ghost")])
    topology = build(world)
    assert topology.dangling == 2
    assert spelled(topology, world.handles()) == [("ann", "bo", "e1")]


def test_a_graph_without_rows_has_an_empty_topology(store: Store) -> None:
    topology = build(World.create(store))
    assert (topology.edges.count, topology.sources.count, topology.dangling) == (0, 0, 0)


def test_large_and_small_reads_give_the_same(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.create(store)
    names = [f"p{number}" for number in range(50)]
    world.add_nodes(names)
    world.update_nodes(names[10:20])
    for start in range(0, 40, 4):
        pairs = [(names[start], names[(start * 7 + step) % 50]) for step in range(5)]
        world.add_edges([*pairs, (names[start], "ghost")])
    world.delete(EDGES, ["e3"])
    probed = build(world)
    monkeypatch.setattr(topology_build, "_PROBED_IDS_MAX", 0)
    read = build(world)
    monkeypatch.setattr(topology_build, "_ROWS_PER_LOOKUP", 7)
    in_parts = build(world)
    monkeypatch.setattr(topology_build, "_OFFSETS_MAX", 0)
    wide = build(world)
    for other in (read, in_parts, wide):
        assert same_topology(probed, other)
    assert spelled(probed, world.handles()) == world.expected()
