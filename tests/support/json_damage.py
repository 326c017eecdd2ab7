"""Exchanges single values of a JSON form, as damage or another writer would."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any


def places(form: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value of a form, the form itself first."""
    yield place
    if isinstance(form, dict):
        for name, inner in form.items():
            yield from places(inner, (*place, name))
    elif isinstance(form, list):
        for number, inner in enumerate(form):
            yield from places(inner, (*place, number))


def exchanged(form: Any, place: tuple[Any, ...], value: object) -> Any:
    """Return a form with another value at one place."""
    if not place:
        return value
    changed = copy(form)
    changed[place[0]] = exchanged(form[place[0]], place[1:], value)
    return changed
