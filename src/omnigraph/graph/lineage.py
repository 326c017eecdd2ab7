"""`graph.lineage`: which jobs and inputs the rows of a graph came from."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.dataclass import dataclass
from omnigraph.graph.late import lineage_transport, openlineage, traces
from omnigraph.graph.session import Part
from omnigraph.manifest import GraphCommit, Snapshot
from omnigraph.manifest.errors import BranchGoneError, CommitNotFoundError, VersionRemovedError
from omnigraph.names import TableKey, choice
from omnigraph.schema import Catalog, EntityType
from omnigraph.store.filters import Comparison
from omnigraph.store.records import ROW_UPDATED, ScanRequest


class GraphLineage(Part):
    """Answers from commits where rows came from, and sends commits as OpenLineage events."""

    def show(
        self,
        subject: str,
        *,
        direction: str = "up",
        branch: str | None = None,
        limit: int = 100,
    ) -> traces.Trace:
        """Return the commits that something came from (`up`), or that read it (`down`).

        `subject` is a commit, `Type`, `Type.property` or `Type:id`: a row of the branch as it is
        now. What cleanup or the deletion of a branch has removed is in the notes of the answer.
        """
        way = choice(traces.Direction, direction, "direction")
        asked = traces.parse_subject(subject)
        steps, notes = self._traced(asked, way, branch)
        return traces.trace(asked, way, steps, notes, limit=limit)

    def events(
        self, *, since: str | None = None, branch: str | None = None
    ) -> Iterator[openlineage.Event]:
        """Yield the OpenLineage events of the commits of a branch, oldest first.

        With `since` only of commits after that one.
        """
        root = self._session.repository.root
        for commit in commits_since(self._session.state_of(branch).commits(), since):
            yield from openlineage.events_of(commit, root)

    def emit(
        self, to: str | None = None, *, since: str | None = None, branch: str | None = None
    ) -> lineage_transport.Emitted:
        """Send the events of a branch to `file:DIR` or a URL, by default to `OMNIGRAPH_LINEAGE`.

        They can be sent again at any time. What a transport refuses is counted, and logged.
        """
        return lineage_transport.emit_events(to, self.events(since=since, branch=branch))

    # -- tracing ----------------------------------------------------------------------------------

    def _traced(
        self, asked: traces.Subject, way: traces.Direction, branch: str | None
    ) -> tuple[list[traces.Step], list[str]]:
        known = self._known()
        if asked.commit_id is not None:
            return traces.trace_of_commit(known, asked.commit_id, way)
        snapshot = self._session.snapshot(branch)
        entity_type = type_asked_for(asked, snapshot.catalog)
        if asked.entity_id is not None:
            return self._of_row(known, _Row(entity_type.table_key, asked), snapshot, way)
        if way is traces.Direction.DOWN:
            found = known.readers_of_type(entity_type.name, asked.property_name)
            return list(traces.steps_of(found)), []
        return self._writers(known, entity_type, asked.property_name, snapshot)

    def _writers(
        self,
        known: traces.KnownCommits,
        entity_type: EntityType,
        property_name: str | None,
        snapshot: Snapshot,
    ) -> tuple[list[traces.Step], list[str]]:
        """Return the commits that published a version of a table, with what merges brought."""
        published = snapshot.state.entry_history().get(entity_type.table_key, [])
        commits = snapshot.state.commits_at([version for version, _ in published])
        steps: list[traces.Step] = []
        notes: list[str] = []
        for commit in sorted(commits, key=lambda one: one.manifest_version, reverse=True):
            if commit.is_maintenance or commit.operation == "init":
                continue
            found, missing = known.up(commit)
            notes += missing
            steps += [
                step
                for step in found
                if traces.touches(step.lineage, entity_type.name, property_name)
                and (
                    step.depth == 0
                    or traces.writes_type(step.commit, entity_type.name, property_name)
                )
            ]
        return steps, notes

    # -- rows -------------------------------------------------------------------------------------

    def _of_row(
        self, known: traces.KnownCommits, row: _Row, snapshot: Snapshot, way: traces.Direction
    ) -> tuple[list[traces.Step], list[str]]:
        commit = _writer_of(row, snapshot)
        if commit is None:
            raise traces.LineageSubjectError(
                row.asked.text, f"the branch has no row '{row.entity_id}'"
            )
        if way is traces.Direction.DOWN:
            return list(traces.steps_of(known.readers_of(commit))), []
        steps, notes = [traces.Step(commit)], list[str]()
        while commit.merged_parent_commit_id is not None and len(steps) < traces.STEPS_MAX:
            depth = len(steps)
            try:
                before = self._session.repository.history.snapshot_of_commit(
                    commit.merged_parent_commit_id
                )
                writer = _writer_of(row, before)
            except (CommitNotFoundError, VersionRemovedError) as error:
                more, missing = self._candidates(known, commit, row.asked.type_name, depth)
                return [*steps, *more], [*notes, _removed_note(row, error), *missing]
            if writer is None:
                # The merge has made the row: of both sides, or by a resolution.
                break
            commit = writer
            steps.append(traces.Step(commit, depth))
        return steps, notes

    @staticmethod
    def _candidates(
        known: traces.KnownCommits, merge: GraphCommit, type_name: str, depth: int
    ) -> tuple[list[traces.Step], list[str]]:
        brought, missing = known.brought_by(merge)
        wrote = [one for one in brought if traces.writes_type(one, type_name, None)]
        return list(traces.steps_of(wrote, depth=depth)), [traces.gone_note(one) for one in missing]

    def _known(self) -> traces.KnownCommits:
        repository = self._session.repository
        commits: dict[str, GraphCommit] = {}
        for incarnation in repository.branches.incarnations():
            try:
                listed = repository.reader.latest(incarnation).commits()
            except BranchGoneError:
                continue  # It was deleted since it was listed.
            commits |= {one.graph_commit_id: one for one in listed}
        return traces.KnownCommits(commits, repository.commit_tables.find)


@dataclass(frozen=True)
class _Row:
    table_key: str
    asked: traces.Subject

    @property
    def entity_id(self) -> str:
        return self.asked.entity_id or ""


def type_asked_for(asked: traces.Subject, catalog: Catalog) -> EntityType:
    """Return the type that a question is about; one that there is not is refused."""
    node = None if asked.kind == "edge" else catalog.node_types.get(asked.type_name)
    edge = None if asked.kind == "node" else catalog.lookup_edge(asked.type_name)
    found: EntityType | None = node or edge
    if found is None:
        known = (*catalog.node_types, *catalog.edge_types)
        raise traces.LineageSubjectError(asked.text, "the branch has no such type", known)
    if asked.property_name is not None and asked.property_name not in found.properties:
        problem = f"{found.name} has no property '{asked.property_name}'"
        raise traces.LineageSubjectError(asked.text, problem, tuple(found.properties))
    return found


def _writer_of(row: _Row, snapshot: Snapshot) -> GraphCommit | None:
    """Return the commit that wrote a row as a snapshot has it; None if it has no such row."""
    entry = snapshot.entries.get(row.table_key)
    if entry is None:
        return None
    request = ScanRequest(
        columns=(ROW_UPDATED,), row_filter=Comparison("id", "=", row.entity_id), limit=1
    )
    found = snapshot.open(row.table_key).scan(request).read_all()
    if not found.num_rows:
        return None
    version = int(found[ROW_UPDATED][0].as_py())
    history = snapshot.state.entry_history()[row.table_key]
    # Versions only grow along the history of one branch; several may belong to one commit.
    publish = next(
        (
            seq
            for seq, published in history
            if published is not None
            and published.location == entry.location
            and published.table_version >= version
        ),
        entry.seq,
    )
    return next(iter(snapshot.state.commits_at([publish])), None)


def _removed_note(row: _Row, error: Exception) -> str:
    return (
        f"the history of the merged branch was removed ({error}): one of the commits below wrote"
        f" {TableKey(row.table_key).type_name} '{row.entity_id}'"
    )


def commits_since(commits: list[GraphCommit], since: str | None) -> list[GraphCommit]:
    """Return commits after one of them, oldest first; `commits` has the newest first."""
    if since is None:
        return commits[::-1]
    ids = [commit.graph_commit_id for commit in commits]
    if since not in ids:
        raise CommitNotFoundError(since)
    return commits[: ids.index(since)][::-1]
