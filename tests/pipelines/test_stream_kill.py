"""A stream whose processes are killed at random moments: the graph is that of the model.

One process runs the stream; files arrive all the time. In every round one of three is killed while
a micro-batch is running: the driver, the JVM of Spark, or a Python worker. The driver starts the
stream again, or is started again. Rows are appended, so a micro-batch that was loaded twice would
be an error, and one that was lost would be missing. The number of commits is that of micro-batches.

`--kills N` says how many rounds each test plays, `--seed` repeats their moments.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.pipelines.record import read_record
from support.pipelines import Place

ROUNDS = 6
WAIT_S = 240
"""So long a driver may take for anything, on a machine that does other work too."""
MOMENT_MAX_S = 3.0
VICTIMS = [*["worker"] * 4, "driver", "jvm"]
"""A driver and a JVM take long to start again."""

_DRIVER = """\
import sys
from omnigraph.pipelines import Pipeline
from omnigraph.spark import get_spark

def say(text):
    print(text, flush=True)

spark = get_spark(master="local[2]")
pipeline = Pipeline.load(sys.argv[1])
say("started")
while True:
    run = pipeline.run(
        spark=spark,
        report=say,
        on_batch=lambda batch: say(f"ended {batch.batch.number} {batch.state}"),
        takes_signals=True,
    )
    say(f"stream {run.state} {run.error}")
    if run.state in ("succeeded", "nothing_new"):
        sys.exit(0)
    try:
        spark.range(1).count()
    except Exception:
        sys.exit(3)
"""
TEXT = """\
trigger: {every: 0s}
sources:
  people:
    format: parquet
    path: in
    schema: name STRING, age BIGINT
    options: {maxFilesPerTrigger: 1}
load: [{node: Person, from: people, mode: append, map: {name: name, age: age}}]
"""


class Driver:
    """The process that runs the stream, and its own processes."""

    def __init__(self, path: Path, log: Path) -> None:
        self._path = path
        self._log = log
        self._read = 0
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-c", _DRIVER, str(self._path)], stdout=out, stderr=out
            )

    def restart_if_dead(self) -> None:
        if self._process.poll() is not None:
            self._process = self._start()

    def lines(self) -> list[str]:
        """Return what it has said since the last call."""
        said = self._log.read_text(errors="replace").splitlines()
        new, self._read = said[self._read :], len(said)
        return new

    def await_line(self, start: str) -> None:
        """Wait until it says something; a driver that has died is started again."""
        until = time.monotonic() + WAIT_S
        while not any(line.startswith(start) for line in self.lines()):
            assert time.monotonic() < until, self._log.read_text(errors="replace")[-5_000:]
            self.restart_if_dead()
            time.sleep(0.02)

    def kill(self, victim: str) -> str:
        """Kill a process at this moment; return which one there was to kill."""
        java = next(iter(children(self._process.pid)), None)
        workers = [
            worker
            for daemon in ([] if java is None else children(java))
            for worker in (children(daemon) or [daemon])
        ]
        if victim == "worker" and workers:
            kill(workers[-1])
            return victim
        if victim == "jvm" and java is not None:
            kill(java)
            self._process.wait(WAIT_S)
            return victim
        kill(self._process.pid)
        self._process.wait(WAIT_S)
        # A JVM ends when its driver does; it must be gone before another one uses the checkpoint.
        while java is not None and Path(f"/proc/{java}").exists():
            time.sleep(0.02)
        return "driver"

    def note(self, text: str) -> None:
        """Add a line to its log, for whoever reads it."""
        with self._log.open("a") as log:
            log.write(f"{text}\n")

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(WAIT_S)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    with suppress(OSError):
        found = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        return sorted(int(child) for part in found for child in part)
    return []


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def driver(place: Place, publish: str) -> Iterator[Driver]:
    (place.folder / "in").mkdir()
    found = Driver(place.write(TEXT, publish), place.folder / "driver.log")
    yield found
    found.close()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("publish", ["direct", "merge"])
def test_a_killed_stream_loses_and_repeats_nothing(
    place: Place, driver: Driver, publish: str, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--seed") or f"stream-{publish}"
    rounds = request.config.getoption("--kills") or ROUNDS
    chance = random.Random(seed)
    model: dict[str, int | None] = {}
    files = 0
    killed: list[str] = []
    for _ in range(rounds):
        for _ in range(chance.randint(1, 2)):
            names = [f"p{files}-{number}" for number in range(chance.randint(0, 50))]
            model |= dict.fromkeys(names, files)
            _arrive(place.folder, files, names)
            files += 1
        driver.await_line("micro-batch")
        time.sleep(chance.uniform(0, MOMENT_MAX_S))
        killed.append(driver.kill(chance.choice(VICTIMS)))
        driver.note(f"killed {killed[-1]}")
        driver.restart_if_dead()
    while len(place.people()) < len(model):
        driver.await_line("ended")
    assert driver.stop() == 0
    assert place.people() == model, killed
    assert _numbers(place) == list(range(_batches(place))), killed
    # A run that failed is in the history by its branch.
    left = [name for name in place.graph.branches.list() if name != "main"]
    assert all(name.startswith("pipeline/social/") for name in left), left


def _arrive(folder: Path, number: int, names: list[str]) -> None:
    table = pa.table({"name": pa.array(names, pa.utf8()), "age": [number] * len(names)})
    hidden = folder / f"in/.{number}"
    pq.write_table(table.set_column(1, "age", table["age"].cast(pa.int64())), hidden)
    hidden.rename(folder / f"in/{number}.parquet")


def _batches(place: Place) -> int:
    """Return how many micro-batches Spark has made; after a kill one may have several files."""
    offsets = place.folder / "graph.omni.checkpoints/social/main/offsets"
    return 1 + max(int(path.name) for path in offsets.iterdir() if path.name.isdigit())


def _numbers(place: Place) -> list[int]:
    """Return the micro-batches in the commits, oldest first."""
    runs = [read_record(commit.properties) for commit in reversed(place.graph.commits.list())]
    return [run.batch.number for run in runs if run is not None and run.batch is not None]
