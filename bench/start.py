"""From a new process to the first answer, in processor time: user and system, all threads.

    python -m bench start [--peers DIRECTORY]

A process that has read its files once before is measured `ROUNDS` times; the smallest number
counts, because other work on the machine only adds to it. `--peers` names a folder or a virtual
environment with ladybug, which opens a database of the same rows and answers the same question.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import omnigraph

ROUNDS = 7
SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
QUESTION = "match { $p: Person } return { $p.name }"
TYPES = 1_000

_LIBRARIES = (
    "from omnigraph.store.late_pandas import without_pandas\n"
    "with without_pandas():\n    import pyarrow, lance"
)
_OPEN = "import sys, omnigraph; graph = omnigraph.open(sys.argv[1], mode=sys.argv[2]); "
_ASK = "print(len(graph.query(sys.argv[3]))); graph.close()"
_LADYBUG = (
    "import sys, ladybug; connection = ladybug.Connection(ladybug.Database(sys.argv[1])); "
    "print(connection.execute('MATCH (p:Person) RETURN p.name').get_num_tuples())"
)
_LADYBUG_SETUP = (
    "import sys, ladybug; connection = ladybug.Connection(ladybug.Database(sys.argv[1])); "
    "connection.execute('CREATE NODE TABLE Person(name STRING, age INT32, PRIMARY KEY(name))'); "
    "[connection.execute(f\"CREATE (:Person {{name: 'p{n}', age: {n}}})\") for n in range(100)]"
)


def cost(command: list[str], env: Mapping[str, str]) -> float:
    """Return the seconds of processor time that a process takes."""
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
    after = os.times()
    return (
        after.children_user - before.children_user + after.children_system - before.children_system
    )


def environment() -> dict[str, str]:
    """Return the environment of a user: modules keep their bytecode."""
    found = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**found, "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "omnigraph-start")}


def make_graphs(folder: Path) -> tuple[str, str]:
    """Return a graph of a hundred people, and one of many types."""
    small, wide = folder / "small.omni", folder / "wide.omni"
    with omnigraph.init(small, SCHEMA) as graph:
        people = [{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(100)]
        graph.load(people, mode="append")
    types = [f"node T{n} {{ name: String @key  age: I32? }}" for n in range(TYPES)]
    omnigraph.init(wide, "\n".join([SCHEMA, *types])).close()
    return str(small), str(wide)


def commands(folder: Path, peers: Path | None) -> dict[str, list[str]]:
    """Return what is measured, by name."""
    small, wide = make_graphs(folder)
    python = [sys.executable, "-c"]
    asked = [sys.executable, "-m", "omnigraph", "query", small, "-e", QUESTION]
    found = {
        "`python -c pass`": [*python, "pass"],
        "`import pyarrow, lance` without pandas, which every graph needs": [*python, _LIBRARIES],
        "`omnigraph query`": asked,
        "open for reading, first answer": [*python, _OPEN + _ASK, small, "read_only", QUESTION],
        "open for writing, first answer": [*python, _OPEN + _ASK, small, "read_write", QUESTION],
        f"the same with {TYPES:,} types": [*python, _OPEN + _ASK, wide, "read_write", QUESTION],
    }
    if peers is not None:
        database = str(folder / "peer.db")
        subprocess.run([*python, _LADYBUG_SETUP, database], check=True, env=with_peers(peers))
        found["ladybug: open, first answer"] = [*python, _LADYBUG, database]
    return found


def with_peers(peers: Path | None) -> dict[str, str]:
    """Return the environment in which the peer can be imported."""
    if peers is None:
        return environment()
    packages = [*peers.glob("lib/python*/site-packages"), peers]
    path = os.pathsep.join([*map(str, packages), os.environ.get("PYTHONPATH", "")])
    return {**environment(), "PYTHONPATH": path}


def main() -> None:
    """Measure in turns, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", type=Path)
    peers = parser.parse_args().peers
    with tempfile.TemporaryDirectory() as name:
        measured = commands(Path(name), peers)
        costs: dict[str, list[float]] = {what: [] for what in measured}
        for number in range(ROUNDS + 1):
            for what, command in measured.items():
                took = cost(command, with_peers(peers) if "ladybug" in what else environment())
                if number:
                    costs[what].append(took)
    print("| from a new process | processor time, s |\n|---|---|")
    for what, found in costs.items():
        print(f"| {what} | {min(found):.2f} |")


if __name__ == "__main__":
    main()
