"""The shared parser code, on a toy language."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.syntax import Phase, SourceError, SourceText
from omnigraph.syntax.grammar import (
    NESTING_MAX,
    SYNTAX_CODES,
    Grammar,
    Parsed,
    Token,
    TreeBuilder,
    decode_source,
    span_of,
)
from omnigraph.syntax.source import SOURCE_BYTES_MAX


class ToyBuilder(TreeBuilder[Token, Any]):
    def start(self, parts: list[Any]) -> list[Any]:
        return parts

    def thing(self, parts: list[Any]) -> tuple[str, int, list[Any]]:
        _, name, *items = parts
        return str(name), span_of(name).start, items

    def item(self, parts: list[Any]) -> tuple[str, Any]:
        return str(parts[0]), parts[1]

    def list(self, parts: list[Any]) -> list[Any]:
        return parts


def advise(text: str, at: int, expected: frozenset[str]) -> str | None:
    return "whole numbers only" if text[at] == "-" and "NUMBER" in expected else None


TOY: Grammar[tuple[str, int, list[Any]]] = Grammar(
    package="support",
    file="toy.lark",
    builder=ToyBuilder(),
    letter="Y",
    declaration=r"(?P<kind>thing)\s+(?P<name>\w+)",
    terminals={"NAME": "a name", "WORD": "a colour", "NUMBER": "a number", "STRING": "a string"},
    advise=advise,
)


def parse(text: str) -> Parsed[tuple[str, int, list[Any]]]:
    return TOY.parse(SourceText(text))


def problems(text: str) -> list[str]:
    """Return code, place and message of every problem."""
    found = parse(text).diagnostics
    return [f"{d.code} {d.position.line}:{d.position.column} {d.message}" for d in found]


def names(text: str) -> list[str]:
    return [name for name, _, _ in parse(text).declarations]


# -- texts without mistakes -----------------------------------------------------------------------


def test_a_text_without_mistakes_has_declarations_and_nothing_else() -> None:
    parsed = parse('thing a { x: 1 } // c\nthing b { y: ["s", red] }')
    assert [name for name, _, _ in parsed.declarations] == ["a", "b"]
    assert (parsed.diagnostics, parsed.unread) == ((), ())
    assert parsed.raise_on_errors() == parsed.declarations


def test_what_looks_like_a_declaration_inside_a_string_or_comment_is_none() -> None:
    text = 'thing a { x: "\nthing b {" /*\nthing c { */ }\n// thing d {'
    assert names(text) == ["a"]


# -- one mistake ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("thing a { x: blue }", "Y001 1:14 unexpected 'blue', expected `[`, a colour, a number"),
        ("thing a { x 1 }", "Y001 1:13 unexpected '1', expected `:`"),
        ("thing a { x: [1 2] }", "Y001 1:17 unexpected '2', expected `,` or `]`"),
        ("thin a {}", "Y001 1:1 unexpected 'thin', expected `thing` or the end of the text"),
        ("thing a {", "Y002 1:9 the text ends too early, expected `}` or a name"),
        ("thing a { x: 1  // c\n", "Y002 1:14 the text ends too early, expected `}` or a name"),
        ("thing", "Y002 1:5 the text ends too early, expected a name"),
        ('thing a { x: "abc }', "Y003 1:14 the string is not closed"),
        ('thing a { x: "abc\\', "Y003 1:14 the string is not closed"),
        ('thing a { x: "a\\qb" }', "Y004 1:16 unsupported escape sequence '\\q'"),
        ("thing a { /* x }", "Y005 1:11 the comment is not closed"),
        ("thing a {}\x00", "Y001 1:11 unexpected '\\x00', expected `thing` or the end of the text"),
        ("thing a { \x1b: 1 }", "Y001 1:11 unexpected '\\x1b', expected `}` or a name"),
    ],
)
def test_a_mistake_is_explained_at_its_place(text: str, expected: str) -> None:
    [found] = problems(text)
    assert found.startswith(expected)


def test_the_expected_words_are_those_that_can_follow_here() -> None:
    # The parser's tables also list `,` and `]` here, which only make sense inside of a list.
    [found] = problems("thing a { x: red ; }")
    assert found == "Y001 1:18 unexpected ';', expected `}` or a name"


def test_a_mistake_names_the_declaration_around_it() -> None:
    [found] = parse("thing a { } thing b { x }").diagnostics
    assert (found.subject, found.phase) == ("thing 'b'", Phase.PARSE)


def test_a_mistyped_keyword_gets_a_hint() -> None:
    [found] = parse("thnig a {}").diagnostics
    assert found.hint == "did you mean `thing`?"


def test_a_missing_brace_gets_a_hint() -> None:
    [found] = parse("thing a {").diagnostics
    assert found.hint == "is a `}` missing?"


def test_the_language_may_know_better() -> None:
    [found] = parse("thing a { x: -1 }").diagnostics
    assert found.hint == "whole numbers only"


def test_a_long_word_is_cut_in_the_message() -> None:
    [found] = parse("x" * 5_000_000).diagnostics
    assert len(found.message) < 150
    assert len(found.render()) < 1_000


def test_spans_count_bytes_of_the_whole_text() -> None:
    [found] = parse("// é😀\nthing a { x: blue }").diagnostics
    before = len("// é😀\nthing a { x: ".encode())
    assert found.byte_span == (before, before + 4)


# -- several mistakes -----------------------------------------------------------------------------


def test_mistakes_of_several_declarations_are_all_reported_and_the_others_read() -> None:
    text = "thing a { x: blue }\nthing b { x: 1 }\nthing c { 1 }\nthing d {}"
    parsed = parse(text)
    assert [d.position.line for d in parsed.diagnostics] == [1, 3]
    assert [name for name, _, _ in parsed.declarations] == ["b", "d"]
    assert [text[span.start : span.end][:7] for span in parsed.unread] == ["thing a", "thing c"]


def test_declarations_after_a_mistake_keep_their_places() -> None:
    text = "thing a { 1 }\nthing b {}"
    [(name, start, _)] = parse(text).declarations
    assert text[start : start + len(name)] == "b"


def test_mistakes_on_several_lines_of_one_declaration_are_all_reported() -> None:
    text = "thing a {\n x: blue\n y: 1\n z 2\n w: [1]]\n}"
    assert [line.split()[1] for line in problems(text)] == ["2:5", "4:4", "5:8"]


def test_all_escapes_of_a_line_are_reported() -> None:
    assert [line[:9] for line in problems('thing a { x: "\\a \\n \\b\\c" }')] == [
        "Y004 1:15",
        "Y004 1:21",
        "Y004 1:23",
    ]


def test_a_repaired_declaration_is_still_not_read() -> None:
    parsed = parse("thing a {\n x: blue\n}")
    assert parsed.declarations == ()
    assert len(parsed.unread) == 1


def test_what_is_missing_is_reported_once() -> None:
    assert len(problems("thing a {\n x:\n y: 1\n z: 2\n}")) == 1


def test_a_mistake_inside_brackets_of_several_lines_is_reported_once() -> None:
    assert len(problems("thing a {\n x: [\n  1,\n  blue\n ]\n}")) == 1


def test_an_unclosed_declaration_ends_where_the_next_one_starts() -> None:
    text = "thing a {\n x: 1\nthing b { y: 2 }"
    assert problems(text) == ["Y002 2:5 the declaration ends too early, expected `}` or a name"]
    assert names(text) == ["b"]


def test_an_unclosed_string_does_not_swallow_the_declarations_below() -> None:
    text = 'thing a { x: "abc }\nthing b { y: "d" }\nthing c { z }'
    assert [line.split()[0] for line in problems(text)] == ["Y003", "Y001"]
    assert names(text) == ["b"]


def test_text_before_the_first_declaration_is_a_mistake_of_its_own() -> None:
    found = parse("nonsense\nthing a { 1 }").diagnostics
    assert [d.subject for d in found] == [None, "thing 'a'"]


def test_a_text_full_of_mistakes_is_not_read_to_the_end() -> None:
    text = "thing a { 1 }\n" * 5_000 + "thing last {}"
    parsed = parse(text)
    assert len(parsed.diagnostics) == 100
    assert parsed.unread[-1].end == len(text)


def test_raising_carries_every_problem() -> None:
    with pytest.raises(SourceError) as caught:
        parse("thing a { 1 }\nthing b { 2 }").raise_on_errors()
    assert len(caught.value.diagnostics) == 2


# -- limits ---------------------------------------------------------------------------------------


def nested(depth: int) -> str:
    return "thing a { x: " + "[" * (depth - 1) + "]" * (depth - 1) + " }"


def test_brackets_may_be_nested_up_to_the_limit() -> None:
    assert problems(nested(NESTING_MAX)) == []


@pytest.mark.parametrize("depth", [NESTING_MAX + 1, 10_000, 1_000_000])
def test_deeper_brackets_are_refused_before_parsing(depth: int) -> None:
    parsed = parse(nested(depth))
    [found] = parsed.diagnostics
    assert (found.code, found.message) == ("Y006", f"brackets are nested deeper than {NESTING_MAX}")
    assert (parsed.declarations, len(parsed.unread)) == ((), 1)


@pytest.mark.parametrize("bracket", ["[", "{", "("])
def test_brackets_that_are_never_closed_count_too(bracket: str) -> None:
    assert [line[:4] for line in problems(bracket * 10_000)] == ["Y006"]


def test_brackets_in_strings_and_comments_do_not_count() -> None:
    assert problems('thing a { x: "' + "[" * 1_000 + '" } // ' + "{" * 1_000) == []


@pytest.mark.parametrize("character", ["x", "é"])
def test_a_text_above_the_size_limit_is_refused(character: str) -> None:
    count = SOURCE_BYTES_MAX // len(character.encode())
    comment = "//" + character * (count - 1)
    assert problems(comment[: count - 1]) == []
    assert [line[:4] for line in problems(comment + character)] == ["Y007"]


def test_half_a_surrogate_pair_is_refused() -> None:
    [found] = parse('thing a { x: "é\ud800" }').diagnostics
    assert (found.code, found.position.column) == ("Y008", 16)
    assert "\\ud800" in found.message
    assert found.byte_span == (16, 19)
    found.render().encode()


def test_every_shared_code_has_a_meaning() -> None:
    assert sorted(SYNTAX_CODES) == [f"{number:03}" for number in range(1, 9)]


# -- bytes ----------------------------------------------------------------------------------------


def test_bytes_decode_as_utf8_without_a_mark() -> None:
    assert decode_source("é".encode(), "a.toy", "Y") == SourceText("é", "a.toy")
    assert decode_source(b"\xef\xbb\xbfa", "a.toy", "Y").text == "a"


@pytest.mark.parametrize(
    ("data", "place", "message"),
    [
        (b"thing \xff {}", (1, 7), "byte 0xff at offset 6"),
        ("é\n".encode() + b"\xc3", (2, 1), "byte 0xc3 at offset 3"),
        (b"\xef\xbb\xbfab\xff", (1, 3), "byte 0xff at offset 5"),
        (b"\xff\xfea\x00", (1, 1), "byte 0xff at offset 0"),
    ],
)
def test_other_bytes_are_refused_at_their_place(
    data: bytes, place: tuple[int, int], message: str
) -> None:
    with pytest.raises(SourceError) as caught:
        decode_source(data, "a.toy", "Y")
    [found] = caught.value.diagnostics
    assert (found.code, found.source.name) == ("Y008", "a.toy")
    assert (found.position.line, found.position.column) == place
    assert found.message == f"the text is not UTF-8: {message}"
