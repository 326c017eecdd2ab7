"""Catalog blobs of the changes that are carried out.

Blobs come before the ledger that names them: without the ledger they mean nothing, and a ledger
never names a blob that is not there. One that is there is compared with its digest before it is
taken for the right one, so one that was tampered with is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.cluster.commands.applying.moves import verified_content
from omnigraph.cluster.compare.diff import Change
from omnigraph.cluster.desired import Desired, Resource
from omnigraph.cluster.diagnostics import DiagnosedError, error
from omnigraph.cluster.stored.catalog import has_blob, read_blob, write_blob
from omnigraph.cluster.stored.root import StorageRoot
from omnigraph.errors import OmnigraphError


def publish_payloads(root: StorageRoot, desired: Desired, changes: Sequence[Change]) -> None:
    """Write the blobs that are not there; an error ends the run with the ledger as it was."""
    for change in changes:
        if change.is_applied and change.operation != "delete" and has_blob(change.address):
            _publish(root, desired.resources[change.address])


def _publish(root: StorageRoot, resource: Resource) -> None:
    if read_blob(root, resource.address, resource.digest).is_present:
        return
    content = verified_content(resource)
    try:
        write_blob(root, resource.address, content)
    except OmnigraphError as problem:
        found = error("resource_payload_write_error", str(resource.address), str(problem))
        raise DiagnosedError(found) from problem
