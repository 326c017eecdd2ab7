"""A JSON Schema of `cluster.yaml`, from which editors complete keys and mark mistakes.

It knows the shape and the spelling of values. What one part says about another, and what is in the
files, only `omnigraph cluster validate` checks.
"""

from __future__ import annotations

from typing import Final

from omnigraph.cluster.config.providers import KEY_REFERENCE, PROVIDER_KINDS
from omnigraph.cluster.config.read import SCOPES
from omnigraph.names import GRAPH_ID_LENGTH_MAX, GRAPH_IDS_RESERVED
from omnigraph.records import Json, JsonObject

_NAME: Final = "^[A-Za-z_][A-Za-z0-9_-]*$"
_GRAPH_ID: Final = f"^[A-Za-z][A-Za-z0-9-]{{0,{GRAPH_ID_LENGTH_MAX - 1}}}$"
_NOT_BLANK: Final = r"\S"
_NULL: Final[JsonObject] = {"type": "null"}


def cluster_json_schema() -> JsonObject:
    """Return the JSON Schema of the whole file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "cluster.schema.json",
        "title": "cluster.yaml of omnigraph",
        **_object(
            {
                "version": {"const": 1, "description": "The format of this file."},
                "metadata": _optional(_object({"name": _LABEL})),
                "storage": _optional(_STORAGE),
                "state": _optional(_STATE),
                "providers": _optional(_object({"embedding": _optional(_named(_PROVIDER))})),
                "graphs": _optional(_GRAPHS),
                "policies": _optional(_named(_POLICY)),
                "pipelines": _optional(_named(_PIPELINE)),
            },
            required=["version"],
        ),
    }


def _object(properties: dict[str, Json], required: list[Json] | None = None) -> JsonObject:
    members: JsonObject = {"type": "object", "properties": dict(properties)}
    if required:
        members["required"] = required
    return {**members, "additionalProperties": False}


def _optional(value: JsonObject) -> JsonObject:
    """Allow a key without a value, which is the same as no key."""
    return {"anyOf": [value, _NULL]}


def _named(value: JsonObject, pattern: str = _NAME) -> JsonObject:
    return {
        "type": "object",
        "propertyNames": {"pattern": pattern},
        "additionalProperties": value,
    }


def _text(description: str, pattern: str | None = None) -> JsonObject:
    shape: JsonObject = {"type": "string", "description": description}
    return shape if pattern is None else {**shape, "pattern": pattern}


_LABEL: Final = _optional(_text("A label of the cluster.", _NOT_BLANK))
_STORAGE: Final = _text(
    "Where the cluster is stored: a path relative to this file, file:// or s3://bucket/prefix.",
    r"^(?![A-Za-z][A-Za-z0-9+.-]*://)\s*\S|^[Ff][Ii][Ll][Ee]://|^[Ss]3://[A-Za-z0-9]",
)
_STATE: Final = _object(
    {
        "backend": {"enum": ["cluster", None], "description": "Where the state is kept."},
        "lock": {
            "type": ["boolean", "null"],
            "description": "Whether commands take a lock; default true.",
        },
    }
)
_KIND: Final[JsonObject] = {"enum": [*PROVIDER_KINDS, None]}
_MOCK: Final[JsonObject] = {"const": "mock"}
_PROVIDER: Final[JsonObject] = {
    **_object(
        {
            "kind": {**_KIND, "description": "The protocol; default openai-compatible."},
            "provider": {**_KIND, "description": "Another name of `kind`."},
            "base_url": _optional(_text("The address of the service.", r"^\s*(https?://\S+)?\s*$")),
            "model": _optional(_text("The model that makes vectors.")),
            "api_key": _text("The environment variable that has the key.", f"^{KEY_REFERENCE}$"),
        }
    ),
    "not": {"required": ["kind", "provider"]},
    "anyOf": [
        {"required": ["api_key"]},
        {"properties": {"kind": _MOCK}, "required": ["kind"]},
        {"properties": {"provider": _MOCK}, "required": ["provider"]},
    ],
}
_PATH: Final = "A path relative to this file."
_FILE: Final = _object({"file": _text(_PATH)}, required=["file"])
_QUERIES: Final[JsonObject] = {
    "description": "A folder or file, a list of these, or a file for each name.",
    "anyOf": [
        _text(_PATH),
        {"type": "array", "items": _text(_PATH)},
        _named(_FILE),
        _NULL,
    ],
}
_ALLOWED_BASE: Final = _object(
    {
        "base": _text(
            "A folder, as s3:// or file:// URL.", r"^([Ss]3|[Ff][Ii][Ll][Ee])://[^?#\\]+$"
        ),
        "scope": {"enum": list(SCOPES), "description": "Who may read from it."},
    },
    required=["base", "scope"],
)
_GRAPH: Final = _object(
    {
        "schema": _text("The schema (.pg), relative to this file."),
        "queries": _QUERIES,
        "embedding_provider": _optional(_text("The name of a declared provider.")),
        "external_blobs": _optional(
            _object({"allow": _optional({"type": "array", "items": _ALLOWED_BASE})})
        ),
    },
    required=["schema"],
)
_GRAPHS: Final[JsonObject] = {
    **_named(_GRAPH, _GRAPH_ID),
    "propertyNames": {"pattern": _GRAPH_ID, "not": {"enum": [*sorted(GRAPH_IDS_RESERVED)]}},
}
_POLICY: Final = _object(
    {
        "file": _text(_PATH),
        "applies_to": {
            "type": "array",
            "items": _text("`cluster`, or the id of a graph."),
            "minItems": 1,
        },
    },
    required=["file", "applies_to"],
)
_PIPELINE: Final = _FILE
