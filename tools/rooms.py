"""The rooms of the package: what lives where, and who may import whom.

One list feeds the import test, the table in `docs/architecture.md` and the picture of the
architecture, so they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Room:
    """A module or package of `omnigraph` and the rooms that it may import."""

    number: int
    name: str
    holds: str
    may_import: tuple[str, ...]


GROUND = (
    *("dataclass", "texts", "hints", "errors", "names", "values", "clock", "cache"),
    *("failpoints", "records", "strict_yaml", "display", "progress", "late"),
)
"""The rooms that every other room may import."""

ROOMS: tuple[Room, ...] = (
    Room(1, "dataclass", "frozen records that are cheap to import", ()),
    Room(1, "texts", "text from outside, as it may be shown and kept", ()),
    Room(1, "hints", "what a hint of the command line is called in Python", ()),
    Room(1, "errors", "the error tree", ("texts", "hints")),
    Room(1, "clock", "the only source of time, ids, waiting and chance", ()),
    Room(1, "cache", "bounded memory for derived values, each computed by one thread", ()),
    Room(1, "failpoints", "named points at which a test makes a write fail or die", ("errors",)),
    Room(1, "records", "stored JSON as dataclasses, by their annotations", ("dataclass",)),
    Room(1, "strict_yaml", "YAML of which nothing is guessed", ("texts",)),
    Room(1, "display", "how results look at a prompt and in a notebook", ("dataclass", "texts")),
    Room(1, "late", "modules and names that are imported when they are first used", ()),
    Room(1, "progress", "what a long job is doing, on a terminal or for a caller", ()),
    Room(1, "names", "checked names and ids", ("dataclass", "texts", "errors")),
    Room(1, "values", "property types and their Arrow form", ("dataclass", "texts", "errors")),
    Room(2, "syntax", "source text, spans, diagnostics, the parser library", GROUND),
    Room(3, "schema", "the `.pg` language, from grammar to migration plan", (*GROUND, "syntax")),
    Room(
        4,
        "query",
        "the `.gq` language, from grammar to typed plan",
        (*GROUND, "syntax", "schema"),
    ),
    Room(5, "policy", "actor, action and resource in; decision and reason out", GROUND),
    Room(6, "store", "datasets and objects; the only home of Lance and cloud clients", GROUND),
    Room(
        7,
        "manifest",
        "snapshots, commits, branches, the one atomic publish",
        (*GROUND, "schema", "store"),
    ),
    Room(
        8,
        "lineage",
        "what a commit says of its job and its inputs; OpenLineage events",
        (*GROUND, "manifest"),
    ),
    Room(
        8,
        "changes",
        "row differences between snapshots, the change feed",
        (*GROUND, "schema", "store", "manifest"),
    ),
    Room(
        9,
        "search",
        "indexes, embeddings, rank fusion, edge topology",
        (*GROUND, "schema", "store", "manifest"),
    ),
    Room(
        10,
        "read",
        "runs a typed plan on one snapshot",
        (*GROUND, "schema", "query", "store", "manifest", "search"),
    ),
    Room(
        11,
        "recovery",
        "the intent record, the verdict table, the replay",
        (*GROUND, "store", "manifest"),
    ),
    Room(
        12,
        "write",
        "rules, staging, commit; load, mutate, embed, export, schema apply",
        (
            *GROUND,
            *("schema", "query", "store", "manifest", "lineage", "search", "read", "recovery"),
        ),
    ),
    Room(
        12,
        "maintenance",
        "optimize, indexes, cleanup, repair, scrub, health",
        (*GROUND, "schema", "store", "manifest", "search", "recovery", "write"),
    ),
    Room(
        13,
        "merge",
        "three-way merge and conflicts",
        (*GROUND, "schema", "store", "manifest", "lineage", "changes", "recovery", "write"),
    ),
    Room(
        14,
        "engine",
        "where an optional engine registers itself",
        (*GROUND, "schema", "manifest", "changes", "write", "maintenance", "merge"),
    ),
    Room(
        14,
        "graph",
        "the public face: authorize, then hand over",
        (
            *GROUND,
            *("syntax", "schema", "query", "policy", "store", "manifest", "lineage", "changes"),
            *("search", "read", "recovery", "write", "maintenance", "merge", "engine"),
        ),
    ),
    Room(15, "wire", "JSON shapes, the error-to-status table", GROUND),
    Room(
        16,
        "spark",
        "PySpark source, sink and pipeline steps",
        (
            *GROUND,
            *("schema", "query", "store", "manifest", "lineage", "changes", "search", "write"),
            *("maintenance", "merge", "graph", "engine"),
        ),
    ),
    Room(
        16,
        "pipelines",
        "declared pipelines, contracts and tests of data: file, checks before a run, run, history",
        (*GROUND, "syntax", "schema", "query", "lineage", "graph", "engine", "spark"),
    ),
    Room(
        16,
        "testing",
        "fixtures for Python tests, the pytest plugin",
        (*GROUND, "graph", "pipelines"),
    ),
    Room(
        15,
        "client",
        "a graph of a server, with the face of a local one",
        (*GROUND, "syntax", "schema", "lineage", "read", "write", "merge", "graph", "wire"),
    ),
    Room(
        17,
        "cluster",
        "declared graphs: config, plan, apply, state lock",
        (*GROUND, "syntax", "schema", "query", "policy", "store", "graph", "engine", "pipelines"),
    ),
    Room(
        17,
        "integrations",
        "graphs in other tools: dlt, Pygments",
        (*GROUND, "schema", "graph"),
    ),
    Room(18, "web", "static files of the web UI", ()),
    Room(
        19,
        "server",
        "HTTP routes, auth, streaming",
        (*GROUND, "policy", "graph", "engine", "wire", "cluster", "web"),
    ),
    Room(20, "mcp", "Model Context Protocol tools", (*GROUND, "wire")),
    Room(
        21,
        "cli",
        "commands and output forms",
        (
            *GROUND,
            *("policy", "graph", "engine", "wire", "client"),
            *("spark", "pipelines", "cluster", "server", "mcp"),
        ),
    ),
)

LIBRARY_HOMES: dict[str, str] = {
    "lark": "syntax",
    "lance": "store",
    "obstore": "store",
    "boto3": "server",
    "openlineage": "lineage",
    "xxhash": "store",
    "cedarpy": "policy",
    "pyspark": "spark",
    "dlt": "integrations",
    "pygments": "integrations",
    "fastapi": "server",
    "starlette": "server",
    "uvicorn": "server",
    "mcp": "mcp",
    "httpx2": "client",
    "click": "cli",
    "prompt_toolkit": "cli",
    "pytest": "testing",
    "rich": "cli",
}
"""Large libraries and the one room that may import each."""
