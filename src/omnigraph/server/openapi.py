"""The OpenAPI document, made from the table of routes and the records of the wire."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec

from omnigraph.server.routes.route import Route
from omnigraph.wire.responses import ErrorOutput

Json = dict[str, Any]
_REF: Final = "#/components/schemas/{name}"
_TEXTS: Final = ("application/x-ndjson", "text/csv", "text/event-stream")
_REASONS: Final = {
    400: "The request is wrong.",
    401: "The bearer token is missing or not known.",
    403: "A policy refuses it.",
    404: "Something that is named does not exist.",
    409: "Nothing happened: something else was faster, or is in the way.",
    410: "The history was reclaimed.",
    412: "A condition does not hold; nothing happened.",
    413: "A limit is exceeded.",
    415: "The content type is wrong.",
    416: "The range cannot be satisfied.",
    422: "The JSON has the wrong shape.",
    424: "An external object could not be read; nothing happened.",
    429: "Too many writes of one actor are in flight.",
    500: "The server failed.",
    503: "A write has to be settled first.",
}


def openapi_document(routes: Sequence[Route], *, requires_bearer: bool) -> Json:
    """Return the document."""
    names = sorted({kind for route in routes for kind in _records(route)}, key=lambda k: k.__name__)
    schemas, components = msgspec.json.schema_components([*names], ref_template=_REF)
    by_kind = dict(zip(names, schemas, strict=True))
    paths: Json = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(
            route, by_kind, requires_bearer=requires_bearer
        )
    document: Json = {
        "openapi": "3.1.0",
        "info": {"title": "Omnigraph API", "version": version("omnigraph")},
        "paths": paths,
        "components": {"schemas": components},
    }
    if requires_bearer:
        scheme = {"type": "http", "scheme": "bearer"}
        document["components"]["securitySchemes"] = {"bearer_token": scheme}
    return document


def _records(route: Route) -> set[type]:
    kinds = {route.request, *_members(route.response), route.error, ErrorOutput}
    return {kind for kind in kinds if isinstance(kind, type)}


def _members(kind: Any) -> tuple[Any, ...]:
    """Return the records of an answer that may have several shapes."""
    if isinstance(kind, types.UnionType):
        return typing.get_args(kind)
    return (kind,)


def _operation(route: Route, schemas: dict[type, Json], *, requires_bearer: bool) -> Json:
    operation: Json = {
        "operationId": route.operation_id,
        "summary": route.summary,
        "responses": _responses(route, schemas),
    }
    parameters = [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)]
    if parameters:
        operation["parameters"] = parameters
    body = _body(route, schemas)
    if body is not None:
        operation["requestBody"] = body
    if route.successor is not None:
        operation["deprecated"] = True
    if requires_bearer and not route.is_public:
        operation["security"] = [{"bearer_token": []}]
    return operation


def _body(route: Route, schemas: dict[type, Json]) -> Json | None:
    if route.raw_body is not None:
        return {"required": True, "content": {route.raw_body: {"schema": {"type": "string"}}}}
    if route.request is None:
        return None
    content = {"application/json": {"schema": schemas[route.request]}}
    return {"required": not route.body_optional, "content": content}


def _responses(route: Route, schemas: dict[type, Json]) -> Json:
    found: Json = {"200": _success(route, schemas)}
    if route.operation_id == "cluster_getBlob":
        found["206"] = {**found["200"], "description": "A part of the value."}
    if route.operation_id in ("cluster_getBlob", "cluster_headBlob"):
        found["302"] = {"description": "The address of an external object."}
        found["304"] = {"description": "The value has not changed."}
    statuses = {*route.errors, *(() if route.is_public else (401, 500))}
    for status in sorted(statuses):
        found[str(status)] = {"description": _REASONS[status]}
        if route.method != "HEAD":
            content = {"application/json": {"schema": schemas[route.error]}}
            found[str(status)]["content"] = content
    return found


def _success(route: Route, schemas: dict[type, Json]) -> Json:
    answer: Json = {"description": "Done."}
    if route.method == "HEAD":
        return answer
    if isinstance(route.response, str):
        content = _form(route.response)
    else:
        members = [schemas[kind] for kind in _members(route.response)]
        schema = members[0] if len(members) == 1 else {"anyOf": members}
        content = {"application/json": {"schema": schema}}
    for media_type in route.forms:
        content |= _form(media_type)
    answer["content"] = content
    return answer


def _form(media_type: str) -> Json:
    """Declare a form that is no JSON document; bytes have no schema."""
    kind = media_type.partition(";")[0]
    return {kind: {"schema": {"type": "string"}} if kind in _TEXTS else {}}


def _path_parameters(route: Route) -> list[Json]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]


def _query_parameters(route: Route) -> list[Json]:
    if route.query is None:
        return []
    found = []
    _, components = msgspec.json.schema_components([route.query], ref_template=_REF)
    schema = components[route.query.__name__]
    for name, declared in schema["properties"].items():
        shape = {key: value for key, value in declared.items() if key != "default"}
        # What is absent from a query string is not null.
        options = [one for one in shape.get("anyOf", [shape]) if one != {"type": "null"}]
        schema_of = options[0] if len(options) == 1 else {"anyOf": options}
        required = name in schema.get("required", ())
        found.append({"name": name, "in": "query", "required": required, "schema": schema_of})
    return found


def _header_parameters(route: Route) -> list[Json]:
    return [
        {"name": name, "in": "header", "required": True, "schema": {"type": "string"}}
        for name in route.headers
    ]
