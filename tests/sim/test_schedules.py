"""Several handles of one graph under schedules that are drawn from seeds.

`--seed` repeats one schedule, exactly. `--schedules` says how many there are in each test.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.errors import CorruptError
from omnigraph.manifest import fence
from omnigraph.manifest.state import CorruptManifestError
from omnigraph.store.lance.opener import LanceOpener
from omnigraph.store.lance.store import LanceStore
from sim.model import WrongError
from sim.schedule import Schedule, Template
from support.fences import without_looking_for_gaps

QUICK = 40
MANY = 2_000
CHUNKS = 40
"""The long run is cut into parts, for machines with several processors."""


def play(seed: str, template: Template, folder: Path) -> Schedule:
    """Run one schedule; a failure says how to repeat it."""
    root = folder / "graph"
    shutil.rmtree(root, ignore_errors=True)
    schedule = Schedule(seed, template, root)
    try:
        schedule.run()
    except BaseException as error:
        error.add_note(
            f"seed {seed}; replay:\npython -m pytest tests/sim -k model_quick --seed {seed}"
        )
        raise
    return schedule


def play_all(config: pytest.Config, template: Template, folder: Path, seeds: list[str]) -> None:
    given: str | None = config.getoption("--seed")
    count: int | None = config.getoption("--schedules")
    for seed in [given] if given else seeds[:count]:
        play(seed, template, folder)


def test_handles_agree_with_the_model_quick(
    pytestconfig: pytest.Config, template: Template, folder: Path
) -> None:
    play_all(pytestconfig, template, folder, [f"quick{number}" for number in range(QUICK)])


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_handles_agree_with_the_model_in_thousands_of_schedules(
    pytestconfig: pytest.Config, template: Template, folder: Path, chunk: int
) -> None:
    seeds = [secrets.token_hex(4) for _ in range(MANY // CHUNKS)]
    play_all(pytestconfig, template, folder, seeds)


_TRACE = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from sim.test_schedules import print_trace
print_trace(sys.argv[2])
"""


def print_trace(seed: str) -> None:
    """Run a schedule in a process of its own and print what happened."""
    import contextlib
    import logging
    import tempfile

    from sim.life import cached_property_locks

    logging.disable(logging.ERROR)
    for attribute in cached_property_locks():
        attribute.lock = contextlib.nullcontext()  # type: ignore[attr-defined]  # Python 3.11
    with tempfile.TemporaryDirectory() as name:
        template = Template.made(Path(name))
        schedule = Schedule(seed, template, Path(name) / "graph")
        schedule.run()
    sys.stdout.write("\n".join(schedule.trace))


@pytest.mark.parametrize("seed", ["quick0", "quick1"])
def test_a_seed_gives_the_same_schedule_in_every_process(seed: str) -> None:
    traces = []
    for hash_seed in ("1", "2"):
        environment = dict(os.environ) | {
            "PYTHONHASHSEED": hash_seed,
            "OMNIGRAPH_MAINTENANCE_CONCURRENCY": "1",
        }
        told = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _TRACE, json.dumps(sys.path), seed],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        traces.append(told.stdout.splitlines())
    assert len(traces[0]) > 500
    assert traces[0] == traces[1]


# -- the suite has teeth ---------------------------------------------------------------------------


@pytest.fixture
def looks_that_gaps_fool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the newest version by climbing from a known one, whatever was removed since."""
    inner = LanceOpener._stamp_ns

    def stamp_ns(self: LanceOpener, location: str, branch: str | None) -> int | None:
        return None if inner(self, location, branch) is None else 1

    monkeypatch.setattr(LanceOpener, "_stamp_ns", stamp_ns)


@pytest.fixture
def publishes_without_fence(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Publish as releases did that knew no fence, and did not look for removed versions."""
    inner = LanceStore.stage_update

    def stage_update(self: LanceStore, *args: object, **options: object) -> object:
        return inner(self, *args, **{**options, "fence": None})  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(LanceStore, "stage_update", stage_update)
    monkeypatch.setattr(fence, "_require_sound", lambda *args, **options: None)
    with without_looking_for_gaps():
        yield


def is_found(
    template: Template, folder: Path, *, cause: type[BaseException] | None, schedules_max: int
) -> bool:
    """Whether one of the schedules fails, for this reason if there is one."""
    for number in range(schedules_max):
        try:
            play(f"quick{number}", template, folder)
        except WrongError as error:
            if cause is None or isinstance(error.__cause__, cause):
                return True
    return False


@pytest.mark.usefixtures("looks_that_gaps_fool")
def test_a_look_that_gaps_fool_is_found(template: Template, folder: Path) -> None:
    assert is_found(template, folder, cause=None, schedules_max=QUICK)


@pytest.mark.usefixtures("looks_that_gaps_fool", "publishes_without_fence")
def test_a_graph_that_nobody_can_read_is_found(template: Template, folder: Path) -> None:
    assert is_found(template, folder, cause=CorruptError, schedules_max=2 * QUICK)


@pytest.mark.slow
@pytest.mark.usefixtures("looks_that_gaps_fool", "publishes_without_fence")
def test_a_second_head_row_is_found(template: Template, folder: Path) -> None:
    assert is_found(template, folder, cause=CorruptManifestError, schedules_max=10 * QUICK)


@pytest.mark.slow
@pytest.mark.usefixtures("publishes_without_fence")
def test_a_late_publish_without_a_fence_is_found(template: Template, folder: Path) -> None:
    assert is_found(template, folder, cause=CorruptError, schedules_max=20 * QUICK)
