"""Reading a stored compiled schema: strict about members, types and every invariant.

A stored schema decides which bytes of which dataset mean what, so nothing is guessed: an unknown
member, a missing one, a number that is used twice or a list out of order all refuse the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeVar, cast, get_args

import orjson

from omnigraph.errors import CorruptError
from omnigraph.names import PROPERTY_NAME, TYPE_NAME
from omnigraph.schema.catalog import Annotation, Cardinality
from omnigraph.schema.ir.invariants import problems_of
from omnigraph.schema.ir.model import (
    IR_VERSION,
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
from omnigraph.schema.json_form import Json, JsonObject
from omnigraph.schema.language.shape import Bound
from omnigraph.schema.language.tree import RuleKind
from omnigraph.values import VECTOR_DIMENSION_MAX, PropType, Scalar

_Item = TypeVar("_Item")
_LIST_RULES: Final = ("key", "unique", "index")


class MalformedSchemaError(CorruptError):
    """A stored compiled schema is not what we write; `path` says where."""

    code = "OG-SCHEMA-MALFORMED"
    hint = "keep the files, restore `__manifest` from a backup"
    template = "malformed compiled schema at {path}: {problem}"
    path: str
    problem: str


def read_ir(stored: str | bytes | JsonObject) -> SchemaIR:
    """Read the stored form; raises `MalformedSchemaError` unless all invariants hold."""
    ir = _schema(_Reader(_parsed(stored), "$"))
    for path, problem in problems_of(ir):
        raise MalformedSchemaError(path, problem)
    return ir


def _parsed(stored: str | bytes | JsonObject) -> Json:
    if isinstance(stored, Mapping):
        return stored
    try:
        parsed: Json = orjson.loads(stored)
    except orjson.JSONDecodeError as error:
        raise MalformedSchemaError("$", f"not JSON: {error}") from None
    return parsed


class _Reader:
    """A JSON value and its path."""

    def __init__(self, value: Json, path: str) -> None:
        self.value = value
        self.path = path

    def fail(self, expected: str) -> MalformedSchemaError:
        return MalformedSchemaError(self.path, f"expected {expected}")

    def members(self, *names: str) -> dict[str, _Reader]:
        """Take an object that has exactly these members."""
        if not isinstance(self.value, dict):
            raise self.fail("an object")
        if set(self.value) != set(names):
            found = ", ".join(sorted(self.value)) or "none"
            raise self.fail(f"the members {', '.join(names)}, found {found}")
        return {name: _Reader(self.value[name], f"{self.path}.{name}") for name in names}

    def items(self, read: Callable[[_Reader], _Item]) -> tuple[_Item, ...]:
        """Take a list of things of one kind."""
        if not isinstance(self.value, list):
            raise self.fail("a list")
        return tuple(read(_Reader(v, f"{self.path}[{i}]")) for i, v in enumerate(self.value))

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.fail("a string")
        return self.value

    def integer(self, low: int = 0) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < low:
            raise self.fail(f"an integer of at least {low}")
        return self.value

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.fail("true or false")
        return self.value

    def one_of(self, choices: Sequence[str]) -> str:
        if self.value not in choices:
            raise self.fail(f"one of {', '.join(choices)}")
        return str(self.value)

    def optional(self, read: Callable[[_Reader], _Item]) -> _Item | None:
        """Take null, or what `read` takes."""
        return None if self.value is None else read(self)


# -- types ---------------------------------------------------------------------------------------


def _schema(reader: _Reader) -> SchemaIR:
    at = reader.members(
        "ir_version",
        "schema_identity_domain",
        "next_identity_id",
        "interfaces",
        "nodes",
        "edges",
    )
    if at["ir_version"].integer() != IR_VERSION:
        raise at["ir_version"].fail(f"{IR_VERSION}, found {at['ir_version'].value}")
    return SchemaIR(
        schema_identity_domain=at["schema_identity_domain"].text(),
        next_identity_id=at["next_identity_id"].integer(1),
        interfaces=at["interfaces"].items(_interface),
        nodes=at["nodes"].items(_node),
        edges=at["edges"].items(_edge),
    )


def _interface(reader: _Reader) -> IrInterface:
    at = reader.members("name", "type_id", "properties")
    return IrInterface(
        _type_name(at["name"]), at["type_id"].integer(1), at["properties"].items(_property)
    )


def _node(reader: _Reader) -> IrNode:
    at = reader.members(
        "name",
        "type_id",
        "table_incarnation_id",
        "annotations",
        "implements",
        "properties",
        "constraints",
    )
    return IrNode(
        name=_type_name(at["name"]),
        type_id=at["type_id"].integer(1),
        table_incarnation_id=at["table_incarnation_id"].integer(1),
        annotations=at["annotations"].items(_annotation),
        implements=at["implements"].items(_type_ref),
        properties=at["properties"].items(_property),
        constraints=at["constraints"].items(_constraint),
    )


def _edge(reader: _Reader) -> IrEdge:
    at = reader.members(
        "name",
        "type_id",
        "table_incarnation_id",
        "from_type",
        "to_type",
        "cardinality",
        "annotations",
        "properties",
        "constraints",
    )
    return IrEdge(
        name=_type_name(at["name"]),
        type_id=at["type_id"].integer(1),
        table_incarnation_id=at["table_incarnation_id"].integer(1),
        from_type=_type_ref(at["from_type"]),
        to_type=_type_ref(at["to_type"]),
        cardinality=_cardinality(at["cardinality"]),
        annotations=at["annotations"].items(_annotation),
        properties=at["properties"].items(_property),
        constraints=at["constraints"].items(_constraint),
    )


def _cardinality(reader: _Reader) -> Cardinality:
    at = reader.members("min", "max")
    low, high = at["min"].integer(), at["max"].optional(_Reader.integer)
    if high is not None and low > high:
        raise reader.fail(f"a minimum of at most {high}, found {low}")
    return Cardinality(low, high)


# -- properties ----------------------------------------------------------------------------------


def _property(reader: _Reader) -> IrProperty:
    at = reader.members(
        "name",
        "property_id",
        "prop_type",
        "annotations",
        "property_constraints",
        "embed_source",
        "declared_directly",
        "satisfies_interface_properties",
    )
    return IrProperty(
        name=_property_name(at["name"]),
        property_id=at["property_id"].integer(1),
        prop_type=_prop_type(at["prop_type"]),
        annotations=at["annotations"].items(_annotation),
        property_constraints=at["property_constraints"].items(_annotation_constraint),
        embed_source=at["embed_source"].optional(_embed),
        declared_directly=at["declared_directly"].boolean(),
        satisfies_interface_properties=at["satisfies_interface_properties"].items(_property_ref),
    )


def _prop_type(reader: _Reader) -> PropType:
    at = reader.members("scalar", "nullable", "list", "enum_values")
    scalar, dimension = _scalar(at["scalar"])
    found = PropType(
        scalar=scalar,
        nullable=at["nullable"].boolean(),
        is_list=at["list"].boolean(),
        enum_values=at["enum_values"].optional(lambda r: r.items(_Reader.text)),
        dimension=dimension,
    )
    if found.is_list and (found.is_enum or scalar in (Scalar.VECTOR, Scalar.BLOB)):
        raise reader.fail("a list of plain scalars")
    if found.enum_values is not None and (scalar is not Scalar.STRING or not found.enum_values):
        raise at["enum_values"].fail("values of a String, at least one")
    return found


def _scalar(reader: _Reader) -> tuple[Scalar, int | None]:
    if isinstance(reader.value, dict):
        dimension = reader.members("Vector")["Vector"]
        if not 1 <= dimension.integer() <= VECTOR_DIMENSION_MAX:
            raise dimension.fail(f"a dimension from 1 to {VECTOR_DIMENSION_MAX}")
        return Scalar.VECTOR, dimension.integer()
    names = [scalar.value for scalar in Scalar if scalar is not Scalar.VECTOR]
    return Scalar(reader.one_of(names)), None


def _annotation(reader: _Reader) -> Annotation:
    has_keywords = isinstance(reader.value, dict) and "kwargs" in reader.value
    at = reader.members("name", "value", *(["kwargs"] if has_keywords else []))
    kwargs: tuple[tuple[str, str], ...] = ()
    if has_keywords:
        kwargs = tuple(_keywords(at["kwargs"]))
        if not kwargs:
            raise at["kwargs"].fail("at least one keyword, or no member at all")
    return Annotation(at["name"].text(), at["value"].optional(_Reader.text), kwargs)


def _keywords(reader: _Reader) -> Iterator[tuple[str, str]]:
    if not isinstance(reader.value, dict):
        raise reader.fail("an object")
    for name, value in reader.value.items():
        yield name, _Reader(value, f"{reader.path}.{name}").text()


def _annotation_constraint(reader: _Reader) -> RuleKind:
    return cast("RuleKind", reader.one_of(_LIST_RULES))


def _embed(reader: _Reader) -> IrEmbed:
    at = reader.members("source", "model")
    return IrEmbed(_property_ref(at["source"]), at["model"].optional(_Reader.text))


# -- constraints ---------------------------------------------------------------------------------


def _constraint(reader: _Reader) -> IrConstraint:
    found = reader.value.get("kind") if isinstance(reader.value, dict) else None
    if found == "range":
        at = reader.members("kind", "field", "min", "max")
        low, high = at["min"].optional(_bound), at["max"].optional(_bound)
        return IrConstraint("range", (_field(at["field"]),), min=low, max=high)
    if found == "check":
        at = reader.members("kind", "field", "pattern")
        return IrConstraint("check", (_field(at["field"]),), pattern=at["pattern"].text())
    at = reader.members("kind", "fields")
    kind = cast("RuleKind", at["kind"].one_of(_LIST_RULES))
    members = at["fields"].items(_field)
    if not members:
        raise at["fields"].fail("at least one member")
    return IrConstraint(kind, members)


def _bound(reader: _Reader) -> Bound:
    is_float = isinstance(reader.value, dict) and "Float" in reader.value
    kind: Literal["Integer", "Float"] = "Float" if is_float else "Integer"
    number = reader.members(kind)[kind]
    if isinstance(number.value, float) and is_float:
        return Bound(kind, number.value)
    if isinstance(number.value, int) and not isinstance(number.value, bool) and not is_float:
        return Bound(kind, number.value)
    raise number.fail("a float" if is_float else "an integer")


def _field(reader: _Reader) -> IrField:
    system = isinstance(reader.value, dict) and reader.value.get("kind") == "system"
    if not system:
        at = reader.members("kind", *_PROPERTY_REF)
        at["kind"].one_of(("property", "system"))
        return _property_ref_of(at)
    at = reader.members(
        "kind", "stable_table_id", "table_type_name", "table_incarnation_id", "role"
    )
    return IrSystemField(
        stable_table_id=at["stable_table_id"].integer(1),
        table_type_name=_type_name(at["table_type_name"]),
        table_incarnation_id=at["table_incarnation_id"].integer(1),
        role=cast("SystemRole", at["role"].one_of(get_args(SystemRole))),
    )


# -- references and names ------------------------------------------------------------------------

_PROPERTY_REF: Final = ("owner_type_id", "owner_type_name", "property_id", "property_name")


def _type_ref(reader: _Reader) -> IrTypeRef:
    at = reader.members("type_id", "type_name")
    return IrTypeRef(at["type_id"].integer(1), _type_name(at["type_name"]))


def _property_ref(reader: _Reader) -> IrPropertyRef:
    return _property_ref_of(reader.members(*_PROPERTY_REF))


def _property_ref_of(at: Mapping[str, _Reader]) -> IrPropertyRef:
    return IrPropertyRef(
        owner_type_id=at["owner_type_id"].integer(1),
        owner_type_name=_type_name(at["owner_type_name"]),
        property_id=at["property_id"].optional(lambda r: r.integer(1)),
        property_name=_property_name(at["property_name"]),
    )


def _type_name(reader: _Reader) -> str:
    if not TYPE_NAME.fullmatch(reader.text()):
        raise reader.fail("a type name")
    return reader.text()


def _property_name(reader: _Reader) -> str:
    if not PROPERTY_NAME.fullmatch(reader.text()):
        raise reader.fail("a property name")
    return reader.text()
