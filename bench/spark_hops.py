"""Two hops in a new process, after a load on Spark and after the same load in process.

    .venv/bin/python -m bench spark_hops [--size XS|S|M] [--rounds 3]

| work | peer | bar |
|---|---|---|
| median of 50 two-hop queries in a new process, after a load on Spark | … in process | 2.0 |
| the load on Spark with the topology that it leaves | the same load without it | 1.3 |

Rounds of both sides take turns; of the loads, one round does not count.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.data import SIZES
from bench.spark_load import SCHEMA, write_inputs
from omnigraph.engine import register
from omnigraph.graph import Graph
from omnigraph.spark import get_spark
from omnigraph.spark.engine import SparkEngine
from omnigraph.spark.load.workers import Tuning

_HOPS = """
import statistics, sys, time
from omnigraph.graph import Graph
query = '''query hop($p: String) {
    match { $a: Person { id_: $p } $a knows $b $b knows $c } return { count(distinct $c) as n } }'''
graph = Graph.open(sys.argv[1])
times = []
for number in range(50):
    start = time.perf_counter()
    graph.query(query, params={"p": f"p{number * 7}"})
    times.append(time.perf_counter() - start)
print(statistics.median(times) * 1000)
"""


def _data(folder: Path) -> dict[str, str]:
    return {"Person": str(folder / "person.parquet"), "Knows": str(folder / "knows.parquet")}


def _fresh(place: Path) -> Graph:
    shutil.rmtree(place, ignore_errors=True)
    return Graph.init(str(place), SCHEMA, durability="process", auto_optimize=False)


def _load_seconds(folder: Path, *, leaves_topologies: bool) -> float:
    register(SparkEngine(Tuning(leaves_topologies=leaves_topologies)))
    with _fresh(folder / "spark") as graph:
        start = time.perf_counter()
        graph.load(_data(folder), mode="append", engine="spark", spark=get_spark())
        return time.perf_counter() - start


def _hop_ms(place: Path) -> float:
    command = [sys.executable, "-c", _HOPS, str(place)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _row(work: str, own: list[float], other: list[float], bar: float) -> str:
    ours, peer = statistics.median(own), statistics.median(other)
    return f"| {work} | {ours:.2f} | {peer:.2f} | {ours / peer:.2f} | {bar} |"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="S", choices=sorted(SIZES))
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as name:
        folder = Path(name)
        write_inputs(folder, asked.size)
        get_spark(master="local[2]")
        loads: dict[bool, list[float]] = {True: [], False: []}
        for number in range(asked.rounds + 1):
            for leaves in (False, True):
                seconds = _load_seconds(folder, leaves_topologies=leaves)
                loads[leaves] += [seconds] if number else []
        with _fresh(folder / "local") as graph:
            graph.load(_data(folder), mode="append", engine="local")
        hops = [(_hop_ms(folder / "spark"), _hop_ms(folder / "local")) for _ in range(asked.rounds)]
        own, other = (list(times) for times in zip(*hops, strict=True))
        print("| work | ours | peer | ratio | bar |")
        print("|---|---|---|---|---|")
        print(_row("two hops in a new process, ms", own, other, 2.0))
        print(_row("load on Spark, s", loads[True], loads[False], 1.3))
        get_spark().stop()


if __name__ == "__main__":
    main()
