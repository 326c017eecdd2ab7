"""What differs between the declared and the applied state, as changes sorted by address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from omnigraph.cluster.addresses import Address, Kind
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.stored.ledger import Entry, Ledger
from omnigraph.records import OPTIONAL, JsonObject

Operation: TypeAlias = Literal["create", "update", "delete"]
Disposition: TypeAlias = Literal["applied", "derived", "deferred", "blocked"]
MetadataChange: TypeAlias = Literal["policy_bindings", "embedding_profile"]


@dataclass(frozen=True)
class Change:
    """One resource that is not as it is declared, and what becomes of it."""

    address: Address
    operation: Operation
    before: str | None = None
    after: str | None = None
    metadata_change: MetadataChange | None = None
    """What differs although the digests are equal."""
    disposition: Disposition | None = None
    reason: str | None = None
    migration: JsonObject | None = None
    steps: tuple[str, ...] = ()
    """The steps of the migration, for people."""

    @property
    def resource(self) -> str:
        """The address as text."""
        return str(self.address)

    @property
    def is_applied(self) -> bool:
        """Whether it is carried out on its own."""
        return self.disposition == "applied"

    @property
    def is_blocked(self) -> bool:
        """Whether something stands in its way."""
        return self.disposition == "blocked"


@dataclass(frozen=True)
class ChangeShape:
    """A change as commands print it."""

    resource: str
    operation: Operation
    before_digest: str | None = field(default=None, metadata=OPTIONAL)
    after_digest: str | None = field(default=None, metadata=OPTIONAL)
    disposition: Disposition | None = field(default=None, metadata=OPTIONAL)
    reason: str | None = field(default=None, metadata=OPTIONAL)
    binding_change: bool | None = field(default=None, metadata=OPTIONAL)
    metadata_change: MetadataChange | None = field(default=None, metadata=OPTIONAL)
    migration: JsonObject | None = field(default=None, metadata=OPTIONAL)


def shape_of(change: Change) -> ChangeShape:
    """Return a change as commands print it."""
    return ChangeShape(
        change.resource,
        change.operation,
        change.before,
        change.after,
        change.disposition,
        change.reason,
        True if change.metadata_change == "policy_bindings" else None,
        change.metadata_change,
        change.migration,
    )


def diff(desired: Desired, ledger: Ledger) -> tuple[Change, ...]:
    """Compare what is declared with what is applied."""
    applied = ledger.entries
    addresses = sorted({*desired.resources, *applied}, key=str)
    found = (_change(address, desired, applied) for address in addresses)
    return tuple(change for change in found if change is not None)


def _change(address: Address, desired: Desired, applied: Mapping[Address, Entry]) -> Change | None:
    wanted, entry = desired.resources.get(address), applied.get(address)
    if wanted is None:
        return None if entry is None else Change(address, "delete", before=entry.digest)
    if entry is None:
        return Change(address, "create", after=wanted.digest)
    if entry.digest != wanted.digest:
        return Change(address, "update", before=entry.digest, after=wanted.digest)
    metadata = _metadata_change(address, desired, entry)
    if metadata is None:
        return None
    return Change(address, "update", entry.digest, wanted.digest, metadata_change=metadata)


def _metadata_change(address: Address, desired: Desired, entry: Entry) -> MetadataChange | None:
    if address.kind is Kind.POLICY and entry.applies_to != desired.policy_targets[address.name]:
        return "policy_bindings"
    is_provider = address.kind is Kind.EMBEDDING_PROVIDER
    if is_provider and entry.embedding_profile != desired.providers[address.name]:
        return "embedding_profile"
    return None
