"""Crash recovery: the intent record, the verdict table, the replay."""

from omnigraph.recovery.audit import RecoveryKind, RecoveryLog, RecoveryRecord
from omnigraph.recovery.classify import TableClass, Verdict
from omnigraph.recovery.sidecar import PlannedTable, Sidecar, WriterKind
from omnigraph.recovery.sweep import PendingRecovery, Recovery

__all__ = [
    "PendingRecovery",
    "PlannedTable",
    "Recovery",
    "RecoveryKind",
    "RecoveryLog",
    "RecoveryRecord",
    "Sidecar",
    "TableClass",
    "Verdict",
    "WriterKind",
]
