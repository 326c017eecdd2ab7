"""Rows of a branch that are taken over by its files: on a local disk and on S3."""

from __future__ import annotations

import fcntl
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.store import Store
from omnigraph.store.lance import packing
from omnigraph.store.objects.local import LocalObjectStore
from omnigraph.store.records import (
    CleanupRequest,
    CompactionOptions,
    DatasetVersion,
    LinkedRows,
    RowCounts,
)
from support.people import (
    LOCATION,
    PEOPLE,
    ages,
    append,
    create,
    numbered,
    people,
    row_ids,
    stage_upsert,
)

ROOM = CompactionOptions(target_rows=1_000, deleted_share_min=0.01)


def appended(store: Store, at: DatasetVersion, rows: pa.Table) -> DatasetVersion:
    return append(store, at, rows).at


def upserted(store: Store, at: DatasetVersion, rows: pa.Table) -> DatasetVersion:
    return store.datasets.commit_staged(stage_upsert(store.datasets, at, rows)).at


def compacted(store: Store, at: DatasetVersion) -> DatasetVersion:
    tasks = store.datasets.plan_compaction(at, ROOM)
    results = [store.datasets.run_compaction(task) for task in tasks]
    return store.datasets.commit_staged(store.datasets.stage_compaction(at, results)).at


def fork(store: Store, at: DatasetVersion, name: str = "draft") -> DatasetVersion:
    return store.datasets.create_branch(
        at.location, name, from_branch=at.branch, from_version=at.version
    )


def linked(store: Store, source: DatasetVersion, target: DatasetVersion) -> LinkedRows | None:
    return store.datasets.linked_rows(source, target, base=target)


def test_a_target_has_what_the_source_had_when_the_source_is_gone(store: Store) -> None:
    base = create(store, numbered(6))
    draft = fork(store, base)
    draft = appended(store, draft, people(["n0", "n1", "n2"], 20))
    draft = upserted(store, draft, people(["p1", "n1", "p4"], 30))
    gone = store.datasets.open(LOCATION, branch=draft.branch).find("id", ["p5", "n2"])
    draft = store.datasets.commit_staged(
        store.datasets.stage_update(draft, deleted=gone["_rowaddr"])
    ).at
    expected, before = ages(store, draft), row_ids(store, base)
    rows = linked(store, draft, base)
    assert rows is not None
    assert (rows.inserted, rows.updated, len(rows.deleted)) == (2, 2, 1)
    staged = store.datasets.stage_linked(base, rows)
    assert staged.counts == RowCounts(2, 2, 1)
    store.datasets.verify_staged_files(staged)
    at = store.datasets.commit_staged(staged).at
    assert draft.branch is not None
    store.datasets.delete_branch(LOCATION, draft.branch)
    store.datasets.cleanup(LOCATION, CleanupRequest(keep_versions=1), preview=False)
    store.datasets.forget(LOCATION)
    assert ages(store, at) == expected
    after = row_ids(store, at)
    assert {name: after[name] for name in before if name in after} == {
        name: number for name, number in before.items() if name in after
    }
    newer = appended(store, at, people(["z"]))
    assert len(set(row_ids(store, newer).values())) == len(expected) + 1


def test_an_empty_target_takes_rows_and_what_is_deleted_of_them(store: Store) -> None:
    base = create(store)
    draft = upserted(store, appended(store, fork(store, base), numbered(4)), people(["p2"], 9))
    rows = linked(store, draft, base)
    assert rows is not None
    at = store.datasets.commit_staged(store.datasets.stage_linked(base, rows)).at
    assert ages(store, at) == {"p0": 0, "p1": 1, "p2": 9, "p3": 3}
    assert ages(store, upserted(store, at, people(["p0"], 8)))["p0"] == 8


def test_a_fork_of_a_fork_is_linked(store: Store) -> None:
    base = create(store, numbered(3))
    middle = appended(store, fork(store, base, "middle"), people(["m"], 5))
    draft = upserted(store, fork(store, middle), people(["p0", "n"], 7))
    rows = linked(store, draft, base)
    assert rows is not None
    at = store.datasets.commit_staged(store.datasets.stage_linked(base, rows)).at
    assert ages(store, at) == ages(store, draft)


def test_files_are_renamed_where_their_rows_get_other_ids(local_store: Store) -> None:
    store = local_store
    base = create(store, numbered(3))
    draft = appended(store, fork(store, base), people(["n"], 5))
    late = appended(store, base, people(["late"]))
    found = store.datasets.open(LOCATION).find("id", ["late"])
    target = store.datasets.commit_staged(
        store.datasets.stage_update(late, deleted=found["_rowaddr"])
    ).at
    rows = store.datasets.linked_rows(draft, target, base=base)
    assert rows is not None
    at = store.datasets.commit_staged(store.datasets.stage_linked(target, rows)).at
    assert ages(store, at) == ages(store, draft)
    ours, theirs = (
        {one.data_identity for one in store.datasets.open(LOCATION, branch=branch).fragments()}
        for branch in (draft.branch, None)
    )
    assert len(ours & theirs) == 1
    assert row_ids(store, at)["n"] != row_ids(store, draft)["n"]


