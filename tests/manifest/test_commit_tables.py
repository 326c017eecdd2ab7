from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from omnigraph.manifest.commit_tables import ACTORS_SCHEMA, COMMITS_SCHEMA, CommitTables
from omnigraph.manifest.layout import COMMIT_ACTORS, COMMITS
from omnigraph.manifest.repository import reconcile_commits
from omnigraph.store import Store
from omnigraph.store.errors import DatasetNotFoundError
from omnigraph.store.records import DatasetVersion
from support.faulty_store import FaultMode, FaultPlan, faulty
from support.places import PERSON, Place, add, repository_of
from support.writer import append, people


def rows(store: Store, location: str) -> list[dict[str, object]]:
    try:
        table = store.datasets.open(location).scan().read_all()
    except DatasetNotFoundError:
        return []
    found: list[dict[str, object]] = table.sort_by("graph_commit_id").to_pylist()
    return found


def recorded(place: Place, location: str = COMMITS) -> list[object]:
    return [row["graph_commit_id"] for row in rows(place.store(), location)]


def everything(graph: Graph) -> list[str]:
    commits = {c.graph_commit_id for b in graph.branch_list() for c in graph.list_commits(b)}
    return sorted(commits)


def test_the_tables_say_what_the_manifest_says(place: Place) -> None:
    graph = place.init()
    graph.branch_create("dev")
    add(graph, "ann", actor_id="eva")
    add(graph, "bob", branch="dev", actor_id="kim")
    store = place.store()
    commits = rows(store, COMMITS)
    for row in commits:
        commit = graph.get_commit(str(row["graph_commit_id"]))
        assert row == {
            "graph_commit_id": commit.graph_commit_id,
            "manifest_branch": commit.manifest_branch,
            "manifest_version": commit.manifest_version,
            "parent_commit_id": commit.parent_commit_id,
            "merged_parent_commit_id": commit.merged_parent_commit_id,
            "created_at": commit.created_at,
            "operation": commit.operation,
            "message": commit.message,
            "properties": None,
        }
    assert [row["graph_commit_id"] for row in commits] == everything(graph)
    assert [row["actor_id"] for row in rows(store, COMMIT_ACTORS)] == ["eva", "kim"]
    assert store.datasets.open(COMMITS).schema.names == COMMITS_SCHEMA.names
    assert store.datasets.open(COMMIT_ACTORS).schema.names == ACTORS_SCHEMA.names


def test_the_actors_table_appears_with_the_first_actor(local_place: Place) -> None:
    graph = local_place.init()
    add(graph, "ann")
    assert not local_place.store().datasets.exists(COMMIT_ACTORS)
    add(graph, "bob", actor_id="eva")
    assert len(recorded(local_place, COMMIT_ACTORS)) == 1


def test_a_graph_that_was_removed_does_not_come_back(local_place: Place) -> None:
    graph = local_place.init()
    commits = graph.list_commits()
    shutil.rmtree(local_place.uri)
    repository_of(graph).commit_tables.record(commits)
    assert not Path(local_place.uri).exists()


def remove(*locations: str) -> Callable[[Place], None]:
    def act(place: Place) -> None:
        for location in locations:
            place.store().objects.delete_prefix(location)

    return act


def put_behind(place: Place) -> None:
    """Put both tables back to their first version."""
    for location in (COMMITS, COMMIT_ACTORS):
        datasets = place.store().datasets
        datasets.restore(location, version=1, uuid="7b0bd4a3-5ed1-4c3f-a3a5-c7b9f9a4ac11")


def write_twice(place: Place) -> None:
    """Let every commit be there twice, as two processes in one moment can do."""
    for location in (COMMITS, COMMIT_ACTORS):
        datasets = place.store().datasets
        head = datasets.head_version(location)
        table = datasets.open(location).scan().read_all()
        datasets.commit_staged(datasets.stage_append(DatasetVersion(location, None, head), table))


@pytest.mark.parametrize(
    "damage",
    [
        remove(COMMITS),
        remove(COMMIT_ACTORS),
        remove(COMMITS, COMMIT_ACTORS),
        put_behind,
        write_twice,
    ],
    ids=["commits", "actors", "both", "behind", "twice"],
)
@pytest.mark.parametrize("through", ["open", "refresh"])
def test_tables_that_differ_are_brought_up_to_date(
    local_place: Place, damage: Callable[[Place], None], through: str
) -> None:
    place = local_place
    graph = place.init()
    add(graph, "ann", actor_id="eva")
    add(graph, "bob", actor_id="kim")
    before = [rows(place.store(), location) for location in (COMMITS, COMMIT_ACTORS)]
    other = place.open()
    damage(place)
    assert [rows(place.store(), location) for location in (COMMITS, COMMIT_ACTORS)] != before
    if through == "open":
        place.open()
    else:
        other.refresh()
    assert [rows(place.store(), location) for location in (COMMITS, COMMIT_ACTORS)] == before


