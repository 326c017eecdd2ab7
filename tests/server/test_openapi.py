"""The OpenAPI document: what it promises, and the copy in the documentation."""

from __future__ import annotations

import json
import re

import jsonschema
import write_openapi

from omnigraph.server.openapi import openapi_document
from omnigraph.server.routes import ROUTES
from support.http_graph import TestServer
from support.openapi import document

DEPRECATED = {"cluster_read", "cluster_change", "cluster_ingest"}


def operations() -> list[tuple[str, str, dict[str, object]]]:
    return [
        (path, method, operation)
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    ]


def test_the_stored_document_is_what_the_server_serves() -> None:
    assert write_openapi.PAGE.read_text(encoding="utf-8") == write_openapi.page(), "run `make docs`"


def test_every_schema_is_a_schema() -> None:
    for schema in document()["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_reference_leads_to_a_component() -> None:
    names = re.findall(r"#/components/schemas/(\w+)", json.dumps(document()))
    assert set(names) <= set(document()["components"]["schemas"])


def test_every_route_has_an_operation_of_its_own_name() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert sorted(names) == sorted(route.operation_id for route in ROUTES)
    assert len(set(names)) == len(names)


def test_paths_declare_their_parameters() -> None:
    for path, _, operation in operations():
        declared = operation.get("parameters", [])
        assert isinstance(declared, list)
        in_path = {each["name"] for each in declared if each["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path)), path


def test_only_the_older_routes_are_deprecated() -> None:
    found = {op["operationId"] for _, _, op in operations() if op.get("deprecated")}
    assert found == DEPRECATED


def test_a_server_with_tokens_asks_for_one_everywhere_but_for_its_health() -> None:
    without = {path for path, _, operation in operations() if "security" not in operation}
    assert without == {"/healthz"}
    assert document()["components"]["securitySchemes"] == {
        "bearer_token": {"type": "http", "scheme": "bearer"}
    }


def test_an_open_server_asks_for_none(server: TestServer) -> None:
    answer = server.send("GET", "/openapi.json")
    assert answer.json() == openapi_document(ROUTES, requires_bearer=False)
    assert "security" not in json.dumps(answer.json()).replace("securitySchemes", "")
    assert "securitySchemes" not in answer.text
    assert "/openapi.json" not in answer.json()["paths"]


def test_change_routes_declare_the_narrow_error() -> None:
    for path, _, operation in operations():
        text = json.dumps(operation["responses"])
        assert ("ChangeErrorOutput" in text) == ("/changes" in path), path
