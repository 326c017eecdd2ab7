"""A JSON array becomes lines, one element each, so that one reader reads both.

The array is never in memory as a whole: an element ends where Python's parser says it does, and the
text of the elements is read again, strictly, as a line. Positions count elements.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import BinaryIO, Final

from omnigraph.schema.values.decode import BATCH_BYTES
from omnigraph.write.rules import codes
from omnigraph.write.rules.violations import JSON_REST_RULE, Violation, number_of

ELEMENT_CHARACTERS_MAX: Final = 1 << 28
_BLANK: Final = " \t\r\n"
_NEAR_END: Final = 16
"""A text that is cut inside of a word or an escape fails at most so far before its end."""


class BrokenArrayError(ValueError):
    """A text is no JSON array; `before` elements could be read."""

    def __init__(self, before: int, problem: str) -> None:
        self.before = before
        super().__init__(problem)

    def violation(self, first: int) -> Violation:
        """Return what is wrong, where the first element has the position `first`."""
        position = first + self.before
        message = f"invalid JSON at record {number_of(position)}: {self}"
        return Violation(
            position=position,
            type=None,
            property=None,
            value=None,
            rule=JSON_REST_RULE,
            code=codes.INVALID_JSON,
            message=f"{message}; nothing after it can be read",
        )


def array_blocks(source: BinaryIO) -> Iterator[bytes]:
    """Yield the elements of an array as blocks of lines; raise where it is broken."""
    waiting: list[str] = []
    size = 0
    elements = _Elements(source)
    try:
        for element in elements.read():
            waiting.append(element.replace("\n", " ").replace("\r", " "))
            size += len(element)
            if size >= BATCH_BYTES:
                yield _lines(waiting)
                waiting, size = [], 0
    except BrokenArrayError:
        if waiting:
            yield _lines(waiting)
        raise
    if waiting:
        yield _lines(waiting)


def _lines(elements: list[str]) -> bytes:
    return ("\n".join(elements) + "\n").encode()


class _Elements:
    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._parser = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._count = 0

    def read(self) -> Iterator[str]:
        if self._next() != "[":
            raise self._broken("expected a JSON array")
        mark = self._next()
        if mark != "]":
            self._at -= len(mark)
            yield self._value()
            while (mark := self._next()) == ",":
                yield self._value()
        if mark != "]":
            raise self._broken("expected ',' or ']' after an element")
        if self._next():
            raise self._broken("there is text after the array")

    def _value(self) -> str:
        mark = self._next()
        self._at -= len(mark)
        while True:
            try:
                _, end = self._parser.raw_decode(self._text, self._at)
            except (json.JSONDecodeError, RecursionError) as error:
                if not self._may_go_on(error) or not self._more():
                    words = error.msg if isinstance(error, json.JSONDecodeError) else "too deep"
                    raise self._broken(words) from None
                continue
            # A number at the very end may have more digits.
            if end < len(self._text) or not self._more():
                found = self._text[self._at : end]
                self._at = end
                self._count += 1
                return found

    def _may_go_on(self, error: Exception) -> bool:
        """Whether more text could make a value of what was read."""
        if len(self._text) - self._at > ELEMENT_CHARACTERS_MAX:
            return False
        if not isinstance(error, json.JSONDecodeError):
            return False
        is_cut = error.pos >= len(self._text) - _NEAR_END
        return is_cut or error.msg.startswith("Unterminated string")

    def _next(self) -> str:
        """Take the next character that is no blank; nothing at the end."""
        while True:
            while self._at < len(self._text):
                self._at += 1
                if self._text[self._at - 1] not in _BLANK:
                    return self._text[self._at - 1]
            if not self._more():
                return ""

    def _more(self) -> bool:
        rest = self._text[self._at :]
        content = self._source.read(max(BATCH_BYTES, len(rest)))
        try:
            found = self._decoder.decode(content, final=not content)
        except UnicodeDecodeError as error:
            raise self._broken(f"it is no UTF-8 text: {error.reason}") from None
        self._text, self._at = rest + found, 0
        return bool(content)

    def _broken(self, problem: str) -> BrokenArrayError:
        return BrokenArrayError(self._count, problem)