def test_staging_twice_is_harmless(local_store: Store) -> None:
    """A merge that failed has left its files."""
    store = local_store
    base = create(store, numbered(3))
    draft = upserted(store, fork(store, base), people(["p1", "n"], 5))
    rows = linked(store, draft, base)
    assert rows is not None
    store.datasets.stage_linked(base, rows)
    at = store.datasets.commit_staged(store.datasets.stage_linked(base, rows)).at
    assert ages(store, at) == ages(store, draft)


# -- what is not linked ----------------------------------------------------------------------------


def test_new_rows_that_were_all_written_again_with_others_are_not_linked(
    local_store: Store,
) -> None:
    """Only the commit gives new row ids, and only to fragments of new rows."""
    base = create(local_store, numbered(3))
    draft = appended(local_store, fork(local_store, base), people(["n"], 5))
    assert linked(local_store, upserted(local_store, draft, people(["p0", "n"])), base) is None


def test_rows_that_were_only_moved_are_not_linked(local_store: Store) -> None:
    base = appended(local_store, create(local_store, numbered(3)), people(["x", "y"]))
    draft = upserted(local_store, fork(local_store, base), people(["p1"], 5))
    assert linked(local_store, compacted(local_store, draft), base) is None


def test_moved_rows_are_linked_if_all_of_them_are_new(local_store: Store) -> None:
    store = local_store
    base = create(store)
    draft = appended(store, appended(store, fork(store, base), numbered(3)), people(["x"]))
    draft = compacted(store, draft)
    rows = linked(store, draft, base)
    assert rows is not None
    at = store.datasets.commit_staged(store.datasets.stage_linked(base, rows)).at
    assert ages(store, at) == ages(store, draft)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_target_with_other_rows_or_files_is_not_linked(
    local_store: Store, is_compacted: bool
) -> None:
    base = appended(local_store, create(local_store, numbered(3)), people(["x"]))
    draft = upserted(local_store, fork(local_store, base), people(["p1"], 5))
    target = (
        compacted(local_store, base)
        if is_compacted
        else upserted(local_store, base, people(["p2"], 6))
    )
    assert local_store.datasets.linked_rows(draft, target, base=base) is None


def test_a_source_that_does_not_come_from_the_base_is_not_linked(local_store: Store) -> None:
    """Row ids of two lineages say nothing about each other."""
    base = create(local_store, numbered(3))
    draft = appended(local_store, fork(local_store, base), people(["n"], 5))
    target = appended(local_store, base, people(["m"], 6))
    assert linked(local_store, draft, target) is None
    assert linked(local_store, base, target) is None


def test_row_ids_are_never_given_twice(local_store: Store) -> None:
    """A row id below the next one of the base is the row of the base, whatever came after."""
    datasets = local_store.datasets
    base = create(local_store, numbered(3))
    at = datasets.commit_staged(datasets.stage_overwrite(base, PEOPLE, rows=people(["x"]))).at
    assert row_ids(local_store, at) == {"x": 3}
    restored = datasets.restore(LOCATION, version=base.version, uuid=str(uuid.uuid4())).at
    assert row_ids(local_store, appended(local_store, restored, people(["y"])))["y"] == 4


def test_a_new_dataset_takes_the_files_of_another_one(store: Store) -> None:
    at = appended(store, create(store, numbered(3)), people(["x"], 9))
    staged = store.datasets.stage_linked_create("nodes/other", PEOPLE, at)
    assert staged is not None
    store.datasets.verify_staged_files(staged)
    made = store.datasets.commit_staged(staged).at
    store.objects.delete_prefix(LOCATION)
    store.datasets.forget("nodes/other")
    assert ages(store, made) == {"p0": 0, "p1": 1, "p2": 2, "x": 9}
    newer = appended(store, made, people(["y"]))
    assert sorted(row_ids(store, newer).values()) == [0, 1, 2, 3, 4]


def test_a_new_dataset_takes_no_files_of_which_rows_are_deleted(local_store: Store) -> None:
    at = upserted(local_store, create(local_store, numbered(3)), people(["p1"], 9))
    assert local_store.datasets.stage_linked_create("nodes/other", PEOPLE, at) is None


def test_a_cleanup_cannot_be_under_way_when_a_file_gets_a_name_that_was_used_before(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removes versions first, then their files, and would remove the new file under the name."""
    base = create(local_store, numbered(6))
    draft = upserted(local_store, fork(local_store, base), people(["p2", "n"], 9))
    rows = linked(local_store, draft, base)
    assert rows is not None
    lock = Path(local_store.settings.root.prefix) / LOCATION / packing.LOCK
    looks: list[bool] = []

    def can_begin() -> bool:
        with lock.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    for name in ("head", "copy"):
        real = getattr(LocalObjectStore, name)

        def looked(*args: Any, real: Any = real) -> Any:
            looks.append(can_begin())
            return real(*args)

        monkeypatch.setattr(LocalObjectStore, name, looked)
    local_store.datasets.stage_linked(base, rows)
    assert looks
    assert not any(looks)
    assert can_begin()
