"""Late commits of settled operations are put back, also when the process that does it dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.failpoints import FailpointError
from omnigraph.graph import Graph
from omnigraph.manifest import OpenMode
from omnigraph.names import BranchName
from omnigraph.recovery import Recovery, RecoveryKind
from support.places import PERSON, Place, ids, repository_of

pytestmark = pytest.mark.usefixtures("disarmed")


def insert(graph: Graph, name: str) -> None:
    graph.mutate(
        f'query q() {{ insert Person {{ name: "{name}" }} insert City {{ name: "{name}" }} }}'
    )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A graph whose tables carry the late restore of a recovery that was taken over."""
    place = Place(str(tmp_path / "graph"))
    graph = place.init()
    insert(graph, "ann")
    failpoints.arm("write.after_first_table")
    with pytest.raises(FailpointError):
        insert(graph, "half")
    failpoints.disarm()

    def settled_by_another() -> None:
        failpoints.disarm()
        other = place.open(mode=OpenMode.READ_ONLY)
        Recovery(repository_of(other)).sweep_branch(BranchName("main"))
        insert_beside_the_lock(place, "bob")

    failpoints.arm("recovery.after_announce", settled_by_another)
    place.open()
    failpoints.disarm()
    return place


def insert_beside_the_lock(place: Place, name: str) -> None:
    """Write while the paused recovery believes that it holds the lock."""
    from support.writer import append_unordered, people

    repository = repository_of(place.open(mode=OpenMode.READ_ONLY))
    incarnation = repository.branches.resolve(BranchName("main"))
    append_unordered(repository, incarnation, {PERSON: people(name)})


def drifted(graph: Graph) -> list[str]:
    datasets = repository_of(graph).store.datasets
    return [
        key
        for key, entry in graph.snapshot().entries.items()
        if datasets.head_version(entry.location) != entry.table_version
    ]


def test_the_next_write_puts_a_late_restore_back(place: Place) -> None:
    graph = place.open()
    assert PERSON in drifted(graph), "the restore came late"
    assert ids(graph.snapshot()) == ["ann", "bob"]
    insert(graph, "cas")
    assert drifted(graph) == []
    assert ids(graph.snapshot()) == ["ann", "bob", "cas"]
    kinds = [row.recovery_kind for row in graph.recovery_list()]
    assert kinds.count(RecoveryKind.ROLLED_BACK) == 1
    assert RecoveryKind.STRAY_PUT_BACK in kinds


def test_whoever_dies_between_restore_and_publish_leaves_no_riddle(place: Place) -> None:
    graph = place.open()
    for _ in range(2):
        failpoints.arm("strays.after_restore")
        with pytest.raises(FailpointError):
            insert(graph, "never")
        failpoints.disarm()
        graph = place.open()
    insert(graph, "cas")
    assert drifted(graph) == []
    assert ids(graph.snapshot()) == ["ann", "bob", "cas"]
    audited = [row.operation_id for row in graph.recovery_list()]
    assert len(set(audited)) == len(audited)
