"""Cleanup removes what nothing needs, and never anything else."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph import failpoints
from omnigraph.clock import SystemClock
from omnigraph.errors import InvalidInputError, NotFoundError
from omnigraph.graph import CleanupResult, DatasetCleanup, Graph, OpenMode, ReadTarget
from omnigraph.maintenance.cleanup.needed import (
    CleanupPolicy,
    Needs,
    need_published,
    published_entries,
    removable,
    removable_manifest_versions,
)
from omnigraph.maintenance.cleanup.report import TEMPORARY_FILES
from omnigraph.manifest import Entry
from omnigraph.manifest.layout import MANIFEST
from omnigraph.manifest.locks.branch_lock import take_unless_held
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.store import topology_path
from omnigraph.store.errors import StagedFilesLostError, StorageUnavailableError
from omnigraph.store.lance.refs import LanceRefs
from omnigraph.store.records import DatasetVersion, VersionInfo
from support.clocks import DAY_S, WrongClock
from support.places import (
    CITY,
    KNOWS,
    PERSON,
    SCHEMA,
    Place,
    add,
    graph_on,
    ids,
    repository_of,
    tree,
)


def clean(place: Place, *, keep: int = 1, confirm: bool = True, **options: int) -> CleanupResult:
    """Clean up two days later, when nothing that was made so far is young."""
    graph = place.open(clock=WrongClock(2 * DAY_S))
    result = graph.cleanup(keep_versions=keep, confirm=confirm, **options)
    assert [each.error for each in result.datasets if each.error] == []
    return result


def of(result: CleanupResult, key: str) -> DatasetCleanup:
    return next(each for each in result.datasets if each.type_key == key)


def filled(place: Place, *names: str) -> Graph:
    graph = place.init()
    for name in names:
        add(graph, name)
    return graph


def readable(place: Place) -> list[int]:
    """The manifest versions of `main` that can be read whole."""
    graph = place.open()
    found = []
    for version in range(1, graph.snapshot().manifest_version + 1):
        try:
            snapshot = graph.snapshot_at_version(version)
        except NotFoundError:
            continue
        for key in snapshot.entries:
            snapshot.open(key).scan().read_all()
        found.append(version)
    return found


def test_a_policy_is_needed_and_checked() -> None:
    for wrong in ({}, {"keep_versions": 0}, {"keep_versions": 1, "orphan_age_s": -1}):
        with pytest.raises(InvalidInputError):
            CleanupPolicy(**wrong)
    assert "removes versions to roll back to" in (CleanupPolicy(2).warning or "")
    assert "what running writes have prepared" in (CleanupPolicy(10, None, 60).warning or "")
    assert CleanupPolicy(10).warning is None
    assert CleanupPolicy(3).warning is None


def test_without_confirmation_nothing_changes(place: Place) -> None:
    filled(place, "ann", "bob", "cas")
    before = tree(Path(place.uri))
    result = clean(place, confirm=False)
    assert of(result, PERSON).old_versions_removed > 0
    after = tree(Path(place.uri))
    assert {p: v for p, v in after.items() if not p.startswith("__leases")} == {
        p: v for p, v in before.items() if not p.startswith("__leases")
    }


def test_what_is_kept_is_readable_and_the_rest_is_gone(place: Place) -> None:
    graph = filled(place, "ann", "bob", "cas", "dan")
    head = graph.snapshot().manifest_version
    assert readable(place) == list(range(1, head + 1))
    result = clean(place, keep=2)
    assert of(result, PERSON).old_versions_removed == 3
    assert of(result, PERSON).bytes_removed > 0
    assert readable(place) == [head - 1, head]
    assert ids(place.open().snapshot()) == ["ann", "bob", "cas", "dan"]
    assert clean(place, keep=2).datasets[0].old_versions_removed == 0


def test_recently_published_versions_stay(place: Place) -> None:
    graph = filled(place, "ann", "bob")
    result = graph.cleanup(keep_versions=1, confirm=True)
    assert all(each.old_versions_removed == 0 for each in result.datasets)
    assert readable(place) == [1, 2, 3]


def test_both_options_remove_only_what_neither_keeps(place: Place) -> None:
    filled(place, "ann", "bob", "cas")
    clean(place, keep=1, older_than_s=3 * DAY_S)
    assert readable(place) == [1, 2, 3, 4]
    clean(place, keep=3, older_than_s=DAY_S)
    assert readable(place) == [2, 3, 4]


def test_age_alone_removes_by_age(place: Place) -> None:
    filled(place, "ann", "bob")
    late = place.open(clock=WrongClock(5 * DAY_S))
    add(late, "cas")
    late.cleanup(older_than_s=2 * DAY_S, confirm=True)
    assert readable(place) == [3, 4], "version 3 was the head until a moment ago"


def test_what_a_branch_inherits_stays(place: Place) -> None:
    graph = filled(place, "ann")
    graph.branch_create("dev")
    add(graph, "bob")
    add(graph, "cas")
    clean(place)
    assert ids(place.open("dev").snapshot()) == ["ann"]
    add(place.open("dev"), "dan")
    assert ids(place.open("dev").snapshot()) == ["ann", "dan"]
    add(graph, "eve")
    clean(place)
    assert ids(place.open("dev").snapshot()) == ["ann", "dan"]
    assert ids(place.open().snapshot()) == ["ann", "bob", "cas", "eve"]


def test_the_merge_base_of_two_branches_stays(place: Place) -> None:
    graph = filled(place, "ann")
    base = graph.snapshot().commit_id
    graph.branch_create("dev")
    for name in ("bob", "cas"):
        add(graph, name)
        add(graph, f"{name}2", branch="dev")
    clean(place)
    found = place.open().merge_base("dev", "main")
    assert found is not None
    assert found.graph_commit_id == base
    assert ids(place.open().snapshot_of(ReadTarget.commit(base))) == ["ann"]


def test_what_a_tag_names_stays_until_the_tag_goes(place: Place) -> None:
    graph = filled(place, "ann")
    graph.tag_create("first")
    add(graph, "bob")
    add(graph, "cas")
    clean(place)
    assert ids(place.open().snapshot_of(ReadTarget.tag("first"))) == ["ann"]
    commit = next(tag.commit_id for tag in place.open().tag_list())
    place.open().tag_delete("first")
    clean(place)
    with pytest.raises(NotFoundError):
        ids(place.open().snapshot_of(ReadTarget.commit(commit)))


def test_the_head_commit_can_be_found_below_versions_without_a_commit(place: Place) -> None:
    graph = filled(place, "ann")
    graph.branch_create("dev")
    graph.tag_create("one")
    graph.tag_delete("one")
    head = graph.head_commit_id_for_branch()
    clean(place)
    assert ids(place.open().snapshot_of(ReadTarget.commit(head))) == ["ann"]
    place.open().tag_create("two")
    place.open("dev").tag_create("three")


def test_a_pin_without_a_tag_is_let_go(place: Place) -> None:
    graph = filled(place, "ann", "bob")
    datasets = repository_of(graph).store.datasets
    entry = graph.snapshot().entries[PERSON]
    pin = f"omnigraph.{SystemClock().ulid()}"
    datasets.create_tag(entry.location, pin, branch=None, version=2)
    graph.cleanup(keep_versions=1, confirm=True)
    assert len(datasets.list_tags(entry.location)) == 1
    clean(place)
    assert datasets.list_tags(entry.location) == ()


def test_forks_of_deleted_branches_are_reclaimed(place: Place) -> None:
    graph = filled(place, "ann")
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    graph.branch_create("live")
    add(graph, "cas", branch="live")
    graph.branch_delete("dev")
    location = graph.snapshot().entries[PERSON].location
    datasets = repository_of(graph).store.datasets
    graph.cleanup(keep_versions=1, confirm=True)
    assert len(datasets.list_branches(location)) == 2, "young forks stay"
    result = clean(place)
    assert of(result, PERSON).forks_removed == 1
    (left,) = place.store().datasets.list_branches(location)
    assert left.name.startswith("live.")
    assert ids(place.open("live").snapshot()) == ["ann", "cas"]


def test_a_dropped_type_goes_when_no_snapshot_shows_it(place: Place) -> None:
    graph = filled(place, "ann")
    location = graph.snapshot().entries[PERSON].location
    graph.apply_schema("node City {\n    name: String @key\n    age: I32?\n}\n")
    clean(place, keep=2)
    assert (Path(place.uri) / location).exists()
    assert len(readable(place)) == 2
    result = clean(place, keep=1)
    assert of(result, PERSON).dataset_removed
    assert not (Path(place.uri) / location).exists()
    assert sorted(place.open().snapshot().entries) == [CITY]
    assert len(readable(place)) == 1


def test_a_renamed_type_is_never_taken_for_a_dropped_one(place: Place) -> None:
    graph = filled(place, "ann")
    renamed = SCHEMA.replace("node Person {", 'node Human @rename_from("Person") {')
    graph.apply_schema(renamed.replace("Person -> Person", "Human -> Human"))
    clean(place)
    assert ids(place.open().snapshot(), "node:Human") == ["ann"]


def test_leftovers_of_dead_attempts_go_once_they_are_old(place: Place) -> None:
    graph = filled(place, "ann")
    datasets = repository_of(graph).store.datasets
    at = graph.snapshot().open(PERSON).at
    staged = datasets.stage_append(at, graph.snapshot().open(PERSON).scan().read_all())
    lost = Path(place.uri) / staged.files[0].path
    created = f"nodes/0123456789abcdef-{SystemClock().ulid()}"
    schema = graph.snapshot().open(PERSON).schema
    datasets.commit_staged(datasets.stage_create(created, schema))
    graph.cleanup(keep_versions=1, confirm=True)
    assert lost.exists()
    assert (Path(place.uri) / created).exists()
    result = clean(place)
    assert not lost.exists()
    assert not (Path(place.uri) / created).exists()
    assert of(result, created).dataset_removed
    assert ids(place.open().snapshot()) == ["ann"]


def left_behind(root: Path, *, age_s: int) -> list[Path]:
    """Make what a writer that died in a `put` leaves, in several folders."""
    table = next((root / "nodes").iterdir())
    made = []
    for folder in (root, root / "__recovery", root / "__staging" / "01X", table / "_refs" / "tags"):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f".og-put-{age_s:016x}"
        path.write_bytes(b"half a record")
        then = time.time() - age_s
        os.utime(path, (then, then))
        made.append(path)
    return made


@pytest.mark.parametrize("confirm", [False, True])
def test_temporary_files_of_writers_that_died_go_once_they_are_old(
    place: Place, *, confirm: bool
) -> None:
    filled(place, "ann").close()
    root = Path(place.uri)
    old, young = left_behind(root, age_s=90_000), left_behind(root, age_s=60)
    (root / "__recovery" / ".og-lock-x").touch()
    graph = place.open()
    (finding,) = [found for found in graph.examine() if found.topic == "leftovers"]
    assert "4 temporary files" in finding.message
    assert "cleanup" in (finding.remedy or "")
    report = of(graph.cleanup(keep_versions=1, confirm=confirm), TEMPORARY_FILES)
    assert (report.files_removed, report.bytes_removed, report.error) == (4, 4 * 13, None)
    assert [path.exists() for path in old] == [not confirm] * 4
    assert all(path.exists() for path in young)
    assert (root / "__recovery" / ".og-lock-x").exists()
    if confirm:
        assert "leftovers" not in [found.topic for found in graph.examine()]
        again = graph.cleanup(keep_versions=1, confirm=True)
        assert TEMPORARY_FILES not in [each.type_key for each in again.datasets]


def test_what_a_running_job_has_declared_is_spared(place: Place) -> None:
    graph = filled(place, "ann", "bob", "cas")
    repository = repository_of(graph)
    datasets = repository.store.datasets
    entry = graph.snapshot().entries[PERSON]
    at = graph.snapshot().open(PERSON).at
    staged = datasets.stage_append(at, graph.snapshot().open(PERSON).scan().read_all())
    record = {
        "files": [file.path for file in staged.files],
        "tables": [{"table_path": entry.location, "table_branch": None, "version": 2}],
    }
    path = "__staging/01J00000000000000000000000.json"
    repository.store.objects.put(path, orjson.dumps(record))
    graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    staged_file = Path(place.uri) / staged.files[0].path
    assert staged_file.exists(), "whatever the orphan age, a record that is renewed is alive"
    long_ago = SystemClock().now_us() / 1_000_000 - 600
    os.utime(Path(place.uri) / path, (long_ago, long_ago))
    graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert not staged_file.exists(), "a record that nobody renews is dead"


@pytest.mark.parametrize("confirm", [True, False])
def test_topology_files_of_edges_that_no_branch_has_any_more_go(
    place: Place, confirm: bool
) -> None:
    graph = filled(place, "ann")
    graph.branch_create("dev")
    objects = repository_of(graph).store.objects
    states = {"main at first": state_of(graph)}
    graph.mutate('query q() { insert Knows { from: "ann", to: "ann" } }')
    states["main"] = state_of(graph)
    graph.mutate('query q() { insert Knows { from: "ann", to: "ann" } }', branch="dev")
    states["dev"] = state_of(place.open("dev"))
    old = replace(states["main"], at=DatasetVersion("edges/gone", None, 1))
    paths = {name: topology_path(state) for name, state in states.items()}
    for path in (*paths.values(), topology_path(old)):
        objects.put(path, b"content")
    result = clean(place, confirm=confirm)
    stale = {paths["main at first"], topology_path(old)}
    left = {info.path for info in objects.list("_topology")}
    assert left == (set(paths.values()) - stale if confirm else set(paths.values()) | stale)
    assert of(result, "_topology").files_removed == len(stale)
    assert of(result, "_topology").bytes_removed == len(stale) * len(b"content")


def test_young_topology_files_stay(place: Place) -> None:
    graph = filled(place, "ann")
    objects = repository_of(graph).store.objects
    objects.put("_topology/edges-gone/0.topo", b"somebody reads an old snapshot")
    result = graph.cleanup(keep_versions=1, confirm=True)
    assert objects.list("_topology")
    assert "_topology" not in [each.type_key for each in result.datasets]


def state_of(graph: Graph) -> TableState:
    return TableState.of(graph.snapshot().open(KNOWS))


def test_forks_and_pins_that_a_power_failure_cut_off_do_not_stop_cleanup(place: Place) -> None:
    graph = filled(place, "ann", "bob", "cas")
    location = graph.snapshot().entries[PERSON].location
    refs = Path(place.uri) / location / "_refs"
    for kind in ("branches", "tags"):
        (refs / kind).mkdir(parents=True, exist_ok=True)
        (refs / kind / "torn.json").touch()
    assert of(clean(place), PERSON).old_versions_removed > 0
    assert not list(refs.rglob("*.json"))


def test_what_a_pending_record_needs_stays(place: Place) -> None:
    graph = filled(place, "ann", "bob")
    failpoints.arm("write.post_phase_b_pre_manifest_commit")
    try:
        with pytest.raises(failpoints.FailpointError):
            graph.mutate('query q() { insert Person { name: "cas" } }')
    finally:
        failpoints.disarm()
    (pending,) = graph.recovery_status()
    assert pending.intent is not None
    assert pending.intent.tables[0].table_key == PERSON
    late = graph_on(
        repository_of(place.open(mode=OpenMode.READ_ONLY)),
        incarnation=graph.snapshot().incarnation,
    )
    late.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert ids(place.open().snapshot()) == ["ann", "bob", "cas"]


def test_what_an_unsettled_write_has_prepared_stays(place: Place) -> None:
    """Its writer may only be paused, and goes on to commit these files."""
    graph, cleaner = place.init(), place.open(clock=WrongClock(2 * DAY_S))
    failpoints.arm("recovery.sidecar_write")
    try:
        with pytest.raises(failpoints.FailpointError):
            graph.mutate('query q() { insert Person { name: "ann" } insert City { name: "rome" } }')
    finally:
        failpoints.disarm()
    prepared = [p for p in tree(Path(place.uri)) if "/data/" in p]
    assert any(path.startswith("nodes/") for path in prepared)
    assert any(path.startswith(f"{MANIFEST}/") for path in prepared)
    cleaner.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert [p for p in tree(Path(place.uri)) if "/data/" in p] == prepared


def test_a_problem_with_one_dataset_stops_nothing_else(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(place, "ann", "bob")
    late = place.open(clock=WrongClock(2 * DAY_S))
    store = repository_of(late).store.datasets
    location = late.snapshot().entries[CITY].location
    listed = store.list_branches

    def broken(where: str) -> object:
        if where == location:
            raise StorageUnavailableError(path=where, reason="injected")
        return listed(where)

    monkeypatch.setattr(store, "list_branches", broken)
    result = late.cleanup(keep_versions=1, confirm=True)
    assert "injected" in (of(result, CITY).error or "")
    assert of(result, PERSON).old_versions_removed > 0
    assert of(result, KNOWS).error is None


def test_the_shape_is_the_contract(place: Place) -> None:
    filled(place)
    shape = clean(place).to_json()
    assert set(shape) == {"keep_versions", "older_than_secs", "datasets"}
    datasets = shape["datasets"]
    assert isinstance(datasets, list)
    assert datasets[0]["type_key"] == MANIFEST
    assert {"type_key", "bytes_removed", "old_versions_removed", "error"} <= set(datasets[0])


# -- the plan --------------------------------------------------------------------------------------


@given(
    spans=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    keep=st.none() | st.integers(1, 4),
    older=st.none() | st.integers(0, 20),
    young=st.integers(0, 5),
)
def test_every_snapshot_that_is_kept_can_be_read(
    spans: list[int], keep: int | None, older: int | None, young: int
) -> None:
    policy = CleanupPolicy(keep, older if keep is not None else older or 0, young)
    published, version = [], 0
    for span in spans:
        version += span
        entry = Entry("node:A", "nodes/a", None, len(published) + 1, version, 0, "main")
        published.append((version, entry))
    head = version + spans[-1]
    now = (head + 1) * 1_000_000
    stored = [VersionInfo(v, v * 1_000_000, 0, 0) for v in range(1, head + 1)]
    going = removable_manifest_versions(
        stored,
        needed=frozenset(),
        committed_at={info.version: info.created_us for info in stored},
        policy=policy,
        now=now,
    )
    assert head not in going
    retained = [v for v in range(1, head + 1) if v not in going]
    needs = Needs()
    history = published_entries(published, {v: v * 1_000_000 for v, _ in published})
    need_published(needs, history, retained=retained, policy=policy, now=now)
    tables = [VersionInfo(n, 0, 0, 0) for n in range(1, len(published) + 1)]
    gone = set(removable(tables, ("nodes/a", None), needs))
    for manifest_version in retained:
        shown = [e for v, e in published if v <= manifest_version]
        if shown:
            assert shown[-1].table_version not in gone
    assert len(published) not in gone
    if keep is not None:
        assert not gone & set(range(len(published) - keep + 1, len(published) + 1))


def test_a_mutation_prepares_again_when_a_cleanup_has_removed_its_files(place: Place) -> None:
    graph, cleaner = filled(place, "a"), place.open(clock=WrongClock(2 * DAY_S))

    def clean_up_once() -> None:
        failpoints.disarm()
        cleaner.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)

    failpoints.arm("write.post_stage", clean_up_once)
    try:
        graph.mutate('query q() { insert Person { name: "b" } }')
    finally:
        failpoints.disarm()
    assert ids(place.open().snapshot()) == ["a", "b"]


def clean_up_before_the_first_file(
    graph: Graph, cleaner: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let another process clean up when the next write of a handle has cut its fork."""
    datasets = repository_of(graph).store.datasets
    write = datasets.write_fragments

    def write_after_a_cleanup(base: DatasetVersion, *args: Any, **options: Any) -> Any:
        if base.branch is not None:  # The worker of the handle adds commits to derived tables.
            monkeypatch.undo()
            cleaner.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
        return write(base, *args, **options)

    monkeypatch.setattr(datasets, "write_fragments", write_after_a_cleanup)


