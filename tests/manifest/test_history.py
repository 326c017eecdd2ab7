"""Commits across branches, snapshots and time travel, on disk and on S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.graph import Graph
from omnigraph.graph.session import ForeignSnapshotError
from omnigraph.manifest import CommitDraft, ReadTarget, Requirements, Updates
from omnigraph.manifest.errors import (
    BranchNotFoundError,
    CommitNotFoundError,
    TagNotFoundError,
    TypeNotFoundError,
    VersionRemovedError,
)
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST
from omnigraph.names import BranchName
from omnigraph.store.errors import DatasetVersionNotFoundError
from omnigraph.store.records import CleanupRequest, DatasetVersion
from support.clocks import START_US, ManualClock
from support.places import CITY, PERSON, Place, add, ids, repository_of
from support.s3 import S3Server
from support.writer import append, people


def chain(graph: Graph, branch: str) -> list[str]:
    """Follow the parents from a branch's head, and check that the list is exactly that."""
    commits = graph.list_commits(branch)
    by_id = {c.graph_commit_id: c for c in commits}
    at: str | None = graph.head_commit_id_for_branch(branch)
    found = []
    while at is not None:
        found.append(at)
        at = by_id[at].parent_commit_id
    assert found == [c.graph_commit_id for c in commits]
    return found


# -- commits ---------------------------------------------------------------------------------------


def test_init_makes_the_one_commit_without_a_parent(place: Place) -> None:
    graph = Graph.init(
        place.uri,
        "node Person { name: String @key }",
        actor_id="ann",
        storage_options=place.options,
        durability="process",
    )
    (genesis,) = graph.list_commits()
    assert genesis.parent_commit_id is None
    assert genesis.merged_parent_commit_id is None
    assert (genesis.operation, genesis.actor_id, genesis.manifest_version) == ("init", "ann", 1)
    assert graph.head_commit_id_for_branch() == genesis.graph_commit_id


def test_history_is_one_chain_per_branch_with_what_was_inherited(graph: Graph) -> None:
    add(graph, "a1")
    graph.branch_create("dev")
    fork = graph.head_commit_id_for_branch()
    assert graph.head_commit_id_for_branch("dev") == fork
    add(graph, "d1", branch="dev")
    add(graph, "a2")
    graph.branch_create_from("dev", "leaf")
    add(graph, "l1", branch="leaf")
    main, dev, leaf = (chain(graph, name) for name in ("main", "dev", "leaf"))
    assert (len(main), len(dev), len(leaf)) == (3, 3, 4)
    assert main[1:] == dev[1:] == leaf[2:]
    assert leaf[1:] == dev
    assert graph.list_commits("dev")[0].graph_branch == "dev"
    assert graph.list_commits("dev")[1].graph_branch is None


def test_listing_is_limited_and_continued(local_graph: Graph) -> None:
    for number in range(5):
        add(local_graph, f"p{number}")
    whole = local_graph.list_commits()
    first = local_graph.list_commits(limit=2)
    rest = local_graph.list_commits(before=first[-1].manifest_version)
    assert first + rest == whole
    assert local_graph.list_commits(limit=2, before=3) == whole[-2:]


def test_a_commit_is_found_from_any_branch(place: Place) -> None:
    graph = place.init()
    graph.branch_create("dev")
    published = add(graph, "d1", branch="dev")
    assert published.commit is not None
    other = place.open()
    assert other.get_commit(published.commit.graph_commit_id) == published.commit
    with pytest.raises(CommitNotFoundError, match="'nonsense' not found"):
        other.get_commit("nonsense")


def test_commits_of_a_deleted_branch_are_not_found(local_graph: Graph) -> None:
    local_graph.branch_create("dev")
    published = add(local_graph, "d1", branch="dev")
    local_graph.branch_delete("dev")
    assert published.commit is not None
    with pytest.raises(CommitNotFoundError):
        local_graph.get_commit(published.commit.graph_commit_id)


