"""What each call costs on an object store, counted where the requests arrive."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph.store import Store, connect
from omnigraph.store.records import DatasetVersion
from support.people import LOCATION, append, create, numbered, people
from support.s3 import Request, S3Server


def kinds(requests: list[Request]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for request in requests:
        is_list = request.method == "GET" and "list-type=2" in request.path
        name = "LIST" if is_list else request.method
        counts[name] = counts.get(name, 0) + 1
    return counts


Call = Callable[[Store, DatasetVersion], object]

WARM: dict[str, tuple[Call, dict[str, int]]] = {
    "open a known version": (
        lambda store, at: store.datasets.open(LOCATION, version=at.version),
        {},
    ),
    "look for the head": (lambda store, _: store.datasets.head_version(LOCATION), {"LIST": 1}),
    "count": (lambda store, _: store.datasets.open(LOCATION).count(), {"LIST": 1}),
    "stage an append": (
        lambda store, at: store.datasets.stage_append(at, people(["x"])),
        {"PUT": 1},
    ),
    "stage and commit an append": (
        lambda store, at: append(store, at, people(["x"])),
        # The look at the head and Lance's own; rows, transaction, version; whose version it is.
        {"PUT": 3, "LIST": 2, "GET": 1},
    ),
    "stage the deletion of one row": (
        lambda store, at: store.datasets.stage_update(at, deleted=[0]),
        {"PUT": 1, "HEAD": 1},
    ),
    "verify one staged file": (
        lambda store, at: store.datasets.verify_staged_files(STAGED[store.settings.root.uri]),
        {"HEAD": 1},
    ),
}
STAGED: dict[str, object] = {}


@pytest.mark.parametrize("name", list(WARM))
def test_a_warm_call_costs_what_the_documentation_says(
    s3: S3Server, s3_store: Store, name: str
) -> None:
    base = create(s3_store, numbered(5))
    STAGED[s3_store.settings.root.uri] = s3_store.datasets.stage_append(base, people(["s"]))
    call, expected = WARM[name]
    with s3.requests() as seen:
        call(s3_store, base)
    assert kinds(seen) == expected


def test_opening_a_published_version_cold_costs_one_look_and_one_read(
    s3: S3Server, s3_store: Store
) -> None:
    at = create(s3_store, numbered(5))
    fork = s3_store.datasets.create_branch(LOCATION, "b.1", from_version=at.version)
    for version in (at, fork):
        cold = connect(s3_store.settings.root, storage_options=s3.options)
        with s3.requests() as seen:
            cold.datasets.open(LOCATION, branch=version.branch, version=version.version)
        assert kinds(seen) == {"HEAD": 1, "GET": 1}


def test_the_cost_of_a_branch_does_not_grow(s3: S3Server, s3_store: Store) -> None:
    at = create(s3_store, numbered(5))
    costs = []
    for number in range(3):
        with s3.requests() as seen:
            s3_store.datasets.create_branch(LOCATION, f"b.{number}", from_version=at.version)
        costs.append(len(seen))
        for name in "xyz":
            at = append(s3_store, at, people([f"{name}{number}"])).at
    assert costs[0] == costs[1] == costs[2]


def test_names_of_branches_cost_one_listing(s3: S3Server, s3_store: Store) -> None:
    at = create(s3_store, numbered(1))
    for number in range(4):
        s3_store.datasets.create_branch(LOCATION, f"b.{number}", from_version=at.version)
    with s3.requests() as seen:
        assert len(s3_store.datasets.branch_names(LOCATION)) == 4
    assert kinds(seen) == {"LIST": 1}
