"""YAML read strictly: what could be misread is an error.

1. One document of at most `BYTES_MAX` bytes, nested at most `DEPTH_MAX` deep.
2. No anchors, aliases and tags, so a short text cannot stand for a long one.
3. Keys are text, and no key stands twice in a map.
4. A scalar that is not text stays a `NonText`: `no` or `1` in place of a name is never guessed.

Messages name what they are about by its path (`rules[1].allow`). A text that is no YAML at all is
described by line and column; a reader that wants positions of values passes a map for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from omnigraph.texts import is_encodable, on_one_line

BYTES_MAX: Final = 1_048_576
DEPTH_MAX: Final = 16
_SHOWN_MAX: Final = 120
_INDEX: Final = re.compile(r"\[\d+\]")
_TAG_PREFIX: Final = "tag:yaml.org,2002:"
_KINDS: Final = {
    "bool": "a boolean",
    "float": "a number",
    "int": "a number",
    "null": "nothing",
    "timestamp": "a date",
}


class StrictYamlError(ValueError):
    """A text breaks a rule of this module, or a value is not of the shape that was asked for."""

    mark: Mark | None = None
    """Where, as far as it is known."""


@dataclass(frozen=True)
class Mark:
    """A position in the text: line and column, both from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Location:
    """Where an entry of a map or an item of a list begins, and where its value does."""

    key: Mark
    value: Mark


@dataclass(frozen=True)
class RepeatedKey:
    """A key that stands twice in a map.

    `path` leads to the key; items of lists are `[]` in it. Lines count from 1.
    """

    path: str
    line: int
    first_line: int


@dataclass(frozen=True)
class NonText:
    """A scalar that YAML does not read as text: a number, a boolean, a date, nothing."""

    kind: str
    text: str


VERSION: Final = NonText("int", "1")
"""The version of the files that are read by this module."""

Value: TypeAlias = "str | NonText | list[Value] | dict[str, Value]"


def quoted(text: str) -> str:
    r"""Return a name as messages show it: on one line, and of bounded length.

    >>> quoted("a\nb")
    "'a\\nb'"
    """
    shown = on_one_line(text)
    return f"'{shown}'" if len(shown) <= _SHOWN_MAX else f"'{shown[:_SHOWN_MAX]}…'"


def read_yaml(
    text: str,
    *,
    repeats: list[RepeatedKey] | None = None,
    locations: dict[str, Location] | None = None,
) -> Value:
    """Read a document, or raise a `StrictYamlError` that says what is wrong.

    With a list for `repeats`, keys that stand twice are collected there, also those before an
    error; the first value of such a key is kept. A map for `locations` is filled with the place of
    every value, by its path.

    >>> read_yaml("a: [x, 1]")
    {'a': ['x', NonText(kind='int', text='1')]}
    """
    if not is_encodable(text):
        raise StrictYamlError("the text has no UTF-8 form")
    if len(text.encode()) > BYTES_MAX:
        raise StrictYamlError(f"the text is longer than {BYTES_MAX} bytes")
    # PyYAML costs some milliseconds to import, and few runs have a policy.
    import yaml  # noqa: PLC0415

    reader = _Reader(text, repeats, locations)
    try:
        return reader.document()
    except StrictYamlError as error:
        error.mark = reader.mark
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        broken = StrictYamlError(f"the text is not YAML: {where}{error.problem}")
        broken.mark = None if mark is None else Mark(mark.line + 1, mark.column + 1)
        raise broken from error
    except yaml.YAMLError as error:
        first = str(error).splitlines()[0]
        raise StrictYamlError(f"the text is not YAML: {first}") from error


