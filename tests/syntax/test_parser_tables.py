"""Stored parser tables belong to the grammars, and parse as they do."""

from __future__ import annotations

import pytest
from write_parsers import GRAMMARS

from omnigraph.syntax.parser_tables import built_parser, is_current, stored_parser

TEXTS = {
    "query.lark": "query q($k: String) { match { $a: P { key: $k } } return { $a.x as y } }",
    "schema.lark": "node P { key: String @key  i: I32? } edge E: P -> P { w: F64 }",
}


@pytest.mark.parametrize(("package", "file"), GRAMMARS)
def test_the_tables_are_up_to_date(package: str, file: str) -> None:
    assert is_current(package, file), "run tools/write_parsers.py"


@pytest.mark.parametrize(("package", "file"), GRAMMARS)
def test_stored_tables_parse_as_the_grammar_does(package: str, file: str) -> None:
    stored = stored_parser(package, file, None)
    assert stored is not None
    text = TEXTS[file]
    assert stored.parse(text) == built_parser(package, file).parse(text)


def test_a_grammar_without_tables_is_worked_out() -> None:
    assert stored_parser("omnigraph.query.language", "tree.py", None) is None
