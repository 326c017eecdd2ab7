"""Reading requests: bodies up to their limit, JSON into records, query strings into records.

| what is wrong | status |
|---|---|
| malformed JSON, bad UTF-8, a key twice, a query string | 400 |
| missing or wrong content type | 415 |
| JSON of the wrong shape | 422 |
| a body over its limit | 413 |
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request

from omnigraph.names import MAIN
from omnigraph.server.errors import BodyTooLargeError, RequestError

BODY_MAX: Final = 1_048_576
LOAD_BODY_MAX: Final = 33_554_432
DEPTH_MAX: Final = 128
_MARKS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
"""A string, or where a list or an object begins or ends."""
_STEPS: Final = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


async def read_body(request: Request, limit: int) -> bytes:
    """Return the whole body, or raise as soon as it is known to be too large."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise BodyTooLargeError(limit, None, int(declared))
    parts: list[bytes] = []
    size = 0
    has_more = True
    while has_more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        has_more = message.get("more_body", False)
        size += len(part)
        if size > limit:
            raise BodyTooLargeError(limit, None, size)
        parts.append(part)
    return b"".join(parts)


def require_json(content_type: str | None) -> None:
    """Raise unless the content type is JSON."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (
        kind.startswith("application/") and kind.endswith("+json")
    ):
        raise RequestError("the content type must be application/json", status=415)


def decode_json(body: bytes, kind: type[T], *, shape_status: int = 422) -> T:
    """Return the record that a body spells."""
    _require_plain(body)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise RequestError(str(error), status=shape_status) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not JSON: {error}") from error


def _require_plain(body: bytes) -> None:
    """Raise when an object has a key twice, or when lists and objects nest too deep."""
    # Without so many brackets it cannot be too deep, which is quick to see.
    if body.count(b"[") + body.count(b"{") > DEPTH_MAX:
        _require_flat(body)
    try:
        _DECODER.decode(body.decode(json.detect_encoding(body), "surrogatepass"))
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8: {error}") from error
    except ValueError as error:
        raise RequestError(f"the body is not JSON: {error}") from error


def _require_flat(body: bytes) -> None:
    depth = 0
    for found in _MARKS.finditer(body):
        depth += _STEPS.get(found[0], 0)
        if depth > DEPTH_MAX:
            raise RequestError(f"the body is not JSON: it nests deeper than {DEPTH_MAX}")


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) == len(pairs):
        return
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"the key '{key}' stands twice in one object")
        seen.add(key)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once)


def decode_query(query: bytes, kind: type[S]) -> S:
    """Return the record that a query string spells; a list takes every repetition."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    strict = bool(kind.__struct_config__.forbid_unknown_fields)
    found: dict[str, Any] = {}
    for name, value in _pairs(query):
        if name not in fields:
            if strict:
                raise RequestError(f"unknown parameter '{name}'")
            continue
        if _is_list(fields[name]):
            found.setdefault(name, []).append(value)
        elif name in found:
            raise RequestError(f"the parameter '{name}' stands twice")
        else:
            found[name] = value
    try:
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RequestError(f"query string: {error}") from error


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=1_000,
        )
    except (UnicodeDecodeError, ValueError) as error:
        raise RequestError(f"bad query string: {error}") from error


def _is_list(field: msgspec.structs.FieldInfo) -> bool:
    return getattr(field.type, "__origin__", None) is list


def branch_name(given: str | None, default: str = MAIN) -> str:
    """Return a branch without surrounding blanks; an empty one is an error."""
    if given is None:
        return default
    name = given.strip()
    if not name:
        raise RequestError("a branch name is empty")
    return name
