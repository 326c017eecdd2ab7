"""Pairs the types of two snapshots by identity, whatever they are called and wherever they are.

Types and properties have numbers that survive a rename, and a merge says which numbers of other
branches mean the same (`omnigraph.schema.ir.aliases`). A type that was dropped and created again
under its name has other numbers: it is two types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from omnigraph.changes.mapped_table import mapped
from omnigraph.manifest import Entry, Snapshot
from omnigraph.schema import EntityType, read_ir
from omnigraph.schema.difference import schema_difference
from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.mapping import TypeMapping, map_type
from omnigraph.schema.migration.steps import Step
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import DatasetVersion


@dataclass(frozen=True)
class TypeSides:
    """One type as two schemas declare it; a side that is None does not have it."""

    before: EntityType | None
    after: EntityType | None
    aliases: Aliases = field(default_factory=Aliases.of)

    @property
    def entity_type(self) -> EntityType:
        """The type as the later side declares it."""
        entity_type = self.after or self.before
        if entity_type is None:
            raise ValueError("a type is on at least one side")
        return entity_type

    @cached_property
    def _mapping(self) -> TypeMapping | None:
        if self.before is None or self.after is None:
            return None
        return map_type(self.before, self.after, self.aliases)

    def view(self, before: DatasetHandle) -> DatasetHandle:
        """Return the rows of the earlier side as the later side sees them."""
        return before if self._mapping is None else mapped(before, self._mapping)

    @cached_property
    def names_before(self) -> Mapping[str, str]:
        """The names under which properties of the earlier side are shown, by their own names.

        A property that both sides have is shown under its later name. One that only the earlier
        side has keeps its name; where another property has that name now, its number is added.
        """
        if self.before is None:
            return {}
        kept = {} if self._mapping is None else _later_names(self._mapping)
        taken = set() if self.after is None else set(self.after.properties)
        shown = {}
        for name, prop in self.before.properties.items():
            own = f"{name}@{prop.property_id}" if name in taken else name
            shown[name] = kept.get(name, own)
        return shown


def _later_names(mapping: TypeMapping) -> dict[str, str]:
    return {c.stored: c.field.name for c in mapping.columns if c.stored is not None}


@dataclass(frozen=True)
class TypePair:
    """One type on both sides, with its published entries; a side that is None does not have it."""

    before: Entry | None
    after: Entry | None
    sides: TypeSides

    @property
    def entity_type(self) -> EntityType:
        """The type as the later side names it."""
        return self.sides.entity_type

    @property
    def table_key(self) -> str:
        """The key as the later side names it."""
        return self.entity_type.table_key

    @property
    def versions(self) -> tuple[DatasetVersion | None, DatasetVersion | None]:
        """The published versions of both sides."""
        old, new = self.before, self.after
        return None if old is None else old.at, None if new is None else new.at

    @property
    def is_same(self) -> bool:
        """Whether both sides hold the same rows: of one version, or none at all."""
        if self.before is None or self.after is None:
            return all(entry is None or not entry.row_count for entry in (self.before, self.after))
        return self.before.at == self.after.at

    @property
    def has_same_columns(self) -> bool:
        """Whether both sides declare the same properties under the same names and numbers."""
        before, after = self.sides.before, self.sides.after
        if before is None or after is None:
            return False
        return _columns(before) == _columns(after)


def type_pairs(before: Snapshot, after: Snapshot) -> list[TypePair]:
    """Pair the types of two snapshots by identity: by key, edges first, older ones first."""
    aliases = _aliases(before, after)
    old, new = _entity_types(before, aliases), _entity_types(after, aliases)
    nowhere = (None, None)
    pairs = []
    for identity in old.keys() | new.keys():
        old_entry, old_owner = old.get(identity, nowhere)
        new_entry, new_owner = new.get(identity, nowhere)
        pairs.append(TypePair(old_entry, new_entry, TypeSides(old_owner, new_owner, aliases)))
    return sorted(pairs, key=lambda pair: (pair.table_key, pair.after is not None))


def schema_changes(before: Snapshot, after: Snapshot) -> tuple[dict[str, Any], ...]:
    """Return the steps from one schema to the other; `text` says each for people."""
    steps = schema_steps(before, after)
    return tuple({**step.to_json(), "text": step.describe()} for step in steps)


def schema_steps(before: Snapshot, after: Snapshot) -> tuple[Step, ...]:
    """Return the steps from one schema to the other, by identity."""
    if before.schema.schema_hash == after.schema.schema_hash:
        return ()
    return schema_difference(read_ir(before.schema.ir), read_ir(after.schema.ir)).steps


def recreated(pairs: list[TypePair]) -> Iterator[TypePair]:
    """Yield the types whose name belonged to another type before, and that have or had rows."""
    dropped = {pair.table_key for pair in pairs if pair.after is None}
    created = {pair.table_key for pair in pairs if pair.before is None}
    for pair in pairs:
        if pair.table_key in dropped & created and not pair.is_same:
            yield pair


def _aliases(before: Snapshot, after: Snapshot) -> Aliases:
    if before.schema.schema_hash == after.schema.schema_hash:
        return Aliases.of()
    return Aliases.of(read_ir(before.schema.ir), read_ir(after.schema.ir))


def _entity_types(
    snapshot: Snapshot, aliases: Aliases
) -> dict[tuple[int, int], tuple[Entry, EntityType]]:
    catalog = snapshot.catalog
    entity_types: list[EntityType] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    return {
        _identity(each, aliases): (snapshot.entries[each.table_key], each)
        for each in entity_types
        if each.table_key in snapshot.entries
    }


def _identity(entity_type: EntityType, aliases: Aliases) -> tuple[int, int]:
    type_id, incarnation = entity_type.type_id, entity_type.table_incarnation_id
    if type_id is None or incarnation is None:
        raise ValueError(f"{entity_type.table_key} has no identity")
    return aliases.canonical(type_id), aliases.canonical(incarnation)


def _columns(entity_type: EntityType) -> frozenset[tuple[str, object, int | None]]:
    return frozenset(
        (name, prop.prop_type, prop.property_id) for name, prop in entity_type.properties.items()
    )
