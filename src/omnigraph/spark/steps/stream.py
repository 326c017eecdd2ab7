"""Micro-batches of a declared pipeline: sources that stream, and the query that hands them over.

1. All streams of a pipeline are one query, so that a micro-batch has one number and one outcome.
   Several streams are columns of one frame, of which a row fills one.
2. The function that takes a micro-batch either publishes it and returns, or raises; then Spark
   hands the same rows over again under the same number when the query is started again.
3. A stop waits for the micro-batch that is running. One that begins after it is refused by an
   error: Spark would take a plain return for success.
4. What the function raises is kept here and raised by `run`, because Spark makes a text of it.
5. A graph that is followed is a stream only to notice that there is something new. Its rows are not
   taken from the query.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from omnigraph.errors import InvalidInputError
from omnigraph.spark.failures import SparkJobError, translated
from omnigraph.spark.steps.failures import SparkStepError, step
from omnigraph.spark.steps.new_files import bytes_of, files_of_batch, require_columns
from omnigraph.spark.steps.workspace import SourceRead, Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S: Final = 1
_LAST_BATCH_S: Final = 600.0
SMALL_BYTES: Final = 4 << 20
"""Files up to this size are loaded without tasks."""
_INFERENCE: Final = "spark.sql.streaming.schemaInference"
_NOTICE: Final = "_omnigraph_notice"


class StreamSessionError(InvalidInputError):
    """Micro-batches have to be handled by the process that publishes them."""

    code = "OG-PIPELINE-CONNECT"
    hint = "run the pipeline with `--spark-master`, or without `trigger` on Spark Connect"
    template = "a pipeline with a trigger needs a classic Spark session, found one of Spark Connect"


class _StoppedError(Exception):
    """Tells Spark that a micro-batch was not taken."""


@dataclass(frozen=True)
class MicroBatch:
    """The rows of one trigger, as tables of a workspace."""

    stream_id: str
    """The id of the checkpoint, made by Spark."""
    number: int
    workspace: Workspace
    streams: int
    """How many sources give new rows."""
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The new files of the streams of which they are known."""

    @property
    def is_small(self) -> bool:
        """Whether all new rows are in a few small files."""
        paths = [path for found in self.files.values() for path in found]
        size = bytes_of(paths) if len(self.files) == self.streams else None
        return size is not None and size <= SMALL_BYTES


@dataclass(frozen=True)
class StreamReads:
    """What a query reads."""

    rows: Sequence[SourceRead]
    """Sources whose new rows are tables of the micro-batch."""
    noticed: Sequence[SourceRead] = ()
    """Sources of which only is noticed that there is something new."""


