"""The top-level fields of a protocol buffer, read and written without its definition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_NUMBER: Final = 0
_EIGHT_BYTES: Final = 1
_BYTES: Final = 2
_FOUR_BYTES: Final = 5
_FIXED_BYTES: Final = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}


class MessageField(NamedTuple):
    """One field: a number, or bytes of any meaning."""

    field: int
    wire_type: int
    value: int | bytes


def message_fields(message: bytes) -> Iterator[MessageField]:
    """Yield the fields of a message in their order."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        field, wire_type = key >> 3, key & 7
        if wire_type == _NUMBER:
            value, position = _varint(message, position)
            yield MessageField(field, wire_type, value)
            continue
        if wire_type == _BYTES:
            length, position = _varint(message, position)
        else:
            length = _FIXED_BYTES[wire_type]
        yield MessageField(field, wire_type, message[position : position + length])
        position += length


def message_of(fields: Iterable[MessageField]) -> bytes:
    """Return the message that has these fields.

    >>> message = bytes.fromhex("12026964 18ac02")
    >>> message_of(message_fields(message)) == message
    True
    """
    return b"".join(_spelled(field) for field in fields)


def number_field(field: int, value: int) -> MessageField:
    """Return a field that holds a number."""
    return MessageField(field, _NUMBER, value)


def _spelled(field: MessageField) -> bytes:
    key = _encoded(field.field << 3 | field.wire_type)
    if isinstance(field.value, int):
        return key + _encoded(field.value)
    length = _encoded(len(field.value)) if field.wire_type == _BYTES else b""
    return key + length + field.value


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position
