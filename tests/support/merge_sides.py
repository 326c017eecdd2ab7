"""Two branches of a graph that have each done what a text case says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from omnigraph.graph import Graph
from support.cases import Case
from support.places import Place

SOURCE: Final = "draft"
TARGET: Final = "main"

Start = Callable[[Case], Graph]


def make_sides(case: Case, path: Path) -> None:
    """Make the graph of a case, with a branch for its base and one for its source."""
    with Place(str(path)).init(case.sections["schema"]) as graph:
        write(graph, case.sections.get("base", ""), TARGET)
        graph.branch_create("base")
        graph.branch_create(SOURCE)
        act(graph, case.sections, "source", SOURCE)
        act(graph, case.sections, "target", TARGET)


def act(graph: Graph, sections: Mapping[str, str], side: str, branch: str) -> None:
    """Do what one side does to its rows, and to its schema where the case says so."""
    for name in ("before", "schema", "between", "schema 2"):
        section = sections.get(f"{side} {name}", "")
        if section and name.startswith("schema"):
            graph.apply_schema(section, branch=branch)
        else:
            write(graph, section, branch)
    write(graph, sections.get(side, ""), branch)


def write(graph: Graph, text: str, branch: str) -> None:
    """Write to one side: one load of its records, then one mutation of its statements."""
    lines = [line for line in text.split("\n") if line.strip()]
    mode = "merge"
    if lines and lines[0] == "overwrite":
        mode, lines = "overwrite", lines[1:]
    records = [line for line in lines if line.startswith("{")]
    statements = [line for line in lines if not line.startswith("{")]
    if records:
        graph.load("\n".join(records).encode(), mode=mode, branch=branch)
    if statements:
        graph.mutate(f"query side() {{ {' '.join(statements)} }}", branch=branch)
