"""The intent record of a write: what it is about to do, before the first table moves.

`__recovery/<operation_id>.json`, schema version 2:

    {schema_version, operation_id, owner_id, started_at, branch, branch_incarnation, schema_hash,
     expected_head?, actor_id, writer_kind, settled?: "voided",
     reads: [{table_key, entry}], recovery_commit_id, restore_transaction_ids: [uuid],
     tables: [{table_key, table_path, table_branch?, fork_of?: {branch, version}, entry,
               expected_version, post_commit_pin, transaction_ids: [uuid], confirmed_version?}],
     merge_source_commit_id?, merged_into?, tombstones?: [{table_key}], schema?,
     additional_registrations?: [{table_key, table_path, type_id, table_incarnation_id}],
     adopted?: [{expected, entry}],
     commit: {graph_commit_id, merged_parent_commit_id?, operation, created_at, message?,
              properties?}, check?}

`check` is 64 bits over the other members: a record that was damaged on the disk must not be acted
on. Records of releases that wrote none are not checked.

After a crash only this record and the storage are left: recovery does not need to know how the
write was prepared.

Version 1 has no transaction ids and no confirmation. It may also lack entries, incarnation and
commit: the first two are looked up in the manifest (`recovery.observe`), the ids that its settling
needs follow from the operation's own, so that every process that settles it uses the same ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import field, fields, replace
from enum import StrEnum
from typing import Annotated, Any, Final

import orjson

from omnigraph.clock import CROCKFORD
from omnigraph.dataclass import dataclass
from omnigraph.errors import CorruptError
from omnigraph.manifest import CommitDraft, Entry, Registration, Requirements
from omnigraph.manifest.rows import AcceptedSchema
from omnigraph.names import BranchName, IllegalNameError
from omnigraph.records import OPTIONAL, Stored, member, to_json
from omnigraph.recovery.members import StoredKey, StoredPath, read_path, read_table_key
from omnigraph.store.digests import check_word
from omnigraph.store.errors import ObjectNotFoundError
from omnigraph.store.objects.protocol import ObjectStore

INTENT_VERSION: Final = 2
FOLDER: Final = "__recovery"


class WriterKind(StrEnum):
    """Which writer made the record; new kinds need a row in `mode_of`."""

    MUTATION = "Mutation"
    LOAD = "Load"
    SCHEMA_APPLY = "SchemaApply"
    BRANCH_MERGE = "BranchMerge"
    ENSURE_INDICES = "EnsureIndices"
    OPTIMIZE = "Optimize"


class UnreadableIntentError(CorruptError):
    """An intent record cannot be read; it was kept, and its branch is blocked for writing."""

    code = "OG-SIDECAR-UNREADABLE"
    template = "{path} cannot be read as an intent record: {problem}"
    path: str
    problem: str
    branch: str | None = None

    def _hint(self) -> str:
        operation_id = self.path.removeprefix(f"{FOLDER}/").removesuffix(".json")
        return (
            "upgrade omnigraph, or, after a look,"
            f" `omnigraph recovery quarantine {operation_id} --confirm`"
        )


@dataclass(frozen=True)
class ForkOrigin:
    """The lineage and version that a fresh fork was cut from."""

    branch: StoredPath | None
    version: int


def _read_entry(at: Stored) -> Entry:
    return Entry(
        table_key=read_table_key(at.inner("table_key")),
        location=read_path(at.inner("location")),
        table_branch=at.inner("table_branch").optional(read_path),
        table_version=at.inner("table_version").integer(),
        seq=at.inner("seq").integer(),
        row_count=at.inner("row_count").integer(),
        owner_branch=at.inner("owner").text(),
    )


_StoredEntry = Annotated[Entry, _read_entry]


@dataclass(frozen=True)
class PlannedTable:
    """One table that the write moves.

    `entry` is the published entry that the write was prepared on, None for a dataset that the write
    creates. `post_commit_pin` is the version that it means to reach.
    """

    table_key: StoredKey
    table_path: StoredPath
    table_branch: StoredPath | None = field(metadata=OPTIONAL)
    entry: _StoredEntry | None
    expected_version: int
    post_commit_pin: int
    transaction_ids: tuple[str, ...] = ()
    fork_of: ForkOrigin | None = field(default=None, metadata=OPTIONAL)
    confirmed_version: int | None = field(default=None, metadata=OPTIONAL)
    row_count: int = 0
    owner_branch: str = field(default="main", metadata=member("owner"))

    @property
    def is_created(self) -> bool:
        """Whether the write makes this dataset."""
        return self.entry is None

    @property
    def accepted_key(self) -> str:
        """The table's key as of now; the write may publish it under another one."""
        return self.table_key if self.entry is None else self.entry.table_key

    def created_entry(self) -> Entry:
        """Return the first entry of a dataset that the write makes."""
        return Entry(
            table_key=self.table_key,
            location=self.table_path,
            table_branch=self.table_branch,
            table_version=self.post_commit_pin,
            seq=0,
            row_count=self.row_count,
            owner_branch=self.owner_branch,
        )


