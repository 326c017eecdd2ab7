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
5. `also` has the numbers under which other branches know the same thing. For a node or an edge they
   come in pairs, the number of the type and that of its table; pairs, and single numbers elsewhere,
   are sorted. `filled` and `also` are absent from the stored form where they are empty.

The fields are exactly the members of the stored form, in exactly its order (`omnigraph.records`);
the hash depends on both. A reader that stands in an annotation also refuses what is no legal value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields, replace
from functools import cached_property
from typing import Annotated, ClassVar, Final, Literal, cast

from omnigraph.dataclass import dataclass
from omnigraph.names import PROPERTY_NAME, TYPE_NAME, TableKey, TypeKind
from omnigraph.records import OPTIONAL, Json, JsonObject, Stored, to_json
from omnigraph.schema.catalog import Annotation, Cardinality, EmbedSource
from omnigraph.schema.json_form import (
    digest,
    read_annotation,
    read_cardinality,
    read_prop_type,
)
from omnigraph.schema.language.shape import Bound, ShapeConstraint, constraint_json, read_bound
from omnigraph.schema.language.tree import RuleKind
from omnigraph.values import PropType

IR_VERSION: Final = 2

UNLIMITED: Final = Cardinality()

SystemRole = Literal["id", "src", "dst"]

Filled = str | int | float | bool
"""A literal as `@default` has it."""

_LIST_RULES: Final = ("key", "unique", "index")


def _read_identity(at: Stored) -> int:
    return at.integer(1)


def _read_type_name(at: Stored) -> str:
    if not TYPE_NAME.fullmatch(at.text()):
        raise at.fail("a type name")
    return at.text()


def _read_property_name(at: Stored) -> str:
    if not PROPERTY_NAME.fullmatch(at.text()):
        raise at.fail("a property name")
    return at.text()


def _read_list_rule(at: Stored) -> RuleKind:
    return cast("RuleKind", at.one_of(_LIST_RULES))


def _read_filled(at: Stored) -> Filled:
    if not isinstance(at.value, str | int | float | bool):
        raise at.fail("a literal, or no member at all")
    return at.value


def _read_also(at: Stored) -> tuple[int, ...]:
    found = at.items(_read_identity)
    if not found:
        raise at.fail("at least one number, or no member at all")
    return found


def _read_version(at: Stored) -> int:
    if at.integer() != IR_VERSION:
        raise at.fail(f"{IR_VERSION}, found {at.value}")
    return IR_VERSION


_Identity = Annotated[int, _read_identity]
_TypeName = Annotated[str, _read_type_name]
_PropertyName = Annotated[str, _read_property_name]
_Annotations = tuple[Annotated[Annotation, read_annotation], ...]
_Also = Annotated[tuple[int, ...], _read_also]


@dataclass(frozen=True)
class IrTypeRef:
    """A type, by number and name."""

    type_id: _Identity
    type_name: _TypeName


@dataclass(frozen=True)
class IrPropertyRef:
    """A property, by number and name.

    `property_id` is `None` only for the source of an interface's `@embed` that the interface does
    not declare itself: which property it means is decided in each implementing node.
    """

    owner_type_id: _Identity
    owner_type_name: _TypeName
    property_id: _Identity | None
    property_name: _PropertyName

    @property
    def name(self) -> str:
        """The current name."""
        return self.property_name

    @property
    def identity(self) -> int | str:
        """What stays when the property is renamed."""
        return self.property_name if self.property_id is None else self.property_id


@dataclass(frozen=True)
class IrSystemField:
    """A structural column (`src`, `dst`, `id`) as a member of a constraint."""

    stable_table_id: _Identity
    table_type_name: _TypeName
    table_incarnation_id: _Identity
    role: SystemRole

    @property
    def name(self) -> str:
        """The column's name."""
        return self.role

    @property
    def identity(self) -> int | str:
        """What stays when the type is renamed."""
        return self.role


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
        members = frozenset(each.identity for each in self.fields)
        return ConstraintIdentity(self.kind, members, self.min, self.max, self.pattern)

    @property
    def order(self) -> tuple[str, tuple[str, ...], str]:
        """Sort key: kind, then members, then what is left."""
        rest = f"{self.min}{self.max}{self.pattern}"
        return self.kind, tuple(each.name for each in self.fields), rest

    @property
    def by_name(self) -> ShapeConstraint:
        """The constraint without numbers."""
        return ShapeConstraint(
            kind=self.kind,
            fields=tuple(each.name for each in self.fields),
            min=self.min.value if self.min else None,
            max=self.max.value if self.max else None,
            pattern=self.pattern,
        )