def test_a_mutation_prepares_again_when_a_cleanup_has_removed_its_fork(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, cleaner = filled(place, "a"), place.open(clock=WrongClock(2 * DAY_S))
    graph.branch_create("draft")
    clean_up_before_the_first_file(graph, cleaner, monkeypatch)
    graph.mutate('query q() { insert Person { name: "b" } }', branch="draft")
    assert ids(place.open().snapshot_of(ReadTarget.branch("draft"))) == ["a", "b"]


def test_a_load_says_that_a_cleanup_has_removed_its_fork(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, cleaner = filled(place, "a"), place.open(clock=WrongClock(2 * DAY_S))
    graph.branch_create("draft")
    clean_up_before_the_first_file(graph, cleaner, monkeypatch)
    lines = b'{"type": "Person", "data": {"name": "b"}}'
    with pytest.raises(StagedFilesLostError, match="fork draft"):
        graph.load(lines, mode="append", branch="draft")
    assert ids(place.open().snapshot_of(ReadTarget.branch("draft"))) == ["a"]
    graph.load(lines, mode="append", branch="draft")
    assert ids(place.open().snapshot_of(ReadTarget.branch("draft"))) == ["a", "b"]


def test_leftovers_are_removed_while_nobody_else_has_a_lock(place: Place) -> None:
    graph, rival = filled(place, "a"), repository_of(place.open())
    _leave_a_dead_file(graph)
    cleaner = place.open(clock=WrongClock(2 * DAY_S))
    repository = repository_of(cleaner)
    objects, removed = repository.store.objects, []
    inner = objects.delete

    def delete(path: str) -> None:
        if path.endswith(".lance"):
            for branch in rival.branches.names():
                with take_unless_held(rival.branch_locks, branch, operation_id="x") as lock:
                    removed.append((path, lock))
        inner(path)

    objects.delete = delete  # type: ignore[method-assign]  # the test watches it
    cleaner.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert removed
    assert {lock for _, lock in removed} == {None}


def _leave_a_dead_file(graph: Graph) -> None:
    """Let a mutation die when it has written its rows."""
    failpoints.arm("write.post_stage")
    try:
        with pytest.raises(failpoints.FailpointError):
            graph.mutate('query q() { insert Person { name: "b" } }')
    finally:
        failpoints.disarm()


def test_a_slow_cleanup_removes_nothing_that_came_after_its_plan(place: Place) -> None:
    graph, other = filled(place, "a", "b"), place.open()
    other.branch_create("dev")
    cleaner = place.open()
    datasets = repository_of(cleaner).store.datasets
    inner = datasets.cleanup

    def others_write_first(location: str, *args: object, **options: object) -> object:
        datasets.cleanup = inner  # type: ignore[method-assign]  # once
        add(other, "c", branch="dev")
        other.branch_create_from("dev", "cut")
        add(other, "d", branch="dev")
        return inner(location, *args, **options)  # type: ignore[arg-type]  # passed on

    datasets.cleanup = others_write_first  # type: ignore[method-assign, assignment]  # watched
    result = cleaner.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert [each.error for each in result.datasets if each.error] == []
    assert ids(place.open("cut").snapshot()) == ["a", "b", "c"]
    graph.mutate('query q() { insert Person { name: "e" } }', branch="cut")
    assert ids(place.open("cut").snapshot()) == ["a", "b", "c", "e"]


@pytest.mark.parametrize("name", ["branch_names", "list_branches"])
def test_a_branch_that_is_deleted_while_a_cleanup_looks_is_no_problem(
    local_place: Place, name: str
) -> None:
    graph = local_place.init_quiet()
    real = getattr(LanceRefs, name)
    is_reached, call = True, 0
    while is_reached:
        is_reached, call = False, call + 1
        calls = itertools.count(1)
        graph.branch_create("draft")
        graph.mutate('query q() { insert Person { name: "new" } }', branch="draft")

        def listed(
            refs: LanceRefs, location: str, calls: Iterator[int] = calls, nth: int = call
        ) -> object:
            nonlocal is_reached
            found = real(refs, location)
            if next(calls) == nth:
                is_reached = True
                graph.branch_delete("draft")
                graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
            return found

        with pytest.MonkeyPatch.context() as patch:
            cleaner = local_place.open()
            patch.setattr(LanceRefs, name, listed)
            store = repository_of(cleaner).store.datasets
            patch.setattr(store, name, getattr(store._refs, name))  # type: ignore[attr-defined]
            result = cleaner.cleanup(keep_versions=1, confirm=True)
        assert [each.error for each in result.datasets if each.error] == [], call
        if not is_reached:
            graph.branch_delete("draft")
    assert call > 2


def test_a_branch_that_comes_and_goes_while_a_cleanup_looks_is_no_problem(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, cleaner = local_place.init_quiet(), local_place.open()
    branches = repository_of(cleaner).branches
    names, incarnations = branches.names, branches.incarnations

    def named() -> object:
        found = names()
        graph.branch_create("draft")
        monkeypatch.setattr(branches, "incarnations", listed)
        return found

    def listed() -> object:
        found = incarnations()
        monkeypatch.undo()
        graph.branch_delete("draft")
        return found

    monkeypatch.setattr(branches, "names", named)
    result = cleaner.cleanup(keep_versions=1, confirm=True)
    assert "draft" not in graph.branch_list()
    assert [each.error for each in result.datasets if each.error] == []
