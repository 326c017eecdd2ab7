"""Annotations of types and properties: where they may stand, what they may say, what they mean.

| annotation | on | argument |
|---|---|---|
| `@key` | property of a node or interface | none |
| `@unique`, `@index` | property | none |
| `@embed` | vector property of a node or interface | source property, `model=` |
| `@description` | node, edge, property | text |
| `@instruction` | node, edge | text |
| `@rename_from` | node, edge, property | former name |
| `@default` | property | literal of the property's type |
| `@metric` | vector property | `cosine`, `l2`, `dot` |
| any other | node, edge, property | kept as it is |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.names import TypeKind, nearest_name
from omnigraph.schema.catalog import Annotation, EmbedSource
from omnigraph.schema.defaults import read_default
from omnigraph.schema.json_form import sorted_annotations
from omnigraph.schema.language import codes
from omnigraph.schema.language.problems import Problem
from omnigraph.schema.language.tree import AnnotationDecl, PropertyDecl, RuleKind
from omnigraph.schema.values.temporal import parse_dates, parse_datetimes
from omnigraph.values import PropType, Scalar

METRICS: Final = ("cosine", "l2", "dot")

_CONSTRAINT_ANNOTATIONS: Final[tuple[RuleKind, ...]] = ("index", "key", "unique")
_NOT_ON_TYPES: Final = frozenset({*_CONSTRAINT_ANNOTATIONS, "embed"})
_TYPED_ANNOTATIONS: Final = _NOT_ON_TYPES | {"rename_from"}
_ONCE: Final = _TYPED_ANNOTATIONS | {"description", "instruction", "default", "metric"}
_TEXT_ANNOTATIONS: Final = frozenset({"description", "instruction", "rename_from", "default"})
_PROPERTY_ONLY: Final = frozenset({"default", "metric"})


@dataclass(frozen=True)
class TypeAnnotations:
    """What the annotations of a declaration mean."""

    annotations: tuple[Annotation, ...]
    rename_from: str | None


@dataclass(frozen=True)
class PropertyAnnotations:
    """What the annotations of a property mean."""

    annotations: tuple[Annotation, ...]
    constraints: tuple[RuleKind, ...]
    embed: EmbedSource | None
    rename_from: str | None


def read_type_annotations(annotations: Sequence[AnnotationDecl]) -> TypeAnnotations:
    """Sort the annotations of a node or edge by their meaning."""
    return TypeAnnotations(_annotations(annotations), _rename_from(annotations))


def read_property_annotations(annotations: Sequence[AnnotationDecl]) -> PropertyAnnotations:
    """Sort the annotations of a property by their meaning."""
    if not annotations:
        return _NO_ANNOTATIONS
    names = {annotation.name for annotation in annotations}
    return PropertyAnnotations(
        annotations=_annotations(annotations),
        constraints=tuple(kind for kind in _CONSTRAINT_ANNOTATIONS if kind in names),
        embed=_embed_of(annotations),
        rename_from=_rename_from(annotations),
    )


_NO_ANNOTATIONS: Final = PropertyAnnotations((), (), None, None)


def _annotations(annotations: Sequence[AnnotationDecl]) -> tuple[Annotation, ...]:
    kept = [
        Annotation(n.name, n.value, n.kwargs)
        for n in annotations
        if n.name not in _TYPED_ANNOTATIONS
    ]
    return sorted_annotations(kept)


def _rename_from(annotations: Sequence[AnnotationDecl]) -> str | None:
    return next(
        (annotation.value for annotation in annotations if annotation.name == "rename_from"), None
    )


def _embed_of(annotations: Sequence[AnnotationDecl]) -> EmbedSource | None:
    annotation = next(
        (annotation for annotation in annotations if annotation.name == "embed"), None
    )
    if annotation is None or annotation.value is None:
        return None
    return EmbedSource(annotation.value, dict(annotation.kwargs).get("model"))


# -- annotations of declarations -------------------------------------------------------------------


def check_type_annotations(
    annotations: Sequence[AnnotationDecl], kind: TypeKind
) -> Iterator[Problem]:
    """Find what is wrong with the annotations of a node or edge declaration."""
    yield from _repeated(
        [annotation for annotation in annotations if annotation.name not in _NOT_ON_TYPES]
    )
    for annotation in annotations:
        if annotation.name in _NOT_ON_TYPES:
            yield _misplaced_on_type(annotation, kind)
        elif annotation.name in _PROPERTY_ONLY:
            message = f"@{annotation.name} is only supported on properties"
            yield Problem(codes.ANNOTATION_MISPLACED, message, annotation.span)
        elif annotation.name in _TEXT_ANNOTATIONS:
            yield from _check_text(annotation)


def _misplaced_on_type(annotation: AnnotationDecl, kind: TypeKind) -> Problem:
    if kind == "edge":
        message = f"@{annotation.name} is not supported on edges as a note of the declaration"
        hint = None
        if annotation.name in ("key", "unique", "index"):
            hint = f"write the rule `@{annotation.name}(…)` into the body of the edge"
        return Problem(codes.NOT_ON_EDGES, message, annotation.span, hint)
    message = f"@{annotation.name} is only supported on node properties or as body constraint"
    hint = "write it behind the property that it is about"
    return Problem(codes.ANNOTATION_MISPLACED, message, annotation.span, hint)


# -- annotations of properties ---------------------------------------------------------------------


def check_property_annotations(declaration: PropertyDecl, type_kind: TypeKind) -> Iterator[Problem]:
    """Find what is wrong with the annotations of one property, seen without other properties."""
    if not declaration.annotations:
        return
    yield from _repeated(declaration.annotations)
    for annotation in declaration.annotations:
        check = _PROPERTY_CHECKS.get(annotation.name)
        if check is not None:
            yield from check(annotation, declaration, type_kind)


def _check_key(
    annotation: AnnotationDecl, declaration: PropertyDecl, type_kind: TypeKind
) -> Iterator[Problem]:
    if type_kind == "edge":
        message = "@key is not supported on edge properties"
        hint = f"write the rule `@key(src, dst, {declaration.name})` into the body of the edge"
        yield Problem(codes.NOT_ON_EDGE_PROPERTIES, message, annotation.span, hint)
        return
    yield from _check_constraint(annotation, declaration, type_kind)
    if declaration.prop_type.nullable:
        message = f"@key property '{declaration.name}' cannot be nullable"
        yield Problem(codes.KEY_NULLABLE, message, annotation.span, "remove the `?` from its type")


def _check_constraint(
    annotation: AnnotationDecl, declaration: PropertyDecl, _type_kind: TypeKind
) -> Iterator[Problem]:
    shape = unsupported_shape(annotation.name, declaration.prop_type, is_annotation=True)
    if shape is not None:
        message = f"@{annotation.name} is not supported on {shape} property '{declaration.name}'"
        yield Problem(codes.NOT_ON_TYPE, message, annotation.span)


def _check_embed(
    annotation: AnnotationDecl, declaration: PropertyDecl, type_kind: TypeKind
) -> Iterator[Problem]:
    prop_type = declaration.prop_type
    if type_kind == "edge":
        message = "@embed is not supported on edge properties"
        yield Problem(codes.EMBED_PLACE, message, annotation.span)
    elif not prop_type.is_vector:
        what = "not supported on list property" if prop_type.is_list else "only supported on vector"
        tail = f"'{declaration.name}'" if prop_type.is_list else f"properties, found {prop_type}"
        yield Problem(codes.EMBED_PLACE, f"@embed is {what} {tail}", annotation.span)
    if not annotation.value:
        message = "@embed names the String property to embed, found none"
        hint = 'write it as `@embed(text)` or `@embed("text", model="…")`'
        yield Problem(
            codes.ANNOTATION_VALUE, message, annotation.value_span or annotation.span, hint
        )
    for (name, value), span in zip(annotation.kwargs, annotation.kwarg_spans, strict=True):
        if name != "model":
            message = f"@embed has no keyword '{name}', only 'model' is supported"
            yield Problem(codes.ANNOTATION_KEYWORD, message, span)
        elif not value:
            yield Problem(codes.ANNOTATION_VALUE, "the model of @embed must not be empty", span)


def _check_instruction(
    annotation: AnnotationDecl, _declaration: PropertyDecl, _o: TypeKind
) -> Iterator[Problem]:
    message = "@instruction is only supported on node and edge types"
    hint = "a property takes `@description`"
    yield Problem(codes.ANNOTATION_MISPLACED, message, annotation.span, hint)


def _check_text_annotation(
    annotation: AnnotationDecl, _declaration: PropertyDecl, _o: TypeKind
) -> Iterator[Problem]:
    yield from _check_text(annotation)


def _check_default(
    annotation: AnnotationDecl, declaration: PropertyDecl, _type_kind: TypeKind
) -> Iterator[Problem]:
    if annotation.value is None or annotation.kwargs:
        yield from _check_text(annotation)
        return
    problem = _default_problem(declaration.prop_type, annotation.value)
    if problem is not None:
        message = f"@default does not fit property '{declaration.name}': {problem}"
        yield Problem(codes.DEFAULT_VALUE, message, annotation.value_span or annotation.span)


def _default_problem(prop_type: PropType, text: str) -> str | None:
    if prop_type.scalar is Scalar.BLOB:
        return "a Blob property takes no @default"
    try:
        read_default(prop_type, text)
    except ValueError as error:
        return str(error)
    reader = {Scalar.DATE: parse_dates, Scalar.DATETIME: parse_datetimes}.get(prop_type.scalar)
    if reader is None or reader(_column_of(text)).is_valid[0]:
        return None
    return f"expected a {prop_type.scalar}, got '{text}'"


def _column_of(text: str) -> pa.Array:
    # Not `pa.array`: it loads pandas, which takes longer than compiling a schema.
    data = text.encode()
    offsets = np.array([0, len(data)], np.int32)
    return pa.Array.from_buffers(pa.utf8(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _check_metric(
    annotation: AnnotationDecl, declaration: PropertyDecl, _type_kind: TypeKind
) -> Iterator[Problem]:
    if not declaration.prop_type.is_vector:
        message = f"@metric is only supported on vector properties, found {declaration.prop_type}"
        yield Problem(codes.METRIC_VALUE, message, annotation.span)
    if annotation.value not in METRICS:
        found = "none" if annotation.value is None else f"'{annotation.value}'"
        message = f"@metric is one of {', '.join(METRICS)}, found {found}"
        nearest = nearest_name(annotation.value or "", METRICS)
        hint = f"did you mean '{nearest}'?" if nearest else None
        yield Problem(codes.METRIC_VALUE, message, annotation.value_span or annotation.span, hint)


_Check = Callable[[AnnotationDecl, PropertyDecl, TypeKind], Iterator[Problem]]

_PROPERTY_CHECKS: Final[Mapping[str, _Check]] = {
    "key": _check_key,
    "unique": _check_constraint,
    "index": _check_constraint,
    "embed": _check_embed,
    "description": _check_text_annotation,
    "instruction": _check_instruction,
    "rename_from": _check_text_annotation,
    "default": _check_default,
    "metric": _check_metric,
}


# -- shared by annotations and rules ---------------------------------------------------------------


def unsupported_shape(kind: str, prop_type: PropType, *, is_annotation: bool) -> str | None:
    """Return which shape of a type rules out a key, unique or index constraint, if any does."""
    if prop_type.scalar is Scalar.BLOB:
        return "blob"
    if kind == "index":
        return "list" if prop_type.is_list and is_annotation else None
    if prop_type.is_list:
        return "list"
    return "vector" if prop_type.is_vector else None


def _repeated(annotations: Sequence[AnnotationDecl]) -> Iterator[Problem]:
    seen: set[str] = set()
    for annotation in annotations:
        if annotation.name in seen and annotation.name in _ONCE:
            message = f"@{annotation.name} is given multiple times"
            yield Problem(codes.ANNOTATION_REPEATED, message, annotation.span)
        seen.add(annotation.name)


def _check_text(annotation: AnnotationDecl) -> Iterator[Problem]:
    """Check an annotation with one text; only `description` and `instruction` take keywords."""
    takes_empty = annotation.name == "default"
    if annotation.value is None or (annotation.value == "" and not takes_empty):
        message = f"@{annotation.name} needs a value" + (
            "" if takes_empty else " that is not empty"
        )
        hint = f'write it as `@{annotation.name}("…")`'
        yield Problem(
            codes.ANNOTATION_VALUE, message, annotation.value_span or annotation.span, hint
        )
    if annotation.name in ("rename_from", "default"):
        for (name, _), span in zip(annotation.kwargs, annotation.kwarg_spans, strict=True):
            yield Problem(
                codes.ANNOTATION_KEYWORD,
                f"@{annotation.name} takes no keywords, found '{name}'",
                span,
            )
