"""Framing: text becomes records with positions, in batches.

| | strict | compatible |
|---|---|---|
| framing | one value per line; blank lines count | values one after another, over lines or not |
| position | physical line | number of the value |
| a name twice in one object | an error, at any depth | the last one counts |

Whether an object has a name twice cannot be seen in what the parser returns. Every member has a
quote, blanks and a colon; if the text has as many of these as the parsed objects have members,
there are no others. Only text with more of them (a repeated name, an object inside of a value, a
quote and colon inside of a string) is read again, line by line, by a parser that reports pairs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, BinaryIO, Final, TypeAlias

from omnigraph.schema.values.decode import (
    BATCH_BYTES,
    Decoded,
    decode_json_lines,
    decode_json_stream,
)
from omnigraph.write.rules import codes
from omnigraph.write.rules.violations import JSON_REST_RULE, JSON_RULE, Violation, number_of

NOTHING: Final[dict[str, object]] = {}
"""Stands for the `data` of a record without it."""
_COLON: Final = re.compile(rb'"[ \t\r\n]*:')
_BLANK_BEFORE_COLON: Final = (b" :", b"\t:", b"\r:", b"\n:")


Refuse: TypeAlias = Callable[[Violation, object], None]
"""Takes a violation, and the record that it is about: a JSON value, or its text as bytes."""


def strict_batches(source: BinaryIO, refuse: Refuse, first: int = 1) -> Iterator[Decoded]:
    """Read JSON Lines; bad lines are refused and left out. Positions count from `first`."""
    while text := source.read(BATCH_BYTES):
        if not text.endswith(b"\n"):
            text += source.readline()
        decoded = decode_json_lines(text, first_line=first)
        if decoded.invalid:
            lines = text.split(b"\n")
            for violation in _invalid(decoded, "invalid strict JSON at line"):
                refuse(violation, lines[(violation.position or first) - first])
        yield _without_repeated(text, decoded, first, refuse)
        first += text.count(b"\n")


def compatible_batches(source: BinaryIO, refuse: Refuse, first: int = 1) -> Iterator[Decoded]:
    """Read a stream of JSON values. Positions count from `first`.

    Text with one value per line is read in batches. From the first line that is not a whole value
    the rest is read as one piece, because only then can its values be told apart.
    """
    while text := source.read(BATCH_BYTES):
        if not text.endswith(b"\n"):
            text += source.readline()
        decoded = decode_json_lines(text)
        if decoded.invalid:
            yield _stream(text + source.read(), refuse, first)
            return
        yield Decoded(decoded.values, range(first, first + len(decoded.values)))
        first += len(decoded.values)


def _stream(text: bytes, refuse: Refuse, first: int) -> Decoded:
    found = decode_json_stream(text)
    before = first - 1
    decoded = Decoded(
        found.values,
        [before + position for position in found.positions],
        tuple((before + position, words) for position, words in found.invalid),
        found.invalid_texts,
    )
    violations = list(_invalid(decoded, "invalid JSON at record"))
    if found.is_cut:
        last = violations.pop()
        message = f"{last.message}; nothing after it can be read"
        refuse(replace(last, rule=JSON_REST_RULE, message=message), None)
    for violation, piece in zip(violations, found.invalid_texts, strict=True):
        refuse(violation, piece)
    return decoded


def _invalid(decoded: Decoded, sentence: str) -> Iterator[Violation]:
    for position, words in decoded.invalid:
        yield Violation(
            position=position,
            type=None,
            property=None,
            value=None,
            rule=JSON_RULE,
            code=codes.INVALID_JSON,
            message=f"{sentence} {number_of(position)}: {words}",
        )


def _without_repeated(text: bytes, decoded: Decoded, first_line: int, refuse: Refuse) -> Decoded:
    members = _member_count(decoded.values)
    # The first count is quickest, and enough where no string has a colon in it.
    if text.count(b":") == members or _colon_count(text) == members:
        return decoded
    repeated = dict(_repeated_names(text, decoded, first_line))
    if not repeated:
        return decoded
    lines = text.split(b"\n")
    for position, name in repeated.items():
        violation = Violation(
            position=position,
            type=None,
            property=None,
            value=name,
            rule=JSON_RULE + "-member",
            code=codes.DUPLICATE_MEMBER,
            message=f"duplicate JSON member '{name}'",
        )
        refuse(violation, lines[position - first_line])
    kept = [n for n, position in enumerate(decoded.positions) if position not in repeated]
    return Decoded([decoded.values[n] for n in kept], [decoded.positions[n] for n in kept])


def _colon_count(text: bytes) -> int:
    """Count at least every member name of a text."""
    if any(text.count(blank) for blank in _BLANK_BEFORE_COLON):
        return sum(1 for _ in _COLON.finditer(text))
    return text.count(b'":')


def _member_count(values: list[object]) -> int:
    """Count the members of records and of their `data`."""
    records: list[Any] = [value for value in values if type(value) is dict]
    data = data_of(records)
    if set(map(type, data)) - {dict}:
        data = [part for part in data if type(part) is dict]
    return sum(map(len, records)) + sum(map(len, data))


def data_of(records: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Take `data` of every record."""
    try:
        return list(map(itemgetter("data"), records))
    except KeyError:
        return [record.get("data", NOTHING) for record in records]


def _repeated_names(text: bytes, decoded: Decoded, first_line: int) -> Iterator[tuple[int, str]]:
    lines = text.split(b"\n")
    for position, value in zip(decoded.positions, decoded.values, strict=True):
        line = lines[position - first_line]
        if _colon_count(line) != _member_count([value]):
            name = _repeated_name(line)
            if name is not None:
                yield position, name


def _repeated_name(line: bytes) -> str | None:
    found: list[str] = []

    def look(pairs: list[tuple[str, object]]) -> None:
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                found.append(name)
            names.add(name)

    try:
        json.loads(line, object_pairs_hook=look)
    except (ValueError, RecursionError):
        # Nested too deeply for this parser, and so for every property; that is reported later.
        return None
    return found[0] if found else None
