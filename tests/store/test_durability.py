"""Everything new is flushed before the call that made it returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Sized
from contextlib import suppress
from pathlib import Path

import pytest

from omnigraph.store import Store, connect, durability
from omnigraph.store.durability import DiskFlusher, NoFlusher
from omnigraph.store.errors import WriteOutcomeUnknownError
from omnigraph.store.records import CompactionOptions, DatasetVersion, IndexKind, IndexSpec
from support.faulty_store import SimulatedDeath
from support.people import LOCATION, append, create, numbered, people, stage_upsert
from support.power import Shadow

Act = Callable[[Store, DatasetVersion], object]


def compact(store: Store, at: DatasetVersion) -> object:
    at = append(store, at, people(["more"])).at
    tasks = store.datasets.plan_compaction(at, CompactionOptions(target_rows=100))
    results = [store.datasets.run_compaction(task) for task in tasks]
    return store.datasets.commit_staged(store.datasets.stage_compaction(at, results))


def work_on_a_branch(store: Store, at: DatasetVersion) -> object:
    fork = store.datasets.create_branch(LOCATION, "team/b.1", from_version=at.version)
    return append(store, fork, people(["x"]))


ACTS: dict[str, Act] = {
    "stage append": lambda store, at: store.datasets.stage_append(at, people(["x"])),
    "stage upsert": lambda store, at: stage_upsert(store.datasets, at, people(["p1"])),
    "write deletions": lambda store, at: store.datasets.write_deletions(at, [1]),
    "stage index": lambda store, at: store.datasets.stage_create_index(
        at, [IndexSpec("id", IndexKind.BTREE)]
    ),
    "commit append": lambda store, at: append(store, at, people(["x"])),
    "commit update": lambda store, at: store.datasets.commit_staged(
        store.datasets.stage_update(at, deleted=[1], inserted=people(["x"]))
    ),
    "create": lambda store, _: create(store, numbered(2), "edges/deep/er"),
    "restore": lambda store, at: store.datasets.restore(LOCATION, version=at.version, uuid="u"),
    "compaction": compact,
    "branch": work_on_a_branch,
    "tag": lambda store, at: store.datasets.create_tag(LOCATION, "pin", version=at.version),
    "object": lambda store, _: store.objects.put_if_absent("__leases/main.json", b"{}"),
}


@pytest.mark.parametrize("act", list(ACTS))
def test_a_power_failure_takes_nothing_that_a_call_has_returned(
    local_store: Store, act: str
) -> None:
    base = create(local_store, numbered(3))
    shadow = Shadow(local_store)
    ACTS[act](local_store, base)
    assert shadow.flushed
    assert shadow.unflushed() == set()


def test_every_directory_up_to_the_root_is_flushed_once(tmp_path: Path) -> None:
    store = connect(str(tmp_path / "new" / "graph"))
    shadow = Shadow(store)
    at = create(store, location="nodes/one")
    append(store, at, people(["x"]))
    root = store.settings.root.local_path()
    for directory in (root.parent, root, root / "nodes", root / "nodes" / "one"):
        assert shadow.flushed.count(directory) >= 1, directory
    assert shadow.flushed.count(root.parent) == 1
    assert shadow.flushed.count(root) == 1


def test_a_directory_that_was_made_again_is_flushed_again(local_store: Store) -> None:
    shadow = Shadow(local_store)
    local_store.objects.put("__jobs/1.json", b"{}")
    local_store.objects.delete_prefix("__jobs")
    local_store.objects.put("__jobs/2.json", b"{}")
    assert shadow.unflushed() == set()


def test_what_a_flusher_remembers_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "_SETTLED_MAX", 3)
    flusher = DiskFlusher(tmp_path)
    flushed: list[str] = []
    flusher.sync = flushed.append
    for number in range(20):
        directory = tmp_path / str(number)
        directory.mkdir()
        flusher.directories([str(directory)])
    assert flushed.count(str(tmp_path)) == 20, "once for each new directory"
    held = [v for v in vars(flusher).values() if isinstance(v, Sized) and not isinstance(v, str)]
    assert sum(len(v) for v in held) <= 4
    flusher.directories([str(tmp_path / "0")])
    assert flushed.count(str(tmp_path)) == 21, "forgetting costs a flush"


def watch(flusher: DiskFlusher) -> list[Path]:
    """Return the list of what is flushed from now on."""
    flushed: list[Path] = []
    sync = flusher.sync

    def watched(path: str) -> None:
        flushed.append(Path(path))
        sync(path)

    flusher.sync = watched
    return flushed


def test_a_small_commit_costs_a_fixed_number_of_flushes(local_store: Store) -> None:
    flusher = local_store.flusher
    assert isinstance(flusher, DiskFlusher)
    at = create(local_store, numbered(1))
    at = append(local_store, at, people(["warm"])).at
    counts = []
    flushed = watch(flusher)
    for name in "abc":
        before = len(flushed)
        staged = local_store.datasets.stage_append(at, people([name]))
        between = len(flushed)
        at = local_store.datasets.commit_staged(staged).at
        counts.append((between - before, len(flushed) - between))
    assert counts == [(2, 2)] * 3, "data file and directory; version and directory"


def test_the_flushes_of_one_step_are_put_off_to_its_end(local_store: Store) -> None:
    flusher = local_store.flusher
    assert isinstance(flusher, DiskFlusher)
    base = create(local_store, numbered(1))
    shadow = Shadow(local_store)
    flushed = watch(flusher)
    with flusher.together():
        first = local_store.datasets.stage_append(base, people(["x"]))
        with flusher.together():
            local_store.datasets.stage_append(base, people(["y"]))
        assert flushed == []
        assert len(shadow.unflushed()) == 2
    assert shadow.unflushed() == set()
    assert len(flushed) == 3, "two files in one directory"
    local_store.datasets.commit_staged(first)
    assert shadow.unflushed() == set()


def test_a_step_that_fails_is_flushed_and_one_that_dies_is_not(local_store: Store) -> None:
    flusher = local_store.flusher
    assert isinstance(flusher, DiskFlusher)
    base = create(local_store, numbered(1))
    for error, is_flushed in ((ValueError(), True), (SimulatedDeath(), False)):
        shadow = Shadow(local_store)
        with suppress(type(error)), flusher.together():
            local_store.datasets.stage_append(base, people(["x"]))
            raise error
        assert (shadow.unflushed() == set()) is is_flushed
    local_store.datasets.stage_append(base, people(["x"]))
    assert len(shadow.unflushed()) == 1, "what comes after a block is flushed at once"


def test_a_flush_that_fails_at_the_end_of_a_step_is_an_unknown_outcome(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = create(local_store, numbered(1))

    def fail(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WriteOutcomeUnknownError), local_store.flusher.together():
        local_store.datasets.stage_append(base, people(["x"]))


def test_process_durability_never_flushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int) -> None:
        raise AssertionError("fsync was called")

    monkeypatch.setattr(os, "fsync", refuse)
    for number, act in enumerate(ACTS.values()):
        fresh = connect(str(tmp_path / f"graph{number}"), durability="process")
        assert isinstance(fresh.flusher, NoFlusher)
        act(fresh, create(fresh, numbered(3)))


def test_a_failed_flush_of_a_commit_has_an_unknown_outcome(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = create(local_store, numbered(1))
    staged = local_store.datasets.stage_append(base, people(["x"]))

    def fail(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WriteOutcomeUnknownError, match="flushing failed"):
        local_store.datasets.commit_staged(staged)
    monkeypatch.undo()
    assert local_store.datasets.head_version(LOCATION) == staged.intended_version


def test_object_stores_need_no_flusher(s3_store: Store) -> None:
    assert isinstance(s3_store.flusher, NoFlusher)
