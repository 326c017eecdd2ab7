"""Revisions follow one another while requests come in.

In revision n the schema has the property `p<n>` and no other `p`, the stored query returns it, and
the policy lets only `actor-<n>` invoke it. An answer with rows therefore says which query it is of;
that there is one says that the schema was of the same revision; the actor says it of the policy.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from support.clusters import Folder, succeeded
from support.served import ANSWER_MAX_S, ServedProcess, served_process, wait_until

CLIENTS = 4
REQUEST_MAX_S = 0.5
"""Of one request among many, on a machine that does much else."""


def declare(folder: Folder, number: int) -> None:
    """Write the files of one revision."""
    schema = f"node Item {{ name: String @key  p{number}: I32? }}"
    state = f"query state() {{ match {{ $i: Item }} return {{ $i.p{number} }} }}"
    add = f"query add($name: String) {{ insert Item {{ name: $name, p{number}: {number} }} }}"
    policy = (
        f"version: 1\ngroups: {{ now: [actor-{number}] }}\nrules: [{{ id: all, allow:"
        " { actors: { group: now }, actions: [read, change, invoke_query] } }]\n"
    )
    folder.write(
        {"items": (schema, {"state": state, "add": add})}, policies={"now": (policy, ("items",))}
    )


def carry_out(folder: Folder, number: int) -> None:
    """Declare a revision and apply it."""
    declare(folder, number)
    assert succeeded(folder.apply()).members["converged"]


@dataclass
class Seen:
    """What all clients have seen so far."""

    guard: threading.Condition = field(default_factory=threading.Condition)
    newest: int = 0
    answers: dict[int, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    is_over: bool = False

    def wait_for(self, number: int, requests: int) -> None:
        """Wait until so many requests were answered by a revision, or one was wrong."""
        with self.guard:
            assert self.guard.wait_for(
                lambda: self.wrong or self.answers.get(number, 0) >= requests,
                ANSWER_MAX_S + requests * REQUEST_MAX_S,
            ), self.answers


def ask(server: ServedProcess, seen: Seen, client_number: int) -> None:
    """Ask as the actor of the newest revision that anybody has seen, and as its neighbours."""
    turn = 0
    while not seen.is_over:
        # A client without kept connections may reach another worker with each request.
        with httpx2.Client(base_url=server.url, timeout=ANSWER_MAX_S) as client:
            for _ in range(20):
                turn += 1
                newest = seen.newest
                actor = max(0, newest + (0, 0, 1, -1)[turn % 4])
                is_write = turn % 7 == 0
                name = f"c{client_number}-{turn}"
                try:
                    answer = client.post(
                        f"/graphs/items/queries/{'add' if is_write else 'state'}",
                        json={"params": {"name": name}} if is_write else {},
                        headers={"Authorization": f"Bearer token-{actor}"},
                    )
                except httpx2.HTTPError as problem:
                    with seen.guard:
                        seen.wrong.append(f"lost: {problem!r}")
                    continue
                judge(seen, answer, actor, newest, is_write=is_write)


def judge(seen: Seen, answer: httpx2.Response, actor: int, newest: int, *, is_write: bool) -> None:
    with seen.guard:
        if answer.status_code == 404 or (is_write and answer.status_code == 409):
            return
        if answer.status_code != 200:
            seen.wrong.append(f"{answer.status_code} as actor {actor}: {answer.text}")
            return
        if actor < newest:
            seen.wrong.append(f"revision {actor} was served after {newest} had been seen")
        if not is_write and answer.json().get("columns") not in ([f"i.p{actor}"], None):
            seen.wrong.append(f"policy {actor}, query {answer.text}")
        seen.newest = max(seen.newest, actor)
        seen.answers[actor] = seen.answers.get(actor, 0) + 1
        seen.guard.notify_all()


def run(folder: Folder, *, workers: int, revisions: int, requests: int) -> Seen:
    declare(folder, 0)
    succeeded(folder.import_state())
    carry_out(folder, 0)
    tokens = {f"actor-{n}": f"token-{n}" for n in range(revisions + 2)}
    environ = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(tokens), "OMNIGRAPH_LOG": "error"}
    seen = Seen()
    with served_process(
        str(folder.path),
        options=("--workers", str(workers)),
        source="--cluster",
        environ=environ,
    ) as server:
        clients = [
            threading.Thread(target=ask, args=(server, seen, number)) for number in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        try:
            for number in range(revisions):
                if number:
                    carry_out(folder, number)
                seen.wait_for(number, requests)
        finally:
            seen.is_over = True
            for client in clients:
                client.join()
        assert seen.wrong == []
        assert server.process.poll() is None
        # The first one is that of `import`.
        assert f"omnigraph_cluster_revision {revisions + 1}\n" in server.get("/metrics").text
    return seen


@pytest.mark.parametrize("workers", [1, 2])
def test_no_answer_is_of_two_revisions(tmp_path: Path, workers: int) -> None:
    run(Folder(tmp_path), workers=workers, revisions=3, requests=60)


def test_a_worker_that_dies_holds_no_revision_up(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    declare(folder, 0)
    succeeded(folder.import_state())
    carry_out(folder, 0)
    tokens = json.dumps({"actor-0": "token-0", "actor-1": "token-1"})
    with served_process(
        str(tmp_path),
        options=("--workers", "2"),
        source="--cluster",
        environ={"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": tokens},
    ) as server:
        assert server.get("/readyz").json()["revision"] == 2
        workers = workers_of(server)
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        carry_out(folder, 1)
        wait_until(lambda: server.get("/readyz").json()["revision"] == 3)
        wait_until(lambda: len(set(workers_of(server)) - {workers[0]}) == 2)
        # Every connection may reach the new worker, which serves nothing older.
        found = {server.get("/readyz").json()["revision"] for _ in range(50)}
        assert found == {3}


def workers_of(server: ServedProcess) -> list[int]:
    """Return the worker processes: the children that were spawned to work."""
    task = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    children = [int(pid) for pid in task.read_text().split()]
    return [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("workers", [1, 2])
def test_no_answer_of_thousands_is_of_two_revisions(tmp_path: Path, workers: int) -> None:
    seen = run(Folder(tmp_path), workers=workers, revisions=6, requests=1_000)
    assert sum(seen.answers.values()) >= 6_000
