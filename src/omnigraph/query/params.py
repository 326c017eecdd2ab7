"""Parameter values: one JSON object in, typed values out.

| declared | JSON accepted | value kept |
|---|---|---|
| `String`, `Blob` | string | `str` |
| `I32` `I64` `U32` `U64` | whole number or decimal string, in range (`U64` up to 2^63-1) | `int` |
| `F32` `F64` | number | `float`, rounded to the nearest F32 for `F32` |
| `Bool` | true, false | `bool` |
| `Date` | `"YYYY-MM-DD"` | `int`, days since 1970-01-01 |
| `DateTime` | ISO 8601 string | `int`, milliseconds since 1970-01-01 UTC |
| `[T]` | array without nulls | `tuple` |
| `Vector(n)` | array of n numbers | `tuple` of n floats, each rounded to the nearest F32 |

Callers in Python may give `date`, `datetime` (without a zone: UTC), `bytes` for a blob, and scalars
and arrays of NumPy; each is read as the JSON value that spells it.

A null value is None. Days and milliseconds are what the Arrow columns hold, so an executor compares
them without another conversion; `BoundValue.arrow` gives the value as an Arrow scalar.

    >>> from omnigraph.query.language.parse import parse_queries
    >>> query = parse_queries('''query q($tag: String, $since: Date?) {
    ...     match { $c: Crew { tag: $tag } } return { $c } }''').queries[0]
    >>> values = coerce_params(query.parameters, {"tag": "ann", "since": "1970-01-03"})
    >>> values["tag"].value, values["since"].value
    ('ann', 2)
"""

from __future__ import annotations

import base64
import datetime
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.names import nearest_name
from omnigraph.query.check.cast import INTEGER_RANGES, round_to_f32
from omnigraph.query.date_literals import parse_moments
from omnigraph.query.language import codes
from omnigraph.query.language.tree import Parameter
from omnigraph.query.plan.plan import Constant, ConstantValue, EnumUse, PlanParameter
from omnigraph.values import PropType, Scalar

ParamScalar = str | int | float | bool

_RANGES: Final = {**INTEGER_RANGES, Scalar.U64: (0, 2**63 - 1)}

_SHOWN_MAX: Final = 60
_PROBLEMS_MAX: Final = 100


# -- results ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoundValue:
    """A value of a request, typed; None is null. See the table above for `value`."""

    value: ConstantValue | None
    prop_type: PropType

    @property
    def constant(self) -> Constant | None:
        """The same as a constant of a plan; None when it is null."""
        return None if self.value is None else Constant(self.value, self.prop_type)

    @property
    def arrow(self) -> pa.Scalar:
        """The value in the Arrow type of its declaration; a blob is its URI or base64 text."""
        if self.prop_type.scalar is Scalar.BLOB:
            item = pa.utf8()
            return pa.scalar(self.value, pa.list_(item) if self.prop_type.is_list else item)
        return pa.scalar(self.value, self.prop_type.arrow_type)


Params: TypeAlias = Mapping[str, BoundValue]
"""The values of all declared parameters, by name, in the order of their declaration."""


@dataclass(frozen=True)
class ParamProblem:
    """One thing wrong with the parameters of a request; `name` is None when it is about all."""

    code: str
    message: str
    name: str | None = None
    hint: str | None = None


class ParamsError(InvalidInputError):
    """The parameters of a request do not fit the query; carries every problem."""

    code = "OG-PARAMS"

    def __init__(self, problems: Iterable[ParamProblem]) -> None:
        self.problems: tuple[ParamProblem, ...] = tuple(problems)
        hints = (problem.hint for problem in self.problems if problem.hint)
        self.hint = next(hints, "fix the parameters, then try again")
        super().__init__("\n".join(problem.message for problem in self.problems))


# -- coercion -----------------------------------------------------------------------------------


def coerce_params(
    parameters: Sequence[Parameter], given: object, *, ignores_unknown: bool = False
) -> Params:
    """Return a value for each declared parameter, or raise `ParamsError` with all that is wrong.

    `given` is a decoded JSON object keyed by names without `$`; None means no parameters. A key
    that no parameter has is wrong too, unless `ignores_unknown`.
    """
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        message = "params must be a JSON object"
        hint = f"found {_shown(given)}"
        raise ParamsError([ParamProblem(codes.PARAMS_NOT_AN_OBJECT, message, hint=hint)])
    declared = {parameter.name for parameter in parameters}
    problems = [_object_problem(name) for name in _unknown_objects(given, declared)]
    values: dict[str, BoundValue] = {}
    for parameter in parameters:
        try:
            values[parameter.name] = _coerce_one(parameter, given, declared)
        except _RefusedError as refused:
            problems.append(refused.problem)
    if not ignores_unknown:
        # A misspelled name that the hint of a missing parameter names is one mistake, not two.
        hinted = " ".join(problem.hint or "" for problem in problems)
        problems += [
            problem
            for problem in unknown_params(parameters, given)
            if f"'{problem.name}'" not in hinted
        ]
    if problems:
        raise ParamsError(problems[:_PROBLEMS_MAX])
    return values


