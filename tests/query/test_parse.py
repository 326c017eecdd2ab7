"""Every accepted text prints as expected, and every mistake is reported where it is."""

from __future__ import annotations

import pickle

import pytest

from omnigraph.query.language.parse import parse_queries, parse_queries_tolerant
from omnigraph.query.language.tree import (
    Clause,
    Comparison,
    Delete,
    Filter,
    Hop,
    Literal,
    NameRef,
    ReadBody,
)
from omnigraph.syntax import Diagnostic, SourceError, SourceText
from support.cases import Case, check_case, load_cases
from support.print_queries import print_queries
from support.queries import WORDS


@pytest.mark.parametrize("case", load_cases("query_parse"), ids=str)
def test_accepted_text(case: Case, update_cases: bool) -> None:
    printed = print_queries(parse_queries(case.sections["query"]))
    check_case(case, "printed", printed, update_cases)
    assert print_queries(parse_queries(printed)) == printed


def shown(diagnostic: Diagnostic) -> str:
    at = diagnostic.position
    line = f"{diagnostic.code} {at.line}:{at.column} {diagnostic.headline}"
    return line if diagnostic.hint is None else f"{line}\n  help: {diagnostic.hint}"


@pytest.mark.parametrize("case", load_cases("query_syntax_errors"), ids=str)
def test_refused_text(case: Case, update_cases: bool) -> None:
    source = SourceText(case.sections["query"], "q.gq")
    with pytest.raises(SourceError) as caught:
        parse_queries(source)
    diagnostics = caught.value.diagnostics
    assert parse_queries_tolerant(source).diagnostics == diagnostics
    check_case(case, "diagnostics", "\n".join(map(shown, diagnostics)), update_cases)
    if "rendering" in case.sections:
        check_case(case, "rendering", caught.value.render(), update_cases)


# -- words ----------------------------------------------------------------------------------------

VALUES = ("1", "-1.5", '"x"', "[1]", "true", 'date("x")', "now()", "$x")
USES_OF_A_WORD = """
query WORD($WORD: I32) {
  insert T { a: VALUE WORD: VALUE WORD: 1 }
  update T set { WORD: VALUE } where WORD = VALUE and WORD != VALUE or WORD in [1]
  delete T where WORD is null and not (WORD > VALUE)
}
query q() {
  match {
    $WORD: T { WORD: VALUE, WORD: 1 }
    $WORD.WORD = VALUE
    $a EDGE $b
    $a $w:EDGE{1,2} $b
    $a <EDGE> $b
  }
  return { $WORD.WORD as WORD, WORD, VALUE as WORD }
  order { WORD desc, WORD, WORD asc }
  limit 3
}
"""


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("word", WORDS)
def test_no_word_is_reserved(word: str, value: str) -> None:
    edge = "edge" if word == "not" else word
    text = USES_OF_A_WORD.replace("WORD", word).replace("VALUE", value).replace("EDGE", edge)
    assert [query.name for query in parse_queries(text).queries] == [word, "q"]


# -- places ---------------------------------------------------------------------------------------


def test_spans_cover_what_was_written() -> None:
    text = (
        'query q($hull: [String]?, $min: I32) @description("d") {\n'
        "  match { $s: Ship { hull: $hull, }  $c $w:servesOn{1,2} $s\n"
        "    not { $c.rank >= $min }  ($c.rank is null or not ($c.tag in $hull)) and now() = 1\n"
        '    search($c.tag, "x") }\n'
        "  return { $c.tag as t, count(distinct $c) } order { t desc, nearest($c.v, $v) } }"
    )
    (query,) = parse_queries(text).queries
    body = query.body
    assert isinstance(body, ReadBody)
    found = [query, *query.parameters, *body.clauses, *body.columns, *body.order]
    assert [text[node.span.start : node.span.end] for node in found] == [
        text,
        "$hull: [String]?",
        "$min: I32",
        "$s: Ship { hull: $hull, }",
        "$c $w:servesOn{1,2} $s",
        "not { $c.rank >= $min }",
        "$c.rank is null or not ($c.tag in $hull)) and now() = 1",
        'search($c.tag, "x")',
        "$c.tag as t",
        "count(distinct $c)",
        "t desc",
        "nearest($c.v, $v)",
    ]
    hop = body.clauses[1]
    assert isinstance(hop, Hop)
    assert text[hop.edge_span.start : hop.edge_span.end] == "servesOn"
    assert text[query.name_span.start : query.name_span.end] == "q"


def test_byte_spans_count_bytes_and_positions_count_characters() -> None:
    text = '// ünï\nquery q() { match { $c.a = "ü" ; } return { 1 } }'
    (diagnostic,) = parse_queries_tolerant(text).diagnostics
    at = text.index(";")
    assert diagnostic.span.start == at
    assert diagnostic.byte_span == (at + 3, at + 4)
    assert (diagnostic.position.line, diagnostic.position.column) == (2, at - text.index("\n"))


def test_carriage_returns_are_blanks() -> None:
    text = "query q()\r\n{ match {\r$c: Crew\r\n// c\r\n} return { $c } }\r\n"
    assert len(parse_queries(text).queries) == 1


# -- inputs ---------------------------------------------------------------------------------------


def test_bytes_are_read_as_utf_8_with_or_without_mark() -> None:
    text = 'query q() { match { $c: C { a: "ü" } } return { $c } }'
    expected = parse_queries(text).queries
    assert parse_queries(text.encode()).queries == expected
    assert parse_queries(b"\xef\xbb\xbf" + text.encode()).queries == expected


def test_the_tolerant_parser_returns_the_readable_queries() -> None:
    text = (
        "query a() { match { $c: C } return { $c } }\n"
        "query b() { match { } return { $c } }\n"
        "query c($x: Strng) { match { $c: C } return { $c } }\n"
        "query d() { match { $c: C { x: 99999999999999999999 } } return { $c } }\n"
        "query e() { match { $c: C } return { $c } }\n"
    )
    result = parse_queries_tolerant(text)
    assert [query.name for query in result.queries] == ["a", "e"]
    assert [d.subject for d in result.diagnostics] == ["query 'b'", "query 'c'", "query 'd'"]


def test_the_error_survives_pickling() -> None:
    with pytest.raises(SourceError) as caught:
        parse_queries("query a() { match { } return { } }")
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.render() == caught.value.render()


def only_clause(clause: str) -> Clause:
    (query,) = parse_queries(f"query q() {{ match {{ {clause} }} return {{ 1 }} }}").queries
    assert isinstance(query.body, ReadBody)
    (found,) = query.body.clauses
    return found


@pytest.mark.parametrize(
    ("clause", "kind"),
    [
        ("$a contains $b", Hop),
        ("$a contains $b.c", Filter),
        ('$a contains "b"', Filter),
        ("($a contains $b)", Filter),
        ("$a in $b", Hop),
        ("$a in [1]", Filter),
        ("$a not in $b", Filter),
        ("$a is $b", Hop),
        ("$a is null", Filter),
    ],
)
def test_what_an_operator_word_means_depends_on_its_sides(clause: str, kind: type) -> None:
    assert isinstance(only_clause(clause), kind)


def test_a_property_called_true_stays_one() -> None:
    (query,) = parse_queries("query q() { delete T where true = false }").queries
    assert isinstance(query.body, tuple)
    (statement,) = query.body
    assert isinstance(statement, Delete)
    assert isinstance(statement.where, Comparison)
    assert isinstance(statement.where.left, NameRef)
    assert isinstance(statement.where.right, Literal)
