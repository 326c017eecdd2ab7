"""Many writers and readers at once: nothing lost, nothing doubled, history is one chain."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from omnigraph.graph import Graph
from omnigraph.manifest import OpenMode, ReadTarget
from support.places import CITY, PERSON, Place, ids, repository_of
from support.racers import KINDS, Outcome, race, race_processes, total
from support.writer import append, people

CONFLICTS = {"ExpectedVersionMismatchError"}


def run_threads(work: Sequence[Callable[[], None]]) -> None:
    errors: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def prepare(place: Place, kind: str, writers: int) -> Graph:
    graph = place.init()
    if kind == "own branch":
        for number in range(writers):
            graph.branch_create(f"w{number}")
    return graph


def check_history(place: Place, outcomes: list[Outcome]) -> None:
    """Every commit that a racer speaks of is there once, and each branch is one chain."""
    graph = place.open(mode=OpenMode.READ_ONLY)
    assert total(outcomes, "errors") == []
    commits = total(outcomes, "commits")
    assert len(set(commits)) == len(commits)
    branches = graph.branch_list()
    own: list[str] = []
    for branch in branches:
        listed = graph.list_commits(branch)
        parents = [c.parent_commit_id for c in listed]
        assert parents == [*(c.graph_commit_id for c in listed[1:]), None], "not one chain"
        versions = [c.manifest_version for c in listed]
        assert versions == sorted(set(versions), reverse=True)
        name = None if branch == "main" else branch
        own += [c.graph_commit_id for c in listed if c.graph_branch == name][: None if name else -1]
    assert sorted(own) == sorted(commits), "a publish was lost or doubled"


def check(place: Place, kind: str, outcomes: list[Outcome]) -> None:
    """Hold the graph against what the racers say."""
    check_history(place, outcomes)
    graph = place.open(mode=OpenMode.READ_ONLY)
    snapshots = [graph.snapshot_of(ReadTarget.branch(name)) for name in graph.branch_list()]
    if kind == "without locks":
        assert snapshots[0].entry(CITY).table_version == 1 + len(total(outcomes, "commits"))
        assert set(total(outcomes, "conflicts")) <= CONFLICTS
    else:
        found = [row for s in snapshots for key in (PERSON, CITY) for row in ids(s, key)]
        assert sorted(found) == sorted(total(outcomes, "rows"))
        assert total(outcomes, "conflicts") == []


def race_threads(place: Place, kind: str, *, threads: int, count: int) -> None:
    graph = prepare(place, kind, threads)
    outcomes: list[Outcome] = []
    shared = repository_of(graph)

    def work(number: int) -> None:
        # Half of the writers share one handle, the others have one of their own.
        repository = shared if number % 2 else place.repository()
        outcomes.append(race(repository, f"w{number}", kind, count))

    run_threads([lambda n=number: work(n) for number in range(threads)])
    assert len(outcomes) == threads
    check(place, kind, outcomes)
    attempts = len(total(outcomes, "commits")) + len(total(outcomes, "conflicts"))
    assert attempts == threads * count


@pytest.mark.parametrize("kind", KINDS)
def test_eight_threads_publish_at_once(local_place: Place, kind: str) -> None:
    race_threads(local_place, kind, threads=8, count=6)


def test_four_processes_publish_at_once(local_place: Place) -> None:
    """Two of them race for one table through locks, two without any lock for another one."""
    local_place.init()
    kinds = ["same table", "without locks"]
    outcomes = race_processes(local_place, kinds * 2, count=8)
    ordered, unordered = outcomes[::2], outcomes[1::2]
    check_history(local_place, outcomes)
    snapshot = local_place.open(mode=OpenMode.READ_ONLY).snapshot()
    assert ids(snapshot) == sorted(total(ordered, "rows"))
    assert snapshot.entry(CITY).table_version == 1 + len(total(unordered, "commits"))
    assert total(ordered, "conflicts") == []
    assert set(total(unordered, "conflicts")) <= CONFLICTS
    assert [len(outcome.rows) for outcome in ordered] == [8, 8]


@pytest.mark.parametrize("kind", ["same table", "without locks"])
def test_threads_publish_at_once_on_s3(s3_place: Place, kind: str) -> None:
    race_threads(s3_place, kind, threads=4, count=4)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", KINDS)
def test_eight_threads_publish_two_hundred_commits_each(local_place: Place, kind: str) -> None:
    race_threads(local_place, kind, threads=8, count=200)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", KINDS)
def test_four_processes_publish_two_hundred_commits_each(local_place: Place, kind: str) -> None:
    prepare(local_place, kind, 4)
    outcomes = race_processes(local_place, [kind] * 4, count=200)
    check(local_place, kind, outcomes)


def test_every_snapshot_is_exactly_one_commit(place: Place) -> None:
    """Each commit adds one row to both tables: whoever sees them differ has seen half a commit."""
    graph = place.init()
    writer = repository_of(place.open())
    handles = [graph, place.open(mode=OpenMode.READ_ONLY)]
    is_done = threading.Event()
    seen: set[int] = set()
    count = 12 if place.is_local else 5

    def write() -> None:
        try:
            for number in range(count):
                rows = people(f"p{number}")
                append(writer, {PERSON: rows, CITY: rows})
        finally:
            is_done.set()

    def read(handle: Graph) -> None:
        while not is_done.is_set():
            snapshot = handle.snapshot()
            counts = [snapshot.open(key).count() for key in (PERSON, CITY)]
            promised = [snapshot.entry(key).row_count for key in (PERSON, CITY)]
            commits = len(snapshot.state.commits())
            assert counts == promised == [commits - 1, commits - 1]
            assert snapshot.manifest_version == commits
            assert snapshot.commit_id == snapshot.state.commits(limit=1)[0].graph_commit_id
            seen.add(commits)

    run_threads([write, *(lambda h=handle: read(h) for handle in handles * 2)])
    assert len(seen) > 2
    assert len(ids(graph.snapshot())) == count


def test_a_branch_can_be_read_while_others_are_created_and_deleted(local_place: Place) -> None:
    graph = local_place.init()
    is_done = threading.Event()

    def churn() -> None:
        try:
            own = local_place.open()
            for number in range(15):
                own.branch_create(f"t{number}")
                own.branch_delete(f"t{number}")
        finally:
            is_done.set()

    def read() -> None:
        while not is_done.is_set():
            assert graph.branch_list()[0] == "main"
            assert graph.snapshot().manifest_version == 1
            assert graph.get_commit(graph.head_commit_id_for_branch()).operation == "init"

    run_threads([churn, read, read])
