r"""Cuts lines of text into statements.

A statement is a line that begins with a backslash, or text up to the line on which its braces are
closed. Braces in strings and comments do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"?|//[^\n]*|/\*.*?(?:\*/|$)|[{}]', re.DOTALL)


class Statements:
    r"""Takes lines and gives back the statements that they complete.

    >>> statements = Statements()
    >>> list(statements.feed("query q() {"))
    []
    >>> statements.is_open
    True
    >>> list(statements.feed('  insert Person { name: "}" } }'))
    ['query q() {\n  insert Person { name: "}" } }']
    >>> list(statements.feed(r"\schema"))
    ['\\schema']
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def is_open(self) -> bool:
        """Whether a statement has begun and is not complete."""
        return bool(self._lines)

    @property
    def rest(self) -> str:
        """What has begun and is not complete."""
        return "\n".join(self._lines)

    def feed(self, line: str) -> Iterator[str]:
        """Take a line; yield the statement that it completes."""
        if not self._lines and not line.strip():
            return
        if not self._lines and line.lstrip().startswith("\\"):
            yield line.strip()
            return
        self._lines.append(line)
        text = self.rest
        opened, depth = _braces(text)
        if opened and depth <= 0 and not _goes_on(text):
            self._lines = []
            yield text


def _braces(text: str) -> tuple[bool, int]:
    marks = [token[0] for token in _TOKEN.finditer(text) if token[0] in "{}"]
    return bool(marks), marks.count("{") - marks.count("}")


def _goes_on(text: str) -> bool:
    """Whether a read without a name still lacks what it returns."""
    return text.lstrip().startswith("match") and "return" not in text
