"""What rows would lose, or lack, under the merged schema: found before rows are merged.

| conflict | when |
|---|---|
| `schema_type_dropped` | one side dropped a type of which the other has inserted or changed rows |
| `schema_dropped` | one side dropped a property of which the other has changed values |
| `schema_required` | one side added a required property without a default, the other rows |
| `schema_conflict` | one side changed the key of a type, the other rows |
| `schema_conflict` | one side widened what ids of the other side spell |
| `value_constraint_violation` | a side has a value that the merged type cannot hold |

A value that is the base's, and a null or default of an inserted row, is no loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.changes.compare import Mask, differing_values
from omnigraph.changes.mapped_table import mapped
from omnigraph.changes.table_changes import RowChanges, RowRefs, table_changes
from omnigraph.merge.conflicts import Conflict, ConflictKind, value_conflict
from omnigraph.merge.tables import (
    MergedTable,
    TableSide,
    default_value,
    missing_properties,
)
from omnigraph.schema import EntityType, Property
from omnigraph.schema.mapping import map_type
from omnigraph.schema.merge.model import Side
from omnigraph.schema.migration.cost import changes_spelling
from omnigraph.store.records import ScanRequest
from omnigraph.values import Scalar

FIRST_IDS_MAX: Final = 10
"""How many ids a conflict names; it counts all of them."""

_OTHER: Final[Mapping[Side, Side]] = {"source": "target", "target": "source"}


@dataclass(frozen=True)
class Loss:
    """Rows of one side that the merged schema has no place for, or no value."""

    kind: ConflictKind
    table_key: str
    property_name: str | None
    count: int
    first_ids: tuple[str, ...]
    dropped_by: Side | None = None
    """The side that dropped the type or property; None where nothing is dropped."""
    identity: str = ""
    """The type or property, as a decision names it."""
    was_in_base: bool = True

    @property
    def conflict(self) -> Conflict:
        """The loss as a conflict."""
        details: dict[str, object] = {"type": self.table_key.partition(":")[2]}
        if self.property_name is not None:
            details["property"] = self.property_name
        details |= {"count": self.count, "first_ids": list(self.first_ids)}
        if self.dropped_by is not None:
            details["identity"] = self.identity
        has_choice = self.dropped_by is not None
        return Conflict(
            self.table_key,
            self.kind,
            self._message(),
            details=details,
            has_choice=has_choice,
            only_choice=self.dropped_by,
        )

    def _message(self) -> str:
        name = self.table_key.partition(":")[2]
        rows = "1 row" if self.count == 1 else f"{self.count} rows"
        ids = ", ".join(f"'{each}'" for each in self.first_ids)
        more = ", …" if self.count > len(self.first_ids) else ""
        match self.kind:
            case ConflictKind.SCHEMA_TYPE_DROPPED:
                return f"{self._dropper()} {name}; {rows} changed: {ids}{more}"
            case ConflictKind.SCHEMA_DROPPED:
                dropped = f"{name}.{self.property_name}"
                return f"{self._dropper()} {dropped}; {rows} changed it: {ids}{more}"
            case _:
                required = f"{name}.{self.property_name} is required and has no default"
                return f"{required}; without a value: {rows}: {ids}{more}"

    def _dropper(self) -> str:
        if self.was_in_base:
            return f"the {self.dropped_by} dropped"
        return f"the schema of the {self.dropped_by} stands, and does not have"


def losses(table: MergedTable) -> Iterator[Loss]:
    """Find what rows of one type would lose."""
    if table.wanted is None:
        yield from _dropped_rows(table)
        return
    for side in _OTHER:
        found = _side(table, side)
        if found is None:
            continue
        yield from _dropped_values(table, side, found)
        yield from _missing_values(table, side, found)


def misfits(table: MergedTable) -> Iterator[Conflict]:
    """Find values of a side that the merged type of their property cannot hold."""
    sides = ((table.source, table.views.source), (table.target, table.views.target))
    for side, view in sides:
        if side is None or view is None:
            continue
        for column in view.narrowed:
            ids: list[str] = []
            for batch in side.opened().scan(ScanRequest(columns=("id", str(column.stored)))):
                ids += batch["id"].filter(column.misfits(batch)).to_pylist()
            if ids:
                name = f"{table.entity_type.name}.{column.field.name}"
                yield value_conflict(table.table_key, f"{name} cannot hold the value", ids)


def key_conflicts(table: MergedTable) -> Iterator[Conflict]:
    """Find a key that only one side changed while the other changed rows."""
    base = table.base
    if base is None or table.wanted is None:
        return
    for side in _OTHER:
        changer, other = _side(table, side), _side(table, _OTHER[side])
        if changer is None or other is None:
            continue
        if _key(table, changer) in (_key(table, base), _key(table, other)):
            continue  # Where both sides have one key, ids are spelled alike.
        if not _changes(table, base, other).is_empty:
            type_id = table.entity_type.type_id
            yield Conflict(
                table.table_key,
                ConflictKind.SCHEMA_CONFLICT,
                f"the {side} changed the key of {table.entity_type.name}, and the {_OTHER[side]}"
                " changed rows",
                details={
                    "identity": f"constraint:{type_id}:key",
                    "name": table.entity_type.name,
                    "base": list(base.entity_type.key),
                    "source": _key_names(table.source),
                    "target": _key_names(table.target),
                },
                has_choice=False,
            )


def respelled_ids(table: MergedTable) -> Iterator[Conflict]:
    """Find ids of a side that spell a member of the key otherwise than its merged type does.

    An apply refuses to widen such a member. Here one side has widened it, and another has made it
    a member.
    """
    for side in _OTHER:
        found = _side(table, side)
        if found is None or table.wanted is None or not found.entry.row_count:
            continue
        if _key(table, found) != _key(table, replace(found, entity_type=table.wanted)):
            continue  # The ids of this side do not spell the merged key.
        for was, name in zip(found.entity_type.key, table.wanted.key, strict=True):
            old, new = found.entity_type.properties.get(was), table.wanted.properties.get(name)
            if old and new and changes_spelling(old.prop_type, new.prop_type):
                type_id, type_name = table.wanted.type_id, table.wanted.name
                yield Conflict(
                    table.table_key,
                    ConflictKind.SCHEMA_CONFLICT,
                    f"ids of {type_name} on the {side} spell {name} as {old.prop_type.scalar}, and"
                    f" it is {new.prop_type.scalar} on the {_OTHER[side]}",
                    details={
                        "identity": f"constraint:{type_id}:key",
                        "name": type_name,
                        "base": None if table.base is None else list(table.base.entity_type.key),
                        "source": _key_names(table.source),
                        "target": _key_names(table.target),
                    },
                    has_choice=False,
                )


def _dropped_rows(table: MergedTable) -> Iterator[Loss]:
    for side in _OTHER:
        found = _side(table, side)
        if found is None:
            continue
        changes = _changes(table, table.base, found)
        count = len(changes.inserted) + len(changes.updated_after)
        if count:
            ids = _first(changes.inserted, changes.updated_after)
            key = found.entity_type.table_key
            kind, dropped_by = ConflictKind.SCHEMA_TYPE_DROPPED, _OTHER[side]
            identity = f"type:{found.entity_type.type_id}"
            was_in_base = table.base is not None
            yield Loss(kind, key, None, count, ids, dropped_by, identity, was_in_base)


def _dropped_values(table: MergedTable, side: Side, found: TableSide) -> Iterator[Loss]:
    kept = {table.aliases.canonical(number) for number in _numbers(table.entity_type)}
    for name, prop in found.entity_type.properties.items():
        if prop.property_id is None or table.aliases.canonical(prop.property_id) in kept:
            continue
        changes = _changes(table, table.base, found, column=name)
        inserted = changes.inserted.where(_has_own_value(found, prop, changes.inserted))
        count = len(inserted) + len(changes.updated_after)
        if count:
            ids = _first(inserted, changes.updated_after)
            kind, dropped_by = ConflictKind.SCHEMA_DROPPED, _OTHER[side]
            identity = f"property:{prop.property_id}"
            was_in_base = table.base is not None and table.aliases.canonical(prop.property_id) in {
                table.aliases.canonical(no) for no in _numbers(table.base.entity_type)
            }
            yield Loss(kind, table.table_key, name, count, ids, dropped_by, identity, was_in_base)


def _missing_values(table: MergedTable, side: Side, found: TableSide) -> Iterator[Loss]:
    """Find inserted rows of a side that have no value for a property that is required now."""
    mapping = table.views.source if side == "source" else table.views.target
    if mapping is None:
        return
    lacking = [
        prop
        for prop in missing_properties(mapping)
        if not prop.prop_type.nullable and prop.default is None
    ]
    inserted = _changes(table, table.base, found).inserted if lacking else RowRefs.none()
    for prop in lacking:
        if len(inserted):
            kind, ids = ConflictKind.SCHEMA_REQUIRED, _first(inserted)
            yield Loss(kind, table.table_key, prop.name, len(inserted), ids)


def _changes(
    table: MergedTable, base: TableSide | None, found: TableSide, *, column: str | None = None
) -> RowChanges:
    """Compare one side with the base, as the side's own schema sees both."""
    own = found.entity_type
    columns = own.arrow_schema.names if column is None else [column]
    before = None
    if base is not None:
        before = mapped(base.opened(), map_type(base.entity_type, own, table.aliases))
    blobs = [name for name in own.blob_properties if name in columns]
    return table_changes(before, found.opened(), columns=columns, blobs=blobs)


