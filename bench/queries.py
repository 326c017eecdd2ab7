"""Reads against other engines, on the same rows in the same run.

    python -m bench queries [--size S] [--rounds 3] [--only WORK …] [--engines NAME …]
                            [--peer-python PYTHON] [--folder FOLDER]

Every engine runs in a process of its own, all stay open, and take locks: each round asks every
work of every engine once, for all fifty inputs. `make bench-peers` makes an environment with the
peers; `--peer-python` names its interpreter. A peer that cannot be imported there is left out.
Data and databases are made once per size and kept in the folder.

All engines must agree on the rows, by a checksum; a difference ends the run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers.dataset import Data, generate
from bench.peers.ours import BYTES_PER_STEP, RECALL
from bench.peers.worker import SENTINEL

HERE = Path(__file__).parents[1]
PEER_PYTHON = HERE / ".venv-peers" / "bin" / "python"
OURS, UNCACHED = "omnigraph", "omnigraph, nothing kept"
_NO_COLUMNS = {"OMNIGRAPH_READ_COLUMNS_MIB": "0"}
_COLD_ROUNDS = 5


@dataclass(frozen=True)
class Runner:
    """How an engine is started."""

    name: str
    module: str
    is_peer: bool = True
    environment: dict[str, str] = field(default_factory=dict)
    """Beside what the benchmark itself was started with."""


RUNNERS = (
    Runner(OURS, "ours", is_peer=False),
    Runner(UNCACHED, "ours", is_peer=False, environment=_NO_COLUMNS),
    Runner("kuzu", "kuzu"),
    Runner("ladybug", "ladybug"),
    Runner("duckdb", "duckdb"),
    Runner("sqlite", "sqlite"),
    Runner("pylance", "raw_lance", is_peer=False),
    Runner("numpy", "numpy_csr", is_peer=False),
)


@dataclass(frozen=True)
class Goal:
    """A bar of the issue: ours at one quantile, as a share of an engine's."""

    work: str
    against: str
    quantile: float
    ratio: float
    ours: str = OURS


WORKS = {
    "point": "point lookup",
    "two_hop": "2-hop distinct",
    "three_hop": "3-hop distinct count",
    "reach": "reach 1..4",
    "friend_age": "age of friends by city",
    "top20": "friend count, top 20",
    "nobody": "know nobody",
    "city_age": "age by city",
    "vector": "vector top 10 with filter",
    "bm25": "bm25 top 10",
}
GOALS = (
    Goal("point", "pylance", 0.5, 1.2, UNCACHED),
    Goal("two_hop", "ladybug", 0.5, 1.0),
    Goal("two_hop", "ladybug", 0.95, 0.5),
    Goal("three_hop", "ladybug", 0.5, 1.0),
    Goal("three_hop", "ladybug", 0.95, 0.3),
    Goal("reach", "kuzu", 0.5, 0.7),
    Goal("friend_age", "kuzu", 0.5, 0.5),
    Goal("top20", "kuzu", 0.5, 0.3),
    Goal("nobody", "kuzu", 0.5, 0.1),
    Goal("city_age", "duckdb", 0.5, 3.0),
    Goal("vector", "pylance", 0.5, 1.3),
    Goal("bm25", "pylance", 0.5, 1.3),
)
COLD_GOAL = 3.0
WARM_POINT_MS = 0.3
BYTES_PER_STEP_MAX = 12.0
RECALL_MIN = 0.95

Times = dict[tuple[str, str], list[float]]
"""Milliseconds by engine and work."""


class Worker:
    """A process that serves one engine."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.works: list[str] = _answer(process)["works"]

    def ask(self, name: str) -> dict[str, Any]:
        """Run one work for all of its inputs."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        return _answer(self._process)


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(SENTINEL):
            found: dict[str, Any] = json.loads(line[len(SENTINEL) :])
            return found
    raise SystemExit(f"{process.args} ended without an answer")


