"""Requests made from the OpenAPI document: no answer is a failure, or outside of its schema."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.graph import Graph
from support.http_graph import SCHEMA, Setup, TestServer
from support.json_schemas import ANY_JSON, json_of
from support.openapi import check_answer, document

QUICK_EXAMPLES = 8
"""For each operation."""
COMMIT = "COMMIT"
"""Stands for the id of a commit, which no strategy can know."""
TEXTS = {
    "query": [
        "query q() { match { $d: Doc } return { $d.slug } }",
        'query q() { insert Note { name: "g" } }',
        "query q($p: I64) { match { $d: Doc { big: $p } } return { $d.slug } }",
    ],
    "branch": ["main", "work", " main ", ""],
    "from": ["main", "nope"],
    "name": ["work", "q", "names", "a/b"],
    "source": ["work", "main"],
    "target": ["main"],
    "snapshot": [COMMIT, "nope"],
    "before": [COMMIT],
    "start": ["now", "beginning", f"after:{COMMIT}"],
    "type": ["Doc", "Note", "Cites"],
    "type_names": ["Doc", "Cites"],
    "entity": ["node", "edge"],
    "id": ["d1", "d2", "d3", "c1"],
    "property": ["body", "far", "scan", "title"],
    "data": ['{"type": "Note", "data": {"name": "n"}}', "", "x"],
    "schema_source": [SCHEMA],
    "commit_id": [COMMIT, "nope"],
    "graph_id": ["demo", "demo", "demo", "other", "no_id"],
}
TEXTS["query_source"] = TEXTS["query"]
OPERATIONS = {
    f"{method.upper()} {path}": (method.upper(), path, operation)
    for path, methods in sorted(document()["paths"].items())
    for method, operation in sorted(methods.items())
}
FORMS = (
    "*/*",
    "application/json",
    "application/vnd.apache.arrow.stream",
    "application/vnd.apache.parquet",
    "application/x-ndjson",
    "text/csv;q=0.5, text/html",
    "text/event-stream",
    "",
    "nonsense",
)
HEADERS: dict[str, tuple[str, ...]] = {
    "Accept": FORMS,
    "Accept-Encoding": ("gzip", "identity;q=0"),
    "Range": ("bytes=0-1", "bytes=9-", "bytes=-0", "bytes=0-1,3-4", "lines=1-2"),
    "If-Match": ("*", '"x"', "W/", ","),
    "If-None-Match": ("*", 'W/"x"', "x"),
    "If-Range": ('"x"', "*"),
    "Omnigraph-If-Graph-Commit": (COMMIT, "nope", "*", '"q"', "a,b", ""),
    "Omnigraph-Snapshot-Id": (COMMIT,),
    "X-Request-Id": ("1", "x" * 300),
    "X-HTTP-Method-Override": ("DELETE",),
    "Origin": ("http://localhost", "https://elsewhere.test", "null"),
}
TOKENS = {"ann": "TOKEN-1"}


@dataclass(frozen=True)
class Request:
    """A request that was drawn; `with_tokens` is the server that asks for one."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes | None
    with_tokens: bool


@st.composite
def requests(draw: st.DrawFn, name: str) -> Request:
    """Draw a request of an operation: mostly as the document says, sometimes with mistakes."""
    method, path, operation = OPERATIONS[name]
    has_mistakes = draw(st.integers(0, 3)) == 0
    query: list[tuple[str, str]] = []
    headers = draw(_headers())
    for parameter in operation.get("parameters", ()):
        if not _is_drawn(draw, parameter, has_mistakes=has_mistakes):
            continue
        name, place = parameter["name"], parameter["in"]
        values = draw(_values(parameter, has_mistakes=has_mistakes))
        if place == "path":
            path = path.replace(f"{{{name}}}", quote(values[0], safe=""))
        elif place == "query":
            query += [(name, each) for each in values]
        else:
            headers.append((name, draw(st.sampled_from(HEADERS[name]))))
    if has_mistakes:
        query += draw(st.lists(st.tuples(st.text(max_size=6), st.text(max_size=6)), max_size=2))
    target = path + (f"?{urlencode(query)}" if query else "")
    with_tokens = draw(st.booleans())
    if with_tokens:
        headers += draw(st.sampled_from(AUTHORIZATIONS))
    body = draw(_bodies(operation, headers, has_mistakes=has_mistakes))
    return Request(method, target, headers, body, with_tokens)


AUTHORIZATIONS: list[list[tuple[str, str]]] = [
    [("Authorization", f"Bearer {TOKENS['ann']}")],
    [("Authorization", f"Bearer {TOKENS['ann']}")],
    [("Authorization", "Bearer wrong")],
    [("Authorization", "Basic YTpi")],
    [],
]


