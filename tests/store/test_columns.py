"""Other columns for stored rows: what is written, what stays, and what still works afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.store import Store, connect
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.errors import InvalidScanError
from omnigraph.store.filters import Comparison, IsNull
from omnigraph.store.records import (
    ROW_ADDRESS,
    ROW_CREATED,
    ROW_ID,
    CleanupRequest,
    ColumnSource,
    CompactionOptions,
    DatasetVersion,
    FileKind,
    IndexKind,
    IndexSpec,
    OperationKind,
    ScanRequest,
    StagedTransaction,
)
from omnigraph.values import BLOB_EXTENSION, BLOB_STORAGE, PRIMARY_KEY, STABLE_PROPERTY_ID

LOCATION = "nodes/items"
ROWS = 30


def field(name: str, kind: pa.DataType, number: int, *, nullable: bool = True) -> pa.Field:
    metadata = {STABLE_PROPERTY_ID: str(number).encode()}
    if kind == BLOB_STORAGE:
        metadata |= BLOB_EXTENSION
    return pa.field(name, kind, nullable=nullable, metadata=metadata)


ID = pa.field("id", pa.utf8(), nullable=False, metadata={PRIMARY_KEY: b"true"})
TAGS = pa.list_(pa.field("item", pa.utf8(), nullable=True))
STORED = pa.schema(
    [
        ID,
        field("body", BLOB_STORAGE, 1),
        field("name", pa.utf8(), 2, nullable=False),
        field("size", pa.int32(), 3),
        field("tags", TAGS, 4),
    ]
)
KEPT = {name: ColumnSource(name) for name in STORED.names}


def items(numbers: range, schema: pa.Schema = STORED) -> pa.Table:
    columns = {
        "id": [f"i{n:03}" for n in numbers],
        "body": pa.array([{"data": f"b{n}".encode(), "uri": None} for n in numbers], BLOB_STORAGE),
        "name": [f"n{n}" for n in numbers],
        "size": pa.array([None if n % 7 == 0 else n for n in numbers], pa.int32()),
        "tags": pa.array([[f"t{n}"] for n in numbers], TAGS),
    }
    return pa.table(columns, schema=schema)


@dataclass
class Table:
    """A stored table with three fragments, deleted rows and two indexes."""

    store: Store
    at: DatasetVersion

    @classmethod
    def made(cls, store: Store) -> Table:
        datasets = store.datasets
        at = datasets.commit_staged(datasets.stage_create(LOCATION, STORED)).at
        table = cls(store, at)
        for start in range(0, ROWS, 10):
            table.commit(datasets.stage_append(table.at, items(range(start, start + 10))))
        table.delete("i003", "i014")
        specs = [IndexSpec("name", IndexKind.BTREE), IndexSpec("size", IndexKind.BTREE)]
        table.commit(datasets.stage_create_index(table.at, specs))
        return table

    @property
    def handle(self) -> DatasetHandle:
        return self.store.datasets.open(LOCATION, branch=self.at.branch, version=self.at.version)

    def commit(self, staged: StagedTransaction) -> StagedTransaction:
        self.at = self.store.datasets.commit_staged(staged).at
        return staged

    def delete(self, *ids: str) -> None:
        request = ScanRequest(columns=("id",), with_row_address=True)
        rows = self.handle.scan(request).read_all().to_pylist()
        addresses = [row[ROW_ADDRESS] for row in rows if row["id"] in ids]
        self.commit(self.store.datasets.stage_update(self.at, deleted=addresses))

    def change(self, schema: pa.Schema, **sources: ColumnSource) -> StagedTransaction:
        known = {name: KEPT[name] for name in schema.names if name in KEPT} | sources
        return self.commit(self.store.datasets.stage_columns(self.at, schema, known))

    def rows(self, *columns: str) -> dict[str, tuple[object, ...]]:
        found = self.handle.scan(ScanRequest(columns=("id", *columns))).read_all()
        return {row["id"]: tuple(row[name] for name in columns) for row in found.to_pylist()}

    def data_files(self) -> set[str]:
        return {info.path for info in self.store.objects.list(f"{LOCATION}/data")}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.made(connect(str(tmp_path / "graph")))


LIGHT = pa.schema(
    [
        ID,
        field("label", pa.utf8(), 2),
        field("payload", BLOB_STORAGE, 1),
        field("plan", BLOB_STORAGE, 9),
        field("size", pa.int32(), 3),
        field("words", TAGS, 8),
    ]
)
LIGHT_SOURCES = {
    "label": ColumnSource("name"),
    "payload": ColumnSource("body"),
    "plan": ColumnSource(None),
    "words": ColumnSource(None),
}


def test_names_nullability_drops_and_null_columns_write_no_data(table: Table) -> None:
    before, files = table.rows("name", "size"), table.data_files()
    ids = table.handle.scan(ScanRequest(columns=("id", ROW_CREATED), with_row_id=True)).read_all()
    staged = table.change(LIGHT, **LIGHT_SOURCES)
    assert (staged.kind, staged.files) == (OperationKind.PROJECT, ())
    assert table.data_files() == files
    assert table.handle.schema.names == LIGHT.names
    for found, wanted in zip(table.handle.schema, LIGHT, strict=True):
        assert found.nullable == wanted.nullable
        assert found.metadata.get(STABLE_PROPERTY_ID) == (wanted.metadata or {}).get(
            STABLE_PROPERTY_ID
        )
    assert table.rows("label", "size", "words") == {i: (*row, None) for i, row in before.items()}
    after = table.handle.scan(ScanRequest(columns=("id", ROW_CREATED), with_row_id=True)).read_all()
    assert after.equals(ids)
    first = ids[ROW_ID][0].as_py()
    assert table.handle.read_blobs("payload", [first]) == (b"b0",)
    assert table.handle.read_blobs("plan", [first]) == (None,)
    assert [row["label"] for row in table.handle.take([first], ["label"]).to_pylist()] == ["n0"]


WIDE = pa.schema(
    [
        ID,
        field("body", BLOB_STORAGE, 1),
        field("grade", pa.int64(), 7, nullable=False),
        field("label", pa.utf8(), 2, nullable=False),
        field("size", pa.int64(), 3),
        field("tags", TAGS, 4),
    ]
)
WIDE_SOURCES = {"label": ColumnSource("name"), "grade": ColumnSource(None, pa.scalar(5))}


def test_filled_and_widened_columns_are_the_only_ones_written(table: Table) -> None:
    before, files = table.rows("name", "size"), table.data_files()
    staged = table.change(WIDE, **WIDE_SOURCES)
    assert staged.kind is OperationKind.MERGE
    assert {file.path for file in staged.files} == table.data_files() - files
    assert len(staged.files) == 3
    assert table.handle.schema.names == WIDE.names
    assert table.rows("label", "size", "grade") == {i: (*row, 5) for i, row in before.items()}
    assert {f.name: f.type for f in table.handle.schema}["size"] == pa.int64()
    ids = table.handle.scan(ScanRequest(columns=("id",), with_row_id=True)).read_all()[ROW_ID]
    assert table.handle.read_blobs("body", ids[:1].to_pylist()) == (b"b0",)


def test_relaxed_columns_are_written_when_others_are(table: Table) -> None:
    relaxed = pa.schema(
        [ID, field("name", pa.utf8(), 2), field("size", pa.int64(), 3), STORED.field("body")]
    )
    before = table.rows("name", "size")
    table.change(relaxed)
    assert table.handle.schema.field("name").nullable
    assert table.rows("name", "size") == before


def test_a_column_becomes_required_although_deleted_rows_lack_it(table: Table) -> None:
    table.delete("i000", "i007", "i021", "i028")
    required = STORED.set(3, field("size", pa.int32(), 3, nullable=False))
    before = table.rows("size")
    staged = table.change(required)
    assert staged.files == ()
    assert not table.handle.schema.field("size").nullable
    assert table.rows("size") == before
    compact(table)
    assert table.rows("size") == before


def test_a_blob_column_is_never_written_on_its_own(table: Table) -> None:
    schema = STORED.set(1, field("body", BLOB_STORAGE, 1, nullable=False))
    schema = schema.set(3, field("size", pa.int64(), 3))
    with pytest.raises(InvalidScanError, match="the blobs of `body` cannot be written"):
        table.change(schema)


def test_indexes_of_columns_that_stay_keep_their_coverage(table: Table) -> None:
    table.change(WIDE, **WIDE_SOURCES)
    found = {index.columns: index.rows_covered for index in table.handle.indexes()}
    assert found == {("label",): ROWS - 2}
    assert table.handle.count(Comparison("label", "=", "n5")) == 1


def test_a_fragment_with_other_columns_is_the_same_fragment(table: Table) -> None:
    before = table.handle.fragments()
    table.change(WIDE, **WIDE_SOURCES)
    after = table.handle.fragments()
    assert [f.identity for f in after] == [f.identity for f in before]
    assert [f.data_identity for f in after] == [f.data_identity for f in before]
    assert all(len(new.files) == len(old.files) + 1 for old, new in zip(before, after, strict=True))


def test_a_name_that_is_used_again_shows_no_old_value(table: Table) -> None:
    without = pa.schema([f for f in STORED if f.name not in ("size", "tags")])
    table.change(without)
    again = STORED.set(3, field("size", pa.int32(), 20)).set(4, field("tags", TAGS, 21))
    table.change(again, size=ColumnSource(None), tags=ColumnSource(None))
    assert set(table.rows("size", "tags").values()) == {(None, None)}
    table.change(without)
    table.change(again, size=ColumnSource(None, pa.scalar(1, pa.int32())), tags=ColumnSource(None))
    assert set(table.rows("size", "tags").values()) == {(1, None)}
    assert table.handle.count(IsNull("size")) == 0


def test_names_that_other_columns_had_are_taken_over_when_columns_are_written(
    table: Table,
) -> None:
    before = table.rows("size", "tags")
    schema = pa.schema(
        [
            ID,
            field("grade", pa.int64(), 7),
            field("name", pa.int32(), 3),
            field("size", pa.int32(), 20),
            field("tags", TAGS, 21),
            field("words", TAGS, 4),
        ]
    )
    staged = table.change(
        schema,
        grade=ColumnSource(None, pa.scalar(5)),
        name=ColumnSource("size"),
        size=ColumnSource(None),
        tags=ColumnSource(None),
        words=ColumnSource("tags"),
    )
    assert staged.kind is OperationKind.MERGE
    rows = table.rows("name", "words", "size", "tags", "grade")
    assert rows == {i: (*row, None, None, 5) for i, row in before.items()}


def test_old_versions_and_forks_keep_their_columns(table: Table) -> None:
    datasets, before = table.store.datasets, table.rows("name", "size", "tags")
    fork = Table(
        table.store, datasets.create_branch(LOCATION, "side", from_version=table.at.version)
    )
    old = Table(table.store, table.at)
    table.change(WIDE, **WIDE_SOURCES)
    fork.change(LIGHT, **LIGHT_SOURCES)
    filled = LIGHT.set(4, field("size", pa.float64(), 3))
    staged = datasets.stage_columns(fork.at, filled, {n: ColumnSource(n) for n in filled.names})
    fork.commit(staged)
    assert all("/tree/side/data/" in file.path for file in staged.files)
    assert old.rows("name", "size", "tags") == before
    assert fork.rows("label", "size") == {i: row[:2] for i, row in before.items()}
    assert table.rows("label", "size") == {i: row[:2] for i, row in before.items()}
    with_row_id = ScanRequest(columns=("id",), with_row_id=True)
    first = fork.handle.scan(with_row_id).read_all()[ROW_ID][0].as_py()
    assert fork.handle.read_blobs("payload", [first]) == (b"b0",)


def compact(table: Table) -> None:
    datasets = table.store.datasets
    options = CompactionOptions(target_rows=1_000, deleted_share_min=0.01)
    tasks = datasets.plan_compaction(table.at, options)
    assert tasks
    results = [datasets.run_compaction(task) for task in tasks]
    table.commit(datasets.stage_compaction(table.at, results))


def test_rows_are_added_changed_and_compacted_afterwards(table: Table) -> None:
    datasets = table.store.datasets
    before = table.rows("name", "size")
    wanted = {i: (*row, 5) for i, row in before.items()}
    table.change(WIDE, **WIDE_SOURCES)
    more = pa.table(
        {
            "id": ["new"],
            "body": pa.array([None], BLOB_STORAGE),
            "grade": [1],
            "label": ["x"],
            "size": [1 << 40],
            "tags": pa.array([None], TAGS),
        },
        schema=WIDE,
    )
    table.commit(datasets.stage_append(table.at, more))
    wanted["new"] = ("x", 1 << 40, 1)
    table.delete("i004")
    del wanted["i004"]
    assert table.rows("label", "size", "grade") == wanted
    compact(table)
    assert table.rows("label", "size", "grade") == wanted
    assert {index.columns for index in table.handle.indexes()} == {("label",)}
    assert table.handle.count(Comparison("label", "=", "n5")) == 1


def test_rows_can_follow_a_change_of_columns_in_one_commit_of_both(table: Table) -> None:
    datasets = table.store.datasets
    sources = {name: KEPT[name] for name in WIDE.names if name in KEPT} | WIDE_SOURCES
    first = datasets.stage_columns(table.at, WIDE, sources)
    view = datasets.open_staged(first)
    rows = view.scan(ScanRequest(columns=("id",), limit=1)).read_all()["id"].to_pylist()
    more = pa.table(
        {
            "id": ["new"],
            "body": pa.array([None], BLOB_STORAGE),
            "grade": [1],
            "label": ["x"],
            "size": [2],
            "tags": pa.array([None], TAGS),
        },
        schema=WIDE,
    )
    second = datasets.following(datasets.stage_update(view.at, inserted=more, deleted=[0]), first)
    datasets.discard_staged_view(view.at)
    table.commit(first)
    table.commit(second)
    found = table.rows("label", "grade", "size")
    assert found["new"] == ("x", 1, 2)
    assert rows[0] not in found
    assert len(found) == ROWS - 2


def test_needed_files_and_cleanup_know_files_of_added_columns(table: Table) -> None:
    datasets = table.store.datasets
    staged = table.change(WIDE, **WIDE_SOURCES)
    versions = [info.version for info in datasets.versions(LOCATION)]
    for asked in (versions, versions[-1:]):
        needed = {
            file.path
            for file in datasets.needed_files(LOCATION, versions=asked)
            if file.kind is FileKind.ROWS
        }
        assert {file.path for file in staged.files} <= needed
    before = table.rows("label", "size", "grade")
    datasets.cleanup(LOCATION, CleanupRequest(keep_versions=1), preview=False)
    assert {file.path for file in staged.files} <= table.data_files()
    assert table.rows("label", "size", "grade") == before
    assert datasets.unreferenced_files(LOCATION) == ()


def test_an_empty_table_gets_any_columns_without_files(tmp_path: Path) -> None:
    store = connect(str(tmp_path / "graph"))
    at = store.datasets.commit_staged(store.datasets.stage_create(LOCATION, STORED)).at
    table = Table(store, at)
    assert table.change(WIDE, **WIDE_SOURCES).files == ()
    assert table.handle.schema.names == WIDE.names
    table.commit(
        store.datasets.stage_append(
            table.at, pa.table({**{n: [] for n in WIDE.names}}, schema=WIDE).slice(0, 0)
        )
    )
    assert table.handle.count() == 0
