"""Source text and positions in it."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import pairwise
from typing import Final

from omnigraph.dataclass import dataclass

SOURCE_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger text is refused before it is parsed."""

_EXCERPT_WIDTH: Final = 160


@dataclass(frozen=True, slots=True)
class Span:
    """A range of characters, end exclusive. Byte ranges come from `SourceText.byte_span`."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """Return the range from the start of this span to the end of `other`."""
        return Span(self.start, max(self.end, other.end))


@dataclass(frozen=True, slots=True)
class Position:
    """A position for people: line and column from 1, columns counted in characters."""

    line: int
    column: int


@dataclass(frozen=True)
class SourceText:
    """A text with the name under which messages mention it."""

    text: str
    name: str = "<text>"

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        find = self.text.find
        at = find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = find("\n", at + 1)
        return starts

    def position(self, offset: int) -> Position:
        """Return line and column of a character offset."""
        line = bisect_right(self._line_starts, offset)
        return Position(line, offset - self._line_starts[line - 1] + 1)

    @cached_property
    def byte_length(self) -> int:
        """How many bytes the text has in UTF-8."""
        return len(self.text) if self.text.isascii() else _byte_length(self.text)

    @cached_property
    def _line_byte_starts(self) -> list[int]:
        starts = [0]
        for start, end in pairwise(self._line_starts):
            starts.append(starts[-1] + _byte_length(self.text[start:end]))
        return starts

    def _byte_offset(self, offset: int) -> int:
        if self.byte_length == len(self.text):
            return min(offset, len(self.text))
        line = bisect_right(self._line_starts, offset) - 1
        return self._line_byte_starts[line] + _byte_length(
            self.text[self._line_starts[line] : offset]
        )

    def byte_span(self, span: Span) -> tuple[int, int]:
        """Return the UTF-8 byte range of a span, at least one byte wide."""
        start = self._byte_offset(span.start)
        return start, max(self._byte_offset(span.end), start + 1)

    def excerpt(self, span: Span) -> tuple[str, int, int]:
        """Return one line of the text around `span`, and where in it the span starts and ends.

        A very long line is cut around the span and control characters are
        blank, so a message stays readable for any input.
        """
        line = self.position(span.start).line
        line_start = self._line_starts[line - 1]
        line_end = self.text.find("\n", line_start)
        if line_end < 0:
            line_end = len(self.text)
        left = line_start
        if line_end - line_start > _EXCERPT_WIDTH:
            left = max(line_start, min(span.start, line_end) - _EXCERPT_WIDTH // 2)
        right = min(line_end, left + _EXCERPT_WIDTH)
        shown = "".join(c if c.isprintable() else " " for c in self.text[left:right])
        start = span.start - left
        width = min(max(span.end - span.start, 1), max(right - span.start, 1))
        return shown, start, start + width


def _byte_length(text: str) -> int:
    # Half a surrogate pair has no UTF-8 form: such a text is rejected, and the message has a
    # position.
    return len(text.encode(errors="surrogatepass"))
