"""JSON forms of the small values that the compiled schema and the plan share."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import orjson

from omnigraph.schema.catalog import Annotation, Cardinality
from omnigraph.values import PropType

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
JsonObject = dict[str, Json]


def compact(value: Json) -> bytes:
    """Spell a value without blanks, members in their given order, non-ASCII raw.

    >>> compact({"b": 1, "a": ["ü"]}).decode()
    '{"b":1,"a":["ü"]}'
    """
    return orjson.dumps(value)


def digest(value: Json) -> str:
    """Return `sha256:<hex>` of the compact spelling."""
    return f"sha256:{sha256(compact(value)).hexdigest()}"


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


def annotations_json(annotations: Iterable[Annotation]) -> list[Json]:
    """Spell a list of annotations in the given order."""
    return [annotation_json(annotation) for annotation in annotations]


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


def cardinality_json(cardinality: Cardinality) -> JsonObject:
    """Spell a cardinality; an unbounded maximum is null."""
    return {"min": cardinality.min, "max": cardinality.max}


def _annotation_order(annotation: Annotation) -> bytes:
    return compact(annotation_json(annotation))
