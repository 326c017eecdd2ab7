"""The change feed as a stream: what `spark.readStream.format("omnigraph")` reads.

1. An offset is a cursor of the feed: it binds graph, history, branch, incarnation and the type that
   is read, and stands after complete commits only. Spark keeps it in the checkpoint; nothing of a
   reader is kept in the graph, and any process can go on.
2. The offset before the first micro-batch is empty. Where the stream begins is decided by the end
   of its first micro-batch, which is in the checkpoint before any task runs: repeated after a
   crash, it has the same rows, whatever has been committed meanwhile. Without `startingVersion`
   they are the whole snapshot at that end, as inserts; with `latest` there are none.
3. A micro-batch has at most `maxCommitsPerTrigger` commits, unless Spark asks for everything that
   is available.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from omnigraph.changes.feed import COMMITS_MAX, Feed
from omnigraph.changes.selection import Selection
from omnigraph.names import BranchName
from omnigraph.spark.change_rows import read_slices
from omnigraph.spark.source.feed import (
    LATEST,
    FeedScan,
    changes_of,
    first_of,
    partitions_of,
    plan_feed,
    snapshot_slices,
)
from omnigraph.spark.source.options import (
    SourceOptionError,
    SourceOptions,
    positive_integer,
    reads_feed,
    refuse_options,
)
from omnigraph.spark.source.pin import read_repository
from omnigraph.spark.source.scan import Pin

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.manifest import Repository
_CURSOR: Final = "cursor"


def plan_stream(options: SourceOptions, pin: Pin) -> ChangeStream:
    """Check the options of a stream, and return its reader."""
    if not reads_feed(options):
        raise SourceOptionError("readChangeFeed", "is missing: a stream of a graph is its changes")
    refuse_options(options, "a stream", ("endingVersion",))
    commits_max = positive_integer(options, "maxCommitsPerTrigger") or COMMITS_MAX
    return ChangeStream(plan_feed(options, pin), options["startingVersion"], commits_max)


@dataclass(frozen=True)
class _Seen:
    """The branch as one call of Spark sees it."""

    repository: Repository
    feed: Feed

    @property
    def head(self) -> int:
        return len(self.feed.commits) - 1

    def place_of(self, offset: dict[str, str]) -> int | None:
        """Return the position of the last commit that was read; None before the first."""
        cursor = offset.get(_CURSOR, "")
        if not cursor:
            return None
        done = self.feed.commit_of(cursor)
        return next(n for n, one in enumerate(self.feed.commits) if one.graph_commit_id == done)

    def offset_at(self, place: int) -> dict[str, str]:
        return {_CURSOR: self.feed.cursor_at(self.feed.commits[place].graph_commit_id)}


class ChangeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of a branch, commit by commit."""

    def __init__(self, scan: FeedScan, starting: str | None, commits_max: int) -> None:
        self._scan = scan
        self._starting = None if starting is None else starting.strip()
        self._commits_max = commits_max
        self._cut: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the stream."""
        return self._scan.frame.schema

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return {_CURSOR: ""}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much a micro-batch reads: for Spark, a commit is a file."""
        return ReadMaxFiles(self._commits_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Look no further than the head of this moment."""
        self._cut = self._seen().feed.commits[-1].graph_commit_id

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return where the next micro-batch ends."""
        seen = self._seen()
        last = self._last(seen)
        done = seen.place_of(start)
        if done is None:
            if self._starting is None or self._starting.lower() == LATEST:
                return seen.offset_at(last)
            done = self._before_first(seen)
        if isinstance(limit, ReadMaxFiles):
            last = min(last, done + limit.max_files)
        return start if last <= done else seen.offset_at(last)

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Return the slices of each task, in the order of the commits."""
        seen = self._seen()
        last, done = seen.place_of(end), seen.place_of(start)
        if last is None:
            return []
        history = seen.repository.history
        if done is None:
            if self._starting is None:
                commit = seen.feed.commits[last]
                snapshot = history.snapshot_of_commit(commit.graph_commit_id)
                return partitions_of(self._scan, snapshot_slices(self._scan, snapshot, commit))
            done = last if self._starting.lower() == LATEST else self._before_first(seen)
        commits = seen.feed.commits[done + 1 : last + 1]
        return partitions_of(self._scan, changes_of(self._scan, history, commits))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_slices(partition)

    # -- inside -----------------------------------------------------------------------------------

    def _seen(self) -> _Seen:
        pin = self._scan.pin
        repository = read_repository(pin.settings)
        incarnation = repository.branches.resolve(BranchName.parse(pin.branch))
        snapshot = repository.history.snapshot(incarnation)
        feed = Feed(repository.history, snapshot, self._selection(), graph=repository.root)
        return _Seen(repository, feed)

    def _selection(self) -> Selection:
        if self._scan.subject is None:
            return Selection()
        kind, name = self._scan.subject
        return Selection.of(kinds=[kind], types=[name])

    def _last(self, seen: _Seen) -> int:
        if self._cut is None:
            return seen.head
        ids = [commit.graph_commit_id for commit in seen.feed.commits]
        return ids.index(self._cut) if self._cut in ids else seen.head

    def _before_first(self, seen: _Seen) -> int:
        history = seen.repository.history
        return first_of(seen.feed.commits, self._starting or "", history) - 1
