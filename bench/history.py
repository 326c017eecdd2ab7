"""What a long history of small commits costs: files, bytes, and time to open it and to write on.

Each commit adds one node and one edge, with the settings that a caller gets by default. At every
checkpoint the handle is closed, the files of the graph are counted by kind, and the graph is opened
again: for reading, with a first query, and for writing, with a first commit. These times are
processor time of all threads, because other work on the machine lengthens them less. The peer is
the same graph at an earlier checkpoint: a commit must cost the same later.

`--commits 3000` stops earlier; `--durability process` flushes nothing, which changes no file.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from omnigraph import Graph
from omnigraph.graph import OpenMode
from omnigraph.store.durability import DURABILITIES, Durability

SCHEMA = "node P {k: I64 @key  name: String}\nedge K: P -> P {}"
CHECKPOINTS = (100, 1_000, 3_000, 10_000, 30_000)
ROUNDS = 8
HEADINGS = (
    "| commits | files | kB | kB of new ones | ms | open | first query | to write | first commit |",
    "|---|---|---|---|---|---|---|---|---|",
)
FILE_HEADINGS = ("| files of | what | files | bytes |", "|---|---|---|---|")


class Kind(NamedTuple):
    """A group of files: the dataset that they belong to, and what they are."""

    home: str
    what: str


def kind_of(path: Path) -> Kind:
    """Return the group of a file, by its path under the root."""
    parts = path.parts
    if len(parts) == 1:
        return Kind("root", "schema files")
    folders = [part for part in parts[1:-1] if part.startswith("_") or part == "data"]
    return Kind(parts[0], f"{folders[0] if folders else ''} {path.suffix}".strip())


def count(root: Path) -> tuple[Counter[Kind], Counter[Kind]]:
    """Return how many files and bytes there are of each kind."""
    files: Counter[Kind] = Counter()
    sizes: Counter[Kind] = Counter()
    for path in root.rglob("*"):
        if path.is_file():
            kind = kind_of(path.relative_to(root))
            files[kind] += 1
            sizes[kind] += path.stat().st_size
    return files, sizes


def commit(graph: Graph, number: int) -> None:
    """Add one node and one edge."""
    node = {"type": "P", "data": {"k": number, "name": f"n{number}"}}
    edge = {"edge": "K", "from": str(number), "to": "0"}
    graph.load([node, edge], mode="merge")


def answer(graph: Graph, number: int) -> None:
    """Look one node up."""
    graph.query(f"match {{ $p: P {{ k: {number} }} }} return {{ $p.name }}")


def open_ms(
    root: str,
    mode: OpenMode,
    use: Callable[[Graph, int], None],
    *,
    start: int,
    durability: Durability,
) -> tuple[float, float]:
    """Return the median times to open a graph and to use it first, after a round that warms up.

    Each round passes the next number from `start` on.
    """
    opened, used = [], []
    for number in range(start, start + ROUNDS):
        begun = time.process_time()
        graph = Graph.open(root, mode=mode, durability=durability)
        between = time.process_time()
        use(graph, number)
        used.append((time.process_time() - between) * 1e3)
        opened.append((between - begun) * 1e3)
        graph.close()
    return statistics.median(opened[1:]), statistics.median(used[1:])


def measure(root: Path, commits: int, durability: Durability) -> None:
    """Commit up to each checkpoint and print a row for it, then the files of the last one."""
    graph = Graph.init(str(root), SCHEMA, durability=durability)
    graph.load([{"type": "P", "data": {"k": 0, "name": "n0"}}], mode="merge")
    print("\n".join(HEADINGS), flush=True)
    done, bytes_before, last = 1, 0, 1
    for checkpoint in [each for each in CHECKPOINTS if each <= commits]:
        start = time.perf_counter()
        for number in range(done, checkpoint):
            commit(graph, number)
        took_ms = (time.perf_counter() - start) * 1e3 / (checkpoint - done)
        graph.close()
        files, sizes = count(root)
        fresh = (sizes.total() - bytes_before) / (checkpoint - done) / 1e3
        read, query = open_ms(str(root), OpenMode.READ_ONLY, answer, start=0, durability=durability)
        write, written = open_ms(
            str(root), OpenMode.READ_WRITE, commit, start=checkpoint, durability=durability
        )
        print(
            f"| {checkpoint:,} | {files.total() / checkpoint:.2f} |"
            f" {sizes.total() / checkpoint / 1e3:.1f} | {fresh:.1f} | {took_ms:.1f} |"
            f" {read:.1f} | {query:.1f} | {write:.1f} | {written:.1f} |",
            flush=True,
        )
        done, bytes_before, last = checkpoint + ROUNDS, sizes.total(), checkpoint
        graph = Graph.open(str(root), durability=durability)
    graph.close()
    print(f"\nAfter {last:,} commits, per commit:\n")
    print("\n".join(FILE_HEADINGS))
    for kind in sorted(files):
        number, size = files[kind] / last, sizes[kind] / last
        print(f"| `{kind.home}` | {kind.what} | {number:.3f} | {size:,.0f} |")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--durability", choices=DURABILITIES, default="full")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder) / "graph", options.commits, options.durability)


if __name__ == "__main__":
    main()
