"""SIGKILL at random moments of a random workload: every acknowledged operation is there, the one in
flight is there wholly or not at all, and everything that recovery promises holds.

`--kills` says how many; `--seed` repeats one episode until it has had so many.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from crash.episode import KILLS_PER_EPISODE, Durations, Episode
from crash.nursery import Nursery
from support.places import Place
from support.s3 import S3Server

KILLS_LOCAL = 500
KILLS_S3 = 60
PARTS = 2
"""The long run is cut into parts, for machines with several processors."""


def run_episodes(
    config: pytest.Config,
    nursery: Nursery,
    kills: int,
    place_of: Callable[[int], Place],
    *,
    clear: Callable[[Place], None],
) -> None:
    given: str | None = config.getoption("--seed")
    left = config.getoption("--kills") or kills
    durations = Durations()
    number = 0
    while left > 0:
        seed = given or secrets.token_hex(4)
        place = place_of(number)
        episode = Episode(seed, place, nursery, durations, partial(clear, place))
        try:
            episode.run(min(left, KILLS_PER_EPISODE))
        except BaseException as error:
            test = "on_s3" if "://" in place.uri else "quick"
            error.add_note(
                f"kill {episode.kills} of seed {seed}, graph {place.uri}; replay:\n"
                f"python -m pytest tests/crash/test_kills.py -m '' -k {test}"
                f" --seed {seed} --kills 100"
            )
            raise
        left -= episode.kills
        number += 1


def run_local(config: pytest.Config, nursery: Nursery, kills: int, folder: Path) -> None:
    def place_of(number: int) -> Place:
        shutil.rmtree(folder / f"graph{number - 1}", ignore_errors=True)
        return Place(str(folder / f"graph{number}"))

    run_episodes(config, nursery, kills, place_of, clear=lambda _: None)


def test_killed_children_lose_nothing_quick(
    pytestconfig: pytest.Config, nursery: Nursery, tmp_path: Path
) -> None:
    run_local(pytestconfig, nursery, 6, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("part", range(PARTS))
def test_hundreds_of_killed_children_lose_nothing(
    pytestconfig: pytest.Config, nursery: Nursery, tmp_path: Path, part: int
) -> None:
    run_local(pytestconfig, nursery, KILLS_LOCAL // PARTS, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_killed_children_lose_nothing_on_s3(
    pytestconfig: pytest.Config, nursery: Nursery, s3: S3Server
) -> None:
    prefix = secrets.token_hex(4)

    def place_of(number: int) -> Place:
        return Place(f"s3://{s3.bucket}/kills-{prefix}/{number}", s3.options)

    def clear(place: Place) -> None:
        # The lease of a dead process would make the next one wait for ten seconds.
        place.store().objects.delete_prefix("__leases")

    run_episodes(pytestconfig, nursery, KILLS_S3, place_of, clear=clear)
