"""Checks of a query's text that need neither a catalog nor types."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from omnigraph.names import nearest_name
from omnigraph.query.language import codes
from omnigraph.query.language.build import (
    INT_MAX,
    INT_MIN,
    AnnotationText,
    Draft,
    Problem,
    read_float,
    read_integer,
)
from omnigraph.query.language.tree import (
    Both,
    Clause,
    Comparison,
    Delete,
    Either,
    Expr,
    Filter,
    Hop,
    NameRef,
    Negated,
    NotBlock,
    OptionalBlock,
    Predicate,
    ReadBody,
    TextCall,
    Update,
)
from omnigraph.syntax import Span

ANNOTATIONS: Final = ("description", "instruction")


def draft_problems(draft: Draft) -> list[Problem]:
    """Return everything wrong with the text of one query that could be read."""
    found = [*draft.problems]
    if draft.annotations:
        found += _annotation_problems(draft.annotations)
    body = draft.declaration.body
    if isinstance(body, ReadBody):
        found += _clause_problems(body.clauses)
    else:
        for statement in body:
            if isinstance(statement, Update | Delete):
                found += _predicate_problems(statement.where)
    return found


def _annotation_problems(annotations: Iterable[AnnotationText]) -> Iterator[Problem]:
    seen: set[str] = set()
    for annotation in annotations:
        if annotation.name not in ANNOTATIONS:
            known = nearest_name(annotation.name, ANNOTATIONS)
            hint = f"did you mean `@{known}`?" if known else "notes are @description, @instruction"
            yield Problem(
                codes.ANNOTATION_UNKNOWN,
                f"unknown note '@{annotation.name}'",
                annotation.span,
                hint,
            )
        elif annotation.name in seen:
            message = f"note '@{annotation.name}' is given twice"
            yield Problem(
                codes.ANNOTATION_REPEATED, message, annotation.span, "keep one of the two"
            )
        seen.add(annotation.name)


def _clause_problems(clauses: Iterable[Clause]) -> Iterator[Problem]:
    for clause in clauses:
        if isinstance(clause, Hop):
            if clause.edge == "not":
                message, hint = "an edge cannot be called `not`", "rename the edge in the schema"
                yield Problem(codes.EDGE_NOT, message, clause.edge_span, hint)
        elif isinstance(clause, Filter):
            yield from _predicate_problems(clause.predicate)
        elif isinstance(clause, NotBlock | OptionalBlock):
            yield from _clause_problems(clause.clauses)


def _predicate_problems(predicate: Predicate | TextCall) -> Iterator[Problem]:
    """Find what the grammar lets pass to be named here: text calls and `null` as operands."""
    if isinstance(predicate, Comparison):
        if _is_null(predicate.right):
            message = "there is no null literal, and a comparison with null is never true"
            test = "is not null" if predicate.operator == "!=" else "is null"
            yield Problem(codes.NULL_LITERAL, message, predicate.right.span, f"write `{test}`")
    elif isinstance(predicate, Both | Either):
        for operand in predicate.operands:
            yield from _predicate_problems(operand)
    elif isinstance(predicate, Negated):
        yield from _predicate_problems(predicate.operand)
    elif isinstance(predicate, TextCall):
        message = f"{predicate.function}(…) cannot be combined with `and`, `or` or `not ( … )`"
        hint = "write it as a clause of its own; clauses are conjoined"
        yield Problem(codes.TEXT_CALL_COMBINED, message, predicate.span, hint)


def _is_null(operand: Expr) -> bool:
    return isinstance(operand, NameRef) and operand.name == "null"


# -- numbers ------------------------------------------------------------------------------------

_PROBLEMS_MAX: Final = 100
_SHOWN_MAX: Final = 40
_SUSPICIOUS: Final = re.compile(r"[0-9]{19}|[0-9][eE][+-]?[0-9]")
_NUMBER: Final = re.compile(
    r'"(?:[^"\\]|\\.)*+"?'
    r"|//[^\n]*"
    r"|/\*(?:[^*]|\*(?!/))*+(?:\*/)?"
    r"|(?<![A-Za-z0-9_.$@+-])"
    r"(?P<number>-?[0-9]++(?P<fraction>(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+))(?![A-Za-z0-9_])",
    re.DOTALL,
)


def number_problems(text: str) -> list[Problem]:
    """Return the numbers of a text that no type can hold.

    It looks at the text and not at the tree: bounds and limits have no span there, and a number
    is wrong even where the text around it cannot be read.
    """
    if not _SUSPICIOUS.search(text):
        return []
    found = (_number_problem(match) for match in _NUMBER.finditer(text) if match["number"])
    return list(islice((problem for problem in found if problem is not None), _PROBLEMS_MAX))


def _number_problem(match: re.Match[str]) -> Problem | None:
    digits = match["number"]
    span = Span(*match.span("number"))
    shown = digits if len(digits) <= _SHOWN_MAX else digits[:_SHOWN_MAX] + "…"
    if match["fraction"]:
        if math.isfinite(read_float(digits)):
            return None
        message, hint = f"number {shown} is too large for F64", "the largest is about 1.8e308"
        return Problem(codes.FLOAT_TOO_LARGE, message, span, hint)
    if INT_MIN <= read_integer(digits) <= INT_MAX:
        return None
    hint = f"integers reach from {INT_MIN} to {INT_MAX}"
    return Problem(codes.INT_TOO_LARGE, f"integer {shown} does not fit 64 bits", span, hint)
