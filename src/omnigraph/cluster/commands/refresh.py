"""`refresh` and `import`: record what is really there.

Both verify blobs and observe the declared graphs on `main`, without changing any. What differs from
the declared state is then an ordinary change of the next plan. `import` begins with no ledger: it
records the graphs that it finds, invents no query and no policy, and records no config digest,
because nothing has been applied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from omnigraph.cluster.addresses import Kind, graph_address, schema_address
from omnigraph.cluster.commands.blobs import blob_findings
from omnigraph.cluster.commands.frame import Frame, Report, Workplace
from omnigraph.cluster.commands.settle import retire, settle
from omnigraph.cluster.commands.status import shown_state, state_lines
from omnigraph.cluster.compare.composites import composite_problems, recomposed
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import DiagnosedError, error, has_errors
from omnigraph.cluster.graphs import Look
from omnigraph.cluster.stored.json_objects import moment
from omnigraph.cluster.stored.ledger import (
    EMPTY,
    LEDGER_PATH,
    Entry,
    GraphObservation,
    Ledger,
    Status,
    StoredLedger,
    write_ledger,
)
from omnigraph.cluster.sweep import Swept
from omnigraph.errors import OmnigraphError
from omnigraph.failpoints import hit
from omnigraph.records import JsonObject

Command: TypeAlias = Literal["refresh", "import"]


def refresh(desired: Desired, work: Workplace) -> Report:
    """Bring the ledger up to date with blobs and graphs; it is written in any case."""
    return _report(desired, work, "refresh")


def import_state(desired: Desired, work: Workplace) -> Report:
    """Make the first ledger from the graphs that are there; on any error nothing is written."""
    return _report(desired, work, "import")


def _report(desired: Desired, work: Workplace, command: Command) -> Report:
    frame = Frame(work, desired.diagnostics)
    run = _Refresh(desired, frame, command)
    frame.run_locked(command, run.steps, is_locked=desired.is_locked)
    ledger = frame.stored.ledger
    members: JsonObject = {
        "operation": command,
        "state_observations": frame.observations(),
        **shown_state(ledger),
    }
    head = f"{command}: revision {ledger.state_revision}"
    return Report(tuple(frame.diagnostics), members, (head, *state_lines(ledger)))


@dataclass(frozen=True)
class _Refresh:
    """One run of either command."""

    desired: Desired
    frame: Frame
    command: Command

    def steps(self) -> None:
        """Do the steps in order."""
        stored = self._base()
        self.frame.refuse(composite_problems(stored.ledger))
        swept = settle(self.frame, stored.ledger)
        after = self._with_blobs(swept.ledger)
        after = self._with_graphs(after, swept)
        if self.command == "import" and has_errors(self.frame.diagnostics):
            return
        self._write(stored, after)
        retire(self.frame, swept.retired)

    def _base(self) -> StoredLedger:
        if self.command == "refresh":
            return self.frame.require_ledger()
        if self.frame.read_ledger().is_found:
            message = "there is a ledger already: `omnigraph cluster refresh` brings it up to date"
            raise DiagnosedError(error("state_already_exists", LEDGER_PATH, message))
        return StoredLedger(EMPTY, None)

    def _write(self, stored: StoredLedger, after: Ledger) -> None:
        hit(f"cluster_{self.command}.before_state_write")
        after = replace(after, state_revision=stored.ledger.state_revision + 1)
        self.frame.stored = write_ledger(self.frame.work.root, after, base=stored.identity)
        hit(f"cluster_{self.command}.after_state_write")

    def _with_blobs(self, ledger: Ledger) -> Ledger:
        """Take lost blobs out of the ledger, so that the next plan writes them again."""
        resources, statuses = dict(ledger.resources), dict(ledger.resource_statuses)
        findings = {f.address: f for f in blob_findings(self.frame.work.root, ledger)}
        for address, found in findings.items():
            self.frame.diagnostics.append(found.diagnostic)
            statuses[str(address)] = found.status
            if found.is_lost:
                del resources[str(address)]
        for name, status in ledger.resource_statuses.items():
            # A blob that could not be read and now can be is as it should be.
            if "payload_read_error" in status.conditions and statuses[name] is status:
                statuses[name] = Status("applied")
        return _recomposed(ledger, resources, statuses)

    def _with_graphs(self, ledger: Ledger, swept: Swept) -> Ledger:
        for graph_id in sorted(self.desired.graphs):
            is_pending = graph_id in swept.pending
            ledger = self._observed(ledger, graph_id, is_pending=is_pending)
        return ledger

    def _observed(self, ledger: Ledger, graph_id: str, *, is_pending: bool) -> Ledger:
        graph, schema = str(graph_address(graph_id)), str(schema_address(graph_id))
        look = self.frame.work.graphs.look(graph_id)
        if look.state == "unfinished" and graph not in ledger.resources:
            look = replace(look, state="absent")
        wanted = self.desired.resources[schema_address(graph_id)].digest
        is_same = look.is_open and self._is_declared(graph_id, look, wanted)
        resources = dict(ledger.resources)
        if look.state == "absent":
            resources.pop(graph, None)
            resources.pop(schema, None)
        elif look.is_open:
            resources[schema] = Entry(wanted if is_same else str(look.schema_digest))
            resources[graph] = recomposed(graph_id, resources)
        statuses = dict(ledger.resource_statuses)
        if not is_pending:
            statuses[graph] = statuses[schema] = _status(look, is_same=is_same)
        if look.state in ("broken", "unfinished"):
            found = error("graph_observation_error", graph, look.message)
            self.frame.diagnostics.append(found)
        seen = self._observation(graph_id, look, wanted, is_same=is_same)
        ledger = replace(ledger, observations={**ledger.observations, graph: seen})
        return _recomposed(ledger, resources, statuses)

    def _observation(
        self, graph_id: str, look: Look, wanted: str, *, is_same: bool
    ) -> GraphObservation:
        return GraphObservation(
            address=str(graph_address(graph_id)),
            graph_uri=self.frame.work.root.graph_uri(graph_id),
            observed_at=moment(self.frame.work.clock),
            exists=look.state != "absent",
            graph_manifest_version=look.manifest_version,
            schema_digest=look.schema_digest,
            desired_schema_digest=wanted,
            schema_matches_desired=is_same if look.is_open else None,
            error=look.message if look.state in ("broken", "unfinished") else None,
        )

    def _is_declared(self, graph_id: str, look: Look, wanted: str) -> bool:
        """Whether the live schema is the declared one, but for comments and format.

        The engine does not store a text that changes nothing else.
        """
        if look.has_schema(wanted):
            return True
        source = self.desired.graphs[graph_id].schema_source
        try:
            return not self.frame.work.graphs.preview(graph_id, source).steps
        except OmnigraphError:
            return False


def _status(look: Look, *, is_same: bool) -> Status:
    if look.state == "absent":
        return Status("drifted", ("graph_missing",))
    if not look.is_open:
        return Status("error", ("graph_observation_error",), look.message)
    return Status("applied") if is_same else Status("drifted", ("schema_mismatch",))


def _recomposed(ledger: Ledger, resources: dict[str, Entry], statuses: dict[str, Status]) -> Ledger:
    """Return the ledger with other entries, and with the digests of graphs computed from them."""
    for address in ledger.with_resources(resources).entries:
        if address.kind is Kind.GRAPH:
            resources[str(address)] = recomposed(address.name, resources)
    after = ledger.with_resources(resources, config_digest=ledger.config_digest)
    return replace(after, resource_statuses=statuses)
