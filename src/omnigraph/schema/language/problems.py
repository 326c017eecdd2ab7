"""Problems as values: a pass collects them, its caller adds source and subject."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from omnigraph.names import nearest_name
from omnigraph.schema.language.tree import Declaration, InterfaceDecl, NodeDecl
from omnigraph.syntax import Diagnostic, Phase, SourceText, Span

_FIRST_CATALOG_CODE: Final = "S200"
_SUGGESTIONS_MAX: Final = 50


@dataclass(frozen=True)
class Problem:
    """One problem of a declaration."""

    code: str
    message: str
    span: Span
    hint: str | None = None


def diagnostics_of(
    problems: Iterable[Problem], source: SourceText, declaration: Declaration
) -> Iterator[Diagnostic]:
    """Turn the problems of one declaration into diagnostics of its source."""
    subject = subject_of(declaration)
    for problem in problems:
        phase = Phase.PARSE if problem.code < _FIRST_CATALOG_CODE else Phase.CATALOG
        yield Diagnostic(
            problem.code, phase, problem.message, source, problem.span, problem.hint, subject
        )


def subject_of(declaration: Declaration) -> str:
    """Name a declaration as messages do: `node 'Station'`."""
    return f"{kind_of(declaration)} '{declaration.name}'"


def kind_of(declaration: Declaration) -> str:
    """Return the keyword of a declaration."""
    if isinstance(declaration, NodeDecl):
        return "node"
    return "interface" if isinstance(declaration, InterfaceDecl) else "edge"


@dataclass
class Suggester:
    """Hints for mistyped names, at a bounded cost.

    Comparing a name with all others is slow, so a text with very many unknown names gets hints
    for the first ones only.
    """

    left: int = field(default=_SUGGESTIONS_MAX)

    def hint(self, name: str, candidates: Iterable[str]) -> str | None:
        """Return `did you mean …?` if `name` resembles a candidate."""
        if self.left <= 0:
            return None
        self.left -= 1
        nearest = nearest_name(name, candidates)
        return f"did you mean '{nearest}'?" if nearest is not None else None
