"""Loads against their peers, on the same data in the same run.

    .venv/bin/python -m bench.load [--scale 1.0] [--rounds 3] [PART]...

| part | what | peer | bar |
|---|---|---|---|
| mixed | 100,000 records of graph JSONL, all checks | `pyarrow.json` + `write_dataset` | 3.0 |
| csv | 500,000 Person + 1,000,000 Knows | `pyarrow.csv` + the same rows as parquet | 1.5 |
| upsert | 100,000 rows into 1,000,000 | raw `merge_insert` without an index | 1.5 |
| fresh | the same with a text of 20 words, every side in a new process | the same | 1.5 |
| partial | 100,000 of 1,000,000 rows changed by input without a column | whole rows | 1.3 |
| reload | 1,000,000 edges without ids, merged again unchanged | their first load | 2.0 |
| parquet | 1,000,000 Person + 10,000,000 Knows, ready to traverse | Kuzu | 1.0, memory 1.5 |
| memory | peak memory of loads of 250 MB and 1 GB of JSONL | each other | 8 bytes per record |

`--scale` makes everything smaller or larger. Times are medians of interleaved rounds; making the
empty graph is not part of them. The peers flush nothing to disk, ours does. `fresh`, `parquet` and
`memory` run every side in a process of its own: `fresh` includes the modules that a first load
imports. Kuzu is in the environment that `make bench-peers` makes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from bench.start import environment
from omnigraph.graph import Graph

SCHEMA = """
node Person {
    name: String @key
    age: I32
    city: String?
    mail: String? @unique
    @range(age, 0..150)
    @check(name, "^p")
}
edge Knows: Person -> Person { since: I32 }
"""
PLAIN_SCHEMA = """
node Person { name: String @key  age: I32  city: String? }
edge Knows: Person -> Person { since: I32 }
"""
TEXT_SCHEMA = "node Person { name: String @key  age: I32  city: String?  bio: String? }"

MORE_BYTES_MAX = 8
PEER_PYTHON = Path(__file__).parent.parent / ".venv-peers" / "bin" / "python"

Step = Callable[[], Callable[[], object]]


def names(numbers: np.ndarray) -> pa.Array:
    return pa.array(np.char.add("p", numbers.astype(str)), pa.utf8())


def people(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "name": names(numbers),
            "age": pa.array(numbers % 100, pa.int32()),
            "city": pa.array(np.char.add("city-", (numbers % 997).astype(str)), pa.utf8()),
        }
    )


def knows(people_count: int, count: int) -> pa.Table:
    random = np.random.default_rng(7)
    return pa.table(
        {
            "src": names(random.integers(0, people_count, count)),
            "dst": names(random.integers(0, people_count, count)),
            "since": pa.array(random.integers(1990, 2026, count), pa.int32()),
        }
    )


def write_records(path: Path, count: int) -> None:
    """Half nodes, half edges, mixed."""
    random = np.random.default_rng(7)
    half = count // 2
    ends = random.integers(0, half, (half, 2)).tolist()
    with path.open("wb") as file:
        for i in range(half):
            data = {"name": f"p{i}", "age": i % 100, "city": f"city-{i % 997}", "mail": f"{i}@x"}
            file.write(orjson.dumps({"type": "Person", "data": data}) + b"\n")
            source, target = ends[i]
            edge = {"edge": "Knows", "from": f"p{source}", "to": f"p{target}"}
            file.write(orjson.dumps({**edge, "data": {"since": 1990 + i % 36}}) + b"\n")


@dataclass(frozen=True)
class Comparison:
    """What is compared, and the ratio that it may have."""

    title: str
    peer: str
    bar: float

    def run(self, rounds: int, ours: Step, peer: Step) -> None:
        """Run both in locks; each step makes a call ready, which alone is timed."""
        times: dict[str, list[float]] = {"ours": [], "peer": []}
        for _ in range(rounds):
            for name, step in (("ours", ours), ("peer", peer)):
                call = step()
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
        mine, theirs = (statistics.median(times[name]) for name in ("ours", "peer"))
        ratio = mine / theirs
        mark = "ok" if ratio <= self.bar else "ABOVE THE BAR"
        print(
            f"{self.title}: ours {mine:.3f} s, {self.peer} {theirs:.3f} s, ratio {ratio:.2f}"
            f" (bar {self.bar}) {mark}"
        )


class Folders:
    """A new folder for every run."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return str(self._root / str(self._count))


