"""The catalog: what a checked schema says, with interfaces expanded.

This is the form that all other packages work with. It is organised by name and carries
the numbers that survive a rename; `omnigraph.schema.ir.derive` builds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Protocol, TypeAlias

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.display import Display, Displayed
from omnigraph.names import TableKey, TypeKind
from omnigraph.values import PRIMARY_KEY, PropType

Number = int | float


@dataclass(frozen=True)
class Annotation:
    """An annotation that is kept as written; all values are strings."""

    name: str
    value: str | None = None
    kwargs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class EmbedSource:
    """Which String property fills a vector property, and by which model."""

    source: str
    model: str | None = None


@dataclass(frozen=True)
class RangeRule:
    """`@range(p, lo..hi)`: inclusive bounds, `None` = open."""

    property: str
    min: Number | None
    max: Number | None


@dataclass(frozen=True)
class CheckRule:
    """`@check(p, "re")`: the pattern must be found in the value."""

    property: str
    pattern: str


@dataclass(frozen=True)
class Cardinality:
    """Edges of one type per source node; `max=None` = unbounded."""

    min: int = 0
    max: int | None = None


@dataclass(frozen=True)
class Property:
    """One property of a node, edge or interface.

    `property_id` is the stable number once the schema has been given identities, `also` are the
    numbers under which other branches know the property. `filled` is what stored rows got when the
    property was added; `None` is null.
    """

    name: str
    prop_type: PropType
    annotations: tuple[Annotation, ...] = ()
    default: str | int | float | bool | None = None
    property_id: int | None = None
    filled: str | int | float | bool | None = None
    also: tuple[int, ...] = ()

    @cached_property
    def arrow_field(self) -> pa.Field:
        """The stored column."""
        return self.prop_type.arrow_field(self.name, self.property_id)


class PropertyOrder(Protocol):
    """Knows the order in which the text of a schema has the properties of each type."""

    def of(self, table_key: str) -> tuple[str, ...]:
        """Return the names of the properties of a type in the order of the text."""
        ...


@dataclass(frozen=True)
class InterfaceType:
    """A named set of properties; has no dataset and cannot be queried."""

    name: str
    properties: Mapping[str, Property]
    type_id: int | None = None


@dataclass(frozen=True)
class NodeType:
    """A node type with the properties of its interfaces included.

    `properties` is in name order. `indices` holds the tuples of `@index`, and the key's.
    `key` members are in the order in which composite ids spell them, which is that of their
    `property_id`; the members of every other tuple are in name order. `declared_order` has the
    names as the text has them, those of interfaces last; it is empty where no text is known.
    `also` has the numbers of type and table under which other branches know the type.
    """

    name: str
    properties: Mapping[str, Property]
    implements: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    unique_constraints: tuple[tuple[str, ...], ...] = ()
    indices: tuple[tuple[str, ...], ...] = ()
    range_constraints: tuple[RangeRule, ...] = ()
    check_constraints: tuple[CheckRule, ...] = ()
    embed_sources: Mapping[str, EmbedSource] = field(default_factory=dict)
    annotations: tuple[Annotation, ...] = ()
    type_id: int | None = None
    table_incarnation_id: int | None = None
    order: PropertyOrder | None = field(default=None, compare=False, repr=False)
    also: tuple[int, ...] = ()

    @property
    def table_key(self) -> TableKey:
        """The name of the dataset in the manifest."""
        return TableKey.node(self.name)

    @property
    def declared_order(self) -> tuple[str, ...]:
        """The names of the properties as the text has them."""
        return () if self.order is None else self.order.of(self.table_key)

    @cached_property
    def blob_properties(self) -> tuple[str, ...]:
        """Names of the Blob properties, sorted."""
        return _blob_names(self.properties)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Columns of the dataset: `id`, then the properties in name order."""
        return pa.schema([_id_field(), *(p.arrow_field for p in self.properties.values())])