@dataclass(frozen=True)
class Bench:
    """One run of the benchmark."""

    root: Path
    data: Data
    peer_python: Path
    rounds: int

    def command(self, runner: Runner, action: str) -> list[str]:
        python = str(self.peer_python) if runner.is_peer else sys.executable
        arguments = [runner.module, str(self.root), self.data.size, action]
        return [python, "-m", "bench.peers.worker", *arguments]

    def run(self, runner: Runner, action: str) -> dict[str, Any]:
        """Run a process to its end and return what it said."""
        done = subprocess.run(
            self.command(runner, action),
            cwd=HERE,
            env={**os.environ, **runner.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith(SENTINEL)]
        if done.returncode or not lines:
            raise SystemExit(f"{runner.name}: {action} failed\n{done.stderr}")
        found: dict[str, Any] = json.loads(lines[-1][len(SENTINEL) :])
        return found

    @contextmanager
    def served(self, runner: Runner) -> Iterator[Worker]:
        process = subprocess.Popen(
            self.command(runner, "serve"),
            cwd=HERE,
            env={**os.environ, **runner.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            yield Worker(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()

    def build(self, runner: Runner) -> None:
        """Make an engine's database, unless it is there."""
        place = self.root / "databases" / f"{_database(runner)}-{self.data.size}"
        if (place / "done").exists():
            return
        shutil.rmtree(place, ignore_errors=True)
        made = self.run(runner, "build")
        print(f"made the database of {runner.name} in {made['seconds']:.1f} s", file=sys.stderr)


def _database(runner: Runner) -> str:
    return {"raw_lance": "pylance", "numpy_csr": "numpy", "ours": OURS}.get(
        runner.module, runner.module
    )


def is_installed(bench: Bench, runner: Runner) -> bool:
    """Whether an engine can be imported where it would run; says so when it cannot."""
    if not runner.is_peer or runner.module == "sqlite":
        return True
    python = bench.peer_python
    if python.exists():
        tried = subprocess.run([str(python), "-c", f"import {runner.module}"], check=False)
        if tried.returncode == 0:
            return True
    print(f"{runner.name} is left out: {python} cannot import it; see `make bench-peers`.")
    return False


def measure(
    bench: Bench, runners: Iterable[Runner], only: set[str]
) -> tuple[Times, dict[str, dict[str, float]]]:
    """Ask everything of everybody, in locks."""
    times: Times = {}
    checks: dict[str, dict[str, int]] = {}
    with ExitStack() as open_workers:
        workers = {
            runner.name: open_workers.enter_context(bench.served(runner)) for runner in runners
        }
        for number in range(bench.rounds + 1):
            for work in [name for name in WORKS if not only or name in only]:
                for name, worker in workers.items():
                    if work not in worker.works:
                        continue
                    found = worker.ask(work)
                    checks.setdefault(work, {})[name] = found["check"]
                    # The first round fills caches, of us and of everybody else.
                    if number:
                        times.setdefault((name, work), []).extend(found["times"])
        facts = {name: workers[name].ask("facts") for name in (OURS, "pylance") if name in workers}
    _compare(checks)
    return times, facts


_APPROXIMATE = ("vector",)


def _compare(checks: dict[str, dict[str, int]]) -> None:
    for work, found in checks.items():
        if work not in _APPROXIMATE and len(set(found.values())) > 1:
            raise SystemExit(f"the engines disagree about {WORKS[work]}: {found}")


def measure_cold(bench: Bench, runners: Iterable[Runner]) -> dict[str, tuple[float, float]]:
    """Open and answer one question in fresh processes: seconds, and those of the import."""
    found: dict[str, list[dict[str, Any]]] = {}
    cold = [runner for runner in runners if runner.module != "numpy_csr"]
    for _ in range(_COLD_ROUNDS):
        for runner in cold:
            found.setdefault(runner.name, []).append(bench.run(runner, "cold"))
    return {
        name: (
            statistics.median(one["seconds"] for one in runs),
            statistics.median(one["imported_s"] for one in runs),
        )
        for name, runs in found.items()
    }


def at_quantile(values: list[float], quantile: float) -> float:
    """Return a quantile by the nearest rank.

    >>> at_quantile([1.0, 2.0, 30.0], 0.5)
    2.0
    """
    ranked = sorted(values)
    return ranked[min(round(quantile * (len(ranked) - 1)), len(ranked) - 1)]


# -- tables ----------------------------------------------------------------------------------------


def print_times(times: Times, names: list[str]) -> None:
    print("| p50 / p95, ms |", " | ".join(names), "|")
    print("|---" * (len(names) + 1) + "|")
    for work, title in WORKS.items():
        cells = [_cell(times.get((name, work))) for name in names]
        if any(cells):
            print(f"| {title} |", " | ".join(cells), "|")


def _cell(values: list[float] | None) -> str:
    if not values:
        return ""
    return f"{at_quantile(values, 0.5):.3g} / {at_quantile(values, 0.95):.3g}"


def print_goals(times: Times) -> None:
    print("\n| goal | ours, ms | theirs, ms | ratio | bar | |\n|---|---|---|---|---|---|")
    for goal in GOALS:
        ours, theirs = times.get((goal.ours, goal.work)), times.get((goal.against, goal.work))
        if ours and theirs:
            mine, other = (at_quantile(values, goal.quantile) for values in (ours, theirs))
            title = f"{WORKS[goal.work]}, p{goal.quantile * 100:.0f}, {goal.against}"
            _print_goal(title, mine, other, goal.ratio)
    warm = times.get((OURS, "point"))
    if warm:
        _print_bound("point lookup, key resident, ms", at_quantile(warm, 0.5), WARM_POINT_MS)


def _print_goal(title: str, mine: float, other: float, bar: float) -> None:
    ratio = mine / other
    print(f"| {title} | {mine:.3g} | {other:.3g} | {ratio:.2f} | {bar} | {_mark(ratio, bar)} |")


def _print_bound(title: str, value: float, bound: float) -> None:
    print(f"| {title} | {value:.3g} | | | {bound} | {_mark(value, bound)} |")


def _mark(value: float, bar: float) -> str:
    return "" if value <= bar else "above"


def print_cold(cold: dict[str, tuple[float, float]]) -> None:
    print("\n| cold | open and 2-hop, s | import, s |\n|---|---|---|")
    for name, (seconds, imported_s) in cold.items():
        print(f"| {name} | {seconds:.3f} | {imported_s:.3f} |")
    if OURS in cold and "ladybug" in cold:
        ratio = cold[OURS][0] / cold["ladybug"][0]
        print(f"\nCold, against ladybug: {ratio:.2f} (bar {COLD_GOAL}) {_mark(ratio, COLD_GOAL)}")


def print_facts(facts: dict[str, dict[str, float]]) -> None:
    bounds = {BYTES_PER_STEP: f"at most {BYTES_PER_STEP_MAX}", RECALL: f"at least {RECALL_MIN}"}
    for engine, found in facts.items():
        for name, value in found.items():
            print(f"- {engine}: {name} {value:.3f} (bar: {bounds[name]})")


# -- the command -----------------------------------------------------------------------------------


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench queries")
    parser.add_argument("--size", default="S", choices=("XS", "S", "M"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], choices=tuple(WORKS))
    parser.add_argument("--engines", nargs="*", default=[], help="names; all when left out")
    parser.add_argument("--peer-python", type=Path, default=PEER_PYTHON)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "omnigraph-bench"
    )
    parser.add_argument("--no-cold", action="store_true", help="leave fresh processes out")
    return parser.parse_args()


def main() -> None:
    """Print the tables of one size."""
    asked = options()
    began = time.monotonic()
    data = generate(asked.folder, asked.size)
    bench = Bench(asked.folder, data, asked.peer_python, asked.rounds)
    runners = [
        runner
        for runner in RUNNERS
        if (not asked.engines or runner.name in asked.engines) and is_installed(bench, runner)
    ]
    for runner in runners:
        bench.build(runner)
    times, facts = measure(bench, runners, set(asked.only))
    print(f"\nSize {asked.size}, {asked.rounds} rounds\n")
    print_times(times, [runner.name for runner in runners])
    print_goals(times)
    if not asked.no_cold:
        print_cold(measure_cold(bench, runners))
    print_facts(facts)
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
