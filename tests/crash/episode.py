"""One graph, a workload drawn from a seed, and a child that is killed again and again.

The seed fixes the operations and, in shares of what an operation takes, the moments of the kills.
The moments themselves depend on the machine, so a replay may need several rounds.

The process of the test is another one than those that work. It pins versions, optimizes and cleans
up by clocks of other days, between the kills and while a child is idle. One of its handles is
opened once and used now and then: it lives through everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from crash.checks import (
    check_audit,
    check_derived,
    check_opening_changes_nothing,
    check_sound,
    pending_records,
    read_content,
    snapshot_content,
)
from crash.child import run_operation
from crash.nursery import Child, ChildDiedError, Nursery
from crash.world import DAY_S, Content, Operation, Workload, World
from omnigraph.graph import Graph
from omnigraph.manifest import GraphCommit, ReadTarget
from support.clocks import WrongClock
from support.places import Place, finish_maintenance

KILLS_PER_EPISODE = 10
_AHEAD = 24
"""Operations that a child is given; it is killed long before it has done them."""
_LAST_SHOWN = 12


@dataclass
class Durations:
    """What operations took, as a moving average by kind."""

    seconds: dict[str, float] = field(default_factory=lambda: {"open": 0.05})

    def note(self, kind: str, seconds: float) -> None:
        known = self.seconds.get(kind, seconds)
        self.seconds[kind] = 0.8 * known + 0.2 * seconds

    def of(self, kind: str) -> float:
        return self.seconds.get(kind, 0.03)


@dataclass
class Episode:
    """The run of one seed."""

    seed: str
    place: Place
    nursery: Nursery
    durations: Durations
    let_leases_go: Callable[[], None] = lambda: None
    """Makes the locks of the dead free again where the operating system does not."""
    kills: int = 0
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workload = Workload(self.seed)
        self.chance = self.workload.chance
        self.world = World()
        self.settled: set[str] = set()
        self.commits: dict[str, set[str]] = {"main": set()}
        """Acknowledged commits by branch, those that it inherited included."""
        self.tags: dict[str, Content] = {}
        """What tagged commits of `main` show."""

    def run(self, kills: int) -> None:
        """Kill a child so many times, and look after each."""
        self.place.init(self.world.shape.text()).close()
        with closing(self.place.open()) as self.idle:
            self._run(kills)

    def _run(self, kills: int) -> None:
        while self.kills < kills:
            in_flight = self._kill_at_work()
            pending = self._pending()
            if pending and self.kills < kills and self.chance.random() < 0.4:
                self._kill_while_opening()
            self._look(in_flight)
            if self.chance.random() < 0.4:
                self._keep_up(self.world)
            if self.chance.random() < 0.4:
                self._use_idle()
        last = self.workload.operation(self.world)
        with self.place.open() as graph:
            run_operation(graph, last.form)
            assert read_content(graph) == last.after.content()

    # -- killing ----------------------------------------------------------------------------------

    def _kill_at_work(self) -> Operation | None:
        """Let a child work until it is killed; return what was in flight."""
        auto_optimize = self.chance.random() < 0.3
        orphan_age_s = DAY_S if auto_optimize or self.chance.random() < 0.5 else 0
        planned = self.workload.operations(self.world, _AHEAD, orphan_age_s=orphan_age_s)
        # What a child has prepared in the background would be removed with the rest.
        pauses = not auto_optimize and self.chance.random() < 0.5
        victim, share = self.chance.randint(1 if pauses else 0, 5), self.chance.random()
        waits_for_record = self.chance.random() < 0.6
        with self.nursery.child() as child:
            child.send({"do": "tell"}, self._opening(auto_optimize=auto_optimize))
            runs = [
                {"do": "run", "number": number, "operation": operation.form}
                for number, operation in enumerate(planned)
            ]
            if pauses:
                child.send(runs.pop(0))
                # Acknowledged before what follows: a new branch does not inherit later commits.
                self._understand(self._listen(child, planned, 0, waits_for_done=True), planned)
                self._keep_up(planned[0].after)
            child.send(*runs)
            heard = self._listen(child, planned, victim, waits_for_record=waits_for_record)
            kind = str(planned[victim].form["kind"])
            usual_s = self.durations.of("phases" if waits_for_record else kind)
            time.sleep(share * 1.2 * usual_s)
            child.kill()
            self.kills += 1
            heard += list(child.rest())
        return self._understand(heard, planned)

    def _listen(
        self,
        child: Child,
        planned: list[Operation],
        victim: int,
        *,
        waits_for_record: bool = False,
        waits_for_done: bool = False,
    ) -> list[dict[str, object]]:
        """Hear the child out until it begins with the operation that it dies of, or has done it."""
        heard: list[dict[str, object]] = []
        began = recorded = time.monotonic()
        while True:
            try:
                message = child.receive()
            except ChildDiedError:
                raise AssertionError(self._told("the child died by itself", heard)) from None
            heard.append(message)
            number = _number(message)
            if "begin" in message:
                began = time.monotonic()
            elif "record" in message:
                recorded = time.monotonic()
            elif "done" in message:
                self.durations.note(str(planned[number].form["kind"]), time.monotonic() - began)
                if recorded > began:
                    self.durations.note("phases", time.monotonic() - recorded)
            if waits_for_done:
                is_reached = "done" in message
            elif waits_for_record:
                is_reached = "record" in message and {"begin": victim} in heard
            else:
                is_reached = {"begin": victim} == message
            if is_reached or number > victim or "failed" in message:
                return heard

    def _understand(
        self, heard: list[dict[str, object]], planned: list[Operation]
    ) -> Operation | None:
        in_flight: Operation | None = None
        for message in heard:
            assert "failed" not in message, self._told("an operation failed", heard, planned)
            if "begin" in message:
                in_flight = planned[int(str(message["begin"]))]
            elif "done" in message:
                assert in_flight is not None
                self._acknowledge(in_flight, message["commit"])
                in_flight = None
        if in_flight is not None:
            self.story.append(f"killed in {in_flight.form}")
        return in_flight

    def _acknowledge(self, operation: Operation, commit: object) -> None:
        self.story.append(f"done {operation.form}")
        if commit is not None:
            self.commits[operation.branch].add(str(commit))
        self._become(operation)

    def _become(self, operation: Operation) -> None:
        """The operation is there: the world is what it makes of it."""
        form = operation.form
        if form["kind"] == "branch_create":
            self.commits[form["name"]] = set(self.commits[form["source"]])
        elif form["kind"] == "branch_delete":
            del self.commits[form["name"]]
        elif form["kind"] == "schema" and form["allow_data_loss"]:
            # What it has dropped is gone from older commits too.
            self.tags.clear()
        self.world = operation.after

    def _kill_while_opening(self) -> None:
        """Let recovery begin, and kill it."""
        share = self.chance.random()
        with self.nursery.child() as child:
            child.send(self._opening(auto_optimize=False))
            time.sleep(share * 2.0 * self.durations.of("open"))
            child.kill()
            self.kills += 1
        self.story.append("killed while opening")
        self._pending()

    def _opening(self, *, auto_optimize: bool) -> dict[str, object]:
        self.let_leases_go()
        return {
            "do": "open",
            "uri": self.place.uri,
            "options": dict(self.place.options),
            "auto_optimize": auto_optimize,
        }

    # -- other handles ----------------------------------------------------------------------------

    def _keep_up(self, world: World) -> None:
        """Let another process tag the head, optimize and clean up, maybe days later."""
        days = self.chance.choice((0, 0, 2, 10))
        orphan_age_s = DAY_S if days else 0
        clock = WrongClock(days * DAY_S)
        with self.place.open(clock=clock) as other:
            if self.chance.random() < 0.6:
                name = f"tag{self.kills}-{len(self.story)}"
                other.tag_create(name)
                self.tags[name] = world.content()["main"]
            if self.chance.random() < 0.3:
                self._acknowledge_maintenance(other.optimize().commit)
            keep = self.chance.choice((1, 2, 10))
            other.cleanup(keep_versions=keep, orphan_age_s=orphan_age_s, confirm=True)
        self.story.append(f"cleaned up by another process, keep {keep}, {days} days on")

    def _acknowledge_maintenance(self, commit: GraphCommit | None) -> None:
        if commit is not None:
            self.commits["main"].add(commit.graph_commit_id)

    def _use_idle(self) -> None:
        """Read and write with the handle that has seen nothing of what happened since."""
        self.let_leases_go()
        assert read_content(self.idle) == self.world.content(), self._told("an old read", [])
        operation = self.workload.operation(self.world)
        commit = run_operation(self.idle, operation.form)
        self._acknowledge(operation, commit)
        assert read_content(self.idle) == self.world.content(), self._told("a lost write", [])
        self.story.append("… by the idle handle")
        # It is used again; now no thread of it may write while the files are compared.
        finish_maintenance(self.idle)

    # -- looking ----------------------------------------------------------------------------------

    def _pending(self) -> dict[str, str]:
        found = pending_records(self.place)
        self.settled |= set(found)
        return found

    def _look(self, in_flight: Operation | None) -> None:
        self.let_leases_go()
        pending = self._pending()
        began = time.monotonic()
        with self.place.open() as graph:
            self.durations.note("open", time.monotonic() - began)
            found = read_content(graph)
            if in_flight is not None and found == in_flight.after.content():
                self.story.append("… which is there")
                self._become(in_flight)
            try:
                self._check(graph, found)
            except AssertionError as error:
                raise AssertionError(f"{self._told('', [])}\n{pending}\n{error}") from error
        check_opening_changes_nothing(self.place)

    def _check(self, graph: Graph, found: object) -> None:
        assert found == self.world.content(), "neither there nor absent"
        check_sound(graph)
        check_audit(graph, self.settled)
        check_derived(graph)
        for name, content in self.tags.items():
            found_there = snapshot_content(graph.snapshot_of(ReadTarget.tag(name)))
            assert found_there == content, f"tag {name} shows something else"
        for branch, commits in self.commits.items():
            listed = {commit.graph_commit_id for commit in graph.list_commits(branch)}
            assert commits <= listed, f"an acknowledged commit on {branch} is gone"

    def _told(
        self, problem: str, heard: list[dict[str, object]], planned: list[Operation] | None = None
    ) -> str:
        last = [str(message) for message in heard[-3:]]
        for failed in (message for message in heard if "failed" in message):
            if planned:
                last.append(str(planned[int(str(failed["failed"]))].form))
            last.append(str(failed["trace"]))
        return "\n".join((*self.story[-_LAST_SHOWN:], *last, problem))


def _number(message: dict[str, object]) -> int:
    return int(str(message.get("begin", message.get("done", -1))))
