"""Graphs as Spark frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from omnigraph.errors import UnavailableError
from omnigraph.query.row_filter import compile_row_filter
from omnigraph.spark.failures import translated
from omnigraph.spark.source.options import STORAGE_PREFIX, SourceOptionError, read_options
from omnigraph.spark.source.tables import find_type, table_scan

if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.manifest import Snapshot
    from omnigraph.schema import EdgeType, EntityType
    from omnigraph.store import StoreSettings
FORMAT: Final = "omnigraph"


class GraphFramesMissingError(UnavailableError):
    """The package GraphFrames is not installed."""

    code = "OG-NO-GRAPHFRAMES"
    hint = "pip install graphframes-py, and put its jar on the session"
    template = "GraphFrames is not installed: `graph.to_spark` gives the same rows as plain frames"


@dataclass(frozen=True)
class PinnedGraph:
    """One snapshot of a graph, and how workers reach it."""

    settings: StoreSettings
    snapshot: Snapshot

    @property
    def options(self) -> dict[str, str]:
        """The options by which a frame reads exactly this snapshot."""
        given = self.settings.storage_options
        return {
            "branch": str(self.snapshot.branch),
            "versionAsOf": self.snapshot.commit_id,
            **{f"{STORAGE_PREFIX}{name}": text for name, text in given.items()},
        }


def to_spark(
    pinned: PinnedGraph,
    spark: SparkSession,
    name: str,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    follow: bool = False,
) -> DataFrame:
    """Return the rows of one type as a frame; columns and filter are checked here and now.

    `name` is the name of a type, as `node:Person` where a node and an edge type share one. With
    `follow` the frame reads the head of the branch each time.
    """
    subject = _type_named(pinned.snapshot, name)
    return _frame(pinned, spark, subject, columns, where, follow=follow)


def graph_tables(
    pinned: PinnedGraph, spark: SparkSession, *, edges: Sequence[str] | None = None
) -> tuple[DataFrame, DataFrame]:
    """Return all nodes and edges of one snapshot in the columns that GraphFrames expects.

    Vertices have `id`, `type` and `entity_id`, edges `src`, `dst`, `relationship` and `entity_id`.
    Ids of different types may be equal, so a vertex id is `Type:id`; join with `to_spark` frames
    on `entity_id` for properties. `edges` names the edge types to take, by default all.
    """
    catalog = pinned.snapshot.catalog
    chosen = [_edge_type(pinned.snapshot, name) for name in edges or catalog.edge_types]
    if not chosen:
        raise SourceOptionError("edge", "names no type: a graph without edges has no graph frame")
    ends = {name for edge in chosen for name in (edge.from_type, edge.to_type)}
    nodes = sorted(ends) if edges is not None else list(catalog.node_types)
    vertices = [
        _frame(pinned, spark, ("node", name), ["id"], None).selectExpr(
            _vertex_id("id", name), f"'{name}' AS type", "id AS entity_id"
        )
        for name in nodes
    ]
    links = [
        _frame(pinned, spark, ("edge", edge.name), ["id", "src", "dst"], None).selectExpr(
            _vertex_id("src", edge.from_type),
            _vertex_id("dst", edge.to_type),
            f"'{edge.name}' AS relationship",
            "id AS entity_id",
        )
        for edge in chosen
    ]
    return reduce(_union, vertices), reduce(_union, links)


def graphframe(
    pinned: PinnedGraph, spark: SparkSession, *, edges: Sequence[str] | None = None
) -> Any:
    """Return a `GraphFrame` over one snapshot; see `graph_tables` for its columns."""
    try:
        from graphframes import GraphFrame  # type: ignore[import-not-found]  # noqa: PLC0415 - an optional library
    except ImportError as error:
        raise GraphFramesMissingError from error
    return GraphFrame(*graph_tables(pinned, spark, edges=edges))


# -- inside ---------------------------------------------------------------------------------------


def _frame(
    pinned: PinnedGraph,
    spark: SparkSession,
    subject: tuple[str, str],
    columns: Sequence[str] | None,
    where: str | None,
    *,
    follow: bool = False,
) -> DataFrame:
    kind, name = subject
    options = pinned.options | {kind: name}
    if follow:
        options["follow"] = "true"
        del options["versionAsOf"]
    if columns is not None:
        options["columns"] = ",".join(columns)
    root = pinned.settings.root.uri
    entity_type = find_type(pinned.snapshot, kind, name)
    # Errors are raised here with their own type; from a worker they would arrive as text.
    table_scan(
        pinned.snapshot, entity_type, pinned.settings, read_options(options | {"path": root})
    )
    if where is not None:
        compile_row_filter(where, entity_type)
        options["filter"] = where
    with translated(f"reading {name}"):
        return spark.read.format(FORMAT).options(**options).load(root)


def _type_named(snapshot: Snapshot, name: str) -> tuple[str, str]:
    kind, colon, own_name = name.partition(":")
    if colon:
        return kind, own_name
    catalog = snapshot.catalog
    if name in catalog.node_types and name in catalog.edge_types:
        raise SourceOptionError("node", f"is not clear: write `node:{name}` or `edge:{name}`")
    return ("edge" if name in catalog.edge_types else "node"), name


def _edge_type(snapshot: Snapshot, name: str) -> EdgeType:
    found: EntityType = find_type(snapshot, "edge", name)
    return snapshot.catalog.edge_types[found.name]


def _vertex_id(column: str, type_name: str) -> str:
    return f"concat('{type_name}:', {column}) AS {column}"


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other)
