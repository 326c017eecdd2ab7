"""Names in Spark SQL: one temporary view for each type of a graph.

1. All views of one `attach` read one commit: the one that it saw. With `follow` each read of a view
   looks the head up; then one task reads all of its rows, because Spark plans a view once and every
   task of it would look up a head of its own.
2. Names are the prefix and the name of the type. Spark does not tell letter cases apart, so types
   that differ in nothing else are distinguished by their kind, or refused.
3. Which views were made is remembered in the settings of the session, so that `detach` removes
   those and no others, and a new `attach` under the same prefix leaves none of the old ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from omnigraph.errors import InvalidInputError
from omnigraph.names import MAIN
from omnigraph.spark.failures import translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.schema import Catalog

Scope: TypeAlias = Literal["session", "global"]

PREFIX: Final = "og_"
_SCOPES: Final = ("session", "global")
_SETTING: Final = "omnigraph.attached."
_GLOBAL: Final = "global_temp."
_PREFIX_FORM: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class AttachError(InvalidInputError):
    """A graph cannot be attached like this."""

    code = "OG-SPARK-ATTACH"
    hint = "the guide 'Read and write from Spark' shows how names are made"
    template = "{problem}"
    problem: str


@dataclass(frozen=True)
class View:
    """A view to make: its name, and the type that it shows."""

    name: str
    kind: str
    type_name: str


def attach(
    spark: SparkSession,
    uri: str,
    prefix: str = PREFIX,
    *,
    branch: str = MAIN,
    at: str | None = None,
    follow: bool = False,
    scope: Scope = "session",
    columns: Mapping[str, Sequence[str]] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Make one temporary view for each type of a graph; return their names.

    `at` is a commit id, a tag or a manifest version; without it the views show the head of the
    branch as it is now, or with `follow` whenever they are read. `columns` names the columns of
    some types: Spark does not tell a Python source which columns a query needs, so a view reads all
    that it has. Blobs come only when they are named. Views of the same prefix are replaced.
    """
    # These import pyspark, which is optional, and this module is imported with the package.
    from omnigraph.spark.source.frames import PinnedGraph, to_spark  # noqa: PLC0415 - see above
    from omnigraph.spark.source.options import STORAGE_PREFIX, read_options  # noqa: PLC0415
    from omnigraph.spark.source.pin import open_pinned, pin_snapshot  # noqa: PLC0415

    _check(prefix, at, follow=follow, scope=scope)
    options = {
        "path": uri,
        "branch": branch,
        **({} if at is None else {"versionAsOf": at}),
        **{f"{STORAGE_PREFIX}{name}": text for name, text in (storage_options or {}).items()},
    }
    pin = pin_snapshot(read_options(options))
    pinned = PinnedGraph(pin.settings, open_pinned(pin))
    views = view_names(pinned.snapshot.catalog, prefix)
    chosen = dict(columns or {})
    frames = {
        view.name: to_spark(
            pinned,
            spark,
            f"{view.kind}:{view.type_name}",
            columns=chosen.pop(view.type_name, None),
            follow=follow,
        )
        for view in views
    }
    if chosen:
        raise AttachError(f"`columns` names no type of this graph: {', '.join(sorted(chosen))}")
    detach(spark, prefix)
    with translated("attach"):
        made = tuple(_made(name, frame, scope) for name, frame in frames.items())
        spark.conf.set(_SETTING + prefix, ",".join(made))
    return made


def detach(spark: SparkSession, prefix: str = PREFIX) -> tuple[str, ...]:
    """Remove the views that `attach` has made under a prefix; return their names."""
    with translated("detach"):
        known = spark.conf.get(_SETTING + prefix, "") or ""
        names = tuple(name for name in known.split(",") if name)
        for name in names:
            if name.startswith(_GLOBAL):
                spark.catalog.dropGlobalTempView(name.removeprefix(_GLOBAL))
            else:
                spark.catalog.dropTempView(name)
        if names:
            spark.conf.unset(_SETTING + prefix)
    return names


def view_names(catalog: Catalog, prefix: str) -> tuple[View, ...]:
    """Return the views of all types; a node and an edge type of one name have their kind in it."""
    types = [("node", name) for name in catalog.node_types]
    types += [("edge", name) for name in catalog.edge_types]
    counts = Counter(name.lower() for _, name in types)
    views = tuple(
        View(
            f"{prefix}{name}" if counts[name.lower()] == 1 else f"{prefix}{kind}_{name}", kind, name
        )
        for kind, name in types
    )
    taken: dict[str, View] = {}
    for view in views:
        other = taken.setdefault(view.name.lower(), view)
        if other is not view:
            raise AttachError(
                f"the {other.kind} type `{other.type_name}` and the {view.kind} type"
                f" `{view.type_name}` would both be the view `{view.name}`: Spark does not tell"
                " them apart; read them with `graph.to_spark`"
            )
    return views


def _check(prefix: str, at: str | None, *, follow: bool, scope: str) -> None:
    if not _PREFIX_FORM.fullmatch(prefix):
        raise AttachError(
            f"a prefix has letters, digits and `_`, and begins with no digit: `{prefix}`"
        )
    if scope not in _SCOPES:
        raise AttachError(f"scope is 'session' or 'global', found '{scope}'")
    if follow and at is not None:
        raise AttachError(
            "`follow` shows the newest state, and `at` one that stays: give one of them"
        )


def _made(name: str, frame: DataFrame, scope: Scope) -> str:
    if scope == "session":
        frame.createOrReplaceTempView(name)
        return name
    frame.createOrReplaceGlobalTempView(name)
    return f"{_GLOBAL}{name}"
