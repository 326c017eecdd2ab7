"""Graphs of every format so far, stored in this folder: read, updated, written and scrubbed.

`make_graphs.py` tells how they were made. A new format adds a file; none is ever made again.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from compat.make_graphs import LEGACY_RUNS
from omnigraph.graph import ReadTarget
from omnigraph.manifest import OpenMode
from omnigraph.manifest.format_stamp import read_stamp
from omnigraph.manifest.layout import MANIFEST
from omnigraph.names import INTERNAL_SCHEMA_VERSION
from support.entities import entities
from support.places import Place, tree

FOLDER = Path(__file__).parent
FORMATS = range(1, INTERNAL_SCHEMA_VERSION + 1)
COMPLETE, HALF_DONE = "format-3-complete", "format-3-half-done"
STORED = [*(f"format-{number}" for number in FORMATS), COMPLETE, HALF_DONE]
SETTLED = {
    COMPLETE: ("roll_forward", "RolledForward"),
    HALF_DONE: ("roll_back", "RolledBack"),
}

FIRST = [
    "Crew ann at=[0.0, 1.0] photo=base64:b'a' rank=5",
    "Crew bo code=b",
    "Log * text=first",
    "Mentors ann->bo since=2020-01-01",
]
MAIN = [FIRST[0].replace("rank=5", "rank=6"), FIRST[1], FIRST[3]]
FINISHED = ["Crew eve", "Mentors eve->ann"]


@pytest.fixture(params=STORED)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(name: str, tmp_path: Path) -> Place:
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return Place(str(tmp_path / "graph"))


def format_of(place: Place) -> int:
    return read_stamp(place.uri, place.store().datasets)


def rows_after_recovery(name: str) -> list[str]:
    return sorted([*MAIN, *FINISHED]) if name == COMPLETE else MAIN


def test_every_format_has_a_stored_graph() -> None:
    stored = {path.name.removesuffix(".tar.gz") for path in FOLDER.glob("*.tar.gz")}
    assert stored == set(STORED)


def test_a_stored_graph_is_read_as_it_is(name: str, place: Place) -> None:
    before = tree(Path(place.uri))
    with place.open(mode=OpenMode.READ_ONLY) as graph:
        assert entities(graph) == MAIN
        rows = graph.query(
            'query q() { match { $c: Crew {tag: "ann"} $c mentors $m } return { $m.tag } }'
        )
        assert rows.to_pylist() == [{"m.tag": "bo"}]
    assert format_of(place) == int(name.split("-")[1])
    assert tree(Path(place.uri)) == before, "reading has changed something"


def test_a_stored_graph_is_brought_up_to_date_and_keeps_its_history(
    name: str, place: Place
) -> None:
    with place.open() as graph:
        assert format_of(place) == INTERNAL_SCHEMA_VERSION
        assert graph.branch_list() == ["main"]
        assert entities(graph) == rows_after_recovery(name)
        commits = graph.list_commits()
        assert commits[-2].message == "the first rows"
        assert commits[-3].actor_id == "ada"
        first = graph.snapshot_of(ReadTarget.tag("first"))
        assert first.commit_id == commits[-2].graph_commit_id
        assert first.entry("node:Log").row_count == 1
        before_recovery = ReadTarget.commit(commits[-4].graph_commit_id)
        changes = list(graph.changes_between(first, before_recovery))
        assert {change["op"] for change in changes} == {"update", "delete"}
    runs = set(place.store().datasets.branch_names(MANIFEST)) & set(LEGACY_RUNS)
    assert runs == set()


def test_what_a_dead_writer_left_is_settled(place: Place, name: str) -> None:
    with place.open(mode=OpenMode.READ_ONLY) as graph:
        pending = [str(each.verdict) for each in graph.recovery_status()]
    with place.open() as graph:
        settled = [str(row.recovery_kind) for row in graph.recovery_list()]
        assert graph.recovery_status() == []
    assert (*pending, *settled) == SETTLED.get(name, ())


def test_a_stored_graph_is_written_merged_maintained_and_sound(name: str, place: Place) -> None:
    with place.open() as graph:
        graph.branch_create("draft")
        graph.mutate('query q() { insert Crew { tag: "cy" } }', branch="draft")
        graph.mutate('query q() { update Crew set { rank: 9 } where tag = "bo" }')
        graph.branch_merge("draft")
        graph.branch_delete("draft")
        graph.optimize()
        graph.apply_schema(graph.schema_source() + "node After { code: String @key }\n")
        graph.mutate('query q() { insert After { code: "x" } }')
    with place.open() as graph:
        expected = [row for row in rows_after_recovery(name) if not row.startswith("Crew bo")]
        assert entities(graph) == sorted([*expected, "Crew bo code=b rank=9", "Crew cy", "After x"])
        report = graph.scrub()
        assert report.is_sound, report.to_json()
        assert report.compared
