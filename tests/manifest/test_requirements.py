"""Whether a write may land: every requirement, alone and against the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph.errors import OmnigraphError
from omnigraph.manifest.errors import (
    CounterMovedError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    SchemaMovedError,
)
from omnigraph.manifest.requirements import (
    CounterMoved,
    HeadMoved,
    ReadsMoved,
    Requirements,
    SchemaMoved,
    TableMoved,
    Unmet,
)
from omnigraph.manifest.rows import Head
from omnigraph.manifest.state import ManifestState
from support.manifests import HASH, commit, entry, registration, state

PERSON, CITY, GHOST = "node:Person", "node:City", "node:Ghost"

GENESIS = commit("GENESIS")
WRITE = commit("WRITE", "GENESIS")
OPTIMIZE = commit("OPTIMIZE", "WRITE", operation="optimize")

PERSON_NOW = entry(3, table_version=7)
CITY_BEFORE = entry(2, table_version=4, table_key=CITY, location="nodes/c")
CITY_NOW = entry(4, table_version=5, table_key=CITY, location="nodes/c")


def newest() -> ManifestState:
    """Return a state in which a load wrote Person (3), then maintenance moved City (4)."""
    entries = (entry(2, table_version=6), PERSON_NOW, CITY_BEFORE, CITY_NOW)
    rows = (
        *(each.row() for each in (GENESIS, WRITE, OPTIMIZE)),
        *(each.row() for each in entries),
        registration().row(),
        registration(CITY, "nodes/c").row(),
    )
    created = {each.row().object_id: each.seq for each in entries}
    created |= {"GENESIS": 2, "WRITE": 3, "OPTIMIZE": 4}
    return state(*rows, head=Head("OPTIMIZE", HASH), created=created)


PERSON_BEFORE = entry(2, table_version=6)
OTHER_SCHEMA = SchemaMoved("sha256:other", HASH)
PERSON_MOVED = TableMoved(PERSON, 6, 7, is_only_maintenance=False)
CITY_MAINTAINED = TableMoved(CITY, 4, 5, is_only_maintenance=True)

CASES: dict[str, tuple[Requirements, Unmet | None]] = {
    "nothing is required": (Requirements(), None),
    "the schema is the same": (Requirements(schema_hash=HASH), None),
    "the schema is another": (Requirements(schema_hash="sha256:other"), OTHER_SCHEMA),
    "a merge into the head": (Requirements(merged_into="OPTIMIZE"), None),
    "a merge below maintenance": (
        Requirements(merged_into="WRITE"),
        HeadMoved("WRITE", "OPTIMIZE"),
    ),
    "the expected head": (Requirements(expected_head="OPTIMIZE"), None),
    "the expected head below maintenance": (Requirements(expected_head="WRITE"), None),
    "an older expected head": (
        Requirements(expected_head="GENESIS"),
        HeadMoved("GENESIS", "OPTIMIZE"),
    ),
    "an unknown expected head": (
        Requirements(expected_head="NONE"),
        HeadMoved("NONE", "OPTIMIZE"),
    ),
    "a written table is in place": (Requirements(written={PERSON: PERSON_NOW}), None),
    "another row count is the same entry": (
        Requirements(written={PERSON: replace(PERSON_NOW, row_count=99)}),
        None,
    ),
    "a written table has moved": (Requirements(written={PERSON: PERSON_BEFORE}), PERSON_MOVED),
    "a written table was published again at the same version": (
        Requirements(written={PERSON: replace(PERSON_NOW, seq=2)}),
        TableMoved(PERSON, 7, 7, is_only_maintenance=False),
    ),
    "a written table lies on another branch": (
        Requirements(written={PERSON: replace(PERSON_NOW, table_branch="dev.X")}),
        TableMoved(PERSON, 7, 7, is_only_maintenance=False),
    ),
    "maintenance moved a written table": (
        Requirements(written={CITY: CITY_BEFORE}),
        CITY_MAINTAINED,
    ),
    "a written table must not exist and does not": (Requirements(written={GHOST: None}), None),
    "a written table must not exist and does": (
        Requirements(written={PERSON: None}),
        TableMoved(PERSON, 0, 7, is_only_maintenance=False),
    ),
    "a written table is gone": (
        Requirements(written={GHOST: replace(PERSON_NOW, table_key=GHOST)}),
        TableMoved(GHOST, 7, 0, is_only_maintenance=False),
    ),
    "no number has been reserved": (Requirements(identity_counter=0), None),
    "a number has been reserved": (Requirements(identity_counter=5), CounterMoved(5, 0)),
    "maintenance moved a read table": (Requirements(read={CITY: CITY_BEFORE}), None),
    "a read table has moved": (
        Requirements(read={CITY: CITY_BEFORE, PERSON: PERSON_BEFORE}),
        ReadsMoved(frozenset({PERSON}), PERSON_MOVED),
    ),
    "of several read tables the first by name is reported": (
        Requirements(read={PERSON: PERSON_BEFORE, CITY: None}),
        ReadsMoved(frozenset({PERSON, CITY}), TableMoved(CITY, 0, 5, is_only_maintenance=False)),
    ),
}


@pytest.mark.parametrize(("requirements", "unmet"), CASES.values(), ids=CASES)
def test_the_requirement_that_does_not_hold_is_returned(
    requirements: Requirements, unmet: Unmet | None
) -> None:
    assert requirements.unmet(newest()) == unmet


def test_the_first_of_several_is_returned_in_the_documented_order() -> None:
    broken: list[tuple[dict[str, object], type]] = [
        ({"schema_hash": "sha256:other"}, SchemaMoved),
        ({"identity_counter": 5}, CounterMoved),
        ({"merged_into": "WRITE"}, HeadMoved),
        ({"expected_head": "GENESIS"}, HeadMoved),
        ({"written": {PERSON: PERSON_BEFORE}}, TableMoved),
        ({"read": {PERSON: PERSON_BEFORE}}, ReadsMoved),
    ]
    for first in range(len(broken)):
        required = {name: value for part, _ in broken[first:] for name, value in part.items()}
        unmet = Requirements(**required).unmet(newest())  # type: ignore[arg-type]  # one table
        assert type(unmet) is broken[first][1]
    both = Requirements(merged_into="WRITE", expected_head="GENESIS").unmet(newest())
    assert both == HeadMoved("WRITE", "OPTIMIZE")


@pytest.mark.parametrize(
    ("unmet", "error", "message"),
    [
        (
            OTHER_SCHEMA,
            SchemaMovedError,
            f"the schema has changed: expected sha256:other, found {HASH}",
        ),
        (
            CounterMoved(4, 7),
            CounterMovedError,
            "the identity counter has moved: expected 4, found 7",
        ),
        (HeadMoved("A", "B"), PreconditionFailedError, "the head of the branch is B, not A"),
        (
            PERSON_MOVED,
            ExpectedVersionMismatchError,
            "node:Person has moved: expected published version 6, found 7; nothing was published",
        ),
        (
            ReadsMoved(frozenset({PERSON, CITY}), PERSON_MOVED),
            ExpectedVersionMismatchError,
            "node:Person has moved: expected published version 6, found 7; nothing was published",
        ),
    ],
)
def test_each_result_becomes_its_error(
    unmet: Unmet, error: type[OmnigraphError], message: str
) -> None:
    raised = unmet.error()
    assert type(raised) is error
    assert str(raised) == message


def test_only_moved_reads_are_checked_again() -> None:
    seen: list[frozenset[str]] = []

    def accept(_: ManifestState, moved: frozenset[str]) -> None:
        seen.append(moved)

    Requirements(read={PERSON: PERSON_BEFORE}, revalidate=accept).require(newest())
    assert seen == [frozenset({PERSON})]
    with pytest.raises(ExpectedVersionMismatchError):
        Requirements(read={PERSON: PERSON_BEFORE}).require(newest())
    with pytest.raises(ExpectedVersionMismatchError):
        Requirements(written={CITY: CITY_BEFORE}, revalidate=accept).require(newest())
    Requirements(written={PERSON: PERSON_NOW}, revalidate=accept).require(newest())
    assert len(seen) == 1
