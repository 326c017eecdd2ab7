"""What the lineage of a commit costs: one-row loads with it, against the same loads without.

Both sides load rows of one file into graphs of their own, without flushes, so that nothing hides
the difference. Rounds alternate. The bar is 1 ms per commit at the median. The time that the
description itself takes, and the bytes that it adds to a commit, are shown beside, because they do
not depend on what else the machine does.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from omnigraph import Graph
from omnigraph.graph import graph as graph_module
from omnigraph.lineage import InputRead, Job, Lineage, TypeCounts, runtime
from omnigraph.lineage.inputs import Described, describe

ROUNDS = 5
LOADS = 20
CALLS = 2_000
BAR_MS = 1.0
SCHEMA = "node Person { name: String @key }"


@contextmanager
def without_lineage() -> Iterator[None]:
    """Make loads that describe and record nothing."""
    described, written = graph_module.describe, Lineage.to_properties
    graph_module.describe = lambda _: Described()
    Lineage.to_properties = lambda _: {}  # type: ignore[method-assign] - put back below
    try:
        yield
    finally:
        graph_module.describe = described
        Lineage.to_properties = written  # type: ignore[method-assign] - as it was


def seconds_per_load(graph: Graph, file: Path, first: int) -> float:
    taken = []
    for number in range(first, first + LOADS):
        file.write_text(f'{{"type": "Person", "data": {{"name": "p{number}"}}}}\n')
        start = time.perf_counter()
        graph.load(file, mode="append")
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def microseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "people.jsonl"
        recorded, silent = (
            Graph.init(folder / root, SCHEMA, durability="process", auto_optimize=False)
            for root in ("a.omni", "b.omni")
        )
        seconds_per_load(recorded, file, -2 * LOADS)
        with without_lineage():
            seconds_per_load(silent, file, -2 * LOADS)
        pairs = []
        for number in range(ROUNDS):
            first = number * LOADS
            with without_lineage():
                bare = seconds_per_load(silent, file, first)
            pairs.append((seconds_per_load(recorded, file, first) * 1e3, bare * 1e3))
        added = statistics.median(one - other for one, other in pairs)
        properties = recorded.commits.list(limit=1)[0].properties
        size = sum(len(key) + len(value) for key, value in properties.items())
        lineage = Lineage(
            Job("cli", "load", run_id="01KA5CFAT00000000000000001"),
            (InputRead("people", f"file://{file}", "jsonl", rows=1, digest="sha256:" + "0" * 64),),
            (TypeCounts("Person", inserted=1),),
            engine=runtime("local"),
        )
        print("| what | with | without | added | bar |")
        print("|---|---|---|---|---|")
        whole, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
        print(f"| one-row load, ms | {whole:.2f} | {bare:.2f} | {added:.2f} | {BAR_MS:.0f} |")
        print(f"| describing one file, µs | {microseconds(lambda: describe(file)):.0f} | | | |")
        print(f"| properties of the commit, µs | {microseconds(lineage.to_properties):.0f} | | | |")
        print(f"| bytes in the commit | {size} | 0 | {size} | |")
        recorded.close()
        silent.close()


if __name__ == "__main__":
    main()
