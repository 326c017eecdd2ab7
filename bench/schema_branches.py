"""What a schema change on a branch costs: metadata-only steps must not grow with the rows.

    .venv/bin/python -m bench schema_branches [--rows 10000 1000000] [--rounds 9]

Each round cuts a branch, applies one change there and deletes the branch. The branch inherits all
tables. Bytes are those of files that appeared below the root of the graph.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=9)
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
