"""Looks at a graph and plans what a cleanup removes; changes nothing.

The order of the looks matters. Versions are listed first: one that appears later may be needed by
something that appears later. Intent records come next: an operation that finishes after that look
has published by then, and its entries are seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from omnigraph.errors import ConflictError, NotFoundError, OmnigraphError
from omnigraph.maintenance.cleanup.needed import (
    CleanupPolicy,
    Needs,
    need_published,
    published_entries,
    removable_manifest_versions,
)
from omnigraph.manifest import Repository
from omnigraph.manifest.errors import BranchGoneError
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST, TABLE_FOLDERS, Incarnation
from omnigraph.manifest.state import ManifestState
from omnigraph.names import TableKey
from omnigraph.recovery import Intent, Recovery
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.store import FOLDER as TOPOLOGIES
from omnigraph.search.topology.store import stale_topologies
from omnigraph.store.errors import DatasetNotFoundError
from omnigraph.store.objects.protocol import ObjectInfo, ObjectStore
from omnigraph.store.records import VersionInfo
from omnigraph.write.stage.staging_record import StagingRecords

LOOKS_MAX: Final = 10
"""How often branches may come or go while they are listed, or their locks are taken."""


class BranchesMovingError(ConflictError):
    """Branches were created and deleted each time that cleanup listed them."""

    code = "OG-CLEANUP-BUSY"
    hint = "try again when fewer branches come and go"
    template = "branches come and go too quickly to look at all of them"


@dataclass
class CleanupPlan:
    """Everything that was decided before anything goes."""

    needs: Needs
    manifest: dict[str | None, tuple[int, ...]]
    """Versions of `__manifest` that go, by lineage."""
    names: dict[str, str] = field(default_factory=dict)
    """The newest table key of each dataset location."""
    declared: frozenset[str] = frozenset()
    """Files that running bulk jobs have declared."""
    busy: frozenset[str] = frozenset()
    """Locations that running bulk jobs and unsettled writes have written files to."""
    dead_records: tuple[str, ...] = ()
    """Records of bulk jobs that are no longer alive."""
    stale_topologies: tuple[ObjectInfo, ...] = ()
    """Files of edge states that no branch publishes."""
    pins: frozenset[str] = frozenset()
    """Lance tags that belong to tags of the graph."""
    versions: dict[str, dict[str | None, tuple[VersionInfo, ...]]] = field(default_factory=dict)
    """The versions that were stored before anything else was read, by location and lineage."""
    unlisted: dict[str, OmnigraphError] = field(default_factory=dict)
    """Why the versions of a dataset are not known."""


class CleanupPlanner:
    """Plans what one graph no longer needs."""

    def __init__(self, repository: Repository, recovery: Recovery, staging: StagingRecords) -> None:
        self._repository = repository
        self._recovery = recovery
        self._staging = staging
        self._datasets = repository.store.datasets

    def plan(self, policy: CleanupPolicy, now: int) -> CleanupPlan:
        """Look at everything that is stored, and return what goes."""
        branches = self._repository.branches
        for look in range(1, LOOKS_MAX + 1):
            names = branches.names()
            try:
                return self._plan_once(policy, now)
            except NotFoundError as error:
                # A branch that was created and deleted in between is in neither list of names.
                may_have_gone = isinstance(error, BranchGoneError) and look < LOOKS_MAX
                if not may_have_gone and branches.names() == names:
                    raise  # Otherwise one of them was deleted while it was read.
        raise BranchesMovingError

    def _plan_once(self, policy: CleanupPolicy, now: int) -> CleanupPlan:
        # Versions first: one that appears later may be named by what appears later.
        stored, unlisted = self._stored_versions()
        # Then records: an operation that finishes after this look has published, and is seen then.
        pending = self._recovery.pending()
        live, dead = self._staging.partition(orphan_age_s=policy.orphan_age_s)
        branches = self._repository.branches.incarnations()
        states = {each: self._repository.reader.latest(each) for each in branches}
        plan = CleanupPlan(
            Needs(), {}, dead_records=tuple(dead), versions=stored, unlisted=unlisted
        )
        plan.declared = frozenset(file for record in live for file in record.files)
        plan.busy = frozenset(
            (
                *(base.table_path for record in live for base in record.bases),
                *(table.table_path for record in pending for table in record.tables),
                *(MANIFEST for _ in pending),
            )
        )
        plan.stale_topologies = self._stale_topologies(states.values())
        kept_commits = self._kept_commits(states)
        needed = self._needed_manifest_versions(kept_commits)
        for incarnation, state in states.items():
            lineage = incarnation.lance_branch
            going = removable_manifest_versions(
                stored[MANIFEST].get(lineage, ()),
                needed=needed.get(lineage, frozenset()),
                committed_at={c.manifest_version: c.created_at for c in state.commits()},
                policy=policy,
                now=now,
            )
            plan.manifest[lineage] = going
            self._need_tables(plan, lineage, state, policy, now)
        self._need_commits(plan.needs, kept_commits)
        _need_intents(plan.needs, pending)
        for base in (base for record in live for base in record.bases):
            plan.needs.add_version(base.table_path, base.table_branch, base.version)
        tags = states[MAIN_INCARNATION].tags.values()
        plan.pins = frozenset(tag.pin for tag in tags)
        return plan

    def _stored_versions(
        self,
    ) -> tuple[dict[str, dict[str | None, tuple[VersionInfo, ...]]], dict[str, OmnigraphError]]:
        stored = {MANIFEST: self._versions(MANIFEST)}
        unlisted: dict[str, OmnigraphError] = {}
        for location in stored_datasets(self._repository.store.objects):
            try:
                stored[location] = self._versions(location)
            except OmnigraphError as error:
                unlisted[location] = error
        return stored, unlisted

    def _versions(self, location: str) -> dict[str | None, tuple[VersionInfo, ...]]:
        found: dict[str | None, tuple[VersionInfo, ...]] = {}
        for lineage in (None, *(fork.name for fork in self._datasets.list_branches(location))):
            try:
                found[lineage] = tuple(self._datasets.versions(location, branch=lineage))
            except DatasetNotFoundError:
                # Never written, or deleted since it was listed.
                continue
        return found

    def _need_tables(
        self,
        plan: CleanupPlan,
        lineage: str | None,
        state: ManifestState,
        policy: CleanupPolicy,
        now: int,
    ) -> None:
        stored = {info.version for info in plan.versions[MANIFEST].get(lineage, ())}
        retained = sorted(stored - set(plan.manifest[lineage]))
        committed_at = {c.manifest_version: c.created_at for c in state.commits()}
        for key, history in state.entry_history().items():
            published = published_entries(history, committed_at)
            for each in reversed(published):
                plan.names[each.entry.location] = key
            need_published(plan.needs, published, retained=retained, policy=policy, now=now)

    def _kept_commits(self, states: Mapping[Incarnation, ManifestState]) -> list[str]:
        """Return the commits of heads, tags and merge bases, in an order that can be repeated."""
        commits = {tag.commit_id for tag in states[MAIN_INCARNATION].tags.values()}
        commits |= {state.head.commit_id for state in states.values()}
        for one, other in combinations(states, 2):
            base = self._repository.history.merge_base(one, other)
            if base is not None:
                commits.add(base.graph_commit_id)
        return sorted(commits)

    def _needed_manifest_versions(
        self, kept_commits: Iterable[str]
    ) -> dict[str | None, frozenset[int]]:
        needed: dict[str | None, set[int]] = defaultdict(set)
        for branch in self._datasets.list_branches(MANIFEST):
            needed[branch.parent_branch].add(branch.parent_version)
        for pin in self._datasets.list_tags(MANIFEST):
            needed[pin.branch].add(pin.version)
        for commit_id in kept_commits:
            try:
                commit = self._repository.history.get(commit_id)
            except NotFoundError:
                continue
            needed[commit.manifest_branch].add(commit.manifest_version)
        return {lineage: frozenset(versions) for lineage, versions in needed.items()}

    def _need_commits(self, needs: Needs, commits: Iterable[str]) -> None:
        for commit_id in commits:
            try:
                snapshot = self._repository.history.snapshot_of_commit(commit_id)
            except NotFoundError:
                continue
            for entry in snapshot.entries.values():
                needs.add(entry)

    def _stale_topologies(self, states: Iterable[ManifestState]) -> tuple[ObjectInfo, ...]:
        """Return the topology files that no branch reads with its newest edges."""
        store = self._repository.store
        if not store.objects.list(TOPOLOGIES):
            return ()
        published = {
            entry.at
            for state in states
            for key, entry in state.entries.items()
            if TableKey(key).is_edge
        }
        live = [
            TableState.of(self._datasets.open(at.location, branch=at.branch, version=at.version))
            for at in published
        ]
        return stale_topologies(store, live)


def _need_intents(needs: Needs, pending: Iterable[Intent]) -> None:
    for intent in pending:
        for table in intent.tables:
            needs.add_version(table.table_path, table.table_branch, table.expected_version)
            if table.fork_of is not None:
                needs.add_version(table.table_path, table.fork_of.branch, table.fork_of.version)
        for entry in (*intent.written.values(), *(a.entry for a in intent.adopted)):
            if entry is not None:
                needs.add(entry)


def stored_datasets(objects: ObjectStore) -> dict[str, list[ObjectInfo]]:
    """Return the files of every dataset of a node or edge type, by location."""
    found: dict[str, list[ObjectInfo]] = defaultdict(list)
    for folder in TABLE_FOLDERS:
        for info in objects.list(folder):
            parts = info.path.split("/", 2)
            if len(parts) == 3:
                found["/".join(parts[:2])].append(info)
    return dict(found)
