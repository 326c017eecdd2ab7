"""Strays at every moment: who may explain them, and what a fault in putting them back leaves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from omnigraph import failpoints
from omnigraph.clock import SystemClock
from omnigraph.errors import OmnigraphError
from omnigraph.failpoints import FailpointError
from omnigraph.graph import Graph
from omnigraph.graph.opening import open_for_writing
from omnigraph.maintenance.repair import Action
from omnigraph.manifest import OpenMode
from omnigraph.names import BranchName
from omnigraph.recovery import Recovery, RecoveryAuditRow, RecoveryKind
from omnigraph.recovery.intent import FOLDER
from omnigraph.recovery.put_back import are_explained, restore_uuid
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.records import OperationKind, StagedTransaction, TransactionInfo
from omnigraph.write.commit.late_commits import DriftNeedsRepairError
from support.faulty_store import (
    FaultMode,
    FaultPlan,
    FaultyObjectStore,
    SimulatedDeath,
    sweep,
)
from support.places import PERSON, Place, add, ids, repository_of, session_of
from support.sweeps import broken, check_heads
from support.writer import people

pytestmark = pytest.mark.usefixtures("disarmed")

INSERT = 'query q() { insert Person { name: "new" } }'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(str(tmp_path / "graph"))
    add(place.init(), "ann")
    return place


def commit_late(graph: Graph, name: str) -> StagedTransaction:
    """Move a table beside every protocol."""
    datasets = repository_of(graph).store.datasets
    location = graph.snapshot().entries[PERSON].location
    staged = datasets.stage_append(datasets.open(location).at, people(name))
    datasets.commit_staged(staged)
    return staged


def settle(graph: Graph, *uuids: str) -> None:
    """Write the audit row of an operation that recovery has voided."""
    session_of(graph).recovery.log.record(
        RecoveryAuditRow("OP", None, RecoveryKind.ROLLED_BACK, None, "Load", (), uuids, 1)
    )


def moves(*uuids: str) -> list[TransactionInfo]:
    return [TransactionInfo(n, u, OperationKind.APPEND) for n, u in enumerate(uuids, start=2)]


def test_only_settled_transactions_and_attempts_upon_them_are_explained() -> None:
    again = restore_uuid("a")
    assert are_explained(moves("a"), {"a"})
    assert are_explained(moves("a", again, restore_uuid(again)), {"a"})
    assert not are_explained(moves("a", "b"), {"a"})
    assert not are_explained(moves("b", again), {"a"}), "not upon the version it names"
    assert not are_explained(moves("b", restore_uuid("b")), {"a"}), "upon an unknown one"


@pytest.mark.parametrize("mode", [FaultMode.FAIL_BEFORE, FaultMode.FAIL_AFTER, FaultMode.DIE_AFTER])
def test_a_fault_anywhere_in_putting_back_is_made_up_for(
    place: Place, tmp_path: Path, mode: FaultMode
) -> None:
    graph = place.open()
    settle(graph, commit_late(graph, "late").uuid)
    swept = set()
    for number, plan in enumerate(sweep(mode, effects_max=60)):
        copy = Place(str(tmp_path / f"step{number}"))
        shutil.copytree(place.uri, copy.uri)
        with suppress(SimulatedDeath, OmnigraphError):
            broken(copy, plan).mutate(INSERT)
        swept.add(plan.effects[-1].name)
        healed = copy.open()
        if "new" not in ids(healed.snapshot()):
            healed.mutate(INSERT)
        assert ids(healed.snapshot()) == ["ann", "new"]
        check_heads(healed)
        rows = [r for r in healed.recovery_list() if r.operation_id.startswith("stray-")]
        assert [row.recovery_kind for row in rows] == [RecoveryKind.STRAY_PUT_BACK]
        published = {commit.graph_commit_id for commit in healed.list_commits()}
        assert rows[0].graph_commit_id in published, "the row names the commit that did it"
    assert "datasets.restore" in swept


@pytest.mark.parametrize("settled", [(), ("first",), ("second",)])
def test_one_unknown_transaction_among_settled_ones_needs_repair(
    place: Place, settled: tuple[str, ...]
) -> None:
    graph = place.open()
    late = {"first": commit_late(graph, "a").uuid, "second": commit_late(graph, "b").uuid}
    if settled:
        settle(graph, *(late[name] for name in settled))
    with pytest.raises(DriftNeedsRepairError) as caught:
        graph.mutate(INSERT)
    assert caught.value.head - caught.value.published == len(late)
    assert ids(graph.snapshot()) == ["ann"]
    report = graph.repair(confirm=True, force=True)
    (table,) = [t for t in report.tables if t.table_key == PERSON]
    if settled:
        assert table.action is Action.REFUSED, "ids of a voided operation are never published"
        assert ids(graph.snapshot()) == ["ann"]
    else:
        assert table.action is Action.FORCED
        assert ids(graph.snapshot()) == ["a", "ann", "b"]


def test_the_next_sweep_puts_back_what_a_settled_writer_did_late(place: Place) -> None:
    """Its record says so, although nobody writes to the table."""
    graph = place.open()
    failpoints.arm("recovery.sidecar_write")
    with pytest.raises(FailpointError):
        graph.mutate('query q() { insert Person { name: "half" } }')
    failpoints.disarm()
    objects = place.store().objects
    (info,) = objects.list(FOLDER)
    record = orjson.loads(objects.get(info.path).data)
    graph = place.open()
    late = commit_late(graph, "late")
    del record["check"]  # It is of the record as it was.
    record["settled"] = "voided"
    record["tables"][0]["transaction_ids"] = [late.uuid]
    objects.put(info.path, orjson.dumps(record))
    healed = place.open()
    check_heads(healed)
    assert ids(healed.snapshot()) == ["ann"]
    kinds = [row.recovery_kind for row in healed.recovery_list()]
    assert sorted(kinds) == [RecoveryKind.ROLLED_BACK, RecoveryKind.STRAY_PUT_BACK]
    assert healed.recovery_status() == []


@pytest.mark.parametrize("dies", [False, True])
def test_a_sweeper_that_announces_after_another_has_settled_leaves_no_riddle(
    place: Place, dies: bool
) -> None:
    failpoints.arm("write.after_first_table")
    with pytest.raises(FailpointError):
        place.open().mutate(
            'query q() { insert Person { name: "half" } insert City { name: "x" } }'
        )
    failpoints.disarm()

    def settled_by_another() -> None:
        other = repository_of(place.open(mode=OpenMode.READ_ONLY))
        Recovery(other).sweep_branch(BranchName("main"))
        if dies:
            failpoints.arm("recovery.after_restore")

    store = place.store()
    paused = replace(store, objects=PausedAtAnnouncement(store.objects, settled_by_another))
    with suppress(FailpointError):
        open_for_writing(paused, SystemClock())
    failpoints.disarm()
    graph = place.open()
    graph.mutate(INSERT)
    assert ids(graph.snapshot()) == ["ann", "new"]
    check_heads(graph)
    kinds = [row.recovery_kind for row in graph.recovery_list()]
    assert kinds.count(RecoveryKind.ROLLED_BACK) == 1
    assert RecoveryKind.STRAY_PUT_BACK in kinds


class PausedAtAnnouncement(FaultyObjectStore):
    """Stops a sweeper right before it announces its restores."""

    def __init__(self, inner: ObjectStore, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner, FaultPlan())
        self._meanwhile: Callable[[], None] | None = meanwhile

    def put(self, path: str, data: bytes) -> str:
        meanwhile, self._meanwhile = self._meanwhile, None
        if path.startswith(FOLDER) and meanwhile is not None:
            meanwhile()
        return super().put(path, data)
