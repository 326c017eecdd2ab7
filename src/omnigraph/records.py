"""Stored JSON as frozen dataclasses, and back, by the annotations of their fields.

| annotation | in JSON |
|---|---|
| `str`, `int`, `bool` | a string, an integer that is not negative, true or false |
| `X | None` | null, or X |
| `tuple[X, ...]` | a list |
| `Mapping[str, X]` | an object with any members |
| `Literal[...]`, an enum | one of the values |
| a dataclass | an object: its fields are the members, in their order |
| `Annotated[X, read]` | what the function `read` takes |

The metadata of a field says more: `member(...)` is its name in JSON; it is not stored if `HIDDEN`;
if `OPTIONAL`, it comes last, and not at all where it is `None` or empty. Fields that do not compare
are not stored either. `to_json.register` adds a type with a form of its own.

| how it is read | unknown members | members of fields that have a default |
|---|---|---|
| by default | ignored | may be missing |
| `is_closed` | refused | may be missing |
| `is_strict` | refused | must be there, unless `OPTIONAL` |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from functools import cache, singledispatch
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from omnigraph.dataclass import dataclass

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
JsonObject = dict[str, Json]

_T = TypeVar("_T")
_SHOWN_MAX: Final = 60


class MalformedError(ValueError):
    """A stored value is missing, or is not what it must be."""

    def __init__(self, path: str, expected: str, found: object) -> None:
        self.path = path
        self.expected = expected
        shown = repr(found)
        shown = shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}…"
        super().__init__(f"member {path} is {shown}, expected {expected}")


@dataclass(frozen=True)
class Stored:
    """A JSON value, its path, and how the members of objects are checked."""

    value: Any
    path: str = ""
    is_strict: bool = False
    is_closed: bool = False

    def fail(self, expected: str) -> MalformedError:
        """Return the error that says what should be here."""
        return MalformedError(self.path, expected, self.value)

    def inner(self, name: str, default: Json = None) -> Stored:
        """Take a member of an object, or the default where it is not there."""
        value = self.object().get(name, default)
        return self._at(value, f"{self.path}.{name}" if self.path else name)

    def members(self, *names: str) -> dict[str, Stored]:
        """Take an object that has exactly these members."""
        if set(self.object()) != set(names):
            found = ", ".join(sorted(self.value)) or "none"
            raise self.fail(f"the members {', '.join(names)}, found {found}")
        return {name: self.inner(name) for name in names}

    def object(self) -> JsonObject:
        """Take an object as it is."""
        if not isinstance(self.value, dict):
            raise self.fail("an object")
        return self.value

    def items(self, read: Callable[[Stored], _T]) -> tuple[_T, ...]:
        """Take a list of things of one kind."""
        if not isinstance(self.value, list):
            raise self.fail("a list")
        return tuple(
            read(self._at(item, f"{self.path}[{index}]")) for index, item in enumerate(self.value)
        )

    def mapping(self, read: Callable[[Stored], _T]) -> dict[str, _T]:
        """Take an object whose members are all of one kind."""
        return {name: read(self.inner(name)) for name in self.object()}

    def only(self, names: Sequence[str]) -> Stored:
        """Take an object that has no other members than these."""
        for name in self.object():
            if name not in names:
                raise self.inner(name).fail(f"no such member; known are {', '.join(names)}")
        return self

    def text(self) -> str:
        """Take a string."""
        if not isinstance(self.value, str):
            raise self.fail("a string")
        return self.value

    def integer(self, low: int = 0) -> int:
        """Take an integer of at least `low`."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < low:
            raise self.fail(f"an integer of at least {low}")
        return self.value

    def boolean(self) -> bool:
        """Take true or false."""
        if not isinstance(self.value, bool):
            raise self.fail("true or false")
        return self.value

    def one_of(self, choices: Sequence[str]) -> str:
        """Take one of these strings."""
        if self.value not in choices:
            raise self.fail(f"one of {', '.join(choices)}")
        return str(self.value)

    def optional(self, read: Callable[[Stored], _T]) -> _T | None:
        """Take null, or what `read` takes."""
        return None if self.value is None else read(self)

    def record(self, form: type[_T]) -> _T:
        """Take what an annotation describes, such as a dataclass."""
        annotation: Any = form
        return cast("_T", _reader_of(annotation)(self))

    def _at(self, value: Any, path: str) -> Stored:
        return Stored(value, path, self.is_strict, self.is_closed)


