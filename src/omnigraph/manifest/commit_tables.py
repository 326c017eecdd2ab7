"""The commit history as plain tables, for people who join it with Spark, DuckDB or pandas.

`_graph_commits.lance` holds every commit of every branch, `_graph_commit_actors.lance` the commits
that have an actor. Both are derived from `__manifest`: they are appended after a publish, several
commits at a time and in the background, and brought up to date at open and at `refresh` (for
`main` and the bound branch) and by `optimize` (for all). A failure here never fails a write.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import OmnigraphError
from omnigraph.manifest.commits import GraphCommit
from omnigraph.manifest.layout import COMMIT_ACTORS, COMMITS, MANIFEST
from omnigraph.manifest.state import ManifestState
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.errors import DatasetNotFoundError, MisplacedCommitError
from omnigraph.store.records import ROW_ADDRESS, DatasetVersion, ScanRequest, StagedTransaction
from omnigraph.store.retries import LOST_RACES, commit_retried
from omnigraph.values import PRIMARY_KEY

_ATTEMPTS_MAX: Final = 5
_ID: Final = "graph_commit_id"
_KEY: Final = pa.field(_ID, pa.utf8(), nullable=False, metadata={PRIMARY_KEY: b"true"})

COMMITS_SCHEMA: Final = pa.schema(
    [
        _KEY,
        pa.field("manifest_branch", pa.utf8()),
        pa.field("manifest_version", pa.uint64(), nullable=False),
        pa.field("parent_commit_id", pa.utf8()),
        pa.field("merged_parent_commit_id", pa.utf8()),
        pa.field("created_at", pa.int64(), nullable=False),
        pa.field("operation", pa.utf8(), nullable=False),
        pa.field("message", pa.utf8()),
        pa.field("properties", pa.utf8()),
    ]
)
ACTORS_SCHEMA: Final = pa.schema(
    [
        _KEY,
        pa.field("actor_id", pa.utf8(), nullable=False),
        pa.field("created_at", pa.int64(), nullable=False),
    ]
)

_log = logging.getLogger(__name__)


class CommitTables:
    """Keeps the derived tables in step with the manifest. Safe to share between threads.

    A row is appended once it is known to be new, which takes a read of the stored ids whenever
    another process has written since. Two processes can still add the same commit at once; the
    next reconciliation deletes the second row.
    """

    def __init__(self, datasets: DatasetStore) -> None:
        self._datasets = datasets
        self._guard = threading.Lock()
        self._known: dict[str, tuple[int, frozenset[str]]] = {}

    def record(self, commits: Sequence[GraphCommit]) -> None:
        """Add commits that have just been published; a failure is logged and repaired later."""
        try:
            self._add(commits)
        except OmnigraphError as error:
            _log.warning("the commit tables are behind and will be brought up to date: %s", error)

    def reconcile(self, states: Iterable[ManifestState]) -> int:
        """Add every commit of these manifests that is missing; return how many were."""
        try:
            for location in (COMMIT_ACTORS, COMMITS):
                self._remove_repeated(location)
            missing = self._missing(states)
            self._add(missing)
        except OmnigraphError as error:
            _log.warning("could not bring the commit tables up to date: %s", error)
            return 0
        return len(missing)

    def find(self, commit_ids: Iterable[str]) -> dict[str, GraphCommit]:
        """Return those commits that the table has, also of deleted branches; without actors."""
        wanted = pa.array(sorted(set(commit_ids)), pa.utf8())
        try:
            rows = self._datasets.open(COMMITS).scan(ScanRequest()).read_all()
        except OmnigraphError:
            return {}
        found = rows.filter(pc.is_in(rows[_ID], wanted)).select(COMMITS_SCHEMA.names).to_pylist()
        return {row[_ID]: _commit_of(row) for row in found}

    def _missing(self, states: Iterable[ManifestState]) -> list[GraphCommit]:
        recorded, acted = self._stored_ids(COMMITS), self._stored_ids(COMMIT_ACTORS)
        missing: dict[str, GraphCommit] = {}
        for state in states:
            absent = (state.commit_ids - recorded) | (state.acting_commit_ids - acted)
            missing |= {c.graph_commit_id: c for c in state.commits_with_ids(absent)}
        return [missing[commit_id] for commit_id in sorted(missing)]

    def _add(self, commits: Sequence[GraphCommit]) -> None:
        if not commits:
            return
        # Actors first: a crash in between leaves the commit missing, so reconciling repeats both,
        # and rows with a known key are left alone.
        acting = [commit for commit in commits if commit.actor_id is not None]
        if acting:
            rows = pa.Table.from_pylist([vars(commit) for commit in acting], schema=ACTORS_SCHEMA)
            self._append(COMMIT_ACTORS, rows)
        self._append(COMMITS, _commits_table(commits))

    def _append(self, location: str, rows: pa.Table) -> None:
        stored: frozenset[str] = frozenset()

        def stage() -> StagedTransaction | None:
            nonlocal stored
            try:
                head = self._datasets.head_version(location)
            except DatasetNotFoundError:
                if not self._datasets.exists(MANIFEST):
                    return None  # The graph was removed: its folder must not be created again.
                return self._datasets.stage_create(location, rows.schema, rows=rows)
            stored = self._ids_at(location, head)
            is_new = [commit_id not in stored for commit_id in rows[_ID].to_pylist()]
            fresh = rows.filter(pa.array(is_new, pa.bool_()))
            if not fresh.num_rows:
                return None
            return self._datasets.stage_append(DatasetVersion(location, None, head), fresh)

        with self._guard:
            # Rows that landed above those of another process are known at the second look.
            landed = commit_retried(
                self._datasets,
                stage,
                attempts_max=_ATTEMPTS_MAX,
                retried=(*LOST_RACES, MisplacedCommitError),
            )
            if landed is not None:
                ids = stored | frozenset(rows[_ID].to_pylist())
                self._known[location] = (landed.version, ids)

    def _stored_ids(self, location: str) -> frozenset[str]:
        with self._guard:
            try:
                head = self._datasets.head_version(location)
            except DatasetNotFoundError:
                return frozenset()
            return self._ids_at(location, head)

    def _ids_at(self, location: str, version: int) -> frozenset[str]:
        known_version, ids = self._known.get(location, (0, frozenset()))
        if known_version != version:
            handle = self._datasets.open(location, version=version)
            ids = frozenset(handle.scan(ScanRequest(columns=(_ID,))).read_all()[_ID].to_pylist())
            self._known[location] = (version, ids)
        return ids

    def _remove_repeated(self, location: str) -> None:
        """Delete rows whose commit has another row."""
        ids = self._stored_ids(location)
        if not ids:
            return
        handle = self._datasets.open(location)
        if handle.count() == len(ids):
            return
        request = ScanRequest(columns=(_ID,), with_row_address=True)
        rows = handle.scan(request).read_all().sort_by(ROW_ADDRESS)
        first = rows.group_by(_ID).aggregate([(ROW_ADDRESS, "min")])[f"{ROW_ADDRESS}_min"]
        extra = rows.filter(pc.invert(pc.is_in(rows[ROW_ADDRESS], first.combine_chunks())))
        staged = self._datasets.stage_update(handle.at, deleted=extra[ROW_ADDRESS].to_pylist())
        self._datasets.commit_staged(staged, exact=False)


def _commits_table(commits: Sequence[GraphCommit]) -> pa.Table:
    rows = [{**vars(commit), "properties": _properties(commit)} for commit in commits]
    return pa.Table.from_pylist(rows, schema=COMMITS_SCHEMA)


def _commit_of(row: dict[str, Any]) -> GraphCommit:
    properties = orjson.loads(row["properties"]) if row["properties"] else {}
    return GraphCommit(**{**row, "actor_id": None, "properties": properties})


def _properties(commit: GraphCommit) -> str | None:
    return orjson.dumps(dict(commit.properties)).decode() if commit.properties else None
