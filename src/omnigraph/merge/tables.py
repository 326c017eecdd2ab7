"""The tables of a merge: each type as every side has it, and as the merge leaves it.

Types are paired by identity, never by name or location: a type that was renamed on one side is one
type, and one that was dropped and created again is two. Rows of every side are read as the merged
schema sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from omnigraph.changes.mapped_table import mapped
from omnigraph.manifest import Entry, Snapshot
from omnigraph.manifest.layout import MAIN_INCARNATION
from omnigraph.manifest.snapshot import open_entry
from omnigraph.merge.parts import Handles
from omnigraph.schema import Catalog, EntityType, Property
from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.mapping import ColumnMapping, TypeMapping, map_type
from omnigraph.schema.values.convert import convert_values
from omnigraph.store.datasets import DatasetHandle, DatasetStore

Identity = tuple[int, int]
"""The numbers of a type and of its table, after `also`."""


@dataclass(frozen=True)
class TableSide:
    """One type as one side has it."""

    entity_type: EntityType
    entry: Entry
    datasets: DatasetStore

    def opened(self) -> DatasetHandle:
        """Open the published version."""
        return open_entry(self.datasets, self.entry)


@dataclass(frozen=True)
class MergedTable:
    """One type on all sides; `wanted` is what the merged schema makes of it, None if it drops it.

    A side that is None does not have the type.
    """

    wanted: EntityType | None
    base: TableSide | None
    source: TableSide | None
    target: TableSide | None
    aliases: Aliases

    @property
    def entity_type(self) -> EntityType:
        """The type as the merged schema names it."""
        if self.wanted is None:
            raise ValueError("the merged schema does not have the type")
        return self.wanted

    @property
    def table_key(self) -> str:
        """The key under which the merge leaves the table."""
        return self.entity_type.table_key

    @property
    def known_location(self) -> str:
        """Where the target's dataset of the type is."""
        if self.target is None:
            raise ValueError(f"the target has no dataset of {self.table_key}")
        return self.target.entry.location

    @property
    def is_touched(self) -> bool:
        """Whether the source has changed rows, unless the target has the same version."""
        return not same_version(self.source, self.target) and not same_version(
            self.base, self.source
        )

    @property
    def target_is_base(self) -> bool:
        """Whether the target has not changed a row."""
        return same_version(self.base, self.target)

    @property
    def is_renamed(self) -> bool:
        """Whether the target publishes the table under another key, or under other numbers."""
        if self.target is None:
            return False
        now, then = self.target.entity_type, self.entity_type
        return (now.table_key, now.type_id, now.table_incarnation_id) != (
            then.table_key,
            then.type_id,
            then.table_incarnation_id,
        )

    @property
    def is_reshaped(self) -> bool:
        """Whether stored columns of the target differ in name, type, nullability or number."""
        return self.target is not None and not _has_columns(self.target, self.entity_type)

    @property
    def can_be_adopted(self) -> bool:
        """Whether the source's version has the merged columns and stays when the source goes."""
        if self.source is None or not self.target_is_base:
            return False
        entry = self.source.entry
        is_mains = entry.table_branch is None and entry.owner_branch == MAIN_INCARNATION.text
        return is_mains and _has_columns(self.source, self.entity_type)

    @property
    def target_gets_misfits(self) -> bool:
        """Whether rows of the target get a value that their property cannot have any longer.

        That is a null where a value is required now, or what an apply has filled in where the enum
        has lost it since.
        """
        view = self.views.target
        return view is not None and any(
            _is_misfit(column, self.entity_type) for column in view.columns if column.stored is None
        )

    @property
    def is_one_type(self) -> bool:
        """Whether all sides have the type exactly as the merged schema has it."""
        sides = (self.base, self.source, self.target)
        return all(side is not None and side.entity_type == self.wanted for side in sides)

    @cached_property
    def views(self) -> Views:
        """How rows of each side look under the merged schema."""
        return Views(
            *(
                None if side is None else map_type(side.entity_type, self.entity_type, self.aliases)
                for side in (self.base, self.source, self.target)
            )
        )

    @cached_property
    def handles(self) -> Handles:
        """Open the three versions, as the merged schema sees them."""
        return self.views.of(
            *(
                None if side is None else side.opened()
                for side in (self.base, self.source, self.target)
            )
        )


