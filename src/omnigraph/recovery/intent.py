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
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import orjson

from omnigraph.clock import CROCKFORD
from omnigraph.errors import CorruptError
from omnigraph.manifest import CommitDraft, Entry, Registration, Requirements
from omnigraph.manifest.rows import AcceptedSchema
from omnigraph.names import BranchName, IllegalNameError
from omnigraph.recovery.members import Members
from omnigraph.store.digests import check_word
from omnigraph.store.errors import ObjectNotFoundError
from omnigraph.store.objects.protocol import ObjectStore

INTENT_VERSION: Final = 2
FOLDER: Final = "__recovery"

_MEMBERS: Final = frozenset(
    {
        "schema_version",
        "operation_id",
        "owner_id",
        "started_at",
        "branch",
        "branch_incarnation",
        "schema_hash",
        "expected_head",
        "actor_id",
        "writer_kind",
        "settled",
        "reads",
        "recovery_commit_id",
        "restore_transaction_ids",
        "tables",
        "merge_source_commit_id",
        "merged_into",
        "tombstones",
        "schema",
        "additional_registrations",
        "adopted",
        "commit",
    }
)


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

    branch: str | None
    version: int


@dataclass(frozen=True)
class PlannedTable:
    """One table that the write moves.

    `entry` is the published entry that the write was prepared on, None for a dataset that the write
    creates. `post_commit_pin` is the version that it means to reach.
    """

    table_key: str
    table_path: str
    table_branch: str | None
    entry: Entry | None
    expected_version: int
    post_commit_pin: int
    transaction_ids: tuple[str, ...] = ()
    fork_of: ForkOrigin | None = None
    confirmed_version: int | None = None
    row_count: int = 0
    owner_branch: str = "main"

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

    expected: Entry | None
    entry: Entry

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
            written=self.written,
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
        found = _intent(Members(form))
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
        "reads": [{"table_key": k, "entry": _entry_json(e)} for k, e in record.reads],
        "recovery_commit_id": record.recovery_commit_id,
        "restore_transaction_ids": list(record.restore_transaction_ids),
        "tables": [_table_json(table) for table in record.tables],
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
        "adopted": [
            {"expected": _entry_json(a.expected), "entry": _entry_json(a.entry)}
            for a in record.adopted
        ],
    }
    return form | {name: value for name, value in optional.items() if value}


def _table_json(table: PlannedTable) -> dict[str, Any]:
    form: dict[str, Any] = {
        "table_key": table.table_key,
        "table_path": table.table_path,
        "entry": _entry_json(table.entry),
        "expected_version": table.expected_version,
        "post_commit_pin": table.post_commit_pin,
        "transaction_ids": list(table.transaction_ids),
        "row_count": table.row_count,
        "owner": table.owner_branch,
    }
    if table.table_branch is not None:
        form["table_branch"] = table.table_branch
    if table.fork_of is not None:
        form["fork_of"] = {"branch": table.fork_of.branch, "version": table.fork_of.version}
    if table.confirmed_version is not None:
        form["confirmed_version"] = table.confirmed_version
    return form


