"""Records of running bulk jobs: who is alive, and what is spared for them."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from omnigraph.clock import SystemClock
from omnigraph.graph import Graph
from omnigraph.graph.session import LateWriteSide
from omnigraph.store import connect
from omnigraph.store.errors import ObjectExistsError
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.records import StagedTransaction
from omnigraph.write.stage.staging_record import (
    FOLDER,
    RENEW_S,
    SILENT_S,
    DatasetBase,
    StagingRecord,
    StagingRecords,
)
from support.clocks import DAY_S, ManualClock, WrongClock
from support.memory_objects import MemoryObjectStore
from support.places import PERSON, Place, add, repository_of, session_of
from support.writer import people

BASE = DatasetBase("nodes/a", "dev.01J", 3)


@pytest.fixture
def objects() -> ObjectStore:
    return MemoryObjectStore()


def live(records: StagingRecords, orphan_age_s: float = DAY_S) -> list[str]:
    return [record.operation_id for record in records.live(orphan_age_s=orphan_age_s)]


def test_a_record_says_what_was_declared(objects: ObjectStore) -> None:
    records = StagingRecords(objects, SystemClock())
    job = records.open("01A", [BASE])
    job.declare(files=["nodes/a/data/1.lance"])
    job.declare(bases=[BASE], files=["nodes/a/data/1.lance", "nodes/a/data/2.lance"])
    stored = orjson.loads(objects.get(f"{FOLDER}/01A.json").data)
    assert set(stored) == {
        "schema_version",
        "operation_id",
        "started_at",
        "renewals",
        "tables",
        "files",
    }
    assert stored["tables"] == [{"table_path": "nodes/a", "table_branch": "dev.01J", "version": 3}]
    (read,) = records.live(orphan_age_s=DAY_S)
    assert read == job.record
    assert read.files == ("nodes/a/data/1.lance", "nodes/a/data/2.lance")


def test_an_operation_has_one_record(objects: ObjectStore) -> None:
    records = StagingRecords(objects, SystemClock())
    records.open("01A")
    with pytest.raises(ObjectExistsError):
        records.open("01A")


def test_a_closed_record_is_gone_and_may_be_closed_again(objects: ObjectStore) -> None:
    records = StagingRecords(objects, SystemClock())
    job = records.open("01A")
    job.close()
    job.close()
    assert live(records) == []


def test_a_record_that_a_reader_has_seen_silent_for_too_long_is_dead(tmp_path: Path) -> None:
    objects = connect(str(tmp_path), durability="process").objects
    clock = ManualClock(now_us=SystemClock().now_us())
    reader = StagingRecords(objects, clock)
    records = StagingRecords(objects, clock)
    silent, busy = records.open("01A"), records.open("01B")
    assert live(reader) == ["01A", "01B"]
    for _ in range(3):
        clock.advance(SILENT_S / 2)
        busy.renew()
        found = live(reader)
    assert found == ["01B"], "by the reader's own clock"
    assert live(StagingRecords(objects, clock)) == ["01A", "01B"], "another has not watched"
    silent.renew()
    assert live(reader) == ["01A", "01B"], "and it can come back"


def test_a_record_older_than_the_orphan_age_is_dead(objects: ObjectStore) -> None:
    clock = ManualClock(now_us=SystemClock().now_us())
    records = StagingRecords(objects, clock)
    records.open("01A")
    clock.advance(200)
    assert live(StagingRecords(objects, clock), 300) == ["01A"]
    assert live(StagingRecords(objects, clock), 150) == []


def test_an_orphan_age_of_zero_does_not_kill_the_living(objects: ObjectStore) -> None:
    clock = ManualClock(now_us=SystemClock().now_us())
    StagingRecords(objects, clock).open("01A")
    clock.advance(RENEW_S + 1)
    assert live(StagingRecords(objects, clock), 0) == ["01A"]


def test_files_that_tasks_leave_for_each_other_go_with_the_record(objects: ObjectStore) -> None:
    clock = ManualClock(now_us=SystemClock().now_us())
    StagingRecords(objects, clock).open("01A")
    for operation in ("01A", "01B"):
        objects.put(f"{FOLDER}/{operation}/id-node-Person-1", b"no record")
    clock.advance(200)
    live_records, dead = StagingRecords(objects, clock).partition(orphan_age_s=DAY_S)
    assert ([record.operation_id for record in live_records], dead) == (["01A"], [])
    _, dead = StagingRecords(objects, clock).partition(orphan_age_s=0)
    assert dead == [
        f"{FOLDER}/01A.json",
        f"{FOLDER}/01A/id-node-Person-1",
        f"{FOLDER}/01B/id-node-Person-1",
    ]


@pytest.mark.parametrize("data", [b"", b"not json", b"[1]", b'{"tables": [{}]}', b'{"files": 3}'])
def test_a_record_that_cannot_be_read_names_nothing(objects: ObjectStore, data: bytes) -> None:
    objects.put(f"{FOLDER}/01A.json", data)
    (record,) = StagingRecords(objects, SystemClock()).live(orphan_age_s=DAY_S)
    assert record == StagingRecord("01A", 0)


def test_a_held_record_is_renewed_until_the_block_ends(objects: ObjectStore) -> None:
    renewed = threading.Event()

    class Watched(MemoryObjectStore):
        def put(self, path: str, data: bytes) -> str:
            if orjson.loads(data)["renewals"] >= 3:
                renewed.set()
            return super().put(path, data)

    watched = Watched()
    records = StagingRecords(watched, SystemClock(), renew_s=0.001)
    with pytest.raises(KeyError), records.hold("01A", [BASE]):  # noqa: PT012 - both must happen
        assert renewed.wait(30)
        raise KeyError
    assert watched.list(FOLDER) == ()


# -- what cleanup does about them ------------------------------------------------------------------


class YoungRecords(StagingRecords):
    """Takes every record for live, as if it had just been renewed."""

    def partition(
        self,
        *,
        orphan_age_s: float,
    ) -> tuple[tuple[StagingRecord, ...], list[str]]:
        return super().partition(orphan_age_s=10 * DAY_S)


def staged_append(graph: Graph) -> StagedTransaction:
    datasets = repository_of(graph).store.datasets
    return datasets.stage_append(graph.snapshot().open(PERSON).at, people("zoe"))


def with_young_records(graph: Graph) -> Graph:
    """Return a graph to which every staging record is one of a job that is alive."""
    objects = repository_of(graph).store.objects
    records = YoungRecords(objects, WrongClock(2 * DAY_S))
    session = session_of(graph)
    writing = replace(session.writing.get(), staging=records)
    return Graph(replace(session, writing=LateWriteSide(lambda: writing)))


@pytest.mark.parametrize("is_alive", [True, False])
def test_cleanup_spares_what_a_live_record_names(tmp_path: Path, is_alive: bool) -> None:
    place = Place(str(tmp_path / "graph"))
    graph = place.init()
    base = graph.snapshot().open(PERSON).at
    for name in ("ann", "bob", "cas"):
        add(graph, name)
    staged = staged_append(graph)
    store = repository_of(graph).store
    job = StagingRecords(store.objects, SystemClock()).open("01A", [DatasetBase.of(base)])
    job.declare(files=[file.path for file in staged.files])
    late = place.open(clock=WrongClock(2 * DAY_S))
    if is_alive:
        late = with_young_records(late)
    late.cleanup(keep_versions=1, confirm=True)
    assert store.datasets.exists(base.location, version=base.version) is is_alive
    assert (Path(place.uri) / staged.files[0].path).exists() is is_alive
    assert bool(store.objects.list(FOLDER)) is is_alive, "the record of a dead job goes as well"
    assert ids_of(place) == ["ann", "bob", "cas"]


def ids_of(place: Place) -> list[str]:
    return sorted(place.open().snapshot().open(PERSON).scan().read_all()["id"].to_pylist())


def test_cleanup_spares_a_dataset_in_which_a_live_job_writes(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "graph"))
    graph = place.init()
    store = repository_of(graph).store
    store.objects.put("nodes/new/data/1.lance", b"rows")
    store.objects.put("nodes/old/data/1.lance", b"rows")
    records = StagingRecords(store.objects, SystemClock())
    records.open("01A").declare(files=["nodes/new/data/1.lance"])
    late = place.open(clock=WrongClock(2 * DAY_S))
    late = with_young_records(late)
    late.cleanup(keep_versions=1, confirm=True)
    assert store.objects.head("nodes/new/data/1.lance") is not None
    assert store.objects.head("nodes/old/data/1.lance") is None


def test_cleanup_leaves_a_table_alone_to_which_a_live_job_writes(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "graph"))
    graph = place.init()
    base = graph.snapshot().open(PERSON).at
    staged = staged_append(graph)
    store = repository_of(graph).store
    records = StagingRecords(store.objects, SystemClock())
    job = records.open("01A", [DatasetBase.of(base)])
    place.open().cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert (Path(place.uri) / staged.files[0].path).exists()
    job.close()
    place.open().cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert not (Path(place.uri) / staged.files[0].path).exists()
