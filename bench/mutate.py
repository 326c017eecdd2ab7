"""A durable, atomic node + edge mutation against two raw Lance appends with fsync.

Both sides start from the same rows: people and who knows whom, with a BTREE on `id`. The peer
appends one row to each of two datasets, flushes every new file and its directory, and makes neither
append atomic with the other. Rounds alternate. The bar is a ratio of 2.5 at the median.

Flushes and processor time per write are shown beside, because they do not depend on what else the
machine does.

Then: what automatic maintenance costs concurrent writes; a key lookup after a thousand one-row
writes without any call of maintenance, against the same table when it was fresh; a write after a
thousand commits against one on the fresh graph.

The last table says where the time of one mutation goes: the phases are timed in a run of their own,
because timing costs time.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa

from omnigraph import Graph
from omnigraph.manifest.locks.branch_lock import BranchLock, BranchLocks
from omnigraph.names import BranchName
from omnigraph.write.mutate import mutations as mutate_module
from support.places import repository_of
from support.writer import append

if TYPE_CHECKING:
    from _typeshed import HasFileno

PEOPLE = 100_000
ROUNDS = 5
WRITES = 30
BAR = 2.5
HISTORY = 1_000
LOOKUPS = 200
LOOKUP_BAR = 2.0
HISTORY_BAR = 1.3
INDEXED = (("id", "name"), ("id", "src", "dst"))

SCHEMA = """
node Person { name: String @key   age: I32?   city: String? }
edge Knows: Person -> Person { since: I32? }
"""
QUERY = """
query add($name: String, $age: I32, $friend: String) {
    insert Person { name: $name, age: $age, city: "Kiel" }
    insert Knows { from: $name, to: $friend, since: 2024 }
}
"""
KINDS = {
    "insert node + edge": QUERY,
    "insert edge": "query q($name: String, $age: I32, $friend: String) {"
    " insert Knows { from: $friend, to: $friend, since: $age } }",
    "update one node": "query q($name: String, $age: I32, $friend: String) {"
    " update Person set { age: $age } where name = $friend }",
    "upsert one node": "query q($name: String, $age: I32, $friend: String) {"
    " upsert Person { name: $friend, age: $age } }",
    "delete one node": "query q($name: String, $age: I32, $friend: String) {"
    " delete Person where name = $friend }",
}


# -- the two sides ---------------------------------------------------------------------------------


def person_rows(first: int, count: int, schema: pa.Schema) -> pa.Table:
    """Return people `p<n>`."""
    names = [f"p{number}" for number in range(first, first + count)]
    ages = pa.array([number % 90 for number in range(first, first + count)], pa.int32())
    return pa.table(
        {"id": names, "age": ages, "city": ["Kiel"] * count, "name": names}, schema=schema
    )


def knows_rows(first: int, count: int, schema: pa.Schema) -> pa.Table:
    """Return edges between people."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"e{number}" for number in numbers],
            "src": [f"p{number % PEOPLE}" for number in numbers],
            "dst": [f"p{number * 7 % PEOPLE}" for number in numbers],
            "since": pa.array([2024] * count, pa.int32()),
        },
        schema=schema,
    )


def make_graph(folder: str) -> Graph:
    """Make the graph with its rows and the indexes that maintenance would have built."""
    graph = Graph.init(f"{folder}/graph", SCHEMA)
    catalog = graph.catalog()
    person = catalog.node_types["Person"].arrow_schema
    knows = catalog.edge_types["Knows"].arrow_schema
    append(
        repository_of(graph),
        {
            "node:Person": person_rows(0, PEOPLE, person),
            "edge:Knows": knows_rows(0, PEOPLE * 5, knows),
        },
    )
    graph.ensure_indices()
    return graph


class RawLance:
    """Two datasets, one append each, every new file flushed."""

    def __init__(self, folder: str, graph: Graph) -> None:
        catalog = graph.catalog()
        self._person = catalog.node_types["Person"].arrow_schema
        self._knows = catalog.edge_types["Knows"].arrow_schema
        self._roots = (f"{folder}/person.lance", f"{folder}/knows.lance")
        rows = (
            person_rows(0, PEOPLE, self._person),
            knows_rows(0, PEOPLE * 5, self._knows),
        )
        self._datasets = [
            lance.write_dataset(table, root, enable_stable_row_ids=True, data_storage_version="2.2")
            for table, root in zip(rows, self._roots, strict=True)
        ]
        for dataset, columns in zip(self._datasets, INDEXED, strict=True):
            for column in columns:
                dataset.create_scalar_index(column, "BTREE")
        self._datasets = [lance.dataset(root) for root in self._roots]
        self._seen = self._files()

    def write(self, number: int) -> float:
        """Append a node and an edge; listing the new files is not timed."""
        rows = (
            person_rows(PEOPLE + number, 1, self._person),
            knows_rows(PEOPLE * 5 + number, 1, self._knows),
        )
        start = time.perf_counter()
        self._datasets = [
            lance.write_dataset(table, dataset, mode="append")
            for table, dataset in zip(rows, self._datasets, strict=True)
        ]
        taken = time.perf_counter() - start
        files = self._files()
        new, self._seen = files - self._seen, files
        start = time.perf_counter()
        for path in [*new, *sorted({path.parent for path in new})]:
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        return taken + time.perf_counter() - start

    def _files(self) -> set[Path]:
        return {path for root in self._roots for path in Path(root).rglob("*.*")}


