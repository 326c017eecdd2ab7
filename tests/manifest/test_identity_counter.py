"""Numbers of types and properties: none is given out twice, also when processes race or die."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from omnigraph.clock import SystemClock
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.manifest import OpenMode, Repository
from omnigraph.manifest.identity_counter import IdentityCounter
from omnigraph.manifest.layout import MAIN_INCARNATION
from omnigraph.manifest.locks.branch_lock import BranchLock
from omnigraph.manifest.repository import assemble
from omnigraph.manifest.rows import IDENTITY_COUNTER
from omnigraph.names import BranchName
from support.faulty_store import FaultMode, SimulatedDeath, faulty, sweep
from support.places import Place, add, repository_of


def test_the_first_range_starts_above_every_number_of_the_graph(graph: Graph) -> None:
    repository = repository_of(graph)
    taken = graph.snapshot().schema.ir["next_identity_id"]
    assert repository.identities.reserve(3) == range(taken, taken + 3)
    assert repository.identities.reserve(1) == range(taken + 3, taken + 4)


def test_a_range_is_one_publish_on_main_without_a_commit(graph: Graph) -> None:
    graph.branch_create("dev")
    commits = graph.list_commits()
    before = graph.snapshot().manifest_version
    repository_of(graph).identities.reserve(2)
    assert graph.snapshot().manifest_version == before + 1
    assert graph.list_commits() == commits
    assert "identity_counter" not in str(graph.snapshot().schema.ir)


def test_numbers_can_be_asked_for_above_one_that_is_known_to_be_taken(local_graph: Graph) -> None:
    identities = repository_of(local_graph).identities
    assert identities.reserve(2, above=1_000) == range(1_000, 1_002)
    assert identities.reserve(1, above=5) == range(1_002, 1_003)


def test_the_copy_that_a_branch_inherits_does_not_count(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    first = repository.identities.reserve(1)
    local_graph.branch_create("dev")
    second = repository.identities.reserve(1)
    dev = repository.branches.resolve(BranchName("dev"))
    assert repository.reader.latest(dev).identity_counter == second.start
    assert (first.start + 1, second.start + 1) == (
        second.start,
        repository.reader.latest(MAIN_INCARNATION).identity_counter,
    )


def test_the_row_survives_compaction_cleanup_and_opening_again(local_place: Place) -> None:
    graph = local_place.init()
    reserved = repository_of(graph).identities.reserve(4)
    for name in ("ann", "bob", "cy"):
        add(graph, name)
    graph.optimize()
    graph.cleanup(keep_versions=1, confirm=True)
    fresh = local_place.open()
    rows = repository_of(fresh).reader.latest(MAIN_INCARNATION).rows
    assert rows["object_type"].to_pylist().count(IDENTITY_COUNTER) == 1
    assert repository_of(fresh).identities.reserve(1).start == reserved.stop
    assert local_place.open(mode=OpenMode.READ_ONLY).schema_source()


def test_threads_and_processes_that_ask_at_once_get_different_numbers(local_place: Place) -> None:
    local_place.init()
    given: list[int] = []

    def ask() -> None:
        identities = local_place.repository().identities
        for count in (1, 3, 2):
            given.extend(identities.reserve(count))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == len(set(given)) == 24


class _Nobody:
    def check(self) -> None:
        return


class _NoLocks:
    """Locks of processes that were all presumed dead: everybody holds them."""

    takeover_s = 0.0
    can_be_lost = True

    @contextmanager
    def take(
        self, branch: BranchName, *, operation_id: str, wait_max_s: float = 0.0
    ) -> Iterator[BranchLock]:
        yield _Nobody()


def _unlocked(repository: Repository) -> IdentityCounter:
    return replace(repository.identities, branch_locks=_NoLocks())


def test_two_that_both_believe_to_hold_the_lock_get_different_numbers(local_place: Place) -> None:
    local_place.init()
    given: list[int] = []
    barrier = threading.Barrier(3)

    def ask() -> None:
        identities = _unlocked(local_place.repository())
        barrier.wait()
        for count in (5, 1):
            given.extend(identities.reserve(count))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == len(set(given)) == 18


@pytest.mark.parametrize("mode", list(FaultMode)[:4])
def test_a_failure_or_a_death_leaves_the_counter_or_a_gap(
    local_place: Place, mode: FaultMode
) -> None:
    local_place.init()
    following = local_place.repository().identities.reserve(1).stop
    for plan in sweep(mode):
        repository = assemble(faulty(local_place.store(), plan), SystemClock())
        used = range(0)
        with suppress(OmnigraphError, SimulatedDeath):
            used = repository.identities.reserve(2)
        after = local_place.repository().identities.reserve(1)
        assert after.start in (following, following + 2)
        assert after.start >= used.stop
        following = after.stop
