"""Whatever the text is: a tree, or a `SourceError` that can be shown, within bounds."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.query.language.parse import DIAGNOSTICS_MAX, parse_queries, parse_queries_tolerant
from omnigraph.syntax import SourceError
from omnigraph.syntax.source import SOURCE_BYTES_MAX
from support.cases import load_cases
from support.print_queries import print_queries
from support.queries import mutated, token_soup

BAD_INPUTS = {
    "a long line of one name": "a" * 5_000_000,
    "a long line of digits": "9" * 1_000_000,
    "a long string": 'query q() { match { $c: C { x: "' + "x" * 1_000_000 + '" } } return { $c',
    "a long string of escapes": '"' + "\\n" * 500_000,
    "a string that is not closed": 'query q() { match { $c.x = "' + "x" * 1_000_000,
    "a comment that is not closed": "query q() { /*" + "* /" * 300_000,
    "10,000 nested blocks": "query q() { match { " + "not { " * 10_000,
    "10,000 closed nested blocks": "query q() { match "
    + "{ not " * 10_000
    + "{ $c: C }"
    + "}" * 10_000
    + " return { 1 } }",
    "10,000 nested parentheses": "query q() { match { " + "(" * 10_000 + "$c.a = 1" + ")" * 10_000,
    "10,000 nested lists": "query q() { match { $c.a = " + "[" * 10_000 + "]" * 10_000,
    "only closing braces": "}" * 1_000_000,
    "only quotes": '"' * 1_000_001,
    "only backslashes": "\\" * 1_000_000,
    "NUL": "query q() { match { \0 } }",
    "only NUL": "\0" * 100_000,
    "half a surrogate pair": 'query q() { match { $c: C { a: "\ud800" } } return { $c } }',
    "a mistake on each of many lines": "query q() {\n  match {\n" + "    $c: crew\n" * 10_000,
    "many broken queries": "query q() { match { } return { } }\n" * 10_000,
    "many repeated parameters": "query q("
    + "$a: I32, " * 10_000
    + "$b: I32) { delete T where a = 1 }",
    "many large numbers": "query q() { match { $c.a in ["
    + "9" * 20
    + (", " + "9" * 20) * 10_000
    + "] } return { 1 } }",
    "a number of a million digits": "query q() { match { $c.a = "
    + "1" * 1_000_000
    + ".5e5 } return { 1 } }",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", BAD_INPUTS.values(), ids=BAD_INPUTS.keys())
def test_bad_input_is_a_source_error_of_bounded_size(text: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_queries(text)
    assert 1 <= len(caught.value.diagnostics) <= DIAGNOSTICS_MAX
    assert len(caught.value.render()) < 200_000
    assert len(str(caught.value)) < 100_000


def test_bad_input_takes_memory_in_proportion_to_its_size() -> None:
    text = BAD_INPUTS["a long string of escapes"]
    parse_queries_tolerant("x")
    tracemalloc.start()
    parse_queries_tolerant(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * len(text)


@pytest.mark.parametrize(
    ("data", "offset"),
    [(b"\xff", 0), (b"query q\xc3\x28", 7), (b"ab\xed\xa0\x80", 2), (b"\xef\xbb\xbf\x80", 3)],
)
def test_bytes_that_are_not_utf_8_are_a_source_error_with_their_place(
    data: bytes, offset: int
) -> None:
    with pytest.raises(SourceError) as caught:
        parse_queries(data)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "Q008"
    assert f"at offset {offset}" in diagnostic.message
    assert parse_queries_tolerant(data).diagnostics[0].code == "Q008"


def test_a_text_that_is_too_large_is_refused_unread() -> None:
    with pytest.raises(SourceError) as caught:
        parse_queries("9" * (SOURCE_BYTES_MAX + 1))
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["Q007"]


def test_brackets_nest_up_to_the_limit() -> None:
    def nested(depth: int) -> str:
        return (
            "query q() { match { " + "not { " * depth + "$c: C" + " }" * depth + " } return { 1 } }"
        )

    printed = print_queries(parse_queries(nested(62)))
    assert print_queries(parse_queries(printed)) == printed
    with pytest.raises(SourceError) as caught:
        parse_queries(nested(63))
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.subject) == ("Q006", "query 'q'")


VALID = [case.sections["query"] for case in load_cases("query_parse")]
BROKEN = [case.sections["query"] for case in load_cases("query_syntax_errors")]


def check_anything(text: str | bytes) -> None:
    """Parse, or raise `SourceError` with diagnostics that can be shown."""
    try:
        printed = print_queries(parse_queries(text))
    except SourceError as error:
        check_showable(error)
    else:
        assert print_queries(parse_queries(printed)) == printed


def check_showable(error: SourceError) -> None:
    assert error.diagnostics
    assert error.render()
    for diagnostic in error.diagnostics:
        assert 0 <= diagnostic.span.start <= len(diagnostic.source.text)
        assert diagnostic.byte_span[0] < diagnostic.byte_span[1]


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_bytes_or_text_parse_or_raise_a_source_error(data: bytes | str) -> None:
    check_anything(data)


@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_token_soup_parses_or_raises_a_source_error(
    random_source: random.Random, length: int
) -> None:
    check_anything(token_soup(random_source, length))


@given(st.randoms(use_true_random=False), st.sampled_from(VALID + BROKEN))
def test_damaged_queries_parse_or_raise_a_source_error(
    random_source: random.Random, text: str
) -> None:
    check_anything(mutated(random_source, text))


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(4))
def test_fuzz_200_000_inputs(seed: int) -> None:
    source = random.Random(seed)
    for number in range(50_000):
        kind = number % 5
        if kind == 0:
            check_anything(source.randbytes(source.randint(0, 120)))
        elif kind == 1:
            check_anything(token_soup(source, source.randint(1, 40)))
        else:
            check_anything(mutated(source, source.choice(VALID + BROKEN)))
