"""Reads by several threads and by several processes, against one of each.

    python -m bench parallel_reads [--size S] [--seconds 1.0] [--rounds 5] [--only WORK …]
                                   [--folder FOLDER]

A social network is loaded and read until what reads use is in memory. Each round then lets every
side read for some time, one side after the other: 1, 2, 4 and 8 threads of one handle, and 1 and 2
processes with a handle each. The bars: 8 threads are not slower than 1, and 2 processes give 1.9
times one.

Rates by the clock depend on what else the machine does, so the processor time of a read and the
switches of threads that it waited for are printed too. Where nothing else runs, two processes with
a core each are as much faster than one as the processor times say. A low priority hides what
threads do to each other: they find no free core on which to wake up.

The last table is the memory of the processes. Pages that several have mapped are divided by their
number in "its share". `--rounds 0` prints that table alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import resource
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from bench.data import social
from omnigraph import Graph
from omnigraph.read.access.column_files import FOLDER as COLUMN_FOLDER
from omnigraph.read.short_reads import SHORT_READS

THREADS = (1, 2, 4, 8)
PROCESSES = (1, 2)
THREADS_BAR = 1.0
PROCESSES_BAR = 1.9
WARM_UP = 12
_MAPPED = re.compile(r"\.(topo|column)$")
SCHEMA = """
node Person { pid: String @key  name: String  age: I32  city: String }
edge Knows: Person -> Person { since: I32 }
"""
READS = """
query point($k: String) { match { $a: Person { pid: $k } } return { $a.name, $a.age } }
query one_hop($k: String) { match { $a: Person { pid: $k }  $a knows $b } return { $b.name } }
query two_hop($k: String) {
    match { $a: Person { pid: $k }  $a knows $b  $b knows $c } return { count(distinct $c) as n }
}
query by_city($k: String) { match { $a: Person } return { $a.city, avg($a.age) as age } }
"""
WORKS = {
    "point": "point lookup",
    "one_hop": "1 hop, names",
    "two_hop": "2 hops, count distinct",
    "by_city": "average over all rows by city",
}


@dataclass(frozen=True)
class Turn:
    """What several readers did in some time."""

    latencies_s: list[float]
    wall_s: float
    cpu_s: float
    switches: int
    """How often a thread waited, and another one ran."""

    @property
    def rate(self) -> float:
        """Reads per second."""
        return len(self.latencies_s) / self.wall_s


@dataclass
class Side:
    """The turns of one number of readers."""

    label: str
    turns: list[Turn] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The median of the turns' reads per second."""
        return statistics.median(turn.rate for turn in self.turns)

    @property
    def reads(self) -> int:
        """The reads of all turns."""
        return sum(len(turn.latencies_s) for turn in self.turns)

    @property
    def cpu_us(self) -> float:
        """The processor time of one read."""
        return sum(turn.cpu_s for turn in self.turns) / self.reads * 1e6

    @property
    def switches(self) -> float:
        """Switches of threads per read."""
        return sum(turn.switches for turn in self.turns) / self.reads

    def quantile_ms(self, share: float) -> float:
        """Return the time that this share of the reads took at most."""
        ordered = sorted(s for turn in self.turns for s in turn.latencies_s)
        return ordered[int((len(ordered) - 1) * share)] * 1e3

    def row(self, one: Side) -> str:
        """Return a row of the table."""
        cells = (
            self.label,
            f"{self.rate:,.0f}",
            f"{statistics.median(_ratios(self, one)):.2f}",
            f"{self.quantile_ms(0.5):.2f}",
            f"{self.quantile_ms(0.95):.2f}",
            f"{self.quantile_ms(1.0):.1f}",
            f"{self.cpu_us:,.0f}",
            f"{self.switches:.2f}",
        )
        return "| " + " | ".join(cells) + " |"


def _ratios(side: Side, one: Side) -> list[float]:
    return [mine.rate / other.rate for mine, other in zip(side.turns, one.turns, strict=True)]


def read_for(graph: Graph, work: str, keys: tuple[str, ...], ends_s: float) -> list[float]:
    """Read until a moment; return what each read took."""
    taken: list[float] = []
    number = 0
    began_s = time.perf_counter()
    while began_s < ends_s:
        graph.query(READS, work, {"k": keys[number % len(keys)]})
        now_s = time.perf_counter()
        taken.append(now_s - began_s)
        began_s = now_s
        number += 1
    return taken


def threads_turn(
    graph: Graph, work: str, keys: tuple[str, ...], count: int, seconds: float
) -> Turn:
    """Read by several threads of one handle."""
    latencies_s: list[float] = []
    start = threading.Barrier(count)

    def run(first: int) -> None:
        own = keys[first:] + keys[:first]
        start.wait()
        latencies_s.extend(read_for(graph, work, own, time.perf_counter() + seconds))

    threads = [threading.Thread(target=run, args=(n * 5,)) for n in range(count)]
    wall_s, cpu_s, switches = time.perf_counter(), time.process_time(), _switches()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Turn(
        latencies_s,
        time.perf_counter() - wall_s,
        time.process_time() - cpu_s,
        _switches() - switches,
    )


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


@contextmanager
def unlocked() -> Iterator[None]:
    """Let reads run without the lock of short reads."""
    SHORT_READS.held = nullcontext  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del SHORT_READS.held


def warm(graph: Graph, keys: tuple[str, ...]) -> None:
    """Read until everything that the works use is in memory."""
    for work in WORKS:
        for key in keys[:WARM_UP]:
            graph.query(READS, work, {"k": key})


