"""Sources of `@embed`: a String property of the type in which the vector lives.

An interface may name a source that it does not declare itself; then each node that implements the
interface must have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from omnigraph.schema.language import codes
from omnigraph.schema.language.flaws import Flaw, Suggester
from omnigraph.schema.language.interfaces import Implementation
from omnigraph.schema.language.tree import InterfaceDecl, NodeDecl, NoteDecl
from omnigraph.values import PropType, Scalar


def check_interface_embeds(
    declaration: InterfaceDecl, types: Mapping[str, PropType], suggester: Suggester
) -> Iterator[Flaw]:
    """Check the sources that the interface declares itself."""
    for note in _embed_notes(declaration):
        if note.value in types:
            yield from _check_source(note, types, suggester)


def check_node_embeds(
    declaration: NodeDecl,
    implementations: Sequence[Implementation],
    types: Mapping[str, PropType],
    suggester: Suggester,
) -> Iterator[Flaw]:
    """Check the sources of a node, and those that its interfaces leave to it.

    `types` are those of all effective properties.
    """
    for note in _embed_notes(declaration):
        yield from _check_source(note, types, suggester)
    own = {item.name for item in declaration.properties}
    for implementation in implementations:
        yield from _check_injected(implementation, own, types)


def _embed_notes(declaration: InterfaceDecl | NodeDecl) -> Iterator[NoteDecl]:
    for item in declaration.properties:
        for note in item.notes:
            if note.name == "embed":
                yield note


def _check_source(
    note: NoteDecl, types: Mapping[str, PropType], suggester: Suggester
) -> Iterator[Flaw]:
    problem = _problem(note.value, types) if note.value else None
    if problem is not None:
        hint = suggester.hint(note.value or "", types) if note.value not in types else None
        yield Flaw(codes.EMBED_SOURCE, f"@embed {problem}", note.value_span or note.span, hint)


def _check_injected(
    implementation: Implementation, own: set[str], types: Mapping[str, PropType]
) -> Iterator[Flaw]:
    interface = implementation.interface
    declared = {item.name for item in interface.properties}
    for item in interface.properties:
        if item.embed is None or item.name in own or item.embed.source in declared:
            continue
        problem = _problem(item.embed.source, types)
        if problem is not None:
            message = f"@embed of '{interface.name}.{item.name}' {problem}"
            yield Flaw(codes.EMBED_SOURCE, message, implementation.span)


def _problem(source: str, types: Mapping[str, PropType]) -> str | None:
    found = types.get(source)
    if found is None:
        return f"has unknown source property '{source}'"
    if found.scalar is not Scalar.STRING or found.is_list:
        return f"source property '{source}' must be String, found {found}"
    return None
