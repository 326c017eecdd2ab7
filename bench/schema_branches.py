"""What a schema change on a branch costs, alone and in a merge.

    .venv/bin/python -m bench schema_branches [--rows 10000 1000000] [--rounds 9]
                                              [--merged-rows 1000000]

First part: metadata-only steps must not grow with the rows. Each round cuts a branch, applies one
change there and deletes the branch. The branch inherits all tables. Bytes are those of files that
appeared below the root of the graph.

Second part: a branch has changed one percent of `--merged-rows` narrow rows, all over the table,
and `main` one row. It is merged into `main` as it is, and across a property that one side has
added. All variants are copies of prepared graphs and take turns; the bar is 1.3.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.merge import SCHEMA as ITEMS
from bench.merge import changed, reader
from omnigraph.graph import Graph

BAR = 1.5
"""How much longer the largest graph may take than the smallest."""
SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
edge Knows: Person -> Person { since: I32? }
"""
CHANGES = {
    "a note, an index and a new type": SCHEMA.replace(
        "node Person { name: String @key  age: I32?",
        'node Person @description("people") { name: String @key  age: I32? @index',
    )
    + "node City { name: String @key }\n",
    "a type and an edge renamed": 'node Human @rename_from("Person")'
    " { name: String @key  age: I32?  city: String? }\n"
    'edge Likes: Human -> Human @rename_from("Knows") { since: I32? }\n',
}
MERGE_BAR = 1.3
"""How much longer a merge across an added property may take than the same merge without it."""
WIDTH = 8
VARIANTS = {
    "without a schema change": (None, ""),
    "across a property with a value that the source added": ("draft", "rank: I32 @default(1)"),
    "across an optional property that the source added": ("draft", "rank: I32?"),
    "across a property with a value that the target added": ("main", "rank: I32 @default(1)"),
}
"""The branch that adds a property, and the property."""


@dataclass(frozen=True)
class Cost:
    """What applying one change took, and what it wrote."""

    seconds: float
    bytes_written: int


def filled(root: str, rows: int) -> Graph:
    """Return a graph with so many people, each of whom knows the next one."""
    graph = Graph.init(root, SCHEMA, auto_optimize=False, checksums=False)
    names = pa.array([f"p{number:07}" for number in range(rows)])
    ages = pa.array(range(rows), pa.int32())
    people = pa.table({"name": names, "age": ages})
    knows = pa.table({"from": names, "to": pa.concat_arrays([names[1:], names[:1]])})
    graph.load_tables(nodes={"Person": people}, edges={"Knows": knows}, mode="append")
    return graph


def apply_once(graph: Graph, root: Path, number: int, text: str) -> Cost:
    """Apply a change on a branch of its own."""
    branch = f"round{number}"
    graph.branch_create(branch)
    before = sizes(root)
    start = time.perf_counter()
    result = graph.schema.apply(text, branch=branch)
    seconds = time.perf_counter() - start
    after = sizes(root)
    written = sum(size for path, size in after.items() if before.get(path) != size)
    if not result.applied or result.plan.tier != "metadata":
        raise AssertionError(f"not a metadata change: {result.plan.render()}")
    graph.branch_delete(branch)
    return Cost(seconds, written)


def sizes(root: Path) -> dict[Path, int]:
    """Return the files below a root with their sizes."""
    return {path: path.stat().st_size for path in root.rglob("*") if path.is_file()}


def merge_part(rows: int, rounds: int) -> None:
    """Merge one percent of the rows in every variant, and print the table."""
    taken: dict[str, list[float]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared"
        diverged(str(prepared), rows)
        for name, (branch, added) in VARIANTS.items():
            shutil.copytree(prepared, root := Path(folder) / name)
            changed_sides(root, rows, branch, added)
        for _ in range(rounds):
            for name, seconds in taken.items():
                seconds.append(merge_once(Path(folder) / name, Path(folder) / "copy"))
    plain = statistics.median(taken["without a schema change"])
    print(f"| merge of 1 % of {rows:,} rows | ms | of the merge without it |")
    print("|---|---|---|")
    for name, seconds in taken.items():
        median = statistics.median(seconds)
        print(f"| {name} | {median * 1000:.0f} | {median / plain:.2f} (bar {MERGE_BAR}) |")


def diverged(root: str, rows: int) -> None:
    """Make a graph with a branch that has the rows of `main`."""
    with Graph.init(root, ITEMS.format(width=WIDTH), auto_optimize=False) as graph:
        graph.load_tables(nodes={"Item": reader(rows, WIDTH)}, mode="append")
        graph.optimize()
        graph.branch_create("draft")


def changed_sides(root: Path, rows: int, branch: str | None, added: str) -> None:
    """Add the property on one branch, then change rows of both."""
    with Graph.open(str(root), auto_optimize=False) as graph:
        delta = changed(rows, WIDTH, every=100, size=1)
        if branch is not None:
            text = ITEMS.format(width=WIDTH).replace("size: I64", f"size: I64   {added}")
            graph.schema.apply(text, branch=branch)
        if branch == "draft":
            delta = delta.append_column("rank", pa.array(np.full(delta.num_rows, 2, np.int32)))
        graph.load_tables(nodes={"Item": delta}, mode="merge", branch="draft")
        graph.mutate('query q() { update Item set { size: 5 } where name = "n000000001" }')


def merge_once(prepared: Path, copy: Path) -> float:
    """Return how long a merge takes in a fresh copy of a graph."""
    shutil.copytree(prepared, copy)
    try:
        with Graph.open(str(copy), auto_optimize=False) as graph:
            start = time.perf_counter()
            graph.branch_merge("draft")
            return time.perf_counter() - start
    finally:
        shutil.rmtree(copy)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--merged-rows", type=int, default=1_000_000)
    options = parser.parse_args()
    print("| change on a branch | rows of each type | ms | bytes written | slower than the first |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        roots = {rows: Path(folder) / f"{rows}.omni" for rows in options.rows}
        graphs = {rows: filled(str(root), rows) for rows, root in roots.items()}
        for name, text in CHANGES.items():
            costs: dict[int, list[Cost]] = {rows: [] for rows in graphs}
            for number in range(options.rounds):
                # In turns, so that a busy machine slows all of them down.
                for rows, graph in graphs.items():
                    costs[rows].append(apply_once(graph, roots[rows], number, text))
            report(name, costs)
        for graph in graphs.values():
            graph.close()
    print()
    merge_part(options.merged_rows, options.rounds)


def report(name: str, costs: dict[int, list[Cost]]) -> None:
    """Print the lines of one change."""
    first: float | None = None
    for rows, each in costs.items():
        seconds = statistics.median(cost.seconds for cost in each)
        written = int(statistics.median(cost.bytes_written for cost in each))
        first = first or seconds
        ratio = f"{seconds / first:.2f} (bar {BAR})"
        print(f"| {name} | {rows:,} | {seconds * 1000:.1f} | {written:,} | {ratio} |")


if __name__ == "__main__":
    main()