class MicroBatches:
    """The query of one pipeline, from its start to its end."""

    def __init__(
        self, workspace: Workspace, reads: StreamReads, *, checkpoint: str, every_s: int | None
    ) -> None:
        if type(workspace.session).__module__.startswith("pyspark.sql.connect"):
            raise StreamSessionError
        self._workspace = workspace
        self._reads = reads
        self._checkpoint = checkpoint
        self._every_s = every_s
        self._turn = threading.Lock()
        self._stream_id = ""
        self._started = threading.Event()
        self._is_stopping = False
        self._failure: BaseException | None = None
        self._batch_workspace: Workspace | None = None
        self._frames = {read.name: stream_frame(workspace, read) for read in reads.rows}

    def add_columns(self, workspace: Workspace) -> None:
        """Make tables known that have the columns of the streams and no rows."""
        for name, frame in self._frames.items():
            _add_columns(workspace, name, frame)

    def run(
        self,
        take: Callable[[MicroBatch], None],
        stop: threading.Event,
        cancelled: threading.Event,
    ) -> None:
        """Hand over micro-batches until there are no more, `take` raises, or `stop` is set.

        `cancelled` is set when this thread is interrupted: `take` then gives its batch up.
        """

        def take_frame(frame: DataFrame, number: int) -> None:
            with self._turn:
                self._started.wait()
                if self._is_stopping or stop.is_set():
                    self._is_stopping = True
                    raise _StoppedError
                try:
                    take(self._batch(frame, number))
                except BaseException as error:
                    self._failure = error
                    self._is_stopping = True
                    raise

        with translated("stream"), _lost_session():
            query = self._start(take_frame)
            try:
                self._await(query, stop)
            except Exception:
                is_expected = self._is_stopping
                self._end(query)
                if not is_expected:
                    raise
            except BaseException:
                cancelled.set()
                self._end(query)
                raise
            self._end(query)
            if self._failure is not None:
                raise self._failure

    def _end(self, query: StreamingQuery) -> None:
        """Stop the query, and wait for a micro-batch that is being taken."""
        self._is_stopping = True
        # The session may be gone with the process of Spark.
        with suppress(Exception):
            query.stop()
        if self._turn.acquire(timeout=_LAST_BATCH_S):
            self._turn.release()

    def _start(self, take_frame: Callable[[DataFrame, int], None]) -> StreamingQuery:
        writer = self._united().writeStream.foreachBatch(take_frame)
        writer = writer.option("checkpointLocation", self._checkpoint)
        if self._every_s is None:
            query = writer.trigger(availableNow=True).start()
        else:
            query = writer.trigger(processingTime=f"{self._every_s} seconds").start()
        self._stream_id = query.id
        self._started.set()
        return query

    def _await(self, query: StreamingQuery, stop: threading.Event) -> None:
        while not query.awaitTermination(_POLL_S):
            if stop.is_set():
                with self._turn:
                    self._is_stopping = True
                return

    # -- rows -------------------------------------------------------------------------------------

    def _united(self) -> DataFrame:
        from pyspark.sql import functions  # noqa: PLC0415 - an optional library

        frames = list(self._frames.values())
        if len(frames) == 1 and not self._reads.noticed:
            return frames[0]
        parts: list[DataFrame] = [
            frame.select(functions.struct("*").alias(_column(number)))
            for number, frame in enumerate(frames)
        ]
        for read in self._reads.noticed:
            # The columns of a feed are read for nothing.
            noticed = stream_frame(self._workspace, read)
            parts.append(noticed.where("false").select(functions.lit(None).alias(_NOTICE)))
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.unionByName(part, allowMissingColumns=True)
        return whole

    def _batch(self, frame: DataFrame, number: int) -> MicroBatch:
        if self._batch_workspace is None:
            # Spark has one session for all micro-batches of a query.
            self._batch_workspace = Workspace(frame.sparkSession, {}, is_own=True)
        workspace = self._batch_workspace
        workspace.forget_changes()
        if len(self._frames) == 1 and not self._reads.noticed:
            workspace.add_frame(next(iter(self._frames)), frame)
        else:
            for place, name in enumerate(self._frames):
                column = _column(place)
                rows = frame.where(f"{column} IS NOT NULL").select(f"{column}.*")
                workspace.add_frame(name, rows)
        found = {
            name: files_of_batch(self._checkpoint, place, number)
            for place, name in enumerate(self._frames)
        }
        files = {name: paths for name, paths in found.items() if paths is not None}
        streams = len(self._frames) + len(self._reads.noticed)
        return MicroBatch(self._stream_id, number, workspace, streams, files)

    def require_columns(self, batch: MicroBatch) -> None:
        """Raise when a new file lacks a column that its stream has."""
        for read in self._reads.rows:
            names = self._frames[read.name].columns
            require_columns(read, names, batch.files.get(read.name, ()))


@contextmanager
def _lost_session() -> Iterator[None]:
    """Raise as an error of ours that the process of Spark has ended."""
    try:
        yield
    except ConnectionError as error:
        raise SparkJobError("stream", "the process of Spark has ended") from error


def _column(number: int) -> str:
    return f"_omnigraph_{number}"


def add_stream_columns(workspace: Workspace, read: SourceRead) -> None:
    """Make a table known that has the columns of a stream and no rows."""
    _add_columns(workspace, read.name, stream_frame(workspace, read))


def _add_columns(workspace: Workspace, name: str, frame: DataFrame) -> None:
    workspace.add_frame(name, workspace.session.createDataFrame([], frame.schema))


def stream_frame(workspace: Workspace, read: SourceRead) -> DataFrame:
    """Return the rows of a source as they come."""
    with step(f"source '{read.name}'"):
        workspace.session.conf.set(_INFERENCE, "true")
        reader = workspace.session.readStream
        if read.table is not None:
            return reader.options(**read.options).table(read.table)
        reader = reader.format(read.format).options(**read.options)
        if read.schema is not None:
            reader = reader.schema(read.schema)
        try:
            frame = reader.load(read.paths[0]) if read.paths else reader.load()
            frame.schema  # noqa: B018 - a reader may look at its source only now
        except Exception as error:
            if "Unable to infer schema" in str(error) or "UNABLE_TO_INFER_SCHEMA" in str(error):
                reason = "there are no files yet, so its columns are not known: give a `schema:`"
                raise SparkStepError(f"source '{read.name}'", reason) from error
            raise
        return frame
