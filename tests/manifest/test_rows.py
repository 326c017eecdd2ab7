from __future__ import annotations

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.manifest.rows import (
    MANIFEST_SCHEMA,
    AcceptedSchema,
    Head,
    ManifestRow,
    Tag,
    rows_table,
    seq_of,
    tombstone_row,
    voided_row,
)
from omnigraph.values import PRIMARY_KEY
from support.manifests import entry, registration


def test_the_columns_are_those_of_the_format() -> None:
    assert MANIFEST_SCHEMA.names == [
        "object_id",
        "object_type",
        "location",
        "metadata",
        "base_objects",
        "table_key",
        "table_version",
        "table_branch",
        "row_count",
    ]
    assert MANIFEST_SCHEMA.field("object_id").metadata == {PRIMARY_KEY: b"true"}
    assert MANIFEST_SCHEMA.field("table_version").type == pa.uint64()


@pytest.mark.parametrize(
    ("row", "object_type", "object_id"),
    [
        (Head("C1", "h").row(), "graph_head", "graph_head"),
        (registration().row(), "table", "node:Person"),
        (entry(7).row(), "table_version", "node:Person$00000000000000000007"),
        (
            tombstone_row("node:Person", 7),
            "table_tombstone",
            "node:Person$tombstone$" + "7".zfill(20),
        ),
        (AcceptedSchema("", {}, {}).row(), "schema", "schema"),
        (voided_row("C1", "O1"), "voided_commit", "C1"),
        (Tag("v1", "C1", 5, "pin").row(), "tag", "tag:v1"),
    ],
)
def test_every_kind_of_row_has_its_type_and_id(
    row: ManifestRow, object_type: str, object_id: str
) -> None:
    assert (row.object_type, row.object_id) == (object_type, object_id)


@given(st.integers(0, 2**63))
def test_ids_sort_like_the_manifest_versions_that_they_carry(seq: int) -> None:
    assert seq_of(entry(seq).row().object_id) == seq
    assert seq_of(tombstone_row("edge:Knows", seq).object_id) == seq
    assert entry(seq).row().object_id < entry(seq + 1).row().object_id


def test_an_entry_is_the_same_state_only_at_the_same_place_version_and_publish() -> None:
    one = entry(3, table_version=2)
    assert one.state == entry(3, table_version=2, owner="dev.X").state
    others = [
        entry(4, table_version=2),
        entry(3, table_version=3),
        entry(3, table_version=2, table_branch="dev.X"),
        entry(3, table_version=2, location="nodes/other"),
    ]
    assert all(one.state != other.state for other in others)


def test_rows_become_one_arrow_table_with_json_metadata() -> None:
    table = rows_table([registration().row(), entry(7, table_branch="dev.X").row()])
    assert table.schema.equals(MANIFEST_SCHEMA)
    assert table["location"].to_pylist() == ["nodes/p", "nodes/p"]
    assert table["table_branch"].to_pylist() == [None, "dev.X"]
    assert orjson.loads(table["metadata"][1].as_py()) == {"owner": "main"}
    assert rows_table([]).num_rows == 0
