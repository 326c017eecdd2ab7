"""A prepared write: the tables that it moves, what it publishes, and what must still hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from omnigraph.manifest import CommitDraft, Entry, Registration, Requirements, Updates
from omnigraph.manifest.forks import WriteBase
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.requirements import Revalidate
from omnigraph.manifest.rows import AcceptedSchema
from omnigraph.recovery import PlannedTable, WriterKind
from omnigraph.recovery.intent import Adoption, ForkOrigin
from omnigraph.store.records import StagedTransaction


@dataclass(frozen=True)
class TableWrite:
    """What a write does to one table: transactions that follow each other on one lineage.

    `base` is None for a dataset that the write creates at `location`. `table_key` is the key to
    publish; while a type takes another name, the entry of `base` still has the old one.
    """

    table_key: str
    staged: tuple[StagedTransaction, ...]
    row_count: int
    base: WriteBase | None = None
    location: str = ""
    owner_branch: str = "main"

    @property
    def expected(self) -> Entry | None:
        """The published entry that the write was prepared on."""
        return None if self.base is None else self.base.entry

    @property
    def intended_version(self) -> int:
        """The version that the last transaction makes."""
        return self.staged[-1].intended_version

    @cached_property
    def planned(self) -> PlannedTable:
        """The table as the intent record names it."""
        base = self.base
        fork = base is not None and base.is_fork
        return PlannedTable(
            table_key=self.table_key,
            table_path=base.base.location if base else self.location,
            table_branch=base.base.branch if base else None,
            entry=self.expected,
            expected_version=base.base.version if base else 0,
            post_commit_pin=self.intended_version,
            transaction_ids=tuple(staged.uuid for staged in self.staged),
            fork_of=(
                ForkOrigin(base.entry.table_branch, base.base.version) if base and fork else None
            ),
            row_count=self.row_count,
            owner_branch=base.owner_branch if base else self.owner_branch,
        )

    def published(self) -> Entry:
        """Return the entry to publish."""
        version = self.intended_version
        if self.base is not None:
            entry = self.base.entry_at(version, self.row_count)
            return replace(entry, table_key=self.table_key)
        return replace(self.planned.created_entry(), table_version=version)


@dataclass(frozen=True)
class WriteJob:
    """A prepared write."""

    kind: WriterKind
    incarnation: Incarnation
    operation_id: str
    draft: CommitDraft
    schema_hash: str
    tables: tuple[TableWrite, ...] = ()
    reads: Mapping[str, Entry | None] = field(default_factory=dict)
    expected_head: str | None = None
    merge_source_commit_id: str | None = None
    merged_into: str | None = None
    registrations: tuple[Registration, ...] = ()
    tombstones: tuple[str, ...] = ()
    schema: AcceptedSchema | None = None
    adopted: tuple[Adoption, ...] = ()
    """Entries to publish as they are, in addition to the tables that move."""
    revalidate: Revalidate | None = field(default=None, compare=False)
    """Checks again what was read, when a table of `reads` has moved."""

    @property
    def writer(self) -> str:
        """The name of the writer at failpoints."""
        return self.kind.name.lower()

    @cached_property
    def updates(self) -> Updates:
        """The changes to publish, once every table has reached its intended version."""
        return Updates(
            entries=(
                *(table.published() for table in self.tables),
                *(adoption.entry for adoption in self.adopted),
            ),
            registrations=self.registrations,
            tombstones=self.tombstones,
            schema=self.schema,
        )

    @cached_property
    def requirements(self) -> Requirements:
        """What must still hold when the write is published."""
        moved = {table.planned.accepted_key: table.expected for table in self.tables}
        adopted = {adoption.accepted_key: adoption.expected for adoption in self.adopted}
        return Requirements(
            schema_hash=self.schema_hash,
            written=moved | adopted,
            read=self.reads,
            expected_head=self.expected_head,
            merged_into=self.merged_into,
            revalidate=self.revalidate,
        )
