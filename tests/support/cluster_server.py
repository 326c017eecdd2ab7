"""A server of a cluster in this process, and a cluster to serve."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import httpx2
import orjson

from omnigraph.server.boot import boot_reloading
from omnigraph.server.settings import Settings
from support.applied_cluster import AppliedCluster, GraphParts

SCHEMA: Final = "node Paper { doi: String @key  title: String? }"
BY_DOI: Final = (
    "query by_doi($doi: String) { match { $p: Paper { doi: $doi } } return { $p.doi, $p.title } }"
)
ADD: Final = "query add($doi: String) { insert Paper { doi: $doi } }"
PAPERS: Final = GraphParts(SCHEMA, {"by_doi": BY_DOI, "add": ADD})
PEOPLE: Final = GraphParts("node Person { name: String @key }")
LISTING: Final = """\
version: 1
groups: { all: [ada] }
rules: [{ id: list, allow: { actors: { group: all }, actions: [graph_list] } }]
"""
WRITING: Final = """\
version: 1
groups: { all: [ada] }
rules:
  - { id: all, allow: { actors: { group: all }, actions: [read, change, invoke_query] } }
"""
ADA: Final = "token-a"
BEN: Final = "token-b"
TOKENS: Final = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ada": "token-a", "ben": "token-b"}'}


class ClusterServer:
    """An application that serves a cluster; reads the ledger again when it is told to."""

    def __init__(
        self,
        cluster: AppliedCluster,
        *,
        environ: Mapping[str, str] | None = None,
        require_all_graphs: bool = False,
        target: str | None = None,
    ) -> None:
        given = dict(environ or {})
        settings = Settings(
            cluster=target or cluster.uri,
            unauthenticated=not given,
            require_all_graphs=require_all_graphs,
            environ=given,
        )
        self.app, self.reloader = boot_reloading(settings)

    def send(
        self, method: str, path: str, body: object = None, *, token: str | None = None
    ) -> httpx2.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        content = None if body is None else orjson.dumps(body)
        if content is not None:
            headers["Content-Type"] = "application/json"

        async def run() -> httpx2.Response:
            transport = httpx2.ASGITransport(self.app)
            async with httpx2.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return await client.request(method, path, headers=headers, content=content)

        return asyncio.run(run())

    def get(self, path: str, *, token: str | None = None) -> httpx2.Response:
        return self.send("GET", path, token=token)

    def invoke(
        self, graph_id: str, name: str, params: Mapping[str, Any], *, token: str | None = None
    ) -> httpx2.Response:
        return self.send(
            "POST", f"/graphs/{graph_id}/queries/{name}", {"params": params}, token=token
        )

    def query(self, graph_id: str, text: str) -> httpx2.Response:
        return self.send("POST", f"/graphs/{graph_id}/query", {"query": text})

    def ready(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("/readyz").json()
        return found

    def refresh(self) -> bool:
        return self.reloader.refresh()