@dataclass(frozen=True)
class Adoption:
    """An entry that is published as it is, without moving its table.

    `expected` is the entry that must be the published one until then: of the same table, or of the
    table that is about to take another name; None where there must be none.
    """

    expected: _StoredEntry | None
    entry: _StoredEntry

    @property
    def accepted_key(self) -> str:
        """The table's key as of now."""
        return self.entry.table_key if self.expected is None else self.expected.table_key


@dataclass(frozen=True)
class Intent:
    """An intent record in memory."""

    operation_id: str
    owner_id: str
    started_at: int
    branch: str
    branch_incarnation: str
    schema_hash: str
    writer_kind: WriterKind
    commit: CommitDraft
    recovery_commit_id: str
    tables: tuple[PlannedTable, ...]
    reads: tuple[tuple[str, Entry | None], ...] = ()
    expected_head: str | None = None
    settled: bool = False
    restore_transaction_ids: tuple[str, ...] = ()
    merge_source_commit_id: str | None = None
    merged_into: str | None = None
    additional_registrations: tuple[Registration, ...] = ()
    tombstones: tuple[str, ...] = ()
    schema: AcceptedSchema | None = None
    adopted: tuple[Adoption, ...] = ()
    schema_version: int = INTENT_VERSION

    @property
    def path(self) -> str:
        """The path of the record."""
        return f"{FOLDER}/{self.operation_id}.json"

    @property
    def written(self) -> dict[str, Entry | None]:
        """The published entries that the write replaces, by the key that they have now."""
        moved = {table.accepted_key: table.entry for table in self.tables}
        return moved | {adoption.accepted_key: adoption.expected for adoption in self.adopted}

    @property
    def requirements(self) -> Requirements:
        """What must still hold when the write is published."""
        return Requirements(
            schema_hash=self.schema_hash or None,
            written=expected_entries(self.written, merged_into=self.merged_into),
            read=dict(self.reads),
            expected_head=self.expected_head,
            merged_into=self.merged_into,
        )

    @property
    def actor_id(self) -> str | None:
        """On whose behalf the write runs."""
        return self.commit.actor_id

    def confirmed(self, versions: Mapping[str, int]) -> Intent:
        """Return the record with the versions that every table has reached."""
        tables = [replace(t, confirmed_version=versions[t.table_key]) for t in self.tables]
        return replace(self, tables=tuple(tables))

    def to_json(self) -> bytes:
        """Return the stored form."""
        form = _intent_json(self)
        return orjson.dumps({**form, "check": _check(form)}, option=orjson.OPT_INDENT_2)


def expected_entries(
    written: Mapping[str, Entry | None], *, merged_into: str | None
) -> dict[str, Entry | None]:
    """Return the entries that must still be published when a write lands.

    A merge requires the exact head that it was computed on, so no table can have come meanwhile. It
    may create a table under the key of another type, which the same merge drops or renames.
    """
    if merged_into is None:
        return dict(written)
    return {key: entry for key, entry in written.items() if entry is not None}


_MEMBERS: Final = frozenset({"actor_id", *(each.name for each in fields(Intent))})
"""The names of all members that are stored, but for the check."""


def load_intent(objects: ObjectStore, path: str) -> Intent | None:
    """Read a stored record; None when it does not exist."""
    try:
        data = objects.get(path).data
    except ObjectNotFoundError:
        return None
    return read_intent(path, data)


