"""Queries, exports and tables of other engines."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omnigraph.engine import (
    EngineChoice,
    FrameRequest,
    choose,
    engine_named,
)
from omnigraph.graph.core import GraphCore
from omnigraph.manifest import (
    ReadTarget,
    Snapshot,
)
from omnigraph.names import choice
from omnigraph.query import QueryText
from omnigraph.read.access.blobs import Blob, BlobSelector, EntityKind, find_blob
from omnigraph.read.limits import MEMORY_MAX_DEFAULT, Limits
from omnigraph.read.reader import ReadOptions
from omnigraph.read.result import QueryResult, Target
from omnigraph.write.export.exporter import (
    ExportFormat,
    ExportResult,
    export_here,
    plan_export,
    stream_lines,
)


class ReadCalls(GraphCore):
    """Calls that read rows."""

    def query(
        self,
        text: QueryText,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        target: ReadTarget | Snapshot | None = None,
        explain: bool = False,
        profile: bool = False,
        timeout_s: float | None = None,
        rows_max: int | None = None,
        memory_max: int | None = MEMORY_MAX_DEFAULT,
        cancelled: threading.Event | None = None,
    ) -> QueryResult:
        """Run a read on one snapshot; `name` picks one of several queries in the text.

        `target` is a branch, commit, tag or moment, or a snapshot such as that of
        `snapshot_at_version`; by default the head of the bound branch.
        `explain` says how it would be answered, `profile` how it was. A read that exceeds a limit
        is an error, never a part of the answer.
        """
        snapshot = self.snapshot() if target is None else self.snapshot_of(target)
        return self._reader.run(
            snapshot,
            text,
            name=name,
            params=params,
            target=_shown_target(snapshot, target),
            options=ReadOptions(
                Limits(timeout_s=timeout_s, rows_max=rows_max, memory_max=memory_max),
                explain=explain,
                profile=profile,
                cancelled=cancelled,
            ),
        )

    def export(
        self,
        out: str | os.PathLike[str],
        *,
        format: str = ExportFormat.JSONL,  # noqa: A002 - what everybody calls it
        types: Sequence[str] = (),
        target: ReadTarget | Snapshot | None = None,
        engine: str = EngineChoice.AUTO,
        spark: object | None = None,
        progress: bool = False,
    ) -> ExportResult:
        """Write one snapshot to an empty folder: a folder per type, a file per group of fragments.

        `format` is `jsonl` or `parquet`, which a load takes back, or `csv`. `types` names some
        types, by default all. `engine` is as in `load`; on Spark the folder must be one that
        workers share.
        """
        snapshot = self.snapshot() if target is None else self.snapshot_of(target)
        form = choice(ExportFormat, format, "export format")
        plan = plan_export(snapshot, out, export_format=form, types=types)
        asked = choice(EngineChoice, engine, "engine")
        chosen = choose(asked, {"export": plan}, session=spark).engine
        if chosen is EngineChoice.LOCAL:
            return export_here(plan, self._repository.store.datasets)
        return engine_named(chosen).export(
            plan, self._repository, session=spark, shows_progress=progress
        )

    def export_lines(
        self, *, types: Sequence[str] = (), target: ReadTarget | Snapshot | None = None
    ) -> Iterator[bytes]:
        """Yield one line of graph JSONL per entity of one snapshot, by type and id."""
        snapshot = self.snapshot() if target is None else self.snapshot_of(target)
        return stream_lines(snapshot, types)

    def blob(
        self,
        entity: EntityKind,
        type_name: str,
        entity_id: str,
        property: str,  # noqa: A002 - what the schema calls it
        *,
        target: ReadTarget | Snapshot | None = None,
    ) -> Blob:
        """Return one Blob value of a node or an edge: what it is, and its bytes in parts.

        The value of a null, and of an entity that does not exist, is an error. An external one
        has an address and no bytes.
        """
        snapshot = self.snapshot() if target is None else self.snapshot_of(target)
        return find_blob(snapshot, BlobSelector(entity, type_name, entity_id, property))

    def to_spark(
        self,
        spark: object,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        target: ReadTarget | Snapshot | None = None,
    ) -> Any:
        """Return the rows of one type as a Spark DataFrame of one snapshot.

        `columns` names columns, Blobs among them; without it all others come. `where` is a filter
        in SQL that storage answers: comparisons, `AND`, `OR`, `NOT`, `IN`, `BETWEEN`, `LIKE`,
        `IS NULL`.
        """
        return engine_named("spark").frame(
            FrameRequest(
                self._repository,
                self.snapshot() if target is None else self.snapshot_of(target),
                spark,
                name,
                None if columns is None else tuple(columns),
                where,
            )
        )

    def graphframe(self, spark: object, *, edges: Sequence[str] | None = None) -> Any:
        """Return nodes and edges of the newest snapshot as a `GraphFrame`.

        A vertex id is `Type:id`; `edges` names the edge types to take, by default all.
        """
        chosen = None if edges is None else tuple(edges)
        return engine_named("spark").frame(
            FrameRequest(self._repository, self.snapshot(), spark, edges=chosen)
        )


def _shown_target(snapshot: Snapshot, target: ReadTarget | Snapshot | None) -> Target:
    if target is None or (isinstance(target, ReadTarget) and target.kind == "branch"):
        return Target(branch=str(snapshot.branch))
    return Target(snapshot=snapshot.commit_id)
