from __future__ import annotations

import logging
import threading

import pyarrow as pa
import pytest

from omnigraph.manifest import OpenMode
from omnigraph.manifest.errors import FormatTooNewError
from omnigraph.manifest.format_stamp import STAMP_KEY, migrate, read_stamp
from omnigraph.manifest.layout import MANIFEST
from omnigraph.names import INTERNAL_SCHEMA_VERSION
from omnigraph.values import PRIMARY_KEY
from support.places import Place, add, ids

MAIN = ["main"]


def set_stamp(place: Place, stamp: str | None, *, is_marked: bool = True) -> None:
    """Turn a new graph into one of another format; Lance never takes a key mark away again."""
    store = place.store()
    rows = store.datasets.open(MANIFEST).scan().read_all()
    fields = [field if is_marked else field.remove_metadata() for field in rows.schema]
    schema = pa.schema(fields, metadata={} if stamp is None else {STAMP_KEY: stamp})
    store.objects.delete_prefix(MANIFEST)
    datasets = place.store().datasets
    datasets.commit_staged(datasets.stage_create(MANIFEST, schema, rows=rows.cast(schema)))


def add_runs(place: Place, *names: str) -> None:
    datasets = place.store().datasets
    for name in names:
        datasets.create_branch(MANIFEST, name, from_version=1)


def format_of(place: Place) -> tuple[int, bool]:
    datasets = place.store().datasets
    field = datasets.open(MANIFEST).schema.field("object_id")
    is_marked = (field.metadata or {}).get(PRIMARY_KEY) == b"true"
    return read_stamp(place.uri, datasets), is_marked


@pytest.mark.parametrize(("stamp", "is_marked"), [(None, False), ("1", False), ("2", True)])
def test_an_older_graph_is_brought_up_to_date_at_open(
    place: Place, stamp: str | None, is_marked: bool
) -> None:
    place.init()
    set_stamp(place, stamp, is_marked=is_marked)
    add_runs(place, "__run__1", "__run__team")
    assert format_of(place) == (int(stamp or 1), is_marked)
    graph = place.open()
    assert format_of(place) == (INTERNAL_SCHEMA_VERSION, True)
    assert place.store().datasets.branch_names(MANIFEST) == ()
    assert len(graph.list_commits()) == 1
    add(graph, "bob")
    assert ids(graph.snapshot()) == ["bob"]
    graph.branch_create("__run__1")
    assert place.open().branch_list() == ["main", "__run__1"]


def test_a_graph_of_our_format_is_left_alone(local_place: Place) -> None:
    local_place.init()
    local_place.store().datasets.create_branch(MANIFEST, "__run__1", from_version=1)
    local_place.open()
    assert local_place.store().datasets.head_version(MANIFEST) == 1
    assert local_place.store().datasets.branch_names(MANIFEST) == ("__run__1",)


def test_opening_for_reading_changes_nothing(local_place: Place) -> None:
    local_place.init()
    set_stamp(local_place, "1", is_marked=False)
    add_runs(local_place, "__run__1")
    head = local_place.store().datasets.head_version(MANIFEST)
    graph = local_place.open(mode=OpenMode.READ_ONLY)
    assert graph.branch_list() == MAIN
    assert format_of(local_place) == (1, False)
    assert local_place.store().datasets.head_version(MANIFEST) == head


def test_a_run_that_something_was_cut_from_is_reported_and_stays(
    local_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    local_place.init()
    set_stamp(local_place, "2")
    add_runs(local_place, "__run__1", "__run__2")
    local_place.store().datasets.create_branch(
        MANIFEST, "other", from_branch="__run__1", from_version=1
    )
    with caplog.at_level(logging.WARNING, "omnigraph.manifest.format_stamp"):
        graph = local_place.open()
    assert "__run__1 stays" in caplog.text
    assert local_place.store().datasets.branch_names(MANIFEST) == ("__run__1", "other")
    assert format_of(local_place)[0] == INTERNAL_SCHEMA_VERSION
    assert graph.branch_list() == MAIN


@pytest.mark.parametrize("stamp", ["4", "999", "banana", "-1"])
@pytest.mark.parametrize("mode", list(OpenMode))
def test_a_format_from_the_future_is_refused(
    local_place: Place, stamp: str, mode: OpenMode
) -> None:
    local_place.init()
    set_stamp(local_place, stamp)
    head = local_place.store().datasets.head_version(MANIFEST)
    with pytest.raises(FormatTooNewError, match="upgrade omnigraph first") as caught:
        local_place.open(mode=mode)
    assert caught.value.path == f"{local_place.uri}/{MANIFEST}"
    assert caught.value.found == stamp
    assert local_place.store().datasets.head_version(MANIFEST) == head


def test_processes_that_migrate_at_once_agree(local_place: Place) -> None:
    local_place.init()
    set_stamp(local_place, "1", is_marked=False)
    add_runs(local_place, *(f"__run__{n}" for n in range(5)))
    errors: list[BaseException] = []

    def run() -> None:
        try:
            migrate(local_place.uri, local_place.store().datasets)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert format_of(local_place) == (INTERNAL_SCHEMA_VERSION, True)
    assert local_place.store().datasets.branch_names(MANIFEST) == ()
    assert ids(local_place.open().snapshot()) == []


def test_a_slow_migration_never_lowers_the_stamp(local_place: Place) -> None:
    """Another process has finished between this one's step and its stamp."""
    local_place.init()
    set_stamp(local_place, "2")
    datasets = local_place.store().datasets
    inner = datasets.branch_names

    def finish_elsewhere(location: str) -> tuple[str, ...]:
        migrate(local_place.uri, local_place.store().datasets)
        return inner(location)

    datasets.branch_names = finish_elsewhere  # type: ignore[method-assign]  # the test watches it
    head = datasets.head_version(MANIFEST)
    migrate(local_place.uri, datasets)
    assert local_place.store().datasets.head_version(MANIFEST) == head + 1
    assert format_of(local_place)[0] == INTERNAL_SCHEMA_VERSION
