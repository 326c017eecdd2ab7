"""`graph.changes`: differences, the changes of a commit, the change feed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from omnigraph.dataclass import dataclass
from omnigraph.display import Display, Displayed
from omnigraph.graph.arguments import commit_id_of
from omnigraph.graph.late import (
    commit_changes,
    differences,
    engines,
    exporter,
    feeds,
    selections,
    type_pairs,
)
from omnigraph.graph.session import Part
from omnigraph.manifest import AnyTarget, GraphCommit, Snapshot


@dataclass(frozen=True, repr=False)
class GraphDiff(Displayed):
    """What differs between two snapshots, compared only when the rows are asked for."""

    request: engines.DiffRequest

    def _display(self) -> Display:
        before, after = self.request.before, self.request.after
        places = [f"{one.branch} at commit {one.commit_id}" for one in (before, after)]
        return Display(f"difference from {places[0]} to {places[1]}; its rows() compare")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield what `rows` does."""
        return self.rows()

    def rows(
        self, *, engine: str = "auto", spark: object | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield what differs, with the rows of both sides.

        Where the schemas differ, the first item is `{"schema_changes": [step]}`.
        """
        one = self.request
        size = partial(differences.differing_bytes, one.before, one.after, one.selection)
        bulk = engines.bulk_engine(engine, size, session=spark)
        if bulk is None:
            return commit_changes.changes_between(one.before, one.after, one.selection)
        rows = bulk.changes(replace(one, session=spark))
        return chain(commit_changes.schema_header(one.before, one.after), rows)

    @property
    def schema_changes(self) -> tuple[dict[str, Any], ...]:
        """The steps from the schema of the earlier state to that of the later one."""
        return type_pairs.schema_changes(self.request.before, self.request.after)

    def to_spark(self, spark: object | None = None) -> Any:
        """Return what differs as a DataFrame; tasks find it when its rows are asked for."""
        return engines.engine_named("spark").changes_frame(replace(self.request, session=spark))


class GraphChanges(Part):
    """Finds what changed between two states, in a commit, or since a cursor."""

    def difference(
        self,
        before: AnyTarget,
        after: AnyTarget,
        selection: selections.Selection | None = None,
    ) -> differences.Difference:
        """Return the net difference of two states of the graph, on whatever branches they are."""
        old, new = self._session.snapshot_of(before), self._session.snapshot_of(after)
        return differences.difference(old, new, selection or selections.Selection())

    def diff(
        self,
        before: AnyTarget,
        after: AnyTarget,
        selection: selections.Selection | None = None,
    ) -> GraphDiff:
        """Return what differs between two states: as rows, or as a frame of Spark."""
        old, new = self._session.snapshot_of(before), self._session.snapshot_of(after)
        repository = self._session.repository
        return GraphDiff(
            engines.DiffRequest(repository, old, new, selection or selections.Selection())
        )

    def between(
        self,
        before: AnyTarget,
        after: AnyTarget,
        selection: selections.Selection | None = None,
        *,
        engine: str = "auto",
        spark: object | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield what differs between two states, with the rows of both sides.

        Where the schemas differ, the first item is `{"schema_changes": [step]}`: see
        `GraphDiff.schema_changes`. Rows are compared by identity then, whatever types and
        properties are called; an image lacks a property that its side does not have.

        Large differences are found by Spark tasks; the rows are the same, in the same order.
        """
        return self.diff(before, after, selection).rows(engine=engine, spark=spark)

    def of_commit(
        self,
        commit_id: str | GraphCommit,
        selection: selections.Selection | None = None,
        *,
        limit: int = 1_000,
        page_token: str | None = None,
    ) -> commit_changes.CommitPage:
        """Return a page of what one commit changed, with the rows before and after."""
        repository = self._session.repository
        return commit_changes.commit_page(
            repository.history,
            repository.history.get(commit_id_of(commit_id)),
            selection or selections.Selection(),
            graph=repository.root,
            limit=limit,
            page_token=page_token,
        )

    def poll(self, request: feeds.FeedRequest, *, branch: str | None = None) -> feeds.FeedPage:
        """Return a page of what happened on a branch since a cursor."""
        return self._feed(self._session.snapshot(branch), request.selection).poll(request)

    def baseline(
        self, *, branch: str | None = None, selection: selections.Selection | None = None
    ) -> tuple[Iterator[bytes], dict[str, str]]:
        """Return every entity of a branch as lines of JSON, and where the feed goes on after them.

        The second part holds `snapshot_commit_id` and `resume_cursor`: use it only after all lines.
        """
        selection = selection or selections.Selection()
        snapshot = self._session.snapshot(branch)
        lines = exporter.stream_lines(
            snapshot, sorted(selection.types or ()), kinds=selection.kinds or ("node", "edge")
        )
        cursor = self._feed(snapshot, selection).cursor_at(snapshot.commit_id)
        return lines, {"snapshot_commit_id": snapshot.commit_id, "resume_cursor": cursor}

    def _feed(self, snapshot: Snapshot, selection: selections.Selection) -> feeds.Feed:
        repository = self._session.repository
        return feeds.Feed(repository.history, snapshot, selection, graph=repository.root)
