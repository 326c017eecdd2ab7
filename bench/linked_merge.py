"""What a merge costs that takes the source's files over, against one that writes its rows again.

Both merge the same branch in the same run, into two branches that are the same before; the second
one with links switched off. Bytes are what the process reads and writes itself; the data is the
files that the source has and the target lacks. The bar is 0.05 of the time and 1 % of the bytes.

    python -m bench.linked_merge --rows 1000000 --wide-rows 1000000
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from bench.merge import SCHEMA, changed, reader
from omnigraph import Graph
from omnigraph.merge import links

NARROW, MIDDLE, WIDE = 8, 256, 768
NEVER = links.LinkLimits(rows_min=1 << 62)


def bytes_moved() -> int:
    """Return how many bytes this process has asked files for, and given to them."""
    text = Path("/proc/self/io").read_text(encoding="ascii")
    return sum(int(text.split(f"{name}: ")[1].split()[0]) for name in ("rchar", "wchar"))


def data_bytes(graph: Graph) -> int:
    """Return the size of the files of the source that the target does not have."""
    sides = []
    for branch in ("draft", "main"):
        graph.sync_branch(branch)
        fragments = graph.snapshot().open("node:Item").fragments()
        sides.append({each.data_identity: each.data_bytes for each in fragments})
    source, target = sides
    return sum(size for name, size in source.items() if name not in target)


def timed(graph: Graph, target: str, limits: links.LinkLimits) -> tuple[float, int]:
    """Merge into a branch; return seconds and bytes."""
    kept, links.limits = links.limits, limits
    try:
        before, start = bytes_moved(), time.perf_counter()
        graph.branch_merge("draft", target, engine="local")
        return time.perf_counter() - start, bytes_moved() - before
    finally:
        links.limits = kept


def compare(graph: Graph, label: str) -> None:
    """Merge twice and print a line."""
    size = data_bytes(graph)
    graph.sync_branch("main")
    linked, by_links = timed(graph, "main", links.limits)
    written, by_rows = timed(graph, "other", NEVER)
    counts = []
    for branch in ("main", "other"):
        graph.sync_branch(branch)
        counts.append(graph.snapshot().open("node:Item").count())
    assert counts[0] == counts[1]
    print(
        f"| {label} | {linked:.2f} s | {linked / written:.3f} of {written:.2f} s"
        f" | {by_links / 2**20:.1f} MiB = {100 * by_links / size:.2f} % of"
        f" {size / 2**20:.0f} MiB (written again: {by_rows / 2**20:.0f} MiB) |"
    )


def warm_up() -> None:
    """Load the modules of a merge: neither side pays for it."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        graph = Graph.init(f"{folder}/g.omni", SCHEMA.format(width=NARROW), auto_optimize=False)
        graph.branch_create("draft")
        graph.load_tables(nodes={"Item": reader(10, NARROW)}, mode="append", branch="draft")
        graph.branch_merge("draft", engine="local")
        graph.close()


def changed_part(rows: int, width: int) -> None:
    """Change every second row on a branch, and merge it."""
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        graph = Graph.init(str(folder / "g.omni"), SCHEMA.format(width=width), auto_optimize=False)
        graph.load_tables(nodes={"Item": reader(rows, width)}, mode="append")
        graph.branch_create("other")
        graph.branch_create("draft")
        delta = changed(rows, width, every=2, size=1)
        graph.load_tables(nodes={"Item": delta}, mode="merge", branch="draft")
        compare(graph, f"{delta.num_rows:,} of {rows:,} rows changed, width {width}")
        graph.close()
    finally:
        shutil.rmtree(folder)


def new_part(rows: int) -> None:
    """Add wide rows on a branch, and merge it."""
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        graph = Graph.init(str(folder / "g.omni"), SCHEMA.format(width=WIDE), auto_optimize=False)
        graph.branch_create("other")
        graph.branch_create("draft")
        graph.load_tables(nodes={"Item": reader(rows, WIDE)}, mode="append", branch="draft")
        compare(graph, f"{rows:,} new rows, width {WIDE}")
        graph.close()
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--wide-rows", type=int, default=1_000_000)
    options, _ = parser.parse_known_args()
    print("| merge | by links | against rows | bytes |\n|---|---|---|---|")
    warm_up()
    for width in (NARROW, MIDDLE):
        changed_part(options.rows, width)
    new_part(options.wide_rows)


if __name__ == "__main__":
    main()
