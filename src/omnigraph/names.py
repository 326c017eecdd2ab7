"""Checked names and reserved words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Final, Literal, TypeVar

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.texts import folded, has_control, is_encodable

TypeKind = Literal["interface", "node", "edge"]
"""The three namespaces of a schema, in their canonical order."""

EntityKind = Literal["node", "edge"]
"""The kinds of types that a graph has rows of."""

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


_ULID: Final = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


class UnknownChoiceError(InvalidInputError):
    """A setting has none of its values."""

    code = "OG-CHOICE"
    hint = "use one of those"
    what: str
    found: str
    known: tuple[str, ...]

    def _message(self) -> str:
        return f"unknown {self.what} '{self.found}': expected {', '.join(self.known)}"


class ArgumentError(InvalidInputError):
    """An argument of a call has a value of another kind than expected."""

    code = "OG-ARGUMENT"
    hint = "give a value of that kind"
    template = "{name}: expected {expected}, found {found}"
    name: str
    expected: str
    found: str

    @classmethod
    def of(cls, name: str, expected: str, found: object) -> ArgumentError:
        """Return the error about a value: plain ones are shown, of others the type is named."""
        is_plain = isinstance(found, bool | int | float | str | None)
        return cls(name, expected, _cut(repr(found)) if is_plain else _kind(found))


def check_count(name: str, value: object) -> None:
    """Refuse what is neither None nor a whole number from 0.

    >>> check_count("limit", 10)
    """
    if value is None:
        return
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 0:
        raise ArgumentError.of(name, "a whole number from 0", value)


def names_given(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return names of which a single one may be given as it is.

    >>> names_given("Person"), names_given(["Person", "City"])
    (('Person',), ('Person', 'City'))
    """
    return (names,) if isinstance(names, str) else tuple(names)


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


# -- graphs of a server ---------------------------------------------------------------------------

GRAPH_ID_LENGTH_MAX: Final = 64
GRAPH_IDS_RESERVED: Final = frozenset({"policies", "healthz", "openapi", "graphs"})
_SERVABLE: Final = re.compile(rf"[A-Za-z0-9-]{{1,{GRAPH_ID_LENGTH_MAX}}}")


def is_servable(graph_id: str) -> bool:
    """Whether a graph of this id can have routes on a server.

    >>> is_servable("papers-2"), is_servable("my_papers"), is_servable("graphs")
    (True, False, False)
    """
    return _SERVABLE.fullmatch(graph_id) is not None and graph_id not in GRAPH_IDS_RESERVED


# -- tables and branches --------------------------------------------------------------------------

INTERNAL_SCHEMA_VERSION: Final = 3
"""The storage format that this version of omnigraph writes."""

MAIN: Final = "main"
SCHEMA_APPLY_LOCK: Final = "__schema_apply_lock__"

_BRANCH_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_BRANCH_LENGTH_MAX: Final = 200


def is_schema_mark(name: str) -> bool:
    """Whether a name belongs to the marks of schema changes: of `main`, or of another branch."""
    return re.split(r"[/.]", name, maxsplit=1)[0] == SCHEMA_APPLY_LOCK


class IllegalNameError(InvalidInputError):
    """A branch or tag name cannot be used."""

    code = "OG-NAME"
    hint = "use letters, digits, `_`, `-`, single dots, and `/` between parts"
    kind: str
    name: str
    reason: str

    def _message(self) -> str:
        return f"{self.kind} name {_abridged(self.name)} {self.reason}"


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
        trimmed = _trimmed("branch", text)
        _check_path_name("branch", trimmed)
        if is_schema_mark(trimmed):
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
    trimmed = _trimmed("tag", text)
    _check_path_name("tag", trimmed)
    return trimmed


def _trimmed(kind: str, text: object) -> str:
    if not isinstance(text, str):
        raise ArgumentError.of(f"the name of a {kind}", "a text", text)
    return text.strip()


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


# -- branches of actors ---------------------------------------------------------------------------

AGENT_TREE: Final = "agent/"
"""Below it, each actor has a tree of branches of its own."""

