"""Writes the beginning of a test: the types and columns that a query reads, and no rows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from omnigraph.graph import load_queries
from omnigraph.pipelines.data_tests.acts import placeholder
from omnigraph.query import QueryDecl, compile_query, describe_plan
from omnigraph.query.plan.plan import Expand, MutationPlan, NodeScan, Plan, PropertyValue
from omnigraph.query.plan.walk import predicate_values, walk_operators
from omnigraph.schema import Catalog, EdgeType, EntityType, NodeType, compile_schema
from omnigraph.syntax.grammar import decode_source

_DOMAIN = "0" * 26


def scaffold(query: str, *, schema_path: Path, query_path: Path, folder: Path) -> str:
    """Return the text of a test file for a query; paths in it begin at `folder`.

    Its rows are examples: one of each type, with every property that the query reads or the schema
    demands.
    """
    schema = decode_source(schema_path.read_bytes(), str(schema_path), "S")
    catalog = compile_schema(schema, domain=_DOMAIN).catalog
    stored = load_queries([query_path]).find(query)
    plan = compile_query(stored.query, catalog, stored.source)
    return "\n".join(
        [
            f"# A test of the query {query}: change the rows, and say what it returns for them.",
            f"schema: {_path(schema_path, folder)}",
            f"queries: [{_path(query_path, folder)}]",
            "fixtures:",
            "  small:",
            *(f"    - {_flow(row)}" for row in _rows(plan, catalog)),
            "tests:",
            f"  - name: {query}",
            "    fixture: small",
            *_body(stored.query),
            "",
        ]
    )


def _body(query: QueryDecl) -> Iterator[str]:
    params = {one.name: placeholder(one.prop_type) for one in query.parameters}
    yield f"    {'mutate' if query.is_mutation else 'query'}: {query.name}"
    if params:
        yield f"    params: {_flow(params)}"
    yield f"    expect: {{{'affected_nodes: 0' if query.is_mutation else 'rows: []'}}}"


def _path(path: Path, folder: Path) -> str:
    return _flow(Path(os.path.relpath(path, folder)).as_posix())


def _flow(value: object) -> str:
    """Return a value as YAML on one line; texts are quoted as in JSON.

    >>> _flow({"type": "Paper", "data": {"year": 0}})
    '{type: "Paper", data: {year: 0}}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


# -- rows -----------------------------------------------------------------------------------------


def _rows(plan: Plan, catalog: Catalog) -> Iterator[dict[str, object]]:
    """Yield an example of each type that a query reads, nodes first."""
    columns = _columns_read(plan)
    for touched in describe_plan(plan).reads:
        if touched.kind == "node":
            node_type = catalog.node_types[touched.type_name]
            yield {"type": node_type.name, "data": _data(node_type, columns)}
            continue
        edge_type = catalog.edge_types[touched.type_name]
        row: dict[str, object] = {
            "edge": edge_type.name,
            "from": _key(catalog.node_types[edge_type.from_type]),
            "to": _key(catalog.node_types[edge_type.to_type]),
        }
        data = _data(edge_type, columns)
        yield row | {"data": data} if data else row


def _columns_read(plan: Plan) -> dict[str, set[str]]:
    """Return the properties that a read looks at, by the name of their type."""
    found: dict[str, set[str]] = {}
    if isinstance(plan, MutationPlan):
        return found
    for operator in walk_operators(plan.pipeline):
        if isinstance(operator, NodeScan):
            filters, type_name = operator.filters, operator.type_name
        elif isinstance(operator, Expand):
            filters, type_name = operator.target_filters, operator.target_type
            found.setdefault(operator.edge, set()).update(operator.edge_properties)
        else:
            continue
        values = [value for predicate in filters for value in predicate_values(predicate)]
        names = {value.property for value in values if isinstance(value, PropertyValue)}
        found.setdefault(type_name, set()).update(names, operator.properties)
    return found


def _data(entity_type: EntityType, columns: dict[str, set[str]]) -> dict[str, object]:
    read = columns.get(entity_type.name, set())
    key = entity_type.key if isinstance(entity_type, NodeType) else ()
    made = entity_type.embed_sources if isinstance(entity_type, NodeType) else {}
    return {
        name: _example(entity_type, name) if name in key else placeholder(prop.prop_type)
        for name, prop in entity_type.properties.items()
        if name in read
        or name in key
        or (not prop.prop_type.nullable and prop.default is None and name not in made)
    }


def _example(entity_type: NodeType | EdgeType, name: str) -> object:
    """Return a value of a key: a text that says of which type it is."""
    found = placeholder(entity_type.properties[name].prop_type)
    return f"{entity_type.name.lower()}-1" if found == "" else found


def _key(node_type: NodeType) -> object:
    """Return how an edge names the example of a node type."""
    values = [_example(node_type, name) for name in node_type.key]
    if len(values) == 1:
        return str(values[0])
    return json.dumps([str(value) for value in values], separators=(",", ":"))
