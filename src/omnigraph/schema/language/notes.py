"""Notes of types and properties: where they may stand, what they may say, what they mean.

| note | on | argument |
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
from omnigraph.schema.catalog import EmbedSource, Note
from omnigraph.schema.compiled.defaults import read_default
from omnigraph.schema.compiled.jsonform import sorted_notes
from omnigraph.schema.language import codes
from omnigraph.schema.language.flaws import Flaw
from omnigraph.schema.language.tree import NoteDecl, PropertyDecl, RuleKind
from omnigraph.schema.values.temporal import parse_dates, parse_datetimes
from omnigraph.values import PropType, Scalar

METRICS: Final = ("cosine", "l2", "dot")

_CONSTRAINT_NOTES: Final[tuple[RuleKind, ...]] = ("index", "key", "unique")
_NOT_ON_TYPES: Final = frozenset({*_CONSTRAINT_NOTES, "embed"})
_TYPED_NOTES: Final = _NOT_ON_TYPES | {"rename_from"}
_ONCE: Final = _TYPED_NOTES | {"description", "instruction", "default", "metric"}
_TEXT_NOTES: Final = frozenset({"description", "instruction", "rename_from", "default"})
_PROPERTY_ONLY: Final = frozenset({"default", "metric"})


@dataclass(frozen=True)
class TypeNotes:
    """What the notes of a declaration mean."""

    annotations: tuple[Note, ...]
    rename_from: str | None


@dataclass(frozen=True)
class PropertyNotes:
    """What the notes of a property mean."""

    annotations: tuple[Note, ...]
    constraints: tuple[RuleKind, ...]
    embed: EmbedSource | None
    rename_from: str | None


def read_type_notes(notes: Sequence[NoteDecl]) -> TypeNotes:
    """Sort the notes of a node or edge by their meaning."""
    return TypeNotes(_annotations(notes), _rename_from(notes))


def read_property_notes(notes: Sequence[NoteDecl]) -> PropertyNotes:
    """Sort the notes of a property by their meaning."""
    if not notes:
        return _NO_NOTES
    names = {note.name for note in notes}
    return PropertyNotes(
        annotations=_annotations(notes),
        constraints=tuple(kind for kind in _CONSTRAINT_NOTES if kind in names),
        embed=_embed_of(notes),
        rename_from=_rename_from(notes),
    )


_NO_NOTES: Final = PropertyNotes((), (), None, None)


def _annotations(notes: Sequence[NoteDecl]) -> tuple[Note, ...]:
    kept = [Note(n.name, n.value, n.kwargs) for n in notes if n.name not in _TYPED_NOTES]
    return sorted_notes(kept)


def _rename_from(notes: Sequence[NoteDecl]) -> str | None:
    return next((note.value for note in notes if note.name == "rename_from"), None)


def _embed_of(notes: Sequence[NoteDecl]) -> EmbedSource | None:
    note = next((note for note in notes if note.name == "embed"), None)
    if note is None or note.value is None:
        return None
    return EmbedSource(note.value, dict(note.kwargs).get("model"))


# -- notes of declarations ------------------------------------------------------------------------


def check_type_notes(notes: Sequence[NoteDecl], kind: TypeKind) -> Iterator[Flaw]:
    """Find what is wrong with the notes of a node or edge declaration."""
    yield from _repeated([note for note in notes if note.name not in _NOT_ON_TYPES])
    for note in notes:
        if note.name in _NOT_ON_TYPES:
            yield _misplaced_on_type(note, kind)
        elif note.name in _PROPERTY_ONLY:
            message = f"@{note.name} is only supported on properties"
            yield Flaw(codes.NOTE_MISPLACED, message, note.span)
        elif note.name in _TEXT_NOTES:
            yield from _check_text(note)


def _misplaced_on_type(note: NoteDecl, kind: TypeKind) -> Flaw:
    if kind == "edge":
        message = f"@{note.name} is not supported on edges as a note of the declaration"
        hint = None
        if note.name in ("unique", "index"):
            hint = f"write the rule `@{note.name}(…)` into the body of the edge"
        return Flaw(codes.NOT_ON_EDGES, message, note.span, hint)
    message = f"@{note.name} is only supported on node properties or as body constraint"
    hint = "write it behind the property that it is about"
    return Flaw(codes.NOTE_MISPLACED, message, note.span, hint)


# -- notes of properties --------------------------------------------------------------------------


def check_property_notes(declaration: PropertyDecl, owner: TypeKind) -> Iterator[Flaw]:
    """Find what is wrong with the notes of one property, as far as the property itself shows."""
    if not declaration.notes:
        return
    yield from _repeated(declaration.notes)
    for note in declaration.notes:
        check = _PROPERTY_CHECKS.get(note.name)
        if check is not None:
            yield from check(note, declaration, owner)


def _check_key(note: NoteDecl, declaration: PropertyDecl, owner: TypeKind) -> Iterator[Flaw]:
    if owner == "edge":
        message = "@key is not supported on edge properties"
        hint = "edges have no key; `@unique(…)` in the body keeps them apart"
        yield Flaw(codes.NOT_ON_EDGE_PROPERTIES, message, note.span, hint)
        return
    yield from _check_constraint(note, declaration, owner)
    if declaration.prop_type.nullable:
        message = f"@key property '{declaration.name}' cannot be nullable"
        yield Flaw(codes.KEY_NULLABLE, message, note.span, "remove the `?` from its type")


def _check_constraint(
    note: NoteDecl, declaration: PropertyDecl, _owner: TypeKind
) -> Iterator[Flaw]:
    shape = unsupported_shape(note.name, declaration.prop_type, is_note=True)
    if shape is not None:
        message = f"@{note.name} is not supported on {shape} property '{declaration.name}'"
        yield Flaw(codes.NOT_ON_TYPE, message, note.span)


def _check_embed(note: NoteDecl, declaration: PropertyDecl, owner: TypeKind) -> Iterator[Flaw]:
    prop_type = declaration.prop_type
    if owner == "edge":
        message = "@embed is not supported on edge properties"
        yield Flaw(codes.EMBED_PLACE, message, note.span)
    elif not prop_type.is_vector:
        what = "not supported on list property" if prop_type.is_list else "only supported on vector"
        tail = f"'{declaration.name}'" if prop_type.is_list else f"properties, found {prop_type}"
        yield Flaw(codes.EMBED_PLACE, f"@embed is {what} {tail}", note.span)
    if not note.value:
        message = "@embed names the String property to embed, found none"
        hint = 'write it as `@embed(text)` or `@embed("text", model="…")`'
        yield Flaw(codes.NOTE_VALUE, message, note.value_span or note.span, hint)
    for (name, value), span in zip(note.kwargs, note.kwarg_spans, strict=True):
        if name != "model":
            message = f"@embed has no keyword '{name}', only 'model' is supported"
            yield Flaw(codes.NOTE_KEYWORD, message, span)
        elif not value:
            yield Flaw(codes.NOTE_VALUE, "the model of @embed must not be empty", span)


def _check_instruction(note: NoteDecl, _declaration: PropertyDecl, _o: TypeKind) -> Iterator[Flaw]:
    message = "@instruction is only supported on node and edge types"
    hint = "a property takes `@description`"
    yield Flaw(codes.NOTE_MISPLACED, message, note.span, hint)


def _check_text_note(note: NoteDecl, _declaration: PropertyDecl, _o: TypeKind) -> Iterator[Flaw]:
    yield from _check_text(note)


def _check_default(note: NoteDecl, declaration: PropertyDecl, _owner: TypeKind) -> Iterator[Flaw]:
    if note.value is None or note.kwargs:
        yield from _check_text(note)
        return
    problem = _default_problem(declaration.prop_type, note.value)
    if problem is not None:
        message = f"@default does not fit property '{declaration.name}': {problem}"
        yield Flaw(codes.DEFAULT_VALUE, message, note.value_span or note.span)


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


def _check_metric(note: NoteDecl, declaration: PropertyDecl, _owner: TypeKind) -> Iterator[Flaw]:
    if not declaration.prop_type.is_vector:
        message = f"@metric is only supported on vector properties, found {declaration.prop_type}"
        yield Flaw(codes.METRIC_VALUE, message, note.span)
    if note.value not in METRICS:
        found = "none" if note.value is None else f"'{note.value}'"
        message = f"@metric is one of {', '.join(METRICS)}, found {found}"
        nearest = nearest_name(note.value or "", METRICS)
        hint = f"did you mean '{nearest}'?" if nearest else None
        yield Flaw(codes.METRIC_VALUE, message, note.value_span or note.span, hint)


_Check = Callable[[NoteDecl, PropertyDecl, TypeKind], Iterator[Flaw]]

_PROPERTY_CHECKS: Final[Mapping[str, _Check]] = {
    "key": _check_key,
    "unique": _check_constraint,
    "index": _check_constraint,
    "embed": _check_embed,
    "description": _check_text_note,
    "instruction": _check_instruction,
    "rename_from": _check_text_note,
    "default": _check_default,
    "metric": _check_metric,
}


# -- shared by notes and rules --------------------------------------------------------------------


def unsupported_shape(kind: str, prop_type: PropType, *, is_note: bool) -> str | None:
    """Say which shape of a type keeps a key, unique or index constraint away, if any does."""
    if prop_type.scalar is Scalar.BLOB:
        return "blob"
    if kind == "index":
        return "list" if prop_type.is_list and is_note else None
    if prop_type.is_list:
        return "list"
    return "vector" if prop_type.is_vector else None


def _repeated(notes: Sequence[NoteDecl]) -> Iterator[Flaw]:
    seen: set[str] = set()
    for note in notes:
        if note.name in seen and note.name in _ONCE:
            message = f"@{note.name} is given multiple times"
            yield Flaw(codes.NOTE_REPEATED, message, note.span)
        seen.add(note.name)


def _check_text(note: NoteDecl) -> Iterator[Flaw]:
    """Check a note that says one text; only a description or instruction may have keywords."""
    takes_empty = note.name == "default"
    if note.value is None or (note.value == "" and not takes_empty):
        message = f"@{note.name} needs a value" + ("" if takes_empty else " that is not empty")
        hint = f'write it as `@{note.name}("…")`'
        yield Flaw(codes.NOTE_VALUE, message, note.value_span or note.span, hint)
    if note.name in ("rename_from", "default"):
        for (name, _), span in zip(note.kwargs, note.kwarg_spans, strict=True):
            yield Flaw(codes.NOTE_KEYWORD, f"@{note.name} takes no keywords, found '{name}'", span)
