"""Approvals: a person's consent to one deletion, bound to exactly what was to be deleted.

They are never deleted: a used one says when and by what it was used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from omnigraph.cluster.stored.folder import FolderForm, Found, read_folder, write_record
from omnigraph.cluster.stored.root import FOLDER, StorageRoot

VERSION: Final = 1


@dataclass(frozen=True)
class Approval:
    """Consent to one change, with the digests that it was given for."""

    schema_version: int
    approval_id: str
    resource: str
    operation: str
    reason: str
    bound_config_digest: str | None
    bound_before_digest: str | None
    bound_after_digest: str | None
    approved_by: str
    created_at: str
    consumed_at: str | None = None
    consumed_by_operation: str | None = None

    @property
    def path(self) -> str:
        """Where it lies under the storage root."""
        return APPROVALS.file(self.approval_id)


APPROVALS: Final = FolderForm(
    path=f"{FOLDER}/approvals",
    record=Approval,
    version=VERSION,
    unreadable="approval_read_error",
    invalid="invalid_approval_artifact",
    other_version="unsupported_approval_version",
    unwritable="approval_write_error",
)


def read_approvals(root: StorageRoot) -> Found[Approval]:
    """Read every approval by its path; what cannot be read is a warning."""
    return read_folder(root, APPROVALS)


def write_approval(root: StorageRoot, approval: Approval) -> None:
    """Write an approval, or replace the one of the same id."""
    write_record(root, APPROVALS, approval.approval_id, approval)
