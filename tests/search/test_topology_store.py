"""Topology files: found again, extended, replaced when damaged, never written read-only."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import numpy as np
import pytest

from omnigraph.search.topology.build import build_topology
from omnigraph.search.topology.file import DamagedTopologyError, TopologyFile, topology_pieces
from omnigraph.search.topology.store import (
    FOLDER,
    TopologyStore,
    stale_topologies,
    topology_path,
)
from omnigraph.search.topology.topology import Topology
from omnigraph.search.topology.traverse import UNGUARDED
from omnigraph.store import Store, connect
from support.edge_world import EDGES, PEOPLE, World, same_topology, spelled

NAMES = [f"p{number}" for number in range(40)]
PAIRS = [(NAMES[a], NAMES[(a * b + 1) % 40]) for a in range(40) for b in range(1, 6)]


def encoded(topology: Topology) -> bytes:
    return b"".join(topology_pieces(topology))


@pytest.fixture
def world(store: Store) -> World:
    made = World.create(store)
    made.add_nodes(NAMES)
    made.add_edges(PAIRS)
    return made


def files(store: Store, *, is_writable: bool = True) -> TopologyStore:
    return TopologyStore(store, is_writable=is_writable, edges_min=0)


def load(files: TopologyStore, world: World) -> Topology:
    return files.load_or_build(world.handles(), world.states(), guard=UNGUARDED)


def stored(store: Store) -> list[str]:
    return [info.path for info in store.objects.list(FOLDER)]


def path_of(world: World) -> Path:
    root = world.store.settings.root
    return root.local_path(topology_path(world.states().edge))


class NoBuild:
    """Fails a test that reads edge rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> Topology:
            raise AssertionError("built anew")

        monkeypatch.setattr("omnigraph.search.topology.store.build_topology", refuse)


