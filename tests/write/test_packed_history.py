"""A long history in packs: every commit reads as before, and a commit costs the same later."""

from __future__ import annotations

import gc
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from omnigraph.graph import Graph, OpenMode
from omnigraph.maintenance.scrub.report import ScrubRequest
from omnigraph.maintenance.scrub.scrub import scrub
from omnigraph.manifest.compact import pack_manifest
from omnigraph.manifest.errors import VersionRemovedError
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST
from omnigraph.read.access.path_chooser import TRAVERSAL_MODE
from omnigraph.store.lance import packing
from support.places import PERSON, Place, finish_maintenance, repository_of, session_of

COMMITS = 30
LOOSE = 4


@pytest.fixture(autouse=True)
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LOOSE_MIN", LOOSE)
    monkeypatch.setattr(packing, "PACKED_MIN", 4)
    monkeypatch.setattr(packing, "PACKED_MAX", 16)


def content(graph: Graph, commit_id: str) -> dict[str, Any]:
    """Return what a commit left behind."""
    snapshot = graph.snapshot_of(commit_id)
    rows = {
        key: sorted(str(row) for row in snapshot.open(key).scan().read_all().to_pylist())
        for key in snapshot.entries
    }
    return {**snapshot.to_json(), "commit": snapshot.commit_id, "rows": rows}


def grown(graph: Graph, *, commits: int = COMMITS) -> None:
    graph.load(b'{"type": "Person", "data": {"name": "hub"}}\n', mode="append")
    for number in range(commits):
        name = f"p{number}".encode()
        graph.load(
            b'{"type": "Person", "data": {"name": "%b"}}\n' % name
            + b'{"edge": "Knows", "from": "%b", "to": "hub"}\n' % name,
            mode="merge",
        )
        if number == 8:
            graph.mutate('query q() { update Person set { age: 3 } where name = "p3" }')
            graph.tag_create("early")
        if number == 12:
            graph.branch_create("dev")
            graph.mutate('query q() { insert Person { name: "own" } }', branch="dev")
            graph.optimize()


def history(graph: Graph) -> dict[str, dict[str, Any]]:
    return {c.graph_commit_id: content(graph, c.graph_commit_id) for c in graph.commits.list()}


def pack(graph: Graph) -> None:
    repository = repository_of(graph)
    datasets = repository.store.datasets
    for entry in repository.reader.latest(MAIN_INCARNATION).entries.values():
        while datasets.pack_versions(entry.location, branch=entry.table_branch):
            pass
    while pack_manifest(repository, MAIN_INCARNATION):
        pass


def packs(place: Place) -> list[str]:
    return [info.path for info in place.store().objects.list() if info.path.endswith(".pack")]


def test_every_commit_reads_as_before(local_place: Place) -> None:
    graph = local_place.init()
    grown(graph)
    finish_maintenance(graph)
    before = history(graph)
    pack(graph)
    assert {path.split("/")[0] for path in packs(local_place)} >= {MANIFEST, "nodes", "edges"}
    for mode in (OpenMode.READ_WRITE, OpenMode.READ_ONLY):
        assert history(local_place.open(mode=mode)) == before
    early = content(graph, "early")
    assert early == before[early["commit"]]


def test_a_handle_packs_by_itself_and_commits_stay_small(local_place: Place) -> None:
    graph = local_place.init()
    grown(graph, commits=3 * COMMITS)
    graph.close()
    assert packs(local_place)
    root = Path(local_place.uri)
    loose = [path for path in root.rglob("*.manifest") if "_graph_commits" not in path.parts]
    # Three datasets have a version for each commit.
    assert len(loose) < 3 * 3 * COMMITS / 2