def _read_constraint(at: Stored) -> IrConstraint:
    kind = at.value.get("kind") if isinstance(at.value, dict) else None
    if kind == "range":
        members = at.members("kind", "field", "min", "max")
        low, high = members["min"].optional(read_bound), members["max"].optional(read_bound)
        return IrConstraint("range", (_read_field(members["field"]),), min=low, max=high)
    if kind == "check":
        members = at.members("kind", "field", "pattern")
        pattern = members["pattern"].text()
        return IrConstraint("check", (_read_field(members["field"]),), pattern=pattern)
    members = at.members("kind", "fields")
    found = IrConstraint(_read_list_rule(members["kind"]), members["fields"].items(_read_field))
    if not found.fields:
        raise members["fields"].fail("at least one member")
    return found


def _read_field(at: Stored) -> IrField:
    is_system = isinstance(at.value, dict) and at.value.get("kind") == "system"
    form: type[IrField] = IrSystemField if is_system else IrPropertyRef
    at.members("kind", *(each.name for each in fields(form)))["kind"].one_of(("property", "system"))
    others = {name: value for name, value in at.value.items() if name != "kind"}
    return replace(at, value=others).record(form)


@to_json.register(IrConstraint)
def _constraint_json(rule: IrConstraint) -> JsonObject:
    members: list[Json] = [_field_json(each) for each in rule.fields]
    return constraint_json(rule.kind, members, low=rule.min, high=rule.max, pattern=rule.pattern)


def _field_json(member: IrField) -> JsonObject:
    kind = "property" if isinstance(member, IrPropertyRef) else "system"
    return {"kind": kind, **to_json(member)}


_Constraints = tuple[Annotated[IrConstraint, _read_constraint], ...]


@dataclass(frozen=True)
class IrEmbed:
    """Which property fills a vector, and by which model."""

    source: IrPropertyRef
    model: str | None

    @property
    def by_name(self) -> EmbedSource:
        """The same without numbers."""
        return EmbedSource(self.source.property_name, self.model)


@dataclass(frozen=True)
class IrProperty:
    """An effective property of a type.

    `filled` is what the apply that added the property wrote into the stored rows; `None` is null.
    """

    name: _PropertyName
    property_id: _Identity
    prop_type: Annotated[PropType, read_prop_type]
    annotations: _Annotations = ()
    property_constraints: tuple[Annotated[RuleKind, _read_list_rule], ...] = ()
    embed_source: IrEmbed | None = None
    declared_directly: bool = True
    satisfies_interface_properties: tuple[IrPropertyRef, ...] = ()
    filled: Annotated[Filled | None, _read_filled] = field(default=None, metadata=OPTIONAL)
    also: _Also = field(default=(), metadata=OPTIONAL)


@dataclass(frozen=True)
class IrInterface:
    """An interface; it has neither a dataset nor annotations or rules of its own."""

    name: _TypeName
    type_id: _Identity
    properties: tuple[IrProperty, ...] = ()
    also: _Also = field(default=(), metadata=OPTIONAL)

    kind: ClassVar[TypeKind] = "interface"
    annotations: ClassVar[tuple[Annotation, ...]] = ()
    constraints: ClassVar[tuple[IrConstraint, ...]] = ()


@dataclass(frozen=True)
class IrNode:
    """A node type with the properties of its interfaces included."""

    name: _TypeName
    type_id: _Identity
    table_incarnation_id: _Identity
    annotations: _Annotations = ()
    implements: tuple[IrTypeRef, ...] = ()
    properties: tuple[IrProperty, ...] = ()
    constraints: _Constraints = ()
    also: _Also = field(default=(), metadata=OPTIONAL)

    kind: ClassVar[TypeKind] = "node"


@dataclass(frozen=True)
class IrEdge:
    """An edge type."""

    name: _TypeName
    type_id: _Identity
    table_incarnation_id: _Identity
    from_type: IrTypeRef
    to_type: IrTypeRef
    cardinality: Annotated[Cardinality, read_cardinality] = UNLIMITED
    annotations: _Annotations = ()
    properties: tuple[IrProperty, ...] = ()
    constraints: _Constraints = ()
    also: _Also = field(default=(), metadata=OPTIONAL)

    kind: ClassVar[TypeKind] = "edge"


IrType = IrInterface | IrNode | IrEdge
IrTable = IrNode | IrEdge


@dataclass(frozen=True)
class TableIdentity:
    """Which dataset lifetime a manifest registration stands for."""

    table_key: str
    type_id: int
    table_incarnation_id: int


@dataclass(frozen=True, kw_only=True)
class SchemaIR:
    """A whole compiled schema. Equal values have equal hashes and the other way round."""

    ir_version: Annotated[int, _read_version] = IR_VERSION
    schema_identity_domain: str
    next_identity_id: _Identity
    interfaces: tuple[IrInterface, ...] = ()
    nodes: tuple[IrNode, ...] = ()
    edges: tuple[IrEdge, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the stored form (`_schema.ir.json`)."""
        form: JsonObject = to_json(self)
        return form

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

    @cached_property
    def numbers(self) -> frozenset[int]:
        """Every number of a type, property or table, without those of other branches."""
        properties = (p.property_id for t in self.types() for p in t.properties)
        tables = (t.table_incarnation_id for t in self.tables)
        return frozenset([*(t.type_id for t in self.types()), *properties, *tables])

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