def _headers() -> st.SearchStrategy[list[tuple[str, str]]]:
    """Return a few headers that change what is answered, or should not."""
    one = st.sampled_from(sorted(HEADERS)).flatmap(
        lambda name: st.tuples(st.just(name), st.sampled_from(HEADERS[name]))
    )
    return st.lists(one, max_size=2)


def _is_drawn(draw: st.DrawFn, parameter: Mapping[str, Any], *, has_mistakes: bool) -> bool:
    if parameter["in"] == "path":
        return True
    if parameter["required"]:
        return not has_mistakes or draw(st.booleans())
    return draw(st.booleans())


def _values(parameter: Mapping[str, Any], *, has_mistakes: bool) -> st.SearchStrategy[list[str]]:
    """Return the values of one parameter; a mistake is another type, or a value too many."""
    # The schema of a parameter does not know its name.
    texts = {"": TEXTS.get(parameter["name"], ["main"])}
    good = json_of(parameter["schema"], document()["components"]["schemas"], texts).map(
        lambda value: [str(each) for each in (value if isinstance(value, list) else [value])]
    )
    if parameter["in"] == "path":
        good = good.map(lambda values: values or ["main"])
    if not has_mistakes:
        return good
    return good | st.lists(st.text(max_size=8), min_size=1, max_size=2)


def _bodies(
    operation: Mapping[str, Any], headers: list[tuple[str, str]], *, has_mistakes: bool
) -> st.SearchStrategy[bytes | None]:
    if "requestBody" not in operation:
        return st.just(b"{}") | st.none() if has_mistakes else st.none()
    ((kind, content),) = operation["requestBody"]["content"].items()
    headers.append(("Content-Type", kind))
    if kind != "application/json":
        return st.sampled_from([text.encode() for text in TEXTS["data"]]) | st.binary(max_size=20)
    valid = json_of(content["schema"], document()["components"]["schemas"], TEXTS)
    spelled = valid.map(_spelled)
    if not has_mistakes:
        return spelled
    headers[-1] = (
        "Content-Type",
        headers[-1][1] if len(headers) % 2 else "text/plain",
    )
    wrong = valid.flatmap(_damaged) | ANY_JSON
    return wrong.map(_spelled) | st.binary(max_size=20) | st.none()


def _spelled(value: object) -> bytes:
    return json.dumps(value).encode()


def _damaged(value: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return a body with one field of another type, one too few, or one too many."""
    extra = st.tuples(st.text(max_size=6), ANY_JSON).map(lambda pair: {**value, pair[0]: pair[1]})
    if not value:
        return extra
    name = st.sampled_from(sorted(value))
    fewer = name.map(lambda left: {key: each for key, each in value.items() if key != left})
    other = st.tuples(name, ANY_JSON).map(lambda pair: {**value, pair[0]: pair[1]})
    return extra | fewer | other


@pytest.fixture(scope="module")
def shared(
    filled: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TestServer, TestServer]]:
    """A server without tokens, and one that asks for them."""
    servers = []
    for setup in (Setup(), Setup(tokens=TOKENS)):
        root = shutil.copytree(filled, tmp_path_factory.mktemp("generated") / "demo.omni")
        servers.append(TestServer(Graph.open(str(root), durability="process"), setup))
    yield servers[0], servers[1]
    for server in servers:
        server.close()


def hold(servers: tuple[TestServer, TestServer], request: Request) -> None:
    server = servers[request.with_tokens]
    commit = server.graph.list_commits("main", limit=1)[0].graph_commit_id
    headers = [(name, value.replace(COMMIT, commit)) for name, value in request.headers]
    body = None if request.body is None else request.body.replace(COMMIT.encode(), commit.encode())
    answer = server.send(request.method, request.path.replace(COMMIT, commit), headers, body)
    assert answer.status_code < 500, answer.text
    kind = answer.headers.get("content-type", "")
    found = answer.json() if kind == "application/json" and answer.content else None
    raw_path = answer.request.url.raw_path.partition(b"?")[0]
    check_answer(request.method, raw_path, answer.status_code, kind, found)


@pytest.mark.parametrize("name", OPERATIONS)
@settings(max_examples=QUICK_EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
def test_every_answer_is_declared(
    shared: tuple[TestServer, TestServer], name: str, data: st.DataObject
) -> None:
    hold(shared, data.draw(requests(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
@settings(suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
def test_every_answer_is_declared_in_a_long_run(
    shared: tuple[TestServer, TestServer], name: str, data: st.DataObject
) -> None:
    hold(shared, data.draw(requests(name)))
