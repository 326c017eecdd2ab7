"""A setting that takes one of several words: an unknown word is `OG-CHOICE` in every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnigraph.graph import Graph, ReadTarget, Selection
from omnigraph.names import UnknownChoiceError

MAIN = ReadTarget.branch("main")
RECORD = b'{"type": "Person", "data": {"name": "Ada"}}'
INSERT = 'query q() { insert Person { name: "Ada" } }'


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    schema = "node Person { name: String @key }"
    with Graph.init(tmp_path / "graph", schema, durability="process") as made:
        made.branches.create("draft")
        yield made


CALLS: dict[str, Callable[[Graph], object]] = {
    "open mode": lambda graph: Graph.open(graph.uri, mode="x"),
    "durability of open": lambda graph: Graph.open(graph.uri, durability="x"),  # type: ignore[arg-type]  # the point
    "durability of init": lambda graph: Graph.init(graph.uri, "", durability="x"),  # type: ignore[arg-type]  # the point
    "durability of a repair": lambda graph: Graph.repair_manifests(graph.uri, durability="x"),  # type: ignore[arg-type]  # the point
    "engine of a merge": lambda graph: graph.branches.merge("draft", engine="x"),
    "strategy of a merge": lambda graph: graph.branches.merge("draft", strategy="x"),
    "preference of a merge": lambda graph: graph.branches.merge("draft", prefer="x"),
    "strategy of conflicts": lambda graph: list(graph.branches.conflicts("draft", strategy="x")),
    "preference of a revert": lambda graph: graph.commits.revert(
        graph.commits.head_id(), prefer="x"
    ),
    "engine of optimize": lambda graph: graph.maintenance.optimize(engine="x"),
    "engine of a diff": lambda graph: graph.changes.diff(MAIN, MAIN).rows(engine="x"),
    "engine of changes": lambda graph: graph.changes.between(MAIN, MAIN, engine="x"),
    "kind of a selection": lambda _: Selection.of(kinds=["x"]),
    "operation of a selection": lambda _: Selection.of(ops=["x"]),
    "kind of a blob": lambda graph: graph.blob("x", "Person", "Ada", "name"),  # type: ignore[arg-type]  # the point
    "format of an export": lambda graph: graph.export(f"{graph.uri}.out", format="x"),
    "engine of an export": lambda graph: graph.export(f"{graph.uri}.out", engine="x"),
    "mode of a load": lambda graph: graph.load(RECORD, mode="x"),
    "reader of a load": lambda graph: graph.load(RECORD, mode="append", reader="x"),
    "engine of a load": lambda graph: graph.load(RECORD, mode="append", engine="x"),
    "embed of a load": lambda graph: graph.load(RECORD, mode="append", embed="x"),
    "on_error": lambda graph: graph.load(RECORD, mode="append", on_error="x"),
    "on_duplicate": lambda graph: graph.load(RECORD, mode="append", on_duplicate="x"),
    "edges": lambda graph: graph.load(RECORD, mode="merge", edges="x"),
    "embed of a mutation": lambda graph: graph.mutate(INSERT, embed="x"),
    "mode of embed": lambda graph: graph.embed(mode="x"),
}


@pytest.mark.parametrize("setting", CALLS)
def test_an_unknown_word_is_named_with_those_that_are_known(graph: Graph, setting: str) -> None:
    head = graph.snapshot().manifest_version
    with pytest.raises(UnknownChoiceError, match="'x'") as caught:
        CALLS[setting](graph)
    assert caught.value.code == "OG-CHOICE"
    assert graph.snapshot().manifest_version == head
