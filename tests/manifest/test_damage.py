"""Damaged graphs: typed errors that name the path, and nothing is rewritten."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.errors import CorruptError
from omnigraph.graph import Graph
from omnigraph.manifest import OpenMode
from omnigraph.manifest.errors import DatasetMissingError
from omnigraph.manifest.layout import MANIFEST
from omnigraph.manifest.rows import Head, ManifestRow, rows_table
from omnigraph.manifest.state import CorruptManifestError
from omnigraph.recovery.torn import TornHeadError
from omnigraph.schema import SchemaDriftError
from omnigraph.store.errors import CorruptObjectError
from omnigraph.store.records import DatasetVersion
from support.manifests import commit
from support.places import CITY, PERSON, Place, add, ids, repository_of, tree
from support.writer import append, people


@pytest.fixture
def place(local_place: Place) -> Place:
    graph = local_place.init()
    add(graph, "ann")
    append(repository_of(graph), {CITY: people("rome")})
    return local_place


def append_row(place: Place, row: ManifestRow) -> None:
    """Write a row that no publish would write."""
    datasets = place.store().datasets
    base = DatasetVersion(MANIFEST, None, datasets.head_version(MANIFEST))
    datasets.commit_staged(datasets.stage_append(base, rows_table([row])))


@pytest.mark.parametrize(
    "row",
    [
        Head("C", "h").row(),
        ManifestRow("node:Person$nonsense", "table_version", {}, table_key=PERSON),
        ManifestRow("node:X$" + "9".zfill(20), "table_version", {}, table_key="node:X"),
        ManifestRow("node:Y", "table", {}, table_key="node:Y"),
        ManifestRow("node:Y$tombstone$?", "table_tombstone", {}, table_key="node:Y"),
    ],
    ids=["second head", "bad seq", "no version", "bad registration", "bad tombstone"],
)
@pytest.mark.parametrize("mode", list(OpenMode))
def test_a_corrupt_row_stops_open_and_leaves_everything(
    place: Place, row: ManifestRow, mode: OpenMode
) -> None:
    append_row(place, row)
    before = tree(Path(place.uri))
    with pytest.raises(CorruptManifestError) as caught:
        place.open(mode=mode)
    assert caught.value.path == f"{place.uri}/{MANIFEST}"
    assert caught.value.version == 4
    assert tree(Path(place.uri)) == before


def test_a_corrupt_commit_is_found_when_it_is_read(place: Place) -> None:
    append_row(place, ManifestRow("BAD", "graph_commit", {"operation": "load"}))
    graph = place.open(mode=OpenMode.READ_ONLY)
    with pytest.raises(CorruptManifestError, match="a graph_commit row is malformed"):
        graph.list_commits()
    assert ids(graph.snapshot()) == ["ann"]


def test_a_commit_that_is_there_twice_is_found_at_open(place: Place) -> None:
    first = place.open().list_commits()[0]
    append_row(place, commit(first.graph_commit_id).row())
    with pytest.raises(CorruptManifestError, match=first.graph_commit_id):
        place.open()


def test_a_table_without_a_type_is_drift(place: Place) -> None:
    graph = place.open()
    datasets = repository_of(graph).store.datasets
    base = DatasetVersion(MANIFEST, None, datasets.head_version(MANIFEST))
    extra = ManifestRow(
        "node:Extra", "table", {"type_id": 9, "table_incarnation_id": 9}, "nodes/x", "node:Extra"
    )
    published = ManifestRow(
        "node:Extra$" + "4".zfill(20),
        "table_version",
        {"owner": "main"},
        "nodes/x",
        "node:Extra",
        1,
        None,
        0,
    )
    datasets.commit_staged(datasets.stage_append(base, rows_table([extra, published])))
    before = tree(Path(place.uri))
    for attempt in (place.open, graph.refresh):
        with pytest.raises(SchemaDriftError, match="node:Extra"):
            attempt()
    assert tree(Path(place.uri)) == before


def test_a_missing_dataset_is_named(place: Place) -> None:
    graph = place.open(mode=OpenMode.READ_ONLY)
    location = graph.snapshot().entry(PERSON).location
    shutil.rmtree(Path(place.uri) / location)
    before = tree(Path(place.uri))
    fresh = place.open(mode=OpenMode.READ_ONLY)
    with pytest.raises(DatasetMissingError) as caught:
        ids(fresh.snapshot())
    assert caught.value.path == location
    assert caught.value.table_key == PERSON
    assert isinstance(caught.value, CorruptError)
    with pytest.raises(DatasetMissingError):
        fresh.entity_at(PERSON, "ann", 2)
    assert ids(fresh.snapshot(), CITY) == ["rome"]
    assert tree(Path(place.uri)) == before


def test_a_missing_fork_is_named(place: Place) -> None:
    graph = place.open()
    graph.branch_create("dev")
    add(graph, "bob", branch="dev")
    entry = place.open("dev").snapshot().entry(PERSON)
    shutil.rmtree(Path(place.uri) / entry.location / "tree")
    with pytest.raises(DatasetMissingError, match=str(entry.table_branch)):
        ids(place.open("dev", mode=OpenMode.READ_ONLY).snapshot())


def newest(directory: Path, pattern: str) -> Path:
    """The newest version sorts first, the newest file has the latest time."""
    files = sorted(directory.glob(pattern))
    return files[0] if pattern == "*.manifest" else max(files, key=lambda f: f.stat().st_mtime_ns)


def cut(file: Path) -> Path:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    return file


def empty(file: Path) -> Path:
    file.write_bytes(b"")
    return file


@pytest.mark.parametrize("damage", [cut, empty])
@pytest.mark.parametrize(("folder", "pattern"), [("_versions", "*.manifest"), ("data", "*.lance")])
@pytest.mark.parametrize("mode", list(OpenMode))
def test_a_truncated_file_of_the_manifest_stops_open(
    place: Place, damage: Callable[[Path], Path], folder: str, pattern: str, mode: OpenMode
) -> None:
    damage(newest(Path(place.uri) / MANIFEST / folder, pattern))
    before = tree(Path(place.uri))
    with pytest.raises((CorruptObjectError, TornHeadError)) as caught:
        place.open(mode=mode)
    assert MANIFEST in caught.value.path
    assert tree(Path(place.uri)) == before


@pytest.mark.parametrize("damage", [cut, empty])
@pytest.mark.parametrize(("folder", "pattern"), [("_versions", "*.manifest"), ("data", "*.lance")])
def test_a_truncated_file_of_a_table_stops_the_read_of_that_table(
    place: Place, damage: Callable[[Path], Path], folder: str, pattern: str
) -> None:
    location = place.open().snapshot().entry(PERSON).location
    damage(newest(Path(place.uri) / location / folder, pattern))
    before = tree(Path(place.uri))
    graph: Graph = place.open(mode=OpenMode.READ_ONLY)
    with pytest.raises(CorruptObjectError) as caught:
        ids(graph.snapshot())
    assert location in caught.value.path
    assert ids(graph.snapshot(), CITY) == ["rome"]
    assert tree(Path(place.uri)) == before
