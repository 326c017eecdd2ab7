"""What must hold after a fault in a job, and graphs that can be put back.

A sweep prepares the graph of a scene once, puts it back for every point, runs a job on it with a
fault somewhere, opens it again and calls `Sweep.check`. Legal are exactly the contents between the
steps of the job: for most jobs the one before it and the one behind it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from omnigraph.clock import SystemClock
from omnigraph.errors import OmnigraphError, OutcomeUnknownError
from omnigraph.failpoints import FailpointError
from omnigraph.graph import Graph
from omnigraph.manifest import ReadTarget, open_read_only
from omnigraph.manifest.repository import assemble
from omnigraph.names import BranchName
from omnigraph.recovery import Recovery
from omnigraph.recovery.intent import FOLDER
from omnigraph.store import Store
from support.faulty_store import Effect, FaultPlan, SimulatedDeath, faulty
from support.places import Place, graph_on, repository_of, tree
from support.sweep_jobs import ANOTHER, Job, Scene, prepare

Content = dict[str, object]
"""What a graph says: schema, rows of each table and, for maintenance, their physical form."""


@dataclass(frozen=True)
class Archive:
    """A prepared graph that is put back as often as a sweep needs it, always at its own address.

    A branch names the absolute place of what it was cut from, so a copy elsewhere would read the
    files of the original.
    """

    place: Place
    files: Mapping[str, bytes]

    @classmethod
    def of_scene(cls, place: Place, scene: Scene) -> Archive:
        prepare(place, scene)
        objects = place.store().objects
        return cls(place, {info.path: objects.get(info.path).data for info in objects.list()})

    def restored(self, files: Mapping[str, bytes] | None = None) -> Place:
        """Put the graph back, or what else a disk may hold in its place."""
        files = self.files if files is None else files
        if self.place.is_local:
            shutil.rmtree(self.place.uri, ignore_errors=True)
            write_files(Path(self.place.uri), files)
        else:
            self._restore_objects(files)
        return self.place

    def _restore_objects(self, files: Mapping[str, bytes]) -> None:
        objects = self.place.store().objects
        found = {info.path for info in objects.list()}
        for path in found - files.keys():
            objects.delete(path)
        for path, data in files.items():
            if path not in found or objects.get(path).data != data:
                objects.put(path, data)

    def places(self) -> Iterator[Place]:
        """Yield the graph, put back each time; what was done to it before is gone."""
        for _ in range(10_000):
            yield self.restored()


def write_files(root: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their paths under a root."""
    for name, data in files.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


class Archives:
    """The scenes of some jobs, each made once, when it is first asked for."""

    def __init__(self, root: str, options: Mapping[str, str] | None = None) -> None:
        self._root = root
        self._options = options or {}
        self._made: dict[Scene, Archive] = {}

    def of(self, job: Job) -> Archive:
        if job.scene not in self._made:
            place = Place(f"{self._root}/scene{len(self._made)}/graph", self._options)
            self._made[job.scene] = Archive.of_scene(place, job.scene)
        return self._made[job.scene]


def broken(place: Place, plan: FaultPlan, branch: str = "main") -> Graph:
    """Open a graph whose storage is under a plan, without sweeping it first."""
    return unswept(faulty(place.store(), plan), branch)


def unswept(store: Store, branch: str = "main") -> Graph:
    """Open a graph on some store, without sweeping it first."""
    repository = assemble(store, SystemClock())
    return graph_on(
        repository,
        incarnation=repository.branches.resolve(BranchName(branch)),
        auto_optimize=False,
    )


def attempt(graph: Graph, job: Job) -> BaseException | None:
    """Run a job; return what went wrong."""
    try:
        job.run(graph)
    except (OmnigraphError, FailpointError, SimulatedDeath) as error:
        return error
    return None


def pending_operations(place: Place) -> list[str]:
    """Return the operations whose records lie in storage."""
    infos = place.store().objects.list(FOLDER)
    return [info.path.rpartition("/")[2].removesuffix(".json") for info in infos]


def settle_elsewhere(place: Place, branch: str) -> list[str]:
    """Let another process take the lock over and settle what it finds; return what that was."""
    found = pending_operations(place)
    other = open_read_only(place.store(), SystemClock())
    Recovery(other).sweep_branch(BranchName(branch))
    return found


def content_of(graph: Graph, job: Job) -> Content:
    """Return what a graph says on the branch of a job, and on the other one."""
    found: Content = {}
    for branch in graph.branch_list():
        snapshot = graph.snapshot_of(ReadTarget.branch(branch))
        found[f"{branch} schema"] = snapshot.schema.source
        for key in snapshot.entries:
            handle = snapshot.open(key)
            rows = handle.scan().read_all().to_pylist()
            if key.startswith("edge:"):
                rows = [{k: v for k, v in row.items() if k != "id"} for row in rows]
            found[f"{branch} {key}"] = sorted(rows, key=repr)
            if job.is_physical:
                found[f"{branch} {key} form"] = (
                    len(handle.fragments()),
                    sorted((index.name, index.rows_covered) for index in handle.indexes()),
                )
    return found


