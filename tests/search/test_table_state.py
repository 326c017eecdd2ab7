"""What makes two dataset versions the same to derived data."""

from __future__ import annotations

import orjson

from omnigraph.search.table_state import TableState
from omnigraph.store import Store
from omnigraph.store.records import IndexKind, IndexSpec
from support.edge_world import EDGES, World


def started(store: Store) -> World:
    world = World.create(store)
    world.add_edges([("a", "b"), ("b", "c")])
    world.add_edges([("c", "d")])
    return world


def state(world: World) -> TableState:
    return TableState.of(world.open(EDGES))


def test_a_branch_has_the_state_that_it_was_cut_from(store: Store) -> None:
    world = started(store)
    branch = world.fork("etl.1")
    assert state(branch).key == state(world).key
    assert state(branch).lineage != state(world).lineage
    branch.add_edges([("x", "y")])
    assert state(branch).key != state(world).key


def test_branches_that_delete_the_same_row_are_distinguished(store: Store) -> None:
    world = started(store)
    branch = world.fork("etl.1")
    world.delete(EDGES, ["e0"])
    branch.delete(EDGES, ["e1"])
    assert state(branch).key != state(world).key


def test_an_index_does_not_change_the_state(store: Store) -> None:
    world = started(store)
    before = state(world)
    specs = [IndexSpec("src", IndexKind.BTREE)]
    world._commit(store.datasets.stage_create_index(world.at[EDGES], specs))
    assert state(world).at.version == before.at.version + 1
    assert state(world).key == before.key


def test_deletions_change_the_state_and_keep_the_data(store: Store) -> None:
    world = started(store)
    before = state(world)
    world.delete(EDGES, ["e0"])
    after = state(world)
    assert after.key != before.key
    assert after.sharing_data_with(before) == tuple(f.fragment_id for f in after.fragments)
    assert after.fragment_ids_without(after.sharing_data_with(before)) == ()


def test_compaction_shares_nothing(store: Store) -> None:
    world = started(store)
    before = state(world)
    world.compact(EDGES)
    assert len(state(world).fragments) == 1
    assert state(world).sharing_data_with(before) == ()


def test_the_same_fragments_elsewhere_are_another_state(store: Store) -> None:
    world = World.create(store)
    assert state(world).key != TableState.of(world.open("nodes/people")).key


def test_a_state_survives_its_stored_form(store: Store) -> None:
    found = state(started(store))
    assert TableState.from_json(orjson.loads(orjson.dumps(found.to_json()))) == found
