"""`apply`: makes graphs and catalog what the files declare, and records it.

1. Lock, read the ledger, and check that the digest of every graph is that of its parts.
2. Settle the intents of dead runs; then compare, look for approvals, and classify.
3. Make new graphs.
4. Migrate schemas.
5. Block what depends on something that failed.
6. Write catalog blobs.
7. Delete graphs whose deletion is approved.
8. Compute the new ledger.
9. Write it, if it says something new, in one conditional write.
10. Delete the intents that it makes superfluous, and note in approvals that they are used.

A run that dies anywhere leaves a ledger that says only what is so, and intents from which the next
run finds out the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from omnigraph.cluster.addresses import Address
from omnigraph.cluster.commands.applying.failures import warnings_of, with_failures
from omnigraph.cluster.commands.applying.moves import MoveContext, Moves
from omnigraph.cluster.commands.applying.next_ledger import Carried, is_converged, next_ledger
from omnigraph.cluster.commands.applying.payloads import publish_payloads
from omnigraph.cluster.commands.frame import Frame, Report, Workplace
from omnigraph.cluster.commands.lines import change_lines
from omnigraph.cluster.commands.plan import desired_revision, shapes_of
from omnigraph.cluster.commands.settle import retire, settle
from omnigraph.cluster.compare.classify import classify, with_used_parts
from omnigraph.cluster.compare.composites import composite_problems
from omnigraph.cluster.compare.consent import Consent, consent_for
from omnigraph.cluster.compare.diff import Change, diff
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.stored.approvals import read_approvals
from omnigraph.cluster.stored.json_objects import moment
from omnigraph.cluster.stored.ledger import Entry, Ledger, StoredLedger, write_ledger
from omnigraph.cluster.sweep import Swept
from omnigraph.failpoints import hit
from omnigraph.records import JsonObject, to_json


def apply(desired: Desired, work: Workplace, *, actor: str | None = None) -> Report:
    """Carry out what differs between the declared and the applied state."""
    run = _Apply(desired, work, actor)
    frame = run.frame
    frame.run_locked("apply", run.steps, is_locked=desired.is_locked)
    changes, statuses = run.changes, frame.stored.ledger.resource_statuses
    members: JsonObject = {
        **({} if actor is None else {"actor": actor}),
        "desired_revision": desired_revision(desired),
        "state_observations": frame.observations(),
        "changes": shapes_of(changes),
        "applied_count": sum(change.is_applied for change in changes),
        "deferred_count": sum(c.disposition in ("deferred", "blocked") for c in changes),
        "converged": frame.stored.is_found and is_converged(frame.stored.ledger, desired),
        "state_written": run.is_written,
        "resource_statuses": {name: to_json(statuses[name]) for name in sorted(statuses)},
    }
    lines = _lines(changes, members) if run.is_compared else ()
    return Report(tuple(frame.diagnostics), members, lines)


class _Apply:
    """One run; `changes` and `is_written` say how far it has come."""

    def __init__(self, desired: Desired, work: Workplace, actor: str | None) -> None:
        self.frame = Frame(work, desired.diagnostics)
        self.changes: tuple[Change, ...] = ()
        self.is_compared = False
        self.is_written = False
        self._applied: Mapping[Address, Entry] = {}
        self._desired = desired
        self._work = work
        self._actor = actor

    def steps(self) -> None:
        """Do the steps in order."""
        stored = self._checked_ledger()
        swept = settle(self.frame, stored.ledger)
        consent = self._compared(swept)
        moves = self._moved_graphs(stored)
        self._published()
        self._deleted_graphs(moves, consent)
        after = self._next_ledger(swept, moves)
        self._written(stored, after)
        self._retired(swept, moves)

    def _checked_ledger(self) -> StoredLedger:
        stored = self.frame.require_ledger()
        self.frame.refuse(composite_problems(stored.ledger))
        return stored

    def _compared(self, swept: Swept) -> Consent:
        found = diff(self._desired, swept.ledger)
        approvals = read_approvals(self._work.root)
        consent = consent_for(
            found,
            approvals.records.values(),
            ledger=swept.ledger,
            config_digest=self._desired.config_digest,
        )
        self.frame.diagnostics += (*approvals.diagnostics, *consent.diagnostics)
        self._applied = swept.ledger.entries
        classified = classify(
            found,
            policy_targets=self._desired.policy_targets,
            pending_graphs=swept.pending,
            approved_graphs=consent.by_graph,
        )
        self.changes = with_used_parts(classified, self._applied)
        self.is_compared = True
        return consent

    def _moved_graphs(self, stored: StoredLedger) -> Moves:
        context = MoveContext(
            self._work, self._desired, self._actor, stored.identity, self.frame.require_sole
        )
        moves = Moves(context, self.frame.diagnostics)
        moves.create_graphs(self.changes)
        moves.apply_schemas(self.changes)
        self._block(moves)
        return moves

    def _published(self) -> None:
        publish_payloads(self._work.root, self._desired, self.changes)
        hit("cluster_apply.after_payloads")

    def _deleted_graphs(self, moves: Moves, consent: Consent) -> None:
        moves.delete_graphs(self.changes, consent.by_graph)
        self._block(moves)
        self.frame.diagnostics += warnings_of(self.changes, moves.failures)

    def _next_ledger(self, swept: Swept, moves: Moves) -> Ledger:
        at = moment(self._work.clock)
        done = Carried(self.changes, moves.deleted, moves.observed, swept.pending, at, self._actor)
        return next_ledger(swept.ledger, self._desired, done)

    def _written(self, stored: StoredLedger, after: Ledger) -> None:
        if after == stored.ledger:
            return
        hit("cluster_apply.before_state_write")
        after = replace(after, state_revision=stored.ledger.state_revision + 1)
        self.frame.stored = write_ledger(self._work.root, after, base=stored.identity)
        self.is_written = True
        hit("cluster_apply.after_state_write")

    def _retired(self, swept: Swept, moves: Moves) -> None:
        retire(self.frame, (*swept.retired, *moves.finished))

    def _block(self, moves: Moves) -> None:
        blocked = with_failures(
            self.changes, moves.failures, policy_targets=self._desired.policy_targets
        )
        self.changes = with_used_parts(blocked, self._applied)


def _lines(changes: Sequence[Change], members: JsonObject) -> tuple[str, ...]:
    state = "converged" if members["converged"] else "not converged"
    counts = f"applied: {members['applied_count']}, deferred: {members['deferred_count']}"
    return (*change_lines(changes), f"{counts}, {state}")
