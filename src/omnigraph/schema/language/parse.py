"""From `.pg` text to a tree.

The grammar reads a little more than the language has. Where a declaration can be understood but
must not be written like that (an enum value twice, a vector of dimension zero), the tree builder
records a problem next to the tree, so that all of them are reported and not just the first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, TypeVar

from omnigraph.names import nearest_name
from omnigraph.schema.language import codes
from omnigraph.schema.language.problems import Problem, diagnostics_of
from omnigraph.schema.language.tree import (
    AnnotationDecl,
    EdgeDecl,
    InterfaceDecl,
    NodeDecl,
    Number,
    PropertyDecl,
    RuleDecl,
    SchemaTree,
    TypeRef,
)
from omnigraph.syntax import Diagnostic, SourceError, SourceText, Span
from omnigraph.syntax.grammar import Grammar, Token, TreeBuilder, span_of
from omnigraph.values import DECLARABLE_SCALARS, VECTOR_DIMENSION_MAX, PropType, Scalar

I64_MIN: Final = -(2**63)
I64_MAX: Final = 2**63 - 1
_I64_DIGITS_MAX: Final = 19

Part = TypeVar("Part")
Parts = list[Any]


@dataclass(frozen=True)
class ParsedSchema:
    """What could be read of a text, and every problem that reading it showed.

    `unread_names` are the type names in declarations that could not be read: whether one of them
    exists is unknown.
    """

    tree: SchemaTree
    diagnostics: tuple[Diagnostic, ...]
    unread_names: frozenset[str]


def parse_schema(source: SourceText | str) -> SchemaTree:
    """Parse a `.pg` text; raises `SourceError` with all problems.

    >>> [node] = parse_schema("node Station { code: String @key }").declarations
    >>> node.name
    'Station'
    """
    parsed = parse_schema_tolerant(source)
    if parsed.diagnostics:
        raise SourceError(parsed.diagnostics)
    return parsed.tree


def parse_schema_tolerant(source: SourceText | str) -> ParsedSchema:
    """Parse a `.pg` text; returns the readable declarations and the problems."""
    text = SourceText(source) if isinstance(source, str) else source
    parsed = _GRAMMAR.parse(text)
    problems = (diagnostics_of(read.problems, text, read.part) for read in parsed.declarations)
    return ParsedSchema(
        tree=SchemaTree(text, tuple(read.part for read in parsed.declarations)),
        diagnostics=(*parsed.diagnostics, *chain.from_iterable(problems)),
        unread_names=frozenset(_type_names(text.text, parsed.unread)),
    )


def _type_names(text: str, spans: Iterable[Span]) -> Iterator[str]:
    for span in spans:
        yield from _TYPE_NAME.findall(text, span.start, span.end)


# -- building the tree ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Read:
    """A part of the tree and the problems inside it."""

    part: Any
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _TypeText:
    prop_type: PropType
    span: Span
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _Value:
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class _Keyword:
    name: str
    value: str
    span: Span


class _SchemaBuilder(TreeBuilder[Token, Any]):
    """One method per rule of `schema.lark`."""

    def start(self, parts: Parts) -> list[_Read]:
        return parts

    def interface(self, parts: Parts) -> _Read:
        _, name, *members = parts
        rules = (_interface_rule(rule) for rule in _parts_of(members, RuleDecl))
        declaration = InterfaceDecl(str(name), _parts_of(members, PropertyDecl), span_of(name))
        return _Read(declaration, (*_problems_of(members), *rules))

    def node(self, parts: Parts) -> _Read:
        _, name, annotations, implements, *members = parts
        declaration = NodeDecl(
            name=str(name),
            annotations=annotations,
            implements=implements or (),
            properties=_parts_of(members, PropertyDecl),
            rules=_parts_of(members, RuleDecl),
            span=span_of(name),
        )
        return _Read(declaration, _problems_of(members))

    def implements(self, parts: Parts) -> tuple[TypeRef, ...]:
        return tuple(_type_ref(name) for name in parts)

    def edge(self, parts: Parts) -> _Read:
        _, name, source, target, card, annotations, *rest = parts
        members = [member for member in rest if member is not None]
        declaration = EdgeDecl(
            name=str(name),
            from_type=_type_ref(source),
            to_type=_type_ref(target),
            cardinality=card.part if card else None,
            annotations=annotations,
            properties=_parts_of(members, PropertyDecl),
            rules=_parts_of(members, RuleDecl),
            span=span_of(name),
        )
        return _Read(declaration, (*(card.problems if card else ()), *_problems_of(members)))

    def card(self, parts: Parts) -> _Read:
        _, low_token, high_token = parts
        low, low_problems = _card_bound(low_token)
        high, high_problems = _card_bound(high_token) if high_token is not None else (None, ())
        problems = low_problems + high_problems
        if high is not None and low > high and not problems:
            message = f"@card minimum {low} exceeds max {high}"
            problems = (Problem(codes.CARD_MIN_EXCEEDS_MAX, message, span_of(low_token)),)
        return _Read((low, high), problems)

    # -- properties -------------------------------------------------------------------------------

    def property(self, parts: Parts) -> _Read:
        name, type_text, annotations = parts
        span = span_of(name)
        declaration = PropertyDecl(
            str(name), type_text.prop_type, annotations, span, type_text.span
        )
        return _Read(declaration, type_text.problems)

    def scalar(self, parts: Parts) -> _TypeText:
        word, nullable = parts
        prop_type = _SCALAR_TYPES[str(word), nullable is not None]
        return _TypeText(prop_type, _through(word, nullable))

    def list(self, parts: Parts) -> _TypeText:
        word, nullable = parts
        item = Scalar(str(word))
        prop_type = PropType(item, nullable=nullable is not None, is_list=True)
        if item is not Scalar.BLOB:
            return _TypeText(prop_type, _through(word, nullable))
        hint = "keep the blobs in nodes of their own and point to them with an edge"
        problem = Problem(codes.LIST_OF_BLOB, "list of Blob is not supported", span_of(word), hint)
        return _TypeText(prop_type, _through(word, nullable), (problem,))

    def enum(self, parts: Parts) -> _TypeText:
        word, *values, nullable = parts
        names = tuple(sorted({str(value) for value in values}))
        prop_type = PropType(Scalar.STRING, nullable=nullable is not None, enum_values=names)
        return _TypeText(
            prop_type, _through(word, nullable or values[-1]), tuple(_repeated_values(values))
        )

    def vector(self, parts: Parts) -> _TypeText:
        word, size, nullable = parts
        dimension = _whole_number(size)
        problems: tuple[Problem, ...] = ()
        if dimension is None or dimension > VECTOR_DIMENSION_MAX:
            message = (
                f"Vector dimension {_cut(size)} exceeds maximum supported {VECTOR_DIMENSION_MAX}"
            )
            problems = (Problem(codes.VECTOR_DIMENSION, message, span_of(size)),)
            dimension = VECTOR_DIMENSION_MAX
        elif dimension == 0:
            message = "Vector dimension must be greater than zero"
            problems = (Problem(codes.VECTOR_DIMENSION, message, span_of(size)),)
        prop_type = PropType(Scalar.VECTOR, nullable=nullable is not None, dimension=dimension)
        return _TypeText(prop_type, _through(word, nullable or size), problems)

    # -- rules ------------------------------------------------------------------------------------

    def members_rule(self, parts: Parts) -> _Read:
        word, *members = parts
        return _Read(_rule(word, members))

    def range_rule(self, parts: Parts) -> _Read:
        word, member, (low_token, high_token) = parts
        low, low_problems = _range_bound(low_token)
        high, high_problems = _range_bound(high_token)
        rule = replace(_rule(word, [member]), min=low, max=high)
        return _Read(rule, low_problems + high_problems)

    def check_rule(self, parts: Parts) -> _Read:
        word, member, pattern = parts
        rule = replace(
            _rule(word, [member]), pattern=_unescaped(pattern), value_span=span_of(pattern)
        )
        return _Read(rule)

    def bounds_from(self, parts: Parts) -> tuple[Token, Token | None]:
        return parts[0], parts[1]

    def bounds_to(self, parts: Parts) -> tuple[None, Token]:
        return None, parts[0]

    # -- annotations -------------------------------------------------------------------------------

    def annotations(self, parts: Parts) -> tuple[AnnotationDecl, ...]:
        return tuple(parts)

    def annotation(self, parts: Parts) -> AnnotationDecl:
        word, value, *keywords = parts
        # A repeated keyword keeps its first position and takes its last value.
        kwargs = {keyword.name: keyword.value for keyword in keywords}
        spans = {keyword.name: keyword.span for keyword in keywords}
        return AnnotationDecl(
            name=str(word)[1:],
            value=value.text if value else None,
            kwargs=tuple(kwargs.items()),
            span=span_of(word),
            value_span=value.span if value else None,
            kwarg_spans=tuple(spans.values()),
        )

    def argument(self, parts: Parts) -> _Value:
        return _Value(_literal(parts[0]), span_of(parts[0]))

    def keyword(self, parts: Parts) -> _Keyword:
        name, value = parts
        return _Keyword(str(name), _literal(value), span_of(name))


_SCALAR_TYPES: Final = {
    (str(scalar), nullable): PropType(scalar, nullable=nullable)
    for scalar in DECLARABLE_SCALARS
    for nullable in (False, True)
}


def _parts_of(members: Sequence[_Read], kind: type[Part]) -> tuple[Part, ...]:
    return tuple(member.part for member in members if isinstance(member.part, kind))


def _problems_of(members: Sequence[_Read]) -> tuple[Problem, ...]:
    return tuple(problem for member in members for problem in member.problems)


def _interface_rule(rule: RuleDecl) -> Problem:
    message = f"interfaces take no rules, found @{rule.kind}"
    hint = "write the rule in the nodes that implement the interface"
    if rule.kind in ("key", "unique", "index"):
        hint += f", or the note `@{rule.kind}` behind the property"
    return Problem(codes.INTERFACE_RULE, message, rule.span, hint)


def _type_ref(name: Token) -> TypeRef:
    return TypeRef(str(name), span_of(name))


def _through(first: Token, last: Token | None) -> Span:
    return span_of(first).to(span_of(last)) if last is not None else span_of(first)


def _repeated_values(values: Sequence[Token]) -> Iterator[Problem]:
    seen: set[str] = set()
    for value in values:
        if str(value) in seen:
            message = f"enum has duplicate values: '{_cut(value)}' is repeated"
            yield Problem(codes.ENUM_DUPLICATE, message, span_of(value))
        seen.add(str(value))


def _rule(word: Token, members: Sequence[Token]) -> RuleDecl:
    kind: Any = str(word)[1:]
    return RuleDecl(
        kind=kind,
        fields=tuple(str(member) for member in members),
        span=span_of(word),
        field_spans=tuple(span_of(member) for member in members),
    )


# -- values ---------------------------------------------------------------------------------------


def _whole_number(token: Token) -> int | None:
    """Read digits; None if there are more than any number of the language has.

    Python refuses to read very long numbers, so the length is checked first.
    """
    digits = token.lstrip("0")
    return int(digits or "0") if len(digits) <= _I64_DIGITS_MAX else None


def _card_bound(token: Token) -> tuple[int, tuple[Problem, ...]]:
    value = _whole_number(token)
    if value is not None and value <= I64_MAX:
        return value, ()
    message = f"@card bound {_cut(token)} exceeds maximum supported {I64_MAX}"
    return I64_MAX, (Problem(codes.NUMBER_TOO_LARGE, message, span_of(token)),)


def _range_bound(token: Token | None) -> tuple[Number | None, tuple[Problem, ...]]:
    """Read a bound; a whole number beyond 64 bits becomes a float."""
    if token is None:
        return None, ()
    digits = token.lstrip("-0")
    if "." not in token and len(digits) <= _I64_DIGITS_MAX:
        value = int(digits or "0") * (-1 if token.startswith("-") else 1)
        if I64_MIN <= value <= I64_MAX:
            return value, ()
    number = float(token)
    if math.isfinite(number):
        return number, ()
    message = f"@range bound {_cut(token)} exceeds maximum supported by F64"
    return None, (Problem(codes.NUMBER_TOO_LARGE, message, span_of(token)),)


_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


def _literal(token: Token) -> str:
    return _unescaped(token) if token.type == "STRING" else str(token)


def _unescaped(token: Token) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], token[1:-1])


def _cut(token: Token) -> str:
    return str(token) if len(token) <= 40 else f"{token[:40]}…"


# -- hints for syntax errors ----------------------------------------------------------------------

_TYPE_NAME: Final = re.compile(r"\b[A-Z][A-Za-z0-9_]*")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CARD_OPEN: Final = re.compile(r"@card\s*\(\s*([0-9]{1,9})\s*\Z")
_IMPLEMENTS_OPEN: Final = re.compile(r"\bimplements\b[\s\w,]*\Z")
_BEHIND_MAX: Final = 400

_OTHER_SPELLINGS: Final = {
    "str": "String",
    "text": "String",
    "varchar": "String",
    "int": "I64",
    "integer": "I64",
    "long": "I64",
    "uint": "U64",
    "float": "F64",
    "double": "F64",
    "decimal": "F64",
    "number": "F64",
    "boolean": "Bool",
    "timestamp": "DateTime",
    "bytes": "Blob",
    "binary": "Blob",
}
_TYPE_WORDS: Final = (*map(str, DECLARABLE_SCALARS), "Vector", "enum")


def _advise(text: str, at: int, expected: frozenset[str]) -> str | None:
    """Recognize common mistakes at the position of a syntax error."""
    behind = text[max(at - _BEHIND_MAX, 0) : at].rstrip()
    found = text[at]
    word = _WORD.match(text, at)
    if found == "@":
        return _advise_annotation(text, at, behind)
    if word is None and not (found == "[" and "SCALAR" in expected):
        return _advise_mark(found, behind, expected)
    if "SCALAR" in expected:
        return _advise_type(word[0] if word else found, in_list=behind.endswith("["))
    return _advise_name(found, expected)


def _advise_annotation(text: str, at: int, behind: str) -> str | None:
    if text.startswith("@card", at):
        return "`@card(min..max)` stands right after the target type of an edge"
    if _IMPLEMENTS_OPEN.search(behind):
        return "notes of a node stand before `implements`"
    if behind.endswith(")"):
        return "notes stand right behind the type of their property, before any rule"
    return None


def _advise_mark(found: str, behind: str, expected: frozenset[str]) -> str | None:
    card = _CARD_OPEN.search(behind)
    if card is not None and found == ")":
        return f"write both bounds: `@card({card[1]}..{card[1]})` for exactly {card[1]}"
    if found in ",;" and "PROPERTY_NAME" in expected:
        return "members are separated by whitespace alone"
    if found in ")]{" and behind.endswith(","):
        return "lists take no trailing comma"
    if found == "=" and "COMMA" in expected:
        return "keywords stand behind a value: `@note(value, keyword=value)`"
    if found == "?" and "RSQB" in expected:
        return "items of a list cannot be nullable; a nullable list is `[T]?`"
    return None


def _advise_type(word: str, *, in_list: bool) -> str | None:
    if in_list and word in ("enum", "Vector", "["):
        return "items of a list are scalars: no enum, vector or list"
    known = _OTHER_SPELLINGS.get(word.lower()) or nearest_name(word, _TYPE_WORDS)
    return f"did you mean `{known}`?" if known is not None and known != word else None


def _advise_name(found: str, expected: frozenset[str]) -> str | None:
    if found.isupper() and "ANNOTATION_WORD" in expected and "STRING" in expected:
        return "names of types need quotes here"
    if found.isupper() and ("PROPERTY_NAME" in expected or "MEMBER" in expected):
        return "names of properties start with a lower-case letter"
    if found.islower() and "TYPE_NAME" in expected:
        return "names of types start with an upper-case letter"
    return None


_GRAMMAR: Final[Grammar[_Read]] = Grammar(
    package="omnigraph.schema.language",
    file="schema.lark",
    builder=_SchemaBuilder(),
    letter=codes.SCHEMA_LETTER,
    declaration=r"(?P<kind>interface|node|edge)\s+(?P<name>[A-Za-z_][A-Za-z0-9_]*)",
    terminals={
        "TYPE_NAME": "a type name",
        "PROPERTY_NAME": "a property name",
        "MEMBER": "property name in constraint",
        "ENUM_VALUE": "an enum value",
        "SCALAR": "a type",
        "ENUM": "a type",
        "VECTOR": "a type",
        "LSQB": "a type",
        "MEMBERS_RULE": "a rule",
        "RANGE_RULE": "a rule",
        "CHECK_RULE": "a rule",
        "PROPERTY_ANNOTATION": "a note",
        "TYPE_ANNOTATION": "a note",
        "CARD": "`@card`",
        "UINT": "a whole number",
        "LITERAL_NUMBER": "a number",
        "NUMBER": "a number",
        "STRING": "a string",
        "BOOLEAN": "`true`, `false`",
        "ANNOTATION_WORD": "a name",
        "NULLABLE": "`?`",
        "INTERFACE": "`interface`",
        "NODE": "`node`",
        "EDGE": "`edge`",
        "_IMPLEMENTS": "`implements`",
    },
    advise=_advise,
)
