"""Everything new is flushed before the call that made it returns."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.store import Store, connect
from omnigraph.store.durability import DiskFlusher, NoFlusher
from omnigraph.store.errors import WriteOutcomeUnknownError
from omnigraph.store.records import CompactionOptions, DatasetVersion, IndexKind, IndexSpec
from support.people import LOCATION, append, create, numbered, people

HINT = "latest_version_hint.json"
"""Lance works without it and with any content in it: a guard test says so."""


class Disk:
    """Looks at a store from below: which new files would a power failure take away?"""

    def __init__(self, store: Store) -> None:
        assert isinstance(store.flusher, DiskFlusher)
        self._flusher = store.flusher
        self._root = store.settings.root.local_path()
        self._known = self._files()
        self._flushed = len(self._flusher.flushed_files)
        self._flushed_directories = len(self._flusher.flushed_directories)

    def lost(self) -> set[Path]:
        """New files whose bytes or whose name were not flushed since this was made."""
        new = {path for path in self._files() - self._known if path.name != HINT}
        files = set(self._flusher.flushed_files[self._flushed :])
        directories = set(self._flusher.flushed_directories[self._flushed_directories :])
        return {path for path in new if path not in files or path.parent not in directories}

    def new_count(self) -> int:
        return len({path for path in self._files() - self._known if path.name != HINT})

    def _files(self) -> set[Path]:
        return {path for path in self._root.rglob("*") if path.is_file()}


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
    "stage upsert": lambda store, at: store.datasets.stage_upsert(at, people(["p1"]), key="id"),
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
    disk = Disk(local_store)
    ACTS[act](local_store, base)
    assert disk.new_count() > 0
    if act == "object":
        # Flushed under its temporary name, then renamed: the bytes are the same.
        assert {path.name for path in disk.lost()} == {"main.json"}
    else:
        assert disk.lost() == set()


def test_every_directory_up_to_the_root_is_flushed_once(tmp_path: Path) -> None:
    store = connect(str(tmp_path / "new" / "graph"))
    create(store, location="nodes/one")
    assert isinstance(store.flusher, DiskFlusher)
    root = store.settings.root.local_path()
    flushed = store.flusher.flushed_directories
    for directory in (root.parent, root, root / "nodes", root / "nodes" / "one"):
        assert directory in flushed, directory


def test_a_small_commit_costs_a_fixed_number_of_flushes(local_store: Store) -> None:
    flusher = local_store.flusher
    assert isinstance(flusher, DiskFlusher)
    at = create(local_store, numbered(1))
    at = append(local_store, at, people(["warm"])).at
    counts = []
    for name in "abc":
        before = flusher.flush_count
        staged = local_store.datasets.stage_append(at, people([name]))
        between = flusher.flush_count
        at = local_store.datasets.commit_staged(staged).at
        counts.append((between - before, flusher.flush_count - between))
    assert counts == [(2, 4)] * 3, "data file and directory; transaction, version, directories"


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
