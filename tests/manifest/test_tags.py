from __future__ import annotations

import pytest

from omnigraph.graph import Graph
from omnigraph.manifest import ReadTarget
from omnigraph.manifest.errors import CommitNotFoundError, TagExistsError, TagNotFoundError
from omnigraph.manifest.history import History
from omnigraph.manifest.layout import MANIFEST
from omnigraph.manifest.tags import Tags
from omnigraph.names import IllegalNameError
from omnigraph.store.errors import StorageUnavailableError, WriteOutcomeUnknownError
from omnigraph.store.records import CleanupRequest
from support.faulty_store import FaultMode, FaultPlan, faulty
from support.places import PERSON, Place, add, ids, repository_of


def pins(graph: Graph) -> set[str]:
    datasets = repository_of(graph).store.datasets
    locations = [MANIFEST, *(e.location for e in graph.snapshot().entries.values())]
    return {tag.name for location in locations for tag in datasets.list_tags(location)}


def test_a_tag_names_the_head_or_any_other_commit(graph: Graph) -> None:
    add(graph, "ann")
    first = graph.head_commit_id_for_branch()
    add(graph, "bob")
    graph.tag_create("now", actor_id="eva")
    graph.tag_create("then/first", ReadTarget.commit(first))
    listed = graph.tag_list()
    assert [tag.name for tag in listed] == ["now", "then/first"]
    assert listed[0].actor_id == "eva"
    assert listed[1].commit_id == first
    assert ids(graph.snapshot_of(ReadTarget.tag("then/first"))) == ["ann"]
    assert ids(graph.snapshot_of(ReadTarget.tag("now"))) == ["ann", "bob"]


def test_tags_make_no_commits_and_move_no_head(graph: Graph) -> None:
    before = graph.list_commits()
    graph.tag_create("v1")
    graph.tag_delete("v1")
    assert graph.list_commits() == before
    assert graph.tag_list() == []


def test_names_are_checked_and_used_once(local_graph: Graph) -> None:
    local_graph.tag_create("v1")
    with pytest.raises(TagExistsError, match="'v1' already exists"):
        local_graph.tag_create(" v1 ")
    with pytest.raises(IllegalNameError, match="tag name"):
        local_graph.tag_create("a b")
    with pytest.raises(TagNotFoundError):
        local_graph.tag_delete("v2")
    local_graph.tag_delete("v1")
    local_graph.tag_create("v1")


def test_a_tag_keeps_its_versions_through_cleanup(place: Place) -> None:
    """The manifest has moved on without a new commit: the version of the commit is kept."""
    graph = place.init()
    add(graph, "ann")
    graph.tag_create("other")
    graph.tag_create("keep")
    graph.tag_delete("other")
    add(graph, "bob")
    add(graph, "eve")
    datasets = repository_of(graph).store.datasets
    for location in (MANIFEST, graph.snapshot().entry(PERSON).location):
        datasets.cleanup(location, CleanupRequest(keep_versions=1), preview=False)
    fresh = place.open()
    assert ids(fresh.snapshot_of(ReadTarget.tag("keep"))) == ["ann"]
    assert ids(fresh.snapshot()) == ["ann", "bob", "eve"]


def test_deleting_a_tag_unpins_everything(graph: Graph) -> None:
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    graph.tag_create("v1", ReadTarget.branch("dev"))
    assert len(pins(graph)) == 1
    graph.tag_delete("v1")
    assert pins(graph) == set()


def test_a_tag_on_a_branch_pins_its_fork(local_graph: Graph) -> None:
    local_graph.branch_create("dev")
    add(local_graph, "bob", branch="dev")
    local_graph.tag_create("v1", ReadTarget.branch("dev"))
    add(local_graph, "eve", branch="dev")
    assert ids(local_graph.snapshot_of(ReadTarget.tag("v1"))) == ["bob"]


def broken(graph: Graph, plan: FaultPlan) -> Tags:
    repository = repository_of(graph)
    store = faulty(repository.store, plan)
    publisher = type(repository.publisher)(
        datasets=store.datasets,
        reader=repository.reader,
        clock=repository.clock,
        background=store.background,
        flusher=store.flusher,
    )
    return Tags(
        datasets=store.datasets,
        reader=repository.reader,
        publisher=publisher,
        history=repository.history,
        branch_locks=repository.branch_locks,
        clock=repository.clock,
    )


def test_a_tag_that_fails_before_its_row_leaves_no_pins(local_graph: Graph) -> None:
    counting = FaultPlan()
    broken(local_graph, counting).create("probe", local_graph.snapshot())
    local_graph.tag_delete("probe")
    for number in range(1, len(counting.effects) + 1):
        plan = FaultPlan(at=number, mode=FaultMode.FAIL_BEFORE)
        with pytest.raises(StorageUnavailableError):
            broken(local_graph, plan).create("v1", local_graph.snapshot())
        assert local_graph.tag_list() == []
        assert pins(local_graph) == set(), f"pins left after {plan.effects[-1]}"


def test_a_tag_whose_row_may_be_there_keeps_its_pins(local_graph: Graph) -> None:
    counting = FaultPlan()
    broken(local_graph, counting).create("probe", local_graph.snapshot())
    local_graph.tag_delete("probe")
    plan = FaultPlan(at=len(counting.effects), mode=FaultMode.FAIL_AFTER)
    with pytest.raises(WriteOutcomeUnknownError):
        broken(local_graph, plan).create("v1", local_graph.snapshot())
    assert [tag.name for tag in local_graph.tag_list()] == ["v1"]
    assert pins(local_graph) == {local_graph.tag_list()[0].pin}


def test_a_pin_that_cannot_be_removed_does_not_fail_a_deletion(local_graph: Graph) -> None:
    counting = FaultPlan()
    local_graph.tag_create("probe")
    broken(local_graph, counting).delete("probe")
    local_graph.tag_create("v1")
    first_unpin = 1 + [e.name for e in counting.effects].index("datasets.delete_tag")
    plan = FaultPlan(at=first_unpin, mode=FaultMode.FAIL_BEFORE)
    broken(local_graph, plan).delete("v1")
    assert plan.has_fired
    assert local_graph.tag_list() == []


def test_a_tag_whose_commit_is_gone_can_still_be_deleted(
    local_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_graph.tag_create("v1")

    def gone(_: History, commit_id: str) -> None:
        raise CommitNotFoundError(commit_id)

    monkeypatch.setattr(History, "snapshot_of_commit", gone)
    local_graph.tag_delete("v1")
    assert local_graph.tag_list() == []
