"""Counts over paths, and patterns whose predicates leave few rows, against other engines.

    python -m bench paths [--rounds 7] [--people 100000] [--knows 2400000] [--items 2000000]
                          [--only WORK …] [--engines NAME …] [--peers FOLDER] [--folder FOLDER]

Every engine runs in a process of its own; each round asks every work of every engine once. Answers
are compared, and a difference ends the run. `--peers` names a folder in which the peers were
installed (`pip install --target FOLDER kuzu==0.11.3 ladybug duckdb`). Times are wall-clock and
processor time of the process; memory is what its largest resident size grew by.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
OURS = "omnigraph"
ENGINES = (OURS, "kuzu", "ladybug", "duckdb")
SEED = 20_261_116
SHOPS = 2_000
PRICES = 1_000
_SENTINEL = "@@"
_BUFFER_BYTES = 4 << 30

SCHEMA = """
node Person { pid: String @key  age: I32  city: String }
node Item { iid: String @key  title: String  price: I32 }
node Shop { sid: String @key  name: String }
edge Knows: Person -> Person { since: I32 }
edge SoldBy: Item -> Shop
"""
_HOPS = "$a: Person  $a knows $b  $b knows $c"
_BOUND = "$a: Person  $a $v:knows $b  $b $w:knows $c"
_KUZU_HOPS = "(a:Person)-[v:Knows]->(b:Person)-[w:Knows]->(c:Person)"
_SQL_HOPS = "knows v join knows w on v.dst = w.src"
_SQL_ENDS = "join person b on b.id = v.dst join person c on c.id = w.dst"
_SOLD = "$i: Item  $i soldBy $s"
_KUZU_SOLD = "(i:Item)-[:SoldBy]->(s:Shop)"
_SQL_SOLD = "item i join sold_by e on e.src = i.id join shop s on s.id = e.dst"
WORKS: dict[str, tuple[str, str, str, str]] = {
    "paths": (
        "count of all 2-hop paths",
        f"match {{ {_HOPS} }} return {{ count($c) as n }}",
        f"MATCH {_KUZU_HOPS} RETURN count(*)",
        f"select count(*) from {_SQL_HOPS}",
    ),
    "filtered": (
        "the same, filters on the middle and the end",
        f"match {{ {_HOPS}  $b.age > 30  $c.age < 60 }} return {{ count($c) as n }}",
        f"MATCH {_KUZU_HOPS} WHERE b.age > 30 AND c.age < 60 RETURN count(*)",
        f"select count(*) from {_SQL_HOPS} {_SQL_ENDS} where b.age > 30 and c.age < 60",
    ),
    "bound": (
        "all 2-hop paths, edge variables named",
        f"match {{ {_BOUND} }} return {{ count($c) as n }}",
        f"MATCH {_KUZU_HOPS} RETURN count(*)",
        f"select count(*) from {_SQL_HOPS}",
    ),
    "bound_filtered": (
        "the same, filters on the middle and the end",
        f"match {{ {_BOUND}  $b.age > 30  $c.age < 60 }} return {{ count($c) as n }}",
        f"MATCH {_KUZU_HOPS} WHERE b.age > 30 AND c.age < 60 RETURN count(*)",
        f"select count(*) from {_SQL_HOPS} {_SQL_ENDS} where b.age > 30 and c.age < 60",
    ),
    "far_text": (
        "text predicate on the small far end of a hop from 2M rows",
        f'match {{ {_SOLD}  $i.price = 7  $s.name contains "11" }} return {{ count($i) as n }}',
        f"MATCH {_KUZU_SOLD} WHERE i.price = 7 AND s.name CONTAINS '11' RETURN count(*)",
        f"select count(*) from {_SQL_SOLD} where i.price = 7 and contains(s.name, '11')",
    ),
    "far_text_only": (
        "the same without a predicate on the 2M rows",
        f'match {{ {_SOLD}  $s.name contains "199" }} return {{ sum($i.price) as n }}',
        f"MATCH {_KUZU_SOLD} WHERE s.name CONTAINS '199' RETURN sum(i.price)",
        f"select sum(i.price) from {_SQL_SOLD} where contains(s.name, '199')",
    ),
    "text_number": (
        "text and number predicate on 2M rows",
        'match { $i: Item  $i.title contains "42"  $i.price = 7 } return { count($i) as n }',
        "MATCH (i:Item) WHERE i.title CONTAINS '42' AND i.price = 7 RETURN count(*)",
        "select count(*) from item i where contains(i.title, '42') and i.price = 7",
    ),
    "few_to_far": (
        "few rows, counted by the far end of a hop",
        (
            f"match {{ {_SOLD}  $i.price = 7 }} return {{ $s.sid, count($i) as n }}"
            " order { n desc } limit 1"
        ),
        (
            f"MATCH {_KUZU_SOLD} WHERE i.price = 7 RETURN s.id, count(*) AS n"
            " ORDER BY n DESC, s.id LIMIT 1"
        ),
        (
            f"select s.id, count(*) as n from {_SQL_SOLD} where i.price = 7"
            " group by s.id order by n desc, s.id limit 1"
        ),
    ),
}


# -- data ------------------------------------------------------------------------------------------


def generate(folder: Path, asked: argparse.Namespace) -> None:
    """Write the tables, unless they are there."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    if (folder / "done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(SEED)
    people, items = asked.people, asked.items
    pairs = np.unique(random.integers(0, people * people, asked.knows * 101 // 100))
    pairs = random.permutation(pairs)[: asked.knows]
    persons, wares, shops = (
        _ids(letter, n) for letter, n in zip("pis", (people, items, SHOPS), strict=True)
    )
    tables = {
        "person": {
            "id": persons,
            "age": pa.array(random.integers(18, 80, people), pa.int32()),
            "city": [f"city{number:02d}" for number in random.integers(0, 50, people)],
        },
        "item": {
            "id": wares,
            "title": [f"title {number:09d}" for number in random.integers(0, 10**9, items)],
            "price": pa.array(random.integers(0, PRICES, items), pa.int32()),
        },
        "shop": {"id": shops, "name": [f"shop {number}" for number in range(SHOPS)]},
        "knows": {
            "src": persons.take(pa.array(pairs // people)),
            "dst": persons.take(pa.array(pairs % people)),
            "since": pa.array(random.integers(1990, 2026, len(pairs)), pa.int32()),
        },
        "sold_by": {"src": wares, "dst": shops.take(pa.array(random.integers(0, SHOPS, items)))},
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    (folder / "done").touch()


def _ids(letter: str, count: int) -> Any:
    import pyarrow as pa

    return pa.array([f"{letter}{number:08d}" for number in range(count)])


# -- engines ---------------------------------------------------------------------------------------


def open_ours(folder: Path) -> Callable[[str], Any]:
    import pyarrow.parquet as pq

    from omnigraph.graph import Graph, OpenMode

    place = folder / "db-omnigraph"
    if not place.exists():
        keys = {"Person": "pid", "Item": "iid", "Shop": "sid"}
        nodes = {name: pq.read_table(folder / f"{name.lower()}.parquet") for name in keys}
        with Graph.init(place, SCHEMA, durability="process") as graph:
            graph.load_tables(
                nodes={name: _renamed(table, keys[name]) for name, table in nodes.items()},
                edges={
                    "Knows": pq.read_table(folder / "knows.parquet"),
                    "SoldBy": pq.read_table(folder / "sold_by.parquet"),
                },
                mode="append",
            )
            graph.ensure_indices()
    graph = Graph.open(place, mode=OpenMode.READ_ONLY, durability="process")

    def ask(work: str) -> Any:
        found = graph.query(f"query q() {{ {WORKS[work][1]} }}")
        return [array[0].as_py() for array in found.arrays]

    return ask


def _renamed(table: Any, key: str) -> Any:
    return table.rename_columns([key if name == "id" else name for name in table.column_names])


def open_kuzu(folder: Path, library: str) -> Callable[[str], Any]:
    module = __import__(library)
    place = folder / f"db-{library}"
    is_new = not place.exists()
    connection = module.Connection(module.Database(str(place), buffer_pool_size=_BUFFER_BYTES))
    if is_new:
        for statement in (
            "CREATE NODE TABLE Person(id STRING PRIMARY KEY, age INT32, city STRING)",
            "CREATE NODE TABLE Item(id STRING PRIMARY KEY, title STRING, price INT32)",
            "CREATE NODE TABLE Shop(id STRING PRIMARY KEY, name STRING)",
            "CREATE REL TABLE Knows(FROM Person TO Person, since INT32)",
            "CREATE REL TABLE SoldBy(FROM Item TO Shop)",
        ):
            connection.execute(statement)
        for table in ("Person", "Item", "Shop", "Knows", "SoldBy"):
            file = "sold_by" if table == "SoldBy" else table.lower()
            connection.execute(f"COPY {table} FROM '{folder / file}.parquet'")
    return lambda work: connection.execute(WORKS[work][2]).get_all()[0]


def open_duckdb(folder: Path) -> Callable[[str], Any]:
    import duckdb

    place = folder / "db-duckdb"
    is_new = not place.exists()
    connection = duckdb.connect(str(place))
    if is_new:
        for table in ("person", "item", "shop", "knows", "sold_by"):
            connection.execute(f"create table {table} as select * from '{folder / table}.parquet'")
    return lambda work: list(connection.execute(WORKS[work][3]).fetchall()[0])


def opened(engine: str, folder: Path) -> Callable[[str], Any]:
    if engine == OURS:
        return open_ours(folder)
    return open_duckdb(folder) if engine == "duckdb" else open_kuzu(folder, engine)


def serve(engine: str, folder: Path) -> None:
    """Answer works that are named on the input, one line of JSON each."""
    ask = opened(engine, folder)
    print(_SENTINEL, "{}", flush=True)
    for line in sys.stdin:
        before = _peak_mib()
        began, began_cpu = time.perf_counter(), time.process_time()
        try:
            answer = [float(v) if not isinstance(v, str) else v for v in ask(line.strip())]
        except Exception as error:  # noqa: BLE001 - an engine that cannot answer is left out
            answer = [f"error: {error}"]
        facts = {
            "ms": (time.perf_counter() - began) * 1e3,
            "cpu_ms": (time.process_time() - began_cpu) * 1e3,
            "mib": _peak_mib() - before,
            "answer": answer,
        }
        print(_SENTINEL, json.dumps(facts), flush=True)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Worker:
    """A process that serves one engine."""

    def __init__(self, engine: str, folder: Path, peers: Path) -> None:
        path = str(HERE) if engine == OURS else f"{HERE}{os.pathsep}{peers}"
        known = os.environ.get("PYTHONPATH", "")
        environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{known}"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.paths", "--serve", engine, "--folder", str(folder)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def ask(self, work: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{work}\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_SENTINEL):
                found: dict[str, Any] = json.loads(line[len(_SENTINEL) :])
                return found
        raise SystemExit(f"{self._process.args} ended without an answer")


# -- the command -----------------------------------------------------------------------------------


def measure(asked: argparse.Namespace) -> dict[tuple[str, str], list[dict[str, Any]]]:
    workers = {name: Worker(name, asked.folder, asked.peers) for name in asked.engines}
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _ in range(asked.rounds + 1):
        for work in asked.only:
            answers = {}
            for name, worker in workers.items():
                facts = worker.ask(work)
                print(work, name, f"{facts['ms']:.0f} ms", file=sys.stderr)
                found.setdefault((work, name), []).append(facts)
                answers[name] = facts["answer"]
            if len({json.dumps(answer) for answer in answers.values()}) > 1:
                raise SystemExit(f"the engines disagree about {work}: {answers}")
    for worker in workers.values():
        worker.close()
    return found


def print_table(
    found: dict[tuple[str, str], list[dict[str, Any]]], asked: argparse.Namespace
) -> None:
    names = asked.engines
    print("| p50 ms (processor time) |", " | ".join(names), "| of the best peer | peak MiB |")
    print("|---" * (len(names) + 3) + "|")
    for work in asked.only:
        wall, cpu = (
            {n: statistics.median(f[unit] for f in found[work, n][1:]) for n in names}
            for unit in ("ms", "cpu_ms")
        )
        cells = [f"{wall[n]:.3g} ({cpu[n]:.3g})" for n in names]
        best = min((wall[n] for n in names if n != OURS), default=wall[OURS])
        mib = max(facts["mib"] for facts in found[work, OURS])
        ratio = wall[OURS] / best
        print(f"| {WORKS[work][0]} |", " | ".join(cells), f"| {ratio:.2f} | {mib:.0f} |")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench paths")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--knows", type=int, default=2_400_000)
    parser.add_argument("--items", type=int, default=2_000_000)
    parser.add_argument("--only", nargs="*", default=list(WORKS), choices=tuple(WORKS))
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--peers", type=Path, default=HERE / ".peers")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "omnigraph-bench-paths"
    )
    parser.add_argument("--serve", choices=ENGINES, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Print the table."""
    asked = options()
    if asked.serve:
        serve(asked.serve, asked.folder)
        return
    generate(asked.folder, asked)
    print_table(measure(asked), asked)


if __name__ == "__main__":
    main()
