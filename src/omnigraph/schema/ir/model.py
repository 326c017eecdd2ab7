"""The compiled schema: every declaration with the number that outlives its name.

Facts that hold for every `SchemaIR` (`invariants.py` checks them on stored ones):

1. Numbers of types, properties and table incarnations come from one counter; no two things share
   one, and all are below `next_identity_id`.
2. Types and properties are sorted by name; `implements` and satisfied interface properties by
   number; members of key, unique and index lists by name; constraints by kind, then members;
   annotations by their JSON.
3. A reference carries the number and the current name of what it points at.
4. `key`, `unique`, `index` annotations are in `property_constraints`, `embed` is in `embed_source`,
   and `rename_from` is nowhere.

`to_json` has exactly the members, in exactly the order, that the stored form has; the hash depends
on both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Literal

from omnigraph.names import TableKey, TypeKind
from omnigraph.schema.catalog import Annotation, Cardinality
from omnigraph.schema.json_form import (
    JsonObject,
    annotations_json,
    cardinality_json,
    digest,
    prop_type_json,
)
from omnigraph.schema.language.shape import Bound
from omnigraph.schema.language.tree import RuleKind
from omnigraph.values import PropType

IR_VERSION: Final = 2

UNLIMITED: Final = Cardinality()

SystemRole = Literal["id", "src", "dst"]


@dataclass(frozen=True)
class IrTypeRef:
    """A type, by number and name."""

    type_id: int
    type_name: str

    def to_json(self) -> JsonObject:
        """Spell the reference."""
        return {"type_id": self.type_id, "type_name": self.type_name}


@dataclass(frozen=True)
class IrPropertyRef:
    """A property, by number and name.

    `property_id` is `None` only for the source of an interface's `@embed` that the interface does
    not declare itself: which property it means is decided in each implementing node.
    """

    owner_type_id: int
    owner_type_name: str
    property_id: int | None
    property_name: str

    @property
    def name(self) -> str:
        """The current name."""
        return self.property_name

    @property
    def identity(self) -> int | str:
        """What stays when the property is renamed."""
        return self.property_name if self.property_id is None else self.property_id

    def to_json(self) -> JsonObject:
        """Spell the reference."""
        return {
            "owner_type_id": self.owner_type_id,
            "owner_type_name": self.owner_type_name,
            "property_id": self.property_id,
            "property_name": self.property_name,
        }


@dataclass(frozen=True)
class IrSystemField:
    """A structural column (`src`, `dst`, `id`) as a member of a constraint."""

    stable_table_id: int
    table_type_name: str
    table_incarnation_id: int
    role: SystemRole

    @property
    def name(self) -> str:
        """The column's name."""
        return self.role

    @property
    def identity(self) -> int | str:
        """What stays when the type is renamed."""
        return self.role

    def to_json(self) -> JsonObject:
        """Spell the reference."""
        return {
            "stable_table_id": self.stable_table_id,
            "table_type_name": self.table_type_name,
            "table_incarnation_id": self.table_incarnation_id,
            "role": self.role,
        }


IrField = IrPropertyRef | IrSystemField


@dataclass(frozen=True)
class ConstraintIdentity:
    """What makes two constraints the same one, whatever their members are called today."""

    kind: RuleKind
    members: frozenset[int | str]
    min: Bound | None = None
    max: Bound | None = None
    pattern: str | None = None


@dataclass(frozen=True)
class IrConstraint:
    """A rule of a body. `range` and `check` have exactly one field."""

    kind: RuleKind
    fields: tuple[IrField, ...]
    min: Bound | None = None
    max: Bound | None = None
    pattern: str | None = None

    @cached_property
    def identity(self) -> ConstraintIdentity:
        """Return the part that survives renames."""
        members = frozenset(field.identity for field in self.fields)
        return ConstraintIdentity(self.kind, members, self.min, self.max, self.pattern)

    @property
    def order(self) -> tuple[str, tuple[str, ...], str]:
        """Sort key: kind, then members, then what is left."""
        rest = f"{self.min}{self.max}{self.pattern}"
        return self.kind, tuple(field.name for field in self.fields), rest

    def to_json(self) -> JsonObject:
        """Spell the constraint."""
        if self.kind == "range":
            return {
                "kind": self.kind,
                "field": _field_json(self.fields[0]),
                "min": self.min.to_json() if self.min else None,
                "max": self.max.to_json() if self.max else None,
            }
        if self.kind == "check":
            return {
                "kind": self.kind,
                "field": _field_json(self.fields[0]),
                "pattern": self.pattern,
            }
        return {"kind": self.kind, "fields": [_field_json(field) for field in self.fields]}


@dataclass(frozen=True)
class IrEmbed:
    """Which property fills a vector, and by which model."""

    source: IrPropertyRef
    model: str | None

    def to_json(self) -> JsonObject:
        """Spell the source and the model."""
        return {"source": self.source.to_json(), "model": self.model}


