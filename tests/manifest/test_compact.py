from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph.graph import Graph
from omnigraph.manifest import CommitDraft, ReadTarget, Repository, Requirements, Updates
from omnigraph.manifest.compact import compact_manifest
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST
from omnigraph.names import BranchName
from omnigraph.store.errors import StaleBaseError
from omnigraph.store.records import CommittedRange, CompactionOptions, StagedTransaction
from support.places import Place, add, ids, repository_of


def publish(repository: Repository, times: int = 1) -> None:
    for _ in range(times):
        repository.publisher.publish(
            MAIN_INCARNATION,
            draft=CommitDraft(repository.clock.ulid(), "load", None, 1),
            requirements=Requirements(),
            updates=Updates(),
        )


def fragment_files(repository: Repository) -> list[str]:
    reader = repository.reader
    handle = reader.open(MAIN_INCARNATION, reader.head_version(MAIN_INCARNATION))
    return [info.data_identity for info in handle.fragments()]


def fragments(repository: Repository) -> int:
    return len(fragment_files(repository))


def run(repository: Repository) -> bool:
    return compact_manifest(repository, MAIN_INCARNATION)


def test_tidying_leaves_history_as_it_was(graph: Graph) -> None:
    repository = repository_of(graph)
    for name in ("ann", "bob", "eve"):
        add(graph, name)
    graph.tag_create("v1")
    before = graph.list_commits(), graph.snapshot().entries, graph.tag_list()
    many = fragments(repository)
    assert run(repository)
    assert fragments(repository) < many
    assert (graph.list_commits(), graph.snapshot().entries, graph.tag_list()) == before
    assert graph.snapshot().manifest_version == 6
    for commit in graph.list_commits():
        old = graph.snapshot_of(ReadTarget.commit(commit.graph_commit_id))
        assert old.manifest_version == commit.manifest_version
    add(graph, "kim")
    assert ids(graph.snapshot()) == ["ann", "bob", "eve", "kim"]
    assert graph.list_commits()[0].manifest_version == 7


def test_only_the_small_fragments_are_rewritten_when_a_size_is_given(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    publish(repository, 40)
    assert run(repository)
    assert fragments(repository) == 2
    publish(repository, 5)
    fence, large = fragment_files(repository)[:2]
    tail = CompactionOptions(target_rows=20)
    assert compact_manifest(repository, MAIN_INCARNATION, tail)
    assert fragments(repository) == 3
    assert fragment_files(repository)[:2] == [fence, large]
    assert not compact_manifest(repository, MAIN_INCARNATION, tail)


def test_a_branch_is_tidied_without_its_parent(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    local_graph.branch_create("dev")
    for number in range(3):
        add(local_graph, f"p{number}", branch="dev")
    dev = repository.branches.resolve(BranchName("dev"))
    before = local_graph.list_commits("dev")
    assert compact_manifest(repository, dev)
    assert local_graph.list_commits("dev") == before
    assert local_graph.snapshot().manifest_version == 1
    add(local_graph, "more", branch="dev")
    assert len(local_graph.list_commits("dev")) == 5


class CaptureError(Exception):
    """Stops an operation before its last step."""


def staged_by(repository: Repository, act: Callable[[], object]) -> StagedTransaction:
    """Run an operation up to its commit on the manifest, and return what it has staged."""
    captured: list[StagedTransaction] = []

    datasets = repository.store.datasets
    inner = datasets.commit_staged

    def capture(transaction: StagedTransaction, *, exact: bool = True) -> CommittedRange:
        if transaction.base.location != MANIFEST:
            return inner(transaction, exact=exact)  # Of the background.
        captured.append(transaction)
        raise CaptureError

    datasets.commit_staged = capture  # type: ignore[method-assign]  # the test watches it
    with pytest.raises(CaptureError):
        act()
    datasets.commit_staged = inner  # type: ignore[method-assign]  # the test watches it
    return captured[0]


def test_a_publish_that_meets_a_tidying_is_refused_and_the_reverse(place: Place) -> None:
    """Neither may be moved over the other: the head row's old place must stay deleted."""
    graph = place.init()
    repository, rival = repository_of(graph), repository_of(place.open())
    publish(repository, 3)
    late_publish = staged_by(repository, lambda: publish(repository))
    assert run(rival)
    with pytest.raises(StaleBaseError):
        repository.store.datasets.commit_staged(late_publish, exact=False)
    publish(repository, 3)
    late_tidying = staged_by(repository, lambda: run(repository))
    publish(rival)
    for exact in (True, False):
        with pytest.raises(StaleBaseError):
            repository.store.datasets.commit_staged(late_tidying, exact=exact)
    assert len(graph.list_commits()) == 8
    publish(repository)
    assert len(place.open().list_commits()) == 9


def test_a_tidying_that_loses_says_so(local_place: Place) -> None:
    graph = local_place.init()
    repository, rival = repository_of(graph), repository_of(local_place.open())
    publish(repository, 3)
    datasets = repository.store.datasets
    inner = datasets.stage_update

    def stage_late(*args: object, **rest: object) -> StagedTransaction:
        publish(rival)
        return inner(*args, **rest)  # type: ignore[arg-type]  # passed on as they are

    datasets.stage_update = stage_late  # type: ignore[method-assign, assignment]  # the test watches it
    assert not run(repository)
    assert len(graph.list_commits()) == 5