# -- phases ----------------------------------------------------------------------------------------


class Phases:
    """Adds up the time inside some calls, nested ones included in the outer."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self._undo: list[Callable[[], None]] = []

    def watch(self, owner: object, name: str, label: str) -> None:
        """Time every call of a function or method."""
        original = getattr(owner, name)

        def timed(*args: object, **kwargs: object) -> object:
            start = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self.seconds[label].append(time.perf_counter() - start)

        # An instance of a frozen record does not take a value otherwise.
        is_record = is_dataclass(owner) and not isinstance(owner, type)
        put = object.__setattr__ if is_record else setattr
        put(owner, name, timed)
        self._undo.append(lambda: put(owner, name, original))

    def watch_lock(self, owner: BranchLocks) -> None:
        """Time taking and ending the lock, not what happens in it."""
        original = owner.take

        @contextmanager
        def timed(
            branch: BranchName, *, operation_id: str, wait_max_s: float = 60.0
        ) -> Iterator[BranchLock]:
            times = self.seconds["lock: take and end"]
            start = time.perf_counter()
            with original(branch, operation_id=operation_id, wait_max_s=wait_max_s) as lock:
                times.append(time.perf_counter() - start)
                yield lock
                start = time.perf_counter()
            times.append(time.perf_counter() - start)

        setattr(owner, "take", timed)  # noqa: B010 - a method is replaced for the run
        self._undo.append(lambda: setattr(owner, "take", original))

    def stop(self) -> None:
        """Put everything back."""
        for undo in reversed(self._undo):
            undo()


def watch_all(phases: Phases, graph: Graph) -> None:
    """Watch the steps of a mutation."""
    repository = repository_of(graph)
    committer, recovery = graph._session.committer, graph._session.recovery
    phases.watch(repository.history, "snapshot", "snapshot: probe and read the manifest")
    phases.watch(mutate_module.Mutations, "_change", "statements in memory")
    phases.watch(mutate_module, "validate", "validate: endpoints, keys, rules")
    phases.watch(mutate_module, "stage_delta", "prepare: look up ids, stage, flush")
    phases.watch_lock(repository.branch_locks)
    phases.watch(recovery, "sweep_branch", "lock: list and sweep recovery records")
    phases.watch(committer, "_require_ready", "lock: branch, schema lock, requirements, strays")
    phases.watch(repository.store.datasets, "verify_staged_files", "phase A: verify staged files")
    phases.watch(repository.store.objects, "put_if_absent", "phase A: write the sidecar")
    phases.watch(committer._phases, "move_tables", "phase B: commit the tables")
    phases.watch(repository.publisher, "publish", "phase C: publish")
    phases.watch(committer._phases, "forget", "phase D: delete the sidecar")
    phases.watch(committer, "record", "derived commit tables")


# -- runs ------------------------------------------------------------------------------------------


def write_ours(graph: Graph, text: str, number: int) -> float:
    """Run one mutation."""
    params = {"name": f"n{number}", "age": number % 90, "friend": f"p{number * 31 % PEOPLE}"}
    start = time.perf_counter()
    graph.mutate(text, params=params)
    return time.perf_counter() - start


class Side:
    """The times of one side in ms, its flushes and its processor time."""

    def __init__(self, label: str, write: Callable[[int], float]) -> None:
        self.label = label
        self._write = write
        self.times: list[float] = []
        self._cpu_s = 0.0
        self._flushes = 0

    def run(self, numbers: range, flushes: list[object]) -> None:
        """Write once for each number."""
        cpu, flushed = time.process_time(), len(flushes)
        self.times += [self._write(number) * 1e3 for number in numbers]
        self._cpu_s += time.process_time() - cpu
        self._flushes += len(flushes) - flushed

    def row(self, peer: Side) -> str:
        """Return a row of the first table."""
        count, p50 = len(self.times), statistics.median(self.times)
        cells = (
            self.label,
            f"{statistics.median(self.times[:10]):.1f}",
            f"{p50:.1f}",
            f"{sorted(self.times)[int(count * 0.95)]:.1f}",
            f"{self._cpu_s / count * 1e3:.1f}",
            f"{self._flushes / count:g}",
            f"{p50 / statistics.median(peer.times):.2f}",
            f"{BAR}",
        )
        return "| " + " | ".join(cells) + " |"


@contextmanager
def counted_flushes() -> Iterator[list[object]]:
    """Collect what is flushed inside the block."""
    flushed: list[object] = []
    fsync = os.fsync

    def counting(fd: int | HasFileno) -> None:
        flushed.append(fd)
        fsync(fd)

    os.fsync = counting
    try:
        yield flushed
    finally:
        os.fsync = fsync


def main() -> None:
    """Print all tables."""
    with tempfile.TemporaryDirectory() as folder:
        graph = make_graph(folder)
        raw = RawLance(folder, graph)
        peer = Side("two Lance appends + fsync", raw.write)
        ours = Side("one mutation", lambda number: write_ours(graph, QUERY, number))
        for number in range(5):
            raw.write(-1 - number)
            write_ours(graph, QUERY, -1 - number)
        with counted_flushes() as flushes:
            for start in range(0, ROUNDS * WRITES, WRITES):
                peer.run(range(start, start + WRITES), flushes)
                ours.run(range(start, start + WRITES), flushes)
        print(
            "| node + edge, durable | first 10, ms | p50, ms | p95, ms | cpu, ms | fsyncs |", end=""
        )
        print(" ratio | bar |\n|---|---|---|---|---|---|---|---|")
        print(peer.row(peer))
        print(ours.row(peer))
        graph.close()
        _print_maintenance(folder)
        _print_history(folder)
        _print_kinds(folder)
        _print_phases(folder)


def _print_maintenance(folder: str) -> None:
    """Compare writes with and without concurrent maintenance, alternating."""
    sides = {}
    for label, enabled in (("without upkeep", False), ("with upkeep", True)):
        make_graph(f"{folder}/{label}").close()
        graph = Graph.open(f"{folder}/{label}/graph", auto_optimize=enabled)
        sides[label] = (graph, list[float]())
    for start in range(0, ROUNDS * WRITES, WRITES):
        for graph, times in sides.values():
            numbers = range(start, start + WRITES)
            times += [write_ours(graph, QUERY, number) * 1e3 for number in numbers]
    plain = statistics.median(sides["without upkeep"][1])
    print("\n| 150 writes | p50, ms | mean, ms | ratio |\n|---|---|---|---|")
    for label, (graph, times) in sides.items():
        p50 = statistics.median(times)
        print(f"| {label} | {p50:.1f} | {statistics.mean(times):.1f} | {p50 / plain:.2f} |")
        graph.close()


LOOKUP = "query q($name: String) { match { $p: Person { name: $name } } return { $p.age } }"


def look_up(graph: Graph, first: int) -> float:
    """Return the median time of a key lookup in ms."""
    times = []
    for number in range(LOOKUPS):
        name = f"p{(first + number * 37) % PEOPLE}"
        start = time.perf_counter()
        graph.query(LOOKUP, params={"name": name})
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def _print_history(folder: str) -> None:
    """Compare a graph after many one-row commits with a fresh one, in turns."""
    fresh, old = make_graph(f"{folder}/fresh"), make_graph(f"{folder}/old")
    for number in range(HISTORY):
        write_ours(old, QUERY, number)
    lookups: dict[str, list[float]] = {"fresh": [], "old": []}
    writes: dict[str, list[float]] = {"fresh": [], "old": []}
    for number in range(ROUNDS):
        for label, graph in (("fresh", fresh), ("old", old)):
            lookups[label].append(look_up(graph, number))
        for label, graph in (("fresh", fresh), ("old", old)):
            first = HISTORY + number * 10
            numbers = range(first, first + 10)
            writes[label] += [write_ours(graph, QUERY, one) * 1e3 for one in numbers]
    print(f"\n| after {HISTORY} one-row commits | fresh, ms | then, ms | ratio | bar |")
    print("|---|---|---|---|---|")
    for label, times, bar in (
        ("key lookup", lookups, LOOKUP_BAR),
        ("node + edge mutation", writes, HISTORY_BAR),
    ):
        before, after = statistics.median(times["fresh"]), statistics.median(times["old"])
        print(f"| {label} | {before:.2f} | {after:.2f} | {after / before:.2f} | {bar} |")
    fresh.close()
    old.close()


def _print_kinds(folder: str) -> None:
    graph = make_graph(f"{folder}/kinds")
    print("\n| mutation | p50, ms |\n|---|---|")
    for offset, (label, text) in enumerate(KINDS.items()):
        first = 10_000 * (offset + 1)
        times = [write_ours(graph, text, first + number) * 1e3 for number in range(WRITES)]
        print(f"| {label} | {statistics.median(times):.1f} |")


def _print_phases(folder: str) -> None:
    graph = make_graph(f"{folder}/phases")
    for number in range(5):
        write_ours(graph, QUERY, -1 - number)
    phases = Phases()
    watch_all(phases, graph)
    times = [write_ours(graph, QUERY, number) * 1e3 for number in range(WRITES)]
    phases.stop()
    print("\n| phase of one mutation | ms | calls | share |\n|---|---|---|---|")
    whole = statistics.mean(times)
    rest = whole
    for label, seconds in phases.seconds.items():
        mean, calls = sum(seconds) * 1e3 / WRITES, len(seconds) / WRITES
        rest -= mean
        print(f"| {label} | {mean:.2f} | {calls:g} | {mean / whole:.0%} |")
    print(f"| everything else | {rest:.2f} | | {rest / whole:.0%} |")
    print(f"| whole | {whole:.2f} | | |")


if __name__ == "__main__":
    main()
