"""The JSON form of stored objects: read strictly, written for people."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, TypeVar

from omnigraph.clock import Clock
from omnigraph.records import MalformedError, Stored, to_json
from omnigraph.texts import read_json

_T = TypeVar("_T")


class UnreadableError(ValueError):
    """The bytes of an object are not of its form."""


class OtherVersionError(ValueError):
    """The object was written in a form that this version does not know."""

    def __init__(self, member: str, found: object, known: int) -> None:
        super().__init__(
            f"{member} is {found!r}, this version of omnigraph reads {known};"
            " use the version that wrote it, or a newer one"
        )


def decode(data: bytes, form: type[_T], *, version_member: str, version: int) -> _T:
    """Read an object whose members are all known.

    Another version is reported before other members are read: a later one may have more of them.
    """
    try:
        value = read_json(data.decode())
    except ValueError as problem:
        raise UnreadableError(f"it is no JSON: {problem}") from None
    found = _version_of(value, version_member)
    if found != version:
        raise OtherVersionError(version_member, found, version)
    try:
        return Stored(value, is_closed=True).record(form)
    except MalformedError as problem:
        raise UnreadableError(str(problem)) from None


def encode(record: Any) -> bytes:
    """Spell an object over several lines, with a line end after the last."""
    return (json.dumps(to_json(record), indent=2, ensure_ascii=False) + "\n").encode()


def moment(clock: Clock) -> str:
    """Return the present time as it is stored.

    >>> class Fixed:
    ...     def now_us(self) -> int:
    ...         return 1_700_000_000_000_000
    >>> moment(Fixed())
    '2023-11-14T22:13:20.000Z'
    """
    now = datetime.fromtimestamp(clock.now_us() / 1_000_000, UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age_s(stored: str, clock: Clock) -> int | None:
    """Return how many whole seconds ago a stored moment was; none if it is no moment."""
    try:
        then = datetime.fromisoformat(stored)
    except ValueError:
        return None
    if then.tzinfo is None:
        return None
    return max(0, int(clock.now_us() / 1_000_000 - then.timestamp()))


def _version_of(value: object, member: str) -> int:
    if not isinstance(value, dict):
        raise UnreadableError(f"expected an object, found {type(value).__name__}")
    found = value.get(member)
    if not isinstance(found, int) or isinstance(found, bool):
        raise UnreadableError(f"member {member} is {found!r}, expected an integer")
    return found
