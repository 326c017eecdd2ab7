"""`cleanup`: removing what nothing needs any more.

First old versions of `__manifest`, so that no snapshot can be found which cannot be read. Then what
nobody refers to: forks, files of dead attempts, datasets as a whole. That goes under the locks of
all branches, so that no writer is about to refer to it; they are taken only if there is any. Then
old versions of the datasets; last the topology files of old edge states, and temporary files of
writers that died.
`omnigraph.maintenance.cleanup_plan` says what is needed.

Whatever is younger than the orphan age is left alone, be it a file, a fork or a dataset: a running
operation may be about to name it. A problem with one dataset is reported with it and stops nothing
else. Without confirmation everything is only counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from omnigraph.errors import ConflictError, NotFoundError, OmnigraphError
from omnigraph.maintenance.cleanup_plan import (
    LEASED_ORPHAN_AGE_MIN_S,
    CleanupPolicy,
    Needs,
    need_published,
    published_entries,
    removable,
    removable_manifest_versions,
    ulid_time_us,
)
from omnigraph.manifest import Repository
from omnigraph.manifest.branch_lock import take_all
from omnigraph.manifest.fence import advance
from omnigraph.manifest.layout import (
    CHECKSUMS,
    COMMIT_ACTORS,
    COMMITS,
    MAIN_INCARNATION,
    MANIFEST,
    RECOVERIES,
    Incarnation,
)
from omnigraph.manifest.state import ManifestState
from omnigraph.names import TableKey
from omnigraph.recovery import Intent, Recovery
from omnigraph.schema.json_form import JsonObject
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.store import FOLDER as TOPOLOGIES
from omnigraph.search.topology.store import stale_topologies
from omnigraph.store.errors import DatasetNotFoundError, RefNotFoundError
from omnigraph.store.lance.layout import manifest_path
from omnigraph.store.objects.protocol import ObjectInfo, ObjectStore
from omnigraph.store.records import BranchInfo, CleanupRequest, VersionInfo
from omnigraph.write.stage.staging_record import FOLDER as STAGING
from omnigraph.write.stage.staging_record import StagingRecords

_TABLE_FOLDERS: Final = ("nodes", "edges")
_DERIVED: Final = (COMMITS, COMMIT_ACTORS, RECOVERIES)
_PIN_PREFIX: Final = "omnigraph."
_LOOKS_MAX: Final = 10
"""How often branches may come or go while they are looked at, or their locks are taken."""
TEMPORARY_FILES: Final = "temporary files"
"""The name in reports for temporary files that dead writers have left, in any folder."""


class BranchesMovingError(ConflictError):
    """Branches were made and deleted each time that cleanup looked at them."""

    code = "OG-CLEANUP-BUSY"
    hint = "try again when fewer branches come and go"

    def __init__(self) -> None:
        super().__init__("branches come and go too quickly to look at all of them")


@dataclass
class DatasetCleanup:
    """What went from one dataset, or would go; `error` is why not all of it did."""

    type_key: str
    bytes_removed: int = 0
    old_versions_removed: int = 0
    forks_removed: int = 0
    files_removed: int = 0
    dataset_removed: bool = False
    error: str | None = None
    error_code: str | None = None

    def to_json(self) -> JsonObject:
        """Return the dataset as the command line shows it."""
        return {
            "type_key": self.type_key,
            "bytes_removed": self.bytes_removed,
            "old_versions_removed": self.old_versions_removed,
            "forks_removed": self.forks_removed,
            "files_removed": self.files_removed,
            "dataset_removed": self.dataset_removed,
            "error": self.error,
            "error_code": self.error_code,
        }


@dataclass(frozen=True)
class CleanupResult:
    """What a cleanup has removed, or would remove when it was not confirmed."""

    policy: CleanupPolicy
    confirmed: bool
    datasets: tuple[DatasetCleanup, ...]

    @property
    def failed(self) -> tuple[DatasetCleanup, ...]:
        """The datasets of which not everything could be removed."""
        return tuple(dataset for dataset in self.datasets if dataset.error is not None)

    @property
    def warning(self) -> str | None:
        """What the caller should know about the policy."""
        return self.policy.warning

    def to_json(self) -> JsonObject:
        """Return `{keep_versions, older_than_secs, datasets}`."""
        return {
            "keep_versions": self.policy.keep_versions,
            "older_than_secs": self.policy.older_than_s,
            "datasets": [dataset.to_json() for dataset in self.datasets],
        }


@dataclass
class _Plan:
    """Everything that was decided before anything goes."""

    needs: Needs
    manifest: dict[str | None, tuple[int, ...]]
    """Versions of `__manifest` that go, by lineage."""
    names: dict[str, str] = field(default_factory=dict)
    """The newest table key of each dataset location."""
    declared: frozenset[str] = frozenset()
    """Files that running bulk jobs have set aside."""
    busy: frozenset[str] = frozenset()
    """Locations that running bulk jobs and unsettled writes have written files to."""
    dead_records: tuple[str, ...] = ()
    """Records of bulk jobs that are no longer alive."""
    stale_topologies: tuple[ObjectInfo, ...] = ()
    """Files of edge states that no branch publishes."""
    pins: frozenset[str] = frozenset()
    """Lance tags that belong to tags of the graph."""
    versions: dict[str, dict[str | None, tuple[VersionInfo, ...]]] = field(default_factory=dict)
    """The versions that were stored before anything else was looked at, by location and lineage."""
    unlisted: dict[str, OmnigraphError] = field(default_factory=dict)
    """Why the versions of a dataset are not known."""


class Cleanup:
    """Removes what one graph no longer needs."""

    def __init__(
        self, repository: Repository, recovery: Recovery, staging: StagingRecords | None = None
    ) -> None:
        """Take records of bulk jobs from `staging`, which may have watched them for a while."""
        self._repository = repository
        self._recovery = recovery
        self._staging = staging or StagingRecords(repository.store.objects, repository.clock)
        self._datasets = repository.store.datasets

    def run(self, policy: CleanupPolicy, *, confirm: bool = False) -> CleanupResult:
        """Remove old versions and leftovers, or only count them without `confirm`."""
        self._repository.branches.require_no_schema_apply("cleanup")
        if confirm:
            self._recovery.drop_torn_branches()
            self._remove_torn_refs()
        now = self._repository.clock.now_us()
        work = _Work(self._repository, policy, self._plan(policy, now), now, confirm=confirm)
        work.manifest_versions()
        leftovers = work.with_leftovers()
        if confirm and leftovers:
            with self._writers_kept_out():
                # What was about to be named when the first plan was made is named now, or lost.
                work.plan = self._plan(policy, now)
                work.leftovers(leftovers)
        else:
            work.leftovers(leftovers)
        work.table_versions()
        return CleanupResult(policy, confirm, (*work.reports(), *work.others()))

    def _remove_torn_refs(self) -> None:
        """Remove what a power failure has left of forks and pins; nobody was told of them."""
        objects = self._repository.store.objects
        for location in _stored_datasets(objects):
            for path in self._datasets.torn_refs(location):
                objects.delete(path)

    @contextmanager
    def _writers_kept_out(self) -> Iterator[None]:
        """Hold the locks of all branches.

        A writer looks whether its files are there when it has the lock of its branch, and keeps the
        lock until they are named. So one that has only prepared finds out, and prepares again.
        """
        branches = self._repository.branches
        for _ in range(_LOOKS_MAX):
            names = branches.names()
            operation_id = self._repository.clock.ulid()
            with take_all(self._repository.branch_locks, names, operation_id=operation_id):
                # A branch is cut under the lock of its source: with all of them held none appears.
                if branches.names() == names:
                    yield
                    return
        raise BranchesMovingError

    # -- deciding ---------------------------------------------------------------------------------

    def _plan(self, policy: CleanupPolicy, now: int) -> _Plan:
        branches = self._repository.branches
        for _ in range(_LOOKS_MAX):
            names = branches.names()
            try:
                return self._plan_once(policy, now)
            except NotFoundError:
                if branches.names() == names:
                    raise  # Otherwise one of them was deleted between two looks at it.
        raise BranchesMovingError

    def _plan_once(self, policy: CleanupPolicy, now: int) -> _Plan:
        # Versions first: one that appears later may be named by what appears later.
        stored, unlisted = self._stored_versions()
        # Then records: an operation that finishes after this look has published, and is seen then.
        pending = self._recovery.pending()
        live, dead = self._staging.partition(orphan_age_s=policy.orphan_age_s)
        branches = self._repository.branches.incarnations()
        states = {each: self._repository.reader.latest(each) for each in branches}
        plan = _Plan(Needs(), {}, dead_records=tuple(dead), versions=stored, unlisted=unlisted)
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
        for location in _stored_datasets(self._repository.store.objects):
            try:
                stored[location] = self._versions(location)
            except OmnigraphError as error:
                unlisted[location] = error
        return stored, unlisted

    def _versions(self, location: str) -> dict[str | None, tuple[VersionInfo, ...]]:
        lineages = (None, *(fork.name for fork in self._datasets.list_branches(location)))
        return {
            lineage: tuple(self._datasets.versions(location, branch=lineage))
            for lineage in lineages
            if self._datasets.exists(location, branch=lineage)
        }

    def _need_tables(
        self,
        plan: _Plan,
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


# -- removing --------------------------------------------------------------------------------------


class _Work:
    """Carries a plan out, one dataset after the other."""

    def __init__(
        self,
        repository: Repository,
        policy: CleanupPolicy,
        plan: _Plan,
        now: int,
        *,
        confirm: bool,
    ) -> None:
        self._repository = repository
        self._datasets = repository.store.datasets
        self._objects = repository.store.objects
        self._ulid = repository.clock.ulid
        self._checksums = repository.checksums
        self._policy = policy
        self.plan = plan
        self._now = now
        lowest_s = LEASED_ORPHAN_AGE_MIN_S if repository.branch_locks.can_be_lost else 0
        self._orphan_age_us = max(policy.orphan_age_s, lowest_s) * 1_000_000
        self._confirm = confirm
        self._stored = _stored_datasets(self._objects)
        self._reports: dict[str, DatasetCleanup] = {}

    def reports(self) -> list[DatasetCleanup]:
        """Return what was done to `__manifest` and to every dataset of a node or edge type."""
        return [report for _, report in sorted(self._reports.items(), key=_manifest_first)]

    def manifest_versions(self) -> None:
        """Remove old versions of `__manifest`, lineage by lineage."""
        report = self._report(MANIFEST)
        with _reporting(report):
            self._announce()
            for lineage, versions in self.plan.manifest.items():
                try:
                    self._remove_versions(report, MANIFEST, lineage, versions)
                except DatasetNotFoundError:
                    if lineage is None or self._datasets.has_branch(MANIFEST, lineage):
                        raise  # Otherwise its branch was deleted since the plan was made.

    def with_leftovers(self) -> list[str]:
        """Return the datasets that have something which nobody refers to."""
        found = []
        for location in (MANIFEST, *sorted(self._stored)):
            with _reporting(self._report(location)):
                if self._has_leftovers(location):
                    found.append(location)
        return found

    def _has_leftovers(self, location: str) -> bool:
        if location != MANIFEST and location not in self.plan.needs.locations:
            return self._is_dead(location)
        return (
            any(self._dead_files(location))
            or any(self._dead_pins(location))
            or any(self._is_free(location, fork.name) for fork in self._forks(location))
        )

    def leftovers(self, locations: Iterable[str]) -> None:
        """Remove what nobody refers to: forks, pins, files, and datasets as a whole."""
        for location in locations:
            report = self._report(location)
            with _reporting(report):
                if location == MANIFEST:
                    self._remove_dead_publishes(report)
                elif location in self.plan.needs.locations:
                    self._remove_pins(location)
                    self._remove_forks(report, location)
                    self._remove_dead_files(report, location)
                elif self._is_dead(location):
                    self._remove_dataset(report, location)

    def table_versions(self) -> None:
        """Remove old versions of every dataset of a node or edge type that is still needed."""
        for location in sorted(self._stored):
            report = self._report(location)
            if location in self.plan.needs.locations and report.error is None:
                with _reporting(report):
                    self._remove_table_versions(report, location)

    def others(self) -> Iterator[DatasetCleanup]:
        """Clean up what is no type: derived tables, topologies, records, temporary files."""
        yield from self._derived()
        yield from self._old_checksums()
        yield from self._topologies()
        yield from self._records()
        yield from self._temporary_files()

    def _announce(self) -> None:
        """Say which versions of `__manifest` go: one that vanishes otherwise counts as lost."""
        if self._confirm:
            self._checksums.forget(
                manifest_path(MANIFEST, lineage, version)
                for lineage, versions in self.plan.manifest.items()
                for version in versions
            )

    def _old_checksums(self) -> Iterator[DatasetCleanup]:
        """Take out the checksums of files that are gone."""
        if not self._confirm:
            return
        report = DatasetCleanup(CHECKSUMS)
        with _reporting(report):
            self._checksums.record()
            self._checksums.drop_gone()
            self._remove_old_versions(CHECKSUMS)
        if report.error is not None:
            yield report

    def _derived(self) -> Iterator[DatasetCleanup]:
        """Remove old versions of the derived tables; they hold nothing that a snapshot needs.

        Only failures are reported.
        """
        for location in _DERIVED:
            report = DatasetCleanup(location)
            with _reporting(report):
                if self._confirm:
                    self._remove_old_versions(location)
            if report.error is not None:
                yield report

    def _remove_old_versions(self, location: str) -> None:
        if not self._datasets.exists(location):
            return
        request = CleanupRequest(
            keep_versions=self._policy.keep_versions, older_than_s=self._policy.older_than_s
        )
        due = self._datasets.cleanup(location, request, preview=True)
        removed = self._datasets.cleanup(location, request, preview=False)
        if removed.versions_removed < due.versions_removed:
            self._require_changeable(location)

    def _topologies(self) -> list[DatasetCleanup]:
        """Remove old files of edges as they were; whoever wants such a state builds it again."""
        report = DatasetCleanup(TOPOLOGIES)
        with _reporting(report):
            for info in self.plan.stale_topologies:
                if not self._is_old(info.modified_us):
                    continue
                self._remove_file(report, info)
        return [report] if report.files_removed or report.error else []

    def _records(self) -> list[DatasetCleanup]:
        """Remove the records of dead bulk jobs, after what they named; return only failures."""
        report = DatasetCleanup(STAGING)
        with _reporting(report):
            for path in self.plan.dead_records if self._confirm else ():
                self._objects.delete(path)
        return [] if report.error is None else [report]

    def _temporary_files(self) -> list[DatasetCleanup]:
        """Remove what writers that died have left of small objects."""
        report = DatasetCleanup(TEMPORARY_FILES)
        with _reporting(report):
            for info in self._objects.leftovers():
                if not self._is_old(info.modified_us):
                    continue
                self._remove_file(report, info)
        return [report] if report.files_removed or report.error else []

    def _is_old(self, since_us: int) -> bool:
        return self._now - since_us >= self._orphan_age_us

    def _is_dead(self, location: str) -> bool:
        """Whether a dataset that nothing needs is old, and no running job is about to fill it."""
        made = ulid_time_us(location)
        return (
            self._is_old(max(info.modified_us for info in self._stored[location]))
            and (made is None or self._is_old(made))
            and not any(path.startswith(f"{location}/") for path in self.plan.declared)
        )

    def _remove_dataset(self, report: DatasetCleanup, location: str) -> None:
        if self._confirm:
            self._objects.delete_prefix(location)
            self._datasets.forget(location)
        report.dataset_removed = True
        report.bytes_removed += sum(info.size for info in self._stored[location])
        report.files_removed += len(self._stored[location])

    def _remove_table_versions(self, report: DatasetCleanup, location: str) -> None:
        if location in self.plan.unlisted:
            raise self.plan.unlisted[location]
        forks, needs = self._forks(location), self.plan.needs
        if not self._confirm:
            # Those that would be gone by now.
            forks = [fork for fork in forks if not self._is_free(location, fork.name)]
        for fork in forks:
            needs.add_version(location, fork.parent_branch, fork.parent_version)
        for pin in self._datasets.list_tags(location):
            needs.add_version(location, pin.branch, pin.version)
        for name in (None, *(fork.name for fork in forks)):
            stored = self.plan.versions.get(location, {}).get(name, ())
            going = removable(stored, (location, name), needs)
            self._remove_versions(report, location, name, going)

    def _remove_pins(self, location: str) -> None:
        if self._confirm:
            for name in self._dead_pins(location):
                self._datasets.delete_tag(location, name)

    def _dead_pins(self, location: str) -> list[str]:
        """Return the pins whose tag never came to be, or is gone."""
        if location == MANIFEST:
            return []
        return [
            pin.name
            for pin in self._datasets.list_tags(location)
            if pin.name.startswith(_PIN_PREFIX)
            and pin.name not in self.plan.pins
            and (made := ulid_time_us(pin.name)) is not None
            and self._is_old(made)
        ]

    def _forks(self, location: str) -> list[BranchInfo]:
        return [] if location == MANIFEST else list(self._datasets.list_branches(location))

    def _remove_forks(self, report: DatasetCleanup, location: str) -> None:
        """Remove forks that nothing refers to, leaves first."""
        forks = {fork.name: fork for fork in self._forks(location)}
        while True:
            parents = {fork.parent_branch for fork in forks.values()}
            free = [n for n in forks if n not in parents and self._is_free(location, n)]
            if not free:
                return
            for name in free:
                del forks[name]
                if self._confirm:
                    self._delete_fork(location, name)
                report.forks_removed += 1

    def _is_free(self, location: str, name: str) -> bool:
        made = ulid_time_us(name)
        is_needed = (location, name) in self.plan.needs.versions
        return not is_needed and made is not None and self._is_old(made)

    def _delete_fork(self, location: str, name: str) -> None:
        try:
            self._datasets.delete_branch(location, name)
        except RefNotFoundError:
            return

    def _remove_versions(
        self, report: DatasetCleanup, location: str, branch: str | None, versions: tuple[int, ...]
    ) -> None:
        if not versions:
            return
        removed = self._datasets.cleanup(
            location,
            CleanupRequest(versions=versions),
            branch=branch,
            preview=not self._confirm,
        )
        if self._confirm and removed.versions_removed < len(versions):
            self._require_changeable(location)
        report.old_versions_removed += removed.versions_removed
        report.bytes_removed += removed.bytes_removed
        report.files_removed += removed.files_removed

    def _remove_file(self, report: DatasetCleanup, info: ObjectInfo) -> None:
        """Remove a file, then count it: what stays was not removed."""
        if self._confirm:
            self._objects.delete(info.path)
        report.files_removed += 1
        report.bytes_removed += info.size

    def _require_changeable(self, location: str) -> None:
        """Raise what the storage says about a change: Lance is silent about files that stay."""
        path = f"{location}/probe-{self._ulid()}"
        self._objects.put(path, b"")
        self._objects.delete(path)

    def _remove_dead_files(self, report: DatasetCleanup, location: str) -> None:
        for info in self._dead_files(location):
            self._remove_file(report, info)

    def _remove_dead_publishes(self, report: DatasetCleanup) -> None:
        """Remove files of publishes that never landed, when they cannot land any more."""
        noted = {info.path for info in self._dead_files(MANIFEST)}
        repository = self._repository
        for incarnation in repository.branches.incarnations() if self._confirm and noted else ():
            advance(self._datasets, repository.reader, repository.clock, incarnation)
        for info in self._dead_files(MANIFEST):
            if info.path in noted:
                self._remove_file(report, info)

    def _dead_files(self, location: str) -> list[ObjectInfo]:
        """Return old files that no version names."""
        if location in self.plan.busy:
            # Tasks of a running job have not declared their files yet, and a paused writer commits
            # its files when it resumes.
            return []
        return [
            info
            for info in self._datasets.unreferenced_files(location)
            if self._is_old(info.modified_us) and info.path not in self.plan.declared
        ]

    def _report(self, location: str) -> DatasetCleanup:
        name = self.plan.names.get(location, location)
        return self._reports.setdefault(location, DatasetCleanup(name))


def _manifest_first(item: tuple[str, DatasetCleanup]) -> tuple[bool, str]:
    return item[0] != MANIFEST, item[0]


def _stored_datasets(objects: ObjectStore) -> dict[str, list[ObjectInfo]]:
    found: dict[str, list[ObjectInfo]] = defaultdict(list)
    for folder in _TABLE_FOLDERS:
        for info in objects.list(folder):
            parts = info.path.split("/", 2)
            if len(parts) == 3:
                found["/".join(parts[:2])].append(info)
    return dict(found)


@contextmanager
def _reporting(report: DatasetCleanup) -> Iterator[None]:
    """Keep an error with the dataset that it belongs to."""
    try:
        yield
    except OmnigraphError as error:
        report.error, report.error_code = str(error), error.code


__all__ = ["Cleanup", "CleanupPolicy", "CleanupResult", "DatasetCleanup"]