def unknown_params(parameters: Sequence[Parameter], given: object) -> list[ParamProblem]:
    """Return a problem for each value that is given for no declared parameter."""
    if not isinstance(given, Mapping):
        return []
    declared = {parameter.name: None for parameter in parameters}
    return [
        _unknown(str(name), declared)
        for name, value in given.items()
        if name not in declared and not isinstance(value, Mapping)
    ]


def _unknown(name: str, declared: Iterable[str]) -> ParamProblem:
    known = list(declared)
    typo = nearest_name(name.removeprefix("$"), known)
    if typo:
        hint = f"did you mean '{typo}'?"
    else:
        hint = f"it declares {', '.join(known)}" if known else "it declares no parameter"
    return param_problem(codes.PARAM_UNKNOWN, name, "the query declares no such parameter", hint)


def require_enum_values(parameters: Sequence[PlanParameter], params: Params) -> None:
    """Raise `ParamsError` unless parameters fit the enum properties that they are compared with."""
    problems = [
        problem
        for parameter in parameters
        for use in parameter.enums
        for problem in _enum_problems(parameter.name, use, params[parameter.name].value)
    ]
    if problems:
        raise ParamsError(problems[:_PROBLEMS_MAX])


def _enum_problems(name: str, use: EnumUse, value: ConstantValue | None) -> Iterator[ParamProblem]:
    items = value if isinstance(value, tuple) else (value,)
    for item in items:
        if item is None or item in use.values:
            continue
        typo = nearest_name(str(item), use.values)
        what = f"'{_cut(str(item))}' is not a value of the enum property '{use.property}'"
        hint = f"did you mean '{typo}'?" if typo else f"values: {', '.join(use.values)}"
        yield param_problem(codes.PARAM_ENUM, name, what, hint)


def _unknown_objects(given: Mapping[object, object], declared: set[str]) -> list[object]:
    return [
        name for name, value in given.items() if isinstance(value, Mapping) and name not in declared
    ]


def _object_problem(name: object) -> ParamProblem:
    message = f"param '{name}': a JSON object is not a parameter value"
    return ParamProblem(codes.PARAM_OBJECT, message, str(name))


def _coerce_one(
    parameter: Parameter, given: Mapping[object, object], declared: set[str]
) -> BoundValue:
    name, prop_type = parameter.name, parameter.prop_type
    if name not in given:
        if not prop_type.nullable:
            raise _missing(name, given, declared)
        return BoundValue(None, prop_type)
    value = _plain(given[name])
    if value is None:
        if not prop_type.nullable:
            hint = f"declare it as `{prop_type}?` to allow null"
            raise _refuse(codes.PARAM_NULL, name, f"null is not a value of {prop_type}", hint)
        return BoundValue(None, prop_type)
    if isinstance(value, Mapping):
        raise _RefusedError(_object_problem(name))
    return BoundValue(_coerce(name, prop_type, value), prop_type)


def _missing(name: str, given: Mapping[object, object], declared: set[str]) -> _RefusedError:
    unused = [key for key in given if isinstance(key, str) and key not in declared]
    typo = nearest_name(name, unused)
    hint = f"'{typo}' was given, did you mean '{name}'?" if typo else None
    return _RefusedError(
        ParamProblem(codes.PARAM_MISSING, f"parameter '{name}' not provided", name, hint)
    )


