from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph.graph import Graph
from omnigraph.manifest import CommitDraft, ReadTarget, Repository, Requirements, Updates
from omnigraph.manifest.forks import write_base
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST, Incarnation
from omnigraph.manifest.rows import Entry
from omnigraph.names import BranchName
from omnigraph.store.errors import StorageUnavailableError
from support.faulty_store import FaultMode, FaultPlan, SimulatedDeath, faulty
from support.places import CITY, PERSON, Place, add, ids, repository_of
from support.writer import append, append_unordered, people


def entry_of(repository: Repository, branch: str, table_key: str = PERSON) -> Entry:
    incarnation = repository.branches.resolve(BranchName(branch))
    return repository.reader.latest(incarnation).entries[table_key]


def forks(repository: Repository, table_key: str = PERSON) -> tuple[str, ...]:
    location = entry_of(repository, "main", table_key).location
    return repository.store.datasets.branch_names(location)


def adopt(repository: Repository, incarnation: Incarnation, entry: Entry) -> Entry:
    """Publish an entry of another branch by pointer, as a merge does."""
    state = repository.reader.latest(incarnation)
    published = repository.publisher.publish(
        incarnation,
        draft=CommitDraft(repository.clock.ulid(), "merge", None, repository.clock.now_us()),
        requirements=Requirements(written={PERSON: state.entries[PERSON]}),
        updates=Updates(entries=(entry,)),
    )
    return published.entries[PERSON]


def test_a_branch_forks_a_table_on_its_first_write_and_no_other(graph: Graph) -> None:
    repository = repository_of(graph)
    add(graph, "ann")
    graph.branch_create("dev")
    assert forks(repository) == ()
    add(graph, "bob", branch="dev")
    (fork,) = forks(repository)
    assert fork.startswith("dev.")
    assert forks(repository, CITY) == ()
    mine, shared = entry_of(repository, "dev"), entry_of(repository, "dev", CITY)
    incarnation = repository.branches.resolve(BranchName("dev"))
    assert (mine.table_branch, mine.owner_branch) == (fork, incarnation.text)
    assert (shared.table_branch, shared.owner_branch) == (None, "main")
    add(graph, "eve", branch="dev")
    assert forks(repository) == (fork,)


def test_main_writes_to_the_main_lineage(local_graph: Graph) -> None:
    add(local_graph, "ann")
    entry = entry_of(repository_of(local_graph), "main")
    assert (entry.table_branch, entry.table_version, entry.owner_branch) == (None, 2, "main")


def test_a_branch_of_a_branch_forks_again_from_what_it_sees(graph: Graph) -> None:
    repository = repository_of(graph)
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    graph.branch_create_from("dev", "leaf")
    add(graph, "eve", branch="leaf")
    add(graph, "kim", branch="dev")
    assert len(forks(repository)) == 2
    assert ids(graph.snapshot_of(ReadTarget.branch("leaf"))) == ["bob", "eve"]
    assert ids(graph.snapshot_of(ReadTarget.branch("dev"))) == ["bob", "kim"]


def test_a_recreated_branch_never_meets_the_forks_of_its_former_life(graph: Graph) -> None:
    repository = repository_of(graph)
    for name in ("old", "new"):
        graph.branch_create("dev")
        add(graph, name, branch="dev")
        assert ids(graph.snapshot_of(ReadTarget.branch("dev"))) == [name]
        graph.branch_delete("dev")
    assert len(set(forks(repository))) == 2


@pytest.mark.parametrize("mode", [FaultMode.FAIL_BEFORE, FaultMode.DIE_BEFORE])
def test_a_failed_publish_leaves_a_fork_that_nobody_refers_to(
    local_place: Place, mode: FaultMode
) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    repository = repository_of(graph)
    incarnation = repository.branches.resolve(BranchName("dev"))
    counting = FaultPlan()
    probe = replace(repository, store=faulty(repository.store, counting))
    append_unordered(probe, incarnation, {PERSON: people("probe")})
    before_publish = len(counting.effects)
    for number in range(1, before_publish + 1):
        plan = FaultPlan(at=number, mode=mode)
        broken = replace(repository, store=faulty(repository.store, plan))
        with pytest.raises((StorageUnavailableError, SimulatedDeath)):
            append_unordered(broken, incarnation, {CITY: people("lost")})
        assert plan.has_fired
    fresh = local_place.open("dev")
    assert ids(fresh.snapshot(), CITY) == []
    orphans = forks(repository, CITY)
    append(repository_of(fresh), {CITY: people("kept")}, branch="dev")
    assert ids(fresh.snapshot(), CITY) == ["kept"]
    assert set(orphans) < set(forks(repository, CITY))
    assert entry_of(repository_of(fresh), "dev", CITY).table_branch not in orphans


def test_entries_that_come_back_to_an_older_lineage_win_by_sequence(graph: Graph) -> None:
    """branch → main → branch: dataset versions go 2, 3, 2, 4 and the newest publish counts."""
    repository = repository_of(graph)
    add(graph, "ann")
    graph.branch_create("dev")
    dev = repository.branches.resolve(BranchName("dev"))
    on_main = entry_of(repository, "main")
    add(graph, "bob", branch="dev")
    forked = entry_of(repository, "dev")
    assert forked.table_version > on_main.table_version
    adopted = adopt(repository, dev, on_main)
    assert adopted.seq > forked.seq
    assert ids(graph.snapshot_of(ReadTarget.branch("dev"))) == ["ann"]
    adopt(repository, dev, forked)
    assert ids(graph.snapshot_of(ReadTarget.branch("dev"))) == ["ann", "bob"]
    add(graph, "eve", branch="dev")
    assert ids(graph.snapshot_of(ReadTarget.branch("dev"))) == ["ann", "bob", "eve"]
    assert entry_of(repository, "dev").table_branch == forked.table_branch


def test_an_adopted_entry_belongs_to_whoever_made_it(graph: Graph) -> None:
    """`main` shows a version of the branch's fork, and forks anew before it writes there."""
    repository = repository_of(graph)
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    forked = entry_of(repository, "dev")
    adopt(repository, MAIN_INCARNATION, forked)
    assert entry_of(repository, "main").owner_branch == forked.owner_branch
    add(graph, "eve")
    add(graph, "kim", branch="dev")
    assert ids(graph.snapshot()) == ["bob", "eve"]
    assert ids(graph.snapshot_of(ReadTarget.branch("dev"))) == ["bob", "kim"]
    assert str(entry_of(repository, "main").table_branch).startswith("main.")


def test_a_write_base_says_what_to_publish(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    local_graph.branch_create("dev")
    dev = repository.branches.resolve(BranchName("dev"))
    entry = entry_of(repository, "dev")
    base = write_base(repository.store.datasets, dev, entry, operation_id="OP")
    assert base.is_fork
    assert base.base.branch == "dev.OP"
    next_entry = base.entry_at(5, 77)
    assert (next_entry.table_branch, next_entry.table_version) == ("dev.OP", 5)
    assert (next_entry.row_count, next_entry.owner_branch) == (77, dev.text)
    mine = write_base(repository.store.datasets, MAIN_INCARNATION, entry, operation_id="OP")
    assert not mine.is_fork
    assert mine.base.branch is None
    assert repository.store.datasets.branch_names(MANIFEST) == (dev.text,)
