"""One schedule: several handles of one graph, everything drawn from one seed.

After each step what was seen is compared with the model, and at the end fresh handles look at
everything. Every wrong answer, and every error that a step may not raise, ends the schedule.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crash.checks import check_sound
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.manifest import OpenMode, ReadTarget
from sim.changes import SCHEMA, lines
from sim.life import Fate, Life, LockKind, make_graph, open_graph
from sim.model import Chronicle, Content, WrongError, read_content
from sim.scheduler import DAY_S, Scheduler, Task
from support.faulty_store import SimulatedDeath

STEPS: Final = (8, 13)
"""Seeds that begin so also remove files that running writes have prepared: not expected to pass."""
SKEWS_S: Final = {
    "locks": (0.0, 0.0, 300.0, -300.0, 3 * 3600.0, -3 * 3600.0),
    # Object stores refuse requests of clocks that are wrong by more than a quarter of an hour.
    "leases": (0.0, 0.0, 300.0, -300.0),
}
_LAST_SHOWN: Final = 40


@dataclass
class BranchFact:
    """What is known of a branch by name; names are never used twice."""

    is_sure: bool = False
    """Whether somebody was told that it exists."""
    deletions: int = 0
    """How many have begun to delete it and were not told that nothing happened."""
    is_gone: bool = False


@dataclass
class TagFact:
    """What is known of a tag."""

    commit_id: str
    deletions: int = 0
    """How many have begun to delete it and were not told that nothing happened."""


@dataclass(frozen=True)
class Template:
    """A prepared graph without branches, which can be copied."""

    folder: Path
    head: str
    content: Content

    @classmethod
    def made(cls, folder: Path) -> Template:
        root = folder / "template"
        scheduler = Scheduler()
        found: list[tuple[str, Content]] = []

        def body(task: Task) -> None:
            life = Life(scheduler, task, random.Random(0), Fate(0, 0), {}, name="template")
            make_graph(life, root, SCHEMA)
            graph = open_graph(life, root, "locks")
            people = [{"type": "P", "data": {"k": f"main:{n}", "n": n}} for n in range(4)]
            things = [{"type": "Q", "data": {"k": f"main:{n}"}} for n in range(4)]
            edge = {"edge": "E", "from": "main:0", "to": "main:1", "data": {"no": -1}}
            graph.load(lines([*people, *things, edge]), mode="append")
            for number in (4, 5):
                graph.mutate(f'query q() {{ insert P {{ k: "main:{number}", n: {number} }} }}')
            snapshot = graph.snapshot()
            found.append((snapshot.commit_id, read_content(snapshot)))

        scheduler.run(["template"], body)
        return cls(root, *found[0])


class Schedule:
    """The run of one seed."""

    def __init__(self, seed: str, template: Template, root: Path) -> None:
        self.seed = seed
        self.root = root
        self.chance = random.Random(seed)
        self.kind: LockKind = self.chance.choice(("leases", "locks"))
        self.scheduler = Scheduler()
        self.fate = Fate(pauses=self.chance.randint(0, 3), deaths=self.chance.randint(0, 2))
        self.locks: dict[str, Life] = {}
        self.chronicle = Chronicle(template.head, template.content)
        self.branches: dict[str, BranchFact] = {}
        self.tags: dict[str, TagFact] = {}
        self.cleanups = 0
        """How many cleanups have begun."""
        self.cleaning = 0
        """How many of them are under way."""
        self._numbers = iter(range(100, 1_000_000))
        shutil.copytree(template.folder, root)

    @property
    def trace(self) -> list[str]:
        return self.scheduler.trace

    def number(self) -> int:
        """Return a number that was not used yet."""
        return next(self._numbers)

    def run(self) -> None:
        """Run all handles to their end, then look at what is left."""
        names = [f"h{n}" for n in range(self.chance.choice((3, 3, 3, 4)))]
        try:
            self.scheduler.run(names, lambda task: Handle(self, task).run())
            self.scheduler.run(["last"], lambda task: Handle(self, task, is_last=True).finish())
        except BaseException as error:
            error.add_note("\n".join(self.trace[-_LAST_SHOWN:]))
            raise

    def let_days_pass(self) -> None:
        self.scheduler.note("two days pass")
        self.scheduler.jump(2 * DAY_S)

    def live_branches(self) -> list[str]:
        """Return `main` and the branches that may be there."""
        return ["main", *(name for name, fact in self.branches.items() if not fact.is_gone)]

    def is_surely_there(self, branch: str) -> bool:
        if branch == "main":
            return True
        fact = self.branches[branch]
        return fact.is_sure and not fact.deletions

    def incarnation(self, branch: str) -> str | None:
        """Return the incarnation of a branch as far as anybody has seen it; None is `main`."""
        if branch == "main":
            return None
        known = [*self.chronicle.heads, *self.chronicle.acknowledged]
        return next((i for i in known if i and i.rpartition(".")[0] == branch), branch)

    def required(self, branch: str) -> frozenset[str]:
        return self.chronicle.required(self.incarnation(branch))

    def head_content(self, branch: str) -> Content:
        """Return what a branch contained when somebody last looked; only to draw from."""
        heads = self.chronicle.heads
        head = heads.get(self.incarnation(branch)) or str(heads[None])
        return self.chronicle.content(head) or {}


class Handle:
    """One of the handles: a task that opens the graph, runs steps and may die on the way."""

    def __init__(self, schedule: Schedule, task: Task, *, is_last: bool = False) -> None:
        self.schedule = schedule
        self.chronicle = schedule.chronicle
        self.chance = schedule.chance
        self.task = task
        self.lives = 0
        self._is_last = is_last
        self._life: Life | None = None
        self._graph: Graph | None = None

    @property
    def life(self) -> Life:
        assert self._life is not None
        return self._life

    @property
    def graph(self) -> Graph:
        assert self._graph is not None
        return self._graph

    def run(self) -> None:
        from sim.steps import draw_step

        self.schedule.scheduler.wait(self.task, self.chance.uniform(0.0, 1.0))
        for _ in range(self.chance.randint(*STEPS)):
            step = self.open if self._graph is None else draw_step(self)
            self._between(step)
            try:
                step()
            except SimulatedDeath:
                if self._life is None or not self._life.is_dead:
                    raise
                self._life = self._graph = None
            self._idle()
        if self._life is not None:
            # A process that ends lets go of its locks.
            self._life.end()

    def _between(self, step: Callable[[], None]) -> None:
        schedule = self.schedule
        name = getattr(step, "__name__", str(step))
        schedule.scheduler.note(f"{schedule.scheduler.now_s:.1f} s: {self.task.name} {name}")
        if self._life is not None and self.chance.random() < 0.05:
            self._life.skew_s = self.chance.choice(SKEWS_S[self.schedule.kind])

    def _idle(self) -> None:
        """Do nothing between two steps: mostly for a moment, sometimes for long."""
        is_long = self.chance.random() < 0.3
        seconds = self.chance.uniform(4.0, 25.0) if is_long else self.chance.uniform(0.0, 1.0)
        self.schedule.scheduler.wait(self.task, seconds)

    def new_life(self) -> Life:
        schedule = self.schedule
        self.lives += 1
        fate = Fate(0, 0) if self._is_last else schedule.fate
        name = f"{self.task.name}.{self.lives}"
        return Life(schedule.scheduler, self.task, self.chance, fate, schedule.locks, name=name)

    def open(self) -> None:
        """Open the graph for writing, as a new process does."""
        from sim.steps import OPENING, legal

        self._life = self.new_life()
        with legal(self, "open", OPENING) as was_refused:
            self._graph = open_graph(self._life, self.schedule.root, self.schedule.kind)
        if was_refused:
            self._life.end()
            self._life = None

    def look(self, graph: Graph, branch: str) -> None:
        """Read a branch as a whole: it shows what was acknowledged, and nothing half."""
        required = self.schedule.required(branch)
        snapshot = graph.snapshot_of(ReadTarget.branch(branch))
        found = read_content(snapshot)
        self.chronicle.see(snapshot)
        self.chronicle.check_fresh(f"a read of {branch}", snapshot.commit_id, required)
        self.chronicle.check_content(f"a read of {branch}", snapshot.commit_id, found)

    # -- the end ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Look at everything with fresh handles: for reading, for writing, and again."""
        self._look_at_all(self._fresh(OpenMode.READ_ONLY))
        graph = self._fresh(OpenMode.READ_WRITE)
        self._look_at_all(graph)
        self._check_branches(graph)
        self._check_tags(graph)
        self.chronicle.check_writes()
        check_sound(graph)
        graph.mutate('query q() { insert Q { k: "last" } }')
        reader = self._fresh(OpenMode.READ_ONLY)
        query = 'query q() { match { $q: Q { k: "last" } } return { $q.k } }'
        if len(reader.query(query)) != 1:
            raise WrongError("the last write is not there")

    def _fresh(self, mode: OpenMode) -> Graph:
        try:
            return open_graph(self.new_life(), self.schedule.root, self.schedule.kind, mode=mode)
        except OmnigraphError as error:
            raise WrongError(f"the graph cannot be opened: {error.code} {error}") from error

    def _look_at_all(self, graph: Graph) -> None:
        for branch in graph.branch_list():
            self.look(graph, branch)

    def _check_branches(self, graph: Graph) -> None:
        found = set(graph.branch_list()) - {"main"}
        facts = self.schedule.branches
        sure = {name for name, fact in facts.items() if fact.is_sure and not fact.deletions}
        if lost := sure - found:
            raise WrongError(f"branches are lost: {sorted(lost)}")
        if back := found - {name for name, fact in facts.items() if not fact.is_gone}:
            raise WrongError(f"branches have come back: {sorted(back)}")
        for branch in ("main", *sorted(found)):
            snapshot = graph.snapshot_of(ReadTarget.branch(branch))
            self.chronicle.check_history(snapshot.incarnation.lance_branch, snapshot)

    def _check_tags(self, graph: Graph) -> None:
        found = {tag.name: tag.commit_id for tag in graph.tag_list()}
        for name, fact in self.schedule.tags.items():
            if fact.deletions:
                continue
            if found.get(name) != fact.commit_id:
                raise WrongError(f"tag {name} names {found.get(name)}, not {fact.commit_id}")
            content = read_content(graph.snapshot_of(ReadTarget.tag(name)))
            self.chronicle.check_content(f"tag {name}", fact.commit_id, content)
