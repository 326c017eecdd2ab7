"""Every known mistake is shown by a case, and none hides another one."""

from __future__ import annotations

import pytest

from omnigraph.query.language import syntax_hints
from omnigraph.query.language.parse import GRAMMAR
from omnigraph.query.language.syntax_hints import FUNCTIONS, MISTAKES, Mistake, explain, recognize
from omnigraph.syntax import SourceText
from support.cases import load_cases


def test_every_known_mistake_is_the_first_to_fit_some_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: set[Mistake] = set()

    def remember(message: str, before: str, behind: str) -> tuple[Mistake, dict[str, str]] | None:
        found = recognize(message, before, behind)
        seen.update([] if found is None else [found[0]])
        return found

    monkeypatch.setattr(syntax_hints, "recognize", remember)
    for case in load_cases("query_syntax_errors"):
        for diagnostic in GRAMMAR.parse(SourceText(case.sections["query"])).diagnostics:
            explain(diagnostic)
    assert [mistake for mistake in MISTAKES if mistake not in seen] == []


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_can_be_called(function: str) -> None:
    text = f"query q() {{ match {{ $c: C }} return {{ {function}() }} }}"
    for diagnostic in GRAMMAR.parse(SourceText(text)).diagnostics:
        assert "unknown function" not in explain(diagnostic).message


def test_other_problems_keep_their_message() -> None:
    (diagnostic,) = GRAMMAR.parse(SourceText('query q() { "')).diagnostics
    assert explain(diagnostic) is diagnostic
