"""The newest version of a lineage is found whatever was added and removed meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.store import Store, connect
from omnigraph.store.lance.layout import manifest_path
from omnigraph.store.records import CleanupRequest, DatasetVersion

SCHEMA = pa.schema([pa.field("id", pa.utf8(), nullable=False)])
PLACE = "nodes/00"


def rows(*names: str) -> pa.Table:
    return pa.table({"id": list(names)}, schema=SCHEMA)


def again(store: Store) -> Store:
    """Open the same storage as another process does."""
    return connect(store.settings.root, storage_options=store.settings.storage_options)


def append(store: Store, times: int = 1, branch: str | None = None) -> int:
    version = 0
    for _ in range(times):
        head = store.datasets.head_version(PLACE, branch=branch)
        staged = store.datasets.stage_append(DatasetVersion(PLACE, branch, head), rows("x"))
        version = store.datasets.commit_staged(staged).version
    return version


def remove(store: Store, *versions: int, branch: str | None = None) -> None:
    request = CleanupRequest(versions=versions)
    store.datasets.cleanup(PLACE, request, branch=branch, preview=False)


@pytest.fixture(params=["main", "branch"])
def lineage(store: Store, request: pytest.FixtureRequest) -> str | None:
    store.datasets.commit_staged(store.datasets.stage_create(PLACE, SCHEMA, rows=rows("a")))
    if request.param == "main":
        return None
    store.datasets.create_branch(PLACE, "dev.1", from_version=1)
    return "dev.1"


def test_a_gap_above_the_known_head_hides_nothing(store: Store, lineage: str | None) -> None:
    idle, other = store, again(store)
    append(idle, branch=lineage)
    known = idle.datasets.head_version(PLACE, branch=lineage)
    newest = append(other, 4, branch=lineage)
    remove(other, *range(known + 1, newest), branch=lineage)
    assert idle.datasets.exists(PLACE, branch=lineage, version=known)
    assert idle.datasets.head_version(PLACE, branch=lineage) == newest
    assert append(idle, branch=lineage) == newest + 1
    assert other.datasets.head_version(PLACE, branch=lineage) == newest + 1


def test_a_gap_below_a_head_that_goes_on_hides_nothing(store: Store, lineage: str | None) -> None:
    idle, other = store, again(store)
    for _ in range(3):
        known = idle.datasets.head_version(PLACE, branch=lineage)
        newest = append(other, 3, branch=lineage)
        remove(other, known + 1, branch=lineage)
        assert idle.datasets.head_version(PLACE, branch=lineage) == newest


def test_a_known_head_that_was_removed_itself_hides_nothing(
    store: Store, lineage: str | None
) -> None:
    idle, other = store, again(store)
    known = idle.datasets.head_version(PLACE, branch=lineage)
    newest = append(other, 3, branch=lineage)
    remove(other, *range(known + 1, newest), branch=lineage)
    newest = append(other, 1, branch=lineage)
    assert idle.datasets.head_version(PLACE, branch=lineage) == newest


def test_looking_again_lists_nothing_while_nothing_changes(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = local_store.datasets
    datasets.commit_staged(datasets.stage_create(PLACE, SCHEMA, rows=rows("a")))
    append(local_store, 3)
    listed = _listings(monkeypatch)
    for _ in range(5):
        assert datasets.head_version(PLACE) == 4
    assert listed == []
    append(local_store)
    assert datasets.head_version(PLACE) == 5
    assert listed == [], "what a commit of our own has made is known"
    append(again(local_store))
    assert datasets.head_version(PLACE) == 6
    assert len([path for path in listed if str(path).endswith("_versions")]) >= 1


def _listings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    listed: list[object] = []
    inner = os.listdir

    def listdir(path: object = ".") -> list[str]:
        listed.append(path)
        return inner(path)  # type: ignore[call-overload, no-any-return]  # passed on as it is

    monkeypatch.setattr(os, "listdir", listdir)
    return listed


def test_a_version_added_within_one_tick_of_the_clock_is_seen(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stamp of the directory may stay the same when two changes come close together."""
    datasets = local_store.datasets
    datasets.commit_staged(datasets.stage_create(PLACE, SCHEMA, rows=rows("a")))
    assert datasets.head_version(PLACE) == 1
    _freeze(monkeypatch, 1_700_000_000_123_456_789)
    assert datasets.head_version(PLACE) == 1
    append(again(local_store), 2)
    assert datasets.head_version(PLACE) == 3


def test_a_file_system_that_keeps_whole_seconds_is_listed_every_time(
    local_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets, other = local_store.datasets, again(local_store)
    datasets.commit_staged(datasets.stage_create(PLACE, SCHEMA, rows=rows("a")))
    _freeze(monkeypatch, 1_700_000_000_000_000_000)
    assert datasets.head_version(PLACE) == 1
    newest = append(other, 3)
    remove(other, *range(2, newest))
    # A removal within the second in which the head was seen.
    root = tmp_path / "graph"
    assert not (root / manifest_path(PLACE, None, 2)).exists()
    assert datasets.head_version(PLACE) == newest


def _freeze(monkeypatch: pytest.MonkeyPatch, stamp_ns: int) -> None:
    """Let every directory of versions have this time stamp."""
    from omnigraph.store.lance.opener import LanceOpener

    inner = LanceOpener._stamp_ns

    def stamped(self: LanceOpener, location: str, branch: str | None) -> int | None:
        return None if inner(self, location, branch) is None else stamp_ns

    monkeypatch.setattr(LanceOpener, "_stamp_ns", stamped)
