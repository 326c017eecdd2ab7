"""Requests made from the OpenAPI document: no answer is a failure, or outside of its schema."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
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

QUICK_EXAMPLES = 150
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
OPERATIONS = [
    (method.upper(), path, operation)
    for path, methods in sorted(document()["paths"].items())
    for method, operation in sorted(methods.items())
]


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, list[tuple[str, str]], bytes | None]:
    """Draw a request: mostly as the document says, sometimes with a body of its own."""
    method, path, operation = draw(st.sampled_from(OPERATIONS))
    components = document()["components"]["schemas"]
    query: list[tuple[str, str]] = []
    headers: list[tuple[str, str]] = []
    for parameter in operation.get("parameters", ()):
        name, place = parameter["name"], parameter["in"]
        if place != "path" and not parameter["required"] and draw(st.booleans()):
            continue
        value = draw(json_of(parameter["schema"], components, _named(name)))
        if place == "path":
            path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        elif place == "query":
            values = value if isinstance(value, list) else [value]
            query += [(name, str(each)) for each in values]
        else:
            headers.append((name, draw(st.sampled_from([COMMIT, "nope", "*"]))))
    target = path + (f"?{urlencode(query)}" if query else "")
    return method, target, headers, draw(_bodies(operation, headers))


def _named(name: str) -> Mapping[str, list[str]]:
    """Return the good values of a parameter, whose schema does not know its name."""
    return {"": TEXTS.get(name, ["main"])}


def _bodies(
    operation: Mapping[str, Any], headers: list[tuple[str, str]]
) -> st.SearchStrategy[bytes | None]:
    if "requestBody" not in operation:
        return st.none()
    ((kind, content),) = operation["requestBody"]["content"].items()
    headers.append(("Content-Type", kind))
    if kind != "application/json":
        return st.sampled_from([text.encode() for text in TEXTS["data"]]) | st.binary(max_size=20)
    valid = json_of(content["schema"], document()["components"]["schemas"], TEXTS)
    spelled = st.one_of(valid, valid, valid, ANY_JSON).map(lambda value: json.dumps(value).encode())
    return st.one_of(spelled, spelled, spelled, st.binary(max_size=20))


@pytest.fixture(scope="module")
def shared(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    root = shutil.copytree(filled, tmp_path_factory.mktemp("generated") / "demo.omni")
    server = TestServer(Graph.open(str(root), durability="process"), Setup())
    yield server
    server.close()


def hold(server: TestServer, method: str, path: str, headers: Any, body: bytes | None) -> None:
    commit = server.graph.list_commits("main", limit=1)[0].graph_commit_id
    headers = [(name, value.replace(COMMIT, commit)) for name, value in headers]
    body = None if body is None else body.replace(COMMIT.encode(), commit.encode())
    answer = server.send(method, path.replace(COMMIT, commit), headers, body)
    assert answer.status_code < 500, answer.text
    kind = answer.headers.get("content-type", "")
    found = answer.json() if kind == "application/json" and answer.content else None
    raw_path = answer.request.url.raw_path.partition(b"?")[0]
    check_answer(method, raw_path, answer.status_code, kind, found)


@settings(max_examples=QUICK_EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
@given(request=requests())
def test_every_answer_is_declared(
    shared: TestServer, request: tuple[str, str, list[tuple[str, str]], bytes | None]
) -> None:
    hold(shared, *request)


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck), database=None)
@given(request=requests())
def test_every_answer_is_declared_in_a_long_run(
    shared: TestServer, request: tuple[str, str, list[tuple[str, str]], bytes | None]
) -> None:
    hold(shared, *request)
