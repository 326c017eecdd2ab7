"""Crash recovery: the intent record, the verdict table, the replay."""

from omnigraph.recovery.audit import RecoveryKind, RecoveryLog, RecoveryRecord
from omnigraph.recovery.broken_manifest import (
    BrokenManifest,
    find_broken_manifests,
    put_manifests_back,
)
from omnigraph.recovery.classify import TableClass, Verdict
from omnigraph.recovery.sidecar import PlannedTable, Sidecar, WriterKind
from omnigraph.recovery.sweep import PendingRecovery, Recovery

__all__ = [
    "BrokenManifest",
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
    "find_broken_manifests",
    "put_manifests_back",
]