def test_a_restart_finds_the_file_and_maps_it(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = load(files(store), world)
    assert stored(store) == [topology_path(world.states().edge)]
    NoBuild(monkeypatch)
    again = connect(str(store.settings.root), durability="process")
    loaded = load(files(again), world)
    assert same_topology(loaded, built)
    assert not loaded.out.neighbours.flags.owndata
    assert not loaded.out.neighbours.flags.writeable


def test_every_array_survives_the_file(world: World) -> None:
    world.delete(EDGES, ["e3", "e5"])
    world.delete(PEOPLE, ["p39"])
    built = build_topology(world.handles(), world.states())
    assert built.edges.listed is not None
    assert built.dangling
    read = TopologyFile.parse(encoded(built)).topology()
    assert same_topology(read, built)


def test_a_topology_between_different_types_survives_the_file(store: Store) -> None:
    world = World.create(store, to_people=False)
    world.add_nodes(["ann"])
    world.add_nodes(["rome", "oslo"], "nodes/places")
    world.add_edges([("ann", "oslo")])
    built = build_topology(world.handles(), world.states())
    read = TopologyFile.parse(encoded(built)).topology()
    assert same_topology(read, built)
    assert not read.same_type


def test_every_flipped_byte_is_noticed_or_without_effect(world: World) -> None:
    built = build_topology(world.handles(), world.states())
    data = encoded(built)
    random = np.random.default_rng(7)
    for place in {0, 8, 16, 24, len(data) - 1, *random.integers(0, len(data), 400).tolist()}:
        broken = bytearray(data)
        broken[place] ^= 0x10
        try:
            read = TopologyFile.parse(bytes(broken)).topology()
        except DamagedTopologyError:
            continue
        # Only the bytes between sections mean nothing.
        assert same_topology(read, built)


def test_every_truncated_file_is_noticed(world: World) -> None:
    data = encoded(build_topology(world.handles(), world.states()))
    for length in (0, 7, 23, 24, 200, len(data) // 2, len(data) - 1):
        with pytest.raises(DamagedTopologyError):
            TopologyFile.parse(data[:length]).topology()


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "foreign"])
def test_a_damaged_file_is_replaced(
    store: Store, world: World, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    load(files(store), world)
    path = path_of(world)
    whole = path.read_bytes()
    middle = len(whole) // 2
    broken = {
        "empty": b"",
        "cut": whole[:middle],
        "flipped": whole[: middle + 200] + bytes([whole[middle + 200] ^ 1]) + whole[middle + 201 :],
        "foreign": b"not ours at all, but long enough to look at" * 10,
    }[damage]
    path.write_bytes(broken)
    with caplog.at_level(logging.WARNING):
        loaded = load(files(store), world)
    assert "damaged" in caplog.text
    assert spelled(loaded, world.handles()) == world.expected()
    assert path.read_bytes() == whole


def test_a_file_under_the_wrong_name_is_not_believed(store: Store, world: World) -> None:
    load(files(store), world)
    before = path_of(world).read_bytes()
    world.delete(EDGES, ["e0"])
    path_of(world).write_bytes(before)
    loaded = load(files(store), world)
    assert spelled(loaded, world.handles()) == world.expected()


def test_a_file_for_other_nodes_is_fitted_or_replaced(store: Store, world: World) -> None:
    load(files(store), world)
    world.overwrite_nodes(shift=4)
    loaded = load(files(store), world)
    assert spelled(loaded, world.handles()) == world.expected()


def test_a_new_state_is_extended_from_a_file_of_an_older_one(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(files(store), world)
    world.add_edges([("p0", "p1")])
    world.delete(EDGES, ["e9"])
    expected = build_topology(world.handles(), world.states())
    NoBuild(monkeypatch)
    assert same_topology(load(files(store), world), expected)


def test_a_small_difference_is_not_written_again_and_a_large_one_is(
    store: Store, world: World
) -> None:
    load(files(store), world)
    world.add_edges([("p0", "p1")])
    load(files(store), world)
    assert len(stored(store)) == 1
    world.add_edges(PAIRS[:50])
    load(files(store), world)
    assert len(stored(store)) == 2


def test_a_large_difference_from_memory_is_written_too(store: Store, world: World) -> None:
    base = load(files(store), world)
    world.add_edges(PAIRS[:50])
    extended = files(store).load_or_build(
        world.handles(), world.states(), bases=[base], guard=UNGUARDED
    )
    assert spelled(extended, world.handles()) == world.expected()
    assert topology_path(world.states().edge) in stored(store)


def test_small_topologies_are_not_stored(store: Store, world: World) -> None:
    load(TopologyStore(store, is_writable=True), world)
    assert stored(store) == []


def test_a_read_only_graph_writes_nothing(store: Store, world: World) -> None:
    load(files(store, is_writable=False), world)
    assert stored(store) == []


def test_a_read_only_graph_uses_what_is_there(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = load(files(store), world)
    NoBuild(monkeypatch)
    assert same_topology(load(files(store, is_writable=False), world), built)


def test_branches_that_share_edges_share_the_file(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = load(files(store), world)
    branch = world.fork("etl.1")
    NoBuild(monkeypatch)
    on_branch = load(files(store), branch)
    assert on_branch.states.key == built.states.key
    assert len(stored(store)) == 1


def test_several_builders_end_with_one_good_file(store: Store, world: World) -> None:
    answers: list[Topology] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        own = connect(str(store.settings.root), durability="process")
        barrier.wait()
        answers.append(load(files(own), world))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert all(same_topology(answers[0], other) for other in answers)
    assert len(stored(store)) == 1
    assert same_topology(load(files(store), world), answers[0])


def test_a_mapped_file_may_be_deleted_under_its_reader(store: Store, world: World) -> None:
    load(files(store), world)
    mapped = load(files(store), world)
    store.objects.delete_prefix(FOLDER)
    assert spelled(mapped, world.handles()) == world.expected()
    assert spelled(load(files(store), world), world.handles()) == world.expected()


def test_files_that_no_live_state_uses_are_listed(store: Store, world: World) -> None:
    load(files(store), world)
    old = topology_path(world.states().edge)
    world.add_edges(PAIRS)
    load(files(store), world)
    new = topology_path(world.states().edge)
    assert sorted(stored(store)) == sorted([old, new])
    assert [info.path for info in stale_topologies(store, [world.states().edge])] == [old]


def test_a_folder_that_cannot_be_written_does_not_fail_a_query(
    store: Store, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    store.objects.put(FOLDER, b"a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        loaded = load(files(store), world)
    assert spelled(loaded, world.handles()) == world.expected()
    assert "could not store the topology" in caplog.text


def test_an_object_store_keeps_files_too(s3_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.create(s3_store)
    world.add_nodes(NAMES[:5])
    world.add_edges([("p0", "p1"), ("p1", "p4")])
    built = load(files(s3_store), world)
    assert stored(s3_store) == [topology_path(world.states().edge)]
    NoBuild(monkeypatch)
    assert same_topology(load(files(s3_store), world), built)
