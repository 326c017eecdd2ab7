"""A folder with a graph, and pipelines that run in it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph import Graph
from omnigraph.pipelines import Pipeline, RunRecord

SCHEMA = """\
node Person { name: String @key  age: I32?  country: String? }
edge Knows: Person -> Person { since: Date? }
"""
HEADER = "version: 1\nname: social\ntarget: {graph: graph.omni, publish: %s}\n"


class Place:
    """A folder with a graph; pipelines are texts that run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.graph = Graph.init(folder / "graph.omni", SCHEMA, auto_optimize=False)

    def parquet(self, path_: str, /, **columns: list[object]) -> None:
        path = self.folder / path_
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)

    def write(self, text: str, publish: str = "merge") -> Path:
        path = self.folder / "social.yaml"
        path.write_text(HEADER % publish + text)
        return path

    def pipeline(self, text: str, publish: str = "merge") -> Pipeline:
        return Pipeline.load(self.write(text, publish))

    def people(self, branch: str = "main") -> dict[str, int | None]:
        """Return the ages of all people on a branch."""
        text = "query q() { match { $p: Person } return { $p.name, $p.age } }"
        self.graph.branches.bind(branch)
        rows = self.graph.query(text).to_pylist()
        self.graph.branches.bind("main")
        return {row["p.name"]: row["p.age"] for row in rows}

    @property
    def operations(self) -> list[str]:
        """What the commits of main did, newest first."""
        return [commit.operation for commit in self.graph.commits.list()]


def counts_of(run: RunRecord) -> dict[str, tuple[int, int, int, int]]:
    """Return inserted, updated, unchanged and rejected rows by type."""
    return {
        one.type_name: (one.inserted, one.updated, one.unchanged, one.rejected)
        for one in run.counts
    }
