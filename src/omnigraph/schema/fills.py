"""What an added property gets in rows that are stored already, and how that value is kept.

The compiled schema keeps the value as a literal that reads back to the stored value under every
type that the property may be widened to: an F32 as the double that it is, a Date as a plain date. A
later change of `@default`, or of the enum, leaves it as it is: the rows were written before.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.defaults import DefaultValue, default_text, read_default
from omnigraph.schema.language.shape import ShapeProperty
from omnigraph.schema.values.convert import convert_values
from omnigraph.schema.values.to_json import to_json_values
from omnigraph.values import PropType, Scalar


def fill_of(prop: ShapeProperty) -> DefaultValue | None:
    """Return what an apply that adds the property writes: its default where it is required."""
    text = default_text(prop.annotations)
    if prop.prop_type.nullable or text is None:
        return None
    default = read_default(prop.prop_type, text)
    column = convert_values([default], prop.prop_type, prop.name).column
    [kept] = to_json_values(column, prop.prop_type)
    return kept if isinstance(kept, str | int | float | bool) else None


def fill_scalar(prop_type: PropType, filled: DefaultValue) -> pa.Scalar:
    """Read a kept value as the type that the property has now.

    >>> fill_scalar(PropType(Scalar.DATETIME), "2024-02-29").cast(pa.timestamp("ms")).as_py()
    datetime.datetime(2024, 2, 29, 0, 0)
    """
    # A value that was written stays one, also where the enum has lost it since.
    plain = replace(prop_type, enum_values=None, nullable=True)
    found = convert_values([filled], plain, "filled").column
    if plain.scalar is Scalar.DATETIME and not found[0].is_valid:
        dates = convert_values([filled], replace(plain, scalar=Scalar.DATE), "filled").column
        found = pc.cast(dates, plain.arrow_type)
    return found[0]
