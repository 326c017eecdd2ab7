"""Every word of the examples has a colour, and none is an error."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("pygments")

from pygments.lexer import RegexLexer
from pygments.token import Error, Keyword, Name

from omnigraph.integrations.pygments_lexers import QueryLexer, SchemaLexer

ROOT = Path(__file__).parents[2]
LEXERS: dict[str, type[RegexLexer]] = {"pg": SchemaLexer, "gq": QueryLexer}
FENCE = re.compile(r"^```(pg|gq)\b[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
TEXTS = [
    pytest.param(language, text, id=f"{path.stem}-{number}")
    for path in sorted((ROOT / "docs").rglob("*.md"))
    for number, (language, text) in enumerate(FENCE.findall(path.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize(("language", "text"), TEXTS)
def test_every_example_is_coloured_without_an_error(language: str, text: str) -> None:
    found = list(LEXERS[language]().get_tokens(text))
    assert [value for kind, value in found if kind in Error] == []
    assert any(kind in Keyword or kind in Name.Decorator for kind, _ in found)
    assert "".join(value for _, value in found).strip() == text.strip()


def test_words_have_the_kinds_that_people_expect() -> None:
    text = "query q() { match { $p: Person } return { count($p) as n } }"
    found = {value: kind for kind, value in QueryLexer().get_tokens(text)}
    assert found["query"] is Keyword.Declaration
    assert found["$p"] is Name.Variable
    assert found["Person"] is Name.Class
    assert found["count"] is Name.Function


def test_pygments_finds_the_lexers_by_entry_points() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = project["project"]["entry-points"]["pygments.lexers"]
    parts = [path.split(":") for path in declared.values()]
    assert {getattr(import_module(module), name) for module, name in parts} == set(LEXERS.values())
