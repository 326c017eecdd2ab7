"""From a checked schema and its numbers to the compiled schema."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from omnigraph.names import EDGE_COLUMNS, NODE_COLUMNS, TypeKind
from omnigraph.schema.ir.model import (
    Filled,
    IrConstraint,
    IrEdge,
    IrEmbed,
    IrField,
    IrInterface,
    IrNode,
    IrProperty,
    IrPropertyRef,
    IrSystemField,
    IrTypeRef,
    SchemaIR,
    SystemRole,
)
from omnigraph.schema.language.shape import (
    Bound,
    SchemaShape,
    ShapeConstraint,
    ShapeEdge,
    ShapeInterface,
    ShapeNode,
    ShapeProperty,
)

_Named = TypeVar("_Named", IrInterface, IrNode, IrEdge, IrProperty)

_ROLES: Final[dict[str, SystemRole]] = {"id": "id", "src": "src", "dst": "dst"}


class TypeKey(NamedTuple):
    """A type by namespace and name."""

    kind: TypeKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}'"


PropertyKey = tuple[TypeKey, str]


@dataclass
class Numbers:
    """The numbers of a schema by its names, and what the schema keeps next to a number."""

    types: dict[TypeKey, int] = field(default_factory=dict)
    properties: dict[PropertyKey, int] = field(default_factory=dict)
    incarnations: dict[TypeKey, int] = field(default_factory=dict)
    filled: dict[int, Filled] = field(default_factory=dict)
    also: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def keep_from(self, accepted: SchemaIR) -> None:
        """Take over what the accepted schema has next to its numbers."""
        for declared in accepted.types():
            self.also[declared.type_id] = declared.also
            for prop in declared.properties:
                self.also[prop.property_id] = prop.also
                if prop.filled is not None:
                    self.filled[prop.property_id] = prop.filled


def build_ir(
    shape: SchemaShape, numbers: Numbers, *, domain: str, next_identity_id: int
) -> SchemaIR:
    """Replace every name of a shape by its number; all of them must have one."""
    return _Builder(shape, numbers).build(domain=domain, next_identity_id=next_identity_id)


@dataclass(frozen=True)
class _Builder:
    """Replaces every name of a shape by its number."""

    shape: SchemaShape
    numbers: Numbers

    def build(self, *, domain: str, next_identity_id: int) -> SchemaIR:
        return SchemaIR(
            schema_identity_domain=domain,
            next_identity_id=next_identity_id,
            interfaces=_by_name(self._interface(t) for t in self.shape.interfaces),
            nodes=_by_name(self._node(t) for t in self.shape.nodes),
            edges=_by_name(self._edge(t) for t in self.shape.edges),
        )

    def _interface(self, interface: ShapeInterface) -> IrInterface:
        key = TypeKey("interface", interface.name)
        return IrInterface(
            name=interface.name,
            type_id=self.numbers.types[key],
            properties=self._properties(key, interface.properties),
            also=self._also(self.numbers.types[key]),
        )

    def _node(self, node: ShapeNode) -> IrNode:
        key = TypeKey("node", node.name)
        links = [self._type_ref(TypeKey("interface", name)) for name in node.implements]
        return IrNode(
            name=node.name,
            type_id=self.numbers.types[key],
            table_incarnation_id=self.numbers.incarnations[key],
            annotations=node.annotations,
            implements=tuple(sorted(links, key=lambda ref: ref.type_id)),
            properties=self._properties(key, node.properties),
            constraints=self._constraints(key, node.constraints),
            also=self._also(self.numbers.types[key]),
        )

    def _edge(self, edge: ShapeEdge) -> IrEdge:
        key = TypeKey("edge", edge.name)
        return IrEdge(
            name=edge.name,
            type_id=self.numbers.types[key],
            table_incarnation_id=self.numbers.incarnations[key],
            from_type=self._type_ref(TypeKey("node", edge.from_type)),
            to_type=self._type_ref(TypeKey("node", edge.to_type)),
            cardinality=edge.cardinality,
            annotations=edge.annotations,
            properties=self._properties(key, edge.properties),
            constraints=self._constraints(key, edge.constraints),
            also=self._also(self.numbers.types[key]),
        )

    def _properties(
        self, type_key: TypeKey, properties: Iterable[ShapeProperty]
    ) -> tuple[IrProperty, ...]:
        return _by_name(self._property(type_key, p) for p in properties)

    def _property(self, type_key: TypeKey, prop: ShapeProperty) -> IrProperty:
        fulfilled = [
            self._property_ref(TypeKey("interface", interface), name)
            for interface, name in prop.satisfies
        ]
        number = self.numbers.properties[type_key, prop.name]
        return IrProperty(
            name=prop.name,
            property_id=number,
            prop_type=prop.prop_type,
            annotations=prop.annotations,
            property_constraints=prop.property_constraints,
            embed_source=IrEmbed(self._property_ref(type_key, prop.embed.source), prop.embed.model)
            if prop.embed
            else None,
            declared_directly=prop.declared_directly,
            satisfies_interface_properties=tuple(
                sorted(fulfilled, key=lambda ref: ref.property_id or 0)
            ),
            filled=self.numbers.filled.get(number),
            also=self._also(number),
        )

    def _also(self, number: int) -> tuple[int, ...]:
        return self.numbers.also.get(number, ())

    def _constraints(
        self, type_key: TypeKey, constraints: Iterable[ShapeConstraint]
    ) -> tuple[IrConstraint, ...]:
        return tuple(
            IrConstraint(
                kind=c.kind,
                fields=tuple(self._field(type_key, name) for name in c.fields),
                min=Bound.of(c.min),
                max=Bound.of(c.max),
                pattern=c.pattern,
            )
            for c in constraints
        )

    def _field(self, type_key: TypeKey, name: str) -> IrField:
        columns = EDGE_COLUMNS if type_key.kind == "edge" else NODE_COLUMNS
        if name not in columns:
            return self._property_ref(type_key, name)
        return IrSystemField(
            stable_table_id=self.numbers.types[type_key],
            table_type_name=type_key.name,
            table_incarnation_id=self.numbers.incarnations[type_key],
            role=_ROLES[name],
        )

    def _type_ref(self, key: TypeKey) -> IrTypeRef:
        return IrTypeRef(self.numbers.types[key], key.name)

    def _property_ref(self, type_key: TypeKey, name: str) -> IrPropertyRef:
        number = self.numbers.properties.get((type_key, name))
        return IrPropertyRef(self.numbers.types[type_key], type_key.name, number, name)


def _by_name(declared: Iterable[_Named]) -> tuple[_Named, ...]:
    return tuple(sorted(declared, key=lambda d: d.name))