_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
_HASHED: Final = re.compile(r".*-[0-9a-f]{12}", re.DOTALL)
_NOT_SLUG: Final = re.compile(r"[^A-Za-z0-9]")
_SLUG_WORD_MAX: Final = 35
_SLUG_HASH_DIGITS: Final = 12


@lru_cache(maxsize=4096)
def actor_slug(actor_id: str) -> str:
    """Return the part of branch names that stands for an actor.

    An id that is no slug, or that looks like a hashed one, gets 48 bits of its hash: no actor can
    choose an id that has the slug of another one.

    >>> actor_slug("act-bot"), actor_slug("Lena@Lab")
    ('act-bot', 'lenalab-f95ddde8d5ad')
    """
    if _SLUG.fullmatch(actor_id) and not _HASHED.fullmatch(actor_id):
        return actor_id
    word = _NOT_SLUG.sub("", actor_id).lower()[:_SLUG_WORD_MAX] or "actor"
    digest = sha256(actor_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{word}-{digest[:_SLUG_HASH_DIGITS]}"


def is_own_branch(branch: str, actor_id: str) -> bool:
    """Whether a branch is a legal name below the tree of an actor.

    >>> is_own_branch("agent/act-bot/fix", "act-bot"), is_own_branch("agent/act-bot", "act-bot")
    (True, False)
    """
    if not branch.startswith(f"{AGENT_TREE}{actor_slug(actor_id)}/"):
        return False
    try:
        return BranchName.parse(branch).text == branch
    except IllegalNameError:
        return False


# -- who commits, and what a commit says -----------------------------------------------------------

SYSTEM_ACTOR_PREFIX: Final = "omnigraph:"
ACTOR_LENGTH_MAX: Final = 256
MESSAGE_LENGTH_MAX: Final = 65_536
RETRIES_MAX: Final = 1_000
PROPERTIES_MAX: Final = 256
PROPERTY_KEY_LENGTH_MAX: Final = 256
_LABEL_LENGTH_MAX: Final = 1_024
_SHOWN_MAX: Final = 60
_HALF: Final = "holds half of a surrogate pair and has no UTF-8 form"
_LINE_MARKS: Final = str.maketrans("", "", "\t\r\n")


class InvalidActorError(InvalidInputError):
    """An actor id cannot be used: it belongs to the system, or is not one line of plain text."""

    code = "OG-ACTOR"
    hint = "`--as NAME` with a name of your own"

    def __init__(self, actor_id: object, reason: str) -> None:
        self.actor_id = _abridged(actor_id)
        self.reason = reason
        super().__init__(f"actor id {self.actor_id} {reason}")


class InvalidTextError(InvalidInputError):
    """A message, a property or an id cannot be stored as it is."""

    code = "OG-TEXT"
    hint = "give plain text, without control characters"

    def __init__(self, what: str, text: object, reason: str) -> None:
        self.what = what
        self.text = _abridged(text)
        self.reason = reason
        super().__init__(f"{what} {self.text} {reason}")


def check_actor(actor_id: str | None) -> None:
    """Refuse an actor id that belongs to the system, or that a list could not show on a line."""
    if actor_id is None:
        return
    reason = _actor_problem(actor_id)
    if reason is not None:
        raise InvalidActorError(actor_id, reason)


def _actor_problem(actor_id: object) -> str | None:
    if not isinstance(actor_id, str):
        return "is no text"
    if not actor_id.strip():
        return "is empty"
    reason = _text_problem(actor_id, ACTOR_LENGTH_MAX)
    if reason is not None:
        return reason
    if actor_id != actor_id.strip():
        return "has blanks around it"
    if folded(actor_id).startswith(SYSTEM_ACTOR_PREFIX):
        return f"is reserved: ids starting with '{SYSTEM_ACTOR_PREFIX}' belong to the system"
    return None


def check_commit_texts(
    *, message: str | None = None, properties: Mapping[str, str] | None = None
) -> None:
    """Refuse a message or properties that a commit cannot store; a message may have lines."""
    if message is not None:
        _check_text("the commit message", message, MESSAGE_LENGTH_MAX, has_lines=True)
    if properties is None:
        return
    if not isinstance(properties, Mapping):
        raise ArgumentError.of("properties", "a mapping of texts", properties)
    if len(properties) > PROPERTIES_MAX:
        raise InvalidTextError(
            "the list of properties", f"({len(properties)})", f"is longer than {PROPERTIES_MAX}"
        )
    for key, value in properties.items():
        _check_text("the property name", key, PROPERTY_KEY_LENGTH_MAX)
        if not key.strip():
            raise InvalidTextError("the property name", key, "is empty")
        _check_text(f"the value of property {key!r}", value, MESSAGE_LENGTH_MAX, has_lines=True)


def is_ulid(text: str) -> bool:
    """Whether a text has the form of an id that this system makes, such as that of a commit.

    >>> is_ulid("01JC0000000000000000000000"), is_ulid("main")
    (True, False)
    """
    return _ULID.fullmatch(text) is not None


class RetriesError(InvalidInputError):
    """A write cannot be repeated so many times."""

    code = "OG-RETRIES"
    hint = f"give a whole number from 0 to {RETRIES_MAX}"
    template = "retries: {found} is not a number of times"
    found: str


def check_retries(retries: int) -> None:
    """Refuse a number of retries that is none."""
    if type(retries) is not int or not 0 <= retries <= RETRIES_MAX:
        raise RetriesError(repr(retries))


def check_id(what: str, text: str | None) -> None:
    """Refuse a text that cannot be an id: one that is not plain text on one line."""
    if text is not None:
        _check_text(what, text, ACTOR_LENGTH_MAX)


def check_label(what: str, text: str) -> None:
    """Refuse a text that cannot name a thing: it is empty, long, or not plain text on one line."""
    _check_text(what, text, _LABEL_LENGTH_MAX)
    if not text.strip():
        raise InvalidTextError(what, text, "is empty")


def _check_text(what: str, text: object, length_max: int, *, has_lines: bool = False) -> None:
    if not isinstance(text, str):
        raise ArgumentError.of(what, "a text", text)
    reason = _text_problem(text.translate(_LINE_MARKS) if has_lines else text, length_max)
    if reason is not None:
        raise InvalidTextError(what, text, reason)


def _text_problem(text: str, length_max: int) -> str | None:
    if len(text) > length_max:
        return f"is longer than {length_max} characters"
    if not is_encodable(text):
        return _HALF
    return "holds a control character" if has_control(text) else None


def _abridged(text: object) -> str:
    """Return a text as a literal of bounded length, so that no part of it passes for ours."""
    if not isinstance(text, str):
        return _kind(text)
    return _cut(ascii(text) if not is_encodable(text) else repr(text))


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


class TableKey(str):
    """The name of a type's table in the manifest, such as `node:Person`.

    It is a text, and is stored, compared and sorted as one.

    >>> TableKey.node("Person").parts
    ('node', 'Person')
    """

    __slots__ = ()

    @classmethod
    def node(cls, type_name: str) -> TableKey:
        """Return the key of a node type."""
        return cls(f"node:{type_name}")

    @classmethod
    def edge(cls, type_name: str) -> TableKey:
        """Return the key of an edge type."""
        return cls(f"edge:{type_name}")

    @classmethod
    def of(cls, kind: TypeKind, type_name: str) -> TableKey:
        """Return the key of a type of this kind."""
        return cls(f"{kind}:{type_name}")

    @property
    def parts(self) -> tuple[EntityKind, str]:
        """The kind and the name of the type; `ValueError` for a text that is no key."""
        kind, _, name = self.partition(":")
        if kind == "node":
            return "node", name
        if kind == "edge":
            return "edge", name
        raise ValueError(f"not a table key: {self!r}")

    @property
    def kind(self) -> EntityKind:
        """Whether it is a node type or an edge type."""
        return self.parts[0]

    @property
    def type_name(self) -> str:
        """The name of the type."""
        return self.parts[1]

    @property
    def is_valid(self) -> bool:
        """Whether the text is a key."""
        return self.startswith(("node:", "edge:"))

    @property
    def is_edge(self) -> bool:
        """Whether it is the table of an edge type."""
        return self.startswith("edge:")
