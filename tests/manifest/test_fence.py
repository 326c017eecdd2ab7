"""A publish lands on the version that it replaces or not at all, whatever was removed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from omnigraph.graph import Graph
from omnigraph.manifest import CommitDraft, Repository, Requirements, Updates
from omnigraph.manifest.compact import compact_manifest
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST, Incarnation
from omnigraph.names import BranchName
from omnigraph.store.errors import StaleBaseError
from omnigraph.store.records import CleanupRequest, CommittedRange, StagedTransaction
from support.clocks import DAY_S, WrongClock
from support.fences import unfenced, without_looking_for_gaps
from support.places import Place, add, ids, repository_of


@pytest.fixture(autouse=True)
def fence_alone() -> Iterator[None]:
    """Leave to the fence what local disks look at first."""
    with without_looking_for_gaps():
        yield


def publish(
    repository: Repository, times: int = 1, incarnation: Incarnation = MAIN_INCARNATION
) -> None:
    for _ in range(times):
        repository.publisher.publish(
            incarnation,
            draft=CommitDraft(repository.clock.ulid(), "load", None, 1),
            requirements=Requirements(),
            updates=Updates(),
        )


def remove_all_but_the_head(repository: Repository, incarnation: Incarnation) -> None:
    datasets, branch = repository.store.datasets, incarnation.lance_branch
    stored = [info.version for info in datasets.versions(MANIFEST, branch=branch)]
    request = CleanupRequest(versions=tuple(stored[:-1]))
    datasets.cleanup(MANIFEST, request, branch=branch, preview=False)


class _Held:
    """Holds the next commit on the manifest back until the test lets it go."""

    def __init__(self, repository: Repository, meanwhile: Callable[[], None]) -> None:
        self._datasets = repository.store.datasets
        self._inner = self._datasets.commit_staged
        self._meanwhile = meanwhile
        self.refused: list[StaleBaseError] = []
        self._datasets.commit_staged = self._commit  # type: ignore[method-assign]  # the test watches it

    def _commit(self, staged: StagedTransaction, *, exact: bool = True) -> CommittedRange:
        if staged.base.location != MANIFEST:
            # What runs in the background stores checksums when it comes to it.
            return self._inner(staged, exact=exact)
        self._datasets.commit_staged = self._inner  # type: ignore[method-assign]  # once
        self._meanwhile()
        try:
            return self._inner(staged, exact=exact)
        except StaleBaseError as error:
            self.refused.append(error)
            raise


@pytest.mark.parametrize("is_pinned", [True, False], ids=["base kept", "base removed"])
@pytest.mark.parametrize("on", ["main", "dev"])
def test_a_late_publish_is_refused_although_everything_in_between_was_removed(
    place: Place, on: str, is_pinned: bool
) -> None:
    graph = place.init()
    repository, rival = repository_of(graph), repository_of(place.open())
    if on == "dev":
        graph.branch_create("dev")
    incarnation = repository.branches.resolve(BranchName(on))
    publish(repository, 2, incarnation)
    if is_pinned:
        graph.branch_create("pin") if on == "main" else graph.branch_create_from("dev", "pin")

    def others_write_and_clean_up() -> None:
        publish(rival, 5, incarnation)
        remove_all_but_the_head(rival, incarnation)

    held = _Held(repository, others_write_and_clean_up)
    publish(repository, 1, incarnation)
    assert len(held.refused) == 1
    commits = place.open(on).list_commits(on)
    assert len(commits) == 1 + 2 + 5 + 1
    parents = [commit.parent_commit_id for commit in commits]
    assert parents == [*(commit.graph_commit_id for commit in commits[1:]), None]


@pytest.mark.parametrize("on", ["main", "dev"])
def test_a_late_publish_whose_files_a_cleanup_has_removed_is_refused(place: Place, on: str) -> None:
    graph = place.init()
    graph.branch_create("dev")
    repository, cleaner = repository_of(graph), place.open(clock=WrongClock(2 * DAY_S))
    incarnation = repository.branches.resolve(BranchName(on))
    publish(repository, 2, incarnation)

    def somebody_cleans_up() -> None:
        cleaner.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)

    held = _Held(repository, somebody_cleans_up)
    publish(repository, 1, incarnation)
    assert len(held.refused) == 1
    assert len(place.open(on).list_commits(on)) == 1 + 2 + 1


def test_a_late_tidying_is_refused_although_everything_in_between_was_removed(
    place: Place,
) -> None:
    graph = place.init()
    repository, rival = repository_of(graph), repository_of(place.open())
    publish(repository, 3)

    def others_write_and_clean_up() -> None:
        publish(rival, 5)
        assert compact_unlocked(rival)
        publish(rival, 1)
        remove_all_but_the_head(rival, MAIN_INCARNATION)

    held = _Held(repository, others_write_and_clean_up)
    assert not compact_manifest(repository, MAIN_INCARNATION)
    assert len(held.refused) == 1
    assert len(place.open().list_commits()) == 10


def compact_unlocked(repository: Repository) -> bool:
    """Tidy as the process does that took the lock over from a paused owner."""
    from omnigraph.manifest.compact import _compact_locked

    return _compact_locked(repository, MAIN_INCARNATION, None)


def test_the_fence_stays_where_it_is(graph: Graph) -> None:
    repository = repository_of(graph)
    fence = repository.reader.latest(MAIN_INCARNATION).fence
    add(graph, "ann")
    graph.tag_create("v1")
    graph.apply_schema(graph.schema_source() + "node Later { name: String @key }\n")
    publish(repository, 5)
    assert compact_manifest(repository, MAIN_INCARNATION)
    publish(repository, 5)
    graph.optimize()
    graph.branch_create("dev")
    dev = repository.branches.resolve(BranchName("dev"))
    publish(repository, 3, dev)
    assert compact_manifest(repository, dev)
    assert repository.reader.latest(MAIN_INCARNATION).fence == fence
    assert repository.reader.latest(dev).fence == fence


def test_a_publish_that_lands_on_somebody_elses_is_taken_back_and_starts_over(
    place: Place,
) -> None:
    """Without the fence, as a process of an older release publishes."""
    graph = place.init()
    add(graph, "ann")
    repository, rival = repository_of(graph), repository_of(place.open())
    fence = repository.reader.latest(MAIN_INCARNATION).fence
    datasets = repository.store.datasets
    inner = datasets.commit_staged
    landed: list[int] = []

    def commit(staged: StagedTransaction, *, exact: bool = True) -> CommittedRange:
        if staged.base.location == MANIFEST and not landed:
            publish(rival, 5)
            remove_all_but_the_head(rival, MAIN_INCARNATION)
            committed = inner(unfenced(staged, fence), exact=exact)
            landed.append(committed.version)
            return committed
        return inner(staged, exact=exact)

    datasets.commit_staged = commit  # type: ignore[method-assign]  # the test watches it
    add(graph, "bob")
    assert landed, "the publish has landed above the others"
    after = place.open()
    assert ids(after.snapshot()) == ["ann", "bob"]
    commits = after.list_commits()
    assert len(commits) == 1 + 1 + 5 + 1
    assert len({commit.parent_commit_id for commit in commits}) == len(commits)


def test_a_publish_whose_base_is_removed_before_it_is_opened_starts_over(place: Place) -> None:
    graph = place.init()
    repository, rival = repository_of(graph), repository_of(place.open())
    publish(repository, 2)

    def others_write_and_clean_up() -> None:
        publish(rival, 3)
        remove_all_but_the_head(rival, MAIN_INCARNATION)
        repository.store.datasets.forget(MANIFEST)

    _Held(repository, others_write_and_clean_up)
    publish(repository)
    assert len(place.open().list_commits()) == 7


def test_a_head_that_is_removed_before_it_is_read_is_looked_for_again(place: Place) -> None:
    graph = place.init()
    idle, rival = repository_of(place.open()), repository_of(graph)
    inner = idle.store.datasets.head_version

    def look(location: str, *, branch: str | None = None) -> int:
        found = inner(location, branch=branch)
        idle.store.datasets.head_version = inner  # type: ignore[method-assign]  # once
        publish(rival, 3)
        remove_all_but_the_head(rival, MAIN_INCARNATION)
        return found

    publish(rival)
    idle.store.datasets.head_version = look  # type: ignore[method-assign]  # the test watches it
    assert idle.reader.latest(MAIN_INCARNATION).version == 5
