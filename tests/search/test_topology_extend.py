"""A topology made from another state's equals a rebuild."""

from __future__ import annotations

import itertools
import tempfile

from hypothesis import given, settings

from omnigraph.search.topology.extend import extend_topology
from omnigraph.search.topology.topology import Topology
from omnigraph.search.topology.traverse import UNGUARDED
from omnigraph.store import Store, connect
from support.edge_changes import CHANGES, NAMES, PAIRS, build, started, worlds_after
from support.edge_world import EDGES, PEOPLE, World, same_topology, spelled


def extend(base: Topology, world: World) -> Topology | None:
    return extend_topology(base, world.handles(), world.states(), guard=UNGUARDED)


def must_extend(base: Topology, world: World) -> None:
    """Check that extending is possible and right."""
    extended = extend(base, world)
    assert extended is not None
    assert same_topology(extended, build(world))
    assert spelled(extended, world.handles()) == world.expected()


def test_appended_edges_are_added(store: Store) -> None:
    world = started(store)
    base = build(world)
    world.add_edges([("p0", "p0"), ("p11", "p1"), PAIRS[0]])
    must_extend(base, world)


def test_deleted_edges_are_taken_out(store: Store) -> None:
    world = started(store)
    base = build(world)
    world.delete(EDGES, ["e0", "e7", "e35"])
    must_extend(base, world)


def test_edges_that_lead_elsewhere_now_are_moved(store: Store) -> None:
    world = started(store)
    base = build(world)
    world.redirect_edges(["e3", "e4"], "p9")
    must_extend(base, world)


def test_appended_nodes_and_edges_to_them_are_added(store: Store) -> None:
    world = started(store, to_people=False)
    base = build(world)
    world.add_nodes(["q0", "q1"])
    world.add_edges([("q1", "p3"), ("p2", "p2")])
    must_extend(base, world)


def test_a_deleted_node_closes_the_gap(store: Store) -> None:
    world = started(store)
    base = build(world)
    rows = world.open(EDGES).scan().read_all().to_pylist()
    world.delete(EDGES, [row["id"] for row in rows if "p4" in (row["src"], row["dst"])])
    world.delete(PEOPLE, ["p4"])
    must_extend(base, world)


def test_updated_and_compacted_nodes_keep_their_edges(store: Store) -> None:
    world = started(store)
    base = build(world)
    world.update_nodes(NAMES[:5])
    world.compact(PEOPLE)
    must_extend(base, world)


def test_nodes_written_under_new_row_ids_need_a_rebuild(store: Store) -> None:
    world = started(store)
    base = build(world)
    world.overwrite_nodes()
    assert extend(base, world) is None


def test_dangling_edges_need_a_rebuild_when_nodes_change(store: Store) -> None:
    world = started(store)
    world.add_edges([("p0", "late")])
    base = build(world)
    assert base.dangling == 1
    world.add_nodes(["late"])
    assert extend(base, world) is None


def test_dangling_edges_stay_out_while_nodes_stay(store: Store) -> None:
    world = started(store)
    world.add_edges([("p0", "ghost")])
    base = build(world)
    world.add_edges([("p1", "p2"), ("ghost", "p2")])
    must_extend(base, world)


def test_an_older_state_is_not_made_from_a_newer_one_that_lost_rows(store: Store) -> None:
    world = started(store)
    old = world.copy()
    world.delete(EDGES, ["e1"])
    assert extend(build(world), old) is None


def test_a_moved_edge_does_not_reach_an_older_state(store: Store) -> None:
    world = started(store)
    old = world.copy()
    world.redirect_edges(["e1"], "p9")
    extended = extend(build(world), old)
    assert extended is None or same_topology(extended, build(old))


def test_branches_that_gave_one_row_id_to_two_nodes_do_not_mix(store: Store) -> None:
    world = started(store)
    branch = world.fork("etl.1")
    world.overwrite_nodes(shift=3)
    branch.overwrite_nodes(shift=5)
    base, other = build(world), build(branch)
    assert base.sources.row_ids().tolist() == other.sources.row_ids().tolist()
    assert not same_topology(base, other)
    assert extend(base, branch) is None


def test_a_branch_that_added_nodes_uses_the_topology_of_main(store: Store) -> None:
    world = started(store)
    base = build(world)
    branch = world.fork("etl.1")
    branch.add_nodes(["only here"])
    must_extend(base, branch)


@settings(max_examples=50, deadline=None)
@given(CHANGES)
def test_extending_from_any_other_state_equals_a_rebuild(changes: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        worlds = worlds_after(connect(folder, durability="process"), changes)
        built = [build(one) for one in worlds]
        for (base, _), (expected, target) in itertools.permutations(
            zip(built, worlds, strict=True), 2
        ):
            extended = extend(base, target)
            assert extended is None or same_topology(extended, expected)
        assert spelled(built[-1], worlds[-1].handles()) == worlds[-1].expected()
