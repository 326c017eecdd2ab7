"""Which topology a query gets, and what stays in memory."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.cache import RECENT_VERSIONS_MAX
from omnigraph.manifest import OpenMode, Repository, Snapshot
from omnigraph.manifest.layout import Incarnation
from omnigraph.names import BranchName
from omnigraph.schema import EdgeType, compile_schema
from omnigraph.search.topology.cache import Topologies
from omnigraph.search.topology.store import FOLDER, TopologyStore
from omnigraph.search.topology.topology import OverlaidTopology, Topology
from omnigraph.store.background import Inline
from support.places import KNOWS, PERSON, SCHEMA, Place
from support.writer import append, people

EDGE: EdgeType = compile_schema(SCHEMA, domain="0" * 26).catalog.edge_types["Knows"]


def knows(*pairs: tuple[str, str], first: int = 0) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{first + number}" for number in range(len(pairs))],
            "src": [a for a, _ in pairs],
            "dst": [b for _, b in pairs],
        }
    )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "graph"))


@pytest.fixture
def repository(place: Place) -> Repository:
    made = place.init_repository()
    append(made, {PERSON: people("ann", "bo", "cy"), KNOWS: knows(("ann", "bo"), ("bo", "cy"))})
    return made


def snapshot(repository: Repository, branch: str = "main") -> Snapshot:
    incarnation: Incarnation = repository.branches.resolve(BranchName.parse(branch))
    return Snapshot(incarnation, repository.reader.latest(incarnation), repository.store.datasets)


def topologies(repository: Repository, **options: int) -> Topologies:
    files = TopologyStore(repository.store, is_writable=True, edges_min=0)
    return Topologies(files, background=Inline(), **options)


def test_the_same_snapshot_gives_the_same_object(repository: Repository) -> None:
    cache = topologies(repository)
    assert cache.nbytes == 0
    first = cache.get(snapshot(repository), EDGE)
    assert cache.get(snapshot(repository), EDGE) is first
    assert first.out.edge_count == 2


def test_an_old_snapshot_keeps_its_topology_after_a_write(repository: Repository) -> None:
    cache = topologies(repository)
    old = snapshot(repository)
    append(repository, {KNOWS: knows(("cy", "ann"), first=10)})
    assert cache.get(snapshot(repository), EDGE).out.edge_count == 3
    assert cache.get(old, EDGE).out.edge_count == 2


def test_a_branch_shares_the_topology_until_it_writes(repository: Repository) -> None:
    cache = topologies(repository)
    main = cache.get(snapshot(repository), EDGE)
    repository.branches.create(
        BranchName.parse("etl"),
        source=snapshot(repository).incarnation,
        operation_id=repository.clock.ulid(),
    )
    assert cache.get(snapshot(repository, "etl"), EDGE) is main
    append(repository, {KNOWS: knows(("cy", "ann"), first=10)}, branch="etl")
    assert cache.get(snapshot(repository, "etl"), EDGE).out.edge_count == 3
    assert cache.get(snapshot(repository), EDGE) is main


def test_a_commit_to_another_table_keeps_the_adjacency(repository: Repository) -> None:
    cache = topologies(repository)
    before = cache.get(snapshot(repository), EDGE)
    append(repository, {PERSON: people("di")})
    after = cache.get(snapshot(repository), EDGE)
    assert after.sources.count == before.sources.count + 1
    assert isinstance(after, OverlaidTopology)
    assert after.base is before


def test_topologies_of_older_edges_leave_memory(repository: Repository) -> None:
    cache = topologies(repository)
    base = cache.get(snapshot(repository), EDGE)
    for number in range(10):
        append(repository, {KNOWS: knows(("ann", "cy"), first=100 + number)})
        newest = cache.get(snapshot(repository), EDGE)
    assert newest.nbytes < cache.nbytes <= base.nbytes + RECENT_VERSIONS_MAX * newest.nbytes


def test_bases_of_older_edges_leave_memory(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.search.topology.cache.FOLD_ROWS", 0)
    cache = topologies(repository)
    for number in range(10):
        append(repository, {KNOWS: knows(("ann", "cy"), first=100 + number)})
        cache.get(snapshot(repository), EDGE)
    newest = cache.get(snapshot(repository), EDGE)
    assert isinstance(newest, Topology), "every overlay was folded"
    assert cache.nbytes <= 2 * RECENT_VERSIONS_MAX * newest.nbytes


def test_overlays_of_many_branches_leave_memory(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each branch is a lineage of its own, and a small overlay hardly counts by its bytes."""
    monkeypatch.setattr("omnigraph.search.topology.cache.OVERLAYS_MAX", 3)
    cache = topologies(repository)
    base = cache.get(snapshot(repository), EDGE)
    made = []
    for number in range(6):
        name = f"b{number}"
        repository.branches.create(
            BranchName.parse(name),
            source=snapshot(repository).incarnation,
            operation_id=repository.clock.ulid(),
        )
        append(repository, {KNOWS: knows(("cy", "ann"), first=10)}, branch=name)
        overlaid = cache.get(snapshot(repository, name), EDGE)
        assert isinstance(overlaid, OverlaidTopology)
        assert overlaid.base is base
        made.append(weakref.ref(overlaid))
        del overlaid
    assert [found() is None for found in made] == [True] * 3 + [False] * 3


def test_forgetting_loses_time_only(repository: Repository) -> None:
    cache = topologies(repository)
    first = cache.get(snapshot(repository), EDGE)
    cache.forget()
    assert cache.nbytes == 0
    assert cache.is_at_hand(snapshot(repository), EDGE), "the file stays"
    assert cache.get(snapshot(repository), EDGE).out.edge_count == first.out.edge_count


def test_without_files_topologies_live_in_memory_only(repository: Repository) -> None:
    cache = Topologies()
    assert cache.get(snapshot(repository), EDGE).out.edge_count == 2
    append(repository, {KNOWS: knows(("cy", "ann"), first=10)})
    assert cache.get(snapshot(repository), EDGE).out.edge_count == 3
    cache.forget()
    assert not cache.is_at_hand(snapshot(repository), EDGE)
    assert repository.store.objects.list(FOLDER) == ()


def test_memory_stays_within_its_bound(repository: Repository) -> None:
    size = topologies(repository).get(snapshot(repository), EDGE).nbytes
    cache = topologies(repository, bytes_max=size * 2)
    for number in range(6):
        append(repository, {KNOWS: knows(("ann", "cy"), first=100 + number)})
        answer = cache.get(snapshot(repository), EDGE)
        assert answer.out.edge_count == 3 + number
        assert cache.nbytes <= size * 2


def test_many_threads_make_a_topology_once(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = topologies(repository)
    made: list[int] = []
    real = TopologyStore.load_or_build

    def counted(*args: object, **options: object) -> object:
        made.append(1)
        return real(*args, **options)  # type: ignore[arg-type] # passes everything on

    monkeypatch.setattr(TopologyStore, "load_or_build", counted)
    at = snapshot(repository)
    barrier = threading.Barrier(8)
    found: list[object] = []

    def work() -> None:
        barrier.wait()
        found.append(cache.get(at, EDGE))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len({id(one) for one in found}) == 1


def test_a_read_only_graph_stores_no_topology(place: Place, repository: Repository) -> None:
    opened = place.repository(mode=OpenMode.READ_ONLY)
    files = TopologyStore(opened.store, is_writable=False, edges_min=0)
    assert Topologies(files).get(snapshot(opened), EDGE).out.edge_count == 2
    assert opened.store.objects.list(FOLDER) == ()