def read_intent(path: str, data: bytes) -> Intent:
    """Read a stored record of version 1 or 2."""
    try:
        form = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        problem = f"it is not JSON ({error})"
        raise UnreadableIntentError(path, problem, _branch_in(data)) from error
    if not isinstance(form, dict):
        raise UnreadableIntentError(path, "it is not a JSON object")
    branch = _legal_branch(form.get("branch"))
    version = form.get("schema_version")
    if version not in (1, INTENT_VERSION):
        problem = f"its version is {version}, known are 1 and {INTENT_VERSION}"
        raise UnreadableIntentError(path, problem, branch)
    if version == INTENT_VERSION and not _is_whole(form):
        raise UnreadableIntentError(path, "its members are not what was written", branch)
    try:
        found = _read_intent(Stored(form))
    except ValueError as error:
        raise UnreadableIntentError(path, f"a member is wrong ({error})", branch) from error
    if branch is None:
        raise UnreadableIntentError(path, f"{found.branch!r} is no branch")
    if found.path != path:
        problem = f"it is the record of another operation, {found.operation_id!r}"
        raise UnreadableIntentError(path, problem, branch)
    return found


def _legal_branch(name: object) -> str | None:
    """Return the name of a branch; None for anything else, and then the whole graph is blocked."""
    try:
        return BranchName.parse(name).text if isinstance(name, str) else None
    except IllegalNameError:
        return None


def _branch_in(data: bytes) -> str | None:
    """Return the branch that a cut off record names, which is among its first members."""
    found = re.search(rb'"branch"\s*:\s*("(?:[^"\\]|\\.)*")', data)
    try:
        return None if found is None else _legal_branch(orjson.loads(found[1]))
    except orjson.JSONDecodeError:
        return None


def _is_whole(form: dict[str, Any]) -> bool:
    """Whether the members are those that were written, as far as the record says."""
    written = form.pop("check", None)
    # Only a damaged record lacks it and has a member of no known name instead.
    return _check(form) == written if written is not None else not form.keys() - _MEMBERS


def _check(form: Mapping[str, Any]) -> str:
    return f"{check_word(orjson.dumps(form, option=orjson.OPT_SORT_KEYS).decode()):016x}"


# -- the stored form -------------------------------------------------------------------------------


def _intent_json(record: Intent) -> dict[str, Any]:
    form: dict[str, Any] = {
        "schema_version": record.schema_version,
        "operation_id": record.operation_id,
        "owner_id": record.owner_id,
        "started_at": record.started_at,
        "branch": record.branch,
        "branch_incarnation": record.branch_incarnation,
        "schema_hash": record.schema_hash,
        "actor_id": record.actor_id,
        "writer_kind": record.writer_kind.value,
        "reads": [{"table_key": key, "entry": to_json(entry)} for key, entry in record.reads],
        "recovery_commit_id": record.recovery_commit_id,
        "restore_transaction_ids": list(record.restore_transaction_ids),
        "tables": to_json(record.tables),
        "commit": _commit_json(record.commit),
    }
    optional: dict[str, Any] = {
        "expected_head": record.expected_head,
        "settled": "voided" if record.settled else None,
        "merge_source_commit_id": record.merge_source_commit_id,
        "merged_into": record.merged_into,
        "additional_registrations": [
            {
                "table_key": each.table_key,
                "table_path": each.location,
                "type_id": each.type_id,
                "table_incarnation_id": each.table_incarnation_id,
            }
            for each in record.additional_registrations
        ],
        "tombstones": [{"table_key": key} for key in record.tombstones],
        "schema": record.schema and vars(record.schema),
        "adopted": to_json(record.adopted),
    }
    return form | {name: value for name, value in optional.items() if value}


def _commit_json(draft: CommitDraft) -> dict[str, Any]:
    form: dict[str, Any] = {
        "graph_commit_id": draft.graph_commit_id,
        "operation": draft.operation,
        "created_at": draft.created_at,
    }
    optional = {
        "merged_parent_commit_id": draft.merged_parent_commit_id,
        "message": draft.message,
        "properties": dict(draft.properties),
    }
    return form | {name: value for name, value in optional.items() if value}


