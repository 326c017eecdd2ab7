"""Jobs for fault sweeps, and what must hold after a fault: one table for every suite.

A sweep prepares one small graph, runs a job on a fresh copy of it with a fault somewhere, opens the
copy again and calls `Sweep.check`. Legal are exactly two contents: the one before the job and the
one that the job leaves when nothing goes wrong.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from omnigraph.clock import SystemClock
from omnigraph.errors import OmnigraphError, OutcomeUnknownError
from omnigraph.graph import Graph
from omnigraph.manifest import OpenMode, ReadTarget
from omnigraph.manifest.repository import assemble
from omnigraph.names import BranchName
from omnigraph.recovery.failpoints import FailpointError
from omnigraph.recovery.sidecar import FOLDER
from omnigraph.store.faults import Effect, FaultPlan, SimulatedDeath, faulty
from support.places import SCHEMA, Place, add, repository_of, tree

BRANCH = "dev"
RENAMED = (
    SCHEMA.replace("node Person {", 'node Human @rename_from("Person") {')
    .replace("Person -> Person", "Human -> Human")
    .replace("age: I32?\n}\n\nnode City", "years: I64? @rename_from(age)\n}\n\nnode City")
    .replace("node City {", 'node Town @rename_from("City") {')
) + "\nnode Extra { code: String @key }\n"
ANOTHER = "\nnode Later { code: String @key }\n"

_PEOPLE = b"""\
{"type": "Person", "data": {"name": "ann", "age": 9}}
{"type": "Person", "data": {"name": "new", "age": 1}}
{"edge": "Knows", "from": "ann", "to": "new"}
"""
_NEW = b"""\
{"type": "Person", "data": {"name": "new", "age": 1}}
{"type": "City", "data": {"name": "kiel"}}
{"edge": "Knows", "from": "ann", "to": "new"}
"""

Content = dict[str, object]
"""What a graph says: its schema, the rows of each table and, for upkeep, their physical form."""


@dataclass(frozen=True)
class Job:
    """One write of one kind."""

    name: str
    run: Callable[[Graph], object]
    branch: str = "main"
    is_physical: bool = False
    """Whether only the form of the tables changes, not what they say."""


def _mutation(statements: str) -> Callable[[Graph], object]:
    return lambda graph: graph.mutate(f"query q() {{ {statements} }}")


def _load(records: bytes, mode: str) -> Callable[[Graph], object]:
    return lambda graph: graph.load(records, mode=mode)


_INSERT = 'insert Person { name: "new", age: 1 } insert Knows { from: "ann", to: "new" }'

JOBS = [
    Job("insert", _mutation(_INSERT)),
    Job("insert on a branch", _mutation(_INSERT), branch=BRANCH),
    Job("update", _mutation('update Person set { age: 7 } where name = "bob"')),
    Job("delete with cascade", _mutation('delete Person where name = "bob"')),
    Job("load append", _load(_NEW, "append")),
    Job("load merge", _load(_PEOPLE, "merge")),
    Job("load overwrite", _load(_PEOPLE, "overwrite")),
    Job("schema apply", lambda graph: graph.apply_schema(RENAMED)),
    Job("ensure indices", lambda graph: graph.ensure_indices(), is_physical=True),
    Job("optimize", lambda graph: graph.optimize(), is_physical=True),
]
JOBS_BY_NAME = {job.name: job for job in JOBS}


def prepare(place: Place, *, with_branch: bool = False) -> None:
    """Make the smallest graph on which every job has something to do, in several fragments."""
    with place.init() as graph:
        add(graph, "ann")
        graph.ensure_indices()
        graph.load(
            b'{"type": "Person", "data": {"name": "bob"}}\n'
            b'{"edge": "Knows", "from": "ann", "to": "bob"}\n',
            mode="append",
        )
        if with_branch:
            graph.branch_create(BRANCH)


def copies(template: Place, target: Path) -> Iterator[Place]:
    """Yield fresh local copies, one at a time; a branch of a copy reads the template's files."""
    for number in range(10_000):
        root = target / f"step{number}"
        shutil.copytree(template.uri, root)
        yield Place(str(root))
        shutil.rmtree(root)


def broken(place: Place, plan: FaultPlan, branch: str = "main") -> Graph:
    """Open a graph whose storage is under a plan, without sweeping it first."""
    repository = assemble(faulty(place.store(), plan), SystemClock())
    return Graph(
        repository,
        mode=OpenMode.READ_WRITE,
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


def content_of(graph: Graph, job: Job) -> Content:
    """Return what a graph says on the branch of a job, and on the other one."""
    found: Content = {"schema": graph.schema_source()}
    for branch in graph.branch_list():
        snapshot = graph.snapshot_of(ReadTarget.branch(branch))
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
            if entry.owner == snapshot.incarnation.text:
                head = datasets.head_version(entry.location, branch=entry.table_branch)
                assert head == entry.table_version, f"{key}: manifest and head differ"
        commits = graph.list_commits(branch)
        parents = [commit.parent_commit_id for commit in commits]
        assert parents == [*(commit.graph_commit_id for commit in commits[1:]), None]
        assert commits[0].graph_commit_id == snapshot.commit_id


@dataclass(frozen=True)
class Sweep:
    """A job with the two contents that are legal after any fault in it."""

    job: Job
    before: Content
    after: Content
    effects: tuple[Effect, ...]
    """What the job does to storage when nothing goes wrong."""

    @classmethod
    def measured(cls, job: Job, place: Place) -> Sweep:
        """Run a job once without a fault; the place is used up."""
        before = content_of(place.open(), job)
        plan = FaultPlan()
        job.run(broken(place, plan, job.branch))
        after = content_of(place.open(), job)
        assert before != after, "the job does something"
        return cls(job, before, after, plan.effects)

    @property
    def decisive(self) -> tuple[int, ...]:
        """The effects from the recovery record on; before it nothing but unused files appears."""
        first = next(e.number for e in self.effects if e.path.startswith(FOLDER))
        return tuple(effect.number for effect in self.effects[first - 1 :])

    @property
    def table_count(self) -> int:
        """How many tables the job moves."""
        commits = (e.path for e in self.effects if e.name == "datasets.commit_staged")
        return len({path for path in commits if path.startswith(("nodes/", "edges/"))})

    def check(
        self, place: Place, *, audited: list[str], error: BaseException | None = None
    ) -> bool:
        """Check a graph after a fault; return whether the job was done.

        `audited` are the operations that had to be settled. `error` is what the caller was told.
        """
        with place.open(self.job.branch) as graph:
            content = content_of(graph, self.job)
            assert content in (self.before, self.after), "half a job"
            is_done = content == self.after
            check_heads(graph)
            assert graph.recovery_status() == []
            assert sorted(row.operation_id for row in graph.recovery_list()) == sorted(audited)
            self._check_answer(error, is_done=is_done)
            self._check_second_open(place, content)
            if not is_done:
                self.job.run(graph)
                assert content_of(place.open(), self.job) == self.after, "the retried job"
        self._check_schema_apply(place)
        return is_done

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
            if len(graph.branch_list()) > 1:
                graph.branch_delete(BRANCH)
            graph.apply_schema(graph.schema_source() + ANOTHER)
            assert "node:Later" in graph.snapshot().entries
            check_heads(place.open())
