"""`expect`: what must hold of the rows of a check.

    expect     := comparison ("and" comparison)*
    comparison := operand ("=" | "!=" | "<>" | "<" | "<=" | ">" | ">=") operand
    operand    := name | number | 'text' | true | false

A name is a column of the one row that the check returns. `rows` is the number of rows, unless a
column has this name; a check that asks for nothing else may return any number of rows.
"""

from __future__ import annotations

import datetime as dt
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

ROWS: Final = "rows"
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<op><=|>=|<>|!=|=|<|>)|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"|'(?P<text>(?:[^']|'')*)'|(?P<name>[A-Za-z_][A-Za-z0-9_.]*))"
)
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WORDS: Final = {"true": True, "false": False}

Literal: TypeAlias = bool | int | Decimal | str


class ExpectError(ValueError):
    """An expectation cannot be read, or cannot be decided."""


@dataclass(frozen=True)
class Name:
    """A column of the row, or `rows`."""

    text: str


@dataclass(frozen=True)
class Comparison:
    """Two operands and how they must compare."""

    left: Name | Literal
    sign: str
    right: Name | Literal


@dataclass(frozen=True)
class Outcome:
    """What a check has found: the value that was compared, and whether the expectation holds."""

    value: object
    passed: bool


@dataclass(frozen=True)
class Expect:
    """An expectation, as it was written and as it is decided."""

    text: str
    comparisons: tuple[Comparison, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it compares, each once."""
        found = [
            side.text
            for one in self.comparisons
            for side in (one.left, one.right)
            if isinstance(side, Name)
        ]
        return tuple(dict.fromkeys(found))

    def needs_row(self, columns: Sequence[str]) -> bool:
        """Whether it compares columns of a row, and not only the number of rows."""
        return any(name != ROWS or ROWS in columns for name in self.names)

    def missing(self, columns: Sequence[str]) -> str | None:
        """Return a name that is no column; None if there is none."""
        return next((name for name in self.names if name not in (*columns, ROWS)), None)

    def decide(self, columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> Outcome:
        """Decide it for the rows of a check."""
        missing = self.missing(columns)
        if missing is not None:
            raise ExpectError(f"'{missing}' is no column of the result: {', '.join(columns)}")
        if self.needs_row(columns) and len(rows) != 1:
            raise ExpectError(f"the check returns {len(rows)} rows; '{self.text}' needs one")
        values: dict[str, object] = {ROWS: len(rows)}
        if len(rows) == 1:
            values |= rows[0]
        passed = all(_holds(one, values) for one in self.comparisons)
        compared = {name: _plain(values[name]) for name in self.names}
        return Outcome(next(iter(compared.values())) if len(compared) == 1 else compared, passed)


def parse_expect(text: str) -> Expect:
    """Read an expectation.

    >>> parse_expect("n = 0 and m >= 1.5").names
    ('n', 'm')
    """
    tokens = _tokens(text)
    comparisons: list[Comparison] = []
    while True:
        if len(tokens) < 3:
            raise ExpectError(
                f"expected a comparison such as 'n = 0' or 'rows >= 1', found '{text}'"
            )
        (left, sign, right), tokens = tokens[:3], tokens[3:]
        if sign[0] != "op" or "op" in (left[0], right[0]):
            raise ExpectError(f"expected a comparison such as 'n = 0', found '{text}'")
        comparisons.append(Comparison(_operand(left), sign[1], _operand(right)))
        if not tokens:
            break
        if tokens[0] != ("name", "and") and tokens[0] != ("name", "AND"):
            raise ExpectError(f"expected 'and' before '{tokens[0][1]}' in '{text}'")
        tokens = tokens[1:]
    expect = Expect(text, tuple(comparisons))
    if not expect.names:
        raise ExpectError(f"'{text}' compares no column; 'rows' is the number of rows")
    return expect


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    position = 0
    while text[position:].strip():
        token = _TOKEN.match(text, position)
        if token is None:
            raise ExpectError(f"cannot read '{text[position:].strip()}' in '{text}'")
        kind = str(token.lastgroup)
        found.append((kind, token[kind]))
        position = token.end()
    return found


def _operand(token: tuple[str, str]) -> Name | Literal:
    kind, text = token
    if kind == "number":
        return Decimal(text) if set(text) & set(".eE") else int(text)
    if kind == "text":
        return text.replace("''", "'")
    return _WORDS.get(text.lower(), Name(text))


def _holds(one: Comparison, values: Mapping[str, object]) -> bool:
    left, right = (_value(side, values) for side in (one.left, one.right))
    if left is None or right is None:
        return False
    try:
        return bool(_OPERATORS[one.sign](left, right))
    except TypeError:
        kinds = " and ".join(type(side).__name__ for side in (left, right))
        raise ExpectError(f"{kinds} cannot be compared") from None


def _value(side: Name | Literal, values: Mapping[str, object]) -> object:
    found = values[side.text] if isinstance(side, Name) else side
    # A float is compared by the digits that it shows: 0.1 in the file means the 0.1 of the row.
    return Decimal(repr(found)) if isinstance(found, float) else _plain_moment(found)


def _plain_moment(value: object) -> object:
    return value.isoformat() if isinstance(value, dt.date | dt.datetime) else value


def _plain(value: object) -> object:
    """Return a value in a form that JSON has."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(_plain_moment(value))
