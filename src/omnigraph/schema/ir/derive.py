"""From the compiled schema to the catalog."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from omnigraph.dataclass import dataclass
from omnigraph.names import TableKey
from omnigraph.schema.catalog import (
    Catalog,
    CheckRule,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    PropertyOrder,
    RangeRule,
)
from omnigraph.schema.defaults import default_text, read_default
from omnigraph.schema.ir.model import (
    IrConstraint,
    IrEdge,
    IrInterface,
    IrNode,
    IrProperty,
    IrTable,
    SchemaIR,
)
from omnigraph.schema.language.shape import SchemaShape, ShapeProperty
from omnigraph.schema.language.tree import RuleKind

Members = tuple[str, ...]


@dataclass(frozen=True)
class WrittenOrder:
    """The order of properties in a text that has been read."""

    shape: SchemaShape

    def of(self, table_key: str) -> Members:
        """Return the names of the properties of a type in the order of the text."""
        return self._by_key.get(table_key, ())

    @cached_property
    def _by_key(self) -> dict[str, Members]:
        nodes = {TableKey.node(node.name): node.properties for node in self.shape.nodes}
        edges = {TableKey.edge(edge.name): edge.properties for edge in self.shape.edges}
        return {str(key): _declared_order(each) for key, each in (nodes | edges).items()}


def derive_catalog(ir: SchemaIR, order: PropertyOrder | None = None) -> Catalog:
    """Return the catalog of a compiled schema: names in place of numbers.

    The text alone knows the `order` of properties. The mappings are plain dictionaries, because
    catalogs travel to workers by pickling.
    """
    return Catalog(
        interfaces={t.name: _interface(t) for t in ir.interfaces},
        node_types={t.name: _node(t, order) for t in ir.nodes},
        edge_types={t.name: _edge(t, order) for t in ir.edges},
    )


def _declared_order(properties: Iterable[ShapeProperty]) -> Members:
    """Return the names in the order of the text; what interfaces inject comes last."""

    def place(declared: ShapeProperty) -> tuple[bool, int]:
        return not declared.declared_directly, declared.span.start

    return tuple(declared.name for declared in sorted(properties, key=place))


def _interface(interface: IrInterface) -> InterfaceType:
    return InterfaceType(
        interface.name, _properties(interface.properties), type_id=interface.type_id
    )


def _node(node: IrNode, order: PropertyOrder | None) -> NodeType:
    key = _key(node)
    indices = _tuples(node, "index")
    return NodeType(
        name=node.name,
        properties=_properties(node.properties),
        implements=tuple(sorted(ref.type_name for ref in node.implements)),
        key=key,
        unique_constraints=_tuples(node, "unique"),
        indices=_distinct([*indices, tuple(sorted(key))]) if key else indices,
        range_constraints=tuple(_range(c) for c in node.constraints if c.kind == "range"),
        check_constraints=tuple(_check(c) for c in node.constraints if c.kind == "check"),
        embed_sources={p.name: p.embed_source.by_name for p in node.properties if p.embed_source},
        annotations=node.annotations,
        type_id=node.type_id,
        table_incarnation_id=node.table_incarnation_id,
        order=order,
        also=node.also,
    )


def _edge(edge: IrEdge, order: PropertyOrder | None) -> EdgeType:
    return EdgeType(
        name=edge.name,
        from_type=edge.from_type.type_name,
        to_type=edge.to_type.type_name,
        cardinality=edge.cardinality,
        properties=_properties(edge.properties),
        key=_edge_key(edge),
        unique_constraints=_tuples(edge, "unique"),
        indices=_tuples(edge, "index"),
        annotations=edge.annotations,
        type_id=edge.type_id,
        table_incarnation_id=edge.table_incarnation_id,
        order=order,
        also=edge.also,
    )


def _properties(properties: Iterable[IrProperty]) -> dict[str, Property]:
    return {p.name: _property(p) for p in properties}


def _property(prop: IrProperty) -> Property:
    text = default_text(prop.annotations)
    return Property(
        name=prop.name,
        prop_type=prop.prop_type,
        annotations=prop.annotations,
        default=None if text is None else read_default(prop.prop_type, text),
        property_id=prop.property_id,
        filled=prop.filled,
        also=prop.also,
    )


def _key(table: IrTable) -> Members:
    """Order the members by number: that order is fixed when the type is created."""
    members = {name for found in _tuples(table, "key") for name in found}
    return tuple(p.name for p in sorted(table.properties, key=_number) if p.name in members)


def _edge_key(edge: IrEdge) -> Members:
    """Put the ends, which every key of an edge has, before the properties."""
    has_key = any(constraint.kind == "key" for constraint in edge.constraints)
    return ("src", "dst", *_key(edge)) if has_key else ()


def _number(prop: IrProperty) -> int:
    return prop.property_id


def _tuples(table: IrTable, kind: RuleKind) -> tuple[Members, ...]:
    """Collect the member tuples of one kind, from annotations and from rules."""
    annotations = [(p.name,) for p in table.properties if kind in p.property_constraints]
    rules = [_names(c) for c in table.constraints if c.kind == kind]
    return _distinct([*annotations, *rules])


def _names(constraint: IrConstraint) -> Members:
    return tuple(field.name for field in constraint.fields)


def _distinct(tuples: Iterable[Members]) -> tuple[Members, ...]:
    return tuple(sorted(set(tuples)))


def _range(constraint: IrConstraint) -> RangeRule:
    named = constraint.by_name
    return RangeRule(named.fields[0], min=named.min, max=named.max)


def _check(constraint: IrConstraint) -> CheckRule:
    # The kind guarantees a pattern: the compiler and the reader of stored schemas both demand it.
    return CheckRule(constraint.fields[0].name, constraint.pattern or "")
