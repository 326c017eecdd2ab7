"""Checked names and reserved words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from omnigraph.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

TypeKind = Literal["interface", "node", "edge"]
"""The three namespaces of a schema, in their canonical order."""

TYPE_KINDS: Final[tuple[TypeKind, ...]] = ("interface", "node", "edge")

TYPE_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9_]*")
PROPERTY_NAME: Final = re.compile(r"[a-z_][A-Za-z0-9_]*")

LANCE_COLUMNS: Final = frozenset(
    {
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
    }
)
"""Virtual columns of Lance: no property may take one of these names."""

NODE_COLUMNS: Final = ("id",)
EDGE_COLUMNS: Final = ("id", "src", "dst")

RESERVED_NODE_PROPERTIES: Final = LANCE_COLUMNS | {"id"}
RESERVED_EDGE_PROPERTIES: Final = LANCE_COLUMNS | {"id", "src", "dst", "from", "to"}

_SUGGESTION_LENGTH_MAX: Final = 64
_SUGGESTION_CANDIDATES_MAX: Final = 5_000


Choice = TypeVar("Choice", bound=StrEnum)


class UnknownChoiceError(InvalidInputError):
    """A setting has none of its values."""

    code = "OG-CHOICE"
    hint = "use one of those"

    def __init__(self, what: str, found: str, known: tuple[str, ...]) -> None:
        self.what = what
        self.found = found
        self.known = known
        super().__init__(f"unknown {what} '{found}': expected {', '.join(known)}")


def choice(kind: type[Choice], text: str, what: str) -> Choice:
    """Read one of the values of a setting.

    >>> choice(StrEnum("Mode", ["MERGE"]), "merge", "load mode")
    <Mode.MERGE: 'merge'>
    """
    return kind(one_of(tuple(kind), text, what))


def one_of(known: tuple[str, ...], text: str, what: str) -> str:
    """Return a text that is one of the values of a setting.

    >>> one_of(("node", "edge"), "edge", "kind of entity")
    'edge'
    """
    if text not in known:
        raise UnknownChoiceError(what, text, known)
    return text


def nearest_name(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that `name` is most likely a typo of, if there is one.

    >>> nearest_name("Statoin", ["Station", "Feeds"])
    'Station'
    >>> nearest_name("Zebra", ["Station", "Feeds"]) is None
    True
    """
    if len(name) > _SUGGESTION_LENGTH_MAX:
        return None
    pool = sorted(set(candidates))[:_SUGGESTION_CANDIDATES_MAX]
    folded: dict[str, str] = {}
    for candidate in pool:
        folded.setdefault(candidate.lower(), candidate)
    exact = folded.get(name.lower())
    if exact is not None:
        return exact
    close = get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


# -- tables and branches --------------------------------------------------------------------------

INTERNAL_SCHEMA_VERSION: Final = 3
"""The storage format that this version of omnigraph writes."""

MAIN: Final = "main"
SCHEMA_APPLY_LOCK: Final = "__schema_apply_lock__"

_BRANCH_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_BRANCH_LENGTH_MAX: Final = 200
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3


class IllegalNameError(InvalidInputError):
    """A branch or tag name cannot be used."""

    code = "OG-NAME"
    hint = "use letters, digits, `_`, `-`, single dots, and `/` between parts"

    def __init__(self, kind: str, name: str, reason: str) -> None:
        self.kind = kind
        self.name = name
        self.reason = reason
        super().__init__(f"{kind} name {name!r} {reason}")


@dataclass(frozen=True, order=True)
class BranchName:
    """A checked public branch name; `str(name)` is the text.

    Parts between slashes start with a letter, digit or underscore and go on with those, dots and
    hyphens.

    >>> str(BranchName.parse(" team/etl "))
    'team/etl'
    """

    text: str

    @classmethod
    def parse(cls, text: str) -> BranchName:
        """Trim and check a name that a caller gave."""
        trimmed = text.strip()
        _check_path_name("branch", trimmed)
        if trimmed.partition("/")[0] == SCHEMA_APPLY_LOCK:
            raise IllegalNameError("branch", trimmed, "is reserved for the system")
        return cls(trimmed)

    @property
    def is_main(self) -> bool:
        """Whether this is the branch that every graph has."""
        return self.text == MAIN

    def nests_with(self, other: BranchName) -> bool:
        """Whether one of the two names is a path prefix of the other, as `a` and `a/b`."""
        return self.text.startswith(f"{other.text}/") or other.text.startswith(f"{self.text}/")

    def __str__(self) -> str:
        return self.text


def check_tag_name(text: str) -> str:
    """Trim and check the name of a tag."""
    trimmed = text.strip()
    _check_path_name("tag", trimmed)
    return trimmed


def _check_path_name(kind: str, name: str) -> None:
    if not name:
        raise IllegalNameError(kind, name, "is empty")
    # A slash takes three characters in the names of the files that stand for a branch.
    if len(name) + 2 * name.count("/") > _BRANCH_LENGTH_MAX:
        reason = f"is longer than {_BRANCH_LENGTH_MAX}, counting a slash as three"
        raise IllegalNameError(kind, name[:40] + "…", reason)
    for part in name.split("/"):
        if not _BRANCH_PART.fullmatch(part) or part.endswith((".", ".lock")) or ".." in part:
            raise IllegalNameError(
                kind,
                name,
                "is not legal: parts between slashes use letters, digits, `_`, `-` and single dots",
            )


def fnv1a64(text: str) -> str:
    """Return the FNV-1a 64-bit hash of a text as 16 hexadecimal digits.

    >>> fnv1a64("")
    'cbf29ce484222325'
    """
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFF_FFFF_FFFF_FFFF
    return f"{value:016x}"


def table_key(kind: TypeKind, type_name: str) -> str:
    """Return the key of a dataset in the manifest.

    >>> table_key("node", "Person")
    'node:Person'
    """
    return f"{kind}:{type_name}"


def split_table_key(key: str) -> tuple[Literal["node", "edge"], str]:
    """Split `node:Person` into its kind and type name."""
    kind, _, name = key.partition(":")
    if kind == "node":
        return "node", name
    if kind == "edge":
        return "edge", name
    raise ValueError(f"not a table key: {key!r}")
