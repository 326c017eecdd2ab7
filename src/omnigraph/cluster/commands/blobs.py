"""What is wrong with the catalog blobs that a ledger names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from omnigraph.cluster.addresses import Address
from omnigraph.cluster.diagnostics import Diagnostic, error, warning
from omnigraph.cluster.stored.catalog import BlobState, has_blob, read_blob
from omnigraph.cluster.stored.ledger import Ledger, Status
from omnigraph.cluster.stored.root import StorageRoot


@dataclass(frozen=True)
class BlobFinding:
    """A blob that is not as it should be; `is_lost` means that another must be written."""

    address: Address
    diagnostic: Diagnostic
    status: Status
    is_lost: bool


_LOST: Final[dict[BlobState, tuple[str, str]]] = {
    "missing": ("catalog_payload_missing", "payload_missing"),
    "mismatch": ("catalog_payload_mismatch", "payload_mismatch"),
}
"""The code of a finding and the condition of the resource."""


def blob_findings(root: StorageRoot, ledger: Ledger) -> tuple[BlobFinding, ...]:
    """Read every blob that the ledger names; return those that are not as they should be."""
    findings = []
    for address, entry in ledger.entries.items():
        if not has_blob(address):
            continue
        blob = read_blob(root, address, entry.digest)
        if blob.state != "present":
            findings.append(_finding(address, blob.state, blob.message))
    return tuple(findings)


def _finding(address: Address, state: BlobState, message: str) -> BlobFinding:
    path = str(address)
    if state not in _LOST:
        found = error("catalog_payload_read_error", path, message)
        return BlobFinding(address, found, Status("error", ("payload_read_error",), message), False)
    remedy = "`omnigraph cluster refresh`, then `apply`, writes it again"
    code, condition = _LOST[state]
    found = warning(code, path, f"{message}; {remedy}")
    return BlobFinding(address, found, Status("drifted", (condition,), message), True)
