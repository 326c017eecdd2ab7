"""Tables next to the manifest take rows of other processes at any moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import lance
import pytest

from omnigraph.graph import Graph
from omnigraph.manifest.checksums import CHECKSUMS
from omnigraph.manifest.layout import COMMITS
from omnigraph.recovery.audit import RECOVERIES, RecoveryAuditRow, RecoveryKind, RecoveryLog
from support.places import Place, add, finish_maintenance, repository_of


def audit_row(operation_id: str) -> RecoveryAuditRow:
    return RecoveryAuditRow(
        operation_id=operation_id,
        graph_commit_id=None,
        recovery_kind=RecoveryKind.ROLLED_BACK,
        recovery_for_actor=None,
        sidecar_writer_kind=None,
        per_table_outcomes=(),
        transaction_ids=(),
        created_at=1,
    )


def commit_after(monkeypatch: pytest.MonkeyPatch, rival: Callable[[], object]) -> None:
    """Let a rival commit between the last look of the next commit and the commit itself."""
    commit = lance.LanceDataset.commit

    def late(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        rival()
        return commit(*args, **options)

    monkeypatch.setattr(lance.LanceDataset, "commit", late)


def logs(place: Place) -> tuple[RecoveryLog, RecoveryLog]:
    graph, other = place.init(), place.open()
    first, second = (RecoveryLog(repository_of(g).store.datasets) for g in (graph, other))
    first.record(audit_row("a"))
    return first, second


def test_an_audit_row_lands_above_that_of_another_branch(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, rival = logs(place)
    commit_after(monkeypatch, lambda: rival.record(audit_row("b")))
    log.record(audit_row("c"))
    assert {row.operation_id for row in log.rows()} == {"a", "b", "c"}
    assert repository_of(place.open()).store.datasets.head_version(RECOVERIES) == 3


def test_commits_of_two_handles_are_recorded_without_a_warning(
    local_place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph, other = local_place.init(), local_place.open()
    late, first = add(graph, "ann").commit, add(other, "bob").commit
    assert late is not None
    assert first is not None
    tables, rival = (repository_of(g).commit_tables for g in (graph, other))
    finish_maintenance(graph)
    finish_maintenance(other)
    made = [replace(one, graph_commit_id=one.graph_commit_id[::-1]) for one in (late, first)]
    commit_after(monkeypatch, lambda: rival.record(made[1:]))
    tables.record(made[:1])
    assert not caplog.records
    ids = {one.graph_commit_id for one in made}
    assert set(tables.find(ids)) == ids
    stored = repository_of(local_place.open()).store.datasets.open(COMMITS).count()
    tables.record(made)
    assert repository_of(local_place.open()).store.datasets.open(COMMITS).count() == stored


def test_checksums_of_removed_files_go_while_others_are_added(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, other = place.init(), place.open()
    write(graph, "a")
    table, datasets = repository_of(graph).checksums, repository_of(graph).store.datasets
    table.forget(["nodes/none/data/gone.lance"])
    before = datasets.head_version(CHECKSUMS)
    commit_after(monkeypatch, lambda: write(other, "b"))
    assert table.drop_gone()
    assert datasets.head_version(CHECKSUMS) > before + 1


def write(graph: Graph, name: str) -> None:
    graph.mutate(f'query q() {{ insert Person {{ name: "{name}" }} }}')
    finish_maintenance(graph)
