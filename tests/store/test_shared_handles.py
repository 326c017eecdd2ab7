"""Threads share the handles of one store: no staged write gets in the way of a reader."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.store import connect
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.filters import Comparison
from omnigraph.store.records import DatasetVersion, IndexKind, IndexSpec, ScanRequest
from support.people import LOCATION, PEOPLE, numbered, stage_upsert

ROWS = 100_000
Work = Callable[[DatasetStore, DatasetVersion], object]

STAGED: dict[str, Work] = {
    "append": lambda store, at: store.stage_append(at, numbered(10)),
    "upsert": lambda store, at: stage_upsert(store, at, numbered(10)),
    "deletion": lambda store, at: store.write_deletions(at, [5, 6]),
    "index": lambda store, at: store.write_index_segment(at, IndexSpec("id", IndexKind.BTREE)),
    "compaction": lambda store, at: store.plan_compaction(at),
    "metadata": lambda store, at: store.stage_metadata(at, schema_metadata={"a": "b"}),
    "transactions": lambda store, at: store.transactions(at.location, first=1, last=1),
}


@pytest.mark.parametrize("kind", STAGED)
def test_readers_are_not_disturbed_by_staged_work(tmp_path: Path, kind: str) -> None:
    store = connect(str(tmp_path), durability="process").datasets
    at = store.commit_staged(store.stage_create(LOCATION, PEOPLE, rows=numbered(ROWS))).at
    is_done, failures = threading.Event(), list[Exception]()

    def read() -> None:
        request = ScanRequest(row_filter=Comparison("id", "=", "p5"))
        while not is_done.is_set():
            try:
                assert store.open(LOCATION, version=at.version).scan(request).read_all().num_rows
            except Exception as error:  # noqa: BLE001 - the test looks at all of them
                failures.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(3):
            STAGED[kind](store, at)
    finally:
        is_done.set()
        for reader in readers:
            reader.join()
    assert failures == []
