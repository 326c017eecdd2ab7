"""Every form of an answer that the OpenAPI document declares is sent when it is asked for."""

from __future__ import annotations

import io
import json

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.server.routes import ROUTES
from omnigraph.server.routes.route import Route
from support.http_graph import GRAPH_ID, TestServer

READ = {"query": "query q() { match { $d: Doc } return { $d.slug } }"}
ASKED = {
    "cluster_query": ("/query", READ),
    "cluster_pollChanges": ("/changes?start=beginning", None),
    "cluster_export": ("/export", {}),
    "diff": ("/diff?from=version:1&to=main", None),
    "listConflicts": ("/branches/conflicts?source=main", None),
    "loadWithOptions": (
        "/load/ndjson/with-options?dry_run=true",
        b'{"type": "Note", "data": {"name": "form"}}',
    ),
    "cluster_loadNdjson": ("/load/ndjson", b'{"type": "Note", "data": {"name": "form"}}'),
}
"""How to ask for the answers that have several forms; stored queries answer as `/query` does."""
FORMS = [
    pytest.param(route, form, id=f"{route.operation_id} {form}")
    for route in ROUTES
    for form in route.forms
    if route.operation_id != "cluster_invoke_query"
]


def ask(server: TestServer, name: str, method: str, accept: str) -> tuple[str, bytes]:
    path, body = ASKED[name]
    kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
    headers = [("Accept", accept), *([("Content-Type", kind)] if body is not None else [])]
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    answer = server.send(method, f"/graphs/{GRAPH_ID}{path}", headers, content)
    assert answer.status_code == 200, answer.text
    return answer.headers["content-type"], answer.content


@pytest.mark.parametrize(("route", "form"), FORMS)
def test_a_declared_form_is_sent(server: TestServer, route: Route, form: str) -> None:
    found, _ = ask(server, route.operation_id, route.method, form)
    assert found.partition(";")[0] == form.partition(";")[0]


def test_rows_are_the_same_in_every_form(server: TestServer) -> None:
    _, as_json = ask(server, "cluster_query", "POST", "application/json")
    rows = [row["d.slug"] for row in orjson.loads(as_json)["rows"]]
    _, as_arrow = ask(server, "cluster_query", "POST", "application/vnd.apache.arrow.stream")
    assert pa.ipc.open_stream(as_arrow).read_all()["d.slug"].to_pylist() == rows
    _, as_parquet = ask(server, "cluster_query", "POST", "application/vnd.apache.parquet")
    assert pq.read_table(io.BytesIO(as_parquet))["d.slug"].to_pylist() == rows
    _, as_csv = ask(server, "cluster_query", "POST", "text/csv")
    assert [line.strip('"') for line in as_csv.decode().splitlines()] == ["d.slug", *rows]


def test_a_page_of_changes_is_the_same_as_arrow(server: TestServer) -> None:
    server.graph.branch_create("quiet")
    _, as_json = ask(server, "cluster_pollChanges", "GET", "application/json")
    _, as_arrow = ask(server, "cluster_pollChanges", "GET", "application/vnd.apache.arrow.stream")
    page, table = orjson.loads(as_json), pa.ipc.open_stream(as_arrow).read_all()
    rest = orjson.loads(table.schema.metadata[b"omnigraph"])
    rows = iter(table.to_pylist())
    blocks = [
        {"cause": one["cause"], "changes": [_change(next(rows)) for _ in range(one["rows"])]}
        for one in rest.pop("blocks")
    ]
    assert {"blocks": blocks, **rest} == page
    assert any(block["changes"] for block in blocks)
    assert next(rows, None) is None


def _change(row: dict[str, str | None]) -> dict[str, object]:
    images = {
        side: orjson.loads(text) for side in ("before", "after") if (text := row[side]) is not None
    }
    kind = {"id": row["type_id"], "name": row["type_name"]}
    return {"kind": row["kind"], "type": kind, "id": row["id"], "op": row["op"], **images}
