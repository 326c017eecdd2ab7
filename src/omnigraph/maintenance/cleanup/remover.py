"""Removes what a plan does not need, one dataset after the other, or only counts it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from omnigraph.maintenance.cleanup.leftovers import Leftovers
from omnigraph.maintenance.cleanup.needed import (
    CleanupPolicy,
    removable,
    removable_derived_versions,
)
from omnigraph.maintenance.cleanup.planner import CleanupPlan, stored_datasets
from omnigraph.maintenance.cleanup.report import TEMPORARY_FILES, DatasetCleanup, reporting
from omnigraph.manifest import Repository
from omnigraph.manifest.fence import advance
from omnigraph.manifest.layout import CHECKSUMS, DERIVED_TABLES, MANIFEST
from omnigraph.search.topology.store import FOLDER as TOPOLOGIES
from omnigraph.store.errors import DatasetNotFoundError, RefNotFoundError
from omnigraph.store.lance.layout import manifest_path
from omnigraph.store.objects.protocol import ObjectInfo
from omnigraph.store.records import CleanupRequest
from omnigraph.write.stage.staging_record import FOLDER as STAGING


class Remover:
    """Carries a plan out, one dataset after the other."""

    def __init__(
        self,
        repository: Repository,
        policy: CleanupPolicy,
        plan: CleanupPlan,
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
        self._now = now
        self._confirm = confirm
        self._stored = stored_datasets(self._objects)
        self._reports: dict[str, DatasetCleanup] = {}
        self.follow(plan)

    def follow(self, plan: CleanupPlan) -> None:
        """Use another plan from here on."""
        self._plan = plan
        self._found = Leftovers(self._repository, self._policy, plan, self._now, self._stored)

    def reports(self) -> list[DatasetCleanup]:
        """Return what was done to `__manifest` and to every dataset of a node or edge type."""
        return [report for _, report in sorted(self._reports.items(), key=_manifest_first)]

    def remove_manifest_versions(self) -> None:
        """Remove old versions of `__manifest`, lineage by lineage."""
        report = self._report(MANIFEST)
        with reporting(report):
            self._forget_checksums()
            for lineage, versions in self._plan.manifest.items():
                try:
                    self._remove_versions(report, MANIFEST, lineage, versions)
                except DatasetNotFoundError:
                    if lineage is None or self._datasets.has_branch(MANIFEST, lineage):
                        raise  # Otherwise its branch was deleted since the plan was made.

    def with_leftovers(self) -> list[str]:
        """Return the datasets that have something which nothing refers to."""
        found = []
        for location in (MANIFEST, *sorted(self._stored)):
            with reporting(self._report(location)):
                if self._found.are_in(location):
                    found.append(location)
        return found

    def remove_leftovers(self, locations: Iterable[str]) -> None:
        """Remove what nothing refers to: forks, pins, files, and datasets as a whole."""
        for location in locations:
            report = self._report(location)
            with reporting(report):
                if location == MANIFEST:
                    self._remove_dead_publishes(report)
                elif location in self._plan.needs.locations:
                    self._remove_pins(location)
                    self._remove_forks(report, location)
                    self._remove_dead_files(report, location)
                elif self._found.is_dead(location):
                    self._remove_dataset(report, location)

    def remove_table_versions(self) -> None:
        """Remove old versions of every dataset of a node or edge type that is still needed."""
        for location in sorted(self._stored):
            report = self._report(location)
            if location in self._plan.needs.locations and report.error is None:
                with reporting(report):
                    self._remove_versions_of_table(report, location)

    def remove_others(self) -> Iterator[DatasetCleanup]:
        """Clean up everything else; only what has lost files, or failed, is reported."""
        steps: list[tuple[str, Callable[[DatasetCleanup], None]]] = [
            *((location, self._remove_old_versions) for location in DERIVED_TABLES),
            (CHECKSUMS, self._remove_old_checksums),
            (TOPOLOGIES, self._remove_topologies),
            (STAGING, self._remove_records),
            (TEMPORARY_FILES, self._remove_temporary_files),
        ]
        for name, remove in steps:
            report = DatasetCleanup(name)
            with reporting(report):
                remove(report)
            if report.files_removed or report.error:
                yield report

    def _forget_checksums(self) -> None:
        """Drop the checksums of versions of `__manifest` that go: otherwise they count as lost."""
        if self._confirm:
            self._checksums.forget(
                manifest_path(MANIFEST, lineage, version)
                for lineage, versions in self._plan.manifest.items()
                for version in versions
            )

    def _remove_old_checksums(self, report: DatasetCleanup) -> None:
        """Remove the checksums of files that are gone."""
        if self._confirm:
            self._checksums.record()
            self._checksums.drop_gone()
            self._remove_old_versions(report)

    def _remove_old_versions(self, report: DatasetCleanup) -> None:
        """Remove old versions of a derived table; it holds nothing that a snapshot needs."""
        location = report.type_key
        if not self._confirm or not self._datasets.exists(location):
            return
        going = removable_derived_versions(
            self._datasets.versions(location), policy=self._policy, now=self._now
        )
        if not going:
            return
        request = CleanupRequest(versions=going)
        removed = self._datasets.cleanup(location, request, preview=False)
        if removed.versions_removed < len(going):
            self._require_changeable(location)

    def _remove_topologies(self, report: DatasetCleanup) -> None:
        """Remove topologies of old edge states; a reader of such a state builds it again."""
        self._remove_old_files(report, self._plan.stale_topologies)

    def _remove_records(self, report: DatasetCleanup) -> None:  # noqa: ARG002 - they do not count
        """Remove the records of dead bulk jobs, after what they named."""
        for path in self._plan.dead_records if self._confirm else ():
            self._objects.delete(path)

    def _remove_temporary_files(self, report: DatasetCleanup) -> None:
        """Remove what writers that died have left of small objects."""
        self._remove_old_files(report, self._objects.leftovers())

    def _remove_old_files(self, report: DatasetCleanup, infos: Iterable[ObjectInfo]) -> None:
        for info in infos:
            if self._found.is_old(info.modified_us):
                self._remove_file(report, info)

    def _remove_dataset(self, report: DatasetCleanup, location: str) -> None:
        if self._confirm:
            self._objects.delete_prefix(location)
            self._datasets.forget(location)
        report.dataset_removed = True
        report.bytes_removed += sum(info.size for info in self._stored[location])
        report.files_removed += len(self._stored[location])

    def _remove_versions_of_table(self, report: DatasetCleanup, location: str) -> None:
        if location in self._plan.unlisted:
            raise self._plan.unlisted[location]
        forks, needs = self._found.forks(location), self._plan.needs
        if not self._confirm:
            # Without those that a confirmed run has removed by now.
            forks = [fork for fork in forks if not self._found.is_free(location, fork.name)]
        for fork in forks:
            needs.add_version(location, fork.parent_branch, fork.parent_version)
        for pin in self._datasets.list_tags(location):
            needs.add_version(location, pin.branch, pin.version)
        for name in (None, *(fork.name for fork in forks)):
            stored = self._plan.versions.get(location, {}).get(name, ())
            going = removable(stored, (location, name), needs)
            try:
                self._remove_versions(report, location, name, going)
            except DatasetNotFoundError:
                if name is None or self._datasets.has_branch(location, name):
                    raise  # Otherwise another cleanup has removed the fork since it was listed.

    def _remove_pins(self, location: str) -> None:
        if self._confirm:
            for name in self._found.dead_pins(location):
                self._datasets.delete_tag(location, name)

    def _remove_forks(self, report: DatasetCleanup, location: str) -> None:
        """Remove forks that nothing refers to, leaves first."""
        forks = {fork.name: fork for fork in self._found.forks(location)}
        while True:
            parents = {fork.parent_branch for fork in forks.values()}
            free = [n for n in forks if n not in parents and self._found.is_free(location, n)]
            if not free:
                return
            for name in free:
                del forks[name]
                if self._confirm:
                    self._delete_fork(location, name)
                report.forks_removed += 1

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
        """Raise what the storage raises for a change: Lance does not report files that stay."""
        path = f"{location}/probe-{self._ulid()}"
        self._objects.put(path, b"")
        self._objects.delete(path)

    def _remove_dead_files(self, report: DatasetCleanup, location: str) -> None:
        for info in self._found.dead_files(location):
            self._remove_file(report, info)

    def _remove_dead_publishes(self, report: DatasetCleanup) -> None:
        """Remove files of publishes that never landed, when they cannot land any more."""
        planned = {info.path for info in self._found.dead_files(MANIFEST)}
        repository = self._repository
        for incarnation in repository.branches.incarnations() if self._confirm and planned else ():
            advance(self._datasets, repository.reader, repository.clock, incarnation)
        for info in self._found.dead_files(MANIFEST):
            if info.path in planned:
                self._remove_file(report, info)

    def _report(self, location: str) -> DatasetCleanup:
        name = self._plan.names.get(location, location)
        return self._reports.setdefault(location, DatasetCleanup(name))


def _manifest_first(item: tuple[str, DatasetCleanup]) -> tuple[bool, str]:
    return item[0] != MANIFEST, item[0]
