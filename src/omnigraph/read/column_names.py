"""Names of the columns of a row table."""

from __future__ import annotations

from typing import Final, TypeAlias

from omnigraph.query.plan.plan import EndpointValue, EntityId, PropertyValue

StoredValue: TypeAlias = PropertyValue | EntityId | EndpointValue
"""A value that a stored column holds."""

ID: Final = "id"
SOURCE: Final = "src"
TARGET: Final = "dst"


def stored_column(value: StoredValue) -> str:
    """Return the column of the dataset that holds a value.

    >>> stored_column(EntityId("c")), stored_column(EndpointValue("from"))
    ('id', 'src')
    """
    match value:
        case PropertyValue(_, name):
            return name
        case EntityId():
            return ID
        case EndpointValue(end):
            return SOURCE if end == "from" else TARGET


def column_name(value: StoredValue) -> str:
    """Return the column of the row table that holds a value.

    A variable `c` owns `c.id` and `c.<property>`. In a mutation the row itself is the variable,
    and names are those of the dataset.

    >>> column_name(EntityId("c")), column_name(EndpointValue("from"))
    ('c.id', 'src')
    """
    stored = stored_column(value)
    variable = "" if isinstance(value, EndpointValue) else value.variable
    return f"{variable}.{stored}" if variable else stored
