"""One merge: its three snapshots, the schema that it comes to, and its tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from omnigraph.manifest import Entry, Snapshot
from omnigraph.manifest.errors import TypeNotFoundError
from omnigraph.manifest.layout import Incarnation
from omnigraph.merge.request import MergeRequest, RevertRequest
from omnigraph.merge.resolve import Decisions
from omnigraph.merge.result import MergeKind
from omnigraph.merge.schemas import MergedSchemas
from omnigraph.merge.tables import MergedTable, paired_tables
from omnigraph.names import TableKey
from omnigraph.schema import EntityType
from omnigraph.store.datasets import DatasetHandle


@dataclass(frozen=True)
class Sides:
    """Three snapshots, and the schema that their merge obeys."""

    base: Snapshot
    source: Snapshot
    target: Snapshot
    schemas: MergedSchemas

    @property
    def has_one_schema(self) -> bool:
        """Whether all sides have the same schema, so that it is the merged one."""
        hashes = {each.schema.schema_hash for each in (self.base, self.source, self.target)}
        return len(hashes) == 1

    @cached_property
    def tables(self) -> dict[str, MergedTable]:
        """The types of the merged schema, by key."""
        return {table.table_key: table for table in self._paired if table.wanted is not None}

    @cached_property
    def dropped(self) -> tuple[MergedTable, ...]:
        """The types that some side has and the merged schema has not."""
        return tuple(table for table in self._paired if table.wanted is None)

    @cached_property
    def _paired(self) -> tuple[MergedTable, ...]:
        schemas = self.schemas
        return paired_tables(self.base, self.source, self.target, schemas.catalog, schemas.aliases)

    def entity_type(self, table_key: str) -> EntityType:
        """Return a type of the merged schema."""
        kind, name = TableKey(table_key).parts
        catalog = self.schemas.catalog
        return catalog.node_types[name] if kind == "node" else catalog.edge_types[name]

    def touched(self) -> Iterator[MergedTable]:
        """Yield the tables of which the source has changed rows, unless the target is the same."""
        return (table for table in self.tables.values() if table.is_touched)


@dataclass(frozen=True)
class TargetTables:
    """The tables of the target under the keys and columns of the merged schema."""

    sides: Sides

    def entry(self, table_key: str) -> Entry:
        """Return the published entry of a table; that of a new type has no rows."""
        table = self.sides.tables.get(table_key)
        if table is None:
            raise TypeNotFoundError(table_key, self.sides.target.manifest_version)
        if table.target is None:
            return Entry(table_key, "", None, 0, 0, 0, self.sides.target.incarnation.text)
        return table.target.entry

    def open(self, table_key: str) -> DatasetHandle:
        """Open a table of the target."""
        handle = self.sides.tables[table_key].handles.target
        if handle is None:
            raise TypeNotFoundError(table_key, self.sides.target.manifest_version)
        return handle


@dataclass(frozen=True)
class MergeJob:
    """One merge, or one revert, on three snapshots."""

    sides: Sides
    outcome: MergeKind
    operation: str
    request: MergeRequest | RevertRequest
    decisions: Decisions
    merged_parent: str | None
    source_name: str

    @property
    def into(self) -> Incarnation:
        """The branch that is written."""
        return self.request.target
