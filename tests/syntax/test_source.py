from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.syntax import Position, SourceText, Span


def test_positions_count_lines_and_characters_from_one() -> None:
    source = SourceText("ab\ncd\n\ne")
    places = [source.position(offset) for offset in (0, 2, 3, 6, 7, 8)]
    expected = [(1, 1), (1, 3), (2, 1), (3, 1), (4, 1), (4, 2)]
    assert places == [Position(line, column) for line, column in expected]


def test_an_empty_text_has_a_first_position() -> None:
    assert SourceText("").position(0) == Position(1, 1)


def test_only_line_feeds_end_a_line() -> None:
    source = SourceText("a\r\nb\u2028c\x0bd")
    assert source.position(len(source.text) - 1).line == 2


@pytest.mark.parametrize(
    ("text", "span", "expected"),
    [
        ("abc", Span(1, 2), (1, 2)),
        ("é→😀x", Span(0, 1), (0, 2)),
        ("é→😀x", Span(1, 2), (2, 5)),
        ("é→😀x", Span(2, 3), (5, 9)),
        ("é→😀x", Span(3, 4), (9, 10)),
        ("é\né\né", Span(4, 5), (6, 8)),
        ("abc", Span(3, 3), (3, 4)),
        ("", Span(0, 0), (0, 1)),
    ],
)
def test_byte_spans_count_utf8_and_are_never_empty(
    text: str, span: Span, expected: tuple[int, int]
) -> None:
    assert SourceText(text).byte_span(span) == expected


@given(st.text(), st.data())
def test_byte_spans_agree_with_encoding_the_parts(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    before = len(text[:start].encode(errors="surrogatepass"))
    inside = len(text[start:end].encode(errors="surrogatepass"))
    assert SourceText(text).byte_span(Span(start, end)) == (before, before + max(inside, 1))


def test_an_excerpt_is_the_line_of_the_span() -> None:
    shown, start, end = SourceText("one\ntwo three\nfour").excerpt(Span(8, 13))
    assert (shown, shown[start:end]) == ("two three", "three")


def test_a_line_that_fits_is_shown_whole() -> None:
    line = "x" * 120 + "here" + "y" * 20
    shown, start, end = SourceText(line).excerpt(Span(120, 124))
    assert (shown, shown[start:end]) == (line, "here")


def test_a_long_line_is_cut_around_the_span() -> None:
    shown, start, end = SourceText("x" * 5_000_000 + "here" + "y" * 10).excerpt(
        Span(5_000_000, 5_000_004)
    )
    assert len(shown) < 200
    assert shown[start:end] == "here"


def test_a_span_wider_than_its_line_is_marked_to_the_end_of_the_line() -> None:
    shown, start, end = SourceText("ab\ncd").excerpt(Span(1, 5))
    assert (shown, start, end) == ("ab", 1, 2)


def test_control_characters_do_not_reach_the_terminal() -> None:
    shown, _, _ = SourceText("a\tb\x1b[31m\x00c\r").excerpt(Span(0, 1))
    assert shown == "a b [31m c "


def test_spans_join() -> None:
    assert Span(3, 5).to(Span(8, 9)) == Span(3, 9)
    assert Span(3, 9).to(Span(4, 5)) == Span(3, 9)
