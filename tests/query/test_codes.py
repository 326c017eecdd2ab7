"""Every code is documented, and every documented code has a case that shows it."""

from __future__ import annotations

import re

from omnigraph.query.language.codes import QUERY_CODES
from support.cases import CASES

CODE = re.compile(r"\b[QPR][0-9]{3}\b")
SHOWN_ELSEWHERE = {"Q006", "Q007", "Q008"}
"""Their texts are too large or no text at all; `test_parse.py` has them."""


def codes_in_cases() -> set[str]:
    folders = ("query_syntax_errors", "params", "stored")
    texts = [path.read_text() for folder in folders for path in (CASES / folder).glob("*.case")]
    return {code for text in texts for code in CODE.findall(text)}


def test_every_code_of_a_case_is_documented() -> None:
    assert codes_in_cases() - QUERY_CODES.keys() == set()


def test_every_documented_code_has_a_case() -> None:
    assert QUERY_CODES.keys() - codes_in_cases() == SHOWN_ELSEWHERE


def test_meanings_are_one_line_and_differ() -> None:
    meanings = list(QUERY_CODES.values())
    assert len(set(meanings)) == len(meanings)
    assert all(meaning and "\n" not in meaning for meaning in meanings)
