"""Sources of `@embed`: a String property of the type in which the vector lives.

An interface may name a source that it does not declare itself; then each node that implements the
interface must have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from omnigraph.schema.language import codes
from omnigraph.schema.language.interfaces import Implementation
from omnigraph.schema.language.problems import Problem, Suggester
from omnigraph.schema.language.tree import AnnotationDecl, InterfaceDecl, NodeDecl
from omnigraph.values import PropType, Scalar


def check_interface_embeds(
    declaration: InterfaceDecl, types: Mapping[str, PropType], suggester: Suggester
) -> Iterator[Problem]:
    """Check the sources that the interface declares itself."""
    for annotation in _embed_annotations(declaration):
        if annotation.value in types:
            yield from _check_source(annotation, types, suggester)


def check_node_embeds(
    declaration: NodeDecl,
    implementations: Sequence[Implementation],
    types: Mapping[str, PropType],
    suggester: Suggester,
) -> Iterator[Problem]:
    """Check the sources of a node, and those that its interfaces leave to it.

    `types` are those of all effective properties.
    """
    for annotation in _embed_annotations(declaration):
        yield from _check_source(annotation, types, suggester)
    own = {item.name for item in declaration.properties}
    for implementation in implementations:
        yield from _check_injected(implementation, own, types)


def _embed_annotations(declaration: InterfaceDecl | NodeDecl) -> Iterator[AnnotationDecl]:
    for item in declaration.properties:
        for annotation in item.annotations:
            if annotation.name == "embed":
                yield annotation


def _check_source(
    annotation: AnnotationDecl, types: Mapping[str, PropType], suggester: Suggester
) -> Iterator[Problem]:
    problem = _problem(annotation.value, types) if annotation.value else None
    if problem is not None:
        hint = (
            suggester.hint(annotation.value or "", types) if annotation.value not in types else None
        )
        yield Problem(
            codes.EMBED_SOURCE, f"@embed {problem}", annotation.value_span or annotation.span, hint
        )


def _check_injected(
    implementation: Implementation, own: set[str], types: Mapping[str, PropType]
) -> Iterator[Problem]:
    interface = implementation.interface
    declared = {item.name for item in interface.properties}
    for item in interface.properties:
        if item.embed is None or item.name in own or item.embed.source in declared:
            continue
        problem = _problem(item.embed.source, types)
        if problem is not None:
            message = f"@embed of '{interface.name}.{item.name}' {problem}"
            yield Problem(codes.EMBED_SOURCE, message, implementation.span)


def _problem(source: str, types: Mapping[str, PropType]) -> str | None:
    found = types.get(source)
    if found is None:
        return f"has unknown source property '{source}'"
    if found.scalar is not Scalar.STRING or found.is_list:
        return f"source property '{source}' must be String, found {found}"
    return None
