"""Appends that wait for one lock: each is a commit of its own, and fails alone."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import NoReturn

import pytest

from omnigraph import failpoints
from omnigraph.errors import ConflictError, OmnigraphError, OutcomeUnknownError
from omnigraph.graph import Graph
from omnigraph.manifest import ReadTarget
from omnigraph.manifest.errors import SchemaApplyInProgressError
from omnigraph.manifest.layout import MAIN_INCARNATION
from omnigraph.manifest.locks.branch_lock import BranchLockTimeoutError, in_process
from omnigraph.names import BranchName
from omnigraph.write.commit.appends import AppendStep, RecentAppends, steps_of
from omnigraph.write.commit.job import WriteJob
from omnigraph.write.commit.phases import WriteUnsettledError
from omnigraph.write.commit.queue import CommitQueue, TakeGroup, WaitingWrite
from omnigraph.write.mutate.mutations import MutationResult
from omnigraph.write.rules.violations import ValidationError
from support.fault_plan import FaultPlan, ReadFault
from support.groups import Answer, Write, group_sizes, queue_length, run_together
from support.jobs import append_job
from support.places import Place, repository_of
from support.sweeps import broken
from support.writer import people

pytestmark = pytest.mark.usefixtures("disarmed")

SCHEMA = """
node Person {
    name: String @key
    mail: String? @unique
    age: I32?
}
edge Knows: Person -> Person { since: I32? }
edge Boss: Person -> Person @card(0..1)
"""

TABLES = {"node:Person", "edge:Knows"}


@pytest.fixture
def place(local_place: Place) -> Place:
    with local_place.init(SCHEMA) as graph:
        graph.mutate(
            'query q() { insert Person { name: "ann" } insert Person { name: "bob" }'
            ' insert Knows { from: "ann", to: "bob" } insert Boss { from: "bob", to: "ann" } }'
        )
    return local_place


@pytest.fixture
def graph(place: Place) -> Iterator[Graph]:
    with place.open() as graph:
        yield graph


def insert(text: str, **options: str) -> Callable[[Graph], MutationResult]:
    return lambda graph: graph.mutate(f"query q() {{ {text} }}", **options)  # type: ignore[arg-type]


def person(name: str, **options: str) -> Callable[[Graph], MutationResult]:
    text = f'insert Person {{ name: "{name}" }} insert Knows {{ from: "{name}", to: "ann" }}'
    return insert(text, **options)


def names(graph: Graph, target: ReadTarget | None = None) -> set[str]:
    snapshot = graph.refresh() if target is None else graph.snapshot_of(target)
    found = snapshot.open("node:Person").scan().read_all()["id"].to_pylist()
    assert len(set(found)) == len(found)
    return set(found) - {"ann", "bob"}


def check_chain(graph: Graph) -> None:
    commits = graph.list_commits()
    parents = [commit.parent_commit_id for commit in commits]
    assert parents == [*(commit.graph_commit_id for commit in commits[1:]), None]


def errors(answers: list[Answer]) -> list[type[BaseException] | None]:
    return [None if answer.error is None else type(answer.error) for answer in answers]


# -- one group -------------------------------------------------------------------------------------


def test_every_write_of_a_group_is_a_commit_of_its_own(graph: Graph) -> None:
    sizes, before = group_sizes(graph), graph.list_commits()[0]
    writes = [
        person(name, actor_id=f"by-{name}", message=f"adds {name}") for name in ("c", "d", "e")
    ]
    assert errors(run_together(graph, writes)) == [None] * 3
    assert sizes == [3]
    commits = graph.list_commits()[:3][::-1]
    assert [commit.actor_id for commit in commits] == ["by-c", "by-d", "by-e"]
    assert [commit.message for commit in commits] == ["adds c", "adds d", "adds e"]
    versions = [commit.manifest_version for commit in commits]
    first = before.manifest_version + 1
    assert versions == [first, first + 1, first + 2]
    check_chain(graph)
    for number, commit in enumerate(commits, start=1):
        at = ReadTarget.commit(commit.graph_commit_id)
        assert names(graph, at) == set("cde"[:number]), "its state has the writes before it"
        assert graph.snapshot_of(at).entry("edge:Knows").row_count == 1 + number


def test_a_group_on_a_branch_that_owns_its_tables(graph: Graph) -> None:
    graph.branch_create("dev")
    insert('insert Person { name: "own" } insert Knows { from: "own", to: "ann" }', branch="dev")(
        graph
    )
    sizes = group_sizes(graph)
    writes = [person(name, branch="dev") for name in ("c", "d")]
    assert errors(run_together(graph, writes, "dev")) == [None, None]
    assert sizes == [2]
    assert names(graph, ReadTarget.branch("dev")) == {"own", "c", "d"}
    assert names(graph) == set()


def test_the_results_of_a_group_count_their_own_rows(graph: Graph) -> None:
    for answer in run_together(graph, [person("c"), person("d")]):
        assert isinstance(answer.value, MutationResult)
        counted = {one.table_key: one.inserted for one in answer.value.counts}
        assert counted == {"node:Person": 1, "edge:Knows": 1}


# -- members that cannot follow the others -------------------------------------------------------


def test_writes_of_one_key_are_not_put_on_top_of_each_other(graph: Graph) -> None:
    """The second one finds the row of the first and replaces it, as it does after it."""
    writes = [
        insert('insert Person { name: "c", age: 1 }'),
        insert('insert Person { name: "c", age: 2 }'),
        person("d"),
    ]
    answers = run_together(graph, writes)
    assert errors(answers) == [None, None, None]
    assert names(graph) == {"c", "d"}
    second = answers[1].value
    assert isinstance(second, MutationResult)
    assert [(one.inserted, one.replaced) for one in second.counts] == [(0, 1)]
    check_chain(graph)


def test_a_unique_value_is_taken_once(graph: Graph) -> None:
    writes = [
        insert('insert Person { name: "c", mail: "x" }'),
        insert('insert Person { name: "d", mail: "x" }'),
        insert('insert Person { name: "e", mail: "y" }'),
        insert('insert Person { name: "f" }'),
        insert('insert Person { name: "g" }'),
    ]
    answers = run_together(graph, writes)
    assert errors(answers) == [None, ValidationError, None, None, None]
    assert names(graph) == {"c", "e", "f", "g"}


def test_the_edges_of_a_node_are_counted_across_a_group(graph: Graph) -> None:
    boss = 'insert Boss { from: "ann", to: "bob" }'
    answers = run_together(graph, [insert(boss), insert(boss), person("c")])
    assert errors(answers) == [None, ValidationError, None]
    assert graph.refresh().entry("edge:Boss").row_count == 2


def test_a_node_that_was_deleted_while_its_edge_waited_refuses_the_edge_alone(
    place: Place, graph: Graph
) -> None:
    """The deletion lands between the preparation of the edge and the lock."""
    waited = iter([True])

    def delete_first() -> None:
        if next(waited, False):
            with place.open() as other:
                other.mutate('query q() { delete Person where name = "bob" }')

    failpoints.arm("write.post_stage", delete_first)
    writes = [insert('insert Knows { from: "ann", to: "bob" }'), person("c")]
    answers = [Answer() for _ in writes]
    for write, answer in zip(writes, answers, strict=True):
        try:
            write(graph)
        except OmnigraphError as error:
            answer.error = error
    assert errors(answers) == [ValidationError, None]
    assert names(graph) == {"c"}


def test_an_update_between_appends_sends_them_back_to_be_prepared(
    place: Place, graph: Graph
) -> None:
    other = place.open()
    updates = iter([True])

    def update_first() -> None:
        if next(updates, False):
            other.mutate('query q() { update Person set { age: 3 } where name = "ann" }')

    failpoints.arm("write.post_stage", update_first)
    sizes = group_sizes(graph)
    person("c")(graph)
    assert sizes == [1, 1], "refused once, then prepared on the new rows"
    assert names(graph) == {"c"}
    other.close()


@contextmanager
def held_when_prepared(
    graph: Graph, writes: list[Write]
) -> Iterator[tuple[list[Answer], list[None]]]:
    """Run the block when every write is prepared, then let them go; yield answers and attempts."""
    answers, attempts = [Answer() for _ in writes], list[None]()
    arrived, resume, holder = threading.Semaphore(0), threading.Event(), threading.current_thread()

    def hold() -> None:
        if threading.current_thread() is not holder:
            attempts.append(None)
            arrived.release()
            assert resume.wait(60)

    def run(write: Write, answer: Answer) -> None:
        try:
            answer.value = write(graph)
        except OmnigraphError as error:
            answer.error = error

    failpoints.arm("write.post_stage", hold)
    threads = [
        threading.Thread(target=run, args=pair) for pair in zip(writes, answers, strict=True)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert arrived.acquire(timeout=60)
    yield answers, attempts
    resume.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("added", ["c", "cdef"])
def test_appends_follow_maintenance_without_being_prepared_again(graph: Graph, added: str) -> None:
    for name in ("x", "y", "z"):
        person(name)(graph)
    with held_when_prepared(graph, [person(name) for name in added]) as (answers, attempts):
        tables = graph.optimize().tables
        assert {table.table_key for table in tables if table.committed} >= TABLES
    assert errors(answers) == [None] * len(added)
    assert len(attempts) == len(added)
    assert names(graph) == {*added, "x", "y", "z"}
    assert graph.snapshot().entry("edge:Knows").row_count == 1 + 3 + len(added)
    check_chain(graph)


def test_maintenance_does_not_hide_what_was_appended_before_it(graph: Graph) -> None:
    with held_when_prepared(graph, [person("c"), person("d")]) as (answers, attempts):
        person("c")(graph)
        graph.optimize()
    assert errors(answers) == [None, None]
    assert len(attempts) == 3, "the write of the same key was prepared again, the other was not"
    assert names(graph) == {"c", "d"}


def test_a_precondition_is_not_moved(graph: Graph) -> None:
    head = graph.head_commit_id_for_branch("main")
    sizes = group_sizes(graph)
    insert('insert Person { name: "c" }', expected_head=str(head))(graph)
    assert sizes == [], "it goes alone"
    with pytest.raises(ConflictError):
        insert('insert Person { name: "d" }', expected_head=str(head))(graph)


# -- leaders that end early ------------------------------------------------------------------------


def interrupt_once(point: str, *, hit: int = 1) -> None:
    hits = itertools.count(1)

    def interrupt() -> None:
        if next(hits) == hit:
            raise KeyboardInterrupt

    failpoints.arm(point, interrupt)


def test_an_interrupted_leader_hands_over_to_the_next_in_line(graph: Graph) -> None:
    interrupt_once("write.turn_taken")
    answers = run_together(graph, [person("c"), person("d"), person("e")])
    assert errors(answers) == [KeyboardInterrupt, None, None]
    assert names(graph) == {"d", "e"}


def test_members_of_a_group_that_was_interrupted_do_not_wait_and_are_settled_later(
    place: Place, graph: Graph
) -> None:
    interrupt_once("write.after_first_table", hit=2)
    answers = run_together(graph, [person("c"), person("d"), person("e")])
    assert errors(answers) == [KeyboardInterrupt, WriteUnsettledError, WriteUnsettledError]
    person("f")(graph)
    assert names(graph) == {"c", "f"}, "the first was published, the others were taken back"
    assert graph.recovery_status() == []
    check_chain(place.open())


def waiting(repository_graph: Graph, name: str) -> WaitingWrite:
    job = append_job(repository_of(repository_graph), {"node:Person": people(name)})
    return WaitingWrite(job, 0.0)


class InterruptedEvent(threading.Event):
    """An event whose waiter is interrupted."""

    def wait(self, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt


def test_a_waiter_that_is_interrupted_leaves_the_line(local_place: Place) -> None:
    with local_place.init() as graph:
        queue, first, second = CommitQueue(), waiting(graph, "c"), waiting(graph, "d")
        second.woken = InterruptedEvent()
        groups = []

        def lead(take: TakeGroup) -> None:
            with pytest.raises(KeyboardInterrupt):
                queue.commit(second, lead)
            group = take()
            groups.append(list(group))
            for write in group:
                write.finish(ConflictError("seen"))

        with pytest.raises(ConflictError, match="seen"):
            queue.commit(first, lead)
        assert groups == [[first]]
        assert queue._queues == {}


class InterruptedOnce(threading.Event):
    """An event whose setter is interrupted, once."""

    has_fired = False

    def set(self) -> None:
        if not self.has_fired:
            self.has_fired = True
            raise KeyboardInterrupt
        super().set()


def test_a_member_that_was_answered_and_not_woken_is_woken_in_the_end(local_place: Place) -> None:
    with local_place.init() as graph:
        write = waiting(graph, "c")
    write.woken = InterruptedOnce()
    with pytest.raises(KeyboardInterrupt):
        write.finish(ConflictError("seen"))
    write.end(ConflictError("interrupted"))
    assert write.woken.is_set()
    with pytest.raises(ConflictError, match="seen"):
        write.answer.result()


def test_a_leader_that_is_interrupted_while_it_takes_members_keeps_nobody_waiting(
    graph: Graph,
) -> None:
    class Interrupted(deque[WaitingWrite]):
        def popleft(self) -> WaitingWrite:
            queue._queues["main"] = deque(self)
            queue._queues["main"].popleft()
            raise KeyboardInterrupt

    queue = graph._session.committer._shared.queue
    hits = iter([True])

    def interrupt() -> None:
        if next(hits, False):
            queue._queues["main"] = Interrupted(queue._queues["main"])

    failpoints.arm("write.turn_taken", interrupt)
    answers = run_together(graph, [person("c"), person("d"), person("e")])
    assert errors(answers) == [KeyboardInterrupt, None, None]
    assert names(graph) == {"d", "e"}


def test_what_is_remembered_of_large_appends_is_bounded(local_place: Place) -> None:
    with local_place.init() as graph:
        job = append_job(repository_of(graph), {"node:Person": people("c")})
        (table,) = job.tables
        assert table.base is not None
        claims = {("id", f"n{number}") for number in range(1_000)}
        fragments = repository_of(graph).store.datasets.write_fragments(
            table.base.base, people("c")
        )
        recent = RecentAppends()
        for seq in range(200):
            base = replace(table.base, entry=table.base.entry.at_seq(seq))
            movable = replace(table, base=base, appended=fragments)
            large = replace(job, tables=(movable,), claims={"node:Person": claims})
            recent.note(large, {"node:Person": movable.published()})
        kept = recent.steps().values()
        assert 0 < sum(len(step.claims) for step in kept) <= 50_000


def test_an_append_is_remembered_by_the_version_that_it_made(local_place: Place) -> None:
    """Another entry, such as that of a later write, would hide what lies between."""
    with local_place.init() as graph:
        repository = repository_of(graph)
        job = append_job(repository, {"node:Person": people("c")})
        (table,) = job.tables
        assert table.base is not None
        fragments = repository.store.datasets.write_fragments(table.base.base, people("c"))
        movable = replace(table, appended=fragments)
        job = replace(job, tables=(movable,), claims={"node:Person": {("id", "c")}})
        own = movable.published().at_seq(5)
        assert list(steps_of(job, {"node:Person": own}).values()) == [
            AppendStep(own, {("id", "c")})
        ]
        later = replace(own, table_version=own.table_version + 1, seq=6)
        assert steps_of(job, {"node:Person": later}) == {}


def test_those_behind_a_leader_that_meets_a_schema_change_do_not_wait_for_it_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, waits = repository_of(graph), list[str]()

    def busy(branch: BranchName, *, operation_id: str, wait_max_s: float) -> NoReturn:
        waits.append(operation_id)
        give_up_at = time.monotonic() + 60
        while len(waits) == 1 and queue_length(graph) < 3 and time.monotonic() < give_up_at:
            time.sleep(0.002)
        raise BranchLockTimeoutError(branch.text, wait_max_s)

    repository.branches.set_schema_lock(MAIN_INCARNATION)
    monkeypatch.setattr(repository.branch_locks, "take", busy)
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(person(name), graph) for name in ("c", "d", "e")]
    assert [type(future.exception()) for future in futures] == [SchemaApplyInProgressError] * 3
    assert len(waits) == 1


# -- after a commit --------------------------------------------------------------------------------


def test_a_write_that_has_landed_is_done_although_its_state_cannot_be_read(place: Place) -> None:
    plan = FaultPlan()
    graph = broken(place, plan)

    def break_reads() -> None:
        plan._reads = (ReadFault("datasets.head_version"), ReadFault("datasets.has_branch"))

    failpoints.arm("write.sidecar_deleted", break_reads)
    assert person("c")(graph).commit is not None
    with place.open() as other:
        assert names(other) == {"c"}


def test_what_follows_a_commit_does_not_hold_the_lock(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer, held = graph._session.committer, list[bool]()
    follow = committer._on_commit
    assert follow is not None

    def look(job: WriteJob) -> None:
        with ExitStack() as stack, suppress(BranchLockTimeoutError):
            stack.enter_context(in_process(repository.root, "main", 0.0, repository.clock))
            held.append(False)
            return
        held.append(True)

    repository = repository_of(graph)
    monkeypatch.setattr(committer, "_on_commit", look)
    person("c")(graph)
    graph.delete_rows({"node:Person": ["c"]})
    assert held == [False, False]


# -- races -----------------------------------------------------------------------------------------


class Race:
    """Writers with few keys and few unique values, and what each was told."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.acknowledged: dict[int, str] = {}
        self.refused: list[int] = []
        self.unknown: list[int] = []

    def texts(self, count: int) -> list[tuple[int, str]]:
        return [(number, self._text(number)) for number in range(1, count + 1)]

    def _text(self, number: int) -> str:
        draw = self._draw
        mark = f'insert Knows {{ from: "ann", to: "bob", since: {number} }}'
        kind = draw.choice(["plain", "plain", "key", "unique", "card", "update"])
        if kind == "plain":
            return f'insert Person {{ name: "n{number}" }} {mark}'
        if kind == "key":
            return f'insert Person {{ name: "k{draw.randrange(3)}", age: {number} }} {mark}'
        if kind == "unique":
            mail = f"m{draw.randrange(3)}"
            return f'insert Person {{ name: "u{number}", mail: "{mail}" }} {mark}'
        if kind == "card":
            return f'insert Boss {{ from: "ann", to: "bob" }} {mark}'
        return f'update Person set {{ age: {number} }} where name = "ann" {mark}'  # noqa: S608

    def run(self, graph: Graph, number: int, text: str) -> None:
        try:
            commit = graph.mutate(f"query q() {{ {text} }}").commit
        except OutcomeUnknownError:
            self.unknown.append(number)
        except (ConflictError, ValidationError):
            self.refused.append(number)
        else:
            assert commit is not None
            self.acknowledged[number] = commit.graph_commit_id


