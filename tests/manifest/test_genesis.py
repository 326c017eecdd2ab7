from __future__ import annotations

import threading
from pathlib import Path

import pytest

from omnigraph.errors import ConflictError
from omnigraph.graph import Graph
from omnigraph.manifest import OpenMode
from omnigraph.manifest.errors import GraphExistsError, GraphNotFoundError
from omnigraph.manifest.format_stamp import STAMP_KEY
from omnigraph.manifest.layout import MANIFEST, SCHEMA_FILES, SCHEMA_SOURCE, dataset_location
from omnigraph.names import INTERNAL_SCHEMA_VERSION
from omnigraph.store.records import DatasetVersion
from support.places import PERSON, SCHEMA, Place, add, ids
from support.writer import people


def test_a_new_graph_has_its_tables_its_schema_and_its_stamp(graph: Graph, place: Place) -> None:
    snapshot = graph.snapshot()
    assert {key: e.location for key, e in snapshot.entries.items()} == {
        "edge:Knows": dataset_location("edge", "Knows"),
        "node:City": dataset_location("node", "City"),
        "node:Person": dataset_location("node", "Person"),
    }
    assert {e.owner_branch for e in snapshot.entries.values()} == {"main"}
    assert sorted(graph.catalog().node_types) == ["City", "Person"]
    metadata = place.store().datasets.open(MANIFEST).schema.metadata
    assert metadata[STAMP_KEY.encode()] == str(INTERNAL_SCHEMA_VERSION).encode()
    assert graph.branch_list() == ["main"]


def test_a_graph_is_never_replaced(place: Place) -> None:
    add(place.init(), "ann")
    for force in (False, True):
        with pytest.raises(GraphExistsError, match="already holds a graph"):
            place.init(force=force)
    assert ids(place.open().snapshot()) == ["ann"]


def test_leftover_schema_files_need_force(place: Place) -> None:
    place.store().objects.put(SCHEMA_SOURCE, b"node Old { name: String @key }")
    with pytest.raises(GraphExistsError, match=r"schema files \(_schema.pg\)") as caught:
        place.init()
    assert "--force" in str(caught.value.hint)
    assert not place.store().datasets.exists(MANIFEST)
    place.init(force=True)
    assert place.store().objects.get(SCHEMA_SOURCE).data.decode() == SCHEMA


def test_the_empty_datasets_of_a_failed_attempt_are_replaced(place: Place) -> None:
    other = "node Person { other: I64 }"
    place.init(other)
    objects = place.store().objects
    for location in (MANIFEST, "_schema.pg", "_schema.ir.json", "__schema_state.json"):
        objects.delete_prefix(location)
        objects.delete(location)
    graph = place.init()
    assert "age" in graph.snapshot().open(PERSON).schema.names
    add(graph, "ann")
    assert ids(place.open().snapshot()) == ["ann"]


@pytest.mark.parametrize("force", [False, True])
def test_a_dataset_with_data_and_no_manifest_is_not_a_leftover(
    local_place: Place, force: bool
) -> None:
    place = local_place
    add(place.init(), "ann")
    store = place.store()
    store.objects.delete_prefix(MANIFEST)
    if not force:
        for name in SCHEMA_FILES:
            store.objects.delete(name)
    with pytest.raises(GraphExistsError, match="a dataset with data and no manifest"):
        place.init(force=force)
    location = dataset_location("node", "Person")
    assert place.store().datasets.open(location).count() == 1
    assert not place.store().datasets.exists(MANIFEST)
    # Emptied, but written to: its older versions hold data.
    datasets = place.store().datasets
    head = DatasetVersion(location, None, datasets.head_version(location))
    schema = datasets.open(location).schema
    datasets.commit_staged(datasets.stage_overwrite(head, schema, rows=people().slice(0, 0)))
    with pytest.raises(GraphExistsError):
        place.init(force=force)


def test_opening_what_is_no_graph_says_how_to_make_one(place: Place) -> None:
    for mode in OpenMode:
        with pytest.raises(GraphNotFoundError) as caught:
            place.open(mode=mode)
        assert place.uri in str(caught.value)
        assert "omnigraph init" in str(caught.value.hint)
    if place.is_local:
        assert not Path(place.uri).exists()


def test_of_many_that_create_the_same_graph_one_wins(local_place: Place) -> None:
    outcomes: list[str] = []

    def create() -> None:
        try:
            local_place.init()
            outcomes.append("made")
        except ConflictError:
            outcomes.append("refused")

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made", "refused", "refused", "refused"]
    assert len(local_place.open().list_commits()) == 1


def test_a_graph_can_be_used_as_a_context(local_place: Place) -> None:
    with local_place.init() as graph:
        assert graph.uri.endswith("graph")
        assert graph.branch == "main"