def test_a_closed_graph_holds_nothing(
    local_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable of a `with` block stays behind it, with all that it refers to."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv(TRAVERSAL_MODE, "csr")
    with local_place.init() as graph:
        grown(graph, commits=16)
        finish_maintenance(graph)
        pack(graph)
        before = history(graph)
        text = "query q() { match { $a: Person  $a knows $b } return { $a.age, $b.name } }"
        rows = graph.query(text).to_pylist()
        session = session_of(graph)
        assert session.topologies.nbytes
        assert list(folder.iterdir())
        thread = session.repository.store.background.start(threading.current_thread).result()
    thread.join(60)
    assert not thread.is_alive()
    gc.collect()
    assert not session.topologies.nbytes
    assert not list(folder.iterdir())
    with local_place.open() as again:
        assert (history(again), again.query(text).to_pylist()) == (before, rows)


def test_branches_tags_and_changes_of_packed_commits(local_place: Place) -> None:
    graph = local_place.init()
    grown(graph)
    finish_maintenance(graph)
    before = history(graph)
    pack(graph)
    old = sorted(before)[5]
    graph.tag_create("old", old)
    assert content(graph, "old") == before[old]
    pack(graph)
    found = local_place.open()
    assert content(found, "old") == before[old]
    graph.branch_merge("dev")
    assert {row["id"] for row in graph.snapshot().open(PERSON).scan().read_all().to_pylist()} >= {
        "own",
        "p29",
    }
    newest = graph.snapshot().commit_id
    changed = {change["id"] for change in graph.diff_between(old, newest).to_json()["changes"]}
    assert {"p29", "own"} <= changed


def test_a_scrub_of_packs_finds_no_damage(local_place: Place) -> None:
    graph = local_place.init()
    grown(graph)
    pack(graph)
    graph.close()
    report = scrub(repository_of(local_place.open()), ScrubRequest(share=1.0))
    assert [str(each) for each in report.damaged] == []


@pytest.mark.parametrize("home", [MANIFEST, "nodes"])
def test_a_scrub_names_a_damaged_pack(local_place: Place, home: str) -> None:
    graph = local_place.init()
    grown(graph)
    pack(graph)
    graph.close()
    path = next(path for path in packs(local_place) if path.startswith(home))
    file = Path(local_place.uri) / path
    data = file.read_bytes()
    for damaged in (data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], data[:40], None):
        if damaged is None:
            file.unlink()
        else:
            file.write_bytes(damaged)
        report = scrub(repository_of(local_place.open()), ScrubRequest(share=1.0))
        assert [each.path for each in report.damaged] == [path]


def test_cleanup_keeps_what_its_policy_keeps(local_place: Place) -> None:
    graph = local_place.init()
    grown(graph)
    finish_maintenance(graph)
    before = history(graph)
    pack(graph)
    report = graph.maintenance.cleanup(keep_versions=LOOSE + 9, orphan_age_s=0, confirm=True)
    assert [each.error for each in report.datasets if each.error] == []
    found = local_place.open()
    readable = {}
    for commit_id in before:
        with suppress(VersionRemovedError):
            readable[commit_id] = content(found, commit_id)
    assert readable == {commit_id: before[commit_id] for commit_id in readable}
    newest = sorted(before)[-9:]
    assert set(newest) <= readable.keys()
    assert len(readable) < len(before)
    assert scrub(repository_of(found), ScrubRequest(share=1.0)).damaged == ()


def test_a_branch_stays_readable_when_a_handle_packs_after_a_look_at_the_past(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = local_place.init()
    grown(graph, commits=12)
    finish_maintenance(graph)
    pack(graph)
    monkeypatch.setattr(packing, "PACKED_MIN", 1_000)
    # The head row of this commit lies in a file of its own.
    graph.load(b'{"type": "Person", "data": {"name": "first"}}\n', mode="append")
    graph.branch_create("late")
    expected = content(graph, "late")
    old = sorted(commit.graph_commit_id for commit in graph.commits.list())[3]
    for number in range(12):
        graph.load(b'{"type": "Person", "data": {"name": "q%d"}}\n' % number, mode="append")
    finish_maintenance(graph)
    found = local_place.open()
    content(found, old)
    monkeypatch.setattr(packing, "PACKED_MIN", 4)
    before = packs(local_place)
    pack(found)
    assert packs(local_place) != before
    assert content(local_place.open(), "late") == expected
