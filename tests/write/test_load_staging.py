"""What a load writes before its commit is spared by cleanup while the load lives."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from omnigraph.graph import Graph
from omnigraph.write.load import stage as load_stage
from omnigraph.write.load.rows import row_parts as load_parts
from omnigraph.write.rules.violations import ValidationError
from omnigraph.write.stage.staging_record import FOLDER
from support.places import Place, repository_of

SCHEMA = "node Person { name: String @key  age: I32? }"
RECORDS = 2_000


class Interrupted(BytesIO):
    """Does something when all of it has been read."""

    def __init__(self, data: bytes, then: Callable[[], None]) -> None:
        super().__init__(data)
        self._then = then

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        if size and not found:
            self._then()
        return found


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_parts, "_STREAM_BYTES_MIN", 1)
    monkeypatch.setattr(load_stage, "_DECLARED_ROWS_MIN", 1)


def people(count: int, *more: object) -> bytes:
    records = [{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(count)]
    return b"".join(json.dumps(record).encode() + b"\n" for record in (*records, *more))


def records_of(graph: Graph) -> list[str]:
    return [info.path for info in repository_of(graph).store.objects.list(FOLDER)]


def data_files(graph: Graph, place: Place) -> list[str]:
    folder = Path(place.uri) / graph.snapshot().entry("node:Person").location / "data"
    return sorted(path.name for path in folder.glob("*.lance"))


def test_cleanup_spares_the_files_of_a_running_load(local_place: Place) -> None:
    graph = local_place.init(SCHEMA)
    seen: list[list[str]] = []

    def clean() -> None:
        seen.append(records_of(graph))
        local_place.open().cleanup(keep_versions=1, orphan_age_s=0, confirm=True)

    graph.load(Interrupted(people(RECORDS), clean), mode="append")
    assert [len(found) for found in seen] == [1]
    assert graph.snapshot().open("node:Person").count() == RECORDS
    assert records_of(graph) == []


def test_a_load_that_fails_leaves_no_record_and_files_that_cleanup_takes(
    local_place: Place,
) -> None:
    graph = local_place.init(SCHEMA)
    with pytest.raises(ValidationError):
        graph.load(people(RECORDS, {"type": "Person", "data": {"name": "p0"}}), mode="append")
    assert records_of(graph) == []
    assert data_files(graph, local_place)
    graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert data_files(graph, local_place) == []


def test_rows_that_are_written_only_after_judging_are_declared_too(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = local_place.init(SCHEMA)
    graph.load(people(10), mode="append")
    seen: list[list[str]] = []
    stage = load_stage._stage_update

    def watched(*arguments: object, **options: bool) -> object:
        seen.append(records_of(graph))
        return stage(*arguments, **options)  # type: ignore[arg-type]  # passed on as they are

    monkeypatch.setattr(load_stage, "_stage_update", watched)
    graph.load(people(20), mode="merge")
    assert [len(found) for found in seen] == [1]


def test_a_small_load_writes_no_record(local_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    graph = local_place.init(SCHEMA)
    seen: list[list[str]] = []
    graph.load(Interrupted(people(10), lambda: seen.append(records_of(graph))), mode="append")
    assert seen == [[]]