def _read_intent(at: Stored) -> Intent:
    operation_id, branch = at.inner("operation_id").text(), at.inner("branch").text()
    recovery_id = _optional_text(at, "recovery_commit_id")
    return Intent(
        schema_version=at.inner("schema_version").integer(),
        operation_id=operation_id,
        owner_id=at.inner("owner_id", "").text(),
        started_at=at.inner("started_at", 0).integer(),
        branch=branch,
        branch_incarnation=at.inner("branch_incarnation").optional(read_path) or branch,
        schema_hash=at.inner("schema_hash", "").text(),
        writer_kind=at.inner("writer_kind").record(WriterKind),
        commit=_read_draft(_commit(at), _optional_text(at, "actor_id")),
        recovery_commit_id=recovery_id or _following_id(operation_id),
        tables=at.inner("tables").record(tuple[PlannedTable, ...]),
        reads=at.inner("reads", []).items(_read_expected),
        expected_head=_optional_text(at, "expected_head"),
        settled=_optional_text(at, "settled") == "voided",
        restore_transaction_ids=at.inner("restore_transaction_ids", []).items(Stored.text),
        merge_source_commit_id=_optional_text(at, "merge_source_commit_id"),
        merged_into=_optional_text(at, "merged_into"),
        additional_registrations=at.inner("additional_registrations", []).items(_read_registration),
        tombstones=at.inner("tombstones", []).items(lambda t: read_table_key(t.inner("table_key"))),
        schema=at.inner("schema").optional(_read_accepted),
        adopted=at.inner("adopted", []).record(tuple[Adoption, ...]),
    )


def _optional_text(at: Stored, name: str) -> str | None:
    return at.inner(name).optional(Stored.text)


def _read_expected(at: Stored) -> tuple[str, Entry | None]:
    return read_table_key(at.inner("table_key")), at.inner("entry").optional(_read_entry)


_OPERATIONS: Final = {
    WriterKind.MUTATION: "mutation",
    WriterKind.LOAD: "load",
    WriterKind.SCHEMA_APPLY: "schema_apply",
    WriterKind.BRANCH_MERGE: "merge",
    WriterKind.ENSURE_INDICES: "ensure_indices",
    WriterKind.OPTIMIZE: "optimize",
}
"""What the commits of each writer are called."""


def _commit(at: Stored) -> Stored:
    if "commit" in at.object() or at.inner("schema_version").integer() >= INTENT_VERSION:
        return at.inner("commit")
    return Stored(
        {
            "graph_commit_id": at.inner("operation_id").text(),
            "operation": _OPERATIONS[at.inner("writer_kind").record(WriterKind)],
            "created_at": at.inner("started_at").integer(),
        }
    )


def _following_id(operation_id: str) -> str:
    """Return the ULID of the commit that settles an operation whose record names none."""
    digest = hashlib.sha256(operation_id.encode()).digest()
    return operation_id[:10] + "".join(CROCKFORD[byte & 31] for byte in digest[:16])


def _read_draft(at: Stored, actor_id: str | None) -> CommitDraft:
    properties = at.inner("properties")
    return CommitDraft(
        graph_commit_id=at.inner("graph_commit_id").text(),
        operation=at.inner("operation").text(),
        actor_id=actor_id,
        created_at=at.inner("created_at").integer(),
        merged_parent_commit_id=_optional_text(at, "merged_parent_commit_id"),
        message=_optional_text(at, "message"),
        properties={
            name: properties.inner(name).text() for name in properties.optional(Stored.object) or {}
        },
    )


def _read_registration(at: Stored) -> Registration:
    return Registration(
        read_table_key(at.inner("table_key")),
        read_path(at.inner("table_path")),
        at.inner("type_id").integer(),
        at.inner("table_incarnation_id").integer(),
    )


def _read_accepted(at: Stored) -> AcceptedSchema:
    state = at.inner("state")
    state.inner("schema_ir_hash").text()
    return AcceptedSchema(at.inner("source").text(), at.inner("ir").object(), state.object())


__all__ = [
    "FOLDER",
    "INTENT_VERSION",
    "Adoption",
    "ForkOrigin",
    "Intent",
    "PlannedTable",
    "UnreadableIntentError",
    "WriterKind",
    "read_intent",
]
