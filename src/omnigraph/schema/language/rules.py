"""Rules of bodies: keys, unique tuples, index intents, ranges and patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.language import codes
from omnigraph.schema.language.annotations import unsupported_shape
from omnigraph.schema.language.canonical import canonical_constraints
from omnigraph.schema.language.problems import Problem, Suggester
from omnigraph.schema.language.shape import ShapeConstraint
from omnigraph.schema.language.tree import RuleDecl
from omnigraph.syntax import Span
from omnigraph.values import PropType, Scalar

ENDPOINTS: Final = ("src", "dst")
"""What a rule of an edge may name besides its properties."""

_ENDPOINT_TYPE: Final = PropType(Scalar.STRING)
_EDGE_RULES: Final = frozenset({"key", "unique", "index"})
# Not `pa.array`, which loads pandas; not an empty array, for which Arrow compiles no pattern.
_ONE_TEXT: Final = pa.nulls(1, pa.utf8())


def read_rules(rules: Sequence[RuleDecl]) -> tuple[ShapeConstraint, ...]:
    """Put rules into canonical form."""
    return tuple(
        canonical_constraints(
            ShapeConstraint(rule.kind, rule.fields, rule.min, rule.max, rule.pattern)
            for rule in rules
        )
    )


@dataclass(frozen=True)
class Members:
    """What the rules of one type may name.

    `is_complete` is false when an interface of the type could not be read: an unknown member may
    come from there.
    """

    types: Mapping[str, PropType]
    is_complete: bool = True


def check_node_rules(
    rules: Sequence[RuleDecl], members: Members, suggester: Suggester
) -> Iterator[Problem]:
    """Find what is wrong with the rules of a node."""
    for rule in rules:
        yield from _check_rule(rule, members, suggester)


def check_edge_rules(
    rules: Sequence[RuleDecl], properties: Mapping[str, PropType], suggester: Suggester
) -> Iterator[Problem]:
    """Find what is wrong with the rules of an edge."""
    members = Members({**properties, **dict.fromkeys(ENDPOINTS, _ENDPOINT_TYPE)})
    for rule in rules:
        if rule.kind in _EDGE_RULES:
            yield from _check_rule(rule, members, suggester)
            yield from _check_edge_key(rule)
        else:
            message = f"@{rule.kind} is not supported on edges"
            yield Problem(codes.NOT_ON_EDGES, message, rule.span)


def _check_edge_key(rule: RuleDecl) -> Iterator[Problem]:
    missing = [end for end in ENDPOINTS if end not in rule.fields]
    if rule.kind == "key" and missing:
        message = f"@key of an edge lacks {' and '.join(repr(end) for end in missing)}"
        hint = "write it as `@key(src, dst)`, with properties behind them"
        yield Problem(codes.EDGE_KEY_ENDS, message, rule.span, hint)


def _check_rule(rule: RuleDecl, members: Members, suggester: Suggester) -> Iterator[Problem]:
    for name, span in zip(rule.fields, rule.field_spans, strict=True):
        prop_type = members.types.get(name)
        if prop_type is not None:
            yield from _MEMBER_CHECKS[rule.kind](rule, name, prop_type, span)
        elif members.is_complete:
            message = f"@{rule.kind} references unknown property '{name}'"
            hint = suggester.hint(name, members.types)
            yield Problem(codes.MEMBER_UNKNOWN, message, span, hint)
    if rule.pattern is not None:
        yield from _check_pattern(rule.pattern, rule.value_span or rule.span)


def _check_member(rule: RuleDecl, name: str, prop_type: PropType, span: Span) -> Iterator[Problem]:
    shape = unsupported_shape(rule.kind, prop_type, is_annotation=False)
    if shape is not None:
        message = f"@{rule.kind} is not supported on {shape} property '{name}'"
        yield Problem(codes.NOT_ON_TYPE, message, span)
    if rule.kind == "key" and prop_type.nullable:
        message = f"@key property '{name}' cannot be nullable"
        yield Problem(codes.KEY_NULLABLE, message, span, "remove the `?` from its type")


def _check_range(_rule: RuleDecl, name: str, prop_type: PropType, span: Span) -> Iterator[Problem]:
    if prop_type.is_list or not prop_type.scalar.is_numeric:
        needs = "@range requires a numeric type"
        yield Problem(codes.RANGE_TYPE, _wrong_type(needs, name, prop_type), span)


def _check_text(_rule: RuleDecl, name: str, prop_type: PropType, span: Span) -> Iterator[Problem]:
    if prop_type.is_list or prop_type.scalar is not Scalar.STRING:
        needs = "@check requires String type"
        yield Problem(codes.CHECK_TYPE, _wrong_type(needs, name, prop_type), span)


def _wrong_type(needs: str, name: str, prop_type: PropType) -> str:
    shape = _shape_word(prop_type)
    extra = f" and is not supported on {shape} property '{name}'" if shape else ""
    return f"{needs}{extra}, found '{name}: {prop_type}'"


def _shape_word(prop_type: PropType) -> str | None:
    if prop_type.is_list:
        return "list"
    return {Scalar.VECTOR: "vector", Scalar.BLOB: "blob"}.get(prop_type.scalar)


_MemberCheck = Callable[[RuleDecl, str, PropType, Span], Iterator[Problem]]

_MEMBER_CHECKS: Final[Mapping[str, _MemberCheck]] = {
    "key": _check_member,
    "unique": _check_member,
    "index": _check_member,
    "range": _check_range,
    "check": _check_text,
}


def _check_pattern(pattern: str, span: Span) -> Iterator[Problem]:
    """Compile a pattern with the engine that will search with it."""
    try:
        pc.match_substring_regex(_ONE_TEXT, pattern=pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        message = f"the pattern of @check is not a valid regular expression: {reason}"
        hint = "patterns follow RE2: no look-around, no back-references"
        yield Problem(codes.CHECK_PATTERN, message, span, hint)