def check_heads(graph: Graph) -> None:
    """Every published version is the head of its lineage and has the rows that it says."""
    datasets = repository_of(graph).store.datasets
    for branch in graph.branch_list():
        snapshot = graph.snapshot_of(ReadTarget.branch(branch))
        for key, entry in snapshot.entries.items():
            assert snapshot.open(key).count() == entry.row_count
            if entry.owner_branch == snapshot.incarnation.text:
                head = datasets.head_version(entry.location, branch=entry.table_branch)
                assert head == entry.table_version, f"{key}: manifest and head differ"
        commits = graph.list_commits(branch)
        parents = [commit.parent_commit_id for commit in commits]
        assert parents == [*(commit.graph_commit_id for commit in commits[1:]), None]
        assert commits[0].graph_commit_id == snapshot.commit_id


@dataclass(frozen=True)
class Sweep:
    """A job with the contents that are legal after any fault in it."""

    job: Job
    contents: tuple[Content, ...]
    """Before the job, and after each of its steps."""
    effects: tuple[Effect, ...]
    """What the job does to storage when nothing goes wrong."""

    @classmethod
    def measured(cls, job: Job, place: Place) -> Sweep:
        """Run a job once without a fault; the place is used up."""
        contents = [content_of(place.open(), job)]
        plan = FaultPlan()
        graph = broken(place, plan, job.branch)
        for step in job.steps:
            step(graph)
            contents.append(content_of(place.open(), job))
            assert contents[-2] != contents[-1], "every step does something"
        assert job.is_settled(place.open())
        return cls(job, tuple(contents), plan.effects)

    @property
    def before(self) -> Content:
        return self.contents[0]

    @property
    def after(self) -> Content:
        return self.contents[-1]

    @property
    def decisive(self) -> tuple[int, ...]:
        """The effects from the intent record on; before it nothing but unused files appears."""
        first = next(e.number for e in self.effects if e.path.startswith(FOLDER))
        return tuple(effect.number for effect in self.effects[first - 1 :])

    @property
    def table_count(self) -> int:
        """How many tables the job moves."""
        commits = (e.path for e in self.effects if e.name == "datasets.commit_staged")
        return len({path for path in commits if path.startswith(("nodes/", "edges/"))})

    def check(self, place: Place, *, audited: list[str], error: BaseException | None = None) -> int:
        """Check a graph after a fault; return how many steps of the job were done.

        `audited` are the operations that had to be settled. `error` is what the caller was told.
        """
        with place.open(self.job.branch) as graph:
            content = content_of(graph, self.job)
            assert content in self.contents, "half a job"
            is_done = content == self.after
            check_heads(graph)
            assert graph.recovery_status() == []
            assert sorted(row.operation_id for row in graph.recovery_list()) == sorted(audited)
            self._check_answer(error, is_done=is_done)
            self._check_second_open(place, content)
            if not is_done:
                self.job.run(graph)
                assert content_of(place.open(), self.job) == self.after, "the retried job"
            assert self.job.is_settled(place.open()), "done twice, or not recorded as done"
        self._check_schema_apply(place)
        return self.contents.index(content)

    def _check_answer(self, error: BaseException | None, *, is_done: bool) -> None:
        if error is None:
            assert is_done, "said to be done and is not"
        elif is_done and isinstance(error, OmnigraphError):
            assert isinstance(error, OutcomeUnknownError), f"refused and done: {error!r}"

    def _check_second_open(self, place: Place, content: Content) -> None:
        if place.is_local:
            before = tree(Path(place.uri))
            place.open()
            assert tree(Path(place.uri)) == before, "a second open changes something"
            return
        before_s3 = {info.path: info.tag for info in place.store().objects.list()}
        again = place.open(self.job.branch)
        kept = {
            info.path: info.tag
            for info in place.store().objects.list()
            if not info.path.startswith("__leases")
        }
        assert kept == {p: t for p, t in before_s3.items() if not p.startswith("__leases")}
        assert content_of(again, self.job) == content

    def _check_schema_apply(self, place: Place) -> None:
        # Closed at the end: nothing of it is written after the copy has been removed.
        with place.open() as graph:
            # A job may have deleted its branch.
            branch = self.job.branch if self.job.branch in graph.branch_list() else "main"
            graph.schema.apply(graph.schema.source(branch=branch) + ANOTHER, branch=branch)
            assert "node:Later" in graph.snapshot_of(ReadTarget.branch(branch)).entries
            check_heads(place.open())