def check_race(place: Place, *, seed: int, writes: int, handles: int, threads: int) -> None:
    race = Race(seed)
    graphs = [place.open() for _ in range(handles)]
    before = len(graphs[0].list_commits())
    with ThreadPoolExecutor(threads) as pool:
        futures = [
            pool.submit(race.run, graph, number, text)
            for (number, text), graph in zip(
                race.texts(writes), itertools.cycle(graphs), strict=False
            )
        ]
    for future in futures:
        future.result()
    for graph in graphs:
        graph.close()
    with place.open() as graph:
        marks = graph.refresh().open("edge:Knows").scan().read_all()["since"].to_pylist()
        found = Counter(mark for mark in marks if mark is not None)
        assert race.unknown == []
        assert found == Counter(list(race.acknowledged)), f"seed {seed}"
        assert len(race.acknowledged) + len(race.refused) == writes
        check_chain(graph)
        made = [c.graph_commit_id for c in graph.list_commits() if c.operation == "mutation"]
        assert set(race.acknowledged.values()) <= set(made)
        assert len(made) == len(race.acknowledged) + before - 1
        people_rows = graph.snapshot().open("node:Person").scan().read_all()
        mails = [mail for mail in people_rows["mail"].to_pylist() if mail is not None]
        assert len(set(mails)) == len(mails)
        assert len(set(people_rows["id"].to_pylist())) == people_rows.num_rows
        for key in graph.snapshot().entries:
            assert graph.snapshot().open(key).count() == graph.snapshot().entry(key).row_count
        bosses = graph.snapshot().open("edge:Boss").scan().read_all()["src"].to_pylist()
        assert max(Counter(bosses).values()) == 1


@pytest.mark.parametrize("handles", [1, 2])
def test_racing_writes_are_there_exactly_once_or_not_at_all(place: Place, handles: int) -> None:
    check_race(place, seed=handles, writes=24, handles=handles, threads=6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_many_racing_writes_are_there_exactly_once_or_not_at_all(place: Place, seed: int) -> None:
    check_race(place, seed=100 + seed, writes=160, handles=1 + seed % 2, threads=16)