class _Reader:
    """Builds plain values from the events of the parser, so that nothing is constructed by tag."""

    def __init__(
        self, text: str, repeats: list[RepeatedKey] | None, locations: dict[str, Location] | None
    ) -> None:
        import yaml  # noqa: PLC0415 - as in `read_yaml`

        self._repeats = repeats
        self._locations = {} if locations is None else locations
        self._yaml = yaml
        # Both give the same events. Releases of PyYAML without its C part have only the slow one.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        self._next = loader.get_event
        self._resolve = partial(loader.resolve, yaml.ScalarNode)
        self.mark: Mark | None = None
        """Where the last value or key begins that was looked at."""

    def document(self) -> Value:
        yaml = self._yaml
        self._next()
        if isinstance(self._next(), yaml.StreamEndEvent):
            raise StrictYamlError("the text is empty")
        value = self._value(self._next(), "", 0)
        self._next()
        if not isinstance(self._next(), yaml.StreamEndEvent):
            raise StrictYamlError("the text holds more than one document")
        return value

    def _value(self, event: object, path: str, depth: int) -> Value:
        yaml = self._yaml
        self.mark = _mark_of(event)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise StrictYamlError(f"{path or 'the text'}: anchors and aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise StrictYamlError(f"{path or 'the text'}: tags are not allowed")
        if depth > DEPTH_MAX:
            raise StrictYamlError(f"the text nests deeper than {DEPTH_MAX}")
        if isinstance(event, yaml.MappingStartEvent):
            return self._map(path, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(path, depth)
        assert isinstance(event, yaml.ScalarEvent)  # noqa: S101 - the parser has no other events
        kind = self._resolve(event.value, event.implicit).removeprefix(_TAG_PREFIX)
        return event.value if kind == "str" else NonText(kind, event.value)

    def _map(self, path: str, depth: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := self._next(), self._yaml.MappingEndEvent):
            here = path or "the text"
            key = as_text(self._value(event, path, depth + 1), f"{here}: a key")
            inner = path_below(path, key)
            at = _mark_of(event)
            first_line = lines.setdefault(key, at.line)
            if key in found:
                self._note_repeat(key, here, RepeatedKey(inner, at.line, first_line))
            event = self._next()
            self._locations.setdefault(inner, Location(at, _mark_of(event)))
            found.setdefault(key, self._value(event, inner, depth + 1))
        return found

    def _note_repeat(self, key: str, where: str, repeat: RepeatedKey) -> None:
        if self._repeats is None:
            raise StrictYamlError(f"{where}: key {quoted(key)} stands twice")
        path = _INDEX.sub("[]", repeat.path)
        self._repeats.append(replace(repeat, path=path))

    def _list(self, path: str, depth: int) -> list[Value]:
        found: list[Value] = []
        while not isinstance(event := self._next(), self._yaml.SequenceEndEvent):
            inner, at = path_of_item(path, len(found)), _mark_of(event)
            self._locations[inner] = Location(at, at)
            found.append(self._value(event, inner, depth + 1))
        return found


def _mark_of(event: Any) -> Mark:
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1)


def path_of_item(path: str, index: int) -> str:
    """Return the path of an item of a list."""
    return f"{path}[{index}]"


def path_below(path: str, key: str) -> str:
    """Return the path of an entry of a map."""
    name = on_one_line(key[:_SHOWN_MAX])
    return f"{path}.{name}" if path else name


# -- shapes ---------------------------------------------------------------------------------------


def kind_of(value: Value) -> str:
    """Return what a value is, in words."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    shown = f" ({on_one_line(value.text[:_SHOWN_MAX])})" if value.text else ""
    return f"{_KINDS.get(value.kind, 'a special value')}{shown}"


def as_map(value: Value, where: str) -> dict[str, Value]:
    """Return a map, or raise."""
    if not isinstance(value, dict):
        raise StrictYamlError(f"{where} must be a map, not {kind_of(value)}")
    return value


def as_list(value: Value, where: str) -> list[Value]:
    """Return a list, or raise."""
    if not isinstance(value, list):
        raise StrictYamlError(f"{where} must be a list, not {kind_of(value)}")
    return value


def as_text(value: Value, where: str) -> str:
    """Return a text, or raise."""
    if isinstance(value, str):
        return value
    remedy = "; put it in quotes" if isinstance(value, NonText) and value.kind != "null" else ""
    raise StrictYamlError(f"{where} must be text, not {kind_of(value)}{remedy}")


def as_texts(value: Value, where: str) -> tuple[str, ...]:
    """Return a list of texts, or raise."""
    items = as_list(value, where)
    return tuple(as_text(item, f"{where}[{index}]") for index, item in enumerate(items))


def as_choice(value: Value, known: Iterable[str], where: str, what: str) -> str:
    """Return a text that is one of those known, or raise."""
    text = as_text(value, f"{where}: {what}")
    names = tuple(known)
    if text not in names:
        raise StrictYamlError(
            f"{where}: unknown {what} {quoted(text)}, expected {', '.join(names)}"
        )
    return text


def check_keys(
    members: dict[str, Value], where: str, *, required: Iterable[str], optional: Iterable[str] = ()
) -> None:
    """Reject a map with an unknown key, or without one that is required."""
    needed = tuple(required)
    known = (*needed, *optional)
    for key in members:
        if key not in known:
            raise StrictYamlError(
                f"{where}: unknown key {quoted(key)}, expected {', '.join(known)}"
            )
    for key in needed:
        if key not in members:
            raise StrictYamlError(f"{where}: {quoted(key)} is missing")


def check_number(value: Value, where: str) -> None:
    """Reject what is no whole number."""
    if not isinstance(value, NonText) or value.kind != "int":
        raise StrictYamlError(f"{where} must be a whole number, not {kind_of(value)}")


def check_version(value: Value) -> None:
    """Reject a version of a file other than the one that there is."""
    if value != VERSION:
        found = value.text if isinstance(value, NonText) else kind_of(value)
        raise StrictYamlError(f"version must be {VERSION.text}, not {found[:_SHOWN_MAX]}")
