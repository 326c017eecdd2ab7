"""Revisions follow one another while requests come in.

In revision n the schema has the property `p<n>` and no other `p`, the stored query returns it, and
the policy lets only `actor-<n>` invoke it. An answer with rows therefore says which query it is of;
that there is one says that the schema was of the same revision; the actor says it of the policy.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from support.applied_cluster import AppliedCluster, Bundle, GraphParts, Parts
from support.served import ANSWER_MAX_S, ServedProcess, served_process

CLIENTS = 4


def revision(number: int) -> Parts:
    schema = f"node Item {{ name: String @key  p{number}: I32? }}"
    state = f"query state() {{ match {{ $i: Item }} return {{ $i.p{number} }} }}"
    add = f"query add($name: String) {{ insert Item {{ name: $name, p{number}: {number} }} }}"
    policy = (
        f"version: 1\ngroups: {{ now: [actor-{number}] }}\nrules: [{{ id: all, allow:"
        " { actors: { group: now }, actions: [read, change, invoke_query] } }]\n"
    )
    return Parts(
        graphs={"items": GraphParts(schema, {"state": state, "add": add})},
        policies={"now": Bundle(policy, ("graph.items",))},
    )


def apply(cluster: AppliedCluster, number: int) -> None:
    """Change the graph, then the ledger, then forget the intent: the order of `apply`."""
    path = cluster.begin("items")
    cluster.apply(revision(number))
    cluster.root.objects.delete(path)


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
                lambda: self.wrong or self.answers.get(number, 0) >= requests, ANSWER_MAX_S
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


def run(cluster: AppliedCluster, *, workers: int, revisions: int, requests: int) -> Seen:
    apply(cluster, 0)
    tokens = {f"actor-{n}": f"token-{n}" for n in range(revisions + 2)}
    environ = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(tokens), "OMNIGRAPH_LOG": "error"}
    seen = Seen()
    with served_process(
        cluster.uri,
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
                    apply(cluster, number)
                seen.wait_for(number, requests)
        finally:
            seen.is_over = True
            for client in clients:
                client.join()
        assert seen.wrong == []
        assert server.process.poll() is None
        assert f"omnigraph_cluster_revision {revisions}\n" in server.get("/metrics").text
    return seen


@pytest.mark.parametrize("workers", [1, 2])
def test_no_answer_is_of_two_revisions(tmp_path: Path, workers: int) -> None:
    run(AppliedCluster(str(tmp_path)), workers=workers, revisions=3, requests=60)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_no_answer_of_thousands_is_of_two_revisions(tmp_path: Path, workers: int) -> None:
    seen = run(AppliedCluster(str(tmp_path)), workers=workers, revisions=6, requests=1_000)
    assert sum(seen.answers.values()) >= 6_000