def _has_own_value(found: TableSide, prop: Property, refs: RowRefs) -> Mask:
    """Mark inserted rows whose value is neither null nor the default."""
    if not len(refs):
        return np.zeros(0, np.bool_)
    rows = found.opened().take(pa.array(refs.row_ids, pa.uint64()), [prop.name])
    values = rows.combine_chunks()[prop.name].chunk(0)
    has_value: Mask = np.asarray(values.is_valid())
    default = default_value(prop)
    if default is None or prop.prop_type.scalar is Scalar.BLOB:
        return has_value
    return has_value & differing_values(values, pa.repeat(default.cast(values.type), len(values)))


def _first(*parts: RowRefs) -> tuple[str, ...]:
    ids = sorted(each for part in parts for each in part.ids.to_pylist())
    return tuple(ids[:FIRST_IDS_MAX])


def _side(table: MergedTable, side: Side) -> TableSide | None:
    return table.source if side == "source" else table.target


def _numbers(entity_type: EntityType) -> Iterator[int]:
    for prop in entity_type.properties.values():
        if prop.property_id is not None:
            yield prop.property_id


def _key(table: MergedTable, side: TableSide) -> tuple[int | str, ...]:
    """Return the members of a key by number; ends of edges have none."""
    numbers = {name: prop.property_id for name, prop in side.entity_type.properties.items()}
    members = [(name, numbers.get(name)) for name in side.entity_type.key]
    return tuple(n if no is None else table.aliases.canonical(no) for n, no in members)


def _key_names(side: TableSide | None) -> list[str] | None:
    return None if side is None else list(side.entity_type.key)
