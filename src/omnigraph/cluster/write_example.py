"""Writes a small cluster to begin with: a graph with a schema, queries and policies."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Final

from omnigraph.cluster.config.json_schema import cluster_json_schema
from omnigraph.errors import ConflictError

EXAMPLE_FILES: Final = (
    "cluster.yaml",
    "papers.pg",
    "queries/papers.gq",
    "policies/papers.policy.yaml",
    "policies/operators.policy.yaml",
)
SCHEMA_FILE: Final = "cluster.schema.json"


class ClusterFileExistsError(ConflictError):
    """A file of the example is there already; nothing was written."""

    code = "OG-CLUSTER-EXISTS"
    hint = "give an empty folder: `omnigraph cluster init DIR`"
    template = "{path} exists already, and nothing was written"
    path: str


def schema_text() -> str:
    """Return the JSON Schema of `cluster.yaml` as text."""
    return json.dumps(cluster_json_schema(), indent=2) + "\n"


def write_example(directory: Path) -> tuple[str, ...]:
    """Write the example into a folder and return the names of its files; nothing is replaced."""
    texts = _texts()
    for name in texts:
        if os.path.lexists(directory / name):
            raise ClusterFileExistsError(str(directory / name))
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    return tuple(texts)


def _texts() -> dict[str, str]:
    example = files("omnigraph.cluster") / "example"
    texts = {name: (example / name).read_text(encoding="utf-8") for name in EXAMPLE_FILES}
    return {**texts, SCHEMA_FILE: schema_text()}
