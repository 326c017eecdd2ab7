"""A running server follows the applied revision of its cluster.

1. A new revision is read, checked and opened while the old one is served. It takes effect as one
   value: a request sees all of the old revision or all of the new one, and ends with what it began
   with.
2. A revision that cannot be served changes nothing; the log, `/readyz` and `/metrics` say so.
3. The ledger is written before the intents of its operations are removed. A revision whose intents
   are still there is read again until they are gone, for `SETTLE_MAX_S`.
4. A graph moves to a new schema before the ledger does. Until the new revision is in force, the
   handles of the old one read the last snapshot of the old schema, and refuse to write
   (`omnigraph.graph.schema_hold`).
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Final

from omnigraph.clock import Clock, SystemClock
from omnigraph.cluster.applied import AppliedRevision
from omnigraph.cluster.read_applied import ledger_tag, read_applied_in
from omnigraph.cluster.stored.root import StorageRoot
from omnigraph.errors import OmnigraphError
from omnigraph.server.call import Serving
from omnigraph.server.graphs import Graphs
from omnigraph.server.revisions.agreement import AGREE_MAX_S, Agreement, AgreementTimer
from omnigraph.server.revisions.prepare import Rules, check_revision, open_revision
from omnigraph.server.shared import Shared

NEAR_CHECK_S: Final = 0.5
FAR_CHECK_S: Final = 3.0
"""How often the ledger is looked at: on a disk, and in an object store."""
SETTLE_MAX_S: Final = 10.0
RETRY_MIN_S: Final = 5.0
RETRY_MAX_S: Final = 300.0
"""After how long what could not be served is tried again: twice as long after each time."""
_AGREE_STEP_S: Final = 0.05
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """Where a server gets its revisions from, and how it serves them.

    The files of a cluster are read at the start only: someone may be editing them.
    """

    root: StorageRoot
    rules: Rules
    shared: Shared

    @property
    def check_s(self) -> float:
        """How often the ledger is looked at."""
        return NEAR_CHECK_S if self.root.root.is_local else FAR_CHECK_S


class Follower:
    """Replaces what a server serves when its cluster has a new revision."""

    def __init__(
        self,
        serving: Serving,
        source: Source,
        agreement: Agreement,
        clock: Clock | None = None,
    ) -> None:
        """Take what is served now."""
        self._serving = serving
        self._source = source
        self._agreement = agreement
        self._clock = clock or SystemClock()
        self._seen: str | None = None
        self._pending_since: float | None = None
        self._tried_at = self._clock.monotonic_s()
        self._retry_s = RETRY_MIN_S
        self._refusal = ""
        self._timer = AgreementTimer(self._clock)
        self._reading = threading.Lock()
        self._switching = threading.Lock()
        self._key = _key_of(serving.graphs)
        self._proposed = {self._key: serving.graphs}
        agreement.propose(self._key)

    @property
    def check_s(self) -> float:
        """How often the ledger is looked at."""
        return self._source.check_s

    def wait_until_in_force(self) -> None:
        """Wait until all workers serve what this one has opened."""
        checked_at = self._clock.monotonic_s()
        while self._agreement.in_force() not in self._proposed:
            self._clock.sleep(_AGREE_STEP_S)
            now = self._clock.monotonic_s()
            if now - checked_at >= self.check_s:
                checked_at = now
                self.refresh()
        self.switch()

    def switch(self) -> None:
        """Serve what is in force; called before every request."""
        key = self._agreement.in_force()
        if key == self._key or key is None:
            return
        with self._switching:
            graphs = self._proposed.get(key)
            if graphs is None or key == self._key:
                return
            self._serving.graphs = graphs
            self._key = key
            latest = next(reversed(self._proposed))
            self._proposed = {one: self._proposed[one] for one in {key: None, latest: None}}
        self.say_what_is_served()

    def refresh(self, *, is_asked_for: bool = False) -> bool:
        """Read the ledger if it has changed; return whether another revision was proposed."""
        with self._reading:
            self.switch()
            self._warn_of_disagreement()
            try:
                tag = ledger_tag(self._source.root)
            except OmnigraphError as problem:
                _log.warning("the ledger of the cluster cannot be read: %s", problem)
                return False
            if tag != self._seen or is_asked_for:
                self._retry_s = RETRY_MIN_S
            elif self._is_retry_due():
                self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
            else:
                return False
            self._tried_at = self._clock.monotonic_s()
            revision = read_applied_in(self._source.root)
            if self._must_settle(revision):
                return False
            self._seen = tag
            return self._propose(revision)

    def _warn_of_disagreement(self) -> None:
        """Log that a revision waits for other workers, which may never be able to open it."""
        proposed, graphs = next(reversed(self._proposed.items()))
        is_overdue = self._timer.is_overdue(proposed=proposed, in_force=self._key)
        if is_overdue and graphs.revision is not None:
            _log.warning(
                "this worker could serve revision %d of the cluster for %d s, but not all workers"
                " can; what is served stays: the log of another worker says why, a restart of the"
                " server starts all of them with the same revision",
                graphs.revision.number,
                AGREE_MAX_S,
            )

    def _is_retry_due(self) -> bool:
        """Whether something was not served that may be served by now."""
        is_whole = not any(graphs.quarantined for graphs in self._proposed.values())
        if is_whole and self._serving.refused_revision is None:
            return False
        return self._clock.monotonic_s() - self._tried_at >= self._retry_s

    def _must_settle(self, revision: AppliedRevision) -> bool:
        """Whether to wait for the command that has just written the ledger."""
        served = self._serving.graphs.revision
        is_new = served is None or served.identity != revision.identity
        if not (is_new and revision.is_pending):
            self._pending_since = None
            return False
        now = self._clock.monotonic_s()
        if self._pending_since is None:
            self._pending_since = now
        return now - self._pending_since < SETTLE_MAX_S

    def _propose(self, revision: AppliedRevision) -> bool:
        try:
            checked = check_revision(revision, self._source.rules)
            latest = next(reversed(self._proposed.values()))
            graphs = open_revision(checked, self._source.shared, latest)
        except OmnigraphError as problem:
            self._refuse(revision, problem)
            return False
        self._serving.refused_revision = None
        self._refusal = ""
        key = _key_of(graphs)
        with self._switching:
            is_known = key in self._proposed
            # The last one is the one that was proposed last.
            self._proposed.pop(key, None)
            self._proposed[key] = graphs
            if key == self._key:
                self._serving.graphs = graphs
        self._agreement.propose(key)
        self.switch()
        return not is_known

    def _refuse(self, revision: AppliedRevision, problem: OmnigraphError) -> None:
        """Keep what is served; a ledger that is gone or unreadable has no number."""
        self._serving.refused_revision = revision.state_revision
        if str(problem) == self._refusal:
            return
        self._refusal = str(problem)
        _log.error(
            "revision %d of the cluster cannot be served, what is served stays: %s",
            revision.state_revision,
            problem,
        )

    def say_what_is_served(self) -> None:
        """Log the revision, and which of its graphs are not served."""
        graphs = self._serving.graphs
        if graphs.revision is None:
            return
        _log.info(
            "revision %d of the cluster is served",
            graphs.revision.number,
            extra={"cluster": self._source.root.uri, "graphs": len(graphs)},
        )
        for finding in graphs.quarantined.values():
            _log.warning("quarantined: [%s] %s: %s", finding.code, finding.path, finding.message)


def _key_of(graphs: Graphs) -> str:
    return "" if graphs.revision is None else graphs.revision.key
