"""The lock of short reads: it makes reads wait for a moment, and never for ever."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph import Graph, OmnigraphError
from omnigraph.read.short_reads import SHORT_READS, ShortReadLock

NEVER_S = 3_600.0
"""A read that waited for another one so long would run into the limit of the test."""
SOON_S = 60.0
PEOPLE = 200
SCHEMA = "node Person { name: String @key  age: I32 }\nedge Knows: Person -> Person"
READS = """\
query point($k: String) { match { $p: Person { name: $k } } return { $p.age } }
query friends($k: String) {
    match { $p: Person { name: $k }  $p knows $f  $f knows $g } return { count($g) as n }
}
query everyone($k: String) { match { $p: Person } return { sum($p.age) as n } }
query unknown($k: String) { match { $p: Persn { name: $k } } return { $p.age } }
"""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


class Read:
    """A read in a thread of its own that holds the lock until it is told to end."""

    def __init__(self, pool: ThreadPoolExecutor, lock: ShortReadLock) -> None:
        self._has_begun = threading.Event()
        self._may_end = threading.Event()
        self._lock = lock
        self._done: Future[None] = pool.submit(self._run)
        assert self._has_begun.wait(SOON_S)

    def _run(self) -> None:
        with self._lock.held():
            self._has_begun.set()
            assert self._may_end.wait(SOON_S)

    def end(self) -> None:
        self._may_end.set()
        self._done.result(SOON_S)


def test_one_read_at_a_time(pool: ThreadPoolExecutor) -> None:
    # A thread that has ended must not keep the lock: nobody would take it away here.
    lock = ShortReadLock(short_s=NEVER_S, run_s=0.0, wait_s=NEVER_S)
    inside: list[int] = []
    seen: list[int] = []

    def read(number: int) -> None:
        with lock.held():
            inside.append(number)
            seen.append(len(inside))
            # Releases the lock of the interpreter, as probes of files in a read do.
            Path.cwd().stat()
            inside.remove(number)

    list(pool.map(read, range(400)))
    assert set(seen) == {1}
    assert not lock.is_held


def test_every_thread_gets_its_reads(pool: ThreadPoolExecutor) -> None:
    # Threads that come back at once must not keep the others out.
    lock, counts, start = ShortReadLock(run_s=0.0001), [0] * 4, threading.Barrier(4)

    def read(number: int) -> None:
        start.wait(SOON_S)
        while counts[number] < 50 or min(counts) < 50:
            with lock.held():
                counts[number] += 1

    for done in [pool.submit(read, number) for number in range(4)]:
        done.result(SOON_S)
    assert not lock.is_held


def test_a_long_read_is_overtaken(pool: ThreadPoolExecutor) -> None:
    lock = ShortReadLock(short_s=0.001)
    reads = [Read(pool, lock) for _ in range(5)]
    assert lock.is_held
    for read in reads:
        read.end()
    assert not lock.is_held


def test_ending_an_overtaken_read_leaves_the_lock_to_its_holder(pool: ThreadPoolExecutor) -> None:
    lock = ShortReadLock(short_s=0.001)
    first, second = Read(pool, lock), Read(pool, lock)
    first.end()
    assert lock.is_held
    second.end()
    assert not lock.is_held


def test_a_read_that_calls_the_store_lets_others_in(pool: ThreadPoolExecutor) -> None:
    lock = ShortReadLock(short_s=NEVER_S)
    with lock.held():
        lock.release_own()
        Read(pool, lock).end()
        other = Read(pool, lock)
        # The lock is that of another thread now.
        lock.release_own()
        assert lock.is_held
    assert lock.is_held
    other.end()


def test_a_read_inside_of_a_read() -> None:
    lock = ShortReadLock(short_s=NEVER_S)
    with lock.held():
        with lock.held():
            pass
        assert lock.is_held
    assert not lock.is_held


def test_an_error_releases_the_lock() -> None:
    lock = ShortReadLock(short_s=NEVER_S)
    with pytest.raises(ZeroDivisionError), lock.held():
        _ = 1 / 0
    assert not lock.is_held


def test_a_lock_that_an_interrupted_thread_has_left(pool: ThreadPoolExecutor) -> None:
    lock = ShortReadLock(short_s=0.001)
    lock._lock.acquire()
    Read(pool, lock).end()
    assert not lock.is_held


def test_a_thread_that_does_not_come_back(pool: ThreadPoolExecutor) -> None:
    # Each has read again and again when it ends, so it keeps the lock while others wait.
    lock, start = ShortReadLock(short_s=0.001, run_s=0.05), threading.Barrier(4)

    def read() -> None:
        start.wait(SOON_S)
        for _ in range(200):
            with lock.held():
                Path.cwd().stat()

    for done in [pool.submit(read) for _ in range(4)]:
        done.result(SOON_S)
    Read(pool, lock).end()
    assert not lock.is_held


def test_a_forked_process_has_no_holder(pool: ThreadPoolExecutor) -> None:
    lock = ShortReadLock(short_s=NEVER_S)
    before = Read(pool, lock)
    lock.reset()
    with lock.held():
        before.end()
        assert lock.is_held
    assert not lock.is_held


def test_without_a_lock_of_the_interpreter_there_is_none_of_ours(pool: ThreadPoolExecutor) -> None:
    lock = ShortReadLock(short_s=NEVER_S, is_on=False)
    reads = [Read(pool, lock) for _ in range(2)]
    assert not lock.is_held
    for read in reads:
        read.end()


# -- reads of a graph -----------------------------------------------------------------------------


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    names = [f"p{number}" for number in range(PEOPLE)]
    rows = [{"type": "Person", "data": {"name": name, "age": 1}} for name in names]
    edges = [
        {"edge": "Knows", "from": name, "to": names[(number * 7 + step) % PEOPLE]}
        for number, name in enumerate(names)
        for step in (1, 2)
    ]
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="process") as opened:
        text = "\n".join(json.dumps(row) for row in [*rows, *edges])
        opened.load(text.encode(), mode="append")
        yield opened


def _refused(read: Callable[[], object]) -> str:
    with pytest.raises(OmnigraphError) as caught:
        read()
    return caught.value.code


def test_reads_that_fail_hold_nothing(graph: Graph) -> None:
    cancelled = threading.Event()
    cancelled.set()
    params = {"k": "p1"}
    assert _refused(lambda: graph.query(READS, "unknown", params)) == "OG-SOURCE"
    assert _refused(lambda: graph.query(READS, "point", {"k": 1})) == "OG-PARAMS"
    assert (
        _refused(lambda: graph.query(READS, "everyone", params, timeout_s=-1)) == "OG-QUERY-TIMEOUT"
    )
    assert (
        _refused(lambda: graph.query(READS, "point", params, cancelled=cancelled))
        == "OG-QUERY-CANCELLED"
    )
    assert not SHORT_READS.is_held


def test_threads_get_the_answers_of_one(graph: Graph, pool: ThreadPoolExecutor) -> None:
    calls = [(name, f"p{number}") for number in range(40) for name in ("point", "friends")]
    calls += [("everyone", "")] * 20

    def read(call: tuple[str, str]) -> object:
        name, key = call
        return graph.query(READS, name, {"k": key}).to_arrow().to_pylist()

    expected = [read(call) for call in calls]
    assert list(pool.map(read, calls * 3)) == expected * 3
    assert not SHORT_READS.is_held
