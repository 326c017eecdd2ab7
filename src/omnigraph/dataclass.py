"""The `dataclass` of the standard library, for frozen classes, at a quarter of the import time.

The library compiles six methods for each frozen class, one by one: 0.4 ms, and a query loads some
350 such classes. Here only `__init__` is compiled. The other methods are closures that read the
fields through `attrgetter`, which is as fast as compiled code.

A class gets what the library would give it: fields, `__match_args__`, `replace`, pickling, slots.
Differences: `__dataclass_params__` does not say that it is frozen, so a class and its dataclass
bases use the same decorator; `InitVar` is not supported. What is not frozen, or has an order, is
made by the library itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final

__all__ = ["dataclass"]

_GIVEN: Final = object()
"""The default of a parameter that has a factory."""

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, **options):
        """Make a class of records; the options are those of `dataclasses.dataclass`."""
        if not options.pop("frozen", False):
            return dataclasses.dataclass(cls, **options)
        if options.get("order"):
            return dataclasses.dataclass(cls, frozen=True, **options)

        def made(each):
            return _frozen(each, **options)

        return made if cls is None else made(cls)


def _frozen(
    cls: type,
    *,
    eq: bool = True,
    repr: bool = True,  # noqa: A002 - as the library calls it
    kw_only: bool = False,
    slots: bool = False,
) -> type:
    written = set(vars(cls))
    plain = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)
    made: type = plain(cls)
    fields = dataclasses.fields(made)
    methods = {"__init__": _init(made, fields, slots=slots), **_guards(made, fields)}
    if repr:
        methods["__repr__"] = _repr([field.name for field in fields if field.repr])
    if eq:
        methods["__eq__"] = _eq(_values([field.name for field in fields if field.compare]))
    if slots:
        methods |= _states([field.name for field in fields])
    for name, method in methods.items():
        if name not in written:
            method.__qualname__ = f"{made.__qualname__}.{name}"
            setattr(made, name, method)
    # Python sets the hash of a class with `__eq__` to None; that is not one that it was given.
    if eq and ("__hash__" not in written or vars(cls)["__hash__"] is None):
        hashed = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
        setattr(made, "__hash__", _hash(_values(hashed)))  # noqa: B010 - mypy knows it as a method
    return made


def _init(
    cls: type, fields: tuple[dataclasses.Field[Any], ...], *, slots: bool
) -> Callable[..., None]:
    """Compile `__init__`; its parameters have the order of the library, keywords last."""
    names: dict[str, object] = {"_set": object.__setattr__, "_GIVEN": _GIVEN}
    ordered, keywords, body = ["self"], list[str](), list[str]()
    for field in fields:
        parameter, value = _spelled(field, names, slots=slots)
        if parameter:
            (keywords if field.kw_only else ordered).append(parameter)
        if value:
            body.append(f" _set(self, {field.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    parameters = ", ".join([*ordered, *(["*", *keywords] if keywords else [])])
    exec(f"def __init__({parameters}):\n" + "\n".join(body or [" pass"]), names)  # noqa: S102
    init: Any = names["__init__"]
    init.__annotations__ = {each.name: each.type for each in fields if each.init}
    init.__annotations__["return"] = None
    init.__module__ = cls.__module__
    return init  # type: ignore[no-any-return]


def _spelled(
    field: dataclasses.Field[Any], names: dict[str, object], *, slots: bool
) -> tuple[str, str]:
    """Return the parameter of a field and the value that it gets; what they name goes to `names`.

    Without slots a default that no parameter can change stays an attribute of the class.
    """
    name = field.name
    if field.default_factory is not dataclasses.MISSING:
        names[f"_make_{name}"] = field.default_factory
        if not field.init:
            return "", f"_make_{name}()"
        return f"{name}=_GIVEN", f"_make_{name}() if {name} is _GIVEN else {name}"
    if field.default is dataclasses.MISSING:
        return (name, name) if field.init else ("", "")
    names[f"_default_{name}"] = field.default
    if field.init:
        return f"{name}=_default_{name}", name
    return "", f"_default_{name}" if slots else ""


def _guards(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> dict[str, Callable[..., Any]]:
    names = frozenset(field.name for field in fields)

    def set_attribute(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)  # type: ignore[arg-type]  # it is one

    def delete_attribute(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)  # type: ignore[arg-type]  # it is one

    return {"__setattr__": set_attribute, "__delattr__": delete_attribute}


def _values(names: list[str]) -> Callable[[object], tuple[object, ...]]:
    """Return what reads some attributes as a tuple."""
    if not names:
        return lambda _: ()
    get: Any = attrgetter(*names)
    return get if len(names) > 1 else lambda record: (get(record),)


def _eq(values: Callable[[object], tuple[object, ...]]) -> Callable[..., Any]:
    def equals(self: object, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return equals


def _hash(values: Callable[[object], tuple[object, ...]]) -> Callable[..., Any]:
    def hashed(self: object) -> int:
        return hash(values(self))

    return hashed


def _repr(names: list[str]) -> Callable[..., Any]:
    @recursive_repr()
    def shown(self: object) -> str:
        parts = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({parts})"

    return shown


def _states(names: list[str]) -> dict[str, Callable[..., Any]]:
    """Return what pickles a class with slots: the usual way would assign to them."""

    def get_state(self: object) -> list[object]:
        return [getattr(self, name) for name in names]

    def set_state(self: object, state: list[object]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return {"__getstate__": get_state, "__setstate__": set_state}
