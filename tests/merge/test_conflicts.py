"""Conflicts as a table, and in the text of the error."""

from __future__ import annotations

import pickle

from omnigraph.merge.conflicts import (
    ConflictKind,
    Conflicts,
    MergeConflictError,
    row_conflict,
)


def found(count: int) -> list[str]:
    conflicts = [
        row_conflict("node:Doc", ConflictKind.DIVERGENT_UPDATE, f"d{number}")
        for number in range(count)
    ]
    error = MergeConflictError("draft", "main", conflicts)
    assert len(error.conflicts) == count
    assert len(error.details["merge_conflicts"]) == count  # type: ignore[arg-type]  # a list
    return str(error).removeprefix("merge conflicts: ").split("; ")


def test_the_text_names_the_first_hundred() -> None:
    assert len(found(100)) == 100
    assert found(100)[-1].endswith("divergent update for id 'd99'")
    assert len(found(103)) == 101
    assert found(103)[-1] == "and 3 more"


def test_the_hint_of_a_revert_names_a_command_that_undoes_a_commit() -> None:
    conflicts = [row_conflict("node:Doc", ConflictKind.DIVERGENT_UPDATE, "d1")]
    error = MergeConflictError("01COMMIT", "main", conflicts, is_revert=True)
    again = pickle.loads(pickle.dumps(error))
    assert "`omnigraph commit revert 01COMMIT --branch main --prefer source`" in again.hint


def test_conflicts_are_a_table_and_travel() -> None:
    conflicts = Conflicts([row_conflict("edge:Cites", ConflictKind.DIVERGENT_INSERT, "c1")])
    again = pickle.loads(pickle.dumps(conflicts))
    assert again == conflicts
    assert again.to_arrow().to_pylist() == [
        {
            "entity_kind": "edge",
            "type_name": "Cites",
            "entity_id": "c1",
            "kind": "divergent_insert",
            "message": "divergent insert for id 'c1'",
        }
    ]
    assert Conflicts().to_arrow().num_rows == 0
