"""The intent record on disk."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
import pytest

from omnigraph.manifest import CommitDraft, Entry, Registration
from omnigraph.manifest.rows import AcceptedSchema
from omnigraph.recovery.intent import (
    ForkOrigin,
    Intent,
    PlannedTable,
    UnreadableIntentError,
    WriterKind,
    read_intent,
)
from support.json_damage import exchanged, places

FORK = ForkOrigin(None, 7)
ENTRY = Entry("node:Person", "nodes/a", "draft.01J", 7, 12, 100, "draft.01X")


def full_record() -> Intent:
    return Intent(
        operation_id="01OP",
        owner_id="01OWNER",
        started_at=123,
        branch="draft",
        branch_incarnation="draft.01X",
        schema_hash="sha256:abc",
        writer_kind=WriterKind.SCHEMA_APPLY,
        commit=CommitDraft(
            "01C", "schema_apply", "ada", 456, "01M", "why", {"pipeline": "nightly"}
        ),
        recovery_commit_id="01R",
        tables=(
            PlannedTable(
                "node:Person", "nodes/a", "draft.01J", ENTRY, 7, 8, ("u1",), confirmed_version=8
            ),
            PlannedTable(
                "edge:Knows",
                "edges/b",
                "draft.01OP",
                ENTRY,
                7,
                9,
                ("u2", "u3"),
                ForkOrigin(None, 7),
            ),
            PlannedTable("node:New", "nodes/c-01OP", None, None, 0, 1, ("u4",)),
        ),
        reads=(("node:City", ENTRY), ("node:Gone", None)),
        expected_head="01H",
        settled=True,
        restore_transaction_ids=("r1",),
        merge_source_commit_id="01S",
        merged_into="01T",
        additional_registrations=(Registration("node:New", "nodes/c-01OP", 9, 10),),
        tombstones=("edge:Old",),
        schema=AcceptedSchema("node New {}", {"ir_version": 2}, {"schema_ir_hash": "sha256:d"}),
    )


def test_a_record_survives_the_way_to_disk_and_back() -> None:
    record = full_record()
    assert read_intent(record.path, record.to_json()) == record


def test_what_an_entry_has_computed_is_not_stored() -> None:
    record, other = full_record(), replace(ENTRY)
    assert other.at.version == ENTRY.table_version
    used = replace(record, reads=(("node:City", other), *record.reads[1:]))
    assert used.to_json() == record.to_json()


def test_the_stored_members_have_the_names_that_operators_and_other_releases_read() -> None:
    form = orjson.loads(full_record().to_json())
    assert list(form["additional_registrations"][0]) == [
        "table_key",
        "table_path",
        "type_id",
        "table_incarnation_id",
    ]
    assert form["tombstones"] == [{"table_key": "edge:Old"}]
    assert form["settled"] == "voided"
    assert form["schema_version"] == 2
    assert set(form) >= {
        *("schema_version", "operation_id", "owner_id", "started_at", "branch", "schema_hash"),
        *("branch_incarnation", "expected_head", "actor_id", "writer_kind", "reads", "tables"),
        *("recovery_commit_id", "restore_transaction_ids", "merge_source_commit_id", "schema"),
        "commit",
    }
    assert set(form["tables"][0]) >= {
        *("table_key", "table_path", "table_branch", "entry", "expected_version"),
        *("post_commit_pin", "transaction_ids", "confirmed_version"),
    }
    assert form["tables"][1]["fork_of"] == {"branch": None, "version": 7}
    assert set(form["reads"][0]) == {"table_key", "entry"}
    assert set(form["commit"]) == {
        *("graph_commit_id", "merged_parent_commit_id", "operation", "created_at"),
        *("message", "properties"),
    }


def test_optional_members_are_left_out_when_they_say_nothing() -> None:
    record = full_record()
    bare = Intent(
        **{
            **vars(record),
            "expected_head": None,
            "settled": False,
            "merge_source_commit_id": None,
            "merged_into": None,
            "additional_registrations": (),
            "tombstones": (),
            "schema": None,
        }
    )
    form = orjson.loads(bare.to_json())
    optional = {
        "expected_head",
        "settled",
        "merge_source_commit_id",
        "merged_into",
        "additional_registrations",
        "tombstones",
        "schema",
    }
    assert optional & set(form) == set()
    assert read_intent(bare.path, bare.to_json()) == bare


def test_a_record_of_the_first_version_is_read() -> None:
    form = {
        "schema_version": 1,
        "operation_id": "01OP",
        "branch": "main",
        "actor_id": "ada",
        "writer_kind": "Load",
        "tables": [
            {
                "table_key": "node:Person",
                "table_path": "nodes/a",
                "expected_version": 3,
                "post_commit_pin": 4,
            }
        ],
        "commit": {"graph_commit_id": "01C", "operation": "load", "created_at": 1},
    }
    record = read_intent("__recovery/01OP.json", orjson.dumps(form))
    assert record.schema_version == 1
    assert record.branch_incarnation == "main"
    assert record.tables[0].transaction_ids == ()
    assert record.actor_id == "ada"


@pytest.mark.parametrize(
    ("data", "problem", "branch"),
    [
        (b"", "not JSON", None),
        (b"[1]", "not a JSON object", None),
        (b'{"schema_version": 3, "branch": "draft"}', "its version is 3", "draft"),
        (b'{"schema_version": 2, "branch": "draft"}', "a member is wrong", "draft"),
        (b'{"schema_version": 2, "branch": 7}', "a member is wrong", None),
        (b'{"schema_version": 2, "branch": "a\\/b", "tab', "not JSON", "a/b"),
        (b'{"schema_version": 2, "branch": "dra', "not JSON", None),
    ],
)
def test_an_unreadable_record_names_the_file_and_the_branch_if_it_can(
    data: bytes, problem: str, branch: str | None
) -> None:
    with pytest.raises(UnreadableIntentError) as caught:
        read_intent("__recovery/01OP.json", data)
    assert problem in str(caught.value)
    assert "__recovery/01OP.json" in str(caught.value)
    assert "omnigraph recovery quarantine 01OP --confirm" in str(caught.value.hint)
    assert caught.value.branch == branch


def unchecked(record: Intent) -> dict[str, Any]:
    """Return the stored form as releases wrote it whose records had no check."""
    form: dict[str, Any] = orjson.loads(record.to_json())
    del form["check"]
    return form


WRONG: tuple[object, ...] = (None, 3, -1, 1.5, True, "", "../x", "/x", "x\0", [], [3], {}, {"a": 3})


def test_a_record_with_a_member_of_another_shape_is_unreadable_or_still_a_record() -> None:
    record = full_record()
    form = unchecked(record)
    for place in places(form):
        for wrong in WRONG:
            data = orjson.dumps(exchanged(form, place, wrong))
            with suppress(UnreadableIntentError):
                found = read_intent(record.path, data)
                assert read_intent(record.path, found.to_json()).tables == found.tables


@pytest.mark.parametrize(
    "place",
    [
        *(("tables", 0, name) for name in ("table_path", "table_branch")),
        ("tables", 0, "entry", "location"),
        ("tables", 1, "fork_of", "branch"),
        ("additional_registrations", 0, "table_path"),
        ("branch_incarnation",),
    ],
)
@pytest.mark.parametrize("path", ["../x", "/etc", "a//b", "", ".", "a/../b", "x\0", 3])
def test_a_path_that_is_none_of_a_dataset_makes_a_record_unreadable(
    place: tuple[Any, ...], path: object
) -> None:
    record = full_record()
    data = orjson.dumps(exchanged(unchecked(record), place, path))
    with pytest.raises(UnreadableIntentError, match=str(place[-1])) as caught:
        read_intent(record.path, data)
    assert record.path in str(caught.value)
    assert caught.value.branch == "draft"


def test_a_record_under_the_name_of_another_operation_is_unreadable() -> None:
    with pytest.raises(UnreadableIntentError, match="another operation"):
        read_intent("__recovery/01OTHER.json", full_record().to_json())


def test_no_flipped_bit_is_taken_for_what_was_written() -> None:
    record = full_record()
    data = record.to_json()
    for place in range(len(data)):
        for bit in range(8):
            flipped = data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
            try:
                read = read_intent(record.path, flipped)
            except UnreadableIntentError:
                continue
            assert read == record, f"byte {place}, bit {bit}"
