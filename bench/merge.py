"""What a merge costs, and that it follows the difference and not the table.

`--rows` rows with a 256-dimension vector on `main`; a branch changes one percent of them, then one
in ten thousand. The peer is a full overwrite of the same table in the same run. Bytes are what the
process read, against the bytes of the fragments that differ. A second part fast-forwards
`--new-rows` rows with 768-dimension vectors in a child process and reports its peak memory. Merges
across an added property are in `schema_branches`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from omnigraph import Graph

SCHEMA = """
node Item {{
    name: String @key
    size: I64
    at: Vector({width})
}}
"""
ROWS_AT_ONCE = 250_000


def batches(count: int, width: int, *, first: int = 0, size: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield rows named by number; the same numbers give the same rows."""
    for start in range(first, first + count, ROWS_AT_ONCE):
        rows = min(ROWS_AT_ONCE, first + count - start)
        numbers = np.arange(start, start + rows)
        values = np.random.default_rng(start).random(rows * width, np.float32)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(np.char.mod("n%09d", numbers)),
                pa.array(np.full(rows, size)),
                pa.FixedSizeListArray.from_arrays(pa.array(values), width),
            ],
            ["name", "size", "at"],
        )


def reader(count: int, width: int, *, first: int = 0, size: int = 0) -> pa.RecordBatchReader:
    """Return rows as a stream."""
    made = batches(count, width, first=first, size=size)
    kind = pa.list_(pa.float32(), width)
    schema = pa.schema([("name", pa.utf8()), ("size", pa.int64()), ("at", kind)])
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in made))


def changed(rows: int, width: int, *, every: int, size: int) -> pa.Table:
    """Return every so-many-th row with another size and a vector of its own."""
    numbers = np.arange(0, rows, every)
    values = np.random.default_rng(size).random(len(numbers) * width, np.float32)
    return pa.table(
        {
            "name": np.char.mod("n%09d", numbers),
            "size": np.full(len(numbers), size),
            "at": pa.FixedSizeListArray.from_arrays(pa.array(values), width),
        }
    )


def bytes_read() -> int:
    """Return how many bytes this process has asked files for."""
    text = Path("/proc/self/io").read_text(encoding="ascii")
    return int(text.split("rchar: ")[1].split()[0])


def differing_bytes(graph: Graph, source: str, target: str) -> int:
    """Return the size of the fragments that two branches do not share."""
    sides = []
    for branch in (source, target):
        graph.sync_branch(branch)
        fragments = graph.snapshot().open("node:Item").fragments()
        sides.append({each.identity: each.data_bytes for each in fragments})
    left, right = sides
    return sum((left | right)[name] for name in left.keys() ^ right.keys())


def merge_part(rows: int, width: int) -> None:
    """Merge one percent, then one in ten thousand, and print a line for each."""
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        graph = Graph.init(str(folder / "g.omni"), SCHEMA.format(width=width), auto_optimize=False)
        graph.load_tables(nodes={"Item": reader(rows, width)}, mode="append")
        graph.optimize()
        overwrite = time.perf_counter()
        graph.load_tables(nodes={"Item": reader(rows, width)}, mode="overwrite")
        overwrite = time.perf_counter() - overwrite
        graph.optimize()
        for share, every in (("1 %", 100), ("0.01 %", 10_000)):
            branch = f"b{every}"
            graph.branch_create_from("main", branch)
            delta = changed(rows, width, every=every, size=every)
            graph.load_tables(nodes={"Item": delta}, mode="merge", branch=branch)
            differing = differing_bytes(graph, branch, "main")
            graph.sync_branch("main")
            before, start = bytes_read(), time.perf_counter()
            result = graph.branch_merge(branch)
            taken, read = time.perf_counter() - start, bytes_read() - before
            print(
                f"| merge of {share} of {rows:,} rows of width {width}"
                f" ({result.counts[0].updated:,} rows)"
                f" | {taken:.2f} s | {taken / overwrite:.2f} of an overwrite ({overwrite:.1f} s)"
                f" | {read / 2**20:.0f} MiB read = {read / differing:.2f} of what differs |"
            )
    finally:
        shutil.rmtree(folder)


def memory_part(rows: int) -> None:
    """Fast-forward new rows in a child and print its peak memory."""
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        root = str(folder / "g.omni")
        graph = Graph.init(root, SCHEMA.format(width=768), auto_optimize=False)
        graph.branch_create("wide")
        graph.load_tables(nodes={"Item": reader(rows, 768)}, mode="append", branch="wide")
        graph.close()
        child = [sys.executable, "-m", "bench.merge", "--child", root]
        run = subprocess.run(child, capture_output=True, text=True, check=True)
        seconds, kib = run.stdout.split()
        print(
            f"| fast-forward of {rows:,} new rows of width 768 | {float(seconds):.1f} s |"
            f" peak memory {int(kib) / 2**20:.2f} GiB | |"
        )
    finally:
        shutil.rmtree(folder)


def peak_kib() -> int:
    """Return the peak memory of this process; `getrusage` would count what its parent had."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0])


def child(root: str) -> None:
    """Merge, and say how long it took and how much memory."""
    graph = Graph.open(root, auto_optimize=False)
    start = time.perf_counter()
    graph.branch_merge("wide")
    taken = time.perf_counter() - start
    print(taken, peak_kib())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--new-rows", type=int, default=100_000)
    parser.add_argument("--child")
    options, _ = parser.parse_known_args()
    if options.child:
        child(options.child)
        return
    print("| work | time | against | bytes |\n|---|---|---|---|")
    merge_part(options.rows, 256)
    memory_part(options.new_rows)


if __name__ == "__main__":
    main()
