"""Small clusters for tests: a folder of files, and storage that counts what is done to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from omnigraph.clock import SystemClock
from omnigraph.cluster.commands.apply import apply
from omnigraph.cluster.commands.approve import approve
from omnigraph.cluster.commands.frame import Report, Workplace, open_workplace
from omnigraph.cluster.commands.plan import plan
from omnigraph.cluster.commands.refresh import import_state, refresh
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import has_errors
from omnigraph.cluster.graphs import Graphs, Look
from omnigraph.cluster.load_desired import load_desired
from omnigraph.cluster.stored.intents import VERSION, Intent, IntentKind
from omnigraph.cluster.stored.ledger import Ledger, read_ledger
from omnigraph.cluster.stored.lock import read_lock, remove
from omnigraph.schema import MigrationPlan
from support.fault_plan import FaultPlan
from support.faulty_store import FaultyObjectStore

POLICY: Final = """\
version: 1
groups:
  team: [ann]
rules:
  - id: readers
    allow: { actors: { group: team }, actions: [read] }
"""
SCHEMA: Final = "node Paper { doi: String @key  title: String? }\n"
NEXT_SCHEMA: Final = "node Paper { doi: String @key  title: String?  year: I32? }\n"
QUERY: Final = (
    "query by_doi($doi: String) { match { $p: Paper { doi: $doi } } return { $p.title } }\n"
)
NEXT_QUERY: Final = QUERY.replace("return { $p.title }", "return { $p.doi, $p.title }")


@dataclass(frozen=True)
class Folder:
    """A folder with `cluster.yaml`; `storage` is none if the cluster is stored in it."""

    path: Path
    storage: str | None = None

    def write(
        self,
        graphs: Mapping[str, tuple[str, Mapping[str, str]]],
        *,
        policies: Mapping[str, tuple[str, tuple[str, ...]]] | None = None,
        mock_model: str | None = None,
    ) -> None:
        """Declare graphs (schema, queries by name), policies (text, bindings) and a provider."""
        config: dict[str, Any] = {"version": 1, "graphs": {}, "policies": {}}
        if self.storage is not None:
            config["storage"] = self.storage
        if mock_model is not None:
            config["providers"] = {"embedding": {"emb": {"kind": "mock", "model": mock_model}}}
        self.path.mkdir(exist_ok=True)
        for graph_id, (schema, queries) in graphs.items():
            declared: dict[str, Any] = {"schema": f"{graph_id}.pg", "queries": {}}
            (self.path / f"{graph_id}.pg").write_text(schema)
            for name, text in queries.items():
                declared["queries"][name] = {"file": f"{graph_id}-{name}.gq"}
                (self.path / f"{graph_id}-{name}.gq").write_text(text)
            if mock_model is not None:
                declared["embedding_provider"] = "emb"
            config["graphs"][graph_id] = declared
        for name, (text, bound) in (policies or {}).items():
            (self.path / f"{name}.policy.yaml").write_text(text)
            config["policies"][name] = {"file": f"{name}.policy.yaml", "applies_to": list(bound)}
        (self.path / "cluster.yaml").write_text(json.dumps(config))

    def desired(self) -> Desired:
        desired = load_desired(str(self.path))
        assert desired.is_valid, desired.diagnostics
        return desired

    def work(self) -> Workplace:
        return open_workplace(self.storage or str(self.path))

    def ledger(self) -> Ledger:
        return read_ledger(self.work().root).ledger

    def plan(self) -> Report:
        return plan(self.desired(), self.work())

    def apply(self, work: Workplace | None = None) -> Report:
        return apply(self.desired(), work or self.work(), actor="ann")

    def approve(self, resource: str, work: Workplace | None = None) -> Report:
        return approve(self.desired(), work or self.work(), resource, actor="ann")

    def refresh(self, work: Workplace | None = None) -> Report:
        return refresh(self.desired(), work or self.work())

    def import_state(self, work: Workplace | None = None) -> Report:
        return import_state(self.desired(), work or self.work())

    def unlock(self) -> None:
        """Remove the lock of a run that has died."""
        root = self.work().root
        held = read_lock(root)
        if held is not None:
            remove(root, held.lock_id)


def succeeded(report: Report) -> Report:
    """Return a report that has no error."""
    assert not has_errors(report.diagnostics), report.diagnostics
    return report


def codes(report: Report) -> list[str]:
    """Return the codes of the findings."""
    return [found.code for found in report.diagnostics]


def changes_of(report: Report) -> dict[str, str]:
    """Return what becomes of each change: `create applied`, `delete blocked approval_required`."""
    found: Any = report.members["changes"]
    return {
        each["resource"]: " ".join(
            filter(None, (each["operation"], each["disposition"], each.get("reason")))
        )
        for each in found
    }


def an_intent(kind: IntentKind, graph_id: str, **members: Any) -> Intent:
    """Return what a run that has died may have left."""
    clock = SystemClock()
    return replace(
        Intent(VERSION, clock.ulid(), "2026-01-01T00:00:00.000Z", "ann", kind, graph_id), **members
    )


class FaultyGraphs:
    """Graphs under a fault plan: what changes them is numbered with the effects on objects."""

    def __init__(self, inner: Graphs, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan

    def look(self, graph_id: str) -> Look:
        return self._plan.read("graphs.look", graph_id, lambda: self._inner.look(graph_id))

    def preview(self, graph_id: str, source: str) -> MigrationPlan:
        return self._plan.read(
            "graphs.preview", graph_id, lambda: self._inner.preview(graph_id, source)
        )

    def schema_digest_at(self, graph_id: str, manifest_version: int) -> str | None:
        return self._plan.read(
            "graphs.schema_digest_at",
            graph_id,
            lambda: self._inner.schema_digest_at(graph_id, manifest_version),
        )

    def create(self, graph_id: str, source: str, *, actor: str | None) -> int:
        return self._plan.effect(
            "graphs.create", graph_id, lambda: self._inner.create(graph_id, source, actor=actor)
        )

    def migrate(
        self, graph_id: str, source: str, *, actor: str | None, begin: Callable[[int], None]
    ) -> int | None:
        def begun(version: int) -> None:
            begin(version)
            self._plan.effect("graphs.begin", graph_id, lambda: None)

        return self._plan.effect(
            "graphs.migrate",
            graph_id,
            lambda: self._inner.migrate(graph_id, source, actor=actor, begin=begun),
        )

    def is_exporting(self, graph_id: str) -> bool:
        return self._inner.is_exporting(graph_id)

    def delete(self, graph_id: str) -> None:
        self._plan.effect("graphs.delete", graph_id, lambda: self._inner.delete(graph_id))


def faulty_work(work: Workplace, plan: FaultPlan) -> Workplace:
    """Return the same workplace with storage and graphs under a plan."""
    root = replace(work.root, objects=FaultyObjectStore(work.root.objects, plan))
    return replace(work, root=root, graphs=FaultyGraphs(work.graphs, plan))
