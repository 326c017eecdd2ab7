"""Holds answers of the server against its own OpenAPI document."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import jsonschema

from omnigraph.server.errors import RequestError
from omnigraph.server.http.router import Found, Router
from omnigraph.server.openapi import openapi_document
from omnigraph.server.routes import ROUTES

_ROUTER = Router([(route.method, route.path, route) for route in ROUTES])


@cache
def document() -> dict[str, Any]:
    return openapi_document(ROUTES, requires_bearer=True)


@cache
def _strict_components() -> dict[str, Any]:
    """Return the components; a key that a record does not declare is an error."""
    found: dict[str, Any] = copy.deepcopy(document()["components"])
    for schema in found["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return found


def check_answer(method: str, raw_path: bytes, status: int, kind: str, body: Any) -> None:
    """Raise unless the document declares the answer; `body` is its JSON, if it has one."""
    try:
        found = _ROUTER.find(method, raw_path)
    except RequestError:
        assert status == 400
        return
    if not isinstance(found, Found):
        return
    route = found.route
    declared = document()["paths"][route.path][route.method.lower()]["responses"]
    assert str(status) in declared, f"{method} {route.path} does not declare {status}"
    content = declared[str(status)].get("content", {})
    plain = kind.partition(";")[0]
    if method == "HEAD" or (not plain and not content):
        return
    assert plain in content, f"{method} {route.path} does not declare '{plain}' for {status}"
    if kind != "application/json" or body is None:
        return
    schema = {**content[kind]["schema"], "components": _strict_components()}
    jsonschema.validate(body, schema)
