"""From answers of a server to the results that a local graph gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson
import pyarrow as pa

from omnigraph.client.http import Answer
from omnigraph.graph import (
    BlobSelector,
    BlobStat,
    Block,
    CommitPage,
    FeedPage,
    GraphCommit,
    LoadResult,
    MergeResult,
    MutationResult,
    QueryResult,
    SchemaApplied,
    StillNeeded,
    Tag,
)
from omnigraph.merge.conflicts import Conflict, ConflictKind, Conflicts
from omnigraph.merge.result import DroppedValues, MergeKind, TypeCounts
from omnigraph.names import TableKey
from omnigraph.read.profile import trace_of
from omnigraph.read.result import ResultObject, Target
from omnigraph.schema import MigrationPlan
from omnigraph.schema.migration.cost import Price
from omnigraph.schema.migration.steps import Step, UnsupportedChange
from omnigraph.values import PropType, Scalar
from omnigraph.write.load.result import LoadCounts, Seconds
from omnigraph.write.mutate.mutations import ChangedRows

Json = dict[str, Any]
ENVELOPE: Final = b"omnigraph"
ARROW: Final = "application/vnd.apache.arrow.stream"
_COUNTERS: Final = ("inserted", "updated", "unchanged", "deleted", "rejected", "superseded")


def read(answer: Answer) -> QueryResult:
    """Return the rows of an Arrow stream; its metadata has the rest."""
    table = pa.ipc.open_stream(answer.body).read_all().combine_chunks()
    shape = orjson.loads((table.schema.metadata or {})[ENVELOPE])
    described = zip(table.column_names, shape["types"], strict=True)
    return QueryResult(
        query_name=shape["query_name"],
        columns=tuple(_column(name, one) for name, one in described),
        arrays=tuple(_array(column) for column in table.columns),
        target=Target(**shape["target"]),
        graph_commit_id=shape["graph_commit_id"],
        estimates=tuple(trace_of(one) for one in shape.get("plan", ())),
        measured=tuple(trace_of(one) for one in shape.get("profile", ())),
        elapsed_ms=shape.get("elapsed_ms"),
        warnings=tuple(shape.get("warnings", ())),
    )


@dataclass(frozen=True)
class _Column:
    header: str
    prop_type: PropType


def _column(name: str, shape: Json) -> _Column | ResultObject:
    if "fields" not in shape:
        return _Column(name, _prop_type(shape))
    return ResultObject(name, [_Column(one["name"], _prop_type(one)) for one in shape["fields"]])


def _prop_type(shape: Json) -> PropType:
    values = shape["enum"]
    return PropType(
        Scalar(shape["scalar"]),
        nullable=shape["nullable"],
        is_list=shape["is_list"],
        enum_values=None if values is None else tuple(values),
        dimension=shape["dimension"],
    )


def _array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def commit(shape: Json | None) -> GraphCommit | None:
    """Return a commit."""
    if shape is None:
        return None
    branch = shape["graph_branch"]
    return GraphCommit(
        graph_commit_id=shape["graph_commit_id"],
        # The incarnation of a branch is known to its graph only; its name is all that is shown.
        manifest_branch=None if branch is None else f"{branch}.",
        manifest_version=shape["graph_manifest_version"],
        parent_commit_id=shape["parent_commit_id"],
        merged_parent_commit_id=shape["merged_parent_commit_id"],
        actor_id=shape["actor_id"],
        created_at=shape["created_at"],
        operation=shape.get("operation", ""),
        message=shape.get("message"),
        properties=shape.get("properties", {}),
    )


def sure_commit(shape: Json) -> GraphCommit:
    """Return a commit that is there."""
    found = commit(shape)
    if found is None:
        raise TypeError("the answer has no commit")
    return found


def mutation(shape: Json) -> MutationResult:
    """Return what a mutation has done."""
    return MutationResult(
        branch=shape["branch"],
        query_name=shape["query_name"],
        affected_nodes=shape["affected_nodes"],
        affected_edges=shape["affected_edges"],
        actor_id=shape["actor_id"],
        commit=commit(shape["commit"]),
        durability=shape.get("durability", "full"),
        counts=tuple(_changed_rows(one) for one in shape.get("counts", ())),
    )


def _changed_rows(shape: Json) -> ChangedRows:
    key = TableKey(f"{shape['entity_kind']}:{shape['type_name']}")
    names = ("inserted", "updated", "replaced", "deleted", "unchanged")
    return ChangedRows(key, **{name: shape[name] for name in names})


def load(shape: Json) -> LoadResult:
    """Return what a load has done."""
    return LoadResult(
        branch=shape["branch"],
        base_branch=shape["base_branch"],
        branch_created=shape["branch_created"],
        mode=shape["mode"],
        node_counts={each["name"]: _load_counts(each) for each in shape["nodes"]},
        edge_counts={each["name"]: _load_counts(each) for each in shape["edges"]},
        commit=commit(shape["commit"]),
        actor_id=shape["actor_id"],
        engine=shape.get("engine", "local"),
        engine_reason=shape.get("engine_reason", ""),
        durability=shape.get("durability", "full"),
        bytes_written=shape.get("bytes_written", 0),
        is_dry_run=shape.get("dry_run", False),
        cascaded=_cascaded(shape.get("cascaded")),
        seconds=Seconds(**shape.get("seconds", {})),
    )


def _cascaded(shape: list[Json] | None) -> dict[str, int] | None:
    return None if shape is None else {one["name"]: one["removed"] for one in shape}


def _load_counts(shape: Json) -> LoadCounts:
    counts = {name: shape.get(name, 0) for name in _COUNTERS}
    nulled, warnings = shape.get("nulled", {}), tuple(shape.get("warnings", ()))
    return LoadCounts(shape["entities_loaded"], **counts, nulled=nulled, warnings=warnings)


def merge(shape: Json) -> MergeResult:
    """Return what a merge has done, or would do."""
    return MergeResult(
        source=shape["source"],
        target=shape["target"],
        outcome=MergeKind(shape["outcome"]),
        actor_id=shape["actor_id"],
        commit=commit(shape.get("commit")),
        counts=tuple(
            TypeCounts(one["type_key"], one["insert"], one["update"], one["delete"])
            for one in shape.get("counts", ())
        ),
        conflicts=Conflicts(_conflict(one) for one in shape.get("merge_conflicts", ())),
        schema_changes=MigrationPlan(
            tuple(ServedStep.of(step) for step in shape.get("schema_changes", ()))
        ),
        dropped_values=tuple(
            DroppedValues(one["type_key"], one["property"], one["count"])
            for one in shape.get("dropped_values", ())
        ),
        is_dry_run=shape.get("dry_run", False),
    )


def _conflict(shape: Json) -> Conflict:
    key = f"{shape['entity_kind']}:{shape['type_name']}"
    kind = ConflictKind(shape["kind"])
    return Conflict(key, kind, shape["message"], shape["entity_id"], shape.get(kind, {}))


def tag(shape: Json) -> Tag:
    """Return a tag; its pin is known to its graph only."""
    return Tag(
        name=shape["name"],
        commit_id=shape["graph_commit_id"],
        created_at=shape["created_at"],
        pin="",
        actor_id=shape["actor_id"],
    )


def feed_page(shape: Json) -> FeedPage:
    """Return a page of the change feed."""
    return FeedPage(
        blocks=tuple(
            Block(one["cause"], one["changes"], tuple(one.get("schema_changes", ())))
            for one in shape["blocks"]
        ),
        cursor=shape.get("cursor"),
        caught_up=shape.get("caught_up"),
        next_page_token=shape.get("next_page_token"),
    )


def commit_page(shape: Json) -> CommitPage:
    """Return a page of what one commit changed."""
    return CommitPage(
        cause=shape["cause"],
        changes=shape["changes"],
        next_page_token=shape.get("next_page_token"),
        schema_changes=tuple(shape.get("schema_changes", ())),
    )


def revert(shape: Json) -> MergeResult:
    """Return what undoing a commit has done."""
    done = commit(shape["commit"])
    outcome = MergeKind.ALREADY_UP_TO_DATE if done is None else MergeKind.MERGED
    actor = None if done is None else done.actor_id
    return MergeResult(shape["reverted"], shape["branch"], outcome, actor, commit=done)


def applied(shape: Json) -> SchemaApplied:
    """Return what a schema apply has done."""
    return SchemaApplied(
        plan=MigrationPlan(tuple(ServedStep.of(step) for step in shape["steps"])),
        applied=shape["applied"],
        graph_manifest_version=shape["graph_manifest_version"],
        commit=commit(shape.get("commit")),
        warnings=tuple(shape.get("warnings", ())),
        branch=shape["branch"],
        kept_for=tuple(
            StillNeeded(kept["type"], kept.get("branch"), kept.get("tag"), kept.get("operation"))
            for kept in shape.get("kept_for", ())
        ),
    )


def schema_difference(shape: Json) -> MigrationPlan:
    """Return the steps from one schema to another."""
    return MigrationPlan(tuple(_difference_step(step) for step in shape["steps"]))


def _difference_step(shape: Json) -> Step:
    """Read one step; those that no apply could make are known as such."""
    served = ServedStep.of(shape)
    if shape["kind"] != UnsupportedChange.kind:
        return served
    return UnsupportedChange(served.price, shape["entity"], shape["reason"], shape.get("code"))


@dataclass(frozen=True)
class ServedStep(Step, kind="served"):
    """A step of a migration as a server describes it."""

    shape: Json
    line: str

    @classmethod
    def of(cls, shape: Json) -> ServedStep:
        """Read one step; `text` is its line for people."""
        rest: Json = {name: value for name, value in shape.items() if name != "text"}
        price = Price(shape["tier"], shape.get("table_key"), shape.get("row_count"))
        return cls(price, rest, str(shape.get("text", shape["kind"])))

    def to_json(self) -> Json:
        """Return the step as plans show it."""
        return self.shape

    def render(self) -> str:
        """Return one line that says what changes and what it costs."""
        return self.line


def blob_stat(cell: BlobSelector, answer: Answer) -> BlobStat:
    """Return what a Blob value is."""
    commit_id = answer.headers["omnigraph-snapshot-id"]
    if answer.status == 302:
        return BlobStat(cell, "external", commit_id, uri=answer.headers["location"])
    size, etag = int(answer.headers["content-length"]), answer.headers["etag"]
    return BlobStat(cell, "managed", commit_id, size, etag)
