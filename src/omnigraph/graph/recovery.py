"""`graph.recovery`: what crash recovery did, and would do."""

from __future__ import annotations

from omnigraph.graph.session import Part
from omnigraph.recovery import PendingRecovery, RecoveryAuditRow


class GraphRecovery(Part):
    """Shows intent records and the audit table."""

    def show(self, operation_id: str) -> RecoveryAuditRow:
        """Return what recovery did about one operation."""
        return self._session.recovery.show(operation_id)

    def status(self) -> list[PendingRecovery]:
        """Return the records of unfinished writes and what recovery would do; changes nothing."""
        return self._session.recovery.status()

    def quarantine(self, operation_id: str) -> str:
        """Quarantine the record of an operation that recovery cannot settle; return its path.

        Works on a graph that was opened for reading only: a record that names no branch stops every
        other open.
        """
        return self._session.recovery.quarantine(operation_id)

    def list(self) -> list[RecoveryAuditRow]:
        """Return what recovery has done, newest first."""
        return self._session.recovery.log.rows()
