"""Crash recovery: the intent record, the verdict table, the replay."""

from omnigraph.recovery.audit import RecoveryAuditRow, RecoveryKind, RecoveryLog
from omnigraph.recovery.broken_manifest import (
    BrokenManifest,
    find_broken_manifests,
    put_manifests_back,
)
from omnigraph.recovery.classify import TableClass, Verdict
from omnigraph.recovery.intent import Intent, PlannedTable, WriterKind
from omnigraph.recovery.sweep import PendingRecovery, Recovery

__all__ = [
    "BrokenManifest",
    "Intent",
    "PendingRecovery",
    "PlannedTable",
    "Recovery",
    "RecoveryAuditRow",
    "RecoveryKind",
    "RecoveryLog",
    "TableClass",
    "Verdict",
    "WriterKind",
    "find_broken_manifests",
    "put_manifests_back",
]
