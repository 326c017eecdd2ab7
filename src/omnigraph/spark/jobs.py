"""Runs Python functions as Spark jobs.

1. Each call is one partition with one row, made by `range`: that needs neither an RDD nor a shuffle
   and works on every kind of session.
2. What a call returns comes back as one binary cell. A task that was run twice, by a retry or by
   speculation, counts once: the cells are the rows of the job's result.
3. Jobs run in a thread of their own under one tag. When the waiting thread is interrupted,
   everything under the tag is cancelled before the interrupt is raised.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa

from omnigraph.engine import LoadCancelledError
from omnigraph.progress import Progress
from omnigraph.spark.diff_tasks import candidate_frame
from omnigraph.spark.failures import translated
from omnigraph.spark.progress import application_id, running_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.spark.diff_tasks import ReadCandidates

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

_CELL: Final = "payload"
_RESULT: Final = f"{_CELL} binary"
_POLL_S: Final = 0.1


class JobRunner(Protocol):
    """Runs functions for the driver, somewhere."""

    @property
    def application_id(self) -> str | None:
        """The id of the application that runs the jobs, if there is one."""
        ...

    def calls(
        self, stage: str, function: Callable[[Asked, int], Answer], asked: Sequence[Asked]
    ) -> list[Answer]:
        """Run a function for each of some arguments, in parallel; answers come in their order.

        Function and arguments are pickled, so they have to be small.
        """
        ...

    def rows(
        self,
        stage: str,
        frame: DataFrame,
        function: Callable[[Iterable[pa.RecordBatch], int], Answer],
    ) -> list[Answer]:
        """Run a function on the batches of every partition that has rows."""
        ...

    def bucketed(
        self,
        stage: str,
        read: ReadCandidates,
        buckets: int,
        function: Callable[[Iterable[pa.RecordBatch], int], Answer],
    ) -> list[Answer]:
        """Read candidates, bring those of a bucket together, and run a function on each bucket."""
        ...


class Jobs:
    """Runs the jobs of one operation on a session."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        tag: str,
        progress: Progress,
        cancelled: threading.Event | None = None,
    ) -> None:
        self._spark = spark
        self._tag = tag
        self._progress = progress
        self._cancelled = cancelled

    @property
    def application_id(self) -> str | None:
        """The id of the Spark application; None on Connect."""
        return application_id(self._spark)

    def calls(
        self, stage: str, function: Callable[[Asked, int], Answer], asked: Sequence[Asked]
    ) -> list[Answer]:
        if not asked:
            return []
        numbers = self._spark.range(0, len(asked), 1, len(asked))
        frame = numbers.mapInArrow(partial(_call, function, tuple(asked)), _RESULT)
        return self._run(stage, frame)

    def rows(
        self,
        stage: str,
        frame: DataFrame,
        function: Callable[[Iterable[pa.RecordBatch], int], Answer],
    ) -> list[Answer]:
        return self._run(stage, frame.mapInArrow(partial(_rows, function), _RESULT))

    def bucketed(
        self,
        stage: str,
        read: ReadCandidates,
        buckets: int,
        function: Callable[[Iterable[pa.RecordBatch], int], Answer],
    ) -> list[Answer]:
        return self.rows(stage, candidate_frame(self._spark, read, buckets), function)

    def _run(self, stage: str, frame: DataFrame) -> list[Any]:
        with (
            self._progress.stage(stage, partial(running_tasks, self._spark)),
            translated(stage),
        ):
            cells = self._collected(frame)
        # Cells are made by the functions below.
        answers = [pickle.loads(cell) for cell in cells]  # noqa: S301 - see above
        return [answer for _, answer in sorted(answers, key=lambda answer: answer[0])]

    def _collected(self, frame: DataFrame) -> list[bytes]:
        found: list[bytes] = []
        failure: list[BaseException] = []

        def collect() -> None:
            self._spark.addTag(self._tag)
            try:
                found.extend(bytes(row[0]) for row in frame.collect())
            except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
                failure.append(error)

        # Not a daemon: the process waits for a job that is being cancelled.
        worker = threading.Thread(target=collect, name="omnigraph-spark")
        worker.start()
        try:
            while worker.is_alive():
                self._require_wanted()
                worker.join(_POLL_S)
        except BaseException:
            # Repeated until the thread ends: cancelling before Spark knows the job does nothing.
            # Errors of cancelling are dropped, because the interrupt itself is raised below.
            while worker.is_alive():
                with suppress(Exception):
                    self._spark.interruptTag(self._tag)
                worker.join(_POLL_S)
            raise
        if failure:
            raise failure[0]
        return found

    def _require_wanted(self) -> None:
        if self._cancelled is not None and self._cancelled.is_set():
            raise LoadCancelledError


def _call(
    function: Callable[[Any, int], Any],
    asked: tuple[Any, ...],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield _cell(number, function(asked[number], number))


def _rows(
    function: Callable[[Iterable[pa.RecordBatch], int], Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext  # noqa: PLC0415 - only tasks have one

    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    context = TaskContext.get()
    number = context.partitionId() if context else 0

    def everything() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    yield _cell(number, function(everything(), number))


def _cell(number: int, answer: object) -> pa.RecordBatch:
    return pa.record_batch({_CELL: pa.array([pickle.dumps((number, answer))], pa.binary())})
