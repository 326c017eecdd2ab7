"""The ledger: what is applied, as one JSON object that is only ever replaced as a whole.

1. Its identity is `sha256:` and the hash of its bytes.
2. It is replaced only if it still has the identity that the command has read, by a conditional
   write of the storage, so two commands without a lock cannot overwrite each other.
3. Members that are not known make it invalid: nothing is dropped by reading and writing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from omnigraph.cluster.addresses import Address, parse_address
from omnigraph.cluster.desired import BlobBase, EmbeddingProfile
from omnigraph.cluster.diagnostics import DiagnosedError, error
from omnigraph.cluster.stored.json_objects import (
    OtherVersionError,
    UnreadableError,
    decode,
    encode,
)
from omnigraph.cluster.stored.root import FOLDER, StorageRoot
from omnigraph.errors import OmnigraphError, OutcomeUnknownError
from omnigraph.records import OPTIONAL, Stored
from omnigraph.store.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError

_T = TypeVar("_T")

LEDGER_PATH: Final = f"{FOLDER}/state.json"
VERSION: Final = 1

State: TypeAlias = Literal[
    "pending", "planned", "applying", "applied", "drifted", "blocked", "error"
]


@dataclass(frozen=True, kw_only=True)
class BlobPolicy:
    """Where external blobs may be read from; none at all is stored as no policy."""

    mode: Literal["allow"] = "allow"
    bases: tuple[BlobBase, ...]


@dataclass(frozen=True)
class Entry:
    """What is applied of one resource."""

    digest: str
    embedding_provider: str | None = field(default=None, metadata=OPTIONAL)
    """Of a graph: the address of its provider."""
    external_blob_policy: BlobPolicy | None = field(default=None, metadata=OPTIONAL)
    """Of a graph."""
    applies_to: tuple[str, ...] | None = field(default=None, metadata=OPTIONAL)
    """Of a policy: `cluster` or `graph.<id>`, sorted."""
    embedding_profile: EmbeddingProfile | None = field(default=None, metadata=OPTIONAL)
    """Of a provider."""


@dataclass(frozen=True)
class AppliedResources:
    """Digests by address; the config digest is that of a config that is applied in full."""

    config_digest: str | None = None
    resources: Mapping[str, Entry] = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """What the last command found about one resource."""

    status: State
    conditions: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    message: str | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class GraphObservation:
    """What was found at the root of a graph."""

    kind: Literal["graph"] = "graph"
    address: str
    graph_uri: str
    observed_at: str
    exists: bool
    graph_manifest_version: int | None = None
    schema_digest: str | None = None
    desired_schema_digest: str | None = None
    schema_matches_desired: bool | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Tombstone:
    """A graph that was deleted, by whom and under which approval."""

    kind: Literal["tombstone"] = "tombstone"
    deleted_at: str
    approval_id: str | None = None
    actor: str | None = None


def _observation(at: Stored) -> GraphObservation | Tombstone:
    kind = at.inner("kind").one_of(("graph", "tombstone"))
    return at.record(GraphObservation) if kind == "graph" else at.record(Tombstone)


Observation: TypeAlias = GraphObservation | Tombstone


@dataclass(frozen=True, kw_only=True)
class RecoveryRecord:
    """An operation that a sweep has completed in the ledger."""

    kind: str
    graph_id: str
    outcome: Literal["rolled_forward"] = "rolled_forward"
    recovered_at: str
    actor: str | None = None


@dataclass(frozen=True)
class ApprovalRecord:
    """When an approval was used, and by `apply` or by which recovered operation."""

    consumed_at: str
    consumed_by_operation: str


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """The applied state of a cluster, with what is known about it."""

    version: int
    state_revision: int = 0
    applied_revision: AppliedResources
    resource_statuses: Mapping[str, Status] = field(default_factory=dict)
    approval_records: Mapping[str, ApprovalRecord] = field(default_factory=dict)
    recovery_records: Mapping[str, RecoveryRecord] = field(default_factory=dict)
    observations: Mapping[str, Annotated[Observation, _observation]] = field(default_factory=dict)

    @property
    def config_digest(self) -> str | None:
        """The digest of the config that is applied in full, if there is one."""
        return self.applied_revision.config_digest

    @property
    def resources(self) -> Mapping[str, Entry]:
        """What is applied, by address."""
        return self.applied_revision.resources

    @property
    def entries(self) -> Mapping[Address, Entry]:
        """What is applied, by parsed address."""
        return {
            address: entry
            for text, entry in self.resources.items()
            if (address := parse_address(text)) is not None
        }

    @property
    def digests(self) -> dict[str, str]:
        """The digest of everything that is applied, by address."""
        return {text: entry.digest for text, entry in sorted(self.resources.items())}

    def with_resources(
        self, resources: Mapping[str, Entry], *, config_digest: str | None = None
    ) -> Ledger:
        """Return a ledger with other applied resources."""
        return replace(self, applied_revision=AppliedResources(config_digest, resources))


EMPTY: Final = Ledger(version=VERSION, applied_revision=AppliedResources())


@dataclass(frozen=True)
class StoredLedger:
    """A ledger as it was read; `identity` is none if there is none."""

    ledger: Ledger
    identity: str | None

    @property
    def is_found(self) -> bool:
        """Whether there is a ledger in storage."""
        return self.identity is not None


def identity_of(data: bytes) -> str:
    """Return what names one content of the ledger.

    >>> identity_of(b"")[:15]
    'sha256:e3b0c442'
    """
    return f"sha256:{sha256(data).hexdigest()}"


def read_ledger(root: StorageRoot) -> StoredLedger:
    """Read the ledger; one that is not there is empty."""
    data = _read(root)
    if data is None:
        return StoredLedger(EMPTY, None)
    return StoredLedger(_decoded(data), identity_of(data))


def spell_ledger(ledger: Ledger) -> bytes:
    """Return the bytes of a ledger: maps by key, so that equal ledgers have equal bytes."""
    return encode(
        replace(
            ledger,
            applied_revision=AppliedResources(ledger.config_digest, _by_key(ledger.resources)),
            resource_statuses=_by_key(ledger.resource_statuses),
            approval_records=_by_key(ledger.approval_records),
            recovery_records=_by_key(ledger.recovery_records),
            observations=_by_key(ledger.observations),
        )
    )


def write_ledger(root: StorageRoot, ledger: Ledger, *, base: str | None) -> StoredLedger:
    """Replace the ledger that has the identity `base`, or create it where `base` is none."""
    data = spell_ledger(ledger)
    try:
        _replace(root, data, base)
    except (ObjectExistsError, ObjectChangedError) as problem:
        raise _mismatch(base, None) from problem
    except OutcomeUnknownError as problem:
        if _read(root) != data:
            raise _failed(problem) from problem
    except OmnigraphError as problem:
        raise _failed(problem) from problem
    return StoredLedger(ledger, identity_of(data))


def _replace(root: StorageRoot, data: bytes, base: str | None) -> None:
    try:
        found = root.objects.get(LEDGER_PATH)
    except ObjectNotFoundError:
        if base is not None:
            raise _mismatch(base, None) from None
        root.objects.put_if_absent(LEDGER_PATH, data)
        return
    if identity_of(found.data) != base:
        raise _mismatch(base, identity_of(found.data))
    root.objects.put_if_match(LEDGER_PATH, data, tag=found.tag)


def require_identity(root: StorageRoot, base: str | None) -> None:
    """Make sure that the ledger is still the one that was read."""
    data = _read(root)
    found = None if data is None else identity_of(data)
    if found != base:
        raise _mismatch(base, found)


def _mismatch(base: str | None, found: str | None) -> DiagnosedError:
    was = "no ledger" if base is None else base
    now = "another one" if found is None else found
    return DiagnosedError(
        error(
            "state_cas_mismatch",
            LEDGER_PATH,
            f"the ledger has changed since it was read: found {was} first and {now} now;"
            " nothing was recorded, run the command again",
        )
    )


def _failed(problem: OmnigraphError) -> DiagnosedError:
    return DiagnosedError(error("state_write_error", LEDGER_PATH, str(problem)))


def _read(root: StorageRoot) -> bytes | None:
    try:
        return root.objects.get(LEDGER_PATH).data
    except ObjectNotFoundError:
        return None
    except OmnigraphError as problem:
        raise DiagnosedError(error("state_read_error", LEDGER_PATH, str(problem))) from problem


def _decoded(data: bytes) -> Ledger:
    try:
        ledger = decode(data, Ledger, version_member="version", version=VERSION)
    except OtherVersionError as problem:
        found = error("unsupported_state_version", LEDGER_PATH, str(problem))
        raise DiagnosedError(found) from None
    except UnreadableError as problem:
        raise DiagnosedError(error("invalid_state_json", LEDGER_PATH, str(problem))) from None
    return _checked(ledger)


def _checked(ledger: Ledger) -> Ledger:
    for text in ledger.resources:
        if parse_address(text) is None:
            message = f"`{text}` is no address of a resource"
            raise DiagnosedError(error("invalid_state_json", LEDGER_PATH, message))
    return ledger


def _by_key(found: Mapping[str, _T]) -> dict[str, _T]:
    return dict(sorted(found.items()))
