"""A prepared write: the tables that it moves, what it publishes, and what must still hold."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from functools import cached_property
from typing import TypeAlias

from omnigraph.dataclass import dataclass
from omnigraph.manifest import CommitDraft, Entry, Registration, Requirements, Updates
from omnigraph.manifest.forks import WriteBase
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.requirements import Revalidate
from omnigraph.manifest.rows import AcceptedSchema
from omnigraph.recovery import PlannedTable, WriterKind
from omnigraph.recovery.intent import Adoption, ForkOrigin, expected_entries
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.records import StagedTransaction, WrittenFragment

Claim: TypeAlias = tuple[str, ...]
"""Something that rows of a table take for themselves: an id, a unique tuple, a place at a node."""
Claims: TypeAlias = Mapping[str, AbstractSet[Claim]]
"""What the rows of an append claim, by table."""


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
    appended: tuple[WrittenFragment, ...] = ()
    """The rows, when the write does nothing but append them."""

    @property
    def expected(self) -> Entry | None:
        """The published entry that the write was prepared on."""
        return None if self.base is None else self.base.entry

    @property
    def intended_version(self) -> int:
        """The version that the last transaction makes."""
        return self.staged[-1].intended_version

    @property
    def can_move(self) -> bool:
        """Whether the same files can be appended to a later version of the same lineage."""
        return bool(self.appended) and self.base is not None and not self.base.is_fork

    def onto(self, entry: Entry, datasets: DatasetStore) -> TableWrite:
        """Return the append of the same files to a later version of the table."""
        added = sum(fragment.rows for fragment in self.appended)
        return replace(
            self,
            staged=(datasets.stage_append(entry.at, fragments=self.appended),),
            row_count=entry.row_count + added,
            base=WriteBase(entry.at, entry, entry.owner_branch, is_fork=False),
        )

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
    claims: Claims | None = field(default=None, compare=False)
    """What its rows claim, if it only appends rows and keeps its meaning after other appends."""

    @property
    def writer(self) -> str:
        """The name of the writer at failpoints."""
        return self.kind.name.lower()

    @property
    def changed_rows(self) -> int:
        """How many rows the write inserts, updates and deletes."""
        counts = [staged.counts for table in self.tables for staged in table.staged]
        return sum(each.inserted + each.updated + each.deleted for each in counts)

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
            written=expected_entries(moved | adopted, merged_into=self.merged_into),
            read=self.reads,
            expected_head=self.expected_head,
            merged_into=self.merged_into,
            revalidate=self.revalidate,
        )
