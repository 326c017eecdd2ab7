from __future__ import annotations

import pytest

from omnigraph.schema.language.check import read_schema
from omnigraph.schema.language.parse import parse_schema, parse_schema_tolerant
from omnigraph.schema.language.tree import EdgeDecl, InterfaceDecl, NodeDecl
from omnigraph.syntax import SourceError, SourceText, Span

MEGABYTES_5 = 5_000_000


def marked(text: str, span: Span | None) -> str:
    assert span is not None
    return text[span.start : span.end]


def codes(text: str) -> list[str]:
    return [found.code for found in parse_schema_tolerant(text).diagnostics]


# -- places ---------------------------------------------------------------------------------------


def test_every_part_of_the_tree_knows_its_place() -> None:
    text = (
        'node N @x("v", k=1) implements I { p: [String]? @embed("q", model="m") '
        '@range(p, 0..1) @check(p, "re") @key(p, q) }'
    )
    [node] = parse_schema(text).declarations
    assert isinstance(node, NodeDecl)
    [annotation], [reference], [item] = node.annotations, node.implements, node.properties
    assert marked(text, node.span) == "N"
    assert marked(text, annotation.span) == "@x"
    assert marked(text, annotation.value_span) == '"v"'
    assert [marked(text, span) for span in annotation.kwarg_spans] == ["k"]
    assert marked(text, reference.span) == "I"
    assert marked(text, item.span) == "p"
    assert marked(text, item.type_span) == "String]?"
    assert [marked(text, rule.span) for rule in node.rules] == ["@range", "@check", "@key"]
    assert marked(text, node.rules[1].value_span) == '"re"'
    assert [marked(text, span) for span in node.rules[2].field_spans] == ["p", "q"]


def test_edges_and_interfaces_know_their_places() -> None:
    text = "/* é */ interface I {}\nedge E: A -> B"
    interface, edge = parse_schema(text).declarations
    assert isinstance(interface, InterfaceDecl)
    assert isinstance(edge, EdgeDecl)
    spans = [interface.span, edge.span, edge.from_type.span, edge.to_type.span]
    assert [marked(text, span) for span in spans] == ["I", "E", "A", "B"]


def test_trees_are_equal_whatever_their_places() -> None:
    assert parse_schema("node N { a: I32 }") == parse_schema("\n\nnode  N  {\n a : I32 }")
    assert parse_schema("node N { a: I32 }") != parse_schema("node N { a: I64 }")


def test_a_source_keeps_its_name() -> None:
    with pytest.raises(SourceError) as caught:
        parse_schema(SourceText("node", "station.pg"))
    assert "station.pg:1:4" in caught.value.render()


# -- tolerance ------------------------------------------------------------------------------------


def test_readable_declarations_survive_unreadable_ones() -> None:
    parsed = parse_schema_tolerant("node A { a: Strin }\nnode B { x: [Blob] }\nedge E: A -> B")
    assert [each.name for each in parsed.tree.declarations] == ["B", "E"]
    assert [found.code for found in parsed.diagnostics] == ["S001", "S102"]
    assert parsed.unread_names == {"A", "Strin"}


def test_a_text_without_problems_has_no_unread_names() -> None:
    parsed = parse_schema_tolerant("node A { }")
    assert (parsed.diagnostics, parsed.unread_names) == ((), frozenset())


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9223372036854775807", 9223372036854775807),
        ("-9223372036854775808", -9223372036854775808),
        ("9223372036854775808", 9223372036854775808.0),
        ("-9223372036854775809", -9223372036854775809.0),
        ("0" * 6_000 + "7", 7),
        ("-" + "0" * 6_000, 0),
        ("1" + "0" * 300, 1e300),
        ("0." + "0" * 400 + "1", 0.0),
        ("1.0", 1.0),
    ],
)
def test_whole_bounds_stay_exact_and_become_floats_beyond_64_bits(
    text: str, expected: float
) -> None:
    [node] = parse_schema(f"node N {{ @range(a, {text}..) }}").declarations
    assert isinstance(node, NodeDecl)
    bound = node.rules[0].min
    assert (bound, type(bound)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("node N { v: Vector(" + "9" * MEGABYTES_5 + ") }", "S103"),
        ("edge E: A -> B @card(0.." + "9" * 10_000 + ")", "S104"),
        ("node N { @range(a, 0.." + "9" * 10_000 + ") }", "S104"),
        ("node N { @range(a, .." + "9" * 10_000 + ".5) }", "S104"),
    ],
)
def test_endless_numbers_are_problems(text: str, code: str) -> None:
    [found] = parse_schema_tolerant(text).diagnostics
    assert found.code == code
    assert len(found.message) < 150


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a" * MEGABYTES_5, ["S001"]),
        ("@" * MEGABYTES_5, ["S001"]),
        (" " * MEGABYTES_5, []),
        ("//" + "/*" * MEGABYTES_5, []),
        ("/*" + "*" * MEGABYTES_5, ["S005"]),
        ('node N @x("' + "y" * MEGABYTES_5, ["S003"]),
        ('node N @x("' + "y" * MEGABYTES_5 + '") {}', []),
        ('node N @x("' + "\\d" * MEGABYTES_5 + '") {}', ["S004"] * 8),
        ("node N " + "{" * 10_000, ["S006"]),
        ("node N { a: " + "[" * 10_000, ["S006"]),
        ("node N @x" + "(" * 10_000, ["S006"]),
        ("x" * 17_000_000, ["S007"]),
        ("node N { a: I32 @key" + "/**/" * 100_000 + "}", []),
        ("node N {\0 a: I32 }", ["S001"]),
        ("\0", ["S001"]),
        ("\ufeffnode N {}", ["S001"]),
        ('node N @x("\0") {}', []),
        ("node N { a: String\ud800 }", ["S008"]),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_bad_input_gives_clear_problems(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


@pytest.mark.timeout(20)
def test_two_thousand_types_are_read_and_checked_in_time() -> None:
    text = "".join(
        f"node T{i} {{ code: String @key  name: String? @index }}\n"
        f"edge E{i}: T{i} -> T{i * 7 % 2_000} @card(0..3) {{ since: Date }}\n"
        for i in range(2_000)
    )
    shape = read_schema(text)
    assert (len(shape.nodes), len(shape.edges)) == (2_000, 2_000)


@pytest.mark.timeout(20)
def test_thousands_of_unknown_names_are_reported_in_time() -> None:
    text = "".join(
        f"node T{i} {{ a: I32 @unique(b{i}) }} edge E{i}: T{i} -> U{i} " for i in range(2_000)
    )
    with pytest.raises(SourceError) as caught:
        read_schema(text)
    assert len(caught.value.diagnostics) == 4_000


@pytest.mark.timeout(20)
def test_thousands_of_broken_declarations_are_reported_in_time() -> None:
    text = "node T { a: Strin }\n" * 100_000
    assert codes(text) == ["S001"] * 100
