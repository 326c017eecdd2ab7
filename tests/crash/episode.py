"""One graph, a workload drawn from a seed, and a child that is killed again and again.

The seed fixes the operations and, in shares of what an operation takes, the moments of the kills.
The moments themselves depend on the machine, so a replay may need several rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from crash.checks import (
    check_audit,
    check_derived,
    check_opening_changes_nothing,
    check_sound,
    pending_records,
    read_content,
)
from crash.child import run_operation
from crash.nursery import Child, ChildDiedError, Nursery
from crash.world import DAY_S, Operation, Workload, World
from omnigraph.graph import Graph
from support.places import Place

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
    """Makes the turns of the dead free again where the operating system does not."""
    kills: int = 0
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workload = Workload(self.seed)
        self.chance = self.workload.chance
        self.world = World()
        self.settled: set[str] = set()
        self.commits: dict[str, set[str]] = {"main": set()}
        """Acknowledged commits by branch, those that it inherited included."""

    def run(self, kills: int) -> None:
        """Kill a child so many times, and look after each."""
        self.place.init(self.world.shape.text()).close()
        while self.kills < kills:
            in_flight = self._kill_at_work()
            pending = self._pending()
            if pending and self.kills < kills and self.chance.random() < 0.4:
                self._kill_while_opening()
            self._look(in_flight)
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
        victim, share = self.chance.randint(0, 5), self.chance.random()
        waits_for_record = self.chance.random() < 0.6
        with self.nursery.child() as child:
            child.send({"do": "tell"}, self._opening(auto_optimize=auto_optimize))
            child.send(
                *(
                    {"do": "run", "number": number, "operation": operation.form}
                    for number, operation in enumerate(planned)
                )
            )
            heard = self._listen(child, planned, victim, waits_for_record=waits_for_record)
            kind = str(planned[victim].form["kind"])
            usual_s = self.durations.of("phases" if waits_for_record else kind)
            time.sleep(share * 1.2 * usual_s)
            child.kill()
            self.kills += 1
            heard += list(child.rest())
        return self._understand(heard, planned)

    def _listen(
        self, child: Child, planned: list[Operation], victim: int, *, waits_for_record: bool
    ) -> list[dict[str, object]]:
        """Hear the child out until it begins with the operation that it dies of."""
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
            is_victim = {"begin": victim} == message and not waits_for_record
            is_recorded = "record" in message and {"begin": victim} in heard
            if is_victim or is_recorded or number > victim or "failed" in message:
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
