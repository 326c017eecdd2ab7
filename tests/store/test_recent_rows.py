"""Look-ups that remember small new fragments find what a scan finds, and read less."""

from __future__ import annotations

import random

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.store import Store, connect
from omnigraph.store.lance.handle import LanceHandle
from omnigraph.store.lance.recent_rows import UNREAD_MAX
from omnigraph.store.records import (
    ROW_ADDRESS,
    ROW_ID,
    CompactionOptions,
    DatasetVersion,
    IndexKind,
    IndexSpec,
    ScanRequest,
)
from support.people import LOCATION, append, create, numbered, people

BY_ID = IndexSpec("id", IndexKind.BTREE)


def scanned(store: Store, at: DatasetVersion) -> dict[str, tuple[int, int]]:
    request = ScanRequest(columns=("id",), with_row_id=True, with_row_address=True)
    return places(store.datasets.open(LOCATION, version=at.version).scan(request).read_all())


def places(rows: pa.Table) -> dict[str, tuple[int, int]]:
    columns = (rows[name].to_pylist() for name in ("id", ROW_ID, ROW_ADDRESS))
    found = {name: (row, address) for name, row, address in zip(*columns, strict=True)}
    assert len(found) == rows.num_rows, "a row was found twice"
    return found


def index(store: Store, at: DatasetVersion) -> DatasetVersion:
    datasets = store.datasets
    return datasets.commit_staged(datasets.stage_create_index(at, [BY_ID])).at


def compact(store: Store, at: DatasetVersion) -> DatasetVersion:
    datasets = store.datasets
    tasks = datasets.plan_compaction(at, CompactionOptions(target_rows=1_000))
    if not tasks:
        return at
    results = [datasets.run_compaction(task) for task in tasks]
    return datasets.commit_staged(datasets.stage_compaction(at, results)).at


def change(store: Store, at: DatasetVersion, chance: random.Random) -> DatasetVersion:
    """Rewrite some stored rows, delete others and add one."""
    handle = store.datasets.open(LOCATION, version=at.version)
    request = ScanRequest(with_row_id=True, with_row_address=True)
    stored = handle.scan(request).read_all()
    picked = chance.sample(range(stored.num_rows), min(4, stored.num_rows))
    rewritten, deleted = picked[: len(picked) // 2], picked[len(picked) // 2 :]
    staged = store.datasets.stage_update(
        at,
        rewritten=stored.take(rewritten) if rewritten else None,
        inserted=people([f"n{at.version}"]),
        deleted=stored[ROW_ADDRESS].take(deleted).combine_chunks() if deleted else None,
    )
    return store.datasets.commit_staged(staged).at


@settings(max_examples=15)
@given(
    steps=st.lists(st.sampled_from(["append", "append", "change", "index", "compact"]), max_size=8),
    seed=st.integers(0, 2**16),
)
def test_every_version_is_found_as_it_is_scanned(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], seed: int
) -> None:
    store = connect(str(tmp_path_factory.mktemp("recent") / "graph"), durability="process")
    chance = random.Random(seed)
    at = index(store, create(store, numbered(20)))
    versions = [at]
    for number in range(UNREAD_MAX):
        at = append(store, at, people([f"first{number}"])).at
    for number, step in enumerate(steps):
        if step == "append":
            at = append(store, at, people([f"s{number}", f"t{number}"])).at
        elif step == "change":
            at = change(store, at, chance)
        elif step == "index":
            at = index(store, at)
        else:
            at = compact(store, at)
        versions.append(at)
    everything = sorted({name for one in versions for name in scanned(store, one)})
    for one in [*versions, *reversed(versions)]:
        expected = scanned(store, one)
        handle = store.datasets.open(LOCATION, version=one.version)
        assert places(handle.find("id", [*everything, "nobody"])) == expected
        few = chance.sample(everything, 3)
        found = places(handle.find("id", few))
        assert found == {name: expected[name] for name in few if name in expected}


def test_a_dataset_of_small_fragments_alone_is_found_without_a_scan(local_store: Store) -> None:
    at = create(local_store)
    for number in range(UNREAD_MAX):
        at = append(local_store, at, people([f"p{number}"])).at
    handle = local_store.datasets.open(LOCATION, version=at.version)
    assert places(handle.find("id", ["p3", "nobody"])) == {
        "p3": scanned(local_store, at)["p3"],
    }


def test_what_is_remembered_is_not_read_again(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = index(local_store, create(local_store, numbered(100)))
    for number in range(UNREAD_MAX):
        at = append(local_store, at, people([f"new{number}"])).at
    make = LanceHandle._scanner
    asked: list[tuple[int, ...] | None] = []

    def watched(handle: LanceHandle, request: ScanRequest) -> lance.LanceScanner:
        asked.append(request.fragment_ids)
        return make(handle, request)

    monkeypatch.setattr(LanceHandle, "_scanner", watched)
    small = tuple(range(1, UNREAD_MAX + 1))
    local_store.datasets.open(LOCATION).find("id", ["p1"])
    assert asked == [small, (0,)]
    append(local_store, at, people(["last"]))
    found = local_store.datasets.open(LOCATION).find("id", ["last", "new0"])
    assert asked[2:] == [(0, UNREAD_MAX + 1)], "one more is not worth a read of its own"
    assert set(places(found)) == {"last", "new0"}
