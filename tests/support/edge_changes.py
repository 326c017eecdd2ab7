"""Random changes of a small world of edges."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from omnigraph.search.topology.build import build_topology
from omnigraph.search.topology.topology import Topology
from omnigraph.store import Store
from support.edge_world import EDGES, PEOPLE, PLACES, World

NAMES = [f"p{number}" for number in range(12)]
PAIRS = [(NAMES[a], NAMES[(a * b + 1) % 12]) for a in range(12) for b in range(1, 4)]


def build(world: World) -> Topology:
    return build_topology(world.handles(), world.states())


def started(store: Store, *, to_people: bool = True) -> World:
    world = World.create(store, to_people=to_people)
    world.add_nodes(NAMES)
    if not to_people:
        world.add_nodes(NAMES, PLACES)
    world.add_edges(PAIRS)
    return world


KINDS = (
    *("nodes", "edges", "delete edges", "delete node", "update", "redirect", "overwrite"),
    *("compact edges", "compact nodes", "fork"),
)
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 11),
    ),
    min_size=1,
    max_size=5,
)


def change(world: World, what: str, number: int) -> None:
    known = world.node_ids()
    edges = world.edge_ids()
    if what == "nodes":
        world.add_nodes([f"n{world.counter}-{number}-{len(known)}"])
    elif what == "edges" and known:
        picked = [known[(number + step) % len(known)] for step in (0, 3, 3)]
        world.add_edges([(picked[0], picked[1]), (picked[2], picked[2])])
        world.counter += number
    elif what == "delete edges":
        world.delete(EDGES, edges[number :: number + 2])
    elif what == "delete node" and known:
        gone = known[number % len(known)]
        rows = world.open(EDGES).scan().read_all().to_pylist()
        world.delete(EDGES, [row["id"] for row in rows if gone in (row["src"], row["dst"])])
        world.delete(PEOPLE, [gone])
    elif what == "update":
        world.update_nodes(known[number : number + 3])
    elif what == "redirect" and known:
        world.redirect_edges(edges[number : number + 2], known[number % len(known)])
    elif what == "overwrite":
        world.overwrite_nodes()
    elif what == "compact edges":
        world.compact(EDGES)
    elif what == "compact nodes":
        world.compact(PEOPLE)


def worlds_after(store: Store, changes: Iterable[tuple[str, int]]) -> list[World]:
    """Return the world at the start and after each change, on one branch or on forks of it."""
    lines = [started(store)]
    worlds = [lines[0].copy()]
    for step, (what, number) in enumerate(changes):
        line = lines[number % len(lines)]
        if what == "fork":
            lines.append(line.fork(f"b{step}.1"))
        else:
            change(line, what, number)
            worlds.append(line.copy())
    return worlds
