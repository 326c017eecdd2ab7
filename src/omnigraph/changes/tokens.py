"""Cursors and page tokens: opaque to readers, checked in every field.

A token is base64url without padding of JSON followed by its SHA-256. The checksum is for integrity,
not for authority: every field of a token is checked against the graph that it is used on.
Graph, branch and incarnation travel as digests, so that the length is bounded.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from omnigraph.changes.selection import Op
from omnigraph.errors import InvalidInputError
from omnigraph.texts import read_json

TOKEN_CHARACTERS_MAX: Final = 4_096
TOKEN_VERSION: Final = 1
_DIGEST_BYTES: Final = 32
_ID_BYTES_MAX: Final = 256
_PREFIX_BYTES: Final = 64

TokenKind: TypeAlias = Literal["commit-page", "feed-cursor", "feed-page"]


class CursorRejectedError(InvalidInputError):
    """A cursor or page token is not valid here."""

    code = "OG-CURSOR"
    hint = "start again: `omnigraph changes baseline`, or poll with `--start`"
    template = "change cursor rejected: {reason}"
    reason: str


@dataclass(frozen=True)
class Position:
    """The last change of a commit that was returned: type, id and operation."""

    type_id: str
    entity_id: str
    op: Op

    def to_json(self) -> dict[str, object]:
        """Return the fields; a long id is carried as its beginning and a digest."""
        shape: dict[str, object] = {"type": self.type_id, "op": self.op.rank}
        spelled = self.entity_id.encode()
        if len(spelled) <= _ID_BYTES_MAX:
            return shape | {"id": self.entity_id}
        prefix = spelled[:_PREFIX_BYTES].decode(errors="ignore")
        return shape | {"prefix": prefix, "sha256": digest(self.entity_id)}


def digest(text: str) -> str:
    """Return a name of fixed length for a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def encode(kind: TokenKind, fields: dict[str, Any]) -> str:
    """Return a token.

    >>> decode(encode("feed-cursor", {"commit": "01J"}), "feed-cursor")["commit"]
    '01J'
    """
    text = json.dumps(
        {"version": TOKEN_VERSION, "kind": kind, **fields}, sort_keys=True, separators=(",", ":")
    ).encode()
    token = base64.urlsafe_b64encode(text + hashlib.sha256(text).digest())
    return token.decode().rstrip("=")


def decode(token: str, *kinds: TokenKind) -> dict[str, Any]:
    """Read a token of one of these kinds, or reject it."""
    if len(token) > TOKEN_CHARACTERS_MAX:
        raise CursorRejectedError("it is too long")
    try:
        content = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise CursorRejectedError("it is not a token") from None
    text, checksum = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(text).digest() != checksum:
        raise CursorRejectedError("it is damaged")
    try:
        fields = read_json(text.decode())
    except ValueError:
        raise CursorRejectedError("it is damaged") from None
    if not isinstance(fields, dict) or fields.get("version") != TOKEN_VERSION:
        raise CursorRejectedError("its version is unknown")
    if fields.get("kind") not in kinds:
        raise CursorRejectedError(f"it is a {fields.get('kind')} and was used as a {kinds[0]}")
    return fields


def require(fields: dict[str, Any], expected: dict[str, str]) -> None:
    """Reject a token that names another graph, branch or filter."""
    for name, value in expected.items():
        if fields.get(name) != value:
            raise CursorRejectedError(f"it belongs to another {name.replace('_', ' ')}")


def read_text(fields: dict[str, Any], name: str) -> str:
    """Return a text field."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise CursorRejectedError(f"its field {name} is missing")
    return value


def find_position(shape: object, ids_of_type: Mapping[str, Sequence[tuple[str, Op]]]) -> Position:
    """Read a position, and find its long id again among the changes of its type."""
    if not isinstance(shape, dict):
        raise CursorRejectedError("its position is missing")
    type_id, rank = str(shape.get("type")), shape.get("op")
    if type_id not in ids_of_type or not isinstance(rank, int) or not 0 <= rank < len(Op):
        raise CursorRejectedError("its position is not in this commit")
    op = tuple(Op)[rank]
    changed = [entity_id for entity_id, own_op in ids_of_type[type_id] if own_op is op]
    if "id" in shape:
        wanted = [entity_id for entity_id in changed if entity_id == shape["id"]]
    else:
        wanted = [
            entity_id
            for entity_id in changed
            if entity_id.startswith(str(shape.get("prefix")))
            and digest(entity_id) == shape.get("sha256")
        ]
    if len(wanted) != 1:
        raise CursorRejectedError("its position is not in this commit")
    return Position(type_id, wanted[0], op)
