"""Changes of graphs, one at a time, each announced by an intent.

The first that fails stops the later ones. An intent stays until the ledger says what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from omnigraph.cluster.addresses import Address, Kind, graph_address, schema_address
from omnigraph.cluster.commands.frame import Workplace
from omnigraph.cluster.commands.settle import remove_intents
from omnigraph.cluster.compare.diff import Change
from omnigraph.cluster.desired import Desired, Resource
from omnigraph.cluster.diagnostics import DiagnosedError, Diagnostic, error, warning
from omnigraph.cluster.digests import content_digest
from omnigraph.cluster.graphs import LinkedRootError
from omnigraph.cluster.stored.approvals import Approval
from omnigraph.cluster.stored.intents import VERSION, Intent, IntentKind, write_intent
from omnigraph.cluster.stored.json_objects import moment
from omnigraph.cluster.stored.ledger import GraphObservation
from omnigraph.errors import OmnigraphError
from omnigraph.failpoints import hit

_CODES: Final[dict[IntentKind, str]] = {
    "graph_create": "graph_create_failed",
    "schema_apply": "schema_apply_failed",
    "graph_delete": "graph_delete_failed",
}
_SKIPPED: Final[dict[IntentKind, str]] = {
    "graph_create": "graph_create_skipped",
    "schema_apply": "schema_apply_skipped",
    "graph_delete": "graph_delete_skipped",
}


@dataclass(frozen=True)
class MoveContext:
    """What every change of a graph needs to know."""

    work: Workplace
    desired: Desired
    actor: str | None
    base: str | None
    """The identity of the ledger that the run began with."""
    require_sole: Callable[[], None]
    """Raises if another command has begun since."""


@dataclass
class Moves:
    """The changes of graphs of one run, and what came of them."""

    context: MoveContext
    diagnostics: list[Diagnostic]
    failures: dict[Address, str] = field(default_factory=dict)
    """Changes that failed or were skipped, and the reason."""
    finished: list[str] = field(default_factory=list)
    """Paths of intents of operations that have succeeded."""
    observed: dict[str, GraphObservation] = field(default_factory=dict)
    """Graphs that were made or migrated, as they are now."""
    deleted: dict[str, tuple[Approval, ...]] = field(default_factory=dict)
    """Graphs that are deleted, and the approvals for that."""

    def create_graphs(self, changes: Sequence[Change]) -> None:
        """Make every new graph."""
        for change in _of(changes, Kind.GRAPH, "create"):
            self._move(change, "graph_create", self._create)

    def apply_schemas(self, changes: Sequence[Change]) -> None:
        """Migrate every graph whose schema has changed."""
        for change in _of(changes, Kind.SCHEMA, "update"):
            self._move(change, "schema_apply", self._migrate)

    def delete_graphs(
        self, changes: Sequence[Change], approvals: dict[str, tuple[Approval, ...]]
    ) -> None:
        """Delete every graph that is no longer declared and whose deletion is approved."""
        for change in _of(changes, Kind.GRAPH, "delete"):
            given = approvals.get(change.address.name, ())
            self._move(change, "graph_delete", partial(self._delete, given))

    def _move(self, change: Change, kind: IntentKind, act: Callable[[str], None]) -> None:
        if self.failures:
            code = _SKIPPED[kind]
            self.failures[change.address] = code
            message = "an earlier change of a graph has failed; this one was not tried"
            self.diagnostics.append(warning(code, change.resource, message))
            return
        try:
            act(change.address.name)
        except DiagnosedError as problem:
            self.failures[change.address] = _CODES[kind]
            self.diagnostics.append(problem.diagnostic)
        except OmnigraphError as problem:
            self.failures[change.address] = _CODES[kind]
            self.diagnostics.append(error(_CODES[kind], change.resource, str(problem)))

    def _create(self, graph_id: str) -> None:
        intent = self._begin(graph_id, "graph_create")
        try:
            source = self._verified_source(graph_id)
        except DiagnosedError:
            self._withdraw(intent)
            raise
        hit("cluster_apply.before_graph_create")
        version = self.context.work.graphs.create(graph_id, source, actor=self.context.actor)
        hit("cluster_apply.after_graph_create")
        self._finish(intent, version)

    def _migrate(self, graph_id: str) -> None:
        graphs = self.context.work.graphs
        source = self._verified_source(graph_id)
        begun: list[Intent] = []

        def begin(version: int) -> None:
            begun.append(self._begin(graph_id, "schema_apply", version=version))
            hit("cluster_apply.before_schema_apply")

        try:
            version = graphs.migrate(graph_id, source, actor=self.context.actor, begin=begin)
        except OmnigraphError:
            if begun and self._is_unchanged(graph_id, begun[0]):
                self._withdraw(begun[0])
            raise
        hit("cluster_apply.after_schema_apply")
        if begun:
            self._finish(begun[0], version)

    def _delete(self, approvals: tuple[Approval, ...], graph_id: str) -> None:
        path = str(graph_address(graph_id))
        if not approvals:
            message = "the deletion is not approved; nothing was deleted"
            raise DiagnosedError(error("apply_approval_invariant_violation", path, message))
        if self.context.work.graphs.is_exporting(graph_id):
            message = "the graph is being exported; nothing was deleted, run the command again"
            raise DiagnosedError(error("graph_delete_export_in_progress", path, message))
        intent = self._begin(graph_id, "graph_delete", approval_id=approvals[0].approval_id)
        hit("cluster_apply.before_graph_delete")
        try:
            self.context.work.graphs.delete(graph_id)
        except LinkedRootError:
            self._withdraw(intent)
            raise
        hit("cluster_apply.after_graph_delete")
        self.deleted[graph_id] = approvals
        self.finished.append(intent.path)

    # -- intents ----------------------------------------------------------------------------------

    def _begin(
        self,
        graph_id: str,
        kind: IntentKind,
        *,
        version: int | None = None,
        approval_id: str | None = None,
    ) -> Intent:
        self.context.require_sole()
        work, desired = self.context.work, self.context.desired
        schema = desired.resources.get(schema_address(graph_id))
        intent = Intent(
            schema_version=VERSION,
            operation_id=work.clock.ulid(),
            started_at=moment(work.clock),
            actor=self.context.actor,
            kind=kind,
            graph_id=graph_id,
            graph_uri=work.root.graph_uri(graph_id),
            observed_manifest_version=version,
            desired_schema_digest=None if schema is None else schema.digest,
            state_cas_base=self.context.base,
            approval_id=approval_id,
        )
        write_intent(work.root, intent)
        return intent

    def _finish(self, intent: Intent, version: int | None) -> None:
        """Note the version that came of it; recovery does without, so a failure is a warning."""
        self.finished.append(intent.path)
        self._observe(intent, version)
        try:
            write_intent(self.context.work.root, replace(intent, expected_manifest_version=version))
        except DiagnosedError as problem:
            found = problem.diagnostic
            self.diagnostics.append(warning(found.code, found.path, found.message))

    def _observe(self, intent: Intent, version: int | None) -> None:
        graph_id, digest = str(intent.graph_id), intent.desired_schema_digest
        self.observed[graph_id] = GraphObservation(
            address=str(graph_address(graph_id)),
            graph_uri=str(intent.graph_uri),
            observed_at=moment(self.context.work.clock),
            exists=True,
            graph_manifest_version=version,
            schema_digest=digest,
            desired_schema_digest=digest,
            schema_matches_desired=True,
        )

    def _withdraw(self, intent: Intent) -> None:
        """Delete the intent of an operation that has certainly changed nothing."""
        self.diagnostics += remove_intents(self.context.work, [intent.path])

    def _is_unchanged(self, graph_id: str, intent: Intent) -> bool:
        """Whether the graph is where it was: the schema is a part of its manifest version."""
        look = self.context.work.graphs.look(graph_id)
        return look.is_open and look.manifest_version == intent.observed_manifest_version

    def _verified_source(self, graph_id: str) -> str:
        """Return the text of a schema, whose file must still be what was checked."""
        desired = self.context.desired
        verified_content(desired.resources[schema_address(graph_id)])
        return desired.graphs[graph_id].schema_source


def verified_content(resource: Resource) -> bytes:
    """Read the file of a resource again; it must still be what was checked."""
    path = str(resource.address)
    if resource.file is None:
        raise DiagnosedError(error("resource_content_changed", path, "it has no file"))
    try:
        content = resource.file.read_bytes()
    except OSError as problem:
        found = error("resource_content_changed", path, f"{resource.path}: {problem.strerror}")
        raise DiagnosedError(found) from problem
    if content_digest(content) != resource.digest:
        message = f"{resource.path} has changed since it was checked; run the command again"
        raise DiagnosedError(error("resource_content_changed", path, message))
    return content


def _of(changes: Sequence[Change], kind: Kind, operation: str) -> list[Change]:
    return [
        change
        for change in changes
        if change.address.kind is kind and change.operation == operation and change.is_applied
    ]
