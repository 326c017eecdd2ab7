"""The public face: a graph, its parts, and the results of their calls."""

from omnigraph.changes.commit_changes import PAGE_CHANGES_MAX, CommitPage, check_page
from omnigraph.changes.diff import Difference
from omnigraph.changes.feed import Block, FeedPage, FeedRequest
from omnigraph.changes.selection import Selection
from omnigraph.graph.branches import GraphBranches
from omnigraph.graph.changes import GraphChanges, GraphDiff
from omnigraph.graph.cluster_guard import InsideClusterError
from omnigraph.graph.commits import GraphCommits
from omnigraph.graph.graph import Graph, TwoTargetsError, one_target
from omnigraph.graph.lineage import GraphLineage, commits_since, type_asked_for
from omnigraph.graph.maintenance import GraphMaintenance
from omnigraph.graph.recovery import GraphRecovery
from omnigraph.graph.running_exports import is_exporting
from omnigraph.graph.schema import GraphSchema, accepted_schema, apply_schema_by_cluster
from omnigraph.graph.session import ReadOnlyGraphError
from omnigraph.graph.standalone import (
    embed_records,
    graph_identity,
    init_from_file,
    lint_files,
    load_queries,
    read_schema_file,
    register_queries,
    require_queries_hold,
    scrub_graph,
)
from omnigraph.graph.tags import GraphTags
from omnigraph.lineage import Job, Lineage, ReservedPropertyError, read_lineage
from omnigraph.lineage.trace import Step, Trace
from omnigraph.maintenance.cleanup.report import CleanupResult, DatasetCleanup
from omnigraph.maintenance.health import Finding, Health
from omnigraph.maintenance.optimize import MaintenanceReport, TableReport
from omnigraph.maintenance.repair import RepairReport, TableRepair
from omnigraph.maintenance.scrub_report import Damage, ReadableCommits, ScrubReport, ScrubRequest
from omnigraph.manifest import (
    GraphCommit,
    OpenMode,
    ReadTarget,
    Snapshot,
    Tag,
)
from omnigraph.manifest.errors import (
    BranchNotFoundError,
    CommitNotFoundError,
    TagNotFoundError,
    VersionRemovedError,
)
from omnigraph.merge.conflicts import MergeConflictError, ReadSetConflictError
from omnigraph.merge.merger import MergeResult
from omnigraph.names import InvalidActorError, InvalidTextError
from omnigraph.progress import Report
from omnigraph.query.language.parse import parse_queries
from omnigraph.query.registry import Registry, RegistryError, StoredQuery
from omnigraph.query.select import QueryKindError, QuerySelectionError, require_kind
from omnigraph.read.access.blobs import (
    BYTES_AT_ONCE,
    Blob,
    BlobRangeError,
    BlobSelector,
    BlobStat,
    ByteRange,
    ExternalBlobError,
)
from omnigraph.read.limits import MEMORY_MAX_DEFAULT, QueryTimeoutError
from omnigraph.read.result import QueryResult, ResultColumn, ResultObject
from omnigraph.recovery import BrokenManifest, PendingRecovery, RecoveryAuditRow
from omnigraph.schema import Catalog
from omnigraph.search.embedding.config import EmbeddingConfig, config_of_profile
from omnigraph.search.embedding.file import EmbedFileRequest, EmbedFileResult, EmbedSpec, Selector
from omnigraph.syntax import SourceText
from omnigraph.write.commit.terms import CommitLog, CommitPages, CommitTerms, all_commits
from omnigraph.write.embed.row_embedder import EmbedMode
from omnigraph.write.embed.stored import EmbedResult
from omnigraph.write.export.exporter import ExportResult
from omnigraph.write.load.result import LoadCounts, LoadResult
from omnigraph.write.mutate.mutations import ChangedRows, MutationResult, RemovalResult
from omnigraph.write.schema_apply import SchemaApplied

__all__ = [
    "BYTES_AT_ONCE",
    "MEMORY_MAX_DEFAULT",
    "PAGE_CHANGES_MAX",
    "Blob",
    "BlobRangeError",
    "BlobSelector",
    "BlobStat",
    "Block",
    "BranchNotFoundError",
    "BrokenManifest",
    "ByteRange",
    "Catalog",
    "ChangedRows",
    "CleanupResult",
    "CommitLog",
    "CommitNotFoundError",
    "CommitPage",
    "CommitPages",
    "CommitTerms",
    "Damage",
    "DatasetCleanup",
    "Difference",
    "EmbedFileRequest",
    "EmbedFileResult",
    "EmbedMode",
    "EmbedResult",
    "EmbedSpec",
    "EmbeddingConfig",
    "ExportResult",
    "ExternalBlobError",
    "FeedPage",
    "FeedRequest",
    "Finding",
    "Graph",
    "GraphBranches",
    "GraphChanges",
    "GraphCommit",
    "GraphCommits",
    "GraphDiff",
    "GraphLineage",
    "GraphMaintenance",
    "GraphRecovery",
    "GraphSchema",
    "GraphTags",
    "Health",
    "InsideClusterError",
    "InvalidActorError",
    "InvalidTextError",
    "Job",
    "Lineage",
    "LoadCounts",
    "LoadResult",
    "MaintenanceReport",
    "MergeConflictError",
    "MergeResult",
    "MutationResult",
    "OpenMode",
    "PendingRecovery",
    "QueryKindError",
    "QueryResult",
    "QuerySelectionError",
    "QueryTimeoutError",
    "ReadOnlyGraphError",
    "ReadSetConflictError",
    "ReadTarget",
    "ReadableCommits",
    "RecoveryAuditRow",
    "Registry",
    "RegistryError",
    "RemovalResult",
    "RepairReport",
    "Report",
    "ReservedPropertyError",
    "ResultColumn",
    "ResultObject",
    "SchemaApplied",
    "ScrubReport",
    "ScrubRequest",
    "Selection",
    "Selector",
    "Snapshot",
    "SourceText",
    "Step",
    "StoredQuery",
    "TableRepair",
    "TableReport",
    "Tag",
    "TagNotFoundError",
    "Trace",
    "TwoTargetsError",
    "VersionRemovedError",
    "accepted_schema",
    "all_commits",
    "apply_schema_by_cluster",
    "check_page",
    "commits_since",
    "config_of_profile",
    "embed_records",
    "graph_identity",
    "init_from_file",
    "is_exporting",
    "lint_files",
    "load_queries",
    "one_target",
    "parse_queries",
    "read_lineage",
    "read_schema_file",
    "register_queries",
    "require_kind",
    "require_queries_hold",
    "scrub_graph",
    "type_asked_for",
]
