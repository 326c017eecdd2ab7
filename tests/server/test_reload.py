"""SIGHUP lets a running server read its files again, and does not end it."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx2
import pytest

from omnigraph.graph import Graph
from support.served import ANSWER_MAX_S, ServedProcess, served_process, wait_until

READ = "query all() { match { $p: Person } return { $p.name } }"
AGAIN = "read again"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_hangup_reads_files_again_in_every_worker(tmp_path: Path, workers: int) -> None:
    Graph.init(tmp_path / "people.omni", "node Person { name: String @key }").close()
    queries = tmp_path / "queries.gq"
    queries.write_text(READ)
    options = ("--unauthenticated", "--workers", str(workers), "--queries", str(queries))
    with served_process(str(tmp_path / "people.omni"), options=options) as server:
        assert _status(server, "all") == 200
        assert _reloads(server) == 0
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: _reloads(server) == workers)
        # Without a signal too: the files are looked at.
        queries.write_text(READ.replace("all", "renamed"))
        wait_until(lambda: _reloads(server) == 2 * workers)
        assert {_status(server, "all") for _ in range(4 * workers)} == {404}
        assert {_status(server, "renamed") for _ in range(4 * workers)} == {200}
        queries.write_text("query (")
        wait_until(lambda: sum("stay as they were" in line for line in _log(server)) == workers)
        assert _status(server, "renamed") == 200
        assert server.process.poll() is None


def _status(server: ServedProcess, name: str) -> int:
    url = f"{server.url}/graphs/people/queries/{name}"
    return httpx2.post(url, json={}, timeout=ANSWER_MAX_S).status_code


def _log(server: ServedProcess) -> list[str]:
    # The file is shared with the server: it is read through a handle of its own.
    return Path(f"/proc/self/fd/{server.log.fileno()}").read_text().splitlines()


def _reloads(server: ServedProcess) -> int:
    return sum(AGAIN in line for line in _log(server))
