"""What becomes of changes: every kind and operation, in every situation."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from omnigraph.cluster.addresses import (
    Address,
    Kind,
    graph_address,
    policy_address,
    provider_address,
    query_address,
    schema_address,
)
from omnigraph.cluster.compare.classify import Situation, classify, row_for
from omnigraph.cluster.compare.diff import Change, Operation

OPERATIONS = get_args(Operation)
GRAPH, SCHEMA, QUERY = graph_address("g"), schema_address("g"), query_address("g", "q")
POLICY, PROVIDER = policy_address("p"), provider_address("e")

# Changes in one run, what holds, and what becomes of the first of them.
CASES = [
    ("graph create, schema create", "", "applied"),
    ("graph create, schema create", "pending", "blocked cluster_recovery_pending"),
    ("graph update", "", "derived"),
    ("graph update", "pending", "derived"),
    ("graph update, schema update", "", "derived"),
    ("graph update, schema create", "", "deferred apply_unsupported_kind"),
    ("graph update, schema delete", "", "deferred apply_unsupported_kind"),
    ("graph delete", "", "blocked approval_required"),
    ("graph delete", "approved", "applied"),
    ("graph delete", "approved pending", "blocked cluster_recovery_pending"),
    ("schema create, graph create", "", "applied"),
    ("schema create, graph create", "pending", "blocked cluster_recovery_pending"),
    ("schema create", "", "blocked cluster_recovery_pending"),
    ("schema update", "", "applied"),
    ("schema update", "pending", "blocked cluster_recovery_pending"),
    ("schema delete, graph delete", "", "blocked approval_required"),
    ("schema delete, graph delete", "approved", "applied"),
    ("schema delete, graph delete", "approved pending", "blocked cluster_recovery_pending"),
    ("schema delete", "", "deferred apply_unsupported_kind"),
    ("schema delete", "approved", "deferred apply_unsupported_kind"),
    ("query create", "", "applied"),
    ("query update", "", "applied"),
    ("query create, graph create, schema create", "", "applied"),
    ("query update", "pending", "blocked cluster_recovery_pending"),
    ("query create, schema create", "", "blocked dependency_not_applied"),
    ("query update, schema delete", "", "blocked dependency_not_applied"),
    ("query update, schema delete", "pending", "blocked cluster_recovery_pending"),
    ("query delete", "", "applied"),
    ("query delete", "pending", "applied"),
    ("query delete, graph delete", "", "blocked approval_required"),
    ("query delete, graph delete", "approved", "applied"),
    ("policy create", "", "applied"),
    ("policy update", "", "applied"),
    ("policy update", "bound pending", "blocked cluster_recovery_pending"),
    ("policy update", "pending", "applied"),
    ("policy delete", "bound pending", "applied"),
    ("provider create", "pending", "applied"),
    ("provider update", "", "applied"),
    ("provider delete", "", "applied"),
]
ADDRESSES: dict[str, Address] = {
    "graph": GRAPH,
    "schema": SCHEMA,
    "query": QUERY,
    "policy": POLICY,
    "provider": PROVIDER,
}


@pytest.mark.parametrize(("changes", "given", "expected"), CASES)
def test_a_change_becomes_this(changes: str, given: str, expected: str) -> None:
    pairs = [each.split() for each in changes.split(", ")]
    found = classify(
        [Change(ADDRESSES[kind], operation) for kind, operation in pairs],  # type: ignore[arg-type]  # words of the table above
        policy_targets={"p": ("graph.g",) if "bound" in given else ("cluster",)},
        pending_graphs={"g"} if "pending" in given else set(),
        approved_graphs={"g"} if "approved" in given else set(),
    )
    first = found[0]
    assert " ".join(filter(None, (first.disposition, first.reason))) == expected


def test_every_change_in_every_situation_has_a_row() -> None:
    for kind, operation in product(Kind, OPERATIONS):
        for pending, approved in product((False, True), repeat=2):
            for graph, schema in product((None, *OPERATIONS), repeat=2):
                row_for(kind, operation, Situation(pending, approved, graph, schema))


def test_only_the_approval_of_a_graph_lets_it_be_deleted() -> None:
    situations = product((False, True), (None, *OPERATIONS), (None, *OPERATIONS))
    for pending, graph, schema in situations:
        row = row_for(Kind.GRAPH, "delete", Situation(pending, False, graph, schema))
        assert row.disposition == "blocked"
