"""The key under which records of vectors are kept: numbers, which survive renames and merges."""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.schema.catalog import NodeType


@dataclass(frozen=True)
class VectorKey:
    """A vector property, under all numbers that it has on some branch, its own first.

    A property of a schema without numbers is known by its names alone.
    """

    type_name: str
    property_name: str
    type_ids: tuple[str, ...] = ()
    property_ids: tuple[str, ...] = ()

    @classmethod
    def of(cls, node: NodeType, name: str) -> VectorKey:
        """Return the key of a property."""
        found = node.properties[name]
        if node.type_id is None or found.property_id is None:
            return cls(node.name, name)
        return cls(
            node.name,
            name,
            tuple(map(str, (node.type_id, *node.also[::2]))),
            tuple(map(str, (found.property_id, *found.also))),
        )

    @property
    def recorded(self) -> tuple[str, str]:
        """What new records have as type and property."""
        return (*self.type_ids, self.type_name)[0], (*self.property_ids, self.property_name)[0]
