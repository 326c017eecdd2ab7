"""`expectations:` become checks: each rule of a type is a query and what must hold of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from omnigraph.pipelines.file.expect import ExpectError, parse_expect
from omnigraph.pipelines.file.model import Check
from omnigraph.pipelines.file.shape import Shape
from omnigraph.strict_yaml import NonText

_RULES: Final = ("unique", "not_null", "range", "fresh", "rows", "gq")

Members: TypeAlias = dict[str, Shape]


def quoted_name(name: str) -> str:
    """Return a name as SQL takes it.

    >>> quoted_name("a`b")
    '`a``b`'
    """
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def read_expectations(shape: Shape) -> tuple[Check, ...]:
    """Return a check for every rule of every type."""
    return tuple(check for item in shape.items() for check in _of_type(item))


def _of_type(shape: Shape) -> list[Check]:
    entries = shape.entries(required=("type", "rules"), optional=("severity", "owner"))
    if entries is None or "type" not in entries or "rules" not in entries:
        return []
    type_name = entries["type"].text()
    severity = entries["severity"].choice(("error", "warn")) if "severity" in entries else "error"
    if "owner" in entries:
        entries["owner"].text()
    checks: list[Check] = []
    for rule in entries["rules"].items():
        checks += _of_rule(type_name, rule, is_warning=severity == "warn")
    return checks


def _of_rule(type_name: str, shape: Shape, *, is_warning: bool) -> list[Check]:
    members = shape.entries(optional=(*_RULES, "at_least", "expect"))
    if members is None:
        return []
    named = [name for name in _RULES if name in members]
    if len(named) != 1:
        shape.wrong(f"expected one rule of {', '.join(_RULES)}", "missing_key")
        return []
    rule = _Rule(type_name, shape.path, is_warning)
    return _MAKERS[named[0]](rule, members, shape)


def _unique(rule: _Rule, members: Members, _: Shape) -> list[Check]:
    return [rule.unique([item.text() for item in members["unique"].items()])]


def _not_null(rule: _Rule, members: Members, _: Shape) -> list[Check]:
    share = members["at_least"].number() if "at_least" in members else None
    return [rule.not_null(members["not_null"].text(), 1.0 if share is None else share)]


def _range(rule: _Rule, members: Members, _: Shape) -> list[Check]:
    return [rule.range(*one) for one in _ranges(members["range"])]


def _fresh(rule: _Rule, members: Members, _: Shape) -> list[Check]:
    ages = (members["fresh"].members() or {}).items()
    return [rule.fresh(name, age.duration_s()) for name, age in ages]


def _rows(rule: _Rule, members: Members, _: Shape) -> list[Check]:
    bounds = members["rows"].entries(optional=("min", "max")) or {}
    return [rule.rows({key: one.whole_number() for key, one in bounds.items()})]


def _gq(rule: _Rule, members: Members, shape: Shape) -> list[Check]:
    return rule.gq(members, shape)


def _ranges(shape: Shape) -> list[tuple[str, str | None, str | None]]:
    found = []
    for name, bounds in (shape.members() or {}).items():
        pair = list(bounds.items())
        if len(pair) != 2:
            bounds.wrong("expected two bounds, such as [0, 130]; null leaves one open")
            continue
        low, high = (_bound(one) for one in pair)
        found.append((name, low, high))
    return found


def _bound(shape: Shape) -> str | None:
    if isinstance(shape.value, NonText) and shape.value.kind == "null":
        return None
    shape.number()
    return shape.scalar()


class _Rule:
    """Makes the checks of one rule."""

    def __init__(self, type_name: str, path: str, is_warning: bool) -> None:
        self._type = type_name
        self._path = path
        self._is_warning = is_warning

    def _check(
        self, what: str, text: str, expect: str, language: Literal["gq", "sql"] = "sql"
    ) -> Check:
        name = f"{self._type}: {what}"
        parsed = parse_expect(expect)
        return Check(name, language, text, parsed, self._path, is_warning=self._is_warning)

    def unique(self, columns: list[str]) -> Check:
        names = ", ".join(quoted_name(name) for name in columns)
        known = " AND ".join(f"{quoted_name(name)} IS NOT NULL" for name in columns)
        text = (
            f"SELECT count(*) AS repeated FROM (SELECT 1 FROM {quoted_name(self._type)}"
            f" WHERE {known} GROUP BY {names} HAVING count(*) > 1)"
        )
        return self._check(f"unique {', '.join(columns)}", text, "repeated = 0")

    def not_null(self, column: str, share: float) -> Check:
        text = (
            f"SELECT coalesce(avg(if({quoted_name(column)} IS NULL, 0.0D, 1.0D)), 1.0D) AS share"
            f" FROM {quoted_name(self._type)}"
        )
        return self._check(f"not null {column}", text, f"share >= {share}")

    def range(self, column: str, low: str | None, high: str | None) -> Check:
        name = quoted_name(column)
        outside = [f"{name} < {low}"] * (low is not None) + [f"{name} > {high}"] * (
            high is not None
        )
        where = " OR ".join(outside) or "false"
        text = f"SELECT count(*) AS outside FROM {quoted_name(self._type)} WHERE {where}"
        return self._check(f"range {column}", text, "outside = 0")

    def fresh(self, column: str, age_s: int) -> Check:
        text = (
            f"SELECT unix_seconds(current_timestamp()) - unix_seconds(CAST(max("
            f"{quoted_name(column)}) AS TIMESTAMP)) AS age_s FROM {quoted_name(self._type)}"
        )
        return self._check(f"fresh {column}", text, f"age_s <= {age_s}")

    def rows(self, bounds: dict[str, int | None]) -> Check:
        signs = {"min": ">=", "max": "<="}
        parts = [f"n {signs[key]} {bound}" for key, bound in bounds.items() if bound is not None]
        text = f"SELECT count(*) AS n FROM {quoted_name(self._type)}"
        return self._check("rows", text, " and ".join(parts) or "n >= 0")

    def gq(self, members: dict[str, Shape], shape: Shape) -> list[Check]:
        if "expect" not in members:
            shape.wrong("'expect' is missing", "missing_key")
            return []
        text = members["gq"].text()
        try:
            return [self._check("gq", text, members["expect"].text(), "gq")]
        except ExpectError as error:
            members["expect"].wrong(str(error), "bad_expect")
            return []


_MAKERS: Final[dict[str, Callable[[_Rule, Members, Shape], list[Check]]]] = {
    "unique": _unique,
    "not_null": _not_null,
    "range": _range,
    "fresh": _fresh,
    "rows": _rows,
    "gq": _gq,
}
"""What makes the checks of a rule, by its key."""
