"""Random edits, runs, deaths and outside changes; the reported drift is what a model computes.

Graphs live in a dictionary, with the engine's own plans of migrations. The model knows what is
declared, what is recorded, and what somebody has done past the cluster.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from omnigraph.clock import SystemClock
from omnigraph.cluster.addresses import Kind, graph_address, query_address, schema_address
from omnigraph.cluster.commands.frame import Report, Workplace
from omnigraph.cluster.commands.plan import plan
from omnigraph.cluster.compare.composites import composite_problems
from omnigraph.cluster.digests import content_digest
from omnigraph.cluster.graphs import Look
from omnigraph.cluster.stored.catalog import blob_path
from omnigraph.cluster.stored.intents import read_intents
from omnigraph.cluster.stored.ledger import Ledger, read_ledger
from omnigraph.cluster.stored.lock import read_lock, remove
from omnigraph.cluster.stored.root import StorageRoot
from omnigraph.names import MAIN
from omnigraph.schema import MigrationPlan, compile_schema, plan_schema
from omnigraph.store.errors import ObjectNotFoundError
from omnigraph.store.uri import parse_root
from support.clusters import Folder, changes_of, faulty_work, succeeded
from support.fault_plan import FaultMode, FaultPlan, SimulatedDeath
from support.memory_objects import MemoryObjectStore

GRAPHS = ("a", "b")
SCHEMAS = tuple(
    f"node Paper {{ doi: String @key{extra} }}\n"
    for extra in ("", "  title: String?", "  title: String?  year: I32?", "  year: I32?")
)
QUERIES = tuple(
    f"query all() {{ match {{ $p: Paper }} return {{ $p.doi }} limit {number} }}\n"
    for number in (1, 2, 3)
)
graph_ids = st.sampled_from(GRAPHS)
schemas = st.sampled_from(SCHEMAS)
queries = st.sampled_from(QUERIES)


@dataclass
class MemoryGraphs:
    """Graphs as lists of the schemas that they have had."""

    live: dict[str, list[str]] = field(default_factory=dict)

    def look(self, graph_id: str) -> Look:
        versions = self.live.get(graph_id)
        return Look("open", len(versions), versions[-1]) if versions else Look("absent")

    def preview(self, graph_id: str, source: str) -> MigrationPlan:
        if graph_id not in self.live:
            raise ObjectNotFoundError(path=graph_id)
        accepted = compile_schema(self.live[graph_id][-1], domain=MAIN).ir
        return plan_schema(source, accepted=accepted).plan

    def schema_digest_at(self, graph_id: str, manifest_version: int) -> str | None:
        versions = self.live.get(graph_id, [])[:manifest_version]
        return content_digest(versions[-1].encode()) if versions else None

    def create(self, graph_id: str, source: str, *, actor: str | None) -> int:
        assert graph_id not in self.live
        self.live[graph_id] = [source]
        return 1

    def migrate(
        self, graph_id: str, source: str, *, actor: str | None, begin: Callable[[int], None]
    ) -> int | None:
        if not self.preview(graph_id, source).steps:
            return None
        begin(len(self.live[graph_id]))
        self.live[graph_id].append(source)
        return len(self.live[graph_id])

    def is_exporting(self, graph_id: str) -> bool:
        return False

    def delete(self, graph_id: str) -> None:
        self.live.pop(graph_id, None)


class ClusterMachine(RuleBasedStateMachine):
    """A cluster of two graphs with one query each."""

    @initialize()
    def begin(self) -> None:
        self.folder = Folder(Path(tempfile.mkdtemp()))
        self.graphs = MemoryGraphs()
        root = StorageRoot(parse_root(str(self.folder.path)), MemoryObjectStore())
        self.work = Workplace(root, self.graphs, SystemClock())
        self.declared: dict[str, tuple[str, str]] = {}
        self.is_fresh = True
        """Whether the ledger knows of everything that was done past the cluster."""
        self.write()
        succeeded(self.folder.import_state(self.work))

    def teardown(self) -> None:
        shutil.rmtree(self.folder.path, ignore_errors=True)

    # -- edits ------------------------------------------------------------------------------------

    @rule(graph_id=graph_ids, schema=schemas, query=queries)
    def declare(self, graph_id: str, schema: str, query: str) -> None:
        # Only declared graphs are looked at.
        self.is_fresh = self.is_fresh and graph_id in self.declared
        self.declared[graph_id] = (schema, query)
        self.write()

    @rule(graph_id=graph_ids)
    def undeclare(self, graph_id: str) -> None:
        self.declared.pop(graph_id, None)
        self.write()

    # -- past the cluster -------------------------------------------------------------------------

    @rule(graph_id=graph_ids)
    def lose_graph(self, graph_id: str) -> None:
        if graph_id in self.graphs.live:
            self.graphs.delete(graph_id)
            self.is_fresh = False

    @rule(graph_id=graph_ids, schema=schemas)
    def change_schema(self, graph_id: str, schema: str) -> None:
        if graph_id in self.graphs.live:
            self.graphs.live[graph_id].append(schema)
            self.is_fresh = False

    @rule(graph_id=graph_ids, is_deleted=st.booleans())
    def spoil_blob(self, graph_id: str, is_deleted: bool) -> None:
        entry = self.ledger.entries.get(query_address(graph_id, "all"))
        if entry is None:
            return
        path = blob_path(query_address(graph_id, "all"), entry.digest)
        if is_deleted:
            self.work.root.objects.delete(path)
        else:
            self.work.root.objects.put(path, b"tampered")
        self.is_fresh = False

    # -- commands ---------------------------------------------------------------------------------

    @rule()
    def refresh(self) -> None:
        expected = self.queries_that_stay()
        succeeded(self.folder.refresh(self.work))
        self.check_drift()
        assert {a.names[0] for a in self.ledger.entries if a.kind is Kind.QUERY} == expected
        self.is_fresh = True
        self.check_plan()

    @rule()
    def refresh_and_apply(self) -> None:
        self.refresh()
        for address in changes_of(self.plan()):
            if address.startswith("graph.") and address.removeprefix("graph.") not in self.declared:
                succeeded(self.folder.approve(address, self.work))
        report = succeeded(self.folder.apply(self.work))
        assert report.members["converged"]
        assert changes_of(self.plan()) == {}
        assert {g: (v[-1]) for g, v in self.graphs.live.items() if g in self.declared} == {
            graph_id: schema for graph_id, (schema, _) in self.declared.items()
        }
        assert self.ledger.config_digest == self.folder.desired().config_digest

    @rule()
    def apply_unseen(self) -> None:
        """Apply without looking first: some of it may fail, and nothing untrue is recorded."""
        self.folder.apply(self.work)
        self.is_fresh = False

    @rule(at=st.integers(1, 14), mode=st.sampled_from([FaultMode.DIE_AFTER, FaultMode.DIE_BEFORE]))
    def die(self, at: int, mode: FaultMode) -> None:
        with suppress(SimulatedDeath):
            self.folder.apply(faulty_work(self.work, FaultPlan(at=at, mode=mode)))
        held = read_lock(self.work.root)
        if held is not None:
            remove(self.work.root, held.lock_id)
        self.is_fresh = False

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def the_ledger_is_sound(self) -> None:
        if not hasattr(self, "work"):
            return
        assert composite_problems(self.ledger) == ()
        if not self.is_fresh:
            return
        assert read_intents(self.work.root).records == {}
        for graph_id in self.declared:
            entry = self.ledger.entries.get(schema_address(graph_id))
            assert entry is None or self.graphs.look(graph_id).has_schema(entry.digest)

    def queries_that_stay(self) -> set[str]:
        """Return the graphs whose query is recorded and stored, and which are not deleted."""
        deleted = {
            intent.graph_id
            for intent in read_intents(self.work.root).records.values()
            if intent.kind == "graph_delete" and intent.graph_id not in self.graphs.live
        }
        return {
            address.names[0]
            for address, entry in self.ledger.entries.items()
            if address.kind is Kind.QUERY
            and address.names[0] not in deleted
            and self.stored_digest(blob_path(address, entry.digest)) == entry.digest
        }

    def stored_digest(self, path: str) -> str | None:
        if self.work.root.objects.head(path) is None:
            return None
        return content_digest(self.work.root.objects.get(path).data)

    def check_drift(self) -> None:
        """Compare the statuses after a refresh with the difference of model and files."""
        statuses = self.ledger.resource_statuses
        for graph_id, (schema, _) in self.declared.items():
            live = self.graphs.live.get(graph_id)
            if live is None:
                expected = ("drifted", ("graph_missing",))
            elif live[-1] != schema:
                expected = ("drifted", ("schema_mismatch",))
            else:
                expected = ("applied", ())
            for address in (graph_address(graph_id), schema_address(graph_id)):
                found = statuses[str(address)]
                assert (found.status, found.conditions) == expected

    def check_plan(self) -> None:
        """The plan after a refresh is the difference of the files and what is there."""
        expected = set()
        for graph_id, (schema, query) in self.declared.items():
            live = self.graphs.live.get(graph_id)
            if live is None or live[-1] != schema:
                expected.add(f"schema.{graph_id}")
            stored = self.ledger.entries.get(query_address(graph_id, "all"))
            if stored is None or stored.digest != content_digest(query.encode()):
                expected.add(f"query.{graph_id}.all")
        for address in self.ledger.entries:
            if address.graph_id not in self.declared:
                expected.add(str(address))
        found = changes_of(self.plan())
        parts = {address for address in found if not address.startswith("graph.")}
        assert parts == {address for address in expected if not address.startswith("graph.")}
        touched = {address.split(".")[1] for address in expected}
        assert {a.removeprefix("graph.") for a in found if a.startswith("graph.")} <= touched

    # -- helpers ----------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        return read_ledger(self.work.root).ledger

    def plan(self) -> Report:
        return succeeded(plan(self.folder.desired(), self.work))

    def write(self) -> None:
        self.folder.write(
            {
                graph_id: (schema, {"all": query})
                for graph_id, (schema, query) in self.declared.items()
            }
        )


def test_drift_is_what_the_model_computes() -> None:
    run_state_machine_as_test(
        ClusterMachine, settings=settings(max_examples=15, stateful_step_count=20)
    )


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_drift_is_what_the_model_computes_in_many_histories() -> None:
    run_state_machine_as_test(
        ClusterMachine, settings=settings(max_examples=100, stateful_step_count=40)
    )
