"""Many writers of one branch against one writer, and against raw Lance appends.

Every write is the durable mutation of `bench.mutate`: a node and an edge, its own commit. Writers
are threads of one handle, then processes with a handle each. Rounds of one writer, of many, and of
raw appends take turns. The bars: 16 threads make 8 times the commits per second of one writer, and
their p95 is at most 5 times its p95.

Processor time per commit is shown too, because it does not depend on what else the machine does:
cores divided by it bound the commits per second of any number of writers. `flush 10 ms` repeats the
comparison on a disk whose flushes take 10 ms longer, where waiting for the disk is what counts.

    python -m bench writers [--writers 16] [--writes 8] [--rounds 3] [--processes]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench import mutate
from omnigraph import Graph
from omnigraph.store.durability import DiskFlusher
from support.groups import group_sizes
from support.places import repository_of

PEOPLE = 10_000
RATE_BAR = 8.0
LATENCY_BAR = 5.0
SLOW_FLUSH_S = 0.010
HEADINGS = (
    "| commits/s | of one | p50, ms | p95, ms | of one | cpu, ms |\n|---|---|---|---|---|---|---|"
)


@dataclass
class Side:
    """What one kind of writers took."""

    label: str
    latencies_s: list[float] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        """Commits per second."""
        return len(self.latencies_s) / self.wall_s

    @property
    def p95_ms(self) -> float:
        """The latency that one write in twenty exceeds."""
        ordered = sorted(self.latencies_s)
        return ordered[int(len(ordered) * 0.95)] * 1e3

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time of the block."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall_s += time.perf_counter() - wall
        self.cpu_s += time.process_time() - cpu

    def row(self, one: Side) -> str:
        """Return a row of the table."""
        cells = (
            self.label,
            f"{self.rate:.1f}",
            f"{self.rate / one.rate:.2f}",
            f"{statistics.median(self.latencies_s) * 1e3:.1f}",
            f"{self.p95_ms:.1f}",
            f"{self.p95_ms / one.p95_ms:.2f}",
            f"{self.cpu_s / len(self.latencies_s) * 1e3:.1f}" if self.cpu_s else "",
        )
        return "| " + " | ".join(cells) + " |"


def run_threads(write: Callable[[int], float], side: Side, first: int, options: Options) -> None:
    """Write from several threads at once."""

    def work(writer: int) -> None:
        start = first + writer * options.writes
        side.latencies_s.extend(write(number) for number in range(start, start + options.writes))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(options.writers)]
    with side.timed():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def run_one(write: Callable[[int], float], side: Side, first: int, count: int) -> None:
    """Write from this thread."""
    with side.timed():
        side.latencies_s += [write(number) for number in range(first, first + count)]


@contextmanager
def slow_flushes(graph: Graph, seconds: float) -> Iterator[None]:
    """Let every flush of a graph take longer."""
    flusher = repository_of(graph).store.flusher
    assert isinstance(flusher, DiskFlusher)
    sync = flusher.sync

    def slow(path: str) -> None:
        sync(path)
        time.sleep(seconds)

    if seconds:
        flusher.sync = slow
    try:
        yield
    finally:
        flusher.sync = sync


@dataclass(frozen=True)
class Options:
    """How much is written."""

    writers: int
    writes: int
    rounds: int


def compare(folder: str, options: Options, *, flush_s: float) -> None:
    """Print the table of one disk."""
    graph = mutate.make_graph(folder)
    raw = mutate.RawLance(folder, graph)
    peer = Side("two raw Lance appends + fsync, one writer")
    one, many = Side("one writer"), Side(f"{options.writers} threads of one handle")

    def write(number: int) -> float:
        return mutate.write_ours(graph, mutate.QUERY, number)

    with slow_flushes(graph, flush_s):
        for number in range(5):
            write(-1 - number)
            raw.write(-1 - number)
        sizes = group_sizes(graph)
        per_round = options.writers * options.writes
        for number in range(options.rounds):
            first = number * 10 * per_round
            run_one(write, one, first, max(per_round // 4, 10))
            run_threads(write, many, first + 5 * per_round, options)
            if not flush_s:
                run_one(raw.write, peer, first, max(per_round // 4, 10))
    graph.close()
    disk = f", flushes {flush_s * 1e3:.0f} ms longer" if flush_s else ""
    print(
        f"\n| durable node + edge{disk} | commits/s | of one | p50, ms | p95, ms | of one |", end=""
    )
    print(" cpu, ms |\n|---|---|---|---|---|---|---|")
    for side in (one, many, *(() if flush_s else (peer,))):
        print(side.row(one))
    grouped = [size for size in sizes if size > 1]
    print(f"\nbars: rate {RATE_BAR}, p95 {LATENCY_BAR}; {len(grouped)} groups", end="")
    print(f" with {statistics.mean(grouped):.1f} writes on average" if grouped else "")


CHILD = """
import sys, time
from bench import mutate
from omnigraph import Graph
graph = Graph.open(sys.argv[1])
mutate.PEOPLE = int(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
first, count = int(sys.argv[2]), int(sys.argv[3])
for number in range(first, first + count):
    print(mutate.write_ours(graph, mutate.QUERY, number), flush=True)
"""


def compare_processes(folder: str, options: Options) -> None:
    """Print the table of processes: each has a handle, and no two of them share a group."""
    graph = mutate.make_graph(folder)
    one, many = Side("one writer"), Side(f"{options.writers} processes")
    run_one(lambda n: mutate.write_ours(graph, mutate.QUERY, n), one, 0, options.writes * 4)
    graph.close()
    children = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", CHILD, f"{folder}/graph"),
                *(str(1_000 * (n + 1)), str(options.writes), str(mutate.PEOPLE)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(options.writers)
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    with many.timed():
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            told, _ = child.communicate()
            many.latencies_s += [float(line) for line in told.split()]
    many.cpu_s = 0.0
    print(f"\n| durable node + edge {HEADINGS}")
    for side in (one, many):
        print(side.row(one))


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--writes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", action="store_true")
    given = parser.parse_args()
    options = Options(given.writers, given.writes, given.rounds)
    mutate.PEOPLE = PEOPLE
    for flush_s in (0.0, SLOW_FLUSH_S):
        with tempfile.TemporaryDirectory() as folder:
            compare(folder, options, flush_s=flush_s)
    if given.processes:
        with tempfile.TemporaryDirectory() as folder:
            compare_processes(folder, options)


if __name__ == "__main__":
    main()