@dataclass(frozen=True)
class Views:
    """How rows of each side look under the merged schema.

    A property that a side does not have is filled with what the adding apply wrote into its rows;
    rows that the side has inserted since have the default instead, else null.
    """

    base: TypeMapping | None
    source: TypeMapping | None
    target: TypeMapping | None

    def of(
        self,
        base: DatasetHandle | None,
        source: DatasetHandle | None,
        target: DatasetHandle | None,
    ) -> Handles:
        """Return three versions as the merged schema sees them."""
        return Handles(
            base=_viewed(base, self.base),
            source=_viewed(source, self.source),
            target=_viewed(target, self.target),
            new_source=_viewed(source, self.new_source),
            new_target=_viewed(target, self.new_target),
        )

    @cached_property
    def new_source(self) -> TypeMapping | None:
        """How rows look that the source has inserted."""
        return None if self.source is None else of_new_rows(self.source)

    @cached_property
    def new_target(self) -> TypeMapping | None:
        """How rows look that the target has inserted."""
        return None if self.target is None else of_new_rows(self.target)

    @property
    def are_new_rows_changed(self) -> bool:
        """Whether rows that the target has inserted have other values than its other rows."""
        return self.target is not None and self.new_target != self.target


def of_new_rows(mapping: TypeMapping) -> TypeMapping:
    """Return how rows look that a side inserted without knowing some properties."""
    columns = tuple(
        column if column.stored is not None else _with_default(column, mapping.wanted)
        for column in mapping.columns
    )
    return replace(mapping, columns=columns)


def missing_properties(mapping: TypeMapping) -> Iterator[Property]:
    """Yield the wanted properties that the stored type does not have."""
    for column in mapping.columns:
        if column.stored is None:
            yield mapping.wanted.properties[column.field.name]


def paired_tables(
    base: Snapshot, source: Snapshot, target: Snapshot, merged: Catalog, aliases: Aliases
) -> tuple[MergedTable, ...]:
    """Pair the types of three snapshots and of the merged schema: by key, dropped ones last."""
    sides = [_sides_of(snapshot, aliases) for snapshot in (base, source, target)]
    wanted = {identity_of(each, aliases): each for each in types_of(merged)}
    identities = {*wanted, *(identity for side in sides for identity in side)}
    tables = [
        _kept(
            MergedTable(
                wanted=wanted.get(identity),
                base=sides[0].get(identity),
                source=sides[1].get(identity),
                target=sides[2].get(identity),
                aliases=aliases,
            )
        )
        for identity in sorted(identities)
    ]
    kept = sorted((t for t in tables if t.wanted is not None), key=lambda t: t.table_key)
    return (*kept, *(table for table in tables if table.wanted is None))


def _kept(table: MergedTable) -> MergedTable:
    """Return a type that one side dropped and a choice keeps, as if that side had no say in it.

    Otherwise the dropped rows would count as deleted.
    """
    if table.wanted is None or table.base is None:
        return table
    if table.source is None:
        return replace(table, source=table.base)
    return replace(table, base=None) if table.target is None else table


def types_of(catalog: Catalog) -> tuple[EntityType, ...]:
    """Return all types that have a table."""
    return (*catalog.node_types.values(), *catalog.edge_types.values())


def identity_of(entity_type: EntityType, aliases: Aliases) -> Identity:
    """Return what makes two forms of a type one type."""
    if entity_type.type_id is None or entity_type.table_incarnation_id is None:
        raise ValueError(f"{entity_type.table_key} has no identity")
    canonical = aliases.canonical
    return canonical(entity_type.type_id), canonical(entity_type.table_incarnation_id)


def same_version(one: TableSide | None, other: TableSide | None) -> bool:
    """Whether two sides have the same version of a dataset, or neither has any."""
    if one is None or other is None:
        return one is other
    return one.entry.at == other.entry.at


def _sides_of(snapshot: Snapshot, aliases: Aliases) -> Mapping[Identity, TableSide]:
    return {
        identity_of(each, aliases): TableSide(
            each, snapshot.entries[each.table_key], snapshot.datasets
        )
        for each in types_of(snapshot.catalog)
    }


def _is_misfit(column: ColumnMapping, wanted: EntityType) -> bool:
    if column.fill is None:
        return not column.field.nullable
    known = wanted.properties[column.field.name].prop_type.enum_values
    return known is not None and column.fill.as_py() not in known


def _has_columns(side: TableSide, wanted: EntityType) -> bool:
    stored: pa.Schema = side.entity_type.arrow_schema
    return bool(stored.equals(wanted.arrow_schema, check_metadata=True))


def _viewed(handle: DatasetHandle | None, mapping: TypeMapping | None) -> DatasetHandle | None:
    return None if handle is None or mapping is None else mapped(handle, mapping)


def _with_default(column: ColumnMapping, wanted: EntityType) -> ColumnMapping:
    return replace(column, fill=default_value(wanted.properties[column.field.name]))


def default_value(prop: Property) -> pa.Scalar | None:
    """Return the default of a property as it is stored; None where it has none."""
    if prop.default is None:
        return None
    return convert_values([prop.default], prop.prop_type, prop.name).column[0]
