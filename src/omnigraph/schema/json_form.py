"""JSON forms of the small values that the compiled schema and the plan share, written and read."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import orjson

from omnigraph.records import Json, JsonObject, Stored, to_json
from omnigraph.schema.catalog import Annotation, Cardinality
from omnigraph.values import DECLARABLE_SCALARS, VECTOR_DIMENSION_MAX, PropType, Scalar


def compact(value: Json) -> bytes:
    """Spell a value without blanks, members in their given order, non-ASCII raw.

    >>> compact({"b": 1, "a": ["ü"]}).decode()
    '{"b":1,"a":["ü"]}'
    """
    return orjson.dumps(value)


def digest(value: Json) -> str:
    """Return `sha256:<hex>` of the compact spelling."""
    return f"sha256:{sha256(compact(value)).hexdigest()}"


@to_json.register(Annotation)
def annotation_json(annotation: Annotation) -> JsonObject:
    """Spell an annotation; `kwargs` is absent if empty and sorted by name otherwise."""
    form: JsonObject = {"name": annotation.name, "value": annotation.value}
    if annotation.kwargs:
        form["kwargs"] = dict(sorted(annotation.kwargs))
    return form


def sorted_annotations(annotations: Iterable[Annotation]) -> tuple[Annotation, ...]:
    """Put annotations, and the keywords within each, into canonical order."""
    canonical = [Annotation(n.name, n.value, tuple(sorted(n.kwargs))) for n in annotations]
    return tuple(sorted(canonical, key=_annotation_order))


def read_annotation(at: Stored) -> Annotation:
    """Take an annotation."""
    has_keywords = isinstance(at.value, dict) and "kwargs" in at.value
    members = at.members("name", "value", *(["kwargs"] if has_keywords else []))
    kwargs: tuple[tuple[str, str], ...] = ()
    if has_keywords:
        keywords = members["kwargs"]
        kwargs = tuple((name, keywords.inner(name).text()) for name in keywords.object())
        if not kwargs:
            raise keywords.fail("at least one keyword, or no member at all")
    return Annotation(members["name"].text(), members["value"].optional(Stored.text), kwargs)


@to_json.register(PropType)
def prop_type_json(prop_type: PropType) -> JsonObject:
    """Spell a property type.

    >>> from omnigraph.values import Scalar
    >>> prop_type_json(PropType(Scalar.VECTOR, dimension=3))
    {'scalar': {'Vector': 3}, 'nullable': False, 'list': False, 'enum_values': None}
    """
    vector: JsonObject = {"Vector": prop_type.dimension}
    return {
        "scalar": vector if prop_type.is_vector else prop_type.scalar.value,
        "nullable": prop_type.nullable,
        "list": prop_type.is_list,
        "enum_values": None if prop_type.enum_values is None else [*prop_type.enum_values],
    }


def read_prop_type(at: Stored) -> PropType:
    """Take a property type."""
    members = at.members("scalar", "nullable", "list", "enum_values")
    scalar, dimension = _read_scalar(members["scalar"])
    found = PropType(
        scalar=scalar,
        nullable=members["nullable"].boolean(),
        is_list=members["list"].boolean(),
        enum_values=members["enum_values"].optional(lambda values: values.items(Stored.text)),
        dimension=dimension,
    )
    if found.is_list and (found.is_enum or scalar in (Scalar.VECTOR, Scalar.BLOB)):
        raise at.fail("a list of plain scalars")
    if found.enum_values is not None and (scalar is not Scalar.STRING or not found.enum_values):
        raise members["enum_values"].fail("values of a String, at least one")
    return found


def _read_scalar(at: Stored) -> tuple[Scalar, int | None]:
    if isinstance(at.value, dict):
        dimension = at.members("Vector")["Vector"]
        if not 1 <= dimension.integer() <= VECTOR_DIMENSION_MAX:
            raise dimension.fail(f"a dimension from 1 to {VECTOR_DIMENSION_MAX}")
        return Scalar.VECTOR, dimension.integer()
    return Scalar(at.one_of(DECLARABLE_SCALARS)), None


def read_cardinality(at: Stored) -> Cardinality:
    """Take a cardinality; an unbounded maximum is null."""
    members = at.members("min", "max")
    low, high = members["min"].integer(), members["max"].optional(Stored.integer)
    if high is not None and low > high:
        raise at.fail(f"a minimum of at most {high}, found {low}")
    return Cardinality(low, high)


def _annotation_order(annotation: Annotation) -> bytes:
    return compact(annotation_json(annotation))
