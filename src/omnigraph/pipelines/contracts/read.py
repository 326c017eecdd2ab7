"""Reads `expectations:`, in pipeline files and in test files: each rule of a type by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, TypeAlias

from omnigraph.pipelines.contracts.model import Bound, ContractRule, RuleKind
from omnigraph.pipelines.file.expect import ExpectError, parse_expect
from omnigraph.pipelines.file.shape import Shape
from omnigraph.strict_yaml import NonText

RULES: Final[tuple[RuleKind, ...]] = ("unique", "not_null", "range", "fresh", "rows", "gq")
_SEVERITIES: Final = ("error", "warn")
_EXPONENT: Final = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+")

Members: TypeAlias = Mapping[str, Shape]


def read_contracts(shape: Shape) -> tuple[ContractRule, ...]:
    """Return every rule of every type; their names differ."""
    return numbered([rule for item in shape.items() for rule in _of_type(item)])


def numbered(rules: Sequence[ContractRule]) -> tuple[ContractRule, ...]:
    """Return rules with different names: a type may have several rules of one kind."""
    found: dict[str, ContractRule] = {}
    for rule in rules:
        names = (rule.name if number == 1 else f"{rule.name} ({number})" for number in count(1))
        name = next(name for name in names if name not in found)
        found[name] = replace(rule, name=name)
    return tuple(found.values())


def _of_type(shape: Shape) -> list[ContractRule]:
    entries = shape.entries(required=("type", "rules"), optional=("severity", "owner"))
    if entries is None or "type" not in entries or "rules" not in entries:
        return []
    severity = entries["severity"].choice(_SEVERITIES) if "severity" in entries else "error"
    owner = entries["owner"].text() if "owner" in entries else None
    maker = _Maker(entries["type"].text(), is_warning=severity == "warn", owner=owner)
    return [rule for item in entries["rules"].items() for rule in _of_rule(maker, item)]


def _of_rule(maker: _Maker, shape: Shape) -> list[ContractRule]:
    members = shape.entries(optional=(*RULES, "at_least", "expect"))
    if members is None:
        return []
    named = [name for name in RULES if name in members]
    if len(named) != 1:
        shape.wrong(f"expected one rule of {', '.join(RULES)}", "missing_key")
        return []
    goes_with = {"at_least": "not_null", "expect": "gq"}
    for key, owner in goes_with.items():
        if key in members and named != [owner]:
            message = f"'{key}' goes with '{owner}'"
            shape.findings.error("unknown_key", members[key].path, message, at_key=True)
    return _READERS[named[0]](maker, members, shape)


@dataclass(frozen=True)
class _Maker:
    """Makes the rules of one type."""

    type_name: str
    is_warning: bool
    owner: str | None

    def rule(
        self,
        kind: RuleKind,
        what: str,
        expect: str,
        shape: Shape,
        *,
        columns: tuple[str, ...] = (),
        low: Bound | None = None,
        high: Bound | None = None,
        text: str = "",
    ) -> ContractRule:
        return ContractRule(
            self.type_name,
            kind,
            f"{self.type_name}: {what}",
            parse_expect(expect),
            shape.path,
            columns=columns,
            low=low,
            high=high,
            text=text,
            is_warning=self.is_warning,
            owner=self.owner,
        )


def _unique(maker: _Maker, members: Members, shape: Shape) -> list[ContractRule]:
    columns = tuple(item.text() for item in members["unique"].items())
    if not columns:
        members["unique"].wrong("expected at least one column")
        return []
    what = f"unique {', '.join(columns)}"
    return [maker.rule("unique", what, "repeated = 0", shape, columns=columns)]


def _not_null(maker: _Maker, members: Members, shape: Shape) -> list[ContractRule]:
    share = members["at_least"].number() if "at_least" in members else 1.0
    column = members["not_null"].text()
    if share is None:
        return []
    if not 0 <= share <= 1:
        members["at_least"].wrong(f"expected a share from 0 to 1, found {share:g}")
        return []
    expect = f"share >= {share}"
    return [maker.rule("not_null", f"not null {column}", expect, shape, columns=(column,))]


def _range(maker: _Maker, members: Members, _: Shape) -> list[ContractRule]:
    found: list[ContractRule] = []
    for column, bounds in (members["range"].members() or {}).items():
        pair = list(bounds.items())
        if len(pair) != 2:
            bounds.wrong("expected two bounds, such as [0, 130]; null leaves one open")
            continue
        low, high = (_bound(one) for one in pair)
        found.append(
            maker.rule(
                "range",
                f"range {column}",
                "outside = 0",
                bounds,
                columns=(column,),
                low=low,
                high=high,
            )
        )
    return found


def _bound(shape: Shape) -> Bound | None:
    """Return a number, or the text of a day or a moment; null leaves a side open."""
    value = shape.value
    if isinstance(value, NonText):
        if value.kind == "null":
            return None
        if value.kind == "timestamp":
            return value.text
        number = shape.number()
        if number is not None and value.kind == "int" and value.text.lstrip("+-").isdecimal():
            return int(value.text)
        return number
    text = shape.text()
    # YAML reads `2e3` as a text.
    return float(text) if _EXPONENT.fullmatch(text) else text or None


def _fresh(maker: _Maker, members: Members, _: Shape) -> list[ContractRule]:
    return [
        maker.rule(
            "fresh", f"fresh {column}", f"age_s <= {age.duration_s()}", age, columns=(column,)
        )
        for column, age in (members["fresh"].members() or {}).items()
    ]


def _rows(maker: _Maker, members: Members, shape: Shape) -> list[ContractRule]:
    bounds = members["rows"].entries(optional=("min", "max")) or {}
    if not bounds:
        members["rows"].wrong("expected 'min', 'max' or both", "missing_key")
        return []
    signs = {"min": ">=", "max": "<="}
    numbers = {key: one.whole_number() for key, one in bounds.items()}
    parts = [f"n {signs[key]} {number}" for key, number in numbers.items() if number is not None]
    return [maker.rule("rows", "rows", " and ".join(parts), shape)] if parts else []


def _gq(maker: _Maker, members: Members, shape: Shape) -> list[ContractRule]:
    if "expect" not in members:
        shape.wrong("'expect' is missing", "missing_key")
        return []
    text = members["gq"].text()
    try:
        return [maker.rule("gq", "gq", members["expect"].text(), shape, text=text)]
    except ExpectError as error:
        members["expect"].wrong(str(error), "bad_expect")
        return []


_READERS: Final[dict[str, Callable[[_Maker, Members, Shape], list[ContractRule]]]] = {
    "unique": _unique,
    "not_null": _not_null,
    "range": _range,
    "fresh": _fresh,
    "rows": _rows,
    "gq": _gq,
}
"""What reads a rule, by its key."""