# -- processes ------------------------------------------------------------------------------------


def child(root: str, keys: tuple[str, ...], parent: Connection) -> None:
    """Read when told to, in a process of its own."""
    with Graph.open(root) as graph:
        warm(graph, keys)
        parent.send(None)
        while (told := parent.recv()) is not None:
            work, seconds = told
            parent.send(threads_turn(graph, work, keys, 1, seconds))


@contextmanager
def children(
    root: Path, keys: tuple[str, ...], count: int
) -> Iterator[list[tuple[int, Connection]]]:
    """Start processes that have the graph open; yield their ids and pipes."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(count):
        own, theirs = context.Pipe()
        process = context.Process(target=child, args=(str(root), keys, theirs))
        process.start()
        own.recv()
        pipes.append((process.pid or 0, own))
        processes.append(process)
    try:
        yield pipes
    finally:
        for _, pipe in pipes:
            pipe.send(None)
        for process in processes:
            process.join()


def processes_turn(pipes: list[tuple[int, Connection]], work: str, seconds: float) -> Turn:
    """Read by several processes at once."""
    for _, pipe in pipes:
        pipe.send((work, seconds))
    turns: list[Turn] = [pipe.recv() for _, pipe in pipes]
    return Turn(
        [s for turn in turns for s in turn.latencies_s],
        max(turn.wall_s for turn in turns),
        sum(turn.cpu_s for turn in turns),
        sum(turn.switches for turn in turns),
    )


def memory_row(label: str, pids: list[int]) -> str:
    """Return the mean memory of processes, and that of the graph's files that they have mapped."""
    figures = [_memory_mib(pid) for pid in pids]
    cells = [f"{statistics.mean(column):.0f}" for column in zip(*figures, strict=True)]
    return f"| {label} | {' | '.join(cells)} |"


def _memory_mib(pid: int) -> tuple[float, ...]:
    whole = Path(f"/proc/{pid}/smaps_rollup").read_text()
    parts = [part for part in _mappings(pid) if _MAPPED.search(part.split("\n")[0])]
    files = [sum(_kib(part, name) for part in parts) for name in ("Rss", "Pss")]
    own = _kib(whole, "Private_Clean") + _kib(whole, "Private_Dirty")
    return tuple(kib / 1024 for kib in (_kib(whole, "Rss"), _kib(whole, "Pss"), own, *files))


def _mappings(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/smaps").read_text()
    return re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", text)


def _kib(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return 0 if found is None else int(found[1])


# -- tables ---------------------------------------------------------------------------------------


def compare(root: Path, keys: tuple[str, ...], options: argparse.Namespace) -> None:
    """Print a table for each work, and one of the memory."""
    with Graph.open(root) as graph, children(root, keys, max(PROCESSES)) as pipes:
        warm(graph, keys)
        for work in options.only or WORKS:
            threads = {count: Side(f"{count} thread" + "s" * (count > 1)) for count in THREADS}
            processes = {
                count: Side(f"{count} process" + "es" * (count > 1)) for count in PROCESSES
            }
            without = Side("8 threads, without the lock of short reads")
            for _ in range(options.rounds):
                with unlocked():
                    without.turns.append(
                        threads_turn(graph, work, keys, max(THREADS), options.seconds)
                    )
                for count, side in threads.items():
                    side.turns.append(threads_turn(graph, work, keys, count, options.seconds))
                for count, side in processes.items():
                    side.turns.append(processes_turn(pipes[:count], work, options.seconds))
            print(f"\n| {WORKS[work]} | reads/s | of one | p50, ms | p95, ms | max, ms |", end="")
            print(" cpu, µs | switches |\n|---|---|---|---|---|---|---|---|")
            rows = [side.row(threads[1]) for side in (*threads.values(), without)]
            rows += [side.row(processes[1]) for side in processes.values()]
            print("\n".join(rows), flush=True)
        print(f"\nbars: 8 threads {THREADS_BAR}, 2 processes {PROCESSES_BAR} of one")


def compare_memory(root: Path, keys: tuple[str, ...], folder: Path) -> None:
    """Print what two processes take, with columns of their own and with shared ones."""
    print("\n| MiB of each of two processes | resident | its share | its own |", end="")
    print(" files | its share |\n|---|---|---|---|---|---|")
    for label, columns in (("columns of its own", ""), ("columns in files", folder / "columns")):
        os.environ[COLUMN_FOLDER] = str(columns)
        with children(root, keys, max(PROCESSES)) as pipes:
            print(memory_row(label, [pid for pid, _ in pipes]), flush=True)
    os.environ.pop(COLUMN_FOLDER)


def filled(folder: Path, size: str) -> tuple[Path, tuple[str, ...]]:
    """Make the graph, unless the folder has it already."""
    data = social(size)
    root = folder / f"parallel-{size}.omni"
    if not root.exists():
        person = data.person.rename_columns(
            ["pid" if name == "id" else name for name in data.person.column_names]
        )
        with Graph.init(root, SCHEMA, durability="process") as graph:
            graph.load_tables(nodes={"Person": person}, edges={"Knows": data.knows}, mode="append")
            graph.optimize()
    return root, data.keys


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="S", choices=("XS", "S", "M"))
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=tuple(WORKS))
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    try:
        root, keys = filled(folder, options.size)
        if options.rounds:
            compare(root, keys, options)
        compare_memory(root, keys, folder)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
