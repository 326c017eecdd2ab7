"""What went wrong in a source text, where, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.syntax.source import Position, SourceText, Span
from omnigraph.texts import shown


class Phase(StrEnum):
    """Which pass found the problem; its value opens the message."""

    PARSE = "parse error"
    CATALOG = "catalog error"
    TYPE = "type error"


@dataclass(frozen=True)
class Diagnostic:
    """One problem at one position.

    `code` is stable and documented. `subject` names the declaration around it
    (``query 'crew_of'``, ``node 'Station'``).
    """

    code: str
    phase: Phase
    message: str
    source: SourceText
    span: Span
    hint: str | None = None
    subject: str | None = None

    @property
    def position(self) -> Position:
        """Line and column, from 1."""
        return self.source.position(self.span.start)

    @property
    def byte_span(self) -> tuple[int, int]:
        """UTF-8 byte range in the source, at least one byte wide."""
        return self.source.byte_span(self.span)

    @property
    def headline(self) -> str:
        """The message on one line, as callers match on it.

        >>> from omnigraph.syntax.source import SourceText, Span
        >>> source = SourceText("$a x $b")
        >>> Diagnostic("T4", Phase.TYPE, "T4: unknown edge 'x'", source, Span(3, 4)).headline
        "type error: T4: unknown edge 'x'"
        """
        where = f" (in {self.subject})" if self.subject else ""
        return shown(f"{self.phase}: {self.message}{where}")

    def render(self) -> str:
        """Return the headline, the source line with a caret below it, and the hint."""
        return f"{self.headline} [{self.code}]\n{self.excerpt()}"

    def excerpt(self) -> str:
        """Return the source line with a caret below it, and the hint."""
        at = self.position
        line, start, end = self.source.excerpt(self.span)
        gutter = " " * len(str(at.line))
        marks = " " * start + "^" * max(end - start, 1)
        parts = [
            f"{gutter}--> {self.source.name}:{at.line}:{at.column}",
            f"{gutter} |",
            f"{at.line} | {line}",
            f"{gutter} | {marks}",
        ]
        if self.hint:
            parts.append(f"{gutter} = help: {self.hint}")
        return shown("\n".join(parts))


class SourceError(InvalidInputError):
    """A source text is wrong; carries every problem that was found, in source order.

    `str(error)` lists the headlines, `error.render()` adds the positions.
    """

    code = "OG-SOURCE"
    diagnostics: tuple[Diagnostic, ...]

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        found = sorted(diagnostics, key=lambda d: (d.span.start, d.code))
        self.diagnostics = tuple(dict.fromkeys(found))
        super().__init__("\n".join(d.headline for d in self.diagnostics))

    def render(self) -> str:
        """Return all problems with their source lines, ready to print."""
        return "\n\n".join(d.render() for d in self.diagnostics)

    def _excerpt(self) -> str:
        return "\n\n".join(d.excerpt() for d in self.diagnostics)

    def named(self, source: SourceText) -> SourceError:
        """Return the same problems in a text that the caller knows by another name."""
        return type(self)(replace(found, source=source) for found in self.diagnostics)
