"""The parts of a graph, and their methods under flat names.

`graph.branch_create(...)` is `graph.branches.create(...)`, and so on: a flat name has the
parameters, the result and the text of the method that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from omnigraph.graph.branches import GraphBranches
from omnigraph.graph.changes import GraphChanges
from omnigraph.graph.commits import GraphCommits
from omnigraph.graph.lineage import GraphLineage
from omnigraph.graph.maintenance import GraphMaintenance
from omnigraph.graph.recovery import GraphRecovery
from omnigraph.graph.schema import GraphSchema
from omnigraph.graph.session import Part, Session
from omnigraph.graph.tags import GraphTags

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Part = TypeVar("_Part")


def _flat(
    part: str, method: Callable[Concatenate[_Part, _P], _R]
) -> Callable[Concatenate[FlatNames, _P], _R]:
    """Return a method of the graph that calls one of a part."""

    @wraps(method)
    def call(self: FlatNames, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return method(getattr(self, part), *args, **kwargs)

    return call


class FlatNames(Part):
    """The parts of one open graph, and a flat name for each of their methods."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.branches = GraphBranches(session)
        self.commits = GraphCommits(session)
        self.tags = GraphTags(session)
        self.changes = GraphChanges(session)
        self.schema = GraphSchema(session)
        self.maintenance = GraphMaintenance(session)
        self.recovery = GraphRecovery(session)
        self.lineage = GraphLineage(session)

    branch_create = _flat("branches", GraphBranches.create)
    branch_create_from = _flat("branches", GraphBranches.create_from)
    branch_list = _flat("branches", GraphBranches.list)
    branch_delete = _flat("branches", GraphBranches.delete)
    branch_merge = _flat("branches", GraphBranches.merge)
    merge_conflicts = _flat("branches", GraphBranches.conflicts)
    merge_base = _flat("branches", GraphBranches.merge_base)
    sync_branch = _flat("branches", GraphBranches.bind)

    list_commits = _flat("commits", GraphCommits.list)
    get_commit = _flat("commits", GraphCommits.get)
    head_commit_id_for_branch = _flat("commits", GraphCommits.head_id)
    commit_revert = _flat("commits", GraphCommits.revert)

    tag_create = _flat("tags", GraphTags.create)
    tag_delete = _flat("tags", GraphTags.delete)
    tag_list = _flat("tags", GraphTags.list)

    diff_between = _flat("changes", GraphChanges.difference)
    diff = _flat("changes", GraphChanges.diff)
    changes_between = _flat("changes", GraphChanges.between)
    commit_changes = _flat("changes", GraphChanges.of_commit)
    poll_changes = _flat("changes", GraphChanges.poll)
    baseline = _flat("changes", GraphChanges.baseline)

    schema_source = _flat("schema", GraphSchema.source)
    catalog = _flat("schema", GraphSchema.catalog)
    plan_schema = _flat("schema", GraphSchema.plan)
    plan_schema_file = _flat("schema", GraphSchema.plan_file)
    apply_schema = _flat("schema", GraphSchema.apply)
    apply_schema_file = _flat("schema", GraphSchema.apply_file)
    schema_diff = _flat("schema", GraphSchema.diff)
    lint = _flat("schema", GraphSchema.lint)

    ensure_indices = _flat("maintenance", GraphMaintenance.ensure_indices)
    rebuild_indexes = _flat("maintenance", GraphMaintenance.rebuild_indexes)
    optimize = _flat("maintenance", GraphMaintenance.optimize)
    cleanup = _flat("maintenance", GraphMaintenance.cleanup)
    repair = _flat("maintenance", GraphMaintenance.repair)
    examine = _flat("maintenance", GraphMaintenance.examine)
    scrub = _flat("maintenance", GraphMaintenance.scrub)

    recovery_list = _flat("recovery", GraphRecovery.list)
    recovery_show = _flat("recovery", GraphRecovery.show)
    recovery_status = _flat("recovery", GraphRecovery.status)
    recovery_quarantine = _flat("recovery", GraphRecovery.quarantine)

    lineage_show = _flat("lineage", GraphLineage.show)
    lineage_events = _flat("lineage", GraphLineage.events)
    lineage_emit = _flat("lineage", GraphLineage.emit)
