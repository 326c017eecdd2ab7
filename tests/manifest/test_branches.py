"""Branch semantics, on disk and on S3."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from omnigraph.graph import Graph, InvalidActorError, ReadOnlyGraphError
from omnigraph.manifest import OpenMode, ReadTarget
from omnigraph.manifest.branches import Branches, Origin
from omnigraph.manifest.errors import (
    BranchConflictError,
    BranchGoneError,
    BranchNotFoundError,
    BranchRefusedError,
    SchemaApplyInProgressError,
)
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST, Incarnation
from omnigraph.manifest.locks.branch_lock import BranchLockLostError
from omnigraph.manifest.locks.lease_locks import LeaseBranchLocks
from omnigraph.names import SCHEMA_APPLY_LOCK, BranchName, IllegalNameError
from omnigraph.store.errors import StorageUnavailableError
from support.clocks import ManualClock
from support.faulty_store import FaultMode, FaultPlan, faulty
from support.places import PERSON, Place, add, ids, repository_of
from support.s3 import Request, S3Server
from support.writer import append_unordered, people


def read(graph: Graph, branch: str) -> list[str]:
    return ids(graph.snapshot_of(ReadTarget.branch(branch)))


# -- creating --------------------------------------------------------------------------------------


def test_a_branch_starts_as_its_source_and_goes_its_own_way(graph: Graph) -> None:
    add(graph, "ann")
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    add(graph, "eve")
    assert read(graph, "dev") == ["ann", "bob"]
    assert read(graph, "main") == ["ann", "eve"]


def test_a_branch_is_cut_from_the_bound_branch_or_a_named_one(place: Place) -> None:
    graph = place.init()
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    bound = place.open("dev")
    bound.branch_create("dev-copy")
    graph.branch_create_from("dev", "second")
    graph.branch_create("from-main")
    assert read(graph, "dev-copy") == read(graph, "second") == ["bob"]
    assert read(graph, "from-main") == []


def test_names_are_listed_sorted_with_main_first(graph: Graph) -> None:
    for name in ("zeta", "alpha", "team/b", "team/a", "Main"):
        graph.branch_create(name)
    assert graph.branch_list() == ["main", "Main", "alpha", "team/a", "team/b", "zeta"]


def test_main_cannot_be_created(graph: Graph) -> None:
    with pytest.raises(BranchRefusedError, match="'main' always exists"):
        graph.branch_create("main")


def test_an_existing_name_is_refused(graph: Graph) -> None:
    graph.branch_create("team/dev")
    with pytest.raises(BranchConflictError, match="'team/dev' already exists"):
        graph.branch_create(" team/dev ")
    assert graph.branch_list() == ["main", "team/dev"]


@pytest.mark.parametrize(
    ("first", "second"), [("a", "a/b"), ("a/b", "a"), ("a/b", "a/b/c"), ("a/b/c", "a")]
)
def test_a_name_cannot_be_a_path_prefix_of_a_live_one(
    local_graph: Graph, first: str, second: str
) -> None:
    local_graph.branch_create(first)
    with pytest.raises(BranchConflictError, match=f"cannot exist beside '{first}'"):
        local_graph.branch_create(second)
    local_graph.branch_create("ab")
    local_graph.branch_delete(first)
    local_graph.branch_create(second)
    assert local_graph.branch_list() == ["main", *sorted(["ab", second])]


def test_nothing_can_be_created_below_main(local_graph: Graph) -> None:
    with pytest.raises(BranchConflictError, match="cannot exist beside 'main'"):
        local_graph.branch_create("main/x")


def test_a_legacy_run_name_is_an_ordinary_name(local_graph: Graph) -> None:
    local_graph.branch_create("__run__7")
    assert local_graph.branch_list() == ["main", "__run__7"]


def test_a_branch_of_an_unknown_source_names_the_nearest(local_graph: Graph) -> None:
    local_graph.branch_create("feature")
    with pytest.raises(BranchNotFoundError) as caught:
        local_graph.branch_create_from("featrue", "x")
    assert caught.value.hint == "did you mean 'feature'?"


# -- the lock branch -------------------------------------------------------------------------------


@pytest.fixture
def locked(graph: Graph) -> Graph:
    """A graph on which a schema change is under way."""
    graph.branch_create("dev")
    datasets = repository_of(graph).store.datasets
    head = datasets.head_version(MANIFEST)
    datasets.create_branch(MANIFEST, SCHEMA_APPLY_LOCK, from_version=head)
    return graph


def test_the_lock_branch_is_hidden_and_refused_everywhere(locked: Graph, place: Place) -> None:
    assert locked.branch_list() == ["main", "dev"]
    for call in (
        lambda: locked.branch_create(SCHEMA_APPLY_LOCK),
        lambda: locked.branch_create_from(SCHEMA_APPLY_LOCK, "x"),
        lambda: locked.branch_delete(SCHEMA_APPLY_LOCK),
        lambda: locked.sync_branch(SCHEMA_APPLY_LOCK),
        lambda: locked.snapshot_of(ReadTarget.branch(SCHEMA_APPLY_LOCK)),
        lambda: locked.list_commits(SCHEMA_APPLY_LOCK),
        lambda: locked.merge_base("main", SCHEMA_APPLY_LOCK),
        lambda: place.open(SCHEMA_APPLY_LOCK),
    ):
        with pytest.raises(IllegalNameError, match="reserved"):
            call()


def test_no_branch_is_cut_from_one_whose_schema_changes(local_place: Place) -> None:
    graph, changing = local_place.init(), repository_of(local_place.open())
    graph.branch_create("dev")
    with changing.branch_locks.take(BranchName("main"), operation_id="APPLY"):
        changing.branches.set_schema_lock(MAIN_INCARNATION)
        with pytest.raises(SchemaApplyInProgressError, match="branch create is unavailable"):
            graph.branch_create("new")
        graph.branch_create_from("dev", "newer")
        graph.branch_delete("newer")
        assert graph.branch_list() == ["main", "dev"]
        changing.branches.clear_schema_lock(MAIN_INCARNATION)
    graph.branch_create("new")
    graph.branch_delete("dev")


def test_the_mark_of_a_schema_change_that_died_is_removed(locked: Graph) -> None:
    locked.branch_create("new")
    assert not repository_of(locked).branches.has_schema_lock(MAIN_INCARNATION)
    locked.branch_delete("dev")
    assert locked.branch_list() == ["main", "new"]


# -- deleting --------------------------------------------------------------------------------------


def test_a_deleted_branch_is_gone_for_every_reader(place: Place) -> None:
    graph = place.init()
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    reader = place.open("dev")
    assert ids(reader.snapshot()) == ["bob"]
    graph.branch_delete("dev")
    assert graph.branch_list() == ["main"]
    for other in (graph, reader):
        with pytest.raises(BranchNotFoundError, match="branch 'dev' not found"):
            read(other, "dev")
    for call in (reader.snapshot, reader.refresh, reader.sync_branch, reader.list_commits):
        with pytest.raises(BranchGoneError, match="'dev' has been deleted"):
            call()


def test_a_snapshot_that_was_taken_before_stays_as_it_was(local_graph: Graph) -> None:
    local_graph.branch_create("dev")
    add(local_graph, "bob", branch="dev")
    snapshot = local_graph.snapshot_of(ReadTarget.branch("dev"))
    local_graph.branch_delete("dev")
    assert ids(snapshot) == ["bob"]


def test_main_the_bound_branch_and_unknown_ones_cannot_be_deleted(place: Place) -> None:
    place.init().branch_create("dev")
    graph = place.open("dev")
    with pytest.raises(BranchRefusedError, match="'main' cannot be deleted"):
        graph.branch_delete("main")
    with pytest.raises(BranchRefusedError, match="this handle is bound to"):
        graph.branch_delete("dev")
    with pytest.raises(BranchNotFoundError, match="'other' not found"):
        graph.branch_delete("other")
    assert graph.branch_list() == ["main", "dev"]


def test_a_branch_with_descendants_stays_until_they_are_gone(graph: Graph) -> None:
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    graph.branch_create_from("dev", "team/x")
    graph.branch_create_from("dev", "team/y")
    with pytest.raises(BranchConflictError, match="cut from it: 'team/x', 'team/y'"):
        graph.branch_delete("dev")
    assert read(graph, "team/x") == ["bob"]
    graph.branch_delete("team/x")
    graph.branch_delete("team/y")
    graph.branch_delete("dev")
    assert graph.branch_list() == ["main"]


def test_a_branch_with_tagged_commits_stays_until_they_are_untagged(graph: Graph) -> None:
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    graph.tag_create("v1", ReadTarget.branch("dev"))
    with pytest.raises(BranchConflictError, match="has tagged commits: 'v1'"):
        graph.branch_delete("dev")
    assert ids(graph.snapshot_of(ReadTarget.tag("v1"))) == ["bob"]
    graph.tag_delete("v1")
    graph.branch_delete("dev")


def test_a_tag_on_inherited_history_does_not_hold_a_branch(local_graph: Graph) -> None:
    local_graph.branch_create("dev")
    local_graph.tag_create("v1", ReadTarget.branch("dev"))
    local_graph.branch_delete("dev")
    assert local_graph.snapshot_of(ReadTarget.tag("v1")).manifest_version == 1


def test_pins_of_a_tag_that_never_came_to_be_do_not_hold_a_branch(graph: Graph) -> None:
    graph.branch_create("dev")
    published = add(graph, "bob", branch="dev")
    repository = repository_of(graph)
    incarnation = repository.branches.resolve(BranchName("dev"))
    repository.store.datasets.create_tag(
        MANIFEST, "omnigraph.X", branch=incarnation.text, version=published.manifest_version
    )
    graph.branch_delete("dev")
    assert graph.branch_list() == ["main"]
    assert repository.store.datasets.list_tags(MANIFEST) == ()


def test_leftovers_that_cannot_be_removed_do_not_fail_a_deletion(local_place: Place) -> None:
    local_place.init().branch_create("dev")
    plan = FaultPlan(at=1, mode=FaultMode.FAIL_AFTER)
    repository = local_place.repository()
    branches = Branches(
        datasets=faulty(repository.store, plan).datasets,
        reader=repository.reader,
        branch_locks=repository.branch_locks,
        clock=repository.clock,
    )
    branches.delete(BranchName("dev"), bound=BranchName("main"), operation_id="X")
    assert plan.has_fired
    assert local_place.open().branch_list() == ["main"]


def test_a_deletion_that_did_not_happen_says_so(local_place: Place) -> None:
    local_place.init().branch_create("dev")
    plan = FaultPlan(at=1, mode=FaultMode.FAIL_BEFORE)
    repository = local_place.repository()
    branches = Branches(
        datasets=faulty(repository.store, plan).datasets,
        reader=repository.reader,
        branch_locks=repository.branch_locks,
        clock=repository.clock,
    )
    with pytest.raises(StorageUnavailableError):
        branches.delete(BranchName("dev"), bound=BranchName("main"), operation_id="X")
    assert local_place.open().branch_list() == ["main", "dev"]


def branch_files(place: Place, incarnation: Incarnation) -> tuple[Path, Path]:
    """Return the ref of a branch and the directory of its files."""
    root = Path(place.uri) / MANIFEST
    encoded = incarnation.text.replace("/", "%2F")
    return root / "_refs" / "branches" / f"{encoded}.json", root / "tree" / incarnation.text


def test_a_creation_that_stopped_before_its_ref_is_no_branch(local_place: Place) -> None:
    graph = local_place.init()
    add(graph, "ann")
    graph.branch_create("team/dev")
    incarnation = repository_of(graph).branches.resolve(BranchName("team/dev"))
    ref, files = branch_files(local_place, incarnation)
    ref.unlink()
    assert files.is_dir()
    for handle in (graph, local_place.open()):
        assert handle.branch_list() == ["main"]
        with pytest.raises(BranchNotFoundError):
            read(handle, "team/dev")
        with pytest.raises(BranchGoneError):
            repository_of(handle).reader.latest(incarnation)
    graph.branch_create("team/dev")
    assert read(graph, "team/dev") == ["ann"]


def test_a_deletion_that_stopped_after_its_flip_has_happened(local_place: Place) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    reader = local_place.open("dev")
    incarnation = repository_of(graph).branches.resolve(BranchName("dev"))
    ref, files = branch_files(local_place, incarnation)
    ref.unlink()
    assert files.is_dir()
    with pytest.raises(BranchGoneError):
        reader.snapshot()
    with pytest.raises(BranchNotFoundError):
        graph.branch_delete("dev")
    with pytest.raises(BranchGoneError):
        append_unordered(repository_of(reader), incarnation, {PERSON: people("late")})
    graph.branch_create("dev")
    assert read(graph, "dev") == []


# -- incarnations ----------------------------------------------------------------------------------


def test_a_name_created_again_is_another_branch(place: Place) -> None:
    graph = place.init()
    graph.branch_create("dev")
    add(graph, "old", branch="dev")
    old = repository_of(graph).branches.resolve(BranchName("dev"))
    handle = place.open("dev")
    graph.branch_delete("dev")
    graph.branch_create("dev")
    new = repository_of(graph).branches.resolve(BranchName("dev"))
    assert old != new
    assert read(graph, "dev") == []
    with pytest.raises(BranchGoneError, match=old.text):
        handle.sync_branch()
    handle.sync_branch("dev")
    assert ids(handle.snapshot()) == []


def test_a_late_writer_of_an_old_incarnation_reaches_nothing(place: Place) -> None:
    """It has read the branch, staged and committed its table; then the name gets another life."""
    graph = place.init()
    graph.branch_create("dev")
    add(graph, "first", branch="dev")
    late = repository_of(place.open("dev"))
    old = late.branches.resolve(BranchName("dev"))
    inner = late.store.datasets.commit_staged

    def commit_after_rebirth(staged: object, *, exact: bool = True) -> object:
        if getattr(staged, "base").location == MANIFEST:  # noqa: B009 - a staged transaction
            graph.branch_delete("dev")
            graph.branch_create("dev")
        return inner(staged, exact=exact)  # type: ignore[arg-type]  # passed on as they are

    late.store.datasets.commit_staged = commit_after_rebirth  # type: ignore[method-assign, assignment]  # the test watches it
    with pytest.raises(BranchGoneError, match=old.text):
        append_unordered(late, old, {PERSON: people("late")})
    assert read(graph, "dev") == []
    assert read(graph, "main") == []
    with pytest.raises(BranchGoneError, match=old.text):
        late.reader.latest(old)
    with pytest.raises(BranchGoneError, match=old.text):
        append_unordered(late, old, {PERSON: people("later")})


def test_a_branch_knows_where_it_was_cut(graph: Graph) -> None:
    add(graph, "ann")
    graph.branch_create("dev")
    published = add(graph, "bob", branch="dev")
    graph.branch_create_from("dev", "leaf")
    branches = repository_of(graph).branches
    dev, leaf = (branches.resolve(BranchName(name)) for name in ("dev", "leaf"))
    assert branches.origin(dev) == Origin(MAIN_INCARNATION, 2)
    assert branches.origin(leaf) == Origin(dev, published.manifest_version)
    assert branches.is_alive(dev)
    graph.branch_delete("leaf")
    assert not branches.is_alive(leaf)
    with pytest.raises(BranchGoneError):
        branches.origin(leaf)


def test_of_two_incarnations_the_younger_one_is_the_branch(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    for ulid in ("01JC0000000000000000000002", "01JC0000000000000000000001"):
        name = Incarnation.new(BranchName("dev"), ulid).text
        repository.store.datasets.create_branch(MANIFEST, name, from_version=1)
    found = repository.branches.resolve(BranchName("dev"))
    assert found.text == "dev.01JC0000000000000000000002"


def test_a_creator_that_lost_its_lock_takes_its_branch_back(s3_place: Place) -> None:
    """It was paused while it cut the branch, and its successor has made one of that name."""
    graph = s3_place.init()
    repository = repository_of(graph)
    clock = ManualClock(first_ulid=77)
    branch_locks = LeaseBranchLocks(
        root="paused", objects=repository.store.objects, clock=clock, owner_id="paused"
    )
    datasets = s3_place.store().datasets
    inner = datasets.create_branch

    def paused(location: str, name: str, **options: object) -> object:
        clock.advance(60)
        # The successor has no ten seconds to wait: the leases go as if they had run out.
        for branch in ("dev", "main"):
            repository.store.objects.delete(f"__leases/{branch}.json")
        graph.branch_create("dev")
        return inner(location, name, **options)  # type: ignore[arg-type]  # passed on as they are

    datasets.create_branch = paused  # type: ignore[method-assign, assignment]  # the test watches it
    branches = Branches(
        datasets=datasets, reader=repository.reader, branch_locks=branch_locks, clock=clock
    )
    with pytest.raises(BranchLockLostError):
        branches.create(BranchName("dev"), source=MAIN_INCARNATION, operation_id="P")
    assert datasets.branch_names(MANIFEST) == (repository.branches.resolve(BranchName("dev")).text,)


def test_a_source_cannot_be_deleted_while_a_branch_is_cut_from_it(local_place: Place) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    other = local_place.open()
    repository = repository_of(graph)
    inner = repository.store.datasets.create_branch
    outcome: list[BaseException] = []

    def delete() -> None:
        try:
            other.branch_delete("dev")
        except BranchConflictError as error:
            outcome.append(error)

    deleter = threading.Thread(target=delete)

    def slowly(location: str, name: str, **options: object) -> object:
        deleter.start()
        deleter.join(0.2)
        assert deleter.is_alive(), "the deletion did not wait for its lock"
        return inner(location, name, **options)  # type: ignore[arg-type]  # passed on as they are

    repository.store.datasets.create_branch = slowly  # type: ignore[method-assign, assignment]  # the test watches it
    graph.branch_create_from("dev", "leaf")
    deleter.join()
    assert "'leaf'" in str(outcome[0])
    assert read(local_place.open(), "leaf") == ["bob"]


# -- handles ---------------------------------------------------------------------------------------


def test_sync_branch_rebinds_a_handle(graph: Graph) -> None:
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    graph.sync_branch("dev")
    assert graph.branch == "dev"
    assert ids(graph.snapshot()) == ["bob"]
    graph.sync_branch("main")
    assert ids(graph.snapshot()) == []
    with pytest.raises(BranchNotFoundError):
        graph.sync_branch("nowhere")
    assert graph.branch == "main"


def test_a_read_only_graph_refuses_every_change(place: Place) -> None:
    place.init().branch_create("dev")
    graph = place.open(mode=OpenMode.READ_ONLY)
    for call in (
        lambda: graph.branch_create("x"),
        lambda: graph.branch_create_from("dev", "x"),
        lambda: graph.branch_delete("dev"),
        lambda: graph.tag_create("v1"),
        lambda: graph.tag_delete("v1"),
    ):
        with pytest.raises(ReadOnlyGraphError, match="opened for writing"):
            call()
    assert graph.branch_list() == ["main", "dev"]


# -- what it costs ---------------------------------------------------------------------------------


def of_the_work(requests: list[Request]) -> list[Request]:
    """Leave out the lease: it is renewed every two seconds, so its requests grow with the time."""
    return [request for request in requests if "/__leases/" not in request.path]


def test_requests_do_not_grow_with_the_number_of_branches(s3: S3Server, s3_place: Place) -> None:
    graph = s3_place.init_quiet()

    def requests_of(name: str) -> tuple[int, int, int]:
        with s3.requests() as created:
            graph.branch_create(name)
        with s3.requests() as listed:
            graph.branch_list()
        add(graph, name, branch=name)
        with s3.requests() as read_again:
            graph.snapshot_of(ReadTarget.branch(name))
        return len(of_the_work(created)), len(listed), len(read_again)

    requests_of("warm")
    first = requests_of("b0")
    for number in range(1, 8):
        graph.branch_create(f"b{number}")
    assert requests_of("last") == first
    created, listed, _ = first
    assert created < 17
    assert listed == 1


def test_creating_and_deleting_takes_less_than_twenty_requests(
    s3: S3Server, s3_place: Place
) -> None:
    graph = s3_place.init_quiet()
    for number in range(3):
        add(graph, f"p{number}")
    with s3.requests() as created:
        graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    with s3.requests() as deleted:
        graph.branch_delete("dev")
    assert len(of_the_work(created)) < 17
    assert len(of_the_work(deleted)) < 17


def test_siblings_can_be_created_and_deleted_at_once(local_place: Place) -> None:
    """Lance removes the directory that siblings share with the last of them that it knows."""
    graph = local_place.init()
    add(graph, "ann")
    graph.branch_create("team/old")
    errors: list[BaseException] = []

    def churn(name: str) -> None:
        own = local_place.open()
        try:
            for _ in range(8):
                own.branch_create(name)
                assert read(own, name) == ["ann"]
                own.branch_delete(name)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    graph.branch_delete("team/old")
    threads = [threading.Thread(target=churn, args=(f"team/{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert graph.branch_list() == ["main"]


def test_deleting_waits_while_a_sibling_is_being_created(local_place: Place) -> None:
    graph, other = local_place.init(), local_place.open()
    graph.branch_create("team/old")
    datasets = repository_of(graph).store.datasets
    inner = datasets.create_branch
    deleter = threading.Thread(target=lambda: other.branch_delete("team/old"))

    def slowly(location: str, name: str, **options: object) -> object:
        deleter.start()
        deleter.join(0.2)
        assert deleter.is_alive(), "the deletion did not wait for its lock"
        return inner(location, name, **options)  # type: ignore[arg-type]  # passed on as they are

    datasets.create_branch = slowly  # type: ignore[method-assign, assignment]  # the test watches it
    graph.branch_create("team/new")
    deleter.join()
    assert local_place.open("team/new").branch_list() == ["main", "team/new"]


def test_branches_of_different_names_come_and_go_at_once(local_place: Place) -> None:
    """Lance reads every ref while it deletes one, and fails when another one goes meanwhile."""
    local_place.init()
    errors: list[BaseException] = []

    def churn(name: str) -> None:
        own = local_place.open()
        try:
            for _ in range(8):
                own.branch_create(name)
                own.branch_delete(name)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=churn, args=(f"b{n}",)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert local_place.open().branch_list() == ["main"]


@pytest.mark.parametrize("actor_id", ["omnigraph:recovery", "omnigraph:", "omnigraph:me"])
def test_actors_of_the_system_are_refused_from_callers(local_place: Place, actor_id: str) -> None:
    with pytest.raises(InvalidActorError):
        Graph.init(local_place.uri, "node Person { name: String @key }", actor_id=actor_id)
    assert not Path(local_place.uri).exists()
    graph = local_place.init()
    graph.branch_create("dev", actor_id="omnigraph")
    for call in (
        lambda: graph.branch_create("x", actor_id=actor_id),
        lambda: graph.branch_create_from("dev", "x", actor_id=actor_id),
        lambda: graph.branch_delete("dev", actor_id=actor_id),
        lambda: graph.tag_create("v1", actor_id=actor_id),
    ):
        with pytest.raises(InvalidActorError, match="belong"):
            call()
    assert graph.branch_list() == ["main", "dev"]
    assert graph.tag_list() == []
