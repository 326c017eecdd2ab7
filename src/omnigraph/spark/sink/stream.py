"""Writes a stream into a graph: every micro-batch is one commit, exactly once.

1. A commit stores `(txn_app_id, txn_batch_id)` of its batch. Spark replays a batch that it has not
   recorded as done; a batch that has a commit already is skipped.
2. The check for replays and the commit are one step: the commit requires the head that was checked,
   and is tried again when another writer was faster. So two drivers of one stream cannot both
   commit a batch.
3. A batch number below the last one, or another checkpoint, means that a stream has begun anew
   under an id that is in use: an error, because its rows would be taken for replayed ones.
4. A batch that changes nothing makes no commit, and does nothing again when it is replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from omnigraph.errors import InvalidInputError, PreconditionError
from omnigraph.spark.sink.table_sink import (
    StagedRows,
    WriteTarget,
    load_parts,
    remove_parts,
    stage_rows,
    staged_parts,
    staging,
)
from omnigraph.spark.source.options import SourceOptionError, SourceOptions

if TYPE_CHECKING:
    from omnigraph.graph import Graph, GraphCommit

APP_ID: Final = "txn_app_id"
BATCH_ID: Final = "txn_batch_id"
CHECKPOINT: Final = "txn_checkpoint"

_ATTEMPTS_MAX: Final = 20


class StreamRestartedError(InvalidInputError):
    """A stream begins anew under an id under which another one has written."""

    code = "OG-STREAM-ID"
    hint = "continue with the old checkpoint, or give the new stream an id of its own (`txnAppId`)"
    template = (
        "stream '{app_id}' writes batch {batch_id} from a new checkpoint, and its batch"
        " {last.batch_id} is in the graph already; nothing was written"
    )
    app_id: str
    batch_id: int
    last: LastBatch


@dataclass(frozen=True)
class LastBatch:
    """The newest batch of a stream that is in the graph."""

    batch_id: int
    checkpoint: str | None


@dataclass(frozen=True)
class StreamIdentity:
    """Under which name a stream writes, and where Spark keeps its progress, if that is known."""

    app_id: str
    checkpoint: str | None

    def properties(self, batch_id: int) -> dict[str, str]:
        """Return what the commit of a batch remembers."""
        known = {} if self.checkpoint is None else {CHECKPOINT: self.checkpoint}
        return {APP_ID: self.app_id, BATCH_ID: str(batch_id), **known}


def stream_identity(options: SourceOptions) -> StreamIdentity:
    """Read the writer's identity from the options."""
    app_id = options["txnAppId"] or options["queryName"]
    if not app_id:
        problem = "is missing: name the query with .queryName(…), or give `txnAppId`"
        raise SourceOptionError("txnAppId", problem)
    place = options["checkpointLocation"]
    return StreamIdentity(app_id, None if place is None else _plain_place(place))


def _plain_place(place: str) -> str:
    for prefix in ("file://", "file:"):
        if place.startswith(prefix):
            place = place.removeprefix(prefix)
            break
    return place.rstrip("/")


def last_batch(commits: Iterable[GraphCommit], app_id: str) -> LastBatch | None:
    """Find the newest batch of a stream among commits, newest first."""
    for commit in commits:
        if commit.properties.get(APP_ID) == app_id:
            number = int(commit.properties[BATCH_ID])
            return LastBatch(number, commit.properties.get(CHECKPOINT))
    return None


def is_replayed(identity: StreamIdentity, batch_id: int, last: LastBatch | None) -> bool:
    """Whether a batch is in the graph already; raise when it belongs to another stream.

    >>> is_replayed(StreamIdentity("s", None), 3, LastBatch(3, None))
    True
    >>> is_replayed(StreamIdentity("s", None), 4, LastBatch(3, None))
    False
    """
    if last is None:
        return False
    places = {identity.checkpoint, last.checkpoint} - {None}
    if len(places) > 1 or batch_id < last.batch_id:
        raise StreamRestartedError(identity.app_id, batch_id, last)
    return batch_id == last.batch_id


class GraphStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, target: WriteTarget, schema: pa.Schema, identity: StreamIdentity) -> None:
        self._target = replace(target, job=identity.app_id)
        self._schema = schema
        self._identity = identity

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Write the rows of one task to side files."""
        return stage_rows(self._target, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Load a batch, unless it is there already."""
        parts = staged_parts(messages)
        with staging(self._target) as record:
            graph = self._target.open()
            try:
                self._load_once(graph, parts, batchId)
            finally:
                graph.close()
            remove_parts(parts)
        record.close()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Leave everything as it is."""

    def _load_once(self, graph: Graph, parts: Sequence[StagedRows], batch_id: int) -> None:
        properties = self._target.properties | self._identity.properties(batch_id)
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            snapshot = graph.snapshot()
            last = last_batch(snapshot.state.commits(), self._identity.app_id)
            if is_replayed(self._identity, batch_id, last):
                return
            head = snapshot.commit_id
            try:
                load_parts(
                    self._target, self._schema, parts, properties, graph=graph, expected_head=head
                )
            except PreconditionError:
                if attempt == _ATTEMPTS_MAX:
                    raise
                continue
            return
