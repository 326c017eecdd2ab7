"""A first load of tables leaves the topology of its edges behind."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.search.topology.cache import Topologies
from omnigraph.search.topology.store import TopologyStore
from omnigraph.write.load import loader as load
from omnigraph.write.load.rows.spool import SpoolBudget
from support.places import Place, repository_of

PEOPLE, EDGES = 500, 12_000


@pytest.mark.parametrize(
    ("mode", "by_kind"), [("append", True), ("overwrite", True), ("append", False)]
)
def test_the_stored_topology_is_the_one_that_would_be_built(
    local_place: Place, mode: str, by_kind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(1)
    names = pa.array([f"p{number}" for number in random.permutation(PEOPLE)])
    ends = [names.take(pa.array(random.integers(0, PEOPLE, EDGES))) for _ in range(2)]
    graph = local_place.init("node P { k: String @key }\nedge K: P -> P")
    edges = pa.table({"src": ends[0], "dst": ends[1]})
    nodes = pa.table({"k": names})
    if by_kind:
        graph.load_tables(nodes={"P": nodes}, edges={"K": edges}, mode=mode)
    else:
        # Ends that are looked up bucket by bucket come in another order.
        monkeypatch.setattr(load, "SpoolBudget", lambda _: SpoolBudget(64 * 32))
        graph.load({"P": nodes, "K": edges}, mode=mode)
    snapshot, edge = graph.snapshot(), graph.catalog().edge_types["K"]
    stored = Topologies(TopologyStore(repository_of(graph).store, is_writable=False))
    assert stored.is_at_hand(snapshot, edge)
    found, built = stored.get(snapshot, edge), Topologies(None).get(snapshot, edge)
    for mine, theirs in ((found.out, built.out), (found.incoming, built.incoming)):
        for field in fields(mine):
            assert np.array_equal(getattr(mine, field.name), getattr(theirs, field.name))


def test_edges_that_join_stored_ones_leave_nothing_behind(local_place: Place) -> None:
    graph = local_place.init("node P { k: String @key }\nedge K: P -> P")
    edges = pa.table({"src": ["a"] * EDGES, "dst": ["b"] * EDGES})
    graph.load_tables(nodes={"P": pa.table({"k": ["a"]})}, mode="append")
    graph.load_tables(nodes={"P": pa.table({"k": ["b"]})}, edges={"K": edges}, mode="append")
    stored = Topologies(TopologyStore(repository_of(graph).store, is_writable=False))
    assert not stored.is_at_hand(graph.snapshot(), graph.catalog().edge_types["K"])