def test_the_fork_point_is_the_merge_base(graph: Graph) -> None:
    add(graph, "a1")
    fork = graph.head_commit_id_for_branch()
    graph.branch_create("dev")
    base = graph.merge_base("dev", "main")
    assert base is not None
    assert base.graph_commit_id == fork
    add(graph, "a2")
    add(graph, "d1", branch="dev")
    for pair in (("dev", "main"), ("main", "dev")):
        base = graph.merge_base(*pair)
        assert base is not None
        assert base.graph_commit_id == fork
    with pytest.raises(BranchNotFoundError):
        graph.merge_base("dev", "other")


def test_a_merge_commit_moves_the_merge_base(local_graph: Graph) -> None:
    local_graph.branch_create("dev")
    published = add(local_graph, "d1", branch="dev")
    assert published.commit is not None
    merged = published.commit.graph_commit_id
    repository = repository_of(local_graph)
    repository.publisher.publish(
        MAIN_INCARNATION,
        draft=CommitDraft("MERGE", "merge", None, 1, merged_parent_commit_id=merged),
        requirements=Requirements(),
        updates=Updates(),
    )
    add(local_graph, "d2", branch="dev")
    base = local_graph.merge_base("dev", "main")
    assert base is not None
    assert base.graph_commit_id == merged


# -- time travel -----------------------------------------------------------------------------------


def test_every_target_leads_to_its_snapshot(place: Place) -> None:
    clock = ManualClock()
    graph = place.init(clock=clock)
    clock.advance(1)
    first = add(graph, "ann").commit
    clock.advance(1)
    graph.branch_create("dev")
    second = add(graph, "bob", branch="dev").commit
    clock.advance(1)
    add(graph, "eve")
    assert first is not None
    assert second is not None
    graph.tag_create("v1", ReadTarget.commit(first.graph_commit_id))
    targets = {
        ReadTarget.branch("main"): ["ann", "eve"],
        ReadTarget.branch("dev"): ["ann", "bob"],
        ReadTarget.commit(first.graph_commit_id): ["ann"],
        ReadTarget.snapshot(second.graph_commit_id): ["ann", "bob"],
        ReadTarget.tag("v1"): ["ann"],
        ReadTarget.at(START_US): [],
        ReadTarget.at(START_US + 1_000_000): ["ann"],
        ReadTarget.at(START_US + 2_999_999): ["ann"],
        ReadTarget.at(START_US + 10**9): ["ann", "eve"],
    }
    fresh = place.open(clock=clock)
    assert {target: ids(fresh.snapshot_of(target)) for target in targets} == targets
    bound = place.open("dev", clock=clock)
    assert ids(bound.snapshot_of(ReadTarget.at(START_US + 2_000_000))) == ["ann", "bob"]
    assert ids(bound.snapshot_of(ReadTarget.at(START_US + 1_999_999))) == ["ann"]
    for moment, shown in ((START_US - 1, "before [0-9]{4}-"), (-(10**30), f"before -{10**30}")):
        with pytest.raises(CommitNotFoundError, match=f"at or {shown}"):
            fresh.snapshot_of(ReadTarget.at(moment))


def test_of_commits_of_one_moment_the_last_by_id_is_read(local_place: Place) -> None:
    graph = local_place.init(clock=ManualClock())
    for name in ("ann", "bob", "eve"):
        add(graph, name)
    assert len({c.created_at for c in graph.list_commits()}) == 1
    assert ids(graph.snapshot_of(ReadTarget.at(START_US))) == ["ann", "bob", "eve"]


def test_a_manifest_version_is_read_where_it_was_made(graph: Graph) -> None:
    add(graph, "a2")
    add(graph, "a3")
    graph.branch_create("dev")
    add(graph, "a4")
    add(graph, "d4", branch="dev")
    graph.branch_create_from("dev", "leaf")
    add(graph, "l5", branch="leaf")
    graph.sync_branch("leaf")
    found = {v: ids(graph.snapshot_at_version(v)) for v in range(1, 6)}
    assert found == {
        1: [],
        2: ["a2"],
        3: ["a2", "a3"],
        4: ["a2", "a3", "d4"],
        5: ["a2", "a3", "d4", "l5"],
    }
    assert str(graph.snapshot_at_version(2).branch) == "main"
    assert str(graph.snapshot_at_version(4).branch) == "dev"
    with pytest.raises(VersionRemovedError, match=r"version 6 .* never written"):
        graph.snapshot_at_version(6)


