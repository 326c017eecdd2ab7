"""JSON text becomes Python values, a batch per call of the parser.

`orjson` itself treats numbers, `NaN` and `1e999` as `omnigraph.schema.values.convert` wants them.
Positions count from 1: physical lines for JSON Lines, values for a stream.
"""

from __future__ import annotations

import gc
import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final

import orjson

BATCH_BYTES: Final = 512 << 10
"""Text that is decoded at once: large enough to amortise the calls, small enough for CPU caches."""

_TWO_OBJECTS: Final = re.compile(rb"\}[ \t\r]*,[ \t\r]*\{")


@dataclass(frozen=True)
class Decoded:
    """The values of a text, their positions, and which positions hold no JSON.

    `positions` is parallel to `values`; `invalid` pairs a position with the parser's words. With
    `is_cut` the last of these positions is also where reading had to end.
    """

    values: list[object]
    positions: Sequence[int]
    invalid: tuple[tuple[int, str], ...] = ()
    invalid_texts: tuple[bytes, ...] = ()
    """The bytes at the invalid positions of a stream, except where it was cut."""
    is_cut: bool = False


def decode_json_lines(text: bytes, *, first_line: int = 1) -> Decoded:
    r"""Read one JSON value per line; blank lines are skipped but count.

    >>> decode_json_lines(b'{"a": 1}\n\n{"a": 2}\n').positions
    [1, 3]
    """
    return _decode_lines(text, _line_count(text), first_line)


def decode_line_batches(
    source: BinaryIO, *, batch_bytes: int = BATCH_BYTES, first_line: int = 1
) -> Iterator[Decoded]:
    r"""Read JSON Lines from a file in batches of about `batch_bytes`.

    >>> from io import BytesIO
    >>> [batch.values for batch in decode_line_batches(BytesIO(b"1\n22\n3"), batch_bytes=3)]
    [[1, 22], [3]]
    """
    while text := source.read(batch_bytes):
        if not text.endswith(b"\n"):
            text += source.readline()
        line_count = _line_count(text)
        yield _decode_lines(text, line_count, first_line)
        first_line += line_count


def _line_count(text: bytes) -> int:
    return text.count(b"\n") + bool(text and not text.endswith(b"\n"))


def decode_json_stream(text: bytes) -> Decoded:
    """Read JSON values one after another, however they are spread over lines.

    A value that has an end but cannot be held (`1e999`, half of a character) is left out. The first
    thing that is not JSON at all ends the stream: nothing says where the next value would start.
    """
    lines = decode_json_lines(text)
    if not lines.invalid:
        return Decoded(lines.values, range(1, len(lines.values) + 1))
    return _decode_stream(text)


def decode_json_array(text: bytes) -> Decoded:
    """Read the elements of one JSON array."""
    try:
        with paused_garbage_collection():
            values = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return Decoded([], [], ((1, str(error)),))
    if not isinstance(values, list):
        return Decoded([], [], ((1, "expected a JSON array"),))
    return Decoded(values, range(1, len(values) + 1))


def _decode_lines(text: bytes, line_count: int, first_line: int) -> Decoded:
    with paused_garbage_collection():
        values = _decode_together(text, line_count)
        if values is not None:
            return Decoded(values, range(first_line, first_line + line_count))
        return _decode_apart(text.split(b"\n"), first_line)


def _decode_together(text: bytes, line_count: int) -> list[object] | None:
    """Decode lines as one array, or return None where that could differ from line by line.

    Joined by commas, lines could borrow from each other: `{"a": [{}` and `{}]}` make one value,
    `{}, {}` makes two. If there are as many values as lines, all of them objects, and no line holds
    a comma between two objects, then every comma between two values is one that joins lines; so
    each line is exactly one value.
    """
    if not line_count or _TWO_OBJECTS.search(text):
        return None
    # A newline at the end leaves a trailing comma, which needs a value after it.
    is_ended = text.endswith(b"\n")
    array = b"".join((b"[", text.replace(b"\n", b","), b"null]" if is_ended else b"]"))
    try:
        values: list[object] = orjson.loads(array)
    except orjson.JSONDecodeError:
        return None
    if is_ended and values.pop() is not None:
        return None
    is_sound = len(values) == line_count and set(map(type, values)) == {dict}
    return values if is_sound else None


def _decode_apart(lines: list[bytes], first_line: int) -> Decoded:
    values: list[object] = []
    positions: list[int] = []
    invalid: list[tuple[int, str]] = []
    for position, line in enumerate(lines, first_line):
        try:
            values.append(orjson.loads(line))
            positions.append(position)
        except orjson.JSONDecodeError as error:
            if line.strip(_BLANKS):
                invalid.append((position, _words(error, line)))
    return Decoded(values, positions, tuple(invalid))


_BLANKS: Final = b" \t\r\n"


def _decode_stream(text: bytes) -> Decoded:
    values: list[object] = []
    positions: list[int] = []
    invalid: list[tuple[int, str]] = []
    texts: list[bytes] = []
    # Bytes that are not UTF-8 become surrogates, and are reported with the value that has them.
    characters = text.decode(errors="surrogateescape")
    # This parser only finds where a value ends; `orjson` reads the value.
    scanner = json.JSONDecoder(parse_int=str, parse_float=str)
    blanks = re.compile(r"[ \t\r\n]*")
    place = _end(blanks, characters, 0)
    position = 0
    while place < len(characters):
        position += 1
        try:
            _, end = scanner.raw_decode(characters, place)
        except (ValueError, RecursionError) as error:
            words = _BOM_WORDS if characters.startswith(_BOM, place) else str(error)
            invalid.append((position, words))
            return Decoded(values, positions, tuple(invalid), tuple(texts), is_cut=True)
        piece = characters[place:end].encode(errors="surrogateescape")
        try:
            values.append(orjson.loads(piece))
            positions.append(position)
        except orjson.JSONDecodeError as error:
            invalid.append((position, _words(error, piece)))
            texts.append(piece)
        place = _end(blanks, characters, end)
    return Decoded(values, positions, tuple(invalid), tuple(texts))


_BOM: Final = "\ufeff"
_BOM_WORDS: Final = "UTF-8 byte order mark (BOM) is not supported"


def _words(error: orjson.JSONDecodeError, text: bytes) -> str:
    """Return what is wrong with a text that is not JSON."""
    try:
        text.decode()
    except UnicodeDecodeError as found:
        return f"byte 0x{text[found.start]:02x} in column {found.start + 1} is not UTF-8"
    return str(error)


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start


_pause_lock: Final = threading.Lock()
_pauses = 0
_was_enabled = False


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Keep the collector from walking over a growing batch again and again.

    Decoded JSON has no cycles, so nothing is lost. Nested and concurrent pauses count together;
    the last one to end restores what the first one found.
    """
    global _pauses, _was_enabled  # noqa: PLW0603 - the collector itself is global
    with _pause_lock:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _pause_lock:
            _pauses -= 1
            if _pauses == 0 and _was_enabled:
                gc.enable()
