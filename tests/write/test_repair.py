"""Repair: what is above the published version, and what an operator may do about it."""

from __future__ import annotations

import itertools

import lance
import pytest

from omnigraph import failpoints
from omnigraph.errors import InvalidInputError
from omnigraph.graph import Graph
from omnigraph.maintenance.repair import Action, Drift, classify_drift, decide
from omnigraph.manifest import ReadTarget
from omnigraph.recovery import RecoveryAuditRow, RecoveryKind
from omnigraph.store.records import (
    DatasetVersion,
    OperationKind,
    StagedTransaction,
    TransactionInfo,
)
from omnigraph.write.commit.late_commits import DriftNeedsRepairError
from support.places import PERSON, Place, add, ids, repository_of, session_of, with_shared_lineage
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
    assert graph.repair().graph_manifest_version is None
    assert graph.repair(confirm=True).graph_manifest_version is None


def test_drift_of_a_branch_is_seen_and_repaired_there(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    graph.branch_create("draft")
    graph.mutate('query q() { insert Person { name: "bob" } }', branch="draft")
    entry = graph.snapshot_of(ReadTarget.branch("draft")).entries[PERSON]
    datasets = repository_of(graph).store.datasets
    at = DatasetVersion(entry.location, entry.table_branch, entry.table_version)
    datasets.commit_staged(datasets.stage_append(at, people("outsider")))
    insert = 'query q() { insert Person { name: "new" } }'
    with pytest.raises(DriftNeedsRepairError):
        graph.mutate(insert, branch="draft")
    (table,) = [t for t in graph.repair().tables if t.branch == "draft"]
    assert (table.table_key, table.classification, table.action) == (
        *(PERSON, Drift.SUSPICIOUS),
        Action.PREVIEW,
    )
    assert table.to_json()["graph_branch"] == "draft"
    assert graph.repair(confirm=True).has_refusals
    report = graph.repair(confirm=True, force=True)
    assert [t.action for t in report.tables if t.branch == "draft"] == [Action.FORCED]
    assert report.graph_manifest_version is None, "nothing was published on main"
    graph.mutate(insert, branch="draft")
    found = ids(graph.snapshot_of(ReadTarget.branch("draft")))
    assert found == ["ann", "bob", "new", "outsider"]
    assert ids(graph.snapshot()) == ["ann"]


def test_a_lineage_that_another_branch_goes_on_writing_is_no_drift(place: Place) -> None:
    graph = with_shared_lineage(place)
    assert {table.classification for table in graph.repair().tables} == {Drift.NONE}
    assert not graph.repair(confirm=True).has_refusals


@pytest.mark.usefixtures("disarmed")
def test_what_an_unfinished_write_has_left_is_no_drift(place: Place) -> None:
    graph = place.init()
    failpoints.arm("write.post_phase_b_pre_manifest_commit")
    with pytest.raises(failpoints.FailpointError):
        graph.mutate('query q() { insert Person { name: "ann" } }')
    failpoints.disarm()
    (table,) = [t for t in graph.repair().tables if t.table_key == PERSON]
    assert (table.classification, table.action) == (Drift.NONE, Action.NO_OP)
    assert "is pending" in str(table.error)
    assert ids(graph.snapshot()) == []
    assert not graph.repair(confirm=True, force=True).has_refusals
    assert ids(graph.snapshot()) == ["ann"]


def test_a_blocked_branch_is_refused_and_does_not_keep_others_from_repair(place: Place) -> None:
    graph = place.init()
    graph.branch_create("draft")
    graph.mutate('query q() { insert Person { name: "bob" } }', branch="draft")
    outside_append(graph)
    repository_of(graph).store.objects.put(
        "__recovery/01BAD.json", b'{"schema_version": 9, "branch": "draft"}'
    )
    report = graph.repair(confirm=True, force=True)
    found = {(t.branch, t.table_key): t.action for t in report.tables}
    assert found["main", PERSON] is Action.FORCED
    assert found["draft", PERSON] is Action.REFUSED
    (refused,) = [t for t in report.tables if t.action is Action.REFUSED]
    assert "01BAD" in str(refused.error)


def test_maintenance_from_outside_is_published_on_confirmation(place: Place) -> None:
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


def outside(graph: Graph, uri: str) -> lance.LanceDataset:
    """Open a table as somebody does who knows Lance and not omnigraph."""
    return lance.dataset(f"{uri}/{base(graph).location}")


@pytest.mark.parametrize("has_indexes", [False, True])
def test_what_lance_does_to_compact_is_published_on_confirmation(
    local_place: Place, has_indexes: bool
) -> None:
    graph = local_place.init()
    for name in ("ann", "bob", "cas"):
        add(graph, name)
    if has_indexes:
        graph.ensure_indices()
    outside(graph, local_place.uri).optimize.compact_files()
    (table,) = [each for each in graph.repair().tables if each.table_key == PERSON]
    assert table.operations == ("reserve_fragments", "rewrite")
    assert person(graph) == ("verified_maintenance", "preview")
    report = graph.repair(confirm=True)
    assert [each.action for each in report.tables if each.table_key == PERSON] == [Action.HEALED]
    assert report.graph_manifest_version == graph.snapshot().manifest_version
    add(graph, "dan")
    graph.optimize()
    assert ids(graph.snapshot()) == ["ann", "bob", "cas", "dan"]
    one = "query q($n: String) { match { $p: Person { name: $n } } return { $p.name } }"
    for name in ("ann", "bob", "cas", "dan"):
        assert graph.query(one, params={"n": name}).to_pylist() == [{"p.name": name}]


def test_indexes_that_somebody_else_has_extended_need_force(local_place: Place) -> None:
    """Whoever builds an index can build a wrong one, so its rows may be found or not."""
    graph = local_place.init()
    add(graph, "ann")
    graph.ensure_indices()
    add(graph, "bob")
    outside(graph, local_place.uri).optimize.optimize_indices()
    (table,) = [each for each in graph.repair().tables if each.table_key == PERSON]
    assert set(table.operations) == {"create_index"}
    assert person(graph, confirm=True) == ("suspicious", "refused")
    assert person(graph, confirm=True, force=True) == ("suspicious", "forced")
    assert ids(graph.snapshot()) == ["ann", "bob"]


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
    session_of(graph).recovery.log.record(
        RecoveryAuditRow(
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
