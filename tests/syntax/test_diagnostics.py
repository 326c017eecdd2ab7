from __future__ import annotations

import pickle

from omnigraph.syntax import Diagnostic, Phase, SourceError, SourceText, Span

SOURCE = SourceText("node A {\n    é: Strin\n}\n", "station.pg")


def diagnostic(
    start: int = 16, end: int = 21, *, code: str = "S001", hint: str | None = None
) -> Diagnostic:
    return Diagnostic(
        code, Phase.PARSE, "unexpected 'Strin'", SOURCE, Span(start, end), hint, "node 'A'"
    )


def test_the_headline_names_phase_and_subject() -> None:
    assert diagnostic().headline == "parse error: unexpected 'Strin' (in node 'A')"


def test_without_a_subject_the_headline_ends_with_the_message() -> None:
    found = Diagnostic("S001", Phase.CATALOG, "no", SOURCE, Span(0, 1))
    assert found.headline == "catalog error: no"


def test_rendering_shows_the_place_with_a_caret_and_the_help() -> None:
    assert diagnostic(hint="did you mean `String`?").render().splitlines() == [
        "parse error: unexpected 'Strin' (in node 'A') [S001]",
        " --> station.pg:2:8",
        "  |",
        "2 |     é: Strin",
        "  |        ^^^^^",
        "  = help: did you mean `String`?",
    ]


def test_an_empty_span_still_has_a_caret() -> None:
    assert diagnostic(16, 16).render().splitlines()[-1] == "  |        ^"


def test_positions_count_characters_and_byte_spans_bytes() -> None:
    found = diagnostic()
    assert (found.position.line, found.position.column) == (2, 8)
    assert found.byte_span == (17, 22)


def test_an_error_lists_its_problems_once_and_in_source_order() -> None:
    late, early = diagnostic(16, 21), diagnostic(5, 6, code="S201")
    error = SourceError([late, early, late])
    assert error.diagnostics == (early, late)
    assert str(error) == f"{early.headline}\n{late.headline}"
    assert error.render() == f"{early.render()}\n\n{late.render()}"


def test_an_error_survives_pickling() -> None:
    error = SourceError([diagnostic(hint="x"), diagnostic(0, 1)])
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, SourceError)
    assert again.diagnostics == error.diagnostics
    assert again.render() == error.render()
    assert str(again) == str(error)
