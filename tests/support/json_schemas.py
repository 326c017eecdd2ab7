"""Strategies for the JSON that a schema describes, as far as our OpenAPI document needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

Json = Mapping[str, Any]

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def json_of(
    schema: Json, components: Json, texts: Mapping[str, list[str]]
) -> st.SearchStrategy[Any]:
    """Return values of a schema; `texts` are good values of a string by the name of its field."""
    return _of(schema, components, texts, "")


def _of(
    schema: Json, components: Json, texts: Mapping[str, list[str]], name: str
) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        target = components[schema["$ref"].rpartition("/")[2]]
        return _of(target, components, texts, name)
    if "anyOf" in schema:
        return st.one_of(*(_of(each, components, texts, name) for each in schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "properties" in schema:
        return _object(schema, components, texts)
    if schema.get("type") == "array":
        return st.lists(_of(schema["items"], components, texts, name), max_size=3)
    good = st.sampled_from(texts.get(name, ["main"])) | st.text(max_size=12)
    return {**_SCALARS, "string": good}.get(schema.get("type", ""), ANY_JSON)


_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "integer": st.integers(-2, 10_000),
    "number": st.floats(allow_nan=False),
    "object": st.dictionaries(st.text(max_size=5), ANY_JSON, max_size=3),
}


def _object(
    schema: Json, components: Json, texts: Mapping[str, list[str]]
) -> st.SearchStrategy[dict[str, Any]]:
    fields = {
        name: _of(each, components, texts, name) for name, each in schema["properties"].items()
    }
    required = {name: fields[name] for name in schema.get("required", ())}
    optional = {name: each for name, each in fields.items() if name not in required}
    return st.fixed_dictionaries(required, optional=optional)
