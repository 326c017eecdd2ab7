"""A graph that two head rows made unreadable is opened and put back by `repair`."""

from __future__ import annotations

import json

import pytest

from omnigraph.cli.app import run
from omnigraph.graph import Graph
from omnigraph.manifest import CommitDraft, Requirements, Updates
from omnigraph.manifest.layout import MANIFEST
from omnigraph.manifest.state import CorruptManifestError
from omnigraph.names import BranchName
from omnigraph.recovery import RecoveryKind
from omnigraph.store.records import CleanupRequest, CommittedRange, StagedTransaction
from support.fences import unfenced, without_looking_for_gaps
from support.places import PERSON, Place, add, ids, repository_of


def break_manifest(place: Place, on: str = "main", *, rounds: int = 1) -> None:
    """Publish as idle handles of older releases did after a cleanup by another process."""
    idle = [place.open(on) for _ in range(rounds)]
    for handle in idle:
        handle.snapshot()
    other = place.open(on)
    repository = repository_of(other)
    incarnation = repository.branches.resolve(BranchName(on))
    for number in range(4):
        add(other, f"other-{number}")
    datasets, branch = repository.store.datasets, incarnation.lance_branch
    stored = [info.version for info in datasets.versions(MANIFEST, branch=branch)]
    datasets.cleanup(
        MANIFEST, CleanupRequest(versions=tuple(stored[1:-1])), branch=branch, preview=False
    )
    for handle in idle:
        _publish_late(handle, stored[0], on)


def _publish_late(handle: Graph, old: int, on: str) -> None:
    repository = repository_of(handle)
    incarnation = repository.branches.resolve(BranchName(on))
    state = repository.reader.at(incarnation, old)
    draft = CommitDraft(repository.clock.ulid(), "load", None, 1)
    staged = repository.publisher._stage(incarnation, state, draft, Updates())
    bare = unfenced(staged.transaction, state.fence)
    with without_looking_for_gaps():
        repository.store.datasets.commit_staged(bare, exact=False)


@pytest.mark.parametrize("rounds", [1, 2])
def test_the_version_below_is_put_back(place: Place, rounds: int) -> None:
    add(place.init(), "ann")
    break_manifest(place, rounds=rounds)
    with pytest.raises(CorruptManifestError, match="graph_head"):
        place.open()
    (seen,) = Graph.repair_manifests(place.uri, storage_options=place.options)
    assert (seen.branch, seen.restored_version) == ("main", None)
    assert seen.usable_version == seen.version - rounds
    with pytest.raises(CorruptManifestError):
        place.open()
    (done,) = Graph.repair_manifests(place.uri, storage_options=place.options, confirm=True)
    assert done.restored_version == seen.version + 1
    graph = place.open()
    assert ids(graph.snapshot()) == ["ann", *(f"other-{number}" for number in range(4))]
    assert len(graph.list_commits()) == 6
    assert [row.recovery_kind for row in graph.recovery_list()] == [RecoveryKind.MANIFEST_PUT_BACK]
    add(graph, "bob")
    assert "bob" in ids(place.open().snapshot())
    assert Graph.repair_manifests(place.uri, storage_options=place.options, confirm=True) == ()


def test_a_branch_is_put_back_and_the_others_stay(local_place: Place) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    add(graph, "ann", branch="dev")
    break_manifest(local_place, "dev")
    findings = [each for each in local_place.open().examine() if each.topic == "manifest"]
    assert ["'dev'" in each.message for each in findings] == [True]
    before = local_place.open().snapshot().manifest_version
    (done,) = Graph.repair_manifests(local_place.uri, confirm=True)
    assert done.branch == "dev"
    assert len(ids(local_place.open("dev").snapshot())) == 5
    assert local_place.open().snapshot().manifest_version == before


def test_nothing_is_done_when_the_version_below_is_gone(local_place: Place) -> None:
    add(local_place.init(), "ann")
    break_manifest(local_place)
    datasets = local_place.store().datasets
    stored = [info.version for info in datasets.versions(MANIFEST)]
    datasets.cleanup(MANIFEST, CleanupRequest(versions=(stored[-2],)), preview=False)
    (seen,) = Graph.repair_manifests(local_place.uri, confirm=True)
    assert (seen.usable_version, seen.restored_version) == (None, None)
    assert datasets.head_version(MANIFEST) == stored[-1]


def test_the_command_says_what_it_would_do_and_does_it(
    local_place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    add(local_place.init(), "ann")
    break_manifest(local_place)

    def said(*words: str) -> tuple[int, str]:
        code = run([*words])
        return code, capsys.readouterr().out

    code, shown = said("doctor", local_place.uri, "--no-spark", "--json")
    (finding,) = [f for f in json.loads(shown)["findings"] if f["topic"] == "graph"]
    assert code == 1
    assert "omnigraph repair" in finding["remedy"]
    code, shown = said("repair", local_place.uri)
    assert code == 1
    assert "`--confirm` puts version" in shown
    code, shown = said("repair", local_place.uri, "--json")
    (manifest,) = json.loads(shown)["manifests"]
    assert manifest["usable_version"] == manifest["graph_manifest_version"] - 1
    code, shown = said("repair", local_place.uri, "--confirm")
    assert code == 0, shown
    assert "was put back" in shown
    assert len(ids(local_place.open().snapshot())) == 5


def test_what_the_late_publish_wrote_is_offered_as_drift(local_place: Place) -> None:
    """Its rows are above the published version of their table: an operator decides."""
    graph = local_place.init()
    add(graph, "ann")
    idle = local_place.open()
    repository = repository_of(idle)
    datasets = repository.store.datasets
    fence = idle.snapshot().state.fence
    inner = datasets.commit_staged
    landed: list[str] = []

    def commit(staged: StagedTransaction, *, exact: bool = True) -> CommittedRange:
        if staged.base.location != MANIFEST or landed:
            return inner(staged, exact=exact)
        rival = local_place.open()
        for _ in range(3):
            repository_of(rival).publisher.publish(
                repository.branches.resolve(BranchName("main")),
                draft=CommitDraft(repository.clock.ulid(), "load", None, 1),
                requirements=Requirements(),
                updates=Updates(),
            )
        stored = [info.version for info in datasets.versions(MANIFEST)]
        remover = local_place.store().datasets
        remover.cleanup(MANIFEST, CleanupRequest(versions=tuple(stored[1:-1])), preview=False)
        with without_looking_for_gaps():
            inner(unfenced(staged, fence), exact=exact)
        landed.append("acknowledged")
        raise KeyboardInterrupt

    datasets.commit_staged = commit  # type: ignore[method-assign]  # the test watches it
    with pytest.raises(KeyboardInterrupt):
        add(idle, "late")
    Graph.repair_manifests(local_place.uri, confirm=True)
    after = local_place.open()
    assert ids(after.snapshot()) == ["ann"]
    (person,) = [t for t in after.repair().tables if t.table_key == PERSON]
    assert person.head_version == person.published_version + 1
    after.repair(confirm=True, force=True)
    assert ids(local_place.open().snapshot()) == ["ann", "late"]