def test_a_snapshot_is_a_target_of_every_read(place: Place, tmp_path: Path) -> None:
    graph = place.init()
    add(graph, "ann")
    version = graph.snapshot().manifest_version
    add(graph, "bob")
    old = graph.snapshot_at_version(version)
    text = "query q() { match { $p: Person } return { $p.name } order { $p.name } }"
    found = graph.query(text, target=old)
    assert found.to_pylist() == [{"p.name": "ann"}]
    assert found.target.snapshot == old.commit_id
    assert len(list(graph.export_lines(target=old))) == 1
    assert graph.export(tmp_path / "out", target=old).rows == 1
    changes = graph.diff_between(old, ReadTarget.branch("main"))
    assert [change["id"] for change in changes.changes] == ["bob"]
    assert graph.tag_create("then", old).commit_id == old.commit_id


def test_a_snapshot_of_another_handle_is_refused(place: Place) -> None:
    graph, other = place.init(), place.open()
    with pytest.raises(ForeignSnapshotError, match="another handle"):
        graph.query(
            "query q() { match { $p: Person } return { $p.name } }", target=other.snapshot()
        )


def test_one_entity_at_one_version(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    fresh = place.open("dev")
    assert fresh.entity_at(PERSON, "ann", 2)["name"].to_pylist() == ["ann"]
    assert fresh.entity_at(PERSON, "ann", 1).num_rows == 0
    assert fresh.entity_at(PERSON, "bob", 3).num_rows == 1
    assert fresh.entity_at(PERSON, "bob", 2).num_rows == 0
    assert fresh.entity_at(CITY, "ann", 3).num_rows == 0
    with pytest.raises(TypeNotFoundError, match="node:Ghost does not exist at manifest version 2"):
        fresh.entity_at("node:Ghost", "ann", 2)
    with pytest.raises(VersionRemovedError):
        fresh.entity_at(PERSON, "ann", 9)


def test_an_entity_is_read_without_building_a_snapshot(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(local_place.init(), "ann")
    fresh = local_place.open()
    reader = repository_of(fresh).reader
    reader._states.clear()
    monkeypatch.setattr(reader, "at", lambda *args: pytest.fail("a whole state was read"))
    assert fresh.entity_at(PERSON, "ann", 2).num_rows == 1


def test_a_snapshot_never_changes(graph: Graph) -> None:
    add(graph, "ann")
    snapshot = graph.snapshot()
    add(graph, "bob")
    assert ids(snapshot) == ["ann"]
    assert ids(graph.snapshot()) == ["ann", "bob"]
    with pytest.raises(TypeNotFoundError, match="node:Nobody"):
        snapshot.open("node:Nobody")


def test_other_handles_see_what_was_published(place: Place) -> None:
    writer = place.init()
    reader = place.open()
    assert ids(reader.snapshot()) == []
    add(writer, "ann")
    assert ids(reader.snapshot()) == ["ann"]
    assert reader.refresh().manifest_version == 2


def test_an_unchanged_branch_costs_one_look(s3: S3Server, s3_place: Place) -> None:
    graph = s3_place.init_quiet()
    graph.branch_create("dev")
    bound = s3_place.open("dev")
    for handle, most in ((graph, 1), (bound, 2)):
        handle.snapshot()
        with s3.requests() as seen:
            handle.snapshot()
        assert len(seen) <= most


def test_unknown_targets_are_refused_with_the_nearest_name(local_graph: Graph) -> None:
    local_graph.tag_create("release-1")
    with pytest.raises(TagNotFoundError) as caught:
        local_graph.snapshot_of(ReadTarget.tag("relaese-1"))
    assert caught.value.hint == "did you mean 'release-1'?"
    with pytest.raises(BranchNotFoundError):
        local_graph.snapshot_of(ReadTarget.branch("nowhere"))
    with pytest.raises(CommitNotFoundError):
        local_graph.snapshot_of(ReadTarget.commit("nonsense"))


# -- after cleanup ---------------------------------------------------------------------------------


def forget_old_versions(graph: Graph, location: str) -> None:
    datasets = repository_of(graph).store.datasets
    datasets.cleanup(location, CleanupRequest(keep_versions=1), preview=False)


def test_a_manifest_version_that_cleanup_removed_says_so(local_place: Place) -> None:
    graph = local_place.init()
    for number in range(3):
        add(graph, f"p{number}")
    commit = graph.list_commits()[1]
    forget_old_versions(graph, MANIFEST)
    fresh = local_place.open()
    with pytest.raises(
        VersionRemovedError, match=r"version 2 of .*'main'.* cleanup has removed it"
    ):
        fresh.snapshot_at_version(2)
    with pytest.raises(VersionRemovedError):
        fresh.snapshot_of(ReadTarget.commit(commit.graph_commit_id))
    with pytest.raises(VersionRemovedError):
        fresh.entity_at(PERSON, "p0", 2)
    assert ids(fresh.snapshot()) == ["p0", "p1", "p2"]


@pytest.mark.parametrize("location", [MANIFEST, PERSON])
def test_a_handle_that_has_read_a_removed_commit_cannot_name_it(
    place: Place, location: str
) -> None:
    graph = place.init()
    for number in range(3):
        add(graph, f"p{number}")
    target = ReadTarget.commit(graph.list_commits()[1].graph_commit_id)
    assert ids(graph.snapshot_of(target)) == ["p0", "p1"]
    entry = graph.snapshot().entries[PERSON]
    forget_old_versions(place.open(), MANIFEST if location == MANIFEST else entry.location)
    what = "the manifest of branch 'main'" if location == MANIFEST else PERSON
    with pytest.raises(VersionRemovedError, match=f"of {what} .* cleanup has removed it"):
        graph.tag_create("then", target)
    assert graph.tag_list() == []
    datasets = repository_of(graph).store.datasets
    assert datasets.list_tags(MANIFEST) == ()
    assert graph.tag_create("now").commit_id == graph.head_commit_id_for_branch()


def test_a_table_version_that_cleanup_removed_says_so(local_place: Place) -> None:
    graph = local_place.init()
    append(repository_of(graph), {PERSON: people("p0")})
    location = graph.snapshot().entry(PERSON).location
    for number in range(1, 4):
        add(graph, f"p{number}")
    forget_old_versions(local_place.open(), location)
    fresh = local_place.open()
    with pytest.raises(DatasetVersionNotFoundError, match=r"version 2 .* cleanup has removed it"):
        ids(fresh.snapshot_at_version(2))
    assert len(ids(fresh.snapshot())) == 4


def test_a_handle_that_knew_a_removed_version_never_shows_another_one(local_place: Place) -> None:
    """Its rows may still be there, in files that newer versions share; other rows never are."""
    graph = local_place.init()
    append(repository_of(graph), {PERSON: people("p0")})
    old = graph.snapshot()
    assert ids(old) == ["p0"]
    datasets = repository_of(graph).store.datasets
    entry = old.entry(PERSON)
    base = DatasetVersion(entry.location, None, entry.table_version)
    schema = old.open(PERSON).schema
    overwritten = datasets.commit_staged(datasets.stage_overwrite(base, schema, rows=people("new")))
    assert overwritten.version == 3
    other = local_place.open()
    repository_of(other).store.datasets.cleanup(
        entry.location, CleanupRequest(keep_versions=1), preview=False
    )
    try:
        found = ids(old)
    except DatasetVersionNotFoundError as error:
        found = ["p0"] if error.version == 2 else []
    assert found == ["p0"]


def test_history_before_the_fork_survives_on_the_branch(local_place: Place) -> None:
    """A branch keeps its fork point: Lance never removes what another lineage was cut from."""
    graph = local_place.init()
    add(graph, "ann")
    graph.branch_create("dev")
    for number in range(3):
        add(graph, f"p{number}")
    entry = graph.snapshot_of(ReadTarget.branch("dev")).entry(PERSON)
    assert repository_of(graph).branches.resolve(BranchName("dev")).text != entry.owner_branch
    forget_old_versions(graph, MANIFEST)
    fresh = local_place.open("dev")
    assert ids(fresh.snapshot()) == ["ann"]
    assert len(fresh.list_commits()) == 2
