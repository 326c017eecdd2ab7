"""Reads right after a one-row write, against the same read again.

    python -m bench after_write [--sizes S M] [--rounds 20] [--no-indexes] [--folder FOLDER]

A social network of each size is loaded and read until what reads use is in memory. Then, in turns,
one row is written, and a read is timed right after it and several times again: the peer is the
median of the latter, so that a busy machine hurts both. Writes come from the handle that reads,
and from another handle of the same graph, which shares nothing with it. The bar is a ratio of 2 for
writes of the same handle, and figures that do not grow with the size. For comparison, a round of
"nothing" sorts numbers instead of writing: it shows what cold caches of the processor cost a read.

The last table compares look-ups by keys of several types; the bar is a ratio of 1.2 to a text.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.data import Social, social
from omnigraph import Graph

BAR = 2.0
KEY_BAR = 1.2
AGAIN = 5
WARM_UP = 12
KEYED_ROWS = 100_000
LOOKUPS = 300
SCHEMA = """
node Person { pid: String @key  name: String  age: I32  city: String }
edge Knows: Person -> Person { since: I32 }
"""
READS = """
query point($k: String) { match { $a: Person { pid: $k } } return { $a.name, $a.age } }
query one_hop($k: String) { match { $a: Person { pid: $k }  $a knows $b } return { $b.name } }
query two_hop($k: String) {
    match { $a: Person { pid: $k }  $a knows $b  $b knows $c } return distinct { $c }
}
"""
WRITES = """
query insert_edge($n: String, $k: String) { insert Knows { from: $k, to: "p7", since: 2000 } }
query insert_node($n: String, $k: String) {
    insert Person { pid: $n, name: "n", age: 1, city: "c" }
}
query update_node($n: String, $k: String) { update Person set { age: 5 } where pid = $k }
query delete_node($n: String, $k: String) { delete Person where pid = $k }
"""
KINDS = ("insert_edge", "insert_node", "update_node", "delete_node")
NOTHING = "nothing"
SORTED = 1_000_000
"""Numbers that are sorted between two reads: more than the caches of a processor hold."""
KEYED = """
node Text { key: String @key  n: I32 }
node Number { key: I64 @key  n: I32 }
node Day { key: Date @key  n: I32 }
node Pair { row: I64  place: String  @key(row, place)  n: I32 }
"""
KEY_READS = """
query text($k: String) { match { $a: Text { key: $k } } return { $a.n } }
query number($k: I64) { match { $a: Number { key: $k } } return { $a.n } }
query day($k: Date) { match { $a: Day { key: $k } } return { $a.n } }
query pair($k: I64) { match { $a: Pair { row: $k, place: "a" } } return { $a.n } }
"""


@dataclass(frozen=True)
class Figure:
    """One kind of read after one kind of write."""

    after_ms: float
    again_ms: float

    @property
    def ratio(self) -> float:
        return self.after_ms / self.again_ms


def main() -> None:
    """Print the tables."""
    options = _options()
    with _folder(options.folder) as folder:
        figures: dict[tuple[str, bool, str, str], Figure] = {}
        for size in options.sizes:
            root = _graph(folder, size, with_indexes=not options.no_indexes)
            for is_own in (True, False):
                copy = folder / "copy"
                shutil.copytree(root, copy)
                found = _measured(copy, is_own=is_own, rounds=options.rounds)
                figures |= {(size, is_own, *key): each for key, each in found.items()}
                shutil.rmtree(copy)
        _print(figures, options.sizes)
        _print_keys(folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", default=["S", "M"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-indexes", action="store_true")
    parser.add_argument("--folder", type=Path)
    return parser.parse_args()


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _graph(folder: Path, size: str, *, with_indexes: bool) -> Path:
    root = folder / f"{size}-{'indexed' if with_indexes else 'plain'}"
    if not root.exists():
        with Graph.init(root, SCHEMA, durability="process") as graph:
            _load(graph, social(size))
            if with_indexes:
                graph.ensure_indices()
    return root


def _load(graph: Graph, rows: Social) -> None:
    names = ["pid" if name == "id" else name for name in rows.person.column_names]
    graph.load_tables(
        nodes={"Person": rows.person.rename_columns(names)},
        edges={"Knows": rows.knows.drop_columns("id")},
        mode="append",
    )


def _measured(root: Path, *, is_own: bool, rounds: int) -> dict[tuple[str, str], Figure]:
    reads = ("point", "one_hop", "two_hop")
    found = {}
    with (
        Graph.open(root, durability="process", auto_optimize=False) as graph,
        Graph.open(root, durability="process", auto_optimize=False) as other,
    ):
        for number in range(WARM_UP):
            for read in reads:
                graph.query(READS, read, {"k": f"p{number}"})
        writer = graph if is_own else other
        number = 1_000
        for kind in (*KINDS, NOTHING):
            for read in reads:
                after, again = [], []
                for _ in range(rounds):
                    number += 1
                    if kind == NOTHING:
                        np.random.default_rng(number).random(SORTED).sort()
                    else:
                        writer.mutate(WRITES, kind, {"n": f"new{number}", "k": f"p{number}"})
                    ask = _asking(graph, read, f"p{number + 10_000}")
                    after.append(_timed_ms(ask))
                    again += [_timed_ms(ask) for _ in range(AGAIN)]
                found[kind, read] = Figure(statistics.median(after), statistics.median(again))
    return found


def _asking(graph: Graph, read: str, key: str) -> Callable[[], object]:
    return lambda: graph.query(READS, read, {"k": key})


def _timed_ms(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


def _print(figures: dict[tuple[str, bool, str, str], Figure], sizes: list[str]) -> None:
    heads = [f"{size} after, ms | {size} again, ms | ratio" for size in sizes]
    print(f"| write, by | read | {' | '.join(heads)} | bar |")
    print("|---|---|" + "---|---|---|" * len(sizes) + "---|")
    for is_own in (True, False):
        for kind in (*KINDS, NOTHING):
            for read in ("point", "one_hop", "two_hop"):
                cells = [figures[size, is_own, kind, read] for size in sizes]
                shown = [f"{c.after_ms:.2f} | {c.again_ms:.2f} | {c.ratio:.1f}" for c in cells]
                by = "the same handle" if is_own else "another handle"
                bar = f"{BAR:g}" if is_own else ""
                print(f"| {kind}, {by} | {read} | {' | '.join(shown)} | {bar} |")


def _print_keys(folder: Path) -> None:
    numbers = np.arange(KEYED_ROWS)
    n = pa.array(numbers, pa.int32())
    keys = {
        "Text": {"key": pa.array([f"k{number}" for number in numbers.tolist()])},
        "Number": {"key": pa.array(numbers)},
        "Day": {"key": pa.array(numbers, pa.int32()).view(pa.date32())},
        "Pair": {"row": pa.array(numbers), "place": pa.array(["a"] * KEYED_ROWS)},
    }
    root = folder / "keys"
    shutil.rmtree(root, ignore_errors=True)
    with Graph.init(root, KEYED, durability="process") as graph:
        tables = {name: pa.table({**columns, "n": n}) for name, columns in keys.items()}
        graph.load_tables(nodes=tables, edges={}, mode="append")
        times: dict[str, list[float]] = {name: [] for name in ("text", "number", "day", "pair")}
        for number in range(LOOKUPS):
            day = str(np.datetime64("1970-01-01") + number)
            for name, key in (("text", f"k{number}"), ("number", number), ("day", day)):
                times[name].append(_timed_ms(_looking(graph, name, key)))
            times["pair"].append(_timed_ms(_looking(graph, "pair", number)))
    middle = {name: statistics.median(found[LOOKUPS // 3 :]) for name, found in times.items()}
    print("\n| key | p50, ms | against a text | bar |\n|---|---|---|---|")
    for name, ms in middle.items():
        print(f"| {name} | {ms:.3f} | {ms / middle['text']:.2f} | {KEY_BAR:g} |")


def _looking(graph: Graph, name: str, key: object) -> Callable[[], object]:
    return lambda: graph.query(KEY_READS, name, {"k": key})


if __name__ == "__main__":
    main()
