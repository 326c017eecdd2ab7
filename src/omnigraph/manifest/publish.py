"""The one atomic publish.

A publish is one Lance commit on `__manifest`. It makes new versions of any number of tables visible
at once, together with the commit record.

1. *Requirements* (`omnigraph.manifest.requirements`) must hold in the state that the publish
   replaces; *updates* are folded into it.
2. Every publish rewrites the `graph_head` row and names the fence (`omnigraph.manifest.fence`). Of
   two publishes from one state Lance therefore refuses the second instead of moving it on top of
   the first, even when a cleanup has removed the first: history is one chain.
3. The parent of the commit is the head that the same attempt replaces.
4. The commit id is fixed before the first attempt. A publish that finds it published or voided
   stops.
5. A requirement that does not hold is an error at once. Losing the race for the head is retried
   until a deadline.
6. A failure after which the commit may exist is an `OutcomeUnknownError`; whether the commit id is
   published answers it later.
7. After the publish the branch must still exist: Lance acknowledges a commit on a branch that has
   just been deleted.
8. The rows may be staged in advance, while the tables are still being committed. They are used only
   if the state that they were made from is the one that the publish replaces.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Final

import pyarrow as pa

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.manifest.commits import GraphCommit
from omnigraph.manifest.errors import (
    BranchGoneError,
    CommitSettledError,
    PublishTimeoutError,
)
from omnigraph.manifest.fence import commit_fenced
from omnigraph.manifest.layout import MANIFEST, Incarnation
from omnigraph.manifest.reader import ManifestReader, WrittenPublish
from omnigraph.manifest.requirements import Requirements
from omnigraph.manifest.rows import (
    GRAPH_COMMIT,
    VOIDED_COMMIT,
    AcceptedSchema,
    Entry,
    Head,
    ManifestRow,
    Registration,
    rows_table,
    tombstone_row,
)
from omnigraph.manifest.state import ManifestState
from omnigraph.store.background import Background
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.durability import Flusher
from omnigraph.store.errors import DatasetVersionNotFoundError, StaleBaseError
from omnigraph.store.records import ROW_ADDRESS, ROW_ID, DatasetVersion, StagedTransaction

_log = logging.getLogger(__name__)

DEADLINE_S: Final = 30.0
_PAUSE_S: Final = 0.002
_PAUSE_MAX_S: Final = 0.25
_ATTEMPTS_MIN: Final = 3
"""A machine that slept through the deadline still tries again."""


@dataclass(frozen=True)
class CommitDraft:
    """A commit record before it has a parent and a manifest version."""

    graph_commit_id: str
    operation: str
    actor_id: str | None
    created_at: int
    merged_parent_commit_id: str | None = None
    message: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def new(
        cls,
        clock: Clock,
        operation: str,
        actor_id: str | None = None,
        *,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitDraft:
        """Return the draft of a commit that is made now."""
        return cls(
            clock.ulid(),
            operation,
            actor_id,
            clock.now_us(),
            message=message,
            properties=dict(properties or {}),
        )

    def at(self, incarnation: Incarnation, manifest_version: int, parent: str) -> GraphCommit:
        """Return the record with its branch, manifest version and parent."""
        return GraphCommit(
            graph_commit_id=self.graph_commit_id,
            manifest_branch=incarnation.lance_branch,
            manifest_version=manifest_version,
            parent_commit_id=parent,
            merged_parent_commit_id=self.merged_parent_commit_id,
            actor_id=self.actor_id,
            created_at=self.created_at,
            operation=self.operation,
            message=self.message,
            properties=self.properties,
        )


@dataclass(frozen=True)
class Updates:
    """What a publish changes. The `seq` of new entries is set by the attempt that lands."""

    entries: tuple[Entry, ...] = ()
    registrations: tuple[Registration, ...] = ()
    tombstones: tuple[str, ...] = ()
    schema: AcceptedSchema | None = None
    rows: tuple[ManifestRow, ...] = ()
    """Further rows: tags, voided commits and the identity counter."""
    removed: tuple[str, ...] = ()
    """Object ids of rows to delete: those of deleted tags."""


@dataclass(frozen=True)
class Published:
    """Where a publish has landed."""

    manifest_version: int
    commit: GraphCommit | None
    entries: Mapping[str, Entry]


@dataclass(frozen=True)
class StagedPublish:
    """The rows of one publish, written but not committed."""

    state: ManifestState
    draft: CommitDraft | None
    updates: Updates
    plan: _Plan
    written: WrittenPublish
    transaction: StagedTransaction


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """Publishes on the branches of one graph."""

    datasets: DatasetStore
    reader: ManifestReader
    clock: Clock
    background: Background
    flusher: Flusher

    @contextmanager
    def prestage(
        self,
        incarnation: Incarnation,
        state: ManifestState,
        *,
        draft: CommitDraft | None,
        updates: Updates,
    ) -> Iterator[Future[StagedPublish]]:
        """Stage a publish in parallel with the block, which passes the future to `publish`.

        `state` is what `require` returned, and no other writer may publish on the branch meanwhile.
        """
        prestaged = self.start_staging(incarnation, state, draft=draft, updates=updates)
        try:
            yield prestaged
        finally:
            wait([prestaged])

    def start_staging(
        self,
        incarnation: Incarnation,
        state: ManifestState,
        *,
        draft: CommitDraft | None,
        updates: Updates,
    ) -> Future[StagedPublish]:
        """Begin to stage a publish on a state; it is durable when the future is done.

        The caller waits for the future before it releases the lock of the branch.
        """

        def stage() -> StagedPublish:
            _require_unsettled(state, draft, updates)
            return self._stage(incarnation, state, draft, updates)

        return self.background.start(stage)

    def publish(
        self,
        incarnation: Incarnation,
        *,
        draft: CommitDraft | None,
        requirements: Requirements,
        updates: Updates,
        prestaged: Future[StagedPublish] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> Published:
        """Check the requirements and make the updates visible, or raise and change nothing.

        Without a draft the publish makes no commit: voids, tags, reserved numbers and compaction.
        `prestaged` comes from `prestage` with the same draft and updates.
        """
        give_up_at = self.clock.monotonic_s() + deadline_s
        attempts = 0
        while True:
            attempts += 1
            state = self.reader.latest(incarnation)
            staged = _usable(prestaged, state, draft, updates)
            if staged is None:
                _require_unsettled(state, draft, updates)
            requirements.require(state)
            try:
                if staged is None:
                    staged = self._stage(incarnation, state, draft, updates)
                return self.land(incarnation, staged)
            except (StaleBaseError, DatasetVersionNotFoundError) as error:
                # Another writer was faster; a cleanup may even have removed the version read.
                if attempts >= _ATTEMPTS_MIN and self.clock.monotonic_s() > give_up_at:
                    raise PublishTimeoutError(str(incarnation.branch), attempts) from error
            pause_s = min(_PAUSE_S * 2 ** min(attempts, 10), _PAUSE_MAX_S)
            self.clock.sleep(self.clock.jitter(0.0, pause_s))

    def require(self, incarnation: Incarnation, requirements: Requirements) -> ManifestState:
        """Check requirements against the newest state, without publishing; return that state."""
        state = self.reader.latest(incarnation)
        requirements.require(state)
        return state

    def _stage(
        self,
        incarnation: Incarnation,
        state: ManifestState,
        draft: CommitDraft | None,
        updates: Updates,
    ) -> StagedPublish:
        plan = _plan(state, incarnation, draft, updates)
        written = _written(state, plan)
        transaction = self.datasets.stage_update(
            DatasetVersion(MANIFEST, incarnation.lance_branch, state.version),
            rewritten=written.rewritten,
            inserted=written.inserted,
            deleted=written.removed or None,
            fence=state.fence,
        )
        return StagedPublish(state, draft, updates, plan, written, transaction)

    def land(self, incarnation: Incarnation, staged: StagedPublish) -> Published:
        """Commit a staged publish once; `StaleBaseError` when its state is not the newest any more.

        What was staged must be durable by now.
        """
        state, plan = staged.state, staged.plan
        # An unknown outcome stays unknown even when the commit can be seen: what could not be
        # flushed may be lost in a power failure.
        with self.flusher.together():
            landed = commit_fenced(
                self.datasets,
                self.reader,
                self.clock,
                incarnation=incarnation,
                base=state,
                staged=staged.transaction,
                head=plan.head,
            )
            self._require_alive(incarnation)
            # Before the flush: others who read the branch by now need not read the version.
            self._take_over(incarnation, staged, landed)
        commit = plan.commit and replace(plan.commit, manifest_version=landed)
        return Published(landed, commit, {entry.table_key: entry for entry in plan.entries})

    def _take_over(self, incarnation: Incarnation, staged: StagedPublish, landed: int) -> None:
        if landed != staged.state.version + 1:
            return
        try:
            self.reader.take_over(incarnation, staged.state, landed, staged.written)
        except (OmnigraphError, pa.ArrowException) as error:
            # The publish has landed in any case: the next reader reads it.
            _log.info("manifest version %d was not taken over: %s", landed, error)

    def _require_alive(self, incarnation: Incarnation) -> None:
        if not incarnation.is_main and not self.datasets.has_branch(MANIFEST, incarnation.text):
            raise BranchGoneError(incarnation.text)


def _usable(
    prestaged: Future[StagedPublish] | None,
    state: ManifestState,
    draft: CommitDraft | None,
    updates: Updates,
) -> StagedPublish | None:
    """Return what was staged in advance, if that succeeded and was for exactly this publish."""
    if prestaged is None or prestaged.exception() is not None:
        return None
    staged = prestaged.result()
    is_same = staged.state is state and staged.draft == draft and staged.updates == updates
    return staged if is_same else None


def _require_unsettled(state: ManifestState, draft: CommitDraft | None, updates: Updates) -> None:
    """Refuse to use a commit id twice, for a commit or for a void."""
    taken = [row.object_id for row in updates.rows if row.object_type == VOIDED_COMMIT]
    if draft is not None:
        taken.append(draft.graph_commit_id)
    for commit_id in taken:
        settled = state.settled_as(commit_id)
        if settled is not None:
            raise CommitSettledError(commit_id, is_published=settled == GRAPH_COMMIT)


# -- folding updates -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """The rows of one attempt."""

    rows: tuple[ManifestRow, ...]
    removed: tuple[str, ...]
    head: Head
    entries: tuple[Entry, ...]
    commit: GraphCommit | None
    is_plain: bool


def _plan(
    state: ManifestState, incarnation: Incarnation, draft: CommitDraft | None, updates: Updates
) -> _Plan:
    seq = state.version + 1
    entries = tuple(entry.at_seq(seq) for entry in updates.entries)
    commit = draft.at(incarnation, seq, state.head.commit_id) if draft else None
    head = Head(
        commit_id=commit.graph_commit_id if commit else state.head.commit_id,
        schema_hash=updates.schema.schema_hash if updates.schema else state.head.schema_hash,
    )
    rows = (
        head.row(),
        *((updates.schema.row(),) if updates.schema else ()),
        *(registration.row() for registration in updates.registrations),
        *(entry.row() for entry in entries),
        *(tombstone_row(key, seq) for key in updates.tombstones),
        *updates.rows,
        *((commit.row(),) if commit else ()),
    )
    is_plain = updates == Updates(entries=updates.entries)
    return _Plan(rows, updates.removed, head, entries, commit, is_plain)


def _written(state: ManifestState, plan: _Plan) -> WrittenPublish:
    known = state.row_ids([row.object_id for row in plan.rows] + list(plan.removed))
    inserted = [row for row in plan.rows if row.object_id not in known]
    return WrittenPublish(
        rewritten=_with_row_ids([row for row in plan.rows if row.object_id in known], known),
        inserted=rows_table(inserted) if inserted else None,
        removed=tuple(known[name][1] for name in plan.removed if name in known),
        head=plan.head,
        entries=plan.entries,
        is_plain=plan.is_plain,
    )


def _with_row_ids(rows: list[ManifestRow], known: Mapping[str, tuple[int, int]]) -> pa.Table:
    table = rows_table(rows)
    ids = pa.array([known[row.object_id][0] for row in rows], pa.uint64())
    addresses = pa.array([known[row.object_id][1] for row in rows], pa.uint64())
    return table.append_column(ROW_ID, ids).append_column(ROW_ADDRESS, addresses)
