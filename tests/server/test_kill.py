"""A server that is killed under load loses nothing that it has acknowledged, and doubles nothing.

Each insert has a text of its own and no key, so a write that lands twice makes two rows. An insert
that returned is there once. One whose error says that the outcome is unknown, as that of a lost
answer does, is there once or not at all. One with any other error is not there.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx2
import pytest

from omnigraph.client import connect
from omnigraph.client.http import ServerUnreachableError
from omnigraph.errors import OmnigraphError, OutcomeUnknownError, UnavailableError
from omnigraph.graph import Graph
from omnigraph.wire.http_errors import ServerAnswerError
from support.served import ANSWER_MAX_S, ServedProcess, served_process

SCHEMA = "node Event { text: String }"
INSERT = "query add($text: String) { insert Event { text: $text } }"
READ = "query all() { match { $e: Event } return { $e.text } }"
WRITERS = 3
SLOW_MAX_S = 3600
KILLS = 100
PAUSE_MAX_S = 0.05
"""How far into a write a server is killed; a write takes some 20 ms."""
ACKNOWLEDGED_MAX = 12
"""After how many acknowledged writes a server is killed at most."""


@dataclass
class Outcomes:
    """What the writers were told about each text."""

    acknowledged: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    untyped: list[str] = field(default_factory=list)
    """Failures that no class of the library stands for."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "events.omni"
    Graph.init(root, SCHEMA).close()
    return root


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_server_loses_nothing(store: Path, workers: int) -> None:
    _kill_again_and_again(store, workers, rounds=3)


@pytest.mark.slow
@pytest.mark.timeout(SLOW_MAX_S)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_is_killed_a_hundred_times_loses_nothing(store: Path, workers: int) -> None:
    _kill_again_and_again(store, workers, rounds=KILLS)


def _kill_again_and_again(store: Path, workers: int, rounds: int) -> None:
    chance, outcomes = random.Random(workers), Outcomes()
    options = ("--unauthenticated", "--workers", str(workers))
    for number in range(rounds):
        with served_process(str(store), options=options) as server:
            _check(_texts(server), outcomes)
            stop = threading.Event()
            writers = [
                threading.Thread(target=_write, args=(server, stop, outcomes, f"{number}-{writer}"))
                for writer in range(WRITERS)
            ]
            for writer in writers:
                writer.start()
            wanted = len(outcomes.acknowledged) + chance.randint(0, ACKNOWLEDGED_MAX)
            _wait_for(outcomes, wanted, chance.uniform(0, PAUSE_MAX_S))
            _kill(server, with_workers=number % 2 == 0)
            stop.set()
            for writer in writers:
                writer.join(ANSWER_MAX_S)
                assert not writer.is_alive()
    _check_storage(store, outcomes)


def _wait_for(outcomes: Outcomes, acknowledged: int, pause_s: float) -> None:
    """Wait until so many writes are acknowledged, and a little into the next."""
    deadline = time.monotonic() + ANSWER_MAX_S
    while len(outcomes.acknowledged) < acknowledged:
        assert time.monotonic() < deadline, "the server acknowledges nothing"
        time.sleep(PAUSE_MAX_S / 10)
    time.sleep(pause_s)


def _kill(server: ServedProcess, *, with_workers: bool) -> None:
    """Kill the server; workers that are left finish what is in flight, and end."""
    pid = server.process.pid
    workers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(pid, signal.SIGKILL)
    for worker in workers if with_workers else ():
        with suppress(ProcessLookupError):
            os.kill(int(worker), signal.SIGKILL)


def _write(server: ServedProcess, stop: threading.Event, outcomes: Outcomes, name: str) -> None:
    """Insert one text after the other until the server is gone."""
    with connect(server.url, graph="events") as graph:
        for number in count():
            if stop.is_set():
                return
            text = f"{name}-{number}"
            try:
                graph.mutate(INSERT, params={"text": text})
            except ServerUnreachableError:
                outcomes.refused.add(text)
                return
            except (OutcomeUnknownError, UnavailableError):
                outcomes.unknown.add(text)
            except ServerAnswerError as error:
                outcomes.untyped.append(str(error))
            except OmnigraphError:
                outcomes.refused.add(text)
            else:
                outcomes.acknowledged.add(text)


def _texts(server: ServedProcess) -> list[str]:
    url = f"{server.url}/graphs/events/query"
    answer = httpx2.post(url, json={"query": READ}, timeout=ANSWER_MAX_S)
    assert answer.status_code == 200, answer.text
    return [row["e.text"] for row in answer.json()["rows"]]


def _check(found: list[str], outcomes: Outcomes) -> None:
    assert outcomes.untyped == []
    assert [text for text, times in Counter(found).items() if times > 1] == []
    present = set(found)
    assert outcomes.acknowledged - present == set()
    assert present & outcomes.refused == set()
    assert present - outcomes.acknowledged - outcomes.unknown == set()


def _check_storage(store: Path, outcomes: Outcomes) -> None:
    with Graph.open(store) as graph:
        found = [row["e.text"] for row in graph.query(READ).to_pylist()]
        _check(found, outcomes)
        assert outcomes.acknowledged, "no writer was quick enough: the test shows nothing"
        written = [one for one in graph.list_commits() if one.operation == "mutation"]
        assert len(written) == len(found)
        assert graph.recovery_status() == []
