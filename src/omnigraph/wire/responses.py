"""Bodies of HTTP responses, by the names of their OpenAPI components.

The server encodes the JSON forms that results have anyway; these records are their declaration:
the OpenAPI document is made from them, and the tests hold every response against it.
`UNSET` marks a key that is left out when there is no value.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph.wire.http_errors import Code
from omnigraph.wire.requests import Kind, Op


class HealthOutput(msgspec.Struct):
    """That the server lives, and which release it is."""

    status: Literal["ok"]
    version: str
    internal_schema_version: int
    source_version: str | UnsetType = UNSET


class GraphInfo(msgspec.Struct):
    """One served graph."""

    graph_id: str
    uri: str


class GraphListResponse(msgspec.Struct):
    """The served graphs, sorted by id."""

    graphs: list[GraphInfo]


class CommitOutput(msgspec.Struct):
    """One commit; `graph_branch` is null for `main`."""

    graph_commit_id: str
    graph_branch: str | None
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int
    operation: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    properties: dict[str, str] | UnsetType = UNSET


class SnapshotDatasetOutput(msgspec.Struct):
    """What a branch publishes of one type."""

    entity_kind: Kind
    type_name: str
    dataset_path: str
    published_dataset_version: int
    native_dataset_branch: str | None
    entity_count: int


class SnapshotOutput(msgspec.Struct):
    """What a branch publishes."""

    graph_branch: str
    graph_manifest_version: int
    internal_schema_version: int
    datasets: list[SnapshotDatasetOutput]


class TargetOutput(msgspec.Struct):
    """What was read: exactly one of the two is not null."""

    branch: str | None
    snapshot: str | None


class ReadOutput(msgspec.Struct):
    """The rows of a read; `columns` is left out when there are none."""

    query_name: str
    target: TargetOutput
    row_count: int
    rows: list[dict[str, Any]]
    columns: list[str] | UnsetType = UNSET
    graph_commit_id: str | UnsetType = UNSET
    plan: list[dict[str, Any]] | UnsetType = UNSET
    profile: list[dict[str, Any]] | UnsetType = UNSET
    elapsed_ms: float | UnsetType | None = UNSET
    warnings: list[str] | UnsetType = UNSET


class LegacyReadOutput(msgspec.Struct):
    """The rows of a read, as they were before commits were named in it."""

    query_name: str
    target: TargetOutput
    row_count: int
    rows: list[dict[str, Any]]
    columns: list[str] | UnsetType = UNSET


class ChangedRowsOutput(msgspec.Struct):
    """What a mutation did to the rows of one type."""

    entity_kind: Kind
    type_name: str
    inserted: int
    updated: int
    replaced: int
    deleted: int
    unchanged: int


class ChangeOutput(msgspec.Struct):
    """What a mutation has done; `commit` is null when nothing changed.

    `durability` is there when the server does not wait until a write is safe from power loss.
    """

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: CommitOutput | None
    counts: list[ChangedRowsOutput] | UnsetType = UNSET
    durability: str | UnsetType = UNSET


ParamKind = Literal[
    "string", "bool", "int", "bigint", "float", "date", "datetime", "blob", "vector", "list"
]


class ParamDescriptor(msgspec.Struct):
    """A parameter of a stored query."""

    name: str
    kind: ParamKind
    nullable: bool
    item_kind: ParamKind | UnsetType = UNSET
    vector_dim: int | UnsetType = UNSET


class QueryCatalogEntry(msgspec.Struct):
    """A stored query."""

    name: str
    tool_name: str
    mutation: bool
    params: list[ParamDescriptor]
    description: str | UnsetType = UNSET
    instruction: str | UnsetType = UNSET


class QueriesCatalogOutput(msgspec.Struct):
    """The stored queries, sorted by name."""

    queries: list[QueryCatalogEntry]


class SchemaOutput(msgspec.Struct):
    """The schema as `.pg` text."""

    schema_source: str


class StillNeededOutput(msgspec.Struct):
    """Who needs values that a hard drop would have purged: a branch, a tag or a running load."""

    type: str
    branch: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    operation: str | UnsetType = UNSET


class SchemaApplyOutput(msgspec.Struct):
    """What a schema apply has done."""

    uri: str
    branch: str
    supported: bool
    applied: bool
    step_count: int
    graph_manifest_version: int
    steps: list[dict[str, Any]]
    kept_for: list[StillNeededOutput] | UnsetType = UNSET
    commit: CommitOutput | UnsetType | None = UNSET
    warnings: list[str] | UnsetType = UNSET


class GraphBatchDeclarationOutput(msgspec.Struct):
    """How many records of one type were loaded."""

    name: str
    entities_loaded: int
    inserted: int | UnsetType = UNSET
    updated: int | UnsetType = UNSET
    unchanged: int | UnsetType = UNSET
    deleted: int | UnsetType = UNSET
    rejected: int | UnsetType = UNSET
    superseded: int | UnsetType = UNSET
    nulled: dict[str, int] | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET


class CascadedOutput(msgspec.Struct):
    """How many stored edges of one type went with their nodes."""

    name: str
    removed: int


class GraphBatchLoadOutput(msgspec.Struct):
    """What a load has done."""

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: str
    nodes: list[GraphBatchDeclarationOutput]
    edges: list[GraphBatchDeclarationOutput]
    total_entities: int
    actor_id: str | None
    commit: CommitOutput | None
    engine: str | UnsetType = UNSET
    engine_reason: str | UnsetType = UNSET
    durability: str | UnsetType = UNSET
    inserted: int | UnsetType = UNSET
    updated: int | UnsetType = UNSET
    unchanged: int | UnsetType = UNSET
    deleted: int | UnsetType = UNSET
    rejected: int | UnsetType = UNSET
    superseded: int | UnsetType = UNSET
    nulled: int | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET
    bytes_written: int | UnsetType = UNSET
    seconds: dict[str, float] | UnsetType = UNSET
    spark_app_id: str | UnsetType = UNSET
    dry_run: bool | UnsetType = UNSET
    cascaded: list[CascadedOutput] | UnsetType = UNSET


class IngestOutput(GraphBatchLoadOutput, kw_only=True):
    """What a load has done, and where."""

    uri: str


class BranchListOutput(msgspec.Struct):
    """The branches, sorted."""

    branches: list[str]


class BranchCreateOutput(msgspec.Struct):
    """A branch that was created."""

    uri: str
    from_: str = msgspec.field(name="from")
    name: str
    actor_id: str | None


class BranchDeleteOutput(msgspec.Struct):
    """A branch that was deleted."""

    uri: str
    name: str
    actor_id: str | None


class BranchMergeOutput(msgspec.Struct):
    """What a merge has done."""

    source: str
    target: str
    outcome: Literal["already_up_to_date", "fast_forward", "merged", "conflicts"]
    actor_id: str | None
    branch_deleted: bool | UnsetType = UNSET
    branch_delete_error: str | UnsetType = UNSET
    commit: CommitOutput | UnsetType | None = UNSET
    dry_run: bool | UnsetType = UNSET
    schema_changes: list[dict[str, Any]] | UnsetType = UNSET
    dropped_values: list[dict[str, Any]] | UnsetType = UNSET
    counts: list[dict[str, Any]] | UnsetType = UNSET
    merge_conflicts: list[dict[str, Any]] | UnsetType = UNSET


class TagOutput(msgspec.Struct):
    """A named commit."""

    name: str
    graph_commit_id: str
    actor_id: str | None
    created_at: int
    uri: str | UnsetType = UNSET


class TagListOutput(msgspec.Struct):
    """The tags, sorted by name."""

    tags: list[TagOutput]


class TagDeleteOutput(msgspec.Struct):
    """A tag that is forgotten."""

    uri: str
    name: str


class RefOutput(msgspec.Struct):
    """A state of the graph: as it was named, and its commit."""

    ref: str
    graph_commit_id: str


class RevertOutput(msgspec.Struct):
    """A commit that was undone; `commit` is null when nothing of it was left."""

    reverted: str
    branch: str
    commit: CommitOutput | None


class ConflictsOutput(msgspec.Struct):
    """A page of what conflicts between two branches."""

    source: str
    target: str
    conflicts: list[dict[str, Any]]
    total: int
    next_page_token: str | UnsetType = UNSET


class CommitListOutput(msgspec.Struct):
    """Commits, newest first."""

    commits: list[CommitOutput]


class ChangeEndpoints(msgspec.Struct):
    """The ends of an edge."""

    from_: str = msgspec.field(name="from")
    to: str


class ChangeImageOutput(msgspec.Struct):
    """One side of a change."""

    properties: dict[str, Any]
    endpoints: ChangeEndpoints | UnsetType = UNSET


class ChangeTypeOutput(msgspec.Struct):
    """A type, by an id that survives renames and by its name."""

    id: str | int
    name: str


class EntityChangeOutput(msgspec.Struct):
    """One entity that changed."""

    kind: Kind
    type: ChangeTypeOutput
    id: str
    op: Op
    before: ChangeImageOutput | UnsetType = UNSET
    after: ChangeImageOutput | UnsetType = UNSET


class ChangeCauseOutput(msgspec.Struct):
    """The commit that changed something."""

    graph_commit_id: str
    authored_branch: str
    authored_at: int
    parent_commit_id: str | UnsetType = UNSET
    merged_parent_commit_id: str | UnsetType = UNSET
    actor_id: str | UnsetType = UNSET


class CommitChangesOutput(msgspec.Struct):
    """A page of what a commit changed."""

    cause: ChangeCauseOutput
    changes: list[EntityChangeOutput]
    next_page_token: str | UnsetType = UNSET
    schema_changes: list[dict[str, Any]] | UnsetType = UNSET


class DiffOutput(msgspec.Struct):
    """A page of what differs between two states."""

    from_: RefOutput = msgspec.field(name="from")
    to: RefOutput
    changes: list[EntityChangeOutput]
    next_page_token: str | UnsetType = UNSET
    schema_changes: list[dict[str, Any]] | UnsetType = UNSET


class SchemaDiffOutput(msgspec.Struct):
    """The steps from the schema of one state to that of another."""

    from_: RefOutput = msgspec.field(name="from")
    to: RefOutput
    supported: bool
    step_count: int
    steps: list[dict[str, Any]]


class ChangeBlockOutput(msgspec.Struct):
    """What one commit changed, or a part of it."""

    cause: ChangeCauseOutput
    changes: list[EntityChangeOutput]
    schema_changes: list[dict[str, Any]] | UnsetType = UNSET


class ChangeFeedOutput(msgspec.Struct):
    """A page of the change feed: it has a page token, or a cursor."""

    blocks: list[ChangeBlockOutput]
    next_page_token: str | UnsetType = UNSET
    cursor: str | UnsetType = UNSET
    caught_up: bool | UnsetType = UNSET


# -- errors ---------------------------------------------------------------------------------------


class MergeConflictOutput(msgspec.Struct):
    """One conflict of a merge; one of schemas has its details under the name of its kind."""

    entity_kind: Literal["node", "edge", "interface"]
    type_name: str
    entity_id: str | None
    kind: str
    message: str
    schema_conflict: dict[str, Any] | UnsetType = UNSET
    schema_type_dropped: dict[str, Any] | UnsetType = UNSET
    schema_dropped: dict[str, Any] | UnsetType = UNSET
    schema_required: dict[str, Any] | UnsetType = UNSET


class KeyConflictOutput(msgspec.Struct):
    """An id that is already there; `graph_commit_id` is the commit that wrote it, if known."""

    entity_kind: Kind
    type_name: str
    entity_id: str | UnsetType = UNSET
    graph_commit_id: str | UnsetType | None = UNSET


class DatasetVersionConflictOutput(msgspec.Struct):
    """A type whose data advanced under the writer."""

    entity_kind: Kind
    type_name: str
    expected_published_dataset_version: int | None
    actual_published_dataset_version: int | None


class ManifestConflictOutput(msgspec.Struct):
    """The older spelling of `DatasetVersionConflictOutput`."""

    table_key: str
    expected: int | None
    actual: int | None


class ReadSetConflictOutput(msgspec.Struct):
    """What changed between reading and writing."""

    member: str
    expected: str | None
    actual: str | None


class ChangeDiffRefusalOutput(msgspec.Struct):
    """Why the changes of a commit cannot be given."""

    reason: Literal["parentless_commit", "schema_boundary"]
    graph_commit_id: str
    type_name: str | UnsetType = UNSET


class ChangeFeedGapOutput(msgspec.Struct):
    """Where history was reclaimed."""

    first_unreadable_commit_id: str
    cursor: str | UnsetType = UNSET


class PreconditionFailureOutput(msgspec.Struct):
    """The head that was expected, and the one that is there."""

    expected: str
    actual: str | UnsetType = UNSET


class ResourceLimitOutput(msgspec.Struct):
    """A limit that was exceeded."""

    resource: str
    limit: int
    actual: int


class BlobRangeOutput(msgspec.Struct):
    """A range that cannot be satisfied, half-open."""

    start: int
    end: int | None
    length: int | None


class ExternalBlobSourceOutput(msgspec.Struct):
    """An external object that could not be read."""

    uri: str
    reason: str


class RecoveryRequiredOutput(msgspec.Struct):
    """The operation that has to be settled first."""

    operation_id: str


class ErrorFacts(msgspec.Struct):
    """The error as the library has it: its code, what to do next, and more facts."""

    code: str
    facts: dict[str, Any]
    hint: str | UnsetType = UNSET
    details: dict[str, Any] | UnsetType = UNSET


class ErrorOutput(msgspec.Struct):
    """An error: its text, its kind, at most one detail, and the library's own code."""

    error: str
    code: Code | UnsetType = UNSET
    merge_conflicts: list[MergeConflictOutput] | UnsetType = UNSET
    key_conflict: KeyConflictOutput | UnsetType = UNSET
    published_dataset_version_conflict: DatasetVersionConflictOutput | UnsetType = UNSET
    manifest_conflict: ManifestConflictOutput | UnsetType = UNSET
    read_set_conflict: ReadSetConflictOutput | UnsetType = UNSET
    change_diff_refusal: ChangeDiffRefusalOutput | UnsetType = UNSET
    change_feed_gap: ChangeFeedGapOutput | UnsetType = UNSET
    precondition_failure: PreconditionFailureOutput | UnsetType = UNSET
    resource_limit: ResourceLimitOutput | UnsetType = UNSET
    blob_range: BlobRangeOutput | UnsetType = UNSET
    external_blob_source: ExternalBlobSourceOutput | UnsetType = UNSET
    recovery_required: RecoveryRequiredOutput | UnsetType = UNSET
    omnigraph: ErrorFacts | UnsetType = UNSET


class ChangeErrorOutput(msgspec.Struct):
    """An error of a change route."""

    error: str
    code: Code | UnsetType = UNSET
    resource_limit: ResourceLimitOutput | UnsetType = UNSET
    recovery_required: RecoveryRequiredOutput | UnsetType = UNSET
    change_feed_gap: ChangeFeedGapOutput | UnsetType = UNSET
    change_diff_refusal: ChangeDiffRefusalOutput | UnsetType = UNSET
    omnigraph: ErrorFacts | UnsetType = UNSET
