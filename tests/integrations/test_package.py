"""Packages of tables: one commit each, once, whatever the modes of their tables are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph import Graph
from omnigraph.errors import OmnigraphError
from omnigraph.graph import read_lineage
from omnigraph.graph.branches import GraphBranches
from omnigraph.integrations.package import (
    Package,
    PackageTable,
    TableMapError,
    load_package,
    read_targets,
)

SCHEMA = """\
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: I32? }
"""
MAP = {"people": "Person", "follows": {"edge": "Knows", "src": "a", "dst": "b"}, "log": None}


class Place:
    """A folder with a graph and packages for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.graph = Graph.init(folder / "graph.omni", SCHEMA, durability="process")

    def table(self, name: str, mode: str, /, **columns: list[object]) -> PackageTable:
        path = self.folder / f"{name}-{len(list(self.folder.iterdir()))}.parquet"
        pq.write_table(pa.table(columns), path)
        return PackageTable(name, mode, (str(path),))

    def load(self, run_id: str, *tables: PackageTable, **table_map: object) -> str | None:
        package = Package("dlt", "social", run_id, tables)
        targets = read_targets({**MAP, **table_map})  # type: ignore[arg-type]  # wrong ones, too
        return load_package(self.graph, "main", package, targets)

    @property
    def rows(self) -> dict[str, list[tuple[object, ...]]]:
        found = {
            key: pa.Table.from_batches(list(batches)).to_pylist()
            for key, batches in self.graph.export_batches()
        }
        people = [(row["name"], row["age"]) for row in found.get("node:Person", [])]
        known = [(row["src"], row["dst"], row["since"]) for row in found.get("edge:Knows", [])]
        return {"Person": sorted(people), "Knows": sorted(known)}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_package_is_one_commit_that_states_it_and_lands_once(place: Place) -> None:
    people = place.table("people", "append", name=["ann", "bob"], age=[30, 40], noise=[1, 2])
    known = place.table("follows", "append", a=["ann"], b=["bob"], since=[2020])
    first = place.load("1", known, people, place.table("log", "append", text=["x"]))
    assert place.rows == {"Person": [("ann", 30), ("bob", 40)], "Knows": [("ann", "bob", 2020)]}
    commits = place.graph.commits.list()
    assert [one.operation for one in commits] == ["load", "init"]
    assert json.loads(commits[0].properties["job"]) == {
        "namespace": "dlt",
        "name": "social",
        "run_id": "1",
    }
    assert place.load("1", known, people) == first == commits[0].graph_commit_id
    assert len(place.graph.commits.list()) == 2
    # The same rows in another package are rows that exist.
    with pytest.raises(OmnigraphError):
        place.load("2", people)


def test_tables_of_several_modes_are_one_commit(place: Place) -> None:
    place.load("1", place.table("people", "overwrite", name=["ann", "bob"], age=[30, 40]))
    people = place.table("people", "merge", name=["bob", "cy"], age=[41, 7])
    known = place.table("follows", "overwrite", a=["cy"], b=["ann"], since=[2021])
    second = place.load("2", known, people)
    assert place.rows == {
        "Person": [("ann", 30), ("bob", 41), ("cy", 7)],
        "Knows": [("cy", "ann", 2021)],
    }
    assert place.graph.branches.list() == ["main"]
    assert [one.operation for one in place.graph.commits.list()] == ["merge", "load", "init"]
    assert place.load("2", known, people) == second
    bad = place.table("follows", "overwrite", a=["cy"], b=["nobody"], since=[1])
    with pytest.raises(OmnigraphError):
        place.load("3", bad, people)
    assert place.graph.branches.list() == ["main"]
    assert len(place.graph.commits.list()) == 3


def test_a_package_without_a_table_to_load_makes_no_commit(place: Place) -> None:
    assert place.load("1", place.table("log", "append", text=["x"])) is None
    assert len(place.graph.commits.list()) == 1


@pytest.mark.parametrize(
    ("table_map", "message"),
    [
        ({"people": "Persn"}, "table 'people': the graph has no type 'Persn'"),
        ({"people": {"node": "Person", "maps": {}}}, "found 'maps'"),
        ({"people": {"node": "Person", "edge": "Knows"}}, "found neither or both"),
        ({"people": {"node": "Person", "map": {"name": "nmae"}}}, "'name' needs column 'nmae'"),
        ({"people": {"node": "Person", "src": "name"}}, "is a node: it has no src and dst"),
        ({"people": "Knows"}, "'src' needs column 'src'; it has name, age"),
    ],
)
def test_a_map_that_does_not_fit_is_refused(
    place: Place, table_map: dict[str, object], message: str
) -> None:
    with pytest.raises(TableMapError, match=message):
        place.load("1", place.table("people", "append", name=["ann"], age=[1]), **table_map)
    assert len(place.graph.commits.list()) == 1


def test_a_table_that_the_map_does_not_name_is_refused(place: Place) -> None:
    with pytest.raises(TableMapError, match="table 'cats': the map has no type for it"):
        place.load("1", place.table("cats", "append", name=["tom"]))


def test_a_commit_of_a_package_has_a_whole_lineage(place: Place) -> None:
    place.load("1", place.table("people", "append", name=["ann"], age=[30]))
    people = place.table("people", "merge", name=["ann", "bob"], age=[31, 40])
    place.load("2", people, place.table("follows", "append", a=["ann"], b=["bob"], since=[1]))
    written = [{"Person", "Knows"}, {"Person"}]
    for commit, outputs in zip(place.graph.commits.list(limit=2), written, strict=True):
        lineage = read_lineage(commit.properties)
        assert lineage is not None
        assert (lineage.job.namespace, lineage.job.name) == ("dlt", "social")
        assert {one.type_name for one in lineage.outputs} == outputs
        assert lineage.inputs
        assert lineage.engine["engine"] == "local"


def test_a_column_that_only_a_later_file_has_is_loaded(place: Place) -> None:
    """A writer begins a new file when rows come with a column that the first one lacks."""
    first = place.table("people", "append", name=["ann"])
    second = place.table("people", "append", name=["bob"], age=[40])
    place.load("1", PackageTable("people", "append", (*first.files, *second.files)))
    assert place.rows["Person"] == [("ann", None), ("bob", 40)]


def test_two_processes_with_one_package_publish_all_of_it_or_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one cuts the branch of the package anew, while the first one is about to merge."""
    people = place.table("people", "merge", name=["ann", "bob"], age=[31, 40])
    known = place.table("follows", "append", a=["ann"], b=["bob"], since=[1])
    merge = GraphBranches.merge

    def meanwhile(branches: GraphBranches, source: str, *args: Any, **options: Any) -> object:
        monkeypatch.undo()
        branches.delete(source)
        branches.create_from("main", source)
        rows = b'{"type": "Person", "data": {"name": "ann"}}'
        place.graph.load(rows, mode="merge", branch=source)
        return merge(branches, source, *args, **options)

    monkeypatch.setattr(GraphBranches, "merge", meanwhile)
    with pytest.raises(OmnigraphError):
        place.load("1", people, known)
    assert place.rows == {"Person": [], "Knows": []}
    assert place.graph.branches.list() == ["main", "dlt/social/1"]
    place.load("1", people, known)
    assert place.rows["Knows"] == [("ann", "bob", 1)]
    assert place.graph.branches.list() == ["main"]
