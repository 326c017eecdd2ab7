"""From a tree back to `.pg` text, in one fixed layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from omnigraph.schema.language.quote import quote
from omnigraph.schema.language.spell import number_text
from omnigraph.schema.language.tree import (
    AnnotationDecl,
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    NodeDecl,
    PropertyDecl,
    RuleDecl,
    SchemaTree,
)

_INDENT: Final = "    "


def print_schema(tree: SchemaTree) -> str:
    """Write a tree as text that parses to an equal tree.

    Comments are not part of a tree; within a body, properties come before rules.
    """
    return "\n".join(_declaration(declaration) for declaration in tree.declarations)


def _declaration(declaration: Declaration) -> str:
    if isinstance(declaration, InterfaceDecl):
        return f"interface {declaration.name} {_body(declaration.properties, ())}\n"
    body = _body(declaration.properties, declaration.rules)
    if isinstance(declaration, NodeDecl):
        return f"{_node_header(declaration)} {body}\n"
    is_bare = not declaration.properties and not declaration.rules
    return _edge_header(declaration) + ("\n" if is_bare else f" {body}\n")


def _node_header(node: NodeDecl) -> str:
    names = ", ".join(ref.name for ref in node.implements)
    implements = f" implements {names}" if names else ""
    return f"node {node.name}{_annotations(node.annotations)}{implements}"


def _edge_header(edge: EdgeDecl) -> str:
    card = ""
    if edge.cardinality is not None:
        low, high = edge.cardinality
        card = f" @card({low}..{'' if high is None else high})"
    ends = f"{edge.from_type.name} -> {edge.to_type.name}"
    return f"edge {edge.name}: {ends}{card}{_annotations(edge.annotations)}"


def _body(properties: tuple[PropertyDecl, ...], rules: tuple[RuleDecl, ...]) -> str:
    lines = [*_property_lines(properties), *(_rule(rule) for rule in rules)]
    if not lines:
        return "{}"
    return "{\n" + "".join(f"{_INDENT}{line}\n" for line in lines) + "}"


def _property_lines(properties: tuple[PropertyDecl, ...]) -> Iterator[str]:
    for item in properties:
        yield f"{item.name}: {item.prop_type}{_annotations(item.annotations)}"


def _annotations(annotations: tuple[AnnotationDecl, ...]) -> str:
    return "".join(f" {_annotation(annotation)}" for annotation in annotations)


def _annotation(annotation: AnnotationDecl) -> str:
    if annotation.value is None:
        return f"@{annotation.name}"
    keywords = "".join(f", {name}={quote(value)}" for name, value in annotation.kwargs)
    return f"@{annotation.name}({quote(annotation.value)}{keywords})"


def _rule(rule: RuleDecl) -> str:
    members = ", ".join(rule.fields)
    if rule.kind == "range":
        return f"@range({members}, {number_text(rule.min)}..{number_text(rule.max)})"
    if rule.pattern is not None:
        return f"@check({members}, {quote(rule.pattern)})"
    return f"@{rule.kind}({members})"
