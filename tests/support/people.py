"""Small datasets of people, for tests of the store and of what stands on it."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.store import DatasetStore, Store
from omnigraph.store.records import CommittedRange, DatasetVersion, ScanRequest, StagedTransaction
from omnigraph.values import PRIMARY_KEY

PEOPLE = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False, metadata={PRIMARY_KEY: b"true"}),
        pa.field("age", pa.int32()),
    ]
)
LOCATION = "nodes/people"


def people(ids: Iterable[str], age: int | None = 1) -> pa.Table:
    """Rows with these ids, all of one age."""
    names = list(ids)
    return pa.table({"id": names, "age": pa.array([age] * len(names), pa.int32())}, schema=PEOPLE)


def numbered(count: int, prefix: str = "p") -> pa.Table:
    """Rows `p0`, `p1`, … whose age is their number."""
    return pa.table(
        {
            "id": [f"{prefix}{number}" for number in range(count)],
            "age": pa.array(range(count), pa.int32()),
        },
        schema=PEOPLE,
    )


def create(store: Store, rows: pa.Table | None = None, location: str = LOCATION) -> DatasetVersion:
    """Create a dataset, with rows in a second version if any are given."""
    datasets = store.datasets
    at = datasets.commit_staged(datasets.stage_create(location, PEOPLE)).at
    return at if rows is None else append(store, at, rows).at


def append(store: Store, base: DatasetVersion, rows: pa.Table) -> CommittedRange:
    """Append rows in one commit."""
    return store.datasets.commit_staged(store.datasets.stage_append(base, rows))


def stage_upsert(datasets: DatasetStore, base: DatasetVersion, rows: pa.Table) -> StagedTransaction:
    """Stage rows that replace those with the same id and join those without."""
    handle = datasets.open(base.location, branch=base.branch, version=base.version)
    found = handle.find("id", rows["id"].to_pylist())
    is_stored = pc.is_in(rows["id"], value_set=found["id"].combine_chunks())
    rewritten = rows.filter(is_stored).join(found, "id").combine_chunks()
    return datasets.stage_update(
        base, rewritten=rewritten, inserted=rows.filter(pc.invert(is_stored))
    )


def ages(store: Store, at: DatasetVersion) -> dict[str, int | None]:
    """Everything in a dataset version, by id."""
    rows = store.datasets.open(at.location, branch=at.branch, version=at.version).scan().read_all()
    found = dict(zip(rows["id"].to_pylist(), rows["age"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows, "an id is stored twice"
    return found


def row_ids(store: Store, at: DatasetVersion) -> dict[str, int]:
    """Stable row ids by id."""
    handle = store.datasets.open(at.location, branch=at.branch, version=at.version)
    rows = handle.scan(ScanRequest(columns=("id",), with_row_id=True)).read_all()
    return dict(zip(rows["id"].to_pylist(), rows["_rowid"].to_pylist(), strict=True))
