from __future__ import annotations

import pytest

from omnigraph.manifest.layout import MAIN_INCARNATION, Incarnation, dataset_location
from omnigraph.names import SCHEMA_APPLY_LOCK, BranchName

ULID = "01JC0000000000000000000000"


def test_an_incarnation_gives_back_the_branch_that_it_is_a_life_of() -> None:
    incarnation = Incarnation.new(BranchName("team/etl.v2"), ULID)
    assert incarnation.text == f"team/etl.v2.{ULID}"
    assert incarnation.branch == BranchName("team/etl.v2")
    assert incarnation.lance_branch == incarnation.text
    assert Incarnation.of_lance_branch(incarnation.text) == incarnation


def test_main_is_its_own_incarnation_and_the_main_lineage() -> None:
    assert MAIN_INCARNATION.is_main
    assert MAIN_INCARNATION.branch == BranchName("main")
    assert MAIN_INCARNATION.lance_branch is None


@pytest.mark.parametrize(
    "name",
    [
        "dev",
        "__run__17",
        "dev.v1",
        f"dev.{ULID[:-1]}",
        f"dev.{ULID.lower()}",
        "dev.01JCILOU000000000000000000",
        SCHEMA_APPLY_LOCK,
        f"{SCHEMA_APPLY_LOCK}.{ULID}",
    ],
)
def test_internal_and_foreign_lance_branches_are_no_incarnations(name: str) -> None:
    assert Incarnation.of_lance_branch(name) is None


def test_a_dataset_made_after_init_carries_the_operation_that_made_it() -> None:
    assert dataset_location("node", "Person") == "nodes/40d76f1f51639ec0"
    assert dataset_location("edge", "Person", ULID) == f"edges/40d76f1f51639ec0-{ULID}"
