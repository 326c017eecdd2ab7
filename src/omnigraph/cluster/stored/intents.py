"""Intents: what an operation that changes a graph intends, written before it begins.

After a crash the intent and the graph together say what happened (`cluster.sweep`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from omnigraph.cluster.stored.folder import FolderForm, Found, read_folder, write_record
from omnigraph.cluster.stored.root import FOLDER, StorageRoot

VERSION: Final = 1

IntentKind: TypeAlias = Literal["graph_create", "schema_apply", "graph_delete"]


@dataclass(frozen=True)
class Intent:
    """One operation on one graph; `expected_manifest_version` is set once it has succeeded."""

    schema_version: int
    operation_id: str
    started_at: str
    actor: str | None
    kind: IntentKind
    graph_id: str | None = None
    graph_uri: str | None = None
    observed_manifest_version: int | None = None
    expected_manifest_version: int | None = None
    desired_schema_digest: str | None = None
    state_cas_base: str | None = None
    approval_id: str | None = None

    @property
    def path(self) -> str:
        """Where it lies under the storage root."""
        return INTENTS.file(self.operation_id)


INTENTS: Final = FolderForm(
    path=f"{FOLDER}/recoveries",
    record=Intent,
    version=VERSION,
    unreadable="recovery_sidecar_read_error",
    invalid="invalid_recovery_sidecar",
    other_version="unsupported_recovery_sidecar_version",
    unwritable="recovery_sidecar_write_error",
)


def read_intents(root: StorageRoot) -> Found[Intent]:
    """Read every intent by its path; what cannot be read is a warning."""
    return read_folder(root, INTENTS)


def write_intent(root: StorageRoot, intent: Intent) -> None:
    """Write an intent, or replace the one of the same operation."""
    write_record(root, INTENTS, intent.operation_id, intent)