def _entry_json(entry: Entry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    form = dict(vars(entry))
    form["owner"] = form.pop("owner_branch")
    return form


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


def _intent(form: Members) -> Intent:
    operation_id, branch = form.text("operation_id"), form.text("branch")
    schema = form.optional_inner("schema")
    return Intent(
        schema_version=form.number("schema_version"),
        operation_id=operation_id,
        owner_id=form.text("owner_id", ""),
        started_at=form.number("started_at", 0),
        branch=branch,
        branch_incarnation=form.optional_path("branch_incarnation") or branch,
        schema_hash=form.text("schema_hash", ""),
        writer_kind=WriterKind(form.text("writer_kind")),
        commit=_draft(_commit(form), form.optional_text("actor_id")),
        recovery_commit_id=form.optional_text("recovery_commit_id") or _following_id(operation_id),
        tables=tuple(_table(table) for table in form.objects("tables", is_required=True)),
        reads=tuple(
            (r.table_key("table_key"), _entry_in(r, "entry")) for r in form.objects("reads")
        ),
        expected_head=form.optional_text("expected_head"),
        settled=form.optional_text("settled") == "voided",
        restore_transaction_ids=form.texts("restore_transaction_ids"),
        merge_source_commit_id=form.optional_text("merge_source_commit_id"),
        merged_into=form.optional_text("merged_into"),
        additional_registrations=tuple(
            _registration(each) for each in form.objects("additional_registrations")
        ),
        tombstones=tuple(each.table_key("table_key") for each in form.objects("tombstones")),
        schema=None if schema is None else _accepted(schema),
        adopted=tuple(
            Adoption(_entry_in(each, "expected"), _entry(each.inner("entry")))
            for each in form.objects("adopted")
        ),
    )


_OPERATIONS: Final = {
    WriterKind.MUTATION: "mutation",
    WriterKind.LOAD: "load",
    WriterKind.SCHEMA_APPLY: "schema_apply",
    WriterKind.BRANCH_MERGE: "merge",
    WriterKind.ENSURE_INDICES: "ensure_indices",
    WriterKind.OPTIMIZE: "optimize",
}
"""What the commits of each writer are called."""


def _commit(form: Members) -> Members:
    if "commit" in form.form or form.number("schema_version") >= INTENT_VERSION:
        return form.inner("commit")
    return Members(
        {
            "graph_commit_id": form.text("operation_id"),
            "operation": _OPERATIONS[WriterKind(form.text("writer_kind"))],
            "created_at": form.number("started_at"),
        }
    )


def _following_id(operation_id: str) -> str:
    """Return the ULID of the commit that settles an operation whose record names none."""
    digest = hashlib.sha256(operation_id.encode()).digest()
    return operation_id[:10] + "".join(CROCKFORD[byte & 31] for byte in digest[:16])


def _draft(form: Members, actor_id: str | None) -> CommitDraft:
    return CommitDraft(
        graph_commit_id=form.text("graph_commit_id"),
        operation=form.text("operation"),
        actor_id=actor_id,
        created_at=form.number("created_at"),
        merged_parent_commit_id=form.optional_text("merged_parent_commit_id"),
        message=form.optional_text("message"),
        properties=form.optional_texts_by_name("properties"),
    )


def _table(form: Members) -> PlannedTable:
    fork = form.optional_inner("fork_of")
    return PlannedTable(
        table_key=form.table_key("table_key"),
        table_path=form.path("table_path"),
        table_branch=form.optional_path("table_branch"),
        entry=_entry_in(form, "entry"),
        expected_version=form.number("expected_version"),
        post_commit_pin=form.number("post_commit_pin"),
        transaction_ids=form.texts("transaction_ids"),
        fork_of=None if fork is None else _fork(fork),
        confirmed_version=form.optional_number("confirmed_version"),
        row_count=form.number("row_count", 0),
        owner_branch=form.text("owner", "main"),
    )


def _fork(form: Members) -> ForkOrigin:
    return ForkOrigin(form.optional_path("branch"), form.number("version"))


def _registration(form: Members) -> Registration:
    return Registration(
        form.table_key("table_key"),
        form.path("table_path"),
        form.number("type_id"),
        form.number("table_incarnation_id"),
    )


def _accepted(form: Members) -> AcceptedSchema:
    form.inner("state").text("schema_ir_hash")
    return AcceptedSchema(form.text("source"), form.mapping("ir"), form.mapping("state"))


def _entry_in(form: Members, name: str) -> Entry | None:
    found = form.optional_inner(name)
    return None if found is None else _entry(found)


def _entry(form: Members) -> Entry:
    return Entry(
        table_key=form.table_key("table_key"),
        location=form.path("location"),
        table_branch=form.optional_path("table_branch"),
        table_version=form.number("table_version"),
        seq=form.number("seq"),
        row_count=form.number("row_count"),
        owner_branch=form.text("owner"),
    )


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
