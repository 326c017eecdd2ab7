"""A served graph with tokens and a policy, asked without a network.

Requests go to the application as a server would hand them over, so a test decides about every byte
of a path and every header.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from omnigraph.graph import Graph
from omnigraph.server.app import App
from omnigraph.server.boot import boot_reloading
from omnigraph.server.reload import Reloader
from omnigraph.server.settings import Settings

GRAPH_ID: Final = "people"
SCHEMA: Final = "node Person { name: String @key  photo: Blob? }"
INSERT: Final = "query add($name: String) { insert Person { name: $name } }"
READ: Final = "query all() { match { $p: Person } return { $p.name } }"
STORED: Final = f"{INSERT}\n{READ}\n"
RECORD: Final = '{"type": "Person", "data": {"name": "Ada", "photo": "base64:aGVsbG8="}}'

BUNDLE: Final = """
version: 1
groups:
  readers: [act-reader]
  drafters: [act-drafter]
  owners: [act-owner]
  agents: [act-scout]
  callers: [act-caller]
protected_branches: [main, release]
rules:
  - {id: read, allow: {actors: {group: readers}, actions: [read, export]}}
  - {id: tools, allow: {actors: {group: readers}, actions: [invoke_query]}}
  - id: draft
    allow: {actors: {group: drafters}, actions: [read, export, change], branch_scope: unprotected}
  - id: cut
    allow:
      actors: {group: drafters}
      actions: [branch_create, branch_delete, branch_merge]
      target_branch_scope: unprotected
  - id: own-all
    allow:
      actors: {group: owners}
      actions:
        - read
        - export
        - change
        - schema_apply
        - branch_create
        - branch_merge
        - invoke_query
  - {id: scout-read, allow: {actors: {group: agents}, actions: [read], branch_scope: protected}}
  - {id: scout-write, allow: {actors: {group: agents}, actions: [read, change], branch_scope: own}}
  - id: scout-branch
    allow:
      actors: {group: agents}
      actions: [branch_create, branch_delete, branch_merge]
      target_branch_scope: own
  - {id: call, allow: {actors: {group: callers}, actions: [invoke_query]}}
"""
ACTORS: Final = ("act-reader", "act-drafter", "act-owner", "act-scout", "act-caller", "act-eve")
OWN: Final = "agent/act-scout/x"
BRANCHES: Final = ("main", "release", "draft", OWN, "missing")


@dataclass(frozen=True)
class Answer:
    """What the server has answered."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def token(actor: str) -> str:
    return f"token-of-{actor}"


def bearer(actor: str) -> tuple[str, str]:
    return "authorization", f"Bearer {token(actor)}"


class Policed:
    """An application that serves a small graph under a policy."""

    def __init__(
        self, folder: Path, bundle: str = BUNDLE, server_bundle: str | None = None
    ) -> None:
        self.folder = folder
        self.policy, self.queries = folder / "policy.yaml", folder / "queries.gq"
        self.policy.write_text(BUNDLE)
        self.queries.write_text(STORED)
        server_policy = None
        if server_bundle is not None:
            server_policy = folder / "server.yaml"
            server_policy.write_text(server_bundle)
        root = folder / f"{GRAPH_ID}.omni"
        with Graph.init(root, SCHEMA) as graph:
            graph.load(RECORD.encode(), mode="append")
            for branch in ("release", "draft", OWN):
                graph.branch_create(branch)
                graph.mutate(INSERT, params={"name": f"of {branch}"}, branch=branch)
        tokens = {actor: token(actor) for actor in ACTORS}
        self.app: App
        self.reloader: Reloader
        self.app, self.reloader = boot_reloading(
            Settings(
                store=str(root),
                policy=self.policy,
                server_policy=server_policy,
                queries=(self.queries,),
                environ={"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(tokens)},
            )
        )
        self.graph = Graph.open(root, auto_optimize=False)

    def head(self, branch: str = "main") -> str:
        return self.graph.head_commit_id_for_branch(branch)

    def ask(
        self, actor: str | None, method: str, path: str, body: object = None, **headers: str
    ) -> Answer:
        """Send a request of an actor below the graph."""
        given = [] if actor is None else [bearer(actor)]
        given += [(name.replace("_", "-"), value) for name, value in headers.items()]
        return self.send(method, f"/graphs/{GRAPH_ID}{path}", given, body)

    def send(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[str, str]] = (),
        body: object = None,
    ) -> Answer:
        """Send a request as it is; a body that is no bytes is sent as JSON."""
        given = list(headers)
        if body is None:
            content = b""
        elif isinstance(body, bytes):
            content = body
        else:
            content = json.dumps(body).encode()
            if not any(name == "content-type" for name, _ in given):
                given.append(("content-type", "application/json"))
        return asyncio.run(_answer(self.app, method, path, given, content))


async def _answer(
    app: App, method: str, path: str, headers: list[tuple[str, str]], content: bytes
) -> Answer:
    raw, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw),
        "raw_path": raw.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "headers": [
            (b"host", b"localhost"),
            *((name.encode(), value.encode("latin-1")) for name, value in headers),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
    sent: list[MutableMapping[str, Any]] = []
    parts = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if parts:
            return parts.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *rest = sent
    content = b"".join(message.get("body", b"") for message in rest)
    return Answer(start["status"], tuple(map(tuple, start["headers"])), content)
