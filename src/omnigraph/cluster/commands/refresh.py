"""`refresh` and `import`: record what is really there.

Both verify blobs and observe the declared graphs on `main`, without changing any. What differs from
the declared state is then an ordinary change of the next plan. `import` begins with no ledger: it
records the graphs that it finds, invents no query and no policy, and records no config digest,
because nothing has been applied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from omnigraph.cluster.addresses import graph_address, schema_address
from omnigraph.cluster.commands.blobs import blob_findings
from omnigraph.cluster.commands.frame import Frame, Report, Workplace
from omnigraph.cluster.commands.settle import retire, settle
from omnigraph.cluster.commands.status import shown_state, state_lines
from omnigraph.cluster.compare.composites import Composer, composite_problems
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
    Observation,
    Status,
    StoredLedger,
    write_ledger,
)
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
class _Found:
    """The parts of a ledger that a run changes."""

    resources: dict[str, Entry]
    statuses: dict[str, Status]
    observations: dict[str, Observation]

    @classmethod
    def of(cls, ledger: Ledger) -> _Found:
        return cls(
            dict(ledger.resources), dict(ledger.resource_statuses), dict(ledger.observations)
        )

    def recorded_in(self, ledger: Ledger) -> Ledger:
        """Return a ledger with these parts, and digests of graphs that are computed from them."""
        composer = Composer(self.resources)
        for graph_id in composer.graph_ids:
            self.resources[str(graph_address(graph_id))] = composer.recomposed(graph_id)
        return replace(
            ledger.with_resources(self.resources, config_digest=ledger.config_digest),
            resource_statuses=self.statuses,
            observations=self.observations,
        )


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
        found = _Found.of(swept.ledger)
        self._verify_blobs(swept.ledger, found)
        for graph_id in sorted(self.desired.graphs):
            self._observe(graph_id, found, is_pending=graph_id in swept.pending)
        if self.command == "import" and has_errors(self.frame.diagnostics):
            return
        self._write(stored, found.recorded_in(swept.ledger))
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

    def _verify_blobs(self, ledger: Ledger, found: _Found) -> None:
        """Take lost blobs out of the ledger, so that the next plan writes them again."""
        for name, status in found.statuses.items():
            if "payload_read_error" in status.conditions:
                found.statuses[name] = Status("applied")
        for each in blob_findings(self.frame.work.root, ledger):
            self.frame.diagnostics.append(each.diagnostic)
            found.statuses[str(each.address)] = each.status
            if each.is_lost:
                del found.resources[str(each.address)]

    def _observe(self, graph_id: str, found: _Found, *, is_pending: bool) -> None:
        graph, schema = str(graph_address(graph_id)), str(schema_address(graph_id))
        look = self.frame.work.graphs.look(graph_id)
        if look.state == "unfinished" and graph not in found.resources:
            look = replace(look, state="absent")
        wanted = self.desired.resources[schema_address(graph_id)].digest
        is_same = look.is_open and self._is_declared(graph_id, look, wanted)
        if look.state == "absent":
            found.resources.pop(graph, None)
            found.resources.pop(schema, None)
        elif look.is_open:
            found.resources[schema] = Entry(wanted if is_same else str(look.schema_digest))
            found.resources.setdefault(graph, Entry(""))
        else:
            problem = error("graph_observation_error", graph, look.message)
            self.frame.diagnostics.append(problem)
        if not is_pending:
            found.statuses[graph] = found.statuses[schema] = _status(look, is_same=is_same)
        found.observations[graph] = self._observation(graph_id, look, wanted, is_same=is_same)

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
