"""An overlay over the topology of another state answers as a rebuild does."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings

from omnigraph.search import table_delta
from omnigraph.search.table_delta import TableDeltas
from omnigraph.search.topology import overlay as overlay_module
from omnigraph.search.topology import traverse
from omnigraph.search.topology.build import NodeIds
from omnigraph.search.topology.overlay import Ends, Overlays, fold_overlay
from omnigraph.search.topology.topology import AnyTopology, Direction, OverlaidTopology, Topology
from omnigraph.store import Store, connect
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import DatasetVersion
from support.edge_changes import CHANGES, NAMES, build, change, started, worlds_after
from support.edge_world import EDGES, PEOPLE, PLACES, World

DIRECTIONS: tuple[Direction, ...] = ("out", "in", "both")


def overlay(
    base: AnyTopology, world: World, deltas: TableDeltas | None = None
) -> OverlaidTopology | None:
    handles = world.handles()
    ends = Ends(NodeIds(handles.source).row_ids, NodeIds(handles.target).row_ids)

    def opened(at: DatasetVersion) -> DatasetHandle:
        return world.store.datasets.open(at.location, branch=at.branch, version=at.version)

    overlays = Overlays(deltas or TableDeltas(), opened)
    return overlays.over(base, handles, world.states(), ends)


def must_overlay(base: Topology, world: World) -> OverlaidTopology:
    """Check that an overlay is possible and right."""
    found = overlay(base, world)
    assert found is not None
    expected = build(world)
    assert answers(found) == answers(expected)
    folded = fold_overlay(found)
    assert answers(folded) == answers(expected)
    assert folded.dangling == expected.dangling
    assert folded.sources.is_plain
    assert folded.edges.is_plain
    return found


def answers(topology: AnyTopology) -> list[object]:
    """All that hops can tell about a topology, in row ids."""
    directions = DIRECTIONS if topology.same_type else DIRECTIONS[:2]
    return [list(_answers(topology, direction)) for direction in directions]


def _answers(topology: AnyTopology, direction: Direction) -> Iterator[object]:
    sources, targets = topology.ends(direction)
    adjacency = topology.adjacency(direction)
    row_ids = sources.row_ids()
    nodes = sources.positions(row_ids.astype(np.int64))
    assert sources.count - len(sources.gone) == len(row_ids)
    yield row_ids.tolist()
    taken = traverse.steps(adjacency, nodes)
    yield taken.rows.tolist()
    yield targets.row_ids(taken.nodes).tolist()
    yield topology.edges.row_ids(taken.edges).tolist()
    yield traverse.degrees(adjacency, nodes).tolist()
    yield traverse.degrees(adjacency)[nodes].tolist()
    yield traverse.has_neighbour(adjacency, nodes).tolist()
    others = targets.positions(targets.row_ids()[::-1].astype(np.int64))[: len(nodes)]
    yield traverse.has_edge(adjacency, nodes[: len(others)], others).tolist()
    for node in nodes:
        one = np.array([node])
        yield targets.row_ids(traverse.neighbour_set(adjacency, one)).tolist()
        yield targets.row_ids(traverse.reach_set(adjacency, one, min_hops=2, max_hops=3)).tolist()
    found = traverse.reach(adjacency, nodes, min_hops=1, max_hops=2)
    yield found.rows.tolist()
    yield targets.row_ids(found.nodes).tolist()


def test_one_added_edge_touches_two_nodes(store: Store) -> None:
    world = started(store)
    base = build(world)
    world.add_edges([("p2", "p7")])
    found = must_overlay(base, world)
    assert found.changes == 1
    assert found.nbytes < base.nbytes


def test_parallel_edges_and_self_loops_are_added(store: Store) -> None:
    world = started(store)
    base = build(world)
    world.add_edges([("p0", "p0"), ("p2", "p7"), ("p2", "p7")])
    found = must_overlay(base, world)
    assert found.out.has_parallel


def test_removed_edges_are_left_out(store: Store) -> None:
    world = started(store)
    world.add_edges([("p3", "p3")])
    base = build(world)
    world.delete(EDGES, ["e0", "e7", "e36"])
    must_overlay(base, world)


def test_a_redirected_edge_moves(store: Store) -> None:
    world = started(store)
    base = build(world)
    world.redirect_edges(["e3"], "p9")
    must_overlay(base, world)


def test_an_edge_written_again_changes_nothing(store: Store) -> None:
    world = started(store)
    base = build(world)
    row = next(row for row in world.open(EDGES).scan().read_all().to_pylist() if row["id"] == "e3")
    world.redirect_edges(["e3"], row["dst"])
    found = must_overlay(base, world)
    assert found.out is base.out


def test_a_deleted_node_leaves_a_gap(store: Store) -> None:
    world = started(store)
    base = build(world)
    change(world, "delete node", 4)
    world.add_nodes(["late"])
    world.add_edges([("late", "p2"), ("p1", "late")])
    found = must_overlay(base, world)
    assert len(found.sources.gone) == 1


def test_nodes_of_two_types_are_numbered_apart(store: Store) -> None:
    world = started(store, to_people=False)
    base = build(world)
    world.add_nodes(["q0"])
    world.add_nodes(["r0"], PLACES)
    world.add_edges([("q0", "r0"), ("p2", "p2")])
    must_overlay(base, world)


def test_updated_nodes_change_nothing(store: Store) -> None:
    world = started(store)
    base = build(world)
    world.update_nodes(NAMES[:5])
    found = must_overlay(base, world)
    assert found.out is base.out


def test_a_deleted_node_that_keeps_edges_needs_a_rebuild(store: Store) -> None:
    world = started(store)
    base = build(world)
    world.delete(PEOPLE, ["p4"])
    assert overlay(base, world) is None


def test_dangling_edges_that_may_get_an_end_need_a_rebuild(store: Store) -> None:
    world = started(store)
    world.add_edges([("p0", "late")])
    base = build(world)
    world.add_nodes(["late"])
    assert overlay(base, world) is None


def test_branches_share_a_base(store: Store) -> None:
    world = started(store)
    base = build(world)
    branch = world.fork("etl.1")
    world.add_edges([("p1", "p2")])
    branch.add_nodes(["only here"])
    branch.update_nodes(["p3"])
    branch.add_edges([("only here", "p3")])
    assert must_overlay(base, world).base is must_overlay(base, branch).base


def test_a_row_id_that_two_branches_gave_to_two_nodes_does_not_mix(store: Store) -> None:
    world = started(store)
    branch = world.fork("etl.1")
    for line, name in ((world, "here"), (branch, "there")):
        line.add_nodes([name])
        line.add_edges([(name, "p3")])
    found = overlay(build(world), branch)
    assert found is None or answers(found) == answers(build(branch))


def test_a_base_whose_version_was_cleaned_up_is_searched(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = started(store)
    base = build(world)
    world.delete(EDGES, ["e5"])
    monkeypatch.setattr(overlay_module._Overlay, "_stored", lambda *_: None)
    must_overlay(base, world)


def test_moved_rows_of_large_fragments_are_not_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_delta, "COMPARED_ROWS_MAX", 0)
    world = started(store)
    base = build(world)
    world.redirect_edges(["e3"], "p9")
    world.delete(EDGES, ["e9"])
    world.add_edges([("p4", "p8")])
    world.compact(EDGES)
    world.update_nodes(["p2"])
    world.compact(PEOPLE)
    found = must_overlay(base, world)
    assert found.is_rewritten
    # The redirected edge before and after, the deleted one, the new one; the node before and after.
    assert found.changes == 6


@pytest.mark.parametrize("compared_max", [4_096, 0])
@settings(max_examples=12, deadline=None)
@given(changes=CHANGES)
def test_an_overlay_over_any_other_state_answers_as_a_rebuild(
    compared_max: int, changes: list[tuple[str, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_delta, "COMPARED_ROWS_MAX", compared_max)
        worlds = worlds_after(connect(folder, durability="process"), changes)
        built = [build(one) for one in worlds]
        expected = [answers(one) for one in built]
        deltas = TableDeltas()
        for base, at in itertools.permutations(range(len(worlds)), 2):
            found = overlay(built[base], worlds[at], deltas)
            assert found is None or answers(found) == expected[at]
            assert found is None or answers(fold_overlay(found)) == expected[at]
            for further in range(at + 1, len(worlds)):
                found = None if found is None else overlay(found, worlds[further], deltas)
                assert found is None or answers(found) == expected[further]