@dataclass(frozen=True)
class IrProperty:
    """An effective property of a type."""

    name: str
    property_id: int
    prop_type: PropType
    annotations: tuple[Annotation, ...] = ()
    property_constraints: tuple[RuleKind, ...] = ()
    embed_source: IrEmbed | None = None
    declared_directly: bool = True
    satisfies_interface_properties: tuple[IrPropertyRef, ...] = ()

    def to_json(self) -> JsonObject:
        """Spell the property."""
        return {
            "name": self.name,
            "property_id": self.property_id,
            "prop_type": prop_type_json(self.prop_type),
            "annotations": annotations_json(self.annotations),
            "property_constraints": [*self.property_constraints],
            "embed_source": self.embed_source.to_json() if self.embed_source else None,
            "declared_directly": self.declared_directly,
            "satisfies_interface_properties": [
                ref.to_json() for ref in self.satisfies_interface_properties
            ],
        }


@dataclass(frozen=True)
class IrInterface:
    """An interface; it has neither a dataset nor annotations or rules of its own."""

    name: str
    type_id: int
    properties: tuple[IrProperty, ...] = ()

    kind: ClassVar[TypeKind] = "interface"
    annotations: ClassVar[tuple[Annotation, ...]] = ()
    constraints: ClassVar[tuple[IrConstraint, ...]] = ()

    def to_json(self) -> JsonObject:
        """Spell the interface."""
        return {
            "name": self.name,
            "type_id": self.type_id,
            "properties": [p.to_json() for p in self.properties],
        }


@dataclass(frozen=True)
class IrNode:
    """A node type with the properties of its interfaces included."""

    name: str
    type_id: int
    table_incarnation_id: int
    annotations: tuple[Annotation, ...] = ()
    implements: tuple[IrTypeRef, ...] = ()
    properties: tuple[IrProperty, ...] = ()
    constraints: tuple[IrConstraint, ...] = ()

    kind: ClassVar[TypeKind] = "node"

    def to_json(self) -> JsonObject:
        """Spell the node type."""
        return {
            "name": self.name,
            "type_id": self.type_id,
            "table_incarnation_id": self.table_incarnation_id,
            "annotations": annotations_json(self.annotations),
            "implements": [ref.to_json() for ref in self.implements],
            "properties": [p.to_json() for p in self.properties],
            "constraints": [c.to_json() for c in self.constraints],
        }


@dataclass(frozen=True)
class IrEdge:
    """An edge type."""

    name: str
    type_id: int
    table_incarnation_id: int
    from_type: IrTypeRef
    to_type: IrTypeRef
    cardinality: Cardinality = UNLIMITED
    annotations: tuple[Annotation, ...] = ()
    properties: tuple[IrProperty, ...] = ()
    constraints: tuple[IrConstraint, ...] = ()

    kind: ClassVar[TypeKind] = "edge"

    def to_json(self) -> JsonObject:
        """Spell the edge type."""
        return {
            "name": self.name,
            "type_id": self.type_id,
            "table_incarnation_id": self.table_incarnation_id,
            "from_type": self.from_type.to_json(),
            "to_type": self.to_type.to_json(),
            "cardinality": cardinality_json(self.cardinality),
            "annotations": annotations_json(self.annotations),
            "properties": [p.to_json() for p in self.properties],
            "constraints": [c.to_json() for c in self.constraints],
        }


IrType = IrInterface | IrNode | IrEdge
IrTable = IrNode | IrEdge


@dataclass(frozen=True)
class TableIdentity:
    """Which dataset lifetime a manifest registration stands for."""

    table_key: str
    type_id: int
    table_incarnation_id: int


@dataclass(frozen=True)
class SchemaIR:
    """A whole compiled schema. Equal values have equal hashes and the other way round."""

    schema_identity_domain: str
    next_identity_id: int
    interfaces: tuple[IrInterface, ...] = ()
    nodes: tuple[IrNode, ...] = ()
    edges: tuple[IrEdge, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the stored form (`_schema.ir.json`)."""
        return {
            "ir_version": IR_VERSION,
            "schema_identity_domain": self.schema_identity_domain,
            "next_identity_id": self.next_identity_id,
            "interfaces": [t.to_json() for t in self.interfaces],
            "nodes": [t.to_json() for t in self.nodes],
            "edges": [t.to_json() for t in self.edges],
        }

    @cached_property
    def ir_hash(self) -> str:
        """`sha256:<hex>` of the compact stored form."""
        return digest(self.to_json())

    @property
    def tables(self) -> tuple[IrTable, ...]:
        """The types that have a dataset: nodes, then edges."""
        return self.nodes + self.edges

    @property
    def table_identities(self) -> tuple[TableIdentity, ...]:
        """What the live registrations of the manifest must be."""
        return tuple(
            TableIdentity(TableKey.of(t.kind, t.name), t.type_id, t.table_incarnation_id)
            for t in self.tables
        )

    def types(self) -> Iterator[IrType]:
        """Yield every type: interfaces, nodes, edges, each by name."""
        yield from self.interfaces
        yield from self.nodes
        yield from self.edges

    def of_kind(self, kind: TypeKind) -> tuple[IrType, ...]:
        """Return the types of one kind, by name."""
        if kind == "interface":
            return self.interfaces
        return self.nodes if kind == "node" else self.edges


def _field_json(field: IrField) -> JsonObject:
    kind = "property" if isinstance(field, IrPropertyRef) else "system"
    return {"kind": kind, **field.to_json()}
