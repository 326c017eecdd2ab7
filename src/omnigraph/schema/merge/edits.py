"""Edits of a text: replacing spans, removing members with their lines, adding lines to a body."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from omnigraph.schema.language.extents import DeclarationExtent
from omnigraph.syntax import Span

_INDENT: Final = "    "
_BLANKS: Final = " \t"
_STRING_OR_COMMENT: Final = re.compile(
    r'"(?:[^"\\]|\\.)*+"|//[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/', re.DOTALL
)


@dataclass(frozen=True)
class Edit:
    """A span and what replaces it."""

    span: Span
    text: str

    @classmethod
    def insertion(cls, at: int, text: str) -> Edit:
        """Add text at one place."""
        return cls(Span(at, at), text)


def edited(text: str, edits: Iterable[Edit], within: Span | None = None) -> str:
    """Apply edits that do not overlap, and return the text or the part of it within a span."""
    whole = within or Span(0, len(text))
    parts: list[str] = []
    at = whole.start
    for edit in sorted(edits, key=lambda each: (each.span.start, each.span.end)):
        parts += [text[at : edit.span.start], edit.text]
        at = edit.span.end
    return "".join([*parts, text[at : whole.end]])


@dataclass(frozen=True)
class Layout:
    """Lines, indentation and comments of a text."""

    text: str

    def removal(self, span: Span, *, whole_lines: bool = True) -> Edit:
        """Remove a part; if it has its lines for itself, they go with the comments above."""
        start, end = self._line_start(span.start), self._line_end(span.end)
        has_own_lines = self._is_blank(start, span.start) and self._is_comment(span.end, end)
        if whole_lines and has_own_lines:
            above = "".join(self.comments_above(span.start))
            return Edit(Span(start - len(above), min(end + 1, len(self.text))), "")
        return self._inline_removal(span)

    def _inline_removal(self, span: Span) -> Edit:
        start = span.start
        while start and self.text[start - 1] in _BLANKS:
            start -= 1
        before, after = self.text[max(start - 1, 0) : start], self.text[span.end : span.end + 1]
        touches = before.strip() and after.strip()
        return Edit(Span(start, span.end), " " if touches else "")

    def comments_above(self, at: int) -> list[str]:
        """Return the comment lines that stand directly above the line of a place."""
        start = self._line_start(at)
        found: list[str] = []
        if not self._is_blank(start, at):
            return found
        while start:
            line_start = self._line_start(start - 1)
            line = self.text[line_start:start]
            if start - len(line.lstrip()) not in self._comment_starts:
                break
            found.insert(0, line)
            start = line_start
        return found

    def indent_at(self, at: int) -> str:
        """Return the blanks with which the line of a place begins."""
        start = self._line_start(at)
        line = self.text[start : self._line_end(start)]
        return line[: len(line) - len(line.lstrip(_BLANKS))]

    def is_first_on_its_line(self, at: int) -> bool:
        """Whether nothing stands before a place on its line."""
        return self._is_blank(self._line_start(at), at)

    def line_end_if_free(self, at: int) -> int | None:
        """Return the end of the line if nothing but a comment follows."""
        end = self._line_end(at)
        return end if self._is_comment(at, end) and end < len(self.text) else None

    @cached_property
    def _comment_starts(self) -> frozenset[int]:
        """Where comments to the end of a line begin; a string may have such a line, too."""
        found = _STRING_OR_COMMENT.finditer(self.text)
        return frozenset(each.start() for each in found if each[0].startswith("//"))

    def _line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def _line_end(self, at: int) -> int:
        found = self.text.find("\n", at)
        return len(self.text) if found < 0 else found

    def _is_blank(self, start: int, end: int) -> bool:
        return not self.text[start:end].strip()

    def _is_comment(self, start: int, end: int) -> bool:
        rest = self.text[start:end].strip()
        return not rest or rest.startswith("//")


@dataclass(frozen=True)
class BodyEditor:
    """The body of a declaration, and those of its members that stay."""

    layout: Layout
    extent: DeclarationExtent
    members: tuple[Span, ...]

    def insertion(self, pieces: Sequence[Sequence[str]], *, behind: int | None = None) -> Edit:
        """Add members, each as its lines, behind a kept one; by default behind the last."""
        body = self.extent.body
        if body is None:
            return Edit.insertion(self.extent.header.end, f" {{{self._block(pieces)}\n}}")
        if not self.members and not self.layout.text[body.start : body.end].strip():
            return Edit(body, f"{self._block(pieces)}\n{self._outer}")
        anchor = behind or max((each.end for each in self.members), default=body.start)
        line_end = self.layout.line_end_if_free(anchor)
        if line_end is not None:
            return Edit.insertion(line_end, self._block(pieces))
        # Other members follow on the line: a comment would hide them.
        texts = [lines[-1] for lines in pieces]
        after = self.layout.text[anchor : anchor + 1]
        return Edit.insertion(anchor, f" {' '.join(texts)}{' ' if after.strip() else ''}")

    @property
    def _outer(self) -> str:
        return self.layout.indent_at(self.extent.whole.start)

    def _block(self, pieces: Sequence[Sequence[str]]) -> str:
        indents = [
            self.layout.indent_at(each.start)
            for each in self.members
            if self.layout.is_first_on_its_line(each.start)
        ]
        indent = indents[-1] if indents else f"{self._outer}{_INDENT}"
        return "".join(f"\n{indent}{line}" for lines in pieces for line in lines)
