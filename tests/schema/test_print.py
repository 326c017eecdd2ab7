from __future__ import annotations

import pytest

from omnigraph.schema.language.parse import parse_schema
from omnigraph.schema.language.quote import quote
from omnigraph.schema.language.tree import NodeDecl
from support.print_schema import print_schema


def test_printing_is_stable() -> None:
    text = 'node N @x("é") { a: enum(b, a)? @key b: [I32] @range(b, ..1.5) }\nedge E: N -> N\n'
    once = print_schema(parse_schema(text))
    assert print_schema(parse_schema(once)) == once


def test_nothing_prints_as_nothing() -> None:
    assert print_schema(parse_schema("// nothing")) == ""


@pytest.mark.parametrize("text", ["", '"', "\\", "\n\r\t", '\\"\\n', "\x00\x1b", "é😀", "{}//"])
def test_quoted_text_reads_back(text: str) -> None:
    [node] = parse_schema(f"node N @x({quote(text)}) {{}}").declarations
    assert isinstance(node, NodeDecl)
    assert node.annotations[0].value == text
    assert "\n" not in quote(text)


@pytest.mark.parametrize(
    ("bound", "printed"),
    [
        ("1", "1"),
        ("1.0", "1.0"),
        ("0.0000001", "0.0000001"),
        ("-2.50", "-2.5"),
        ("9223372036854775808", "9223372036854776000.0"),
        ("1" + "0" * 22, "1" + "0" * 22 + ".0"),
    ],
)
def test_bounds_print_without_exponents(bound: str, printed: str) -> None:
    tree = parse_schema(f"node N {{ @range(a, {bound}..) }}")
    text = print_schema(tree)
    assert f"@range(a, {printed}..)" in text
    assert parse_schema(text) == tree
