"""The public face: a graph at a root, bound to one branch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from omnigraph.changes.commit_changes import (
    CommitPage,
)
from omnigraph.changes.diff import Difference
from omnigraph.changes.feed import Block, FeedPage, FeedRequest
from omnigraph.changes.selection import Selection
from omnigraph.clock import SystemClock
from omnigraph.graph.changes import ChangeCalls
from omnigraph.graph.cluster_guard import require_outside_cluster
from omnigraph.graph.core import ReadOnlyGraphError
from omnigraph.graph.history import HistoryCalls
from omnigraph.graph.maintenance import MaintenanceCalls
from omnigraph.graph.reads import ReadCalls
from omnigraph.graph.writes import WriteCalls
from omnigraph.maintenance.cleanup import CleanupResult, DatasetCleanup
from omnigraph.maintenance.health import Finding, Health
from omnigraph.maintenance.optimize import MaintenanceReport, TableReport
from omnigraph.maintenance.repair import RepairReport, TableRepair
from omnigraph.maintenance.scrub import scrub
from omnigraph.maintenance.scrub_report import Damage, ReadableCommits, ScrubReport, ScrubRequest
from omnigraph.manifest import (
    GraphCommit,
    OpenMode,
    ReadTarget,
    Snapshot,
    Tag,
)
from omnigraph.manifest.errors import GraphNotFoundError
from omnigraph.manifest.layout import MANIFEST
from omnigraph.manifest.repository import assemble
from omnigraph.merge.merger import MergeResult
from omnigraph.names import InvalidActorError, InvalidTextError
from omnigraph.query import LintReport, SchemaSource, lint_queries
from omnigraph.query.stored import QueryKindError
from omnigraph.read.access.blobs import Blob, ByteRange
from omnigraph.read.limits import MEMORY_MAX_DEFAULT
from omnigraph.read.result import QueryResult
from omnigraph.recovery import BrokenManifest, PendingRecovery, RecoveryAuditRow
from omnigraph.schema import compile_schema
from omnigraph.search.embedding.client import LazyEmbeddingClient
from omnigraph.search.embedding.file import (
    EmbedFileRequest,
    EmbedFileResult,
    EmbedSpec,
    Selector,
    embed_file,
)
from omnigraph.store import connect
from omnigraph.syntax import SourceText
from omnigraph.syntax.grammar import decode_source
from omnigraph.write.embed.row_embedder import EmbedMode
from omnigraph.write.embed.stored import EmbedResult
from omnigraph.write.export.exporter import (
    ExportResult,
)
from omnigraph.write.load.result import LoadResult
from omnigraph.write.mutate.mutations import MutationResult
from omnigraph.write.schema_apply import SchemaApplied

__all__ = [
    "MEMORY_MAX_DEFAULT",
    "Blob",
    "Block",
    "BrokenManifest",
    "ByteRange",
    "CleanupResult",
    "CommitPage",
    "Damage",
    "DatasetCleanup",
    "Difference",
    "EmbedFileRequest",
    "EmbedFileResult",
    "EmbedMode",
    "EmbedResult",
    "EmbedSpec",
    "ExportResult",
    "FeedPage",
    "FeedRequest",
    "Finding",
    "Graph",
    "GraphCommit",
    "Health",
    "InvalidActorError",
    "InvalidTextError",
    "LoadResult",
    "MaintenanceReport",
    "MergeResult",
    "MutationResult",
    "OpenMode",
    "PendingRecovery",
    "QueryKindError",
    "QueryResult",
    "ReadOnlyGraphError",
    "ReadTarget",
    "ReadableCommits",
    "RecoveryAuditRow",
    "RepairReport",
    "SchemaApplied",
    "ScrubReport",
    "ScrubRequest",
    "Selection",
    "Selector",
    "Snapshot",
    "SourceText",
    "TableRepair",
    "TableReport",
    "Tag",
    "embed_records",
    "init_from_file",
    "lint_files",
    "require_outside_cluster",
    "scrub_graph",
]


class Graph(HistoryCalls, ChangeCalls, WriteCalls, ReadCalls, MaintenanceCalls):
    """A graph, bound to one of its branches. Safe to share between threads.

    ```python
    with Graph.init("brain.omni", "node Person { name: String @key }") as graph:
        graph.branch_create("draft")
        print(graph.branch_list())
    ```
    """


def init_from_file(uri: str, schema_path: Path, *, force: bool = False) -> Graph:
    """Make a new graph with the schema in a file, where no cluster has a say."""
    require_outside_cluster("init", uri)
    schema = decode_source(schema_path.read_bytes(), str(schema_path), "S")
    return Graph.init(uri, schema, force=force)


def scrub_graph(
    uri: str, request: ScrubRequest, *, storage_options: Mapping[str, str] | None = None
) -> ScrubReport:
    """Compare the files of a graph with their checksums, also of one that cannot be opened."""
    store = connect(uri, storage_options=storage_options)
    if not store.datasets.exists(MANIFEST):
        raise GraphNotFoundError(str(store.settings.root))
    return scrub(assemble(store, SystemClock()), request)


def embed_records(request: EmbedFileRequest) -> EmbedFileResult:
    """Make the vectors of records in a file, with the provider of the environment."""
    return embed_file(request, LazyEmbeddingClient(SystemClock(), environ=os.environ).get)


def lint_files(*, query_path: Path, schema_path: Path) -> LintReport:
    """Check a file of queries against a schema file, without a graph."""
    schema = decode_source(schema_path.read_bytes(), str(schema_path), "S")
    catalog = compile_schema(schema, domain=SystemClock().ulid()).catalog
    return lint_queries(
        query_path.read_bytes(),
        catalog,
        schema_source=SchemaSource("file", str(schema_path)),
        query_path=str(query_path),
    )
