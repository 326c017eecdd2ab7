from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest

from omnigraph.graph import Graph
from omnigraph.manifest import Repository
from omnigraph.manifest.compact import compact_manifest
from omnigraph.manifest.errors import (
    BranchGoneError,
    GraphNotFoundError,
    TypeNotFoundError,
    VersionRemovedError,
)
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST, Incarnation
from omnigraph.manifest.reader import STATES_PER_BRANCH_MAX, ManifestReader
from omnigraph.names import BranchName
from omnigraph.store.records import DatasetVersion
from support.places import CITY, PERSON, Place, add, repository_of
from support.racers import bump
from support.s3 import S3Server


def cold(place: Place) -> ManifestReader:
    """A reader that has seen nothing yet."""
    return ManifestReader(root=place.uri, datasets=place.store().datasets)


def set_metadata(repository: Repository, incarnation: Incarnation, value: str) -> None:
    datasets = repository.store.datasets
    branch = incarnation.lance_branch
    base = DatasetVersion(MANIFEST, branch, datasets.head_version(MANIFEST, branch=branch))
    datasets.commit_staged(datasets.stage_metadata(base, schema_metadata={"note": value}))


def test_states_of_older_versions_leave_memory(local_place: Place) -> None:
    graph = local_place.init()
    reader = repository_of(graph).reader
    states = []
    for step in range(4 * STATES_PER_BRANCH_MAX):
        add(graph, f"p{step}")
        states.append(weakref.ref(reader.latest(MAIN_INCARNATION)))
    gc.collect()
    kept = [state() is not None for state in states]
    assert 1 <= sum(kept) <= STATES_PER_BRANCH_MAX
    assert kept[-1]


@pytest.mark.parametrize("seed", range(4))
def test_a_state_read_on_top_of_another_is_the_state_read_whole(
    local_place: Place, seed: int
) -> None:
    """Publishes, tags, compaction and settings in random order, on `main` and on a branch."""
    graph = local_place.init()
    graph.branch_create("dev")
    repository = repository_of(graph)
    incarnations = [MAIN_INCARNATION, repository.branches.resolve(BranchName("dev"))]
    chance = random.Random(seed)
    for step in range(25):
        incarnation = chance.choice(incarnations)
        kind = chance.choice(["publish", "publish", "tag", "untag", "tidy", "settings"])
        if kind == "publish":
            add(graph, f"p{step}", branch=str(incarnation.branch))
        elif kind == "tag":
            graph.tag_create(f"t{step}")
        elif kind == "untag" and graph.tag_list():
            graph.tag_delete(chance.choice(graph.tag_list()).name)
        elif kind == "tidy":
            compact_manifest(repository, incarnation)
        else:
            set_metadata(repository, incarnation, str(step))
        for one in incarnations:
            warm, whole = repository.reader.latest(one), cold(local_place).latest(one)
            assert warm.version == whole.version
            order = [("object_id", "ascending")]
            columns = whole.rows.column_names
            assert warm.rows.select(columns).sort_by(order).equals(whole.rows.sort_by(order)), kind
            for folded in ("head", "schema", "registrations", "entries", "tags", "fragments"):
                assert getattr(warm, folded) == getattr(whole, folded), (kind, folded)


def test_what_a_publish_has_made_is_not_read_again(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    reader = repository_of(graph).reader
    for branch in ("main", "dev"):
        incarnation = repository_of(graph).branches.resolve(BranchName(branch))
        before = reader.latest(incarnation)
        with monkeypatch.context() as patched:
            patched.setattr(reader, "_read_from", lambda *_: pytest.fail("it was read"))
            for step in range(70):
                add(graph, f"p{step}", branch=branch)
            after = reader.latest(incarnation)
        assert after.rows.num_rows == before.rows.num_rows + 140
        assert after.entries == cold(local_place).latest(incarnation).entries


def test_a_version_is_read_once(local_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = local_place.init()
    reader = repository_of(graph).reader
    state = reader.latest(MAIN_INCARNATION)
    monkeypatch.setattr(reader, "open", lambda *args: pytest.fail("it was read again"))
    assert reader.latest(MAIN_INCARNATION) is state


def test_only_what_a_publish_changed_is_read_again(s3: S3Server, s3_place: Place) -> None:
    graph = s3_place.init()
    repository = repository_of(graph)
    for _ in range(6):
        bump(repository, "main")
    repository.reader.latest(MAIN_INCARNATION)
    bump(repository, "main")
    with s3.requests() as warm:
        repository.reader.latest(MAIN_INCARNATION)
    with s3.requests() as whole:
        cold(s3_place).latest(MAIN_INCARNATION)
    data = [[r for r in seen if "/data/" in r.path] for seen in (warm, whole)]
    assert len(data[0]) <= 3 < len(data[1])


def test_states_are_kept_in_a_bounded_number(local_graph: Graph) -> None:
    repository = repository_of(local_graph)
    for _ in range(4 * STATES_PER_BRANCH_MAX):
        bump(repository, "main")
    assert len(repository.reader._states) == STATES_PER_BRANCH_MAX
    assert repository.reader.at(MAIN_INCARNATION, 1).version == 1


def test_what_is_not_there_is_named(local_place: Place) -> None:
    with pytest.raises(GraphNotFoundError, match=local_place.uri):
        cold(local_place).latest(MAIN_INCARNATION)
    local_place.init()
    reader = cold(local_place)
    gone = Incarnation("dev.01JC0000000000000000000000")
    with pytest.raises(BranchGoneError, match=gone.text):
        reader.latest(gone)
    with pytest.raises(BranchGoneError, match=gone.text):
        reader.at(gone, 1)
    with pytest.raises(VersionRemovedError, match="version 7"):
        reader.at(MAIN_INCARNATION, 7)


def test_one_table_is_looked_up_without_the_others(local_place: Place) -> None:
    graph = local_place.init()
    add(graph, "ann")
    whole = graph.snapshot()
    reader = cold(local_place)
    for key in (PERSON, CITY):
        assert reader.table_at(MAIN_INCARNATION, 2, key) == whole.entry(key)
    assert reader.table_at(MAIN_INCARNATION, 1, PERSON).table_version == 1
    with pytest.raises(TypeNotFoundError, match="node:Ghost"):
        reader.table_at(MAIN_INCARNATION, 2, "node:Ghost")
    assert reader._states == {}


def test_a_branch_that_is_deleted_while_it_is_read_is_gone(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, other = local_place.init(), local_place.open()
    graph.branch_create("draft")
    graph.mutate('query q() { insert Person { name: "ann" } }', branch="draft")
    repository = repository_of(local_place.open())
    incarnation = repository.branches.resolve(BranchName("draft"))
    reader, opened = ManifestReader(root=repository.root, datasets=repository.store.datasets), []
    open_handle = reader.open

    def open_then_lose(*args: Any) -> Any:
        handle = open_handle(*args)
        other.branch_delete("draft")
        opened.append(handle)
        return handle

    monkeypatch.setattr(reader, "open", open_then_lose)
    with pytest.raises(BranchGoneError):
        reader.at(incarnation, reader.head_version(incarnation))
    assert opened
