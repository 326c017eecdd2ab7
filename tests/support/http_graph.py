"""A small graph with every kind of value, and an application that serves it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import httpx2
import pyarrow as pa

from omnigraph.graph import Graph, load_queries
from omnigraph.policy import Policy
from omnigraph.server.access import Gate, Mode
from omnigraph.server.admission import AdmissionLimits, LocalAdmission
from omnigraph.server.app import App
from omnigraph.server.call import Serving
from omnigraph.server.graphs import Graphs, ServedGraph
from omnigraph.server.http.origin import Origins
from omnigraph.server.http.transport import Transport
from omnigraph.server.limits import QueryLimits
from omnigraph.server.pool import EnginePool
from omnigraph.server.shared import LocalSlot
from omnigraph.server.tokens import LiveTokens, Tokens, TokenSource

GRAPH_ID: Final = "demo"
SCHEMA: Final = """\
node Doc {
    slug: String @key
    title: String?
    small: I32?
    big: I64?
    wide: U64?
    ratio: F64?
    day: Date?
    at: DateTime?
    flag: Bool?
    tags: [String]?
    spot: Vector(2)?
    body: Blob?
    far: Blob?
}

node Note { name: String @key }

edge Cites: Doc -> Doc { why: String?  scan: Blob? }
"""
EXTERNAL_BASE: Final = "s3://files/"
RECORDS: Final = """\
{"type": "Doc", "data": {"slug": "d1", "title": "One", "small": -7, "big": 9007199254740993, \
"wide": 9007199254740995, "ratio": 0.1, "day": "2024-02-29", "at": "2024-02-29T12:30:00.250Z", \
"flag": true, "tags": ["a", "ü"], "spot": [0.5, -1.25], "body": "base64:aGVsbG8=", \
"far": "s3://files/a%20b.bin"}}
{"type": "Doc", "data": {"slug": "d2", "title": "Two", "body": "base64:"}}
{"type": "Doc", "data": {"slug": "d3"}}
{"edge": "Cites", "from": "d1", "to": "d2", "data": {"id": "c1", "why": "see", \
"scan": "base64:AQID"}}
"""


def fill(graph: Graph) -> None:
    """Load the records."""
    # Only overwriting keeps the reference of an external Blob.
    graph.load(RECORDS.encode(), mode="overwrite", external_blob_bases=[EXTERNAL_BASE])
    # No JSON record can spell these.
    numbers = pa.array([math.nan, math.inf, -math.inf], pa.float64())
    table = pa.table({"slug": ["n1", "n2", "n3"], "ratio": numbers})
    graph.load_tables(nodes={"Doc": table}, mode="append")


@dataclass(frozen=True)
class Rule:
    """One action that an actor may do; a branch that is None is any."""

    actor: str
    action: str
    branch: str | None = None
    target: str | None = None


@dataclass(frozen=True)
class _Decision:
    allowed: bool
    rule_id: str | None
    message: str


@dataclass(frozen=True)
class RulePolicy:
    """A policy of a list of rules."""

    rules: tuple[Rule, ...]

    def decide(
        self,
        actor_id: str,
        action: str,
        branch: str | None = None,
        target_branch: str | None = None,
    ) -> _Decision:
        for number, rule in enumerate(self.rules):
            if (rule.actor, rule.action) != (actor_id, action):
                continue
            if rule.branch in (None, branch) and rule.target in (None, target_branch):
                return _Decision(True, str(number), "allowed")
        return _Decision(False, None, f"policy denied action '{action}' for actor '{actor_id}'")


@dataclass(frozen=True)
class Setup:
    """How a server of a test is set up."""

    tokens: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    in_flight_max: int = 16
    bytes_max: int = 1 << 32
    is_in_cluster: bool = False
    queries: Path | None = None
    cors: frozenset[str] = frozenset()
    external_blob_bases: tuple[str, ...] = ()
    query_limits: QueryLimits = field(default_factory=QueryLimits)


class TestServer:
    """An application in this process, and what tests reach behind it."""

    __test__ = False

    def __init__(self, graph: Graph, setup: Setup) -> None:
        policy = RulePolicy(setup.rules) if setup.rules else None
        mode = Mode.OPEN
        if setup.tokens:
            mode = Mode.DEFAULT_DENY if policy is None else Mode.POLICY
        registry = load_queries([] if setup.queries is None else [setup.queries])
        self.graph = graph
        gate = Gate(mode, cast("Policy | None", policy))
        self.served = ServedGraph(
            GRAPH_ID,
            graph.with_blob_bases(setup.external_blob_bases),
            gate,
            registry,
            LocalSlot(),
            is_in_cluster=setup.is_in_cluster,
        )
        self.pool = EnginePool()
        self.transport = Transport()
        self.app = App(
            Serving(
                tokens=LiveTokens(TokenSource("test", lambda: Tokens(setup.tokens))),
                graphs=Graphs({GRAPH_ID: self.served}, gate),
                admission=LocalAdmission(
                    AdmissionLimits(setup.in_flight_max, setup.bytes_max),
                ),
                pool=self.pool,
                requires_bearer=mode is not Mode.OPEN,
                transport=self.transport,
                query_limits=setup.query_limits,
            ),
            origins=Origins(setup.cors, is_open=mode is Mode.OPEN),
        )

    def close(self) -> None:
        self.pool.close()
        self.graph.close()

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=httpx2.ASGITransport(self.app), base_url="http://localhost"
        )

    def send(
        self,
        method: str,
        path: str,
        headers: list[tuple[str, str]] | None = None,
        body: bytes | None = None,
    ) -> httpx2.Response:
        """Send one request and return its whole answer."""

        async def run() -> httpx2.Response:
            async with self.client() as client:
                return await client.request(method, path, headers=headers or [], content=body)

        return asyncio.run(run())
