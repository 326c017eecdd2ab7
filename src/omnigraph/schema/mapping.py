"""How the rows of a stored type look under another schema of the same graph.

Columns are matched by the identity of their property, so a rename carries its values. A property
that the stored type does not have is what the apply that added it wrote into the rows of its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.catalog import EntityType, Property
from omnigraph.schema.fills import fill_scalar
from omnigraph.schema.ir.aliases import Aliases


@dataclass(frozen=True)
class ColumnMapping:
    """Where a wanted column comes from: a stored one, or a value for every row.

    `fill` is that value; `None` is null.
    """

    field: pa.Field
    stored: str | None
    fill: pa.Scalar | None = None

    def column(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the wanted column of a stored batch; values that do not fit are null."""
        if self.stored is None:
            fill = pa.scalar(None, self.field.type) if self.fill is None else self.fill
            return pa.repeat(fill, batch.num_rows)
        return _converted(batch[self.stored], self.field.type)

    def misfits(self, batch: pa.RecordBatch) -> pa.Array:
        """Return for each row whether its stored value has no exact counterpart."""
        if self.stored is None:
            return pa.repeat(pa.scalar(False), batch.num_rows)
        found = batch[self.stored]
        return pc.and_(found.is_valid(), _converted(found, self.field.type).is_null())


@dataclass(frozen=True)
class TypeMapping:
    """The columns of a wanted type, each with its source in a stored one."""

    stored: EntityType
    wanted: EntityType
    columns: tuple[ColumnMapping, ...]

    @cached_property
    def is_identity(self) -> bool:
        """Whether names and types of all columns are the same, so that there is nothing to do."""
        stored, wanted = self.stored.arrow_schema, self.wanted.arrow_schema
        sources = [column.stored for column in self.columns]
        return bool(sources == stored.names == wanted.names and stored.types == wanted.types)

    @cached_property
    def narrowed(self) -> tuple[ColumnMapping, ...]:
        """The columns whose wanted type may not hold every stored value."""
        stored = self.stored.arrow_schema
        return tuple(
            column
            for column in self.columns
            if column.stored is not None
            and _is_narrowed(stored.field(column.stored).type, column.field.type)
        )

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the wanted columns of a stored batch."""
        columns = [column.column(batch) for column in self.columns]
        return pa.record_batch(columns, schema=self.wanted.arrow_schema)


def map_type(stored: EntityType, wanted: EntityType, aliases: Aliases) -> TypeMapping:
    """Match the columns of two forms of one type by identity."""
    names = {
        aliases.canonical(prop.property_id): name
        for name, prop in stored.properties.items()
        if prop.property_id is not None
    }
    columns = [
        _column(field, wanted.properties.get(field.name), names, aliases)
        for field in wanted.arrow_schema
    ]
    return TypeMapping(stored, wanted, tuple(columns))


def _column(
    field: pa.Field, prop: Property | None, names: dict[int, str], aliases: Aliases
) -> ColumnMapping:
    if prop is None or prop.property_id is None:
        return ColumnMapping(field, field.name)
    stored = names.get(aliases.canonical(prop.property_id))
    fill = None if prop.filled is None else fill_scalar(prop.prop_type, prop.filled)
    return ColumnMapping(field, stored, fill if stored is None else None)


def _is_narrowed(stored: pa.DataType, wanted: pa.DataType) -> bool:
    if stored == wanted or pa.types.is_nested(wanted):
        return False
    if not (pa.types.is_primitive(stored) and pa.types.is_primitive(wanted)):
        return True
    # Of two types of one kind, and of a date and a time, the wider one holds all values.
    return bool(stored.bit_width >= wanted.bit_width)


def _converted(found: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert what has an exact counterpart; everything else becomes null."""
    # A blob column is read as descriptions, bytes or references, and is never converted.
    if found.type == wanted or pa.types.is_struct(wanted):
        return found
    if not (_is_ordered(found.type) and _is_ordered(wanted)):
        return pa.nulls(len(found), wanted)
    converted = pc.cast(found, wanted, safe=False)
    back = pc.cast(converted, found.type, safe=False)
    is_exact = pc.equal(back, found)
    if pa.types.is_floating(found.type):
        is_exact = pc.or_(is_exact, pc.is_nan(found))
    if pa.types.is_integer(found.type) and pa.types.is_integer(wanted):
        # Between a signed and an unsigned type, a number that does not fit comes back all the same.
        is_exact = pc.and_(is_exact, pc.equal(_is_negative(found), _is_negative(converted)))
    return pc.if_else(is_exact, converted, pa.scalar(None, wanted))


def _is_negative(found: pa.Array) -> pa.Array:
    return pc.less(found, pa.scalar(0, found.type))


def _is_ordered(found: pa.DataType) -> bool:
    is_number = pa.types.is_integer(found) or pa.types.is_floating(found)
    return bool(is_number or pa.types.is_date(found))
