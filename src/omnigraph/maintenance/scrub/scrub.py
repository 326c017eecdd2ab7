"""Reads the files of a graph and compares them with what was written.

1. It examines what the retained versions of `__manifest` need, directly or through the versions of
   tables that they publish: versions, rows, blobs, deletions, indexes, branches and tags; then the
   derived tables and the topologies. A damaged file that nothing needs is not reported.
2. Existence and size are checked for all of it. Bytes are read for the sample; `__manifest`,
   versions and refs are always in it, because they are small and everything depends on them.
3. Damaged files are never relied on: versions are compared before they are read, and the state of
   a branch comes from its newest version whose files are all sound.
4. A version of `__manifest` or a branch that has vanished is known by its checksum alone.
5. Nothing is written but the checksums of files that have none, when that is asked for. A file
   that was removed meanwhile, together with the version that needed it, is no damage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

from omnigraph.errors import OmnigraphError
from omnigraph.maintenance.cleanup.needed import PublishedEntry
from omnigraph.maintenance.scrub.branches import SoundBranch
from omnigraph.maintenance.scrub.compare import ALWAYS_READ, Comparer, Look
from omnigraph.maintenance.scrub.files import DatasetFiles, version_numbers
from omnigraph.maintenance.scrub.report import (
    SUMS,
    TOPOLOGY,
    Damage,
    DamagedRows,
    Problem,
    ReadableCommits,
    ScrubReport,
    ScrubRequest,
)
from omnigraph.maintenance.scrub.rows import ROWS_BY_KIND, rows_file_of
from omnigraph.manifest import Repository
from omnigraph.manifest.checksums import home_of
from omnigraph.manifest.errors import BranchNotFoundError
from omnigraph.manifest.layout import (
    CHECKSUMS,
    DERIVED_TABLES,
    MAIN_INCARNATION,
    MANIFEST,
    RECOVERIES,
    TABLE_FOLDERS,
    Incarnation,
)
from omnigraph.names import BranchName, nearest_name
from omnigraph.search.topology.store import FOLDER as TOPOLOGIES
from omnigraph.search.topology.store import topology_problem
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.lance.layout import (
    branch_of_ref,
    branch_ref_path,
    branch_refs_directory,
    manifest_path,
    tag_ref_path,
)
from omnigraph.store.records import DatasetVersion, FileKind

READERS: Final = 4
"""How many files are read at a time."""

Lineages: TypeAlias = Mapping[str | None, Iterable[int]]
"""Versions of a dataset by branch."""


def scrub(repository: Repository, request: ScrubRequest) -> ScrubReport:
    """Compare the files that a graph needs with their checksums."""
    with ThreadPoolExecutor(READERS, "scrub") as pool:
        return _Scrub(repository, request, pool).run()


class _Scrub:
    """One scrub of one graph."""

    def __init__(
        self, repository: Repository, request: ScrubRequest, pool: ThreadPoolExecutor
    ) -> None:
        self._comparer = Comparer(repository, request, pool)
        self._repository = repository
        self._request = request
        self._store = repository.store
        self._datasets: DatasetStore = repository.store.datasets
        self._objects = repository.store.objects
        self._checked: dict[str, DatasetFiles] = {}
        self._branches: list[SoundBranch] = []
        self._names: dict[str, str] = {}
        self._lineages: dict[str, dict[str | None, set[int]]] = {}
        self._damaged: list[Damage] = []

    def run(self) -> ScrubReport:
        """Check everything and report."""
        self._manifest()
        self._tables()
        if self._request.branch is None:
            self._derived()
            self._topologies()
        for files in self._checked.values():
            self._describe(files)
        if self._comparer.sums_problem is not None:
            problem, detail = self._comparer.sums_problem
            self._damaged.append(Damage(CHECKSUMS, SUMS, CHECKSUMS, problem, detail))
        return self._comparer.report(self._damaged)

    # -- what is checked --------------------------------------------------------------------------

    def _manifest(self) -> None:
        files = self._files_in(MANIFEST)
        lineages: dict[str | None, set[int]] = {}
        for incarnation in self._incarnations(files):
            branch = incarnation.lance_branch
            self._check_packs(files, branch)
            known = files.versions(branch) | files.lost_versions(branch)
            paths = dict.fromkeys(
                (files.path_of(branch, version) for version in known), FileKind.VERSION
            )
            if branch is not None:
                paths[branch_ref_path(MANIFEST, branch)] = FileKind.REF
            self._comparer.check(files, paths)
            lineages[branch] = files.sound(branch, known)
        self._lineages[MANIFEST] = lineages
        self._comparer.check(files, self._needed(files, lineages))
        # A branch without its ref can be read by its versions.
        unsound = self._users(
            files, frozenset(p for p in files.problems if files.kinds[p] is not FileKind.REF)
        )
        for incarnation in self._incarnations(files):
            checked = self._sound_branch(files, incarnation, set().union(*unsound.values()))
            if checked is not None:
                self._branches.append(checked)
        self._comparer.check(files, self._pins(files))

    def _incarnations(self, files: DatasetFiles) -> list[Incarnation]:
        """Return the branches to check, with those that have lost their ref."""
        folder = branch_refs_directory(MANIFEST)
        refs = {path for path in (*files.present, *files.sums) if path.startswith(f"{folder}/")}
        found = {MAIN_INCARNATION}
        for path in refs:
            incarnation = Incarnation.of_lance_branch(branch_of_ref(path))
            if incarnation is None:
                continue
            # A branch that was deleted has no files any more.
            if path in files.present or files.versions(incarnation.lance_branch):
                found.add(incarnation)
        wanted = self._request.branch
        if wanted is None:
            return sorted(found)
        name = BranchName.parse(wanted)
        chosen = [incarnation for incarnation in found if incarnation.branch == name]
        if not chosen:
            near = nearest_name(name.text, [i.branch.text for i in found])
            raise BranchNotFoundError(name.text, near)
        return chosen

    def _sound_branch(
        self, files: DatasetFiles, incarnation: Incarnation, unsound: set[DatasetVersion]
    ) -> SoundBranch | None:
        """Read the newest state of a branch; None where the branch was deleted since."""
        branch = incarnation.lance_branch
        known = files.versions(branch) | files.lost_versions(branch)
        sound = sorted(
            version
            for version in files.sound(branch, known)
            if DatasetVersion(MANIFEST, branch, version) not in unsound
        )
        for count in range(len(sound), 0, -1):
            version = sound[count - 1]
            try:
                state = self._repository.reader.at(incarnation, version)
                checked = SoundBranch(
                    incarnation,
                    versions=tuple(sound[:count]),
                    state=state,
                    pins=tuple(tag.pin for tag in state.tags.values()),
                    newer_lost=sum(other > version for other in known),
                )
                checked.commits  # noqa: B018 - reads all rows, or raises
            except OmnigraphError as error:
                if self._was_deleted(files, branch):
                    return None
                path = files.path_of(branch, version)
                files.problems.setdefault(path, (Problem.UNREADABLE, str(error)))
                continue
            return checked
        return SoundBranch(incarnation, newer_lost=len(known))

    def _was_deleted(self, files: DatasetFiles, branch: str | None) -> bool:
        """Whether a branch was there when files were listed, and is there no more."""
        if branch is None or branch_ref_path(MANIFEST, branch) not in files.present:
            return False
        return not self._datasets.has_branch(MANIFEST, branch)

    def _pins(self, files: DatasetFiles) -> dict[str, FileKind]:
        """Return the pins of living tags in one dataset, as far as they are known."""
        pins = (pin for each in self._branches if each.incarnation.is_main for pin in each.pins)
        paths = [tag_ref_path(files.location, pin) for pin in pins]
        return {path: FileKind.REF for path in paths if path in files.sums or path in files.present}

    def _tables(self) -> None:
        needed: dict[str, dict[str | None, set[int]]] = defaultdict(lambda: defaultdict(set))
        for each in self._branches:
            for key, at in each.needed():
                needed[at.location][at.branch].add(at.version)
                self._names[at.location] = key
        if any(each.state is None for each in self._branches):
            # What that branch needs is unknown: any stored version may be needed.
            for at in self._stored_versions():
                needed[at.location][at.branch].add(at.version)
        for location in sorted(needed):
            self._table(location, needed[location])

    def _stored_versions(self) -> Iterator[DatasetVersion]:
        for folder in TABLE_FOLDERS:
            paths = [info.path for info in self._objects.list(folder)]
            for location in sorted({home_of(path) for path in paths}):
                own = [path for path in paths if home_of(path) == location]
                for branch in (None, *self._datasets.branch_names(location)):
                    for version in version_numbers(own, location, branch):
                        yield DatasetVersion(location, branch, version)

    def _table(self, location: str, wanted: Mapping[str | None, set[int]]) -> None:
        files = self._files_in(location)
        paths: dict[str, FileKind] = {}
        for branch, versions in wanted.items():
            # A hard drop takes versions that old commits name; those have no checksum any more.
            self._check_packs(files, branch)
            lost = files.lost_versions(branch) & versions
            for version in files.versions(branch) | lost:
                paths[files.path_of(branch, version)] = FileKind.VERSION
            if branch is not None:
                paths[branch_ref_path(location, branch)] = FileKind.REF
        self._comparer.check(files, paths | self._pins(files))
        lineages = {branch: files.sound(branch, versions) for branch, versions in wanted.items()}
        self._lineages[location] = lineages
        self._comparer.check(files, self._needed(files, lineages))

    def _check_packs(self, files: DatasetFiles, branch: str | None) -> None:
        """Find out which versions are in packs that are sound."""
        paths = files.packs(branch)
        self._comparer.check(files, dict.fromkeys(paths, FileKind.VERSION))
        for path in paths:
            if path in files.present and self._objects.head(path) is None:
                # A cleanup has taken it apart since the files were listed.
                files.problems.pop(path, None)
            if path in files.problems:
                continue
            try:
                versions = self._datasets.packed_versions(path)
            except OmnigraphError as error:
                files.problems[path] = (Problem.UNREADABLE, str(error))
            else:
                files.packed[branch] |= dict.fromkeys(versions, path)

    def _derived(self) -> None:
        for location in DERIVED_TABLES:
            files = self._files_in(location)
            if not files.present:
                del self._checked[location]
                continue
            head = max(files.versions(None), default=0)
            newest = {head}
            if location == RECOVERIES:
                # The others are brought up to date, or made anew, from the manifest.
                newest |= {version for version in files.lost_versions(None) if version > head}
            paths = (manifest_path(location, None, version) for version in newest)
            self._comparer.check(files, dict.fromkeys(paths, FileKind.VERSION))
            self._names[location] = location
            self._lineages[location] = {None: files.sound(None, [head])}
            self._comparer.check(files, self._needed(files, self._lineages[location]))

    def _topologies(self) -> None:
        for info in self._objects.list(TOPOLOGIES):
            if not self._comparer.is_sampled(info.path):
                self._comparer.count(Look())
                continue
            self._comparer.count(Look(is_compared=True, bytes_read=info.size))
            problem = topology_problem(self._store, info.path)
            if problem is not None:
                damage = Damage(info.path, TOPOLOGY, TOPOLOGIES, Problem.CONTENT, problem)
                self._damaged.append(damage)

    def _files_in(self, location: str) -> DatasetFiles:
        files = self._comparer.files_of(location)
        self._checked[location] = files
        return files

    def _needed(self, files: DatasetFiles, lineages: Lineages) -> dict[str, FileKind]:
        """Return the files that versions refer to, with what belongs to them."""
        found: dict[str, FileKind] = {}
        for branch, versions in lineages.items():
            chosen = set(versions)
            read: set[int] = set()
            for file in self._datasets.needed_files(files.location, branch=branch, versions=chosen):
                read.add(file.version)
                # Most files of transactions are copies that are never read; those have no checksum.
                if file.kind is not FileKind.TRANSACTION or file.path in files.sums:
                    found.setdefault(file.path, file.kind)
            for version in chosen - read:
                if not self._datasets.exists(files.location, branch=branch, version=version):
                    continue  # A cleanup has removed it since.
                path = files.path_of(branch, version)
                files.problems.setdefault(path, (Problem.UNREADABLE, "the version cannot be read"))
                files.kinds[path] = FileKind.VERSION
        for path, blobs in files.blobs().items():
            if path in found:
                found |= dict.fromkeys(blobs, FileKind.BLOBS)
        return found

    def _users(self, files: DatasetFiles, paths: frozenset[str]) -> dict[str, set[DatasetVersion]]:
        """Return which versions need some files; called only when something is damaged."""
        found: dict[str, set[DatasetVersion]] = {path: set() for path in paths}
        if not paths:
            return found
        homes = {rows_file_of(path): path for path in paths if files.kinds[path] is FileKind.BLOBS}
        for branch, versions in self._lineages.get(files.location, {}).items():
            known = {*versions, *files.versions(branch), *files.lost_versions(branch)}
            for version in known:
                path = files.path_of(branch, version)
                if path in found:
                    found[path].add(DatasetVersion(files.location, branch, version))
            for file in self._datasets.needed_files(
                files.location, branch=branch, versions=set(versions)
            ):
                path = homes.get(file.path, file.path)
                if path in found:
                    found[path].add(DatasetVersion(files.location, branch, file.version))
            ref = None if branch is None else branch_ref_path(files.location, branch)
            if files.location == MANIFEST and ref in found:
                found[ref] |= {DatasetVersion(MANIFEST, branch, version) for version in known}
        return found

    # -- describing damage ------------------------------------------------------------------------

    def _describe(self, files: DatasetFiles) -> None:
        users = self._users(files, frozenset(files.problems))
        for path, (problem, detail) in files.problems.items():
            needed_by = users[path]
            kind = files.kinds[path]
            if problem is Problem.MISSING and (
                self._is_unneeded(kind, needed_by)
                or self._went_with_its_versions(path, needed_by)
                or self._went_with_its_commits(files, kind, needed_by)
                or (kind in ALWAYS_READ and self._was_moved(files, path, kind, needed_by))
            ):
                continue
            self._damaged.append(
                Damage(
                    path=path,
                    kind=str(kind),
                    table=self._names.get(files.location, files.location),
                    problem=problem,
                    detail=detail,
                    rows=self._rows(path, kind, needed_by),
                    commits=() if files.location in DERIVED_TABLES else self._commits(needed_by),
                )
            )

    def _is_unneeded(self, kind: FileKind, users: set[DatasetVersion]) -> bool:
        """Whether nothing needs a file any more: its versions went into a pack, and the file too.

        Versions and refs are not needed by anything; they are damage when they vanish.
        """
        return kind not in ALWAYS_READ and not users

    def _went_with_its_versions(self, path: str, users: set[DatasetVersion]) -> bool:
        """Whether a cleanup has removed it since the files were listed."""
        versions = [self._checked[at.location].path_of(at.branch, at.version) for at in users]
        if not versions or path in versions:
            return False
        return all(self._objects.head(version) is None for version in versions)

    def _went_with_its_commits(
        self, files: DatasetFiles, kind: FileKind, users: set[DatasetVersion]
    ) -> bool:
        """Whether a cleanup has removed versions of a table since `__manifest` was read.

        It removes the versions of `__manifest` first. That it has removed those of the table on
        purpose is stored last.
        """
        if kind is not FileKind.VERSION or not users or not files.is_table:
            return False
        return all(one.state is not None for one in self._branches) and not any(
            each.entry.at in users and self._is_shown(one, each)
            for one in self._branches
            for _, each in one.published
        )

    def _is_shown(self, shown_by: SoundBranch, published: PublishedEntry) -> bool:
        """Whether a version of `__manifest` that shows an entry is still there."""
        branch = shown_by.incarnation.lance_branch
        return any(
            self._datasets.exists(MANIFEST, branch=branch, version=version)
            for version in shown_by.versions
            if published.is_live_in((version,))
        )

    def _was_moved(
        self, files: DatasetFiles, path: str, kind: FileKind, users: set[DatasetVersion]
    ) -> bool:
        """Whether versions went into a pack or came out of one since they were listed.

        What was there when files were listed may also have been removed since: a version by a
        cleanup, and the ref of a branch together with the branch.
        """
        if path in files.present:
            return True
        return (
            kind is FileKind.VERSION
            and bool(users)
            and all(
                self._datasets.exists(at.location, branch=at.branch, version=at.version)
                for at in users
            )
        )

    def _commits(self, users: set[DatasetVersion]) -> tuple[ReadableCommits, ...]:
        found = []
        for each in self._branches:
            readable = [commit for commit, needs in each.commits if not needs & users]
            lost = len(each.commits) - len(readable) + each.newer_lost
            name = each.incarnation.branch.text
            found.append(
                ReadableCommits(name, len(readable), lost, readable[0] if readable else None)
            )
        return tuple(found)

    def _rows(self, path: str, kind: FileKind, users: set[DatasetVersion]) -> DamagedRows | None:
        describe = ROWS_BY_KIND.get(kind)
        if describe is None:
            return None
        for at in sorted(users, key=lambda at: at.version, reverse=True):
            try:
                handle = self._datasets.open(at.location, branch=at.branch, version=at.version)
                return describe(handle, path)
            except OmnigraphError:
                continue
        return None