@dataclass(frozen=True)
class EdgeType:
    """An edge type; `properties` is in name order, `declared_order` as in `NodeType`.

    `key` is empty, or `src`, `dst` and properties in the order of their `property_id`: the order in
    which ids spell them.
    """

    name: str
    from_type: str
    to_type: str
    cardinality: Cardinality = Cardinality()
    properties: Mapping[str, Property] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    unique_constraints: tuple[tuple[str, ...], ...] = ()
    indices: tuple[tuple[str, ...], ...] = ()
    annotations: tuple[Annotation, ...] = ()
    type_id: int | None = None
    table_incarnation_id: int | None = None
    order: PropertyOrder | None = field(default=None, compare=False, repr=False)
    also: tuple[int, ...] = ()

    @property
    def table_key(self) -> TableKey:
        """The name of the dataset in the manifest."""
        return TableKey.edge(self.name)

    @property
    def declared_order(self) -> tuple[str, ...]:
        """The names of the properties as the text has them."""
        return () if self.order is None else self.order.of(self.table_key)

    @cached_property
    def blob_properties(self) -> tuple[str, ...]:
        """Names of the Blob properties, sorted."""
        return _blob_names(self.properties)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Columns of the dataset: `id`, `src`, `dst`, then the properties in name order."""
        ends = [pa.field(name, pa.utf8(), nullable=False) for name in ("src", "dst")]
        return pa.schema([_id_field(), *ends, *(p.arrow_field for p in self.properties.values())])


EntityType: TypeAlias = NodeType | EdgeType
"""A type that a graph has rows of."""


@dataclass(frozen=True, repr=False)
class Catalog(Displayed):
    """Everything that a schema declares; the mappings are in name order."""

    interfaces: Mapping[str, InterfaceType]
    node_types: Mapping[str, NodeType]
    edge_types: Mapping[str, EdgeType]

    def _display(self) -> Display:
        nodes = [
            ("node", name, _listed(node.properties, node.key))
            for name, node in self.node_types.items()
        ]
        edges = [
            ("edge", _headed(edge), _listed(edge.properties)) for edge in self.edge_types.values()
        ]
        title = f"{len(nodes)} node types, {len(edges)} edge types"
        return Display(title, ("kind", "type", "properties"), nodes + edges)

    @cached_property
    def _edges_by_folded_name(self) -> dict[str, EdgeType]:
        return {name.lower(): edge for name, edge in self.edge_types.items()}

    def lookup_edge(self, name: str) -> EdgeType | None:
        """Find an edge type by its exact name, then without regard to case."""
        return self.edge_types.get(name) or self._edges_by_folded_name.get(name.lower())

    def of_kind(self, kind: TypeKind) -> Mapping[str, InterfaceType | NodeType | EdgeType]:
        """Return the types of one namespace."""
        if kind == "interface":
            return self.interfaces
        return self.node_types if kind == "node" else self.edge_types

    def type_id(self, kind: TypeKind, name: str) -> int | None:
        """Return the stable number of a type; `None` if there is no such type."""
        found = self.of_kind(kind).get(name)
        return found.type_id if found else None

    def property_id(self, kind: TypeKind, type_name: str, property_name: str) -> int | None:
        """Return the stable number of a property; `None` if there is no such property."""
        entity_type = self.of_kind(kind).get(type_name)
        found = entity_type.properties.get(property_name) if entity_type else None
        return found.property_id if found else None


def _id_field() -> pa.Field:
    return pa.field("id", pa.utf8(), nullable=False, metadata={PRIMARY_KEY: b"true"})


def _blob_names(properties: Mapping[str, Property]) -> tuple[str, ...]:
    return tuple(n for n, p in properties.items() if p.prop_type.scalar == "Blob")


def _headed(edge: EdgeType) -> str:
    key = f" @key({', '.join(edge.key)})" if edge.key else ""
    return f"{edge.name}: {edge.from_type} -> {edge.to_type}{key}"


def _listed(properties: Mapping[str, Property], key: tuple[str, ...] = ()) -> str:
    return ", ".join(
        f"{name}: {prop.prop_type}{' @key' if name in key else ''}"
        for name, prop in properties.items()
    )
