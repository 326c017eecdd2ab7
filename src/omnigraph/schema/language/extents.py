"""Where the parts of a `.pg` text begin and end, down to brackets that the tree does not have.

The spans of the tree are those that messages point at. Editing a text needs whole parts: a property
with its type and annotations, a rule with its members, a declaration with its body.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from omnigraph.schema.language.tree import (
    AnnotationDecl,
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    NodeDecl,
    PropertyDecl,
    RuleDecl,
    SchemaTree,
)
from omnigraph.syntax import Span

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|//[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/)*+")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True)
class PropertyExtent:
    """A property from its name to its last annotation."""

    declaration: PropertyDecl
    whole: Span
    type: Span
    annotations: tuple[Span, ...]


@dataclass(frozen=True)
class RuleExtent:
    """A rule from its `@` to its closing bracket."""

    declaration: RuleDecl
    whole: Span


@dataclass(frozen=True)
class DeclarationExtent:
    """A declaration from its keyword to its closing brace.

    `header` ends behind the last part before the body; `body` is what stands between the braces,
    `None` for an edge without any. `card` is the `@card` of an edge.
    """

    declaration: Declaration
    whole: Span
    header: Span
    annotations: tuple[Span, ...]
    card: Span | None
    body: Span | None
    properties: tuple[PropertyExtent, ...]
    rules: tuple[RuleExtent, ...]


def extents_of(tree: SchemaTree) -> tuple[DeclarationExtent, ...]:
    """Find the parts of all declarations of a text that has parsed."""
    text = tree.source.text
    found: list[DeclarationExtent] = []
    at = 0
    for declaration in tree.declarations:
        found.append(_declaration(text, declaration, skip_blank(text, at)))
        at = found[-1].whole.end
    return tuple(found)


def skip_blank(text: str, at: int) -> int:
    """Return the place of the next character that is neither blank nor in a comment."""
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _declaration(text: str, declaration: Declaration, start: int) -> DeclarationExtent:
    annotations: tuple[Span, ...] = ()
    card: Span | None = None
    if not isinstance(declaration, InterfaceDecl):
        annotations = tuple(_annotation(text, each) for each in declaration.annotations)
    if isinstance(declaration, EdgeDecl) and declaration.cardinality is not None:
        at = skip_blank(text, declaration.to_type.span.end)
        card = Span(at, _closing(text, at))
    ends = [declaration.span.end, *(span.end for span in annotations), card.end if card else 0]
    if isinstance(declaration, NodeDecl):
        ends += [ref.span.end for ref in declaration.implements]
    if isinstance(declaration, EdgeDecl):
        ends.append(declaration.to_type.span.end)
    header_end = max(ends)
    properties = tuple(_property(text, each) for each in declaration.properties)
    written = () if isinstance(declaration, InterfaceDecl) else declaration.rules
    rules = tuple(
        RuleExtent(each, Span(each.span.start, _closing(text, each.span.start))) for each in written
    )
    wholes = [*(each.whole for each in properties), *(each.whole for each in rules)]
    body = _body(text, header_end, [each.end for each in wholes])
    end = header_end if body is None else body.end + 1
    return DeclarationExtent(
        declaration,
        Span(start, end),
        Span(start, header_end),
        annotations,
        card,
        body,
        properties,
        rules,
    )


def _body(text: str, header_end: int, member_ends: list[int]) -> Span | None:
    opening = skip_blank(text, header_end)
    if not text.startswith("{", opening):
        return None
    return Span(opening + 1, skip_blank(text, max([opening + 1, *member_ends])))


def _property(text: str, declaration: PropertyDecl) -> PropertyExtent:
    colon = skip_blank(text, declaration.span.end)
    start = skip_blank(text, colon + 1)
    type_span = Span(start, _type_end(text, start))
    annotations = tuple(_annotation(text, each) for each in declaration.annotations)
    end = max([type_span.end, *(span.end for span in annotations)])
    return PropertyExtent(declaration, Span(declaration.span.start, end), type_span, annotations)


def _type_end(text: str, start: int) -> int:
    if text.startswith("[", start):
        item = skip_blank(text, start + 1)
        end = skip_blank(text, _word_end(text, item)) + 1
    else:
        end = _word_end(text, start)
        if text.startswith("(", skip_blank(text, end)):
            end = _closing(text, end)
    mark = skip_blank(text, end)
    return mark + 1 if text.startswith("?", mark) else end


def _word_end(text: str, start: int) -> int:
    word = _WORD.match(text, start)
    return word.end() if word else start


def _annotation(text: str, declaration: AnnotationDecl) -> Span:
    if declaration.value_span is None:
        return declaration.span
    return Span(declaration.span.start, _closing(text, declaration.span.end))


def _closing(text: str, at: int) -> int:
    """Return the place behind the next closing bracket that is not in a string."""
    while text[at] != ")":
        string = _STRING.match(text, at)
        blank = skip_blank(text, at)
        at = string.end() if string else max(blank, at + 1)
    return at + 1
