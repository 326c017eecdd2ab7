"""Text cases of the schema language: what a `.pg` text says, or what is wrong with it.

Each case has a section `schema` and one or more of

| section | holds |
|---|---|
| `printed` | the tree, as `print_schema` writes it |
| `shape` | the checked meaning |
| `diagnostics` | all problems: code, line and column, marked text, headline, help |
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omnigraph.schema.catalog import Annotation
from omnigraph.schema.language.check import read_schema
from omnigraph.schema.language.codes import SCHEMA_CODES
from omnigraph.schema.language.parse import parse_schema
from omnigraph.schema.language.shape import (
    SchemaShape,
    ShapeConstraint,
    ShapeEdge,
    ShapeNode,
    ShapeProperty,
)
from omnigraph.syntax import Diagnostic, SourceError
from support.cases import Case, check_case, load_cases
from support.print_schema import print_schema

FOLDERS = ("schema_parse", "schema_errors", "schema_notes", "schema_interfaces")
CASES = [case for folder in FOLDERS for case in load_cases(folder)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case, update_cases: bool) -> None:
    outputs = {"printed": _printed, "shape": _shape, "diagnostics": _diagnostics}
    wanted = [section for section in outputs if section in case.sections]
    assert wanted, f"{case} expects nothing"
    for section in wanted:
        actual = outputs[section](case.sections["schema"])
        check_case(case, section, actual, update_cases)


def test_every_code_has_a_case() -> None:
    text = "\n".join(case.sections.get("diagnostics", "") for case in CASES)
    # Limits of size, nesting and encoding do not fit in a case: see tests/syntax/test_grammar.py.
    elsewhere = {"S006", "S007", "S008"}
    assert [code for code in SCHEMA_CODES if code not in text and code not in elsewhere] == []


# -- outputs --------------------------------------------------------------------------------------


def _printed(text: str) -> str:
    tree = parse_schema(text)
    printed = print_schema(tree)
    assert parse_schema(printed) == tree
    return printed


def _shape(text: str) -> str:
    try:
        return "\n".join(_shape_lines(read_schema(text)))
    except SourceError as error:
        return error.render()


def _diagnostics(text: str) -> str:
    try:
        read_schema(text)
    except SourceError as error:
        return "\n".join(_diagnostic(found) for found in error.diagnostics)
    return "no problems"


def _diagnostic(found: Diagnostic) -> str:
    at = found.position
    marked = found.source.text[found.span.start : found.span.end]
    line = f"{found.code} {at.line}:{at.column} `{marked}` {found.headline}"
    return f"{line}\n     help: {found.hint}" if found.hint else line


def _shape_lines(shape: SchemaShape) -> Iterator[str]:
    for interface in shape.interfaces:
        yield f"interface {interface.name}"
        yield from _property_lines(interface.properties)
    for node in shape.nodes:
        yield f"node {node.name}{_annotations(node.annotations)}{_hint(node)}"
        if node.implements:
            yield f"  implements {', '.join(node.implements)}"
        yield from _property_lines(node.properties)
        yield from _rule_lines(node.constraints)
    for edge in shape.edges:
        card = f"{edge.cardinality.min}..{edge.cardinality.max or ''}"
        ends = f"{edge.from_type} -> {edge.to_type}"
        yield f"edge {edge.name}: {ends} {card}{_annotations(edge.annotations)}{_hint(edge)}"
        yield from _property_lines(edge.properties)
        yield from _rule_lines(edge.constraints)


def _property_lines(properties: tuple[ShapeProperty, ...]) -> Iterator[str]:
    for item in properties:
        line = f"  {item.name}: {item.prop_type}"
        if item.property_constraints:
            line += f" [{', '.join(item.property_constraints)}]"
        line += _annotations(item.annotations)
        if item.embed is not None:
            line += f" embeds {item.embed.source} with {item.embed.model}"
        if not item.declared_directly:
            line += ", injected"
        if item.satisfies:
            line += f", satisfies {', '.join('.'.join(pair) for pair in item.satisfies)}"
        yield line + _hint(item)


def _rule_lines(rules: tuple[ShapeConstraint, ...]) -> Iterator[str]:
    for rule in rules:
        extra = ""
        if rule.kind == "range":
            extra = f" {rule.min!r}..{rule.max!r}"
        elif rule.pattern is not None:
            extra = f" {rule.pattern!r}"
        yield f"  {rule.kind}({', '.join(rule.fields)}){extra}"


def _annotations(annotations: tuple[Annotation, ...]) -> str:
    return "".join(f" @{annotation.name}{_arguments(annotation)}" for annotation in annotations)


def _arguments(annotation: Annotation) -> str:
    if annotation.value is None:
        return ""
    return f"({', '.join([repr(annotation.value), *(f'{k}={v!r}' for k, v in annotation.kwargs)])})"


def _hint(item: ShapeProperty | ShapeNode | ShapeEdge) -> str:
    return f", was {item.rename_from}" if item.rename_from else ""
