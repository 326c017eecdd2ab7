"""The public face: a graph, its parts, and the results of their calls.

Names are loaded when they are first used: most calls need few of them.
"""

from typing import TYPE_CHECKING

from omnigraph.late import late_names

if TYPE_CHECKING:
    from omnigraph.changes.commit_changes import PAGE_CHANGES_MAX, CommitPage, check_page
    from omnigraph.changes.diff import Difference
    from omnigraph.changes.feed import Block, FeedPage, FeedRequest, SchemaChanges
    from omnigraph.changes.selection import Selection
    from omnigraph.graph.arguments import TwoTargetsError, commit_id_of, one_target
    from omnigraph.graph.branches import GraphBranches
    from omnigraph.graph.changes import GraphChanges, GraphDiff
    from omnigraph.graph.cluster_guard import InsideClusterError
    from omnigraph.graph.commits import GraphCommits
    from omnigraph.graph.graph import Graph
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
        queries_that_break,
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
    from omnigraph.maintenance.scrub.report import (
        Damage,
        ReadableCommits,
        ScrubReport,
        ScrubRequest,
    )
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
    from omnigraph.merge.result import MergeResult
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
    from omnigraph.schema import Catalog, MigrationPlan
    from omnigraph.search.embedding.config import EmbeddingConfig, config_of_profile
    from omnigraph.search.embedding.file import (
        EmbedFileRequest,
        EmbedFileResult,
        EmbedSpec,
        Selector,
    )
    from omnigraph.syntax import SourceError, SourceText
    from omnigraph.write.commit.terms import CommitLog, CommitPages, CommitTerms, all_commits
    from omnigraph.write.embed.row_embedder import EmbedMode
    from omnigraph.write.embed.stored import EmbedResult
    from omnigraph.write.export.exporter import ExportResult
    from omnigraph.write.load.result import LoadCounts, LoadResult
    from omnigraph.write.mutate.mutations import ChangedRows, MutationResult, RemovalResult
    from omnigraph.write.schema_apply import SchemaApplied, StillNeeded


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
    "MigrationPlan",
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
    "SchemaChanges",
    "ScrubReport",
    "ScrubRequest",
    "Selection",
    "Selector",
    "Snapshot",
    "SourceError",
    "SourceText",
    "Step",
    "StillNeeded",
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
    "commit_id_of",
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
    "queries_that_break",
    "read_lineage",
    "read_schema_file",
    "register_queries",
    "require_kind",
    "require_queries_hold",
    "scrub_graph",
    "type_asked_for",
]

__getattr__ = late_names(
    __name__,
    {
        "omnigraph.changes.commit_changes": "PAGE_CHANGES_MAX CommitPage check_page",
        "omnigraph.changes.diff": "Difference",
        "omnigraph.changes.feed": "Block FeedPage FeedRequest SchemaChanges",
        "omnigraph.changes.selection": "Selection",
        "omnigraph.graph.arguments": "TwoTargetsError commit_id_of one_target",
        "omnigraph.graph.branches": "GraphBranches",
        "omnigraph.graph.changes": "GraphChanges GraphDiff",
        "omnigraph.graph.cluster_guard": "InsideClusterError",
        "omnigraph.graph.commits": "GraphCommits",
        "omnigraph.graph.graph": "Graph",
        "omnigraph.graph.lineage": "GraphLineage commits_since type_asked_for",
        "omnigraph.graph.maintenance": "GraphMaintenance",
        "omnigraph.graph.recovery": "GraphRecovery",
        "omnigraph.graph.running_exports": "is_exporting",
        "omnigraph.graph.schema": "GraphSchema accepted_schema apply_schema_by_cluster",
        "omnigraph.graph.session": "ReadOnlyGraphError",
        "omnigraph.graph.standalone": (
            "embed_records graph_identity init_from_file lint_files load_queries "
            "queries_that_break read_schema_file register_queries require_queries_hold "
            "scrub_graph"
        ),
        "omnigraph.graph.tags": "GraphTags",
        "omnigraph.lineage": "Job Lineage ReservedPropertyError read_lineage",
        "omnigraph.lineage.trace": "Step Trace",
        "omnigraph.maintenance.cleanup.report": "CleanupResult DatasetCleanup",
        "omnigraph.maintenance.health": "Finding Health",
        "omnigraph.maintenance.optimize": "MaintenanceReport TableReport",
        "omnigraph.maintenance.repair": "RepairReport TableRepair",
        "omnigraph.maintenance.scrub.report": "Damage ReadableCommits ScrubReport ScrubRequest",
        "omnigraph.manifest": "GraphCommit OpenMode ReadTarget Snapshot Tag",
        "omnigraph.manifest.errors": (
            "BranchNotFoundError CommitNotFoundError TagNotFoundError VersionRemovedError"
        ),
        "omnigraph.merge.conflicts": "MergeConflictError ReadSetConflictError",
        "omnigraph.merge.result": "MergeResult",
        "omnigraph.names": "InvalidActorError InvalidTextError",
        "omnigraph.progress": "Report",
        "omnigraph.query.language.parse": "parse_queries",
        "omnigraph.query.registry": "Registry RegistryError StoredQuery",
        "omnigraph.query.select": "QueryKindError QuerySelectionError require_kind",
        "omnigraph.read.access.blobs": (
            "BYTES_AT_ONCE Blob BlobRangeError BlobSelector BlobStat ByteRange ExternalBlobError"
        ),
        "omnigraph.read.limits": "MEMORY_MAX_DEFAULT QueryTimeoutError",
        "omnigraph.read.result": "QueryResult ResultColumn ResultObject",
        "omnigraph.recovery": "BrokenManifest PendingRecovery RecoveryAuditRow",
        "omnigraph.schema": "Catalog MigrationPlan",
        "omnigraph.search.embedding.config": "EmbeddingConfig config_of_profile",
        "omnigraph.search.embedding.file": "EmbedFileRequest EmbedFileResult EmbedSpec Selector",
        "omnigraph.syntax": "SourceError SourceText",
        "omnigraph.write.commit.terms": "CommitLog CommitPages CommitTerms all_commits",
        "omnigraph.write.embed.row_embedder": "EmbedMode",
        "omnigraph.write.embed.stored": "EmbedResult",
        "omnigraph.write.export.exporter": "ExportResult",
        "omnigraph.write.load.result": "LoadCounts LoadResult",
        "omnigraph.write.mutate.mutations": "ChangedRows MutationResult RemovalResult",
        "omnigraph.write.schema_apply": "StillNeeded SchemaApplied",
    },
    globals(),
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
