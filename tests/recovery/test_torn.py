"""Newest versions that were cut off: removed when nobody relies on them, otherwise kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from omnigraph import failpoints
from omnigraph.clock import SystemClock
from omnigraph.errors import OmnigraphError
from omnigraph.failpoints import FailpointError
from omnigraph.graph import Graph
from omnigraph.graph.opening import open_for_writing
from omnigraph.manifest import OpenMode, ReadTarget
from omnigraph.manifest.layout import CHECKSUMS, COMMITS, MANIFEST, RECOVERIES
from omnigraph.recovery import RecoveryKind
from omnigraph.recovery.torn import TornHeadError
from omnigraph.store.errors import CorruptObjectError
from omnigraph.store.lance.layout import is_torn, manifest_path
from support.faulty_store import FaultMode, FaultPlan, SimulatedDeath, faulty, sweep
from support.places import PERSON, Place, add, finish_maintenance, ids, repository_of
from support.sweeps import broken

INSERT = 'query q() { insert Person { name: "new" } }'

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "short": lambda data: data[:7],
    "half": lambda data: data[: len(data) // 2],
    "without its end": lambda data: data[:-1],
    "zeros": lambda data: bytes(len(data)),
    "garbage": lambda data: b"\x5a\xa5" * (len(data) // 2),
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(str(tmp_path / "graph"))
    add(place.init(), "ann")
    return place


def version_file(place: Place, location: str, branch: str | None = None) -> Path:
    """The newest version of a dataset."""
    head = place.store().datasets.head_version(location, branch=branch)
    return Path(place.uri) / manifest_path(location, branch, head)


def tear(file: Path, damage: str = "half") -> None:
    file.write_bytes(DAMAGES[damage](file.read_bytes()))


def table(place: Place) -> str:
    return place.open(mode=OpenMode.READ_ONLY).snapshot().entries[PERSON].location


def die_at(place: Place, effect: str, path: str, branch: str = "main") -> None:
    """Let an insert die right after one of its effects."""
    with TemporaryDirectory() as folder:
        copy = Place(f"{folder}/graph")
        shutil.copytree(place.uri, copy.uri)
        whole = FaultPlan()
        broken(copy, whole, branch).mutate(INSERT)
    at = next(e.number for e in whole.effects if (e.name, e.path) == (effect, path))
    with pytest.raises(SimulatedDeath):
        broken(place, FaultPlan(at=at, mode=FaultMode.DIE_AFTER), branch).mutate(INSERT)


def kinds(graph: Graph) -> list[str]:
    return sorted(row.recovery_kind.value for row in graph.recovery_list())


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_file_that_was_cut_off_is_told_from_a_whole_one(place: Place, damage: str) -> None:
    whole = version_file(place, MANIFEST).read_bytes()
    assert not is_torn(whole)
    assert is_torn(DAMAGES[damage](whole))


def test_a_missing_page_in_the_middle_is_seen() -> None:
    whole = b"\x01" * 20_000 + b"LANC"
    assert not is_torn(whole)
    assert is_torn(whole[:8192] + bytes(4096) + whole[12288:])


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_torn_publish_is_removed_and_its_write_is_settled(place: Place, damage: str) -> None:
    die_at(place, "datasets.commit_staged", MANIFEST)
    before = kinds(place.open(mode=OpenMode.READ_ONLY))
    tear(version_file(place, MANIFEST), damage)
    with pytest.raises(CorruptObjectError):
        place.open(mode=OpenMode.READ_ONLY)
    graph = place.open()
    assert ids(graph.snapshot()) == ["ann", "new"], "every table had moved: it is rolled forward"
    assert kinds(graph) == sorted([*before, "RolledForward", "TornHeadRemoved"])
    (row,) = [r for r in graph.recovery_list() if r.operation_id.startswith("torn-")]
    assert row.recovery_kind is RecoveryKind.TORN_HEAD_REMOVED
    assert row.per_table_outcomes[0].table_key == MANIFEST
    assert kinds(place.open()) == kinds(graph), "a second open changes nothing"
    graph.mutate('query q() { insert Person { name: "more" } }')


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_torn_version_of_a_table_is_removed_and_its_write_is_rolled_back(
    place: Place, damage: str
) -> None:
    location = table(place)
    die_at(place, "datasets.commit_staged", location)
    before = kinds(place.open(mode=OpenMode.READ_ONLY))
    tear(version_file(place, location), damage)
    graph = place.open()
    assert ids(graph.snapshot()) == ["ann"]
    assert kinds(graph) == sorted([*before, "RolledBack", "TornHeadRemoved"])
    graph.mutate(INSERT)
    assert ids(place.open().snapshot()) == ["ann", "new"]


def test_a_torn_version_without_a_record_is_removed_at_open(place: Place) -> None:
    location = table(place)
    datasets = place.store().datasets
    at = datasets.open(location).at
    datasets.restore(location, version=at.version, uuid="late")
    tear(version_file(place, location))
    graph = place.open()
    assert repository_of(graph).store.datasets.head_version(location) == at.version
    assert kinds(graph) == ["TornHeadRemoved"]
    graph.mutate(INSERT)


def test_torn_heads_of_a_branch_are_removed_when_somebody_opens_it(place: Place) -> None:
    graph = place.open()
    graph.branch_create("dev")
    die_at(place, "datasets.commit_staged", MANIFEST, "dev")
    (dev,) = [i for i in repository_of(graph).branches.incarnations() if not i.is_main]
    tear(version_file(place, MANIFEST, dev.lance_branch))
    assert ids(place.open("dev").snapshot()) == ["ann", "new"]
    assert ids(place.open().snapshot()) == ["ann"]


ACTS: dict[str, Callable[[Graph], object]] = {
    "write": lambda graph: graph.mutate(INSERT, branch="dev"),
    "read": lambda graph: graph.snapshot_of(ReadTarget.branch("dev")),
    "load": lambda graph: graph.load(
        b'{"type": "Person", "data": {"name": "new"}}', mode="append", branch="dev"
    ),
    "merge from": lambda graph: graph.branch_merge("dev", "main"),
    "merge into": lambda graph: graph.branch_merge("main", "dev"),
    "cut from": lambda graph: graph.branch_create_from("dev", "more"),
    "delete": lambda graph: graph.branch_delete("dev"),
    "optimize": lambda graph: graph.optimize(),
    "cleanup": lambda graph: graph.cleanup(keep_versions=1, confirm=True),
    "repair": lambda graph: graph.repair(confirm=True),
}


@pytest.mark.parametrize("act", list(ACTS))
def test_a_torn_manifest_of_a_branch_does_not_disturb_who_opens_another_one(
    place: Place, act: str
) -> None:
    """No record leads to it: maintenance of the manifest itself was cut off."""
    graph = place.open()
    graph.branch_create("dev")
    graph.mutate('query q() { insert City { name: "kiel" } }', branch="dev")
    # It would store the checksum of the late version, which then counts as one that was whole.
    finish_maintenance(graph)
    (dev,) = [i for i in repository_of(graph).branches.incarnations() if not i.is_main]
    datasets = repository_of(graph).store.datasets
    head = datasets.head_version(MANIFEST, branch=dev.lance_branch)
    datasets.restore(MANIFEST, branch=dev.lance_branch, version=head, uuid="late")
    tear(version_file(place, MANIFEST, dev.lance_branch))
    opened = place.open()
    ACTS[act](opened)
    assert kinds(opened) == ([] if act == "delete" else ["TornHeadRemoved"])
    if act != "delete":
        opened.mutate('query q() { insert City { name: "bonn" } }', branch="dev")


@pytest.mark.parametrize("location", [COMMITS, RECOVERIES])
def test_a_torn_system_table_loses_nothing(place: Place, location: str) -> None:
    failpoints.arm("write.post_phase_b_pre_manifest_commit")
    with pytest.raises(FailpointError), place.open() as graph:
        graph.mutate(INSERT)
    failpoints.disarm()
    place.open()
    expected = kinds(place.open(mode=OpenMode.READ_ONLY))
    if location == RECOVERIES:
        # The record goes after its row: where the row was torn, the record is still there.
        die_in_audit(place)
        expected = sorted([*expected, "RolledForward"])
    tear(version_file(place, location))
    graph = place.open()
    assert kinds(graph) == expected
    listed = {commit.graph_commit_id for commit in graph.list_commits()}
    stored = place.store().datasets.open(COMMITS).scan().read_all()["graph_commit_id"]
    assert set(stored.to_pylist()) == listed


def die_in_audit(place: Place) -> None:
    failpoints.arm("write.post_phase_b_pre_manifest_commit")
    with pytest.raises(FailpointError), place.open() as graph:
        graph.mutate('query q() { insert Person { name: "third" } }')
    failpoints.disarm()
    failpoints.arm("recovery.sidecar_delete")
    with pytest.raises(FailpointError):
        place.open()
    failpoints.disarm()


# -- what must stay --------------------------------------------------------------------------------


def forget_the_last_commit(place: Place) -> None:
    """Take the newest row out of the derived table, as if its writer had not got there."""
    file = version_file(place, COMMITS)
    file.unlink()


def test_an_acknowledged_version_is_never_removed(place: Place) -> None:
    with place.open() as graph:
        graph.mutate(INSERT)
    file = version_file(place, MANIFEST)
    tear(file)
    with pytest.raises(TornHeadError, match="names its commit"):
        place.open()
    assert file.exists()


def test_a_version_whose_write_was_finished_is_never_removed(place: Place) -> None:
    with place.open() as graph:
        graph.mutate(INSERT)
    forget_the_last_commit(place)
    file = version_file(place, MANIFEST)
    tear(file)
    with pytest.raises(TornHeadError, match="whose write was finished"):
        place.open()
    assert file.exists()


def test_a_version_that_a_branch_was_cut_from_is_never_removed(place: Place) -> None:
    graph = place.open()
    graph.tag_create("release")
    graph.branch_create("dev")
    file = version_file(place, MANIFEST)
    tear(file)
    with pytest.raises(TornHeadError, match="was cut from it"):
        place.open()
    assert file.exists()


def test_a_whole_file_that_cannot_be_read_is_never_removed(place: Place) -> None:
    die_at(place, "datasets.commit_staged", MANIFEST)
    file = version_file(place, MANIFEST)
    data = bytearray(file.read_bytes())
    data[:40] = b"\xff" * 40
    data[-16:-8] = b"\xff" * 8
    file.write_bytes(bytes(data))
    with pytest.raises(CorruptObjectError):
        place.open()
    assert file.exists()


def test_a_published_version_of_a_table_is_never_removed(place: Place) -> None:
    location = table(place)
    file = version_file(place, location)
    tear(file)
    graph = place.open()
    assert file.exists()
    with pytest.raises(CorruptObjectError):
        ids(graph.snapshot())


@pytest.mark.parametrize("mode", [FaultMode.FAIL_AFTER, FaultMode.DIE_AFTER])
def test_a_fault_anywhere_in_the_mending_leaves_one_row_each(
    place: Place, tmp_path: Path, mode: FaultMode
) -> None:
    die_at(place, "datasets.commit_staged", MANIFEST)
    before = kinds(place.open(mode=OpenMode.READ_ONLY))
    tear(version_file(place, MANIFEST))
    discarded = False
    for number, plan in enumerate(sweep(mode, effects_max=40)):
        copy = Place(str(tmp_path / f"step{number}"))
        shutil.copytree(place.uri, copy.uri)
        with suppress(SimulatedDeath, OmnigraphError):
            open_under(copy, plan)
        discarded |= plan.effects[-1].name == "datasets.discard_torn_head"
        graph = copy.open()
        assert kinds(graph) == sorted([*before, "RolledForward", "TornHeadRemoved"])
        assert ids(graph.snapshot()) == ["ann", "new"]
    assert discarded


def open_under(place: Place, plan: FaultPlan) -> None:
    open_for_writing(faulty(place.store(), plan), SystemClock())


def test_a_version_whose_checksum_is_stored_was_whole_and_is_not_removed(place: Place) -> None:
    with place.open() as graph:
        graph.tag_create("kept")
        head = graph.snapshot().manifest_version
    objects = place.store().objects
    path = manifest_path(MANIFEST, None, head)
    objects.put(path, objects.get(path).data[:40])
    with pytest.raises(TornHeadError, match="checksum"):
        place.open()


def test_a_torn_table_of_checksums_is_made_readable(place: Place) -> None:
    with place.open() as graph:
        add(graph, "ann")
    datasets, objects = place.store().datasets, place.store().objects
    path = manifest_path(CHECKSUMS, None, datasets.head_version(CHECKSUMS))
    objects.put(path, objects.get(path).data[:40])
    with place.open() as graph:
        add(graph, "bob")
    assert place.open().scrub().is_sound


def test_a_damaged_table_of_checksums_stops_nobody(place: Place) -> None:
    with place.open() as graph:
        add(graph, "dora")
    datasets, objects = place.store().datasets, place.store().objects
    path = manifest_path(CHECKSUMS, None, datasets.head_version(CHECKSUMS))
    objects.put(path, b"\x07" * 100 + b"LANC")
    with place.open() as graph:
        add(graph, "emil")
    assert {"dora", "emil"} <= set(ids(place.open().snapshot()))
    assert [damage.path for damage in place.open().scrub().damaged] == [CHECKSUMS]
