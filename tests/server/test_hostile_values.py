"""Values that only a hostile client sends: the server does not fail, and works no more for them."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from omnigraph.graph import Graph
from omnigraph.server.errors import RequestError
from omnigraph.server.http.decode import decode_json
from omnigraph.server.limits import QueryLimits
from support.http_graph import Setup, TestServer

READ = "query q() { match { $n: Note } return { $n.name } }"
JSON = [("content-type", "application/json")]
KEYS = 10_000
SLOWER_MAX = 20
"""How many times longer a body with a key that stands twice may take than one without."""


def _object(last: str) -> bytes:
    members = [f'"{number:06x}":0' for number in range(KEYS)]
    return ("{" + ",".join([*members, '"z":0', f'"{last}":0']) + "}").encode()


def _processor_s(body: bytes) -> float:
    began = time.thread_time()
    with suppress(RequestError):
        decode_json(body, dict)
    return time.thread_time() - began


def test_a_key_that_stands_twice_is_found_in_the_time_of_one_pass() -> None:
    with pytest.raises(RequestError, match="the key 'z' stands twice"):
        decode_json(_object("z"), dict)
    once = min(_processor_s(_object("y")) for _ in range(3))
    assert _processor_s(_object("z")) < SLOWER_MAX * once


@pytest.mark.parametrize(
    "ref", ["version:" + "9" * 19, "version:" + "9" * 5_000, "time:" + "9" * 5_000, "9" * 5_000]
)
def test_a_number_beyond_64_bits_is_no_version(ref: str, server: TestServer) -> None:
    answer = server.send("GET", f"/graphs/demo/diff?from=main&to={ref}")
    assert answer.status_code == 400


@pytest.mark.parametrize("skip", [2**63, 2**64 - 1, -1, 1.5, True, None, "1"])
def test_a_forged_page_token_is_rejected(skip: object, server: TestServer) -> None:
    head = server.graph.head_commit_id_for_branch()
    token = base64.urlsafe_b64encode(json.dumps([head, head, skip]).encode()).decode()
    answer = server.send("GET", f"/graphs/demo/diff?from=main&to=main&page_token={token}")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("cursor rejected: ")


@pytest.mark.parametrize("field", ["timeout_ms", "max_rows"])
@pytest.mark.parametrize("value", [-1, -(10**400)])
def test_a_negative_limit_is_refused(field: str, value: int, server: TestServer) -> None:
    body = json.dumps({"query": READ, field: value}).encode()
    answer = server.send("POST", "/graphs/demo/query", JSON, body)
    assert answer.status_code == 400
    assert answer.json()["error"] == f"{field} must be 0 or more"


@pytest.mark.parametrize("field", ["timeout_ms", "max_rows"])
def test_a_limit_of_any_size_is_a_number(field: str, server: TestServer) -> None:
    body = json.dumps({"query": READ, field: 10**400}).encode()
    assert server.send("POST", "/graphs/demo/query", JSON, body).status_code == 200


# -- the limits of the server ---------------------------------------------------------------------

DOCS = "query docs() { match { $d: Doc } return { $d.slug } }"
ROUTES: dict[str, tuple[str, dict[str, object]]] = {
    "query": ("/query", {"query": DOCS}),
    "query that asks for more": (
        "/query",
        {"query": DOCS, "max_rows": 10**9, "timeout_ms": 10**9},
    ),
    "read": ("/read", {"query_source": DOCS}),
    "stored": ("/queries/docs", {}),
}


@pytest.fixture
def limited(root: Path, tmp_path: Path) -> Callable[[QueryLimits], TestServer]:
    stored = tmp_path / "stored.gq"
    stored.write_text(DOCS)

    def make(limits: QueryLimits) -> TestServer:
        graph = Graph.open(str(root), durability="process")
        return TestServer(graph, Setup(queries=stored, query_limits=limits))

    return make


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (QueryLimits(rows_max=5), "OG-QUERY-ROWS"),
        (QueryLimits(timeout_ms=0), "OG-QUERY-TIMEOUT"),
        (QueryLimits(memory_max=1), "OG-QUERY-MEMORY"),
    ],
    ids=["rows", "time", "memory"],
)
def test_no_read_costs_more_than_the_server_allows(
    route: str, limits: QueryLimits, code: str, limited: Callable[[QueryLimits], TestServer]
) -> None:
    server = limited(limits)
    path, body = ROUTES[route]
    answer = server.send("POST", f"/graphs/demo{path}", JSON, json.dumps(body).encode())
    server.close()
    assert (answer.status_code, answer.json()["omnigraph"]["code"]) == (400, code)


def test_the_environment_sets_the_limits() -> None:
    found = QueryLimits.of_environment(
        {
            "OMNIGRAPH_QUERY_TIMEOUT_MS": "10",
            "OMNIGRAPH_QUERY_ROWS_MAX": "20",
            "OMNIGRAPH_QUERY_MEMORY_MIB": "30",
        }
    )
    assert found == QueryLimits(10, 20, 30 << 20)
    assert QueryLimits.of_environment({"OMNIGRAPH_QUERY_ROWS_MAX": "-1"}) == QueryLimits()


def test_an_origin_that_is_no_address_is_a_foreign_one(server: TestServer) -> None:
    headers = [*JSON, ("origin", "http://[")]
    body = json.dumps({"query": READ}).encode()
    assert server.send("POST", "/graphs/demo/query", headers, body).status_code == 403
