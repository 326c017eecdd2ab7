"""How rows of a table become rows of a type: one SQL expression per column.

A mapping is a value: batch runs and micro-batches of a stream select the same expressions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from omnigraph.pipelines.file.model import LoadStep
from omnigraph.schema import Catalog, EdgeType, EntityType, NodeType


@dataclass(frozen=True)
class Mapped:
    """A step and the expression of every column that it loads."""

    step: LoadStep
    entity_type: EntityType
    expressions: Mapping[str, str]

    @property
    def what(self) -> str:
        """The step, as messages name it."""
        return f"load of {self.step.kind} '{self.step.type_name}'"

    @property
    def plain_columns(self) -> dict[str, tuple[str, ...]]:
        """Which columns are copies of which: `Person.name` of `people.full_name`."""
        found: dict[str, tuple[str, ...]] = {}
        for name, text in self.expressions.items():
            column = text.strip().strip("`")
            if column.replace("_", "a").isalnum() and not column[0].isdigit():
                found[f"{self.entity_type.name}.{name}"] = (f"{self.step.source}.{column}",)
        return found


def quoted_name(name: str) -> str:
    """Return a name as SQL takes it.

    >>> quoted_name("a`b")
    '`a``b`'
    """
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def entity_type_of(step: LoadStep, catalog: Catalog) -> EntityType | None:
    """Return the type of a step; None if the schema has none of this name and kind."""
    if step.kind == "node":
        return catalog.node_types.get(step.type_name)
    return catalog.lookup_edge(step.type_name)


def mapped(step: LoadStep, entity_type: EntityType, columns: Sequence[str]) -> Mapped:
    """Return the mapping of a step from a table of these columns.

    Without `map`, columns are taken that have the name of a property, or are called `id`.
    """
    if step.mapping is not None:
        return Mapped(step, entity_type, {**step.mapping, **step.ends})
    taken = {name: quoted_name(name) for name in columns if name in loadable(entity_type)}
    return Mapped(step, entity_type, {**taken, **step.ends})


def loadable(entity_type: EntityType) -> tuple[str, ...]:
    """Return the names that `map` may have."""
    return (*entity_type.properties, "id")


def missing_properties(entity_type: EntityType, given: Iterable[str]) -> list[str]:
    """Return the properties that every row needs and a mapping does not give."""
    made = entity_type.embed_sources if isinstance(entity_type, NodeType) else {}
    return [
        name
        for name, prop in entity_type.properties.items()
        if not prop.prop_type.nullable
        and prop.default is None
        and name not in given
        and name not in made
    ]


def unread_columns(one: Mapped, columns: Sequence[str]) -> list[str]:
    """Return the columns that a step without `map` leaves out."""
    if one.step.mapping is not None or isinstance(one.entity_type, EdgeType):
        return []
    return [name for name in columns if name not in one.expressions]