def mixed(root: Path, scale: float, rounds: int) -> None:
    path = root / "mixed.jsonl"
    write_records(path, int(100_000 * scale))
    folders = Folders(root)

    def ours() -> Callable[[], object]:
        graph = Graph.init(folders.new(), SCHEMA)
        return lambda: graph.load(path, mode="append", engine="local")

    def peer() -> None:
        rows = pj.read_json(path, read_options=pj.ReadOptions(block_size=4 << 20))
        data = rows["data"].combine_chunks()
        columns = {name: data.field(name) for name in ("name", "age", "city", "mail", "since")}
        is_node = rows["type"].is_valid()
        flat = pa.table({**columns, "src": rows["from"], "dst": rows["to"]})
        lance.write_dataset(
            flat.filter(is_node).select(["name", "age", "city", "mail"]), folders.new()
        )
        edges = flat.filter(rows["edge"].is_valid()).select(["src", "dst", "since"])
        lance.write_dataset(edges, folders.new())

    Comparison("mixed JSONL", "pyarrow.json + Lance", 3.0).run(rounds, ours, lambda: peer)


def csv(root: Path, scale: float, rounds: int) -> None:
    """The peer parses the files with types that it is told, and loads the same rows as parquet."""
    count = int(500_000 * scale)
    tables = {"Person": people(0, count), "Knows": knows(count, 2 * count)}
    files = {name: root / f"{name}.csv" for name in tables}
    parquets = {name: root / f"{name}.parquet" for name in tables}
    for name, table in tables.items():
        pc.write_csv(table, files[name])
        pq.write_table(table, parquets[name])
    folders = Folders(root)

    def load(sources: dict[str, Path]) -> Callable[[], object]:
        graph = Graph.init(folders.new(), PLAIN_SCHEMA)

        def run() -> None:
            with graph:
                graph.load(sources, mode="append", engine="local")

        return run

    def peer() -> Callable[[], object]:
        loaded = load(parquets)

        def both() -> None:
            for name, table in tables.items():
                types = {field.name: field.type for field in table.schema}
                pc.read_csv(files[name], convert_options=pc.ConvertOptions(column_types=types))
            loaded()

        return both

    Comparison("CSV", "pyarrow.csv + parquet load", 1.5).run(rounds, lambda: load(files), peer)


