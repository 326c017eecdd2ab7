"""Requirements and updates of the one atomic publish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from omnigraph.errors import ConflictError
from omnigraph.graph import Graph
from omnigraph.manifest import CommitDraft, Entry, Published, Repository, Requirements, Updates
from omnigraph.manifest.errors import (
    CommitSettledError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    PublishTimeoutError,
    SchemaMovedError,
)
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST
from omnigraph.manifest.publish import Publisher
from omnigraph.manifest.rows import Registration, Tag, tag_object_id, voided_row
from omnigraph.manifest.state import ManifestState
from omnigraph.store.background import Inline
from omnigraph.store.connect import Store
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.errors import StaleBaseError, WriteOutcomeUnknownError
from omnigraph.store.records import CommittedRange, DatasetVersion, StagedTransaction
from support.clocks import ManualClock
from support.faulty_store import FaultMode, FaultPlan, faulty
from support.places import CITY, PERSON, Place, add, ids, repository_of
from support.writer import append, append_unordered, people


def draft(
    repository: Repository, *, commit_id: str | None = None, operation: str = "load"
) -> CommitDraft:
    return CommitDraft(
        commit_id or repository.clock.ulid(), operation, None, repository.clock.now_us()
    )


def publish(
    repository: Repository,
    *,
    requirements: Requirements | None = None,
    updates: Updates | None = None,
    commit: CommitDraft | None = None,
) -> Published:
    return repository.publisher.publish(
        MAIN_INCARNATION,
        draft=commit or draft(repository),
        requirements=requirements or Requirements(),
        updates=updates or Updates(),
    )


def head(repository: Repository) -> ManifestState:
    return repository.reader.latest(MAIN_INCARNATION)


def entry(repository: Repository, table_key: str = PERSON) -> Entry:
    return head(repository).entries[table_key]


def move(graph: Graph, table_key: str = PERSON, *, operation: str = "load") -> None:
    """Somebody else publishes a table."""
    repository = repository_of(graph)
    append(repository, {table_key: people(repository.clock.ulid())}, operation=operation)


# -- what a publish does ---------------------------------------------------------------------------


def test_tables_and_commit_appear_in_one_version(graph: Graph) -> None:
    repository = repository_of(graph)
    before = head(repository)
    published = append(repository, {PERSON: people("ann"), CITY: people("rome")}, actor_id="eva")
    after = head(repository)
    assert published.manifest_version == after.version == before.version + 1
    assert {key for key, e in after.entries.items() if e.seq == after.version} == {PERSON, CITY}
    assert after.entries[PERSON].row_count == 1
    commit = after.commit(after.head.commit_id)
    assert commit == published.commit
    assert commit is not None
    assert commit.parent_commit_id == before.head.commit_id
    assert commit.manifest_version == after.version
    assert (commit.actor_id, commit.operation, commit.manifest_branch) == ("eva", "load", None)


def test_message_properties_and_second_parent_are_kept(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    full = replace(
        draft(repository, operation="merge"),
        merged_parent_commit_id="M",
        message="why",
        properties={"pipeline": "p"},
    )
    published = publish(repository, commit=full)
    assert local_graph.get_commit(full.graph_commit_id) == published.commit
    assert published.commit is not None
    assert published.commit.properties == {"pipeline": "p"}
    assert published.commit.merged_parent_commit_id == "M"


def test_a_publish_without_a_draft_makes_no_commit_but_a_version(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    before = head(repository)
    published = repository.publisher.publish(
        MAIN_INCARNATION,
        draft=None,
        requirements=Requirements(),
        updates=Updates(rows=(Tag("v1", before.head.commit_id, 1, "pin").row(),)),
    )
    after = head(repository)
    assert published.commit is None
    assert after.version == before.version + 1
    assert after.head == before.head
    assert after.commit_ids == before.commit_ids
    repository.publisher.publish(
        MAIN_INCARNATION,
        draft=None,
        requirements=Requirements(),
        updates=Updates(removed=(tag_object_id("v1"), tag_object_id("never"))),
    )
    assert head(repository).tags == {}


def test_registrations_tombstones_and_schema_change_in_the_same_commit(graph: Graph) -> None:
    repository = repository_of(graph)
    state = head(repository)
    new = Registration("node:Fish", "nodes/fish-X", 77, 78)
    first = replace(entry(repository), table_key="node:Fish", location="nodes/fish-X")
    schema = replace(state.schema, state={**state.schema.state, "schema_ir_hash": "sha256:new"})
    publish(
        repository,
        updates=Updates(entries=(first,), registrations=(new,), tombstones=(CITY,), schema=schema),
    )
    after = head(repository)
    assert after.registrations["node:Fish"] == new
    assert CITY not in after.entries
    assert after.head.schema_hash == after.schema.schema_hash == "sha256:new"
    assert repository.reader.at(MAIN_INCARNATION, state.version).schema == state.schema
    assert CITY in repository.reader.at(MAIN_INCARNATION, state.version).entries


def test_a_type_dropped_and_created_in_one_publish_lives(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    reborn = replace(entry(repository), location="nodes/reborn-X", table_version=1)
    registration = Registration(PERSON, "nodes/reborn-X", 9, 10)
    publish(
        repository,
        updates=Updates(entries=(reborn,), registrations=(registration,), tombstones=(PERSON,)),
    )
    assert entry(repository).location == "nodes/reborn-X"


# -- requirements ----------------------------------------------------------------------------------


def test_a_written_table_that_moved_is_a_conflict_with_the_facts(graph: Graph) -> None:
    repository = repository_of(graph)
    expected = entry(repository)
    move(graph)
    versions = head(repository).version
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        publish(repository, requirements=Requirements(written={PERSON: expected}))
    error = caught.value
    assert (error.table_key, error.expected, error.actual) == (PERSON, 1, 2)
    assert not error.is_only_maintenance
    assert isinstance(error, ConflictError)
    assert head(repository).version == versions


def test_an_unknown_table_has_version_zero(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    ghost = replace(entry(repository), table_key="node:Ghost", table_version=4)
    for written, facts in (
        ({"node:Ghost": ghost}, ("node:Ghost", 4, 0)),
        ({PERSON: None}, (PERSON, 0, 1)),
    ):
        with pytest.raises(ExpectedVersionMismatchError) as caught:
            publish(repository, requirements=Requirements(written=written))
        error = caught.value
        assert (error.table_key, error.expected, error.actual) == facts
    publish(repository, requirements=Requirements(written={"node:Ghost": None}))


def test_the_same_version_on_another_lineage_or_of_another_publish_is_not_the_same(
    local_graph: Graph,
) -> None:
    repository = repository_of(local_graph)
    real = entry(repository)
    for other in (
        replace(real, table_branch="dev.X"),
        replace(real, location="nodes/other"),
        replace(real, seq=real.seq + 1),
    ):
        with pytest.raises(ExpectedVersionMismatchError):
            publish(repository, requirements=Requirements(written={PERSON: other}))
    publish(repository, requirements=Requirements(written={PERSON: replace(real, row_count=99)}))


def test_a_read_table_that_moved_is_validated_again(graph: Graph) -> None:
    repository = repository_of(graph)
    expected, other = entry(repository), entry(repository, CITY)
    move(graph)
    seen: list[tuple[int, frozenset[str]]] = []
    requirements = Requirements(
        read={PERSON: expected, CITY: other},
        revalidate=lambda state, moved: seen.append((state.version, moved)),
    )
    publish(repository, requirements=requirements)
    assert seen == [(2, frozenset({PERSON}))]


def test_a_validation_that_fails_refuses_the_publish(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    expected = entry(repository)
    move(local_graph)

    def refuse(state: ManifestState, moved: frozenset[str]) -> None:
        raise ValueError(f"dangling in {sorted(moved)}")

    checked_again = Requirements(read={PERSON: expected}, revalidate=refuse)
    with pytest.raises(ValueError, match="dangling"):
        publish(repository, requirements=checked_again)
    with pytest.raises(ExpectedVersionMismatchError):
        publish(repository, requirements=Requirements(read={PERSON: expected}))
    assert head(repository).version == 2


def test_a_read_table_that_only_maintenance_moved_counts_as_unmoved(graph: Graph) -> None:
    repository = repository_of(graph)
    expected = entry(repository)
    for operation in ("optimize", "ensure_indices"):
        move(graph, operation=operation)
    publish(repository, requirements=Requirements(read={PERSON: expected}))
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        publish(repository, requirements=Requirements(written={PERSON: expected}))
    assert caught.value.is_only_maintenance
    move(graph)
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        publish(repository, requirements=Requirements(read={PERSON: expected}))
    assert not caught.value.is_only_maintenance


def test_a_dropped_table_was_not_moved_by_maintenance(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    expected = entry(repository)
    publish(
        repository,
        updates=Updates(tombstones=(PERSON,)),
        commit=draft(repository, operation="schema_apply"),
    )
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        publish(repository, requirements=Requirements(read={PERSON: expected}))
    assert (caught.value.actual, caught.value.is_only_maintenance) == (0, False)


def test_a_moved_schema_refuses_every_publish_that_was_prepared_on_another(graph: Graph) -> None:
    repository = repository_of(graph)
    expected = head(repository).head.schema_hash
    publish(repository, requirements=Requirements(schema_hash=expected))
    with pytest.raises(SchemaMovedError) as caught:
        publish(repository, requirements=Requirements(schema_hash="sha256:other"))
    assert (caught.value.expected, caught.value.actual) == ("sha256:other", expected)


def test_an_expected_head_ignores_maintenance_above_it(graph: Graph) -> None:
    repository = repository_of(graph)
    add(graph, "ann")
    content = graph.head_commit_id_for_branch()
    for operation in ("optimize", "recovery"):
        move(graph, operation=operation)
    maintained = graph.head_commit_id_for_branch()
    assert maintained != content
    publish(
        repository,
        requirements=Requirements(expected_head=content),
        commit=draft(repository, operation="ensure_indices"),
    )
    publish(repository, requirements=Requirements(expected_head=maintained))
    with pytest.raises(PreconditionFailedError) as caught:
        publish(repository, requirements=Requirements(expected_head=content))
    assert caught.value.expected == content
    assert caught.value.actual == graph.head_commit_id_for_branch()
    with pytest.raises(PreconditionFailedError):
        publish(repository, requirements=Requirements(expected_head="nonsense"))


def test_a_merge_needs_the_exact_head_that_it_was_computed_against(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    target = local_graph.head_commit_id_for_branch()
    move(local_graph, operation="optimize")
    with pytest.raises(PreconditionFailedError):
        publish(repository, requirements=Requirements(merged_into=target))
    current = local_graph.head_commit_id_for_branch()
    publish(repository, requirements=Requirements(merged_into=current))


# -- the fence -------------------------------------------------------------------------------------


def void(repository: Repository, commit_id: str) -> None:
    repository.publisher.publish(
        MAIN_INCARNATION,
        draft=None,
        requirements=Requirements(),
        updates=Updates(rows=(voided_row(commit_id, "OP"),)),
    )


def test_a_voided_commit_can_never_be_published(graph: Graph) -> None:
    repository = repository_of(graph)
    late = draft(repository)
    void(repository, late.graph_commit_id)
    with pytest.raises(CommitSettledError, match="voided by recovery") as caught:
        publish(repository, commit=late)
    assert not caught.value.is_published
    assert head(repository).is_voided(late.graph_commit_id)


def test_a_commit_is_published_once(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    once = draft(repository)
    publish(repository, commit=once)
    with pytest.raises(CommitSettledError, match="published already") as caught:
        publish(repository, commit=once)
    assert caught.value.is_published
    assert len(local_graph.list_commits()) == 2


def test_a_published_commit_cannot_be_voided(graph: Graph) -> None:
    """A void and a commit share their row id: a late void must not replace the record."""
    repository = repository_of(graph)
    once = draft(repository)
    publish(repository, commit=once)
    with pytest.raises(CommitSettledError) as caught:
        void(repository, once.graph_commit_id)
    assert caught.value.is_published
    assert graph.get_commit(once.graph_commit_id).operation == "load"
    void(repository, "UNUSED")
    with pytest.raises(CommitSettledError):
        void(repository, "UNUSED")


# -- racing ----------------------------------------------------------------------------------------


class Interrupted:
    """A store in which something happens just before a commit on the manifest."""

    def __init__(self, inner: DatasetStore, event: Callable[[], None], times: int = 1) -> None:
        self._inner = inner
        self._event = event
        self._times = times

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def commit_staged(self, staged: StagedTransaction, *, exact: bool = True) -> CommittedRange:
        if staged.base.location == MANIFEST and self._times:
            self._times -= 1
            self._event()
        return self._inner.commit_staged(staged, exact=exact)


def publisher_on(store: Store, repository: Repository) -> Publisher:
    return Publisher(
        datasets=store.datasets,
        reader=repository.reader,
        clock=ManualClock(),
        background=store.background,
        flusher=store.flusher,
    )


def interrupted(repository: Repository, event: Callable[[], None], times: int = 1) -> Publisher:
    datasets: DatasetStore = Interrupted(repository.store.datasets, event, times)  # type: ignore[assignment]  # stands in for one
    return Publisher(
        datasets=datasets,
        reader=repository.reader,
        clock=ManualClock(),
        background=Inline(),
        flusher=repository.store.flusher,
    )


def test_a_publish_that_loses_the_race_for_the_head_tries_again(place: Place) -> None:
    graph = place.init()
    other, repository = place.open(), repository_of(graph)
    publisher = interrupted(repository, lambda: move(other, CITY), times=3)
    mine = draft(repository)
    published = publisher.publish(
        MAIN_INCARNATION,
        draft=mine,
        requirements=Requirements(written={PERSON: entry(repository)}),
        updates=Updates(),
    )
    assert published.manifest_version == 5
    commits = graph.list_commits()
    assert commits[0].graph_commit_id == mine.graph_commit_id
    assert [c.parent_commit_id for c in commits[:-1]] == [c.graph_commit_id for c in commits[1:]]


def test_a_loser_whose_table_moved_is_refused_and_nothing_lands(local_place: Place) -> None:
    graph = local_place.init()
    other, repository = local_place.open(), repository_of(graph)
    publisher = interrupted(repository, lambda: move(other))
    with pytest.raises(ExpectedVersionMismatchError):
        publisher.publish(
            MAIN_INCARNATION,
            draft=draft(repository),
            requirements=Requirements(written={PERSON: entry(repository)}),
            updates=Updates(entries=(replace(entry(repository), table_version=9),)),
        )
    assert entry(repository).table_version == 2
    assert len(graph.list_commits()) == 2


def test_a_publish_that_keeps_losing_gives_up_at_its_deadline(local_place: Place) -> None:
    graph = local_place.init()
    other, repository = local_place.open(), repository_of(graph)
    publisher = interrupted(repository, lambda: move(other, CITY), times=10**6)
    with pytest.raises(PublishTimeoutError, match="branch 'main' in"):
        publisher.publish(
            MAIN_INCARNATION,
            draft=draft(repository),
            requirements=Requirements(),
            updates=Updates(),
            deadline_s=1.0,
        )


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_a_publish_staged_ahead_is_used_only_on_the_state_that_it_was_made_from(
    local_place: Place, is_overtaken: bool
) -> None:
    graph = local_place.init()
    other, repository = local_place.open(), repository_of(graph)
    counting = FaultPlan()
    publisher = publisher_on(faulty(repository.store, counting), repository)
    mine = draft(repository)
    updates = Updates(rows=(voided_row("DEAD", "OP"),))
    state = publisher.require(MAIN_INCARNATION, Requirements())
    with publisher.prestage(MAIN_INCARNATION, state, draft=mine, updates=updates) as ahead:
        written = len(counting.effects)
        if is_overtaken:
            move(other, CITY)
        publisher.publish(
            MAIN_INCARNATION,
            draft=mine,
            requirements=Requirements(),
            updates=updates,
            prestaged=ahead,
        )
    later = [effect.name for effect in counting.effects[written:]]
    staged_again = ["datasets.stage_update"] if is_overtaken else []
    assert later == [*staged_again, "datasets.commit_staged"]
    assert head(repository).is_voided("DEAD")
    commits = graph.list_commits()
    assert commits[0].graph_commit_id == mine.graph_commit_id
    assert commits[0].parent_commit_id == commits[1].graph_commit_id


def test_a_publish_whose_rows_could_not_be_staged_ahead_stages_them_itself(
    local_place: Place,
) -> None:
    repository = repository_of(local_place.init())
    store = faulty(repository.store, FaultPlan(at=1, mode=FaultMode.FAIL_BEFORE))
    publisher = publisher_on(store, repository)
    mine = draft(repository)
    state = publisher.require(MAIN_INCARNATION, Requirements())
    with publisher.prestage(MAIN_INCARNATION, state, draft=mine, updates=Updates()) as ahead:
        assert ahead.exception() is not None
        publisher.publish(
            MAIN_INCARNATION,
            draft=mine,
            requirements=Requirements(),
            updates=Updates(),
            prestaged=ahead,
        )
    assert head(repository).is_published(mine.graph_commit_id)


def test_maintenance_of_the_manifest_may_come_in_between(place: Place) -> None:
    """Lance moves the commit over it; the record says where it really is."""
    graph = place.init()
    repository = repository_of(graph)
    datasets = place.store().datasets

    def set_metadata() -> None:
        base = DatasetVersion(MANIFEST, None, datasets.head_version(MANIFEST))
        datasets.commit_staged(datasets.stage_metadata(base, schema_metadata={"note": "x"}))

    published = interrupted(repository, set_metadata).publish(
        MAIN_INCARNATION, draft=draft(repository), requirements=Requirements(), updates=Updates()
    )
    assert published.manifest_version == 3
    assert published.commit is not None
    found = graph.get_commit(published.commit.graph_commit_id)
    assert found.manifest_version == 3
    snapshot = graph.snapshot_at_version(3)
    assert snapshot.commit_id == found.graph_commit_id


def test_two_publishes_from_one_state_collide_in_storage(place: Place) -> None:
    """The head row is what history hangs on: the second of two staged rewrites is refused."""
    graph = place.init()
    repository, rival = repository_of(graph), repository_of(place.open())
    staged = []

    class CaptureError(Exception):
        pass

    original = repository.store.datasets.commit_staged

    def capture(transaction: StagedTransaction, *, exact: bool = True) -> CommittedRange:
        if transaction.base.location != MANIFEST:
            return original(transaction, exact=exact)  # Of the background.
        staged.append(transaction)
        raise CaptureError

    repository.store.datasets.commit_staged = capture  # type: ignore[method-assign]  # the test watches it
    with pytest.raises(CaptureError):
        publish(repository)
    repository.store.datasets.commit_staged = original  # type: ignore[method-assign]  # the test watches it
    publish(rival)
    with pytest.raises(StaleBaseError):
        repository.store.datasets.commit_staged(staged[0], exact=False)
    assert head(repository).version == 2


def test_an_unknown_outcome_is_reported_as_such_and_told_by_the_commit_id(
    local_place: Place,
) -> None:
    graph = local_place.init()
    repository = repository_of(graph)
    counting = FaultPlan()
    store = faulty(repository.store, counting)
    publisher = publisher_on(store, repository)
    publisher.publish(
        MAIN_INCARNATION, draft=draft(repository), requirements=Requirements(), updates=Updates()
    )
    last = len(counting.effects)
    for mode, landed in ((FaultMode.FAIL_AFTER, True), (FaultMode.FAIL_BEFORE, False)):
        store = faulty(repository.store, FaultPlan(at=last, mode=mode))
        publisher = publisher_on(store, repository)
        mine = draft(repository)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - looked at below
            publisher.publish(
                MAIN_INCARNATION, draft=mine, requirements=Requirements(), updates=Updates()
            )
        assert isinstance(caught.value, WriteOutcomeUnknownError) is landed
        assert head(repository).is_published(mine.graph_commit_id) is landed


def test_unordered_writers_of_one_table_lose_with_a_conflict(local_place: Place) -> None:
    one = repository_of(local_place.init())
    two = repository_of(local_place.open())
    state = two.reader.latest(MAIN_INCARNATION)
    append_unordered(one, MAIN_INCARNATION, {PERSON: people("first")})
    base = DatasetVersion(state.entries[PERSON].location, None, 1)
    with pytest.raises(StaleBaseError):
        two.store.datasets.commit_staged(two.store.datasets.stage_append(base, people("second")))
    assert ids(local_place.open().snapshot()) == ["first"]


def test_a_machine_that_slept_through_the_deadline_tries_again(local_place: Place) -> None:
    graph = local_place.init()
    other, repository = local_place.open(), repository_of(graph)
    published = interrupted(repository, lambda: move(other, CITY)).publish(
        MAIN_INCARNATION,
        draft=draft(repository),
        requirements=Requirements(),
        updates=Updates(),
        deadline_s=-1.0,
    )
    assert published.commit is not None
    assert graph.list_commits()[0].graph_commit_id == published.commit.graph_commit_id
