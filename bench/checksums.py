"""What checksums cost: a bulk load and small mutations with and without them, in locks.

    .venv/bin/python -m bench checksums [--rows 300000] [--rounds 5] [--blocks 16]

The bars are 3 % of a bulk load and 0.2 ms of a small mutation. A busy machine moves both sides by
more than that, so the processor time inside the code of checksums is shown by itself: what stands
in the way of the write (hashing and noting, in the threads that write) and what is done behind it
(storing the sums, in the background and when the handle is closed).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.graph import Graph
from omnigraph.manifest.checksums import ChecksumTable
from omnigraph.store.digests import Ledger
from omnigraph.store.lance import store as lance_store

LOAD_BAR = 0.03
MUTATION_BAR_MS = 0.2
BLOCK = 40
"""Small writes between two locks."""
SCHEMA = """
node Person { name: String @key  age: I32  city: String? }
edge Knows: Person -> Person { since: I32 }
"""
QUERY = """
query add($name: String, $friend: String) {
    insert Person { name: $name, age: 1, city: "Kiel" }
    insert Knows { from: $name, to: $friend, since: 2024 }
}
"""


@dataclass(frozen=True)
class Cost:
    """What one run took, in seconds."""

    wall: float
    inside: float
    """Hashing and noting, in the threads that write."""
    behind: float
    """Storing the sums, in the background or when the handle is closed."""


class Timer:
    """Adds up the processor time of the calling threads inside some functions."""

    def __init__(self) -> None:
        self.spent: list[float] = []

    def wrapped(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with the time that it takes added up."""

        def timed(*args: Any, **named: Any) -> Any:
            start = time.thread_time()
            try:
                return plain(*args, **named)
            finally:
                self.spent.append(time.thread_time() - start)

        return timed


@contextmanager
def timed() -> Iterator[tuple[Timer, Timer]]:
    """Time what checksums do inside the block: in the way of writes, and behind them."""
    inside, behind = Timer(), Timer()
    plain = (lance_store.hashed, Ledger._add, ChecksumTable.record)
    lance_store.hashed = inside.wrapped(plain[0])  # type: ignore[attr-defined]
    Ledger._add = inside.wrapped(plain[1])  # type: ignore[method-assign]
    ChecksumTable.record = behind.wrapped(plain[2])  # type: ignore[method-assign]
    try:
        yield inside, behind
    finally:
        lance_store.hashed = plain[0]  # type: ignore[attr-defined]
        Ledger._add, ChecksumTable.record = plain[1:]  # type: ignore[method-assign]


def measured(work: Callable[[], object]) -> Cost:
    """Run once."""
    with timed() as (inside, behind):
        start = time.perf_counter()
        work()
        return Cost(time.perf_counter() - start, sum(inside.spent), sum(behind.spent))


def people(rows: int) -> dict[str, pa.Table]:
    """Return people and who knows whom."""
    names = pa.array([f"p{number}" for number in range(rows)])
    chance = np.random.default_rng(1)
    ends = pa.array(chance.integers(0, rows, 3 * rows))
    return {
        "Person": pa.table(
            {
                "name": names,
                "age": pa.array(chance.integers(0, 99, rows), pa.int32()),
                "city": pa.array([f"city {number % 997}" for number in range(rows)]),
            }
        ),
        "Knows": pa.table(
            {
                "from": pa.concat_arrays([names] * 3),
                "to": names.take(ends),
                "since": pa.array(chance.integers(1990, 2026, 3 * rows), pa.int32()),
            }
        ),
    }


def load(folder: str, tables: dict[str, pa.Table], *, is_summed: bool) -> Cost:
    """Load into a new graph."""
    graph = Graph.init(f"{folder}/graph", SCHEMA, checksums=is_summed)

    def work() -> None:
        graph.load(tables, mode="append", engine="local")
        graph.close()

    return measured(work)


def writable(folder: str, tables: dict[str, pa.Table], *, is_summed: bool) -> Graph:
    """Make a graph with rows, for small writes."""
    graph = Graph.init(f"{folder}/{is_summed}", SCHEMA, checksums=is_summed)
    graph.load(tables, mode="append", engine="local")
    graph.optimize()
    graph.mutate(QUERY, params={"name": "warm", "friend": "p1"})
    graph.close()
    return graph


def mutate(tables: dict[str, pa.Table], blocks: int) -> tuple[Cost, Cost]:
    """Write one by one, block by block in locks; return the cost of a write without and with."""
    found: dict[bool, list[Cost]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        graphs = {on: writable(folder, tables, is_summed=on) for on in found}
        for block in range(blocks):
            for on in (False, True) if block % 2 else (True, False):
                found[on].append(measured(lambda g=graphs[on], b=block: write_block(g, b)))  # type: ignore[misc]
    return per_write(found[False]), per_write(found[True])


def write_block(graph: Graph, block: int) -> None:
    """Make some small writes and close the handle, which stores what is noted."""
    for number in range(BLOCK):
        name = f"new{block}-{number}"
        graph.mutate(QUERY, params={"name": name, "friend": f"p{number}"})
    graph.close()


def per_write(blocks: list[Cost]) -> Cost:
    """Return the median block, per write."""
    found = median(blocks)
    return Cost(found.wall / BLOCK, found.inside / BLOCK, found.behind / BLOCK)


def in_locks(rounds: int, run: Callable[[str, bool], Cost]) -> tuple[Cost, Cost]:
    """Return the medians without and with checksums."""
    found: dict[bool, list[Cost]] = {False: [], True: []}
    for number in range(2 * rounds):
        is_summed = number % 2 == 1
        with tempfile.TemporaryDirectory() as folder:
            found[is_summed].append(run(folder, is_summed))
    return median(found[False]), median(found[True])


def median(costs: list[Cost]) -> Cost:
    """Return the medians, each on its own."""
    return Cost(
        statistics.median(cost.wall for cost in costs),
        statistics.median(cost.inside for cost in costs),
        statistics.median(cost.behind for cost in costs),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=16)
    options = parser.parse_args()
    tables = people(options.rows)
    off, on = in_locks(
        options.rounds, lambda folder, is_summed: load(folder, tables, is_summed=is_summed)
    )
    print("| work | without | with | difference | in its way | behind it | bar |")
    print("|---|---|---|---|---|---|---|")
    print(
        f"| load of {options.rows:,} nodes and {3 * options.rows:,} edges | {off.wall:.2f} s"
        f" | {on.wall:.2f} s | {on.wall / off.wall - 1:+.1%} | {on.inside / on.wall:.2%}"
        f" | {on.behind / on.wall:.2%} | {LOAD_BAR:.0%} |"
    )
    small = people(10_000)
    off, on = mutate(small, options.blocks)
    print(
        f"| insert node + edge | {1e3 * off.wall:.2f} ms | {1e3 * on.wall:.2f} ms"
        f" | {1e3 * (on.wall - off.wall):+.2f} ms | {1e3 * on.inside:.3f} ms"
        f" | {1e3 * on.behind:.3f} ms | {MUTATION_BAR_MS} ms |"
    )


if __name__ == "__main__":
    main()
