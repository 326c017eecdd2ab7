"""The invariants of a compiled schema, as checks on one that was read back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from omnigraph.dataclass import dataclass
from omnigraph.names import EDGE_COLUMNS, NODE_COLUMNS, TypeKind
from omnigraph.schema.defaults import default_text, read_default
from omnigraph.schema.fills import fill_scalar
from omnigraph.schema.ir.model import (
    IrConstraint,
    IrEdge,
    IrInterface,
    IrNode,
    IrProperty,
    IrPropertyRef,
    IrSystemField,
    IrTable,
    IrType,
    IrTypeRef,
    SchemaIR,
)
from omnigraph.schema.json_form import sorted_annotations

_Ordered = TypeVar("_Ordered", int, str, tuple[str, tuple[str, ...], str])

Problem = tuple[str, str]
"""A path in the JSON and what is wrong there."""

TYPED_ANNOTATIONS: Final = frozenset({"rename_from", "embed", "key", "unique", "index"})
"""Annotations with JSON members of their own; they never appear in `annotations`."""


def problems_of(ir: SchemaIR) -> Iterator[Problem]:
    """Yield every breach of an invariant; a schema that we compiled has none."""
    yield from _number_problems(ir)
    known = _Known.of(ir)
    for kind in ("interfaces", "nodes", "edges"):
        declared: Sequence[IrType] = getattr(ir, kind)
        yield from _order_problems(f"$.{kind}", [t.name for t in declared])
        for found in declared:
            yield from _type_problems(f"$.{kind}.{found.name}", found, known)


def _number_problems(ir: SchemaIR) -> Iterator[Problem]:
    seen: dict[int, str] = {}
    for number, bearer in _numbers(ir):
        if number >= ir.next_identity_id:
            yield "$.next_identity_id", f"{bearer} has {number}, which is not given out yet"
        if number in seen:
            yield "$", f"{seen[number]} and {bearer} share the number {number}"
        seen[number] = bearer


def _numbers(ir: SchemaIR) -> Iterator[tuple[int, str]]:
    for found in ir.types():
        name = f"{found.kind}:{found.name}"
        yield found.type_id, name
        if not isinstance(found, IrInterface):
            yield found.table_incarnation_id, f"the table of {name}"
        yield from ((number, f"{name} of another branch") for number in found.also)
        for prop in found.properties:
            yield prop.property_id, f"{name}.{prop.name}"
            yield from ((number, f"{name}.{prop.name} of another branch") for number in prop.also)


@dataclass(frozen=True)
class _Known:
    """What references may point at."""

    types: dict[int, IrType]

    @classmethod
    def of(cls, ir: SchemaIR) -> _Known:
        return cls({found.type_id: found for found in ir.types()})

    def type_problems(self, path: str, ref: IrTypeRef, kind: TypeKind) -> Iterator[Problem]:
        found = self.types.get(ref.type_id)
        if found is None or (found.kind, found.name) != (kind, ref.type_name):
            yield path, f"{kind} {ref.type_id} is not called '{ref.type_name}'"

    def property_problems(
        self, path: str, ref: IrPropertyRef, *, entity_type: IrType | None = None
    ) -> Iterator[Problem]:
        target = self.types.get(ref.owner_type_id)
        if (
            target is None
            or target.name != ref.owner_type_name
            or (entity_type and target is not entity_type)
        ):
            yield path, f"type {ref.owner_type_id} is not '{ref.owner_type_name}'"
            return
        names = {p.property_id: p.name for p in target.properties}
        if ref.property_id is None:
            is_left_to_nodes = target.kind == "interface" and path.endswith(".embed_source")
            is_right = is_left_to_nodes and ref.property_name not in names.values()
        else:
            is_right = names.get(ref.property_id) == ref.property_name
        if not is_right:
            yield path, f"property {ref.property_id} is not called '{ref.property_name}'"


def _type_problems(path: str, found: IrType, known: _Known) -> Iterator[Problem]:
    yield from _also_problems(f"{path}.also", found)
    yield from _order_problems(f"{path}.properties", [p.name for p in found.properties])
    for prop in found.properties:
        yield from _property_problems(f"{path}.{prop.name}", found, prop, known)
    if isinstance(found, IrInterface):
        return
    yield from _annotation_problems(path, found)
    yield from _constraint_problems(f"{path}.constraints", found, known)
    if isinstance(found, IrNode):
        yield from _order_problems(f"{path}.implements", [r.type_id for r in found.implements])
        for ref in found.implements:
            yield from known.type_problems(f"{path}.implements", ref, "interface")
    else:
        yield from known.type_problems(f"{path}.from_type", found.from_type, "node")
        yield from known.type_problems(f"{path}.to_type", found.to_type, "node")


def _also_problems(path: str, found: IrType) -> Iterator[Problem]:
    if isinstance(found, IrInterface):
        yield from _order_problems(path, found.also)
    elif len(found.also) % 2:
        yield path, "a type without its table"
    else:
        yield from _order_problems(path, found.also[::2])


def _property_problems(
    path: str, entity_type: IrType, prop: IrProperty, known: _Known
) -> Iterator[Problem]:
    yield from _annotation_problems(path, prop)
    yield from _order_problems(f"{path}.property_constraints", prop.property_constraints)
    yield from _order_problems(f"{path}.enum_values", prop.prop_type.enum_values or ())
    if prop.embed_source is not None:
        source = prop.embed_source.source
        yield from known.property_problems(f"{path}.embed_source", source, entity_type=entity_type)
    satisfied = prop.satisfies_interface_properties
    where = f"{path}.satisfies_interface_properties"
    yield from _order_problems(where, [ref.property_id or 0 for ref in satisfied])
    for ref in satisfied:
        yield from known.property_problems(where, ref)
    yield from _order_problems(f"{path}.also", prop.also)
    if prop.filled is not None and not fill_scalar(prop.prop_type, prop.filled).is_valid:
        yield f"{path}.filled", "no value of the property's type"
    text = default_text(prop.annotations)
    if text is not None:
        try:
            read_default(prop.prop_type, text)
        except ValueError as error:
            yield f"{path}.annotations", f"@default does not fit: {error}"


def _annotation_problems(path: str, bearer: IrTable | IrProperty) -> Iterator[Problem]:
    annotations = bearer.annotations
    if annotations != sorted_annotations(annotations):
        yield f"{path}.annotations", "out of order"
    for annotation in annotations:
        if annotation.name in TYPED_ANNOTATIONS:
            yield f"{path}.annotations", f"@{annotation.name} is no annotation"


def _constraint_problems(path: str, entity_type: IrTable, known: _Known) -> Iterator[Problem]:
    yield from _order_problems(path, [c.order for c in entity_type.constraints])
    for constraint in entity_type.constraints:
        yield from _order_problems(path, [field.name for field in constraint.fields])
        yield from _field_problems(path, entity_type, constraint, known)


def _field_problems(
    path: str, entity_type: IrTable, constraint: IrConstraint, known: _Known
) -> Iterator[Problem]:
    columns = EDGE_COLUMNS if isinstance(entity_type, IrEdge) else NODE_COLUMNS
    for field in constraint.fields:
        if isinstance(field, IrPropertyRef):
            yield from known.property_problems(path, field, entity_type=entity_type)
            continue
        expected = IrSystemField(
            entity_type.type_id, entity_type.name, entity_type.table_incarnation_id, role=field.role
        )
        if field != expected or field.role not in columns:
            yield path, f"'{field.role}' is no column of {entity_type.kind}:{entity_type.name}"


def _order_problems(path: str, values: Iterable[_Ordered]) -> Iterator[Problem]:
    found = list(values)
    if found != sorted(set(found)):
        yield path, "out of order, or with something repeated"