HIDDEN: Final = {"hidden": True}
OPTIONAL: Final = {"optional": True}


def member(name: str) -> dict[str, str]:
    """Return the metadata of a field that has another name in JSON."""
    return {"member": name}


@singledispatch
def to_json(value: Any) -> Any:
    """Return the stored form of a value."""
    form: Any = type(value)
    if form in _AS_IS or not is_dataclass(value):
        return value
    members: JsonObject = {}
    left: JsonObject = {}
    for name, named, is_optional in _members_of(form):
        found = getattr(value, name)
        spelled = found if type(found) in _AS_IS else to_json(found)
        if not is_optional:
            members[named] = spelled
        elif found is not None and found not in ((), {}):
            left[named] = spelled
    return members | left


_AS_IS: Final = frozenset({str, int, float, bool, NoneType})


@to_json.register(tuple)
def _(value: tuple[Any, ...]) -> list[Json]:
    return [to_json(item) for item in value]


@to_json.register(Mapping)
def _(value: Mapping[str, Any]) -> JsonObject:
    return {name: to_json(item) for name, item in value.items()}


@cache
def _members_of(form: type) -> tuple[tuple[str, str, bool], ...]:
    """Return name, JSON name and whether it may be left out, of every field that is stored."""
    return tuple(
        (each.name, _member_of(each), each.metadata.get("optional", False))
        for each in fields(form)
        if each.compare and not each.metadata.get("hidden")
    )


def _member_of(each: Field[Any]) -> str:
    return each.metadata.get("member") or each.name


@cache
def _reader_of(form: Any) -> Callable[[Stored], Any]:
    origin, arguments = get_origin(form), get_args(form)
    if origin is Annotated:
        return cast("Callable[[Stored], Any]", arguments[1])
    if origin in (Union, UnionType):
        (some,) = (_reader_of(each) for each in arguments if each is not NoneType)
        return lambda at: at.optional(some)
    if origin in _OF_MANY:
        take, item = _OF_MANY[origin], _reader_of(arguments[origin is Mapping])
        return lambda at: take(at, item)
    if origin is Literal:
        return lambda at: at.one_of(arguments)
    if isinstance(form, type) and issubclass(form, StrEnum):
        return lambda at: form(at.one_of(list(form)))
    return _PLAIN[form] if form in _PLAIN else _record_reader(form)


_OF_MANY: Final[dict[Any, Callable[..., Any]]] = {tuple: Stored.items, Mapping: Stored.mapping}
_PLAIN: Final[dict[type, Callable[[Stored], Any]]] = {
    str: Stored.text,
    int: Stored.integer,
    bool: Stored.boolean,
}


def _record_reader(form: type[Any]) -> Callable[[Stored], Any]:
    hints = get_type_hints(form, include_extras=True)
    readers = {
        each.name: (_member_of(each), _reader_of(hints[each.name]), _has_default(each))
        for each in fields(form)
    }
    names = [member for member, _, _ in readers.values()]
    optional = {_member_of(each) for each in fields(form) if each.metadata.get("optional")}

    def read(at: Stored) -> Any:
        if at.is_closed:
            at.only(names)
        if at.is_strict:
            at.members(*(name for name in names if name not in optional or name in at.object()))
        values = {}
        for name, (member, reader, has_default) in readers.items():
            if has_default and member not in at.object():
                continue
            values[name] = reader(at.inner(member))
        return form(**values)

    return read


def _has_default(each: Field[Any]) -> bool:
    return each.default is not MISSING or each.default_factory is not MISSING
