"""Repair: what is above the published version, and what an operator may do about it."""

from __future__ import annotations

import itertools

import pytest

from omnigraph.errors import InvalidInputError
from omnigraph.graph import Graph
from omnigraph.recovery import RecoveryKind, RecoveryRecord
from omnigraph.store.records import (
    DatasetVersion,
    OperationKind,
    StagedTransaction,
    TransactionInfo,
)
from omnigraph.write.repair import Action, Drift, classify_drift, decide
from omnigraph.write.strays import DriftNeedsRepairError
from support.places import PERSON, Place, add, ids, repository_of
from support.writer import people


def base(graph: Graph) -> DatasetVersion:
    entry = graph.snapshot().entries[PERSON]
    return DatasetVersion(entry.location, entry.table_branch, entry.table_version)


def outside_append(graph: Graph) -> StagedTransaction:
    datasets = repository_of(graph).store.datasets
    staged = datasets.stage_append(base(graph), people("outsider"))
    datasets.commit_staged(staged)
    return staged


def outside_compaction(graph: Graph) -> None:
    datasets = repository_of(graph).store.datasets
    at = base(graph)
    results = [datasets.run_compaction(task) for task in datasets.plan_compaction(at)]
    datasets.commit_staged(datasets.stage_compaction(at, results))


def person(graph: Graph, **options: bool) -> tuple[str, str]:
    report = graph.repair(**options)
    table = next(t for t in report.tables if t.table_key == PERSON)
    return table.classification.value, table.action.value


@pytest.mark.parametrize("kind", list(OperationKind))
def test_only_compaction_and_reservation_are_verified(kind: OperationKind) -> None:
    moves = (TransactionInfo(2, "u", OperationKind.REWRITE), TransactionInfo(3, "v", kind))
    is_verified = kind in (OperationKind.REWRITE, OperationKind.RESERVE)
    assert classify_drift(moves) is (Drift.MAINTENANCE if is_verified else Drift.SUSPICIOUS)
    assert classify_drift(()) is Drift.NONE


def test_every_combination_has_one_action() -> None:
    for drift, is_voided, confirm, force in itertools.product(
        Drift, (True, False), (True, False), (True, False)
    ):
        action = decide(drift, is_voided=is_voided, confirm=confirm, force=force)
        if drift is Drift.NONE:
            assert action is Action.NO_OP
        elif not confirm:
            assert action is Action.PREVIEW
        elif is_voided or (drift is not Drift.MAINTENANCE and not force):
            assert action is Action.REFUSED
        else:
            assert action in (Action.HEALED, Action.FORCED)


def test_a_clean_graph_has_no_drift(place: Place) -> None:
    graph = place.init()
    assert person(graph) == ("no_drift", "no_op")
    version = graph.snapshot().manifest_version
    assert graph.repair(confirm=True).graph_manifest_version == version


def test_upkeep_from_outside_is_published_on_confirmation(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    add(graph, "bob")
    outside_compaction(graph)
    assert person(graph) == ("verified_maintenance", "preview")
    with pytest.raises(DriftNeedsRepairError):
        graph.mutate('query q() { insert Person { name: "x" } }')
    assert person(graph, confirm=True) == ("verified_maintenance", "healed")
    assert graph.list_commits()[0].operation == "repair"
    graph.mutate('query q() { insert Person { name: "x" } }')
    assert ids(graph.snapshot()) == ["ann", "bob", "x"]


def test_rows_from_outside_need_force(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    outside_append(graph)
    assert person(graph, confirm=True) == ("suspicious", "refused")
    assert graph.repair(confirm=True).has_refusals
    assert ids(graph.snapshot()) == ["ann"]
    with pytest.raises(InvalidInputError, match="needs a confirmation"):
        graph.repair(force=True)
    assert person(graph, confirm=True, force=True) == ("suspicious", "forced")
    assert ids(graph.snapshot()) == ["ann", "outsider"]
    assert graph.snapshot().entries[PERSON].row_count == 2
    assert not graph.list_commits()[0].is_maintenance


def test_versions_of_a_voided_operation_are_refused_and_put_back_by_the_next_write(
    place: Place,
) -> None:
    graph = place.init()
    add(graph, "ann")
    staged = outside_append(graph)
    graph._recovery.log.record(
        RecoveryRecord(
            operation_id="OP",
            graph_commit_id=None,
            recovery_kind=RecoveryKind.ROLLED_BACK,
            recovery_for_actor=None,
            sidecar_writer_kind="Load",
            per_table_outcomes=(),
            transaction_ids=(staged.uuid,),
            created_at=1,
        )
    )
    assert person(graph, confirm=True, force=True) == ("suspicious", "refused")
    graph.mutate('query q() { insert Person { name: "x" } }')
    assert ids(graph.snapshot()) == ["ann", "x"]


def test_the_shape_is_the_contract(place: Place) -> None:
    shape = place.init().repair().to_json()
    assert set(shape) == {"confirm", "force", "graph_manifest_version", "datasets"}
    datasets = shape["datasets"]
    assert isinstance(datasets, list)
    assert set(datasets[0]) == {
        "type_key",
        "published_dataset_version",
        "lance_head_version",
        "classification",
        "action",
        "operations",
        "error",
    }