def test_tables_that_are_gone_come_back_on_s3(s3_place: Place) -> None:
    graph = s3_place.init()
    add(graph, "ann", actor_id="eva")
    before = [rows(s3_place.store(), location) for location in (COMMITS, COMMIT_ACTORS)]
    remove(COMMITS, COMMIT_ACTORS)(s3_place)
    s3_place.open()
    assert [rows(s3_place.store(), location) for location in (COMMITS, COMMIT_ACTORS)] == before


def test_a_branch_is_reconciled_when_it_is_opened_and_all_of_them_at_once(
    local_place: Place,
) -> None:
    graph = local_place.init()
    for name in ("dev", "ops"):
        graph.branch_create(name)
        add(graph, name, branch=name)
    remove(COMMITS)(local_place)
    local_place.open()
    assert len(recorded(local_place)) == 1
    local_place.open("dev")
    assert len(recorded(local_place)) == 2
    assert reconcile_commits(local_place.repository()) == 1
    assert recorded(local_place) == everything(graph)
    assert reconcile_commits(local_place.repository()) == 0


@pytest.mark.parametrize("mode", [FaultMode.FAIL_BEFORE, FaultMode.FAIL_AFTER])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_failure_to_append_never_fails_a_write(
    local_place: Place, mode: FaultMode, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    graph = local_place.init()
    add(graph, "ann", actor_id="eva")
    published = append(repository_of(graph), {PERSON: people("bob")})
    assert published.commit is not None
    plan = FaultPlan(at=number, mode=mode)
    commit = graph.get_commit(published.commit.graph_commit_id)
    tables = CommitTables(faulty(local_place.store(), plan).datasets)
    remove(COMMITS, COMMIT_ACTORS)(local_place)
    with caplog.at_level(logging.WARNING, "omnigraph.manifest.commit_tables"):
        tables.record([*graph.list_commits()[1:], commit])
    assert plan.has_fired
    assert "will be brought up to date" in caplog.text
    local_place.open()
    assert recorded(local_place) == everything(graph)
    assert len(recorded(local_place, COMMIT_ACTORS)) == 1


def test_a_damaged_table_neither_fails_open_nor_a_write(
    local_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    graph = local_place.init()
    for file in (Path(local_place.uri) / COMMITS / "_versions").glob("*.manifest"):
        file.write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING, "omnigraph"):
        local_place.open()
        add(graph, "ann")
    assert COMMITS in caplog.text
    assert len(graph.list_commits()) == 2


def test_writers_of_many_threads_record_each_commit_once(local_place: Place) -> None:
    graph = local_place.init()
    commits = [add(graph, f"p{n}").commit for n in range(12)]
    remove(COMMITS)(local_place)
    tables = [CommitTables(local_place.store().datasets) for _ in range(2)]
    genesis = graph.list_commits()[-1]

    def record(number: int) -> None:
        commit = commits[number]
        assert commit is not None
        tables[number % 2].record([commit])

    threads = [threading.Thread(target=record, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tables[0].record([genesis])
    local_place.open()
    assert recorded(local_place) == everything(graph)


def test_recording_a_known_commit_again_changes_nothing(local_place: Place) -> None:
    graph = local_place.init()
    add(graph, "ann", actor_id="eva")
    before = local_place.store().datasets.head_version(COMMITS)
    CommitTables(local_place.store().datasets).record(graph.list_commits())
    assert local_place.store().datasets.head_version(COMMITS) == before


def test_properties_are_stored_as_json(local_place: Place) -> None:
    graph = local_place.init()
    commit = graph.list_commits()[0]
    tables = CommitTables(local_place.store().datasets)
    remove(COMMITS)(local_place)
    tables.record([type(commit)(**{**vars(commit), "properties": {"batch": "9"}, "message": "m"})])
    (row,) = rows(local_place.store(), COMMITS)
    assert (row["properties"], row["message"]) == ('{"batch":"9"}', "m")
    assert COMMITS_SCHEMA.field("manifest_version").type == pa.uint64()
