"""`graph.changes`: differences, the changes of a commit, the change feed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from omnigraph.changes.commit_changes import (
    PAGE_CHANGES_DEFAULT,
    CommitPage,
    changes_between,
    commit_page,
)
from omnigraph.changes.diff import Difference, difference, differing_bytes
from omnigraph.changes.feed import Feed, FeedPage, FeedRequest
from omnigraph.changes.selection import Selection
from omnigraph.engine import DiffRequest, bulk_engine, engine_named
from omnigraph.graph.session import Part
from omnigraph.manifest import AnyTarget, Snapshot
from omnigraph.write.export.exporter import stream_lines


@dataclass(frozen=True)
class GraphDiff:
    """What differs between two snapshots, compared only when the rows are asked for."""

    request: DiffRequest

    def rows(
        self, *, engine: str = "auto", spark: object | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield what differs, with the rows of both sides."""
        one = self.request
        size = partial(differing_bytes, one.before, one.after, one.selection)
        bulk = bulk_engine(engine, size, session=spark)
        if bulk is None:
            return changes_between(one.before, one.after, one.selection)
        return bulk.changes(replace(one, session=spark))

    def to_spark(self, spark: object | None = None) -> Any:
        """Return what differs as a DataFrame; tasks find it when its rows are asked for."""
        return engine_named("spark").changes_frame(replace(self.request, session=spark))


class GraphChanges(Part):
    """Finds what changed between two states, in a commit, or since a cursor."""

    def difference(
        self,
        before: AnyTarget,
        after: AnyTarget,
        selection: Selection | None = None,
    ) -> Difference:
        """Return the net difference of two states of the graph, on whatever branches they are."""
        old, new = self._session.snapshot_of(before), self._session.snapshot_of(after)
        return difference(old, new, selection or Selection())

    def diff(
        self,
        before: AnyTarget,
        after: AnyTarget,
        selection: Selection | None = None,
    ) -> GraphDiff:
        """Return what differs between two states: as rows, or as a frame of Spark."""
        old, new = self._session.snapshot_of(before), self._session.snapshot_of(after)
        repository = self._session.repository
        return GraphDiff(DiffRequest(repository, old, new, selection or Selection()))

    def between(
        self,
        before: AnyTarget,
        after: AnyTarget,
        selection: Selection | None = None,
        *,
        engine: str = "auto",
        spark: object | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield what differs between two states, with the rows of both sides.

        Large differences are found by Spark tasks; the rows are the same, in the same order.
        """
        return self.diff(before, after, selection).rows(engine=engine, spark=spark)

    def of_commit(
        self,
        commit_id: str,
        selection: Selection | None = None,
        *,
        limit: int = PAGE_CHANGES_DEFAULT,
        page_token: str | None = None,
    ) -> CommitPage:
        """Return a page of what one commit changed, with the rows before and after."""
        repository = self._session.repository
        return commit_page(
            repository.history,
            repository.history.get(commit_id),
            selection or Selection(),
            graph=repository.root,
            limit=limit,
            page_token=page_token,
        )

    def poll(self, request: FeedRequest, *, branch: str | None = None) -> FeedPage:
        """Return a page of what happened on a branch since a cursor."""
        return self._feed(self._session.snapshot(branch), request.selection).poll(request)

    def baseline(
        self, *, branch: str | None = None, selection: Selection | None = None
    ) -> tuple[Iterator[bytes], dict[str, str]]:
        """Return every entity of a branch as lines of JSON, and where the feed goes on after them.

        The second part holds `snapshot_commit_id` and `resume_cursor`: use it only after all lines.
        """
        selection = selection or Selection()
        snapshot = self._session.snapshot(branch)
        lines = stream_lines(
            snapshot, sorted(selection.types or ()), kinds=selection.kinds or ("node", "edge")
        )
        cursor = self._feed(snapshot, selection).cursor_at(snapshot.commit_id)
        return lines, {"snapshot_commit_id": snapshot.commit_id, "resume_cursor": cursor}

    def _feed(self, snapshot: Snapshot, selection: Selection) -> Feed:
        repository = self._session.repository
        return Feed(repository.history, snapshot, selection, graph=repository.root)
