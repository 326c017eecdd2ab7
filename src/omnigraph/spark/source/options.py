"""The options of the data source, read once into records.

Names are compared without regard to letter case; Spark gives them in lower case. An option that
the source does not know is refused: a misspelt `filter` would read everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from omnigraph.errors import InvalidInputError
from omnigraph.names import MAIN, nearest_name
from omnigraph.store import StoreSettings
from omnigraph.store.uri import parse_root

STORAGE_PREFIX: Final = "storage."
"""The prefix of storage options, for those that the environment does not give."""

_SUBJECTS: Final = ("node", "edge", "query", "system")
FEED: Final = "readChangeFeed"
FOLLOW: Final = "follow"
SCHEMA_CHANGES: Final = "schemaChanges"
FEED_PLACES: Final = (
    *("startingVersion", "endingVersion", "maxCommitsPerTrigger"),
    SCHEMA_CHANGES,
)
_READING: Final = (
    "branch",
    "versionAsOf",
    "timestampAsOf",
    "columns",
    "filter",
    "fragmentsPerPartition",
    FOLLOW,
    "queryName",
    "queryParams",
)
_WRITING: Final = (
    *("graphMode", "onDuplicate", "orderBy", "edges", "missing", "nullCells"),
    *("commitTag", "actor", "message", "durability", "txnAppId"),
)
_SPARKS_OWN: Final = ("path", "checkpointLocation")
KNOWN: Final = (*_SUBJECTS, FEED, *FEED_PLACES, *_READING, *_WRITING, *_SPARKS_OWN)

_OF_A_TABLE: Final = frozenset({"location", "owner", "provider"})
"""What Spark adds when a table of a catalog is created with this format."""

_SPELLINGS: Final = {name.lower(): name for name in KNOWN}


class SourceOptionError(InvalidInputError):
    """An option of the data source is unknown, missing, or has a value that means nothing."""

    code = "OG-SPARK-OPTION"
    hint = "the guide 'Read and write from Spark' lists the options"
    template = "option `{option}` {problem}"
    option: str
    problem: str


class CatalogTableError(InvalidInputError):
    """A table of a Spark catalog was to be created with the format `omnigraph`."""

    code = "OG-SPARK-TABLE"
    hint = "`omnigraph.spark.attach(spark, uri)` makes one temporary view for each type"
    template = (
        "`CREATE TABLE … USING omnigraph` is not possible, because Spark does not hand the options"
        " of such a table back when it is read: use `omnigraph.spark.attach(spark, uri)`, or"
        " `CREATE TEMPORARY VIEW … USING omnigraph OPTIONS (…)`"
    )


class SystemTable(StrEnum):
    """A table of metadata."""

    COMMITS = "commits"
    RECOVERIES = "recoveries"
    DATASETS = "datasets"


@dataclass(frozen=True)
class SourceOptions:
    """The given options, by their proper names."""

    uri: str
    given: Mapping[str, str]
    storage: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str | None:
        return self.given.get(name)

    def with_columns(self, columns: Sequence[str]) -> SourceOptions:
        """Return the same options with these columns."""
        return replace(self, given={**self.given, "columns": ",".join(columns)})

    def require(self, name: str, expected: str) -> str:
        """Return the value of an option that must be given."""
        value = self.given.get(name)
        if not value:
            raise SourceOptionError(name, f"is missing: expected {expected}")
        return value

    @property
    def branch(self) -> str:
        """The branch to read or write."""
        return self.given.get("branch") or MAIN

    @property
    def settings(self) -> StoreSettings:
        """How tasks reach the storage; what is not given here they take from their environment."""
        return StoreSettings(parse_root(self.uri), dict(self.storage))


def read_options(raw: Mapping[str, str]) -> SourceOptions:
    """Read the options of one use of the source.

    >>> read_options({"path": "g.omni", "NODE": "Person"}).given
    {'node': 'Person'}
    """
    if _OF_A_TABLE & {spelled.lower() for spelled in raw}:
        raise CatalogTableError
    named: dict[str, str] = {}
    storage: dict[str, str] = {}
    for spelled, value in raw.items():
        lowered = spelled.lower()
        if lowered.startswith(STORAGE_PREFIX):
            storage[lowered.removeprefix(STORAGE_PREFIX)] = value
            continue
        name = _SPELLINGS.get(lowered)
        if name is None:
            near = nearest_name(spelled, KNOWN)
            hint = f"did you mean `{near}`?" if near else f"expected one of {', '.join(KNOWN)}"
            raise SourceOptionError(spelled, f"does not exist: {hint}")
        named[name] = value
    uri = named.pop("path", "")
    if not uri:
        raise SourceOptionError(
            "path", "is missing: give the root of the graph to load() or save()"
        )
    return SourceOptions(uri, named, storage)


def subject_of(options: SourceOptions) -> tuple[str, str]:
    """Return which kind of thing is read or written, and its name or text."""
    if reads_feed(options):
        raise SourceOptionError(FEED, "has no meaning in a write")
    for name in FEED_PLACES:
        if options[name] is not None:
            raise SourceOptionError(name, f"has no meaning without `{FEED}`")
    named = [name for name in _SUBJECTS if options[name] is not None]
    if len(named) != 1:
        found = f"found {' and '.join(f'`{name}`' for name in named)}" if named else "found none"
        expected = f"expected exactly one of `node`, `edge`, `query`, `{FEED}`, `system`"
        raise SourceOptionError(
            named[0] if named else "node", f"is not enough: {expected}, {found}"
        )
    return named[0], options.require(named[0], "a value")


def reads_feed(options: SourceOptions) -> bool:
    """Whether changes are read instead of rows.

    >>> reads_feed(read_options({"path": "g", "readChangeFeed": "True"}))
    True
    """
    return is_set(options, FEED)


def feed_subject(options: SourceOptions) -> tuple[str, str] | None:
    """Return the kind and name of the one type whose changes are read; None for all types."""
    refuse_options(options, FEED, ("query", "system", "filter", "fragmentsPerPartition"))
    refuse_options(options, FEED, ("versionAsOf", "timestampAsOf", "queryName", "queryParams"))
    named = [name for name in ("node", "edge") if options[name] is not None]
    if len(named) > 1:
        raise SourceOptionError("edge", f"contradicts `node`: `{FEED}` reads one type, or all")
    return (named[0], options.require(named[0], "the name of a type")) if named else None


def column_names(options: SourceOptions) -> tuple[str, ...] | None:
    """Return the columns that a read names; None when it names none.

    >>> column_names(read_options({"path": "g", "columns": "name, age"}))
    ('name', 'age')
    """
    return name_list(options, "columns")


def name_list(options: SourceOptions, option: str) -> tuple[str, ...] | None:
    """Return an option that is a list of different names; None when it is not given."""
    text = options[option]
    if text is None:
        return None
    names = tuple(name.strip().strip("`") for name in text.split(","))
    if not all(names):
        raise SourceOptionError(option, f"is a list of names joined by commas, found '{text}'")
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise SourceOptionError(option, f"names `{repeated}` twice")
    return names


def positive_integer(options: SourceOptions, name: str) -> int | None:
    """Return an option that is a number of things; None when it is not given."""
    text = options[name]
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise SourceOptionError(name, f"is a whole number above zero, found '{text}'")
    return int(text)


def is_set(options: SourceOptions, name: str) -> bool:
    """Return an option that is `true` or `false`; false when it is not given."""
    text = (options[name] or "false").strip().lower()
    if text not in {"true", "false"}:
        raise SourceOptionError(name, f"is `true` or `false`, found '{text}'")
    return text == "true"


def refuse_options(options: SourceOptions, subject: str, names: tuple[str, ...]) -> None:
    """Refuse options that mean nothing together with a subject."""
    for name in names:
        if options[name] is not None:
            raise SourceOptionError(name, f"has no meaning beside `{subject}`")