class _RefusedError(Exception):
    """Carries one problem from where it is found to where all are collected."""

    def __init__(self, problem: ParamProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def param_problem(code: str, name: str, what: str, hint: str | None = None) -> ParamProblem:
    """Return what is wrong with one parameter."""
    return ParamProblem(code, f"param '{name}': {what}", name, hint)


def _refuse(code: str, name: str, what: str, hint: str | None = None) -> _RefusedError:
    return _RefusedError(param_problem(code, name, what, hint))


def _coerce(name: str, prop_type: PropType, value: object) -> ConstantValue:
    if not prop_type.is_list and not prop_type.is_vector:
        return _coerce_scalars(name, prop_type.scalar, [value], where="")[0]
    if not isinstance(value, list | tuple):
        raise _refuse(codes.PARAM_KIND, name, f"expected {prop_type}, found {_shown(value)}")
    if prop_type.dimension is not None and len(value) != prop_type.dimension:
        what = f"expected {prop_type.dimension} numbers, found {len(value)}"
        raise _refuse(codes.PARAM_LENGTH, name, what)
    scalar = Scalar.F32 if prop_type.is_vector else prop_type.scalar
    return tuple(_coerce_scalars(name, scalar, value, where="element {}: "))


def _coerce_scalars(
    name: str, scalar: Scalar, values: Sequence[object], *, where: str
) -> list[ParamScalar]:
    """Coerce the elements of a list, or a single value; `where` is filled with the index of one."""
    convert = _CONVERSIONS.get(scalar, _text)
    found: list[ParamScalar] = []
    for index, given in enumerate(values):
        value = given
        try:
            if type(value) not in _JSON_SCALARS:
                value = _plain(value, is_blob=scalar is Scalar.BLOB)
            found.append(convert(scalar, value))
        except _WrongValueError as wrong:
            raise _refuse(wrong.code, name, where.format(index) + wrong.what) from None
    if scalar in (Scalar.DATE, Scalar.DATETIME):
        return _moments(name, scalar, [str(text) for text in found], where=where)
    return found


_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_PLAIN_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _plain_day(text: str) -> int | None:
    """Read the usual form of a day, which takes no array; None for every other text."""
    if not _PLAIN_DAY.fullmatch(text):
        return None
    try:
        return datetime.date.fromisoformat(text).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def _moments(name: str, scalar: Scalar, texts: list[str], *, where: str) -> list[ParamScalar]:
    if len(texts) == 1 and scalar is Scalar.DATE:
        day = _plain_day(texts[0])
        if day is not None:
            return [day]
    moments: list[ParamScalar] = []
    for index, moment in enumerate(parse_moments(texts, scalar)):
        if moment is None:
            what = f"{where.format(index)}invalid {scalar} literal '{_cut(texts[index])}'"
            raise _refuse(codes.PARAM_MOMENT, name, what, _MOMENT_FORMS[scalar])
        moments.append(moment)
    return moments


_MOMENT_FORMS: Final = {
    Scalar.DATE: 'write it as "2026-03-06"',
    Scalar.DATETIME: 'write it as "2026-03-06T12:00:00Z"',
}


_JSON_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def _plain(value: object, *, is_blob: bool = False) -> object:
    """Return what a value of Python or NumPy is in JSON, or the value itself."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, bytes) and is_blob:
        return "base64:" + base64.b64encode(value).decode()
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return value


# -- single values ------------------------------------------------------------------------------


class _WrongValueError(Exception):
    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code = code
        self.what = what


def _expected(scalar: Scalar, value: object) -> _WrongValueError:
    if value is None:
        return _WrongValueError(codes.PARAM_NULL, "null is not an element of a list")
    return _WrongValueError(codes.PARAM_KIND, f"expected {scalar}, found {_shown(value)}")


def _text(scalar: Scalar, value: object) -> str:
    if not isinstance(value, str):
        raise _expected(scalar, value)
    if not value.isascii() and _SURROGATE.search(value):
        what = f"expected {scalar}, found text with half of a surrogate pair"
        raise _WrongValueError(codes.PARAM_KIND, what)
    return value


def _boolean(scalar: Scalar, value: object) -> bool:
    if not isinstance(value, bool):
        raise _expected(scalar, value)
    return value


def _integer(scalar: Scalar, value: object) -> int:
    number = _whole(scalar, value)
    low, high = _RANGES[scalar]
    if low <= number <= high:
        return number
    shown = _cut(value if isinstance(value, str) else _digits(number))
    what = f"{shown} is out of range for {scalar}, which holds {low} to {high}"
    raise _WrongValueError(codes.PARAM_RANGE, what)


def _whole(scalar: Scalar, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        digits = value.lstrip("+-").lstrip("0")
        number = int(digits or "0") if len(digits) <= _DIGITS_MAX else _BEYOND
        return -number if value[0] == "-" else number
    raise _expected(scalar, value)


def _float(scalar: Scalar, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _expected(scalar, value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    rounded = round_to_f32(number) if scalar is Scalar.F32 and math.isfinite(number) else number
    if rounded is None or not math.isfinite(rounded):
        what = f"{_cut(_digits(value))} is not a finite number of {scalar}"
        raise _WrongValueError(codes.PARAM_RANGE, what)
    return rounded


_CONVERSIONS: Final[dict[Scalar, Callable[[Scalar, object], ParamScalar]]] = {
    Scalar.BOOL: _boolean,
    **dict.fromkeys(_RANGES, _integer),
    Scalar.F32: _float,
    Scalar.F64: _float,
}
"""How a JSON value becomes a scalar; texts, blobs, dates and moments all start as strings."""

_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]+")
_DIGITS_MAX: Final = 20
_BEYOND: Final = 2**64
"""Stands for any number with more digits than 64 bits have."""


# -- messages -----------------------------------------------------------------------------------


def _shown(value: object) -> str:
    """Name a JSON value with its type, cut to a readable length."""
    match value:
        case bool():
            return f"boolean {str(value).lower()}"
        case int() | float():
            return f"number {_cut(_digits(value))}"
        case str():
            return f"string '{_cut(value)}'"
        case list() | tuple():
            return f"array of {len(value)}"
        case _:
            return "null" if value is None else f"{type(value).__name__} object"


def _digits(value: int | float) -> str:
    """Spell a number; Python refuses to spell an integer with thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 256:
        return "an integer beyond 256 bits"
    return repr(value)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"
