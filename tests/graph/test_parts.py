"""The parts of a graph: a flat name is one method of one part, and all are documented."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import getclosurevars, signature
from pathlib import Path

import pytest

from omnigraph.graph import (
    Graph,
    GraphBranches,
    GraphChanges,
    GraphCommits,
    GraphLineage,
    GraphMaintenance,
    GraphRecovery,
    GraphSchema,
    GraphTags,
)

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
PARTS = {
    "branches": GraphBranches,
    "commits": GraphCommits,
    "tags": GraphTags,
    "changes": GraphChanges,
    "schema": GraphSchema,
    "maintenance": GraphMaintenance,
    "recovery": GraphRecovery,
    "lineage": GraphLineage,
}


def documented() -> list[tuple[str, str, str]]:
    """Return part, method and flat name of every row in the table of parts."""
    table = REFERENCE.read_text(encoding="utf-8").partition("## Parts of a graph")[2]
    found, part = [], ""
    for row in re.findall(r"^\|(.*)\|$", table.partition("\n## ")[0], re.MULTILINE)[2:]:
        first, methods, flat = row.split("|")
        named = re.search(r"`graph\.(\w+)`", first)
        part = named[1] if named else part
        names = re.findall(r"`(\w+)`", methods)
        flats = names if flat.strip() == "the same" else re.findall(r"`(\w+)`", flat)
        found += [(part, name, other) for name, other in zip(names, flats, strict=True)]
    return found


def shape(call: Callable[..., object]) -> list[tuple[str, object, object]]:
    parameters = signature(call).parameters.values()
    return [(one.name, one.kind, one.default) for one in parameters]


@pytest.mark.parametrize("part", PARTS)
def test_every_method_of_a_part_is_documented(part: str) -> None:
    methods = {name for name in vars(PARTS[part]) if not name.startswith("_")}
    assert {name for owner, name, _ in documented() if owner == part} == methods


@pytest.mark.parametrize(("part", "name", "flat"), documented())
def test_a_flat_name_takes_what_its_method_takes(part: str, name: str, flat: str) -> None:
    method = getattr(PARTS[part], name)
    assert shape(getattr(Graph, flat)) == shape(method)
    assert getclosurevars(getattr(Graph, flat)).nonlocals == {"part": part, "method": method}


def test_a_graph_and_its_parts_are_bound_to_one_branch(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "graph", "node Person { name: String @key }") as graph:
        graph.branches.create("draft")
        graph.branches.bind("draft")
        graph.load(b'{"type": "Person", "data": {"name": "Ada"}}', mode="append")
        assert graph.branch == "draft"
        assert graph.commits.head_id() == graph.snapshot().commit_id
        assert graph.commits.head_id("main") != graph.commits.head_id()
        assert graph.tags.create("first").name == graph.tag_list()[0].name