def upsert(root: Path, scale: float, rounds: int) -> None:
    stored, changed = int(1_000_000 * scale), int(100_000 * scale)
    folders = Folders(root)
    base = folders.new()
    with Graph.init(base, PLAIN_SCHEMA) as graph:
        graph.load_tables(nodes={"Person": people(0, stored)}, mode="append")
    rows = people(stored - changed // 2, changed)
    raw = rows.append_column("id", rows["name"])
    raw_base = folders.new()
    whole = people(0, stored)
    lance.write_dataset(
        whole.append_column("id", whole["name"]), raw_base, enable_stable_row_ids=True
    )

    def copy(source: str) -> str:
        target = folders.new()
        shutil.copytree(source, target)
        return target

    def ours() -> Callable[[], object]:
        graph = Graph.open(copy(base))
        return lambda: graph.load_tables(nodes={"Person": rows}, mode="merge")

    def peer() -> Callable[[], object]:
        merge = lance.dataset(copy(raw_base)).merge_insert("id")
        merge.when_matched_update_all().when_not_matched_insert_all()
        return lambda: merge.execute(raw)

    Comparison("upsert", "merge_insert", 1.5).run(rounds, ours, peer)


def with_text(table: pa.Table) -> pa.Table:
    """Add a column of texts of 20 words."""
    words = np.array(["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"])
    picked = words[np.random.default_rng(7).integers(0, len(words), (table.num_rows, 20))]
    return table.append_column("bio", pa.array([" ".join(row) for row in picked.tolist()]))


def fresh(root: Path, scale: float, rounds: int) -> None:
    """Upsert wide rows in a process that has loaded nothing before."""
    stored, changed = int(1_000_000 * scale), int(100_000 * scale)
    folders = Folders(root)
    base, raw_base, rows_path = folders.new(), folders.new(), str(root / "rows.parquet")
    whole = with_text(people(0, stored))
    with Graph.init(base, TEXT_SCHEMA) as graph:
        graph.load_tables(nodes={"Person": whole}, mode="append")
    raw = whole.append_column("id", whole["name"])
    lance.write_dataset(raw, raw_base, enable_stable_row_ids=True, data_storage_version="2.2")
    pq.write_table(with_text(people(stored - changed // 2, changed)), rows_path)
    runs: dict[str, list[Run]] = {"ours": [], "merge_insert": []}
    for _ in range(rounds):
        for name, source, program in (
            ("ours", base, UPSERT_ROWS),
            ("merge_insert", raw_base, MERGE_INSERT),
        ):
            target = folders.new()
            shutil.copytree(source, target)
            runs[name].append(child(sys.executable, program, target, rows_path))
            shutil.rmtree(target)
    for what, unit in (("seconds", "s"), ("cpu_s", "s of processors")):
        mine, theirs = (
            statistics.median(getattr(run, what) for run in found) for found in runs.values()
        )
        mark = "ok" if mine <= 1.5 * theirs else "ABOVE THE BAR"
        print(
            f"fresh: ours {mine:.3f} {unit}, merge_insert {theirs:.3f}, ratio {mine / theirs:.2f}"
            f" (bar 1.5) {mark}"
        )


def partial(root: Path, scale: float, rounds: int) -> None:
    stored, changed = int(1_000_000 * scale), int(100_000 * scale)
    folders = Folders(root)
    base = folders.new()
    with Graph.init(base, PLAIN_SCHEMA) as graph:
        graph.load_tables(nodes={"Person": people(0, stored)}, mode="append")
    whole = people(stored - changed, changed)
    older = pa.array((np.arange(changed) + 1) % 100, pa.int32())
    whole = whole.set_column(1, "age", older)
    part = whole.select(["name", "age"])
    files = {"whole": root / "whole.jsonl", "part": root / "part.jsonl"}
    for path, table in ((files["whole"], whole), (files["part"], part)):
        records = ({"type": "Person", "data": data} for data in table.to_pylist())
        path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))

    def merging(data: object, missing: str) -> Step:
        def step() -> Callable[[], object]:
            target = folders.new()
            shutil.copytree(base, target)
            graph = Graph.open(target)
            return lambda: graph.load(data, mode="merge", engine="local", missing=missing)

        return step

    ours, peer = merging({"Person": part}, "keep"), merging({"Person": whole}, "null")
    Comparison("partial table", "whole rows", 1.3).run(rounds, ours, peer)
    ours, peer = merging(files["part"], "keep"), merging(files["whole"], "null")
    Comparison("partial records", "whole records", 1.3).run(rounds, ours, peer)


def reload(root: Path, scale: float, rounds: int) -> None:
    """Merge edges without ids: into an empty table, and once more."""
    count = int(1_000_000 * scale)
    folders = Folders(root)
    nodes, edges = people(0, count // 10), {"Knows": knows(count // 10, count)}

    def merged(times: int) -> Callable[[], object]:
        graph = Graph.init(folders.new(), PLAIN_SCHEMA, auto_optimize=False)
        graph.load_tables(nodes={"Person": nodes}, mode="append")
        for _ in range(times):
            graph.load_tables(edges=edges, mode="merge")
        return lambda: graph.load_tables(edges=edges, mode="merge")

    Comparison("reload", "first load", 2.0).run(rounds, lambda: merged(1), lambda: merged(0))


@dataclass(frozen=True)
class Run:
    """What one run in a process of its own has taken."""

    seconds: float
    cpu_s: float
    peak_mb: float


def child(python: str, program: str, *arguments: str) -> Run:
    """Run a program that prints its seconds, its processor seconds and its peak of memory."""
    command = [python, "-c", MEASURES + program, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment())
    return Run(*json.loads(done.stdout.splitlines()[-1]))


MEASURES = """
import json, sys, time

class Measured:
    def __enter__(self):
        self.start, self.cpu = time.perf_counter(), time.process_time()
    def __exit__(self, *exc):
        facts = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
        spent = time.perf_counter() - self.start, time.process_time() - self.cpu
        print(json.dumps([*spent, int(facts) / 1024]))
"""
"""`ru_maxrss` would do, but a child inherits its parent's."""

LOAD_PARQUET = """
from omnigraph import Graph
folder, schema, people, knows = sys.argv[1:]
with Graph.init(folder, schema) as graph, Measured():
    graph.load_tables(nodes={"Person": people}, edges={"Knows": knows}, mode="append")
"""
COPY_PARQUET = """
import kuzu
folder, people, knows = sys.argv[1:]
connection = kuzu.Connection(kuzu.Database(folder))
connection.execute("CREATE NODE TABLE Person(name STRING PRIMARY KEY, age INT32, city STRING)")
connection.execute("CREATE REL TABLE Knows(FROM Person TO Person, since INT32)")
with Measured():
    connection.execute(f"COPY Person FROM '{people}'")
    connection.execute(f"COPY Knows FROM '{knows}'")
    connection.execute("CHECKPOINT")
"""
UPSERT_ROWS = """
import pyarrow.parquet as pq
from omnigraph import Graph
folder, path = sys.argv[1:]
rows = pq.read_table(path)
graph = Graph.open(folder)
with Measured():
    graph.load_tables(nodes={"Person": rows}, mode="merge")
"""
MERGE_INSERT = """
import lance
import pyarrow.parquet as pq
folder, path = sys.argv[1:]
rows = pq.read_table(path)
merge = lance.dataset(folder).merge_insert("id")
merge.when_matched_update_all().when_not_matched_insert_all()
with Measured():
    merge.execute(rows.append_column("id", rows["name"]))
"""
LOAD_RECORDS = """
from omnigraph import Graph
folder, schema, path = sys.argv[1:]
with Graph.init(folder, schema, durability="process") as graph, Measured():
    graph.load(path, mode="append", engine="local")
"""


def parquet(root: Path, scale: float, rounds: int) -> None:
    """Both sides end with both directions of adjacency on disk."""
    count = int(1_000_000 * scale)
    person_path, knows_path = root / "person.parquet", root / "knows.parquet"
    pq.write_table(people(0, count), person_path)
    pq.write_table(knows(count, 10 * count), knows_path)
    files = str(person_path), str(knows_path)
    if not PEER_PYTHON.exists():
        print(f"parquet: left out, there is no {PEER_PYTHON.name}; `make bench-peers` installs it")
        return
    folders = Folders(root)
    runs: dict[str, list[Run]] = {"ours": [], "Kuzu": []}
    for _ in range(rounds):
        runs["ours"].append(
            child(sys.executable, LOAD_PARQUET, folders.new(), PLAIN_SCHEMA, *files)
        )
        runs["Kuzu"].append(child(str(PEER_PYTHON), COPY_PARQUET, folders.new(), *files))
    for what, unit, bar in (
        ("seconds", "s", 1.0),
        ("cpu_s", "s of processors", None),
        ("peak_mb", "MB", 1.5),
    ):
        mine, theirs = (
            statistics.median(getattr(run, what) for run in runs[name]) for name in runs
        )
        mark = "" if bar is None else f" (bar {bar}) {'ok' if mine <= bar * theirs else 'ABOVE'}"
        print(
            f"parquet: ours {mine:.1f} {unit}, Kuzu {theirs:.1f}, ratio {mine / theirs:.2f}{mark}"
        )


def memory(root: Path, scale: float, rounds: int) -> None:
    """The peak must follow the batch, not the file."""
    del rounds
    folders = Folders(root)
    peaks = []
    for records in (int(3_250_000 * scale), int(13_000_000 * scale)):
        path = root / f"{records}.jsonl"
        write_records(path, records)
        run = child(sys.executable, LOAD_RECORDS, folders.new(), SCHEMA, str(path))
        size = path.stat().st_size / 2**20
        peaks.append(run.peak_mb)
        print(f"memory: file {size:.0f} MB, peak {run.peak_mb:.0f} MB, {run.seconds:.0f} s")
        path.unlink()
    more = (peaks[1] - peaks[0]) * 2**20 / int(9_750_000 * scale)
    mark = "ok" if more <= MORE_BYTES_MAX else "ABOVE THE BAR"
    print(f"memory: {more:.1f} bytes more for every further record (bar {MORE_BYTES_MAX}) {mark}")


PARTS = {
    "mixed": mixed,
    "csv": csv,
    "upsert": upsert,
    "fresh": fresh,
    "partial": partial,
    "reload": reload,
    "parquet": parquet,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("parts", nargs="*", default=[])
    options = parser.parse_args()
    for name in options.parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](Path(folder), options.scale, options.rounds)


if __name__ == "__main__":
    main()
