"""Old versions in packs, while other handles and processes work on the same dataset."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.store import Store, connect
from omnigraph.store.errors import CorruptObjectError, StaleBaseError
from omnigraph.store.lance import packing
from omnigraph.store.lance.layout import manifest_path
from omnigraph.store.records import (
    ROW_ADDRESS,
    CleanupRequest,
    DatasetVersion,
    IndexKind,
    IndexSpec,
    ScanRequest,
)
from omnigraph.values import BLOB_EXTENSION, BLOB_STORAGE
from support.people import LOCATION, append, create, people, stage_upsert

VERSIONS = 12
UUID = "00000000-0000-4000-8000-000000000000"
WITH_ADDRESS = ScanRequest(columns=("id",), with_row_address=True)
BLOBS = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False),
        pa.field("content", BLOB_STORAGE, metadata=BLOB_EXTENSION),
    ]
)


@pytest.fixture(autouse=True)
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LOOSE_MIN", 4)
    monkeypatch.setattr(packing, "PACKED_MIN", 4)
    monkeypatch.setattr(packing, "PACKED_MAX", 16)


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    store = connect(str(tmp_path / "graph"), durability="process")
    at = create(store)
    for number in range(VERSIONS):
        at = append(store, at, people([f"p{number}"], number)).at
    return store


def reopened(store: Store) -> Store:
    return connect(store.settings.root.uri, durability="process")


def is_loose(store: Store, version: int) -> bool:
    return store.objects.head(manifest_path(LOCATION, None, version)) is not None


def pack(store: Store) -> None:
    while store.datasets.pack_versions(LOCATION):
        pass


def test_refs_are_found_after_a_packed_version_was_read(local_store: Store) -> None:
    datasets = local_store.datasets
    datasets.create_branch(LOCATION, "other", from_version=3)
    datasets.create_tag(LOCATION, "pin", version=4)
    pack(local_store)
    store = reopened(local_store)
    assert store.datasets.open(LOCATION, version=5).count() == 4
    assert not is_loose(store, 5)
    assert [branch.name for branch in store.datasets.list_branches(LOCATION)] == ["other"]
    assert [tag.name for tag in store.datasets.list_tags(LOCATION)] == ["pin"]
    store.datasets.delete_tag(LOCATION, "pin")
    store.datasets.delete_branch(LOCATION, "other")
    assert reopened(store).datasets.branch_names(LOCATION) == ()


def test_pinned_versions_stay_loose_although_packed_ones_were_read(local_store: Store) -> None:
    pack(local_store)
    store = reopened(local_store)
    store.datasets.create_tag(LOCATION, "pin", version=4)
    at = store.datasets.open(LOCATION).at
    for number in range(VERSIONS):
        at = append(store, at, people([f"q{number}"], number)).at
    store.datasets.create_tag(LOCATION, "newer", version=14)
    assert store.datasets.open(LOCATION, version=3).count() == 2
    pack(store)
    assert is_loose(store, 4)
    assert is_loose(store, 14)


Act = Callable[[Store], object]


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (
            lambda store: store.datasets.create_tag(LOCATION, "ours", version=5),
            (["ours", "theirs"], (), VERSIONS),
        ),
        (
            lambda store: store.datasets.create_branch(LOCATION, "other", from_version=5),
            (["theirs"], ("other",), VERSIONS),
        ),
        (
            lambda store: store.datasets.restore(LOCATION, version=5, uuid=UUID),
            (["theirs"], (), 4),
        ),
    ],
    ids=["tag", "branch", "restore"],
)
def test_what_another_process_has_made_loose_is_written_to_at_its_place(
    local_store: Store, act: Act, expected: object
) -> None:
    pack(local_store)
    store = reopened(local_store)
    assert store.datasets.open(LOCATION, version=5).count() == 4
    local_store.datasets.create_tag(LOCATION, "theirs", version=5)
    act(store)
    after = reopened(store).datasets
    tags = [tag.name for tag in after.list_tags(LOCATION)]
    found = (tags, after.branch_names(LOCATION), after.open(LOCATION).count())
    assert found == expected


@pytest.mark.parametrize("is_read_before", [False, True])
def test_a_commit_on_a_packed_version_is_refused(local_store: Store, is_read_before: bool) -> None:
    store = reopened(local_store)
    base = DatasetVersion(LOCATION, None, 5)
    if is_read_before:
        store.datasets.open(LOCATION, version=5)
    pack(local_store)
    head = store.datasets.head_version(LOCATION)
    staged = store.datasets.stage_append(base, people(["late"], 1))
    with pytest.raises(StaleBaseError):
        store.datasets.commit_staged(staged, exact=False)
    assert reopened(store).datasets.head_version(LOCATION) == head


def test_a_listing_of_versions_misses_none_that_is_packed_meanwhile(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reopened(local_store)
    whole = [info.version for info in store.datasets.versions(LOCATION)]
    listed = store.datasets._listed_versions  # type: ignore[attr-defined]

    def late(location: str, branch: str | None) -> object:
        pack(local_store)
        return listed(location, branch)

    monkeypatch.setattr(store.datasets, "_listed_versions", late)
    assert [info.version for info in store.datasets.versions(LOCATION)] == whole
    assert not is_loose(store, 5)


def test_a_pack_that_others_cover_has_another_name(local_store: Store) -> None:
    pack(local_store)
    [before] = local_store.datasets._opener.packs.of(LOCATION, None)  # type: ignore[attr-defined]
    covering = max(one.covered_by for one in before.versions.values())
    other = reopened(local_store)
    request = CleanupRequest(versions=(covering,))
    other.datasets.cleanup(LOCATION, request, preview=False)
    at = other.datasets.open(LOCATION).at
    append(other, at, people(["more"], 1))
    pack(other)
    [theirs] = other.datasets._opener.packs.of(LOCATION, None)  # type: ignore[attr-defined]
    [ours] = local_store.datasets._opener.packs.of(LOCATION, None)  # type: ignore[attr-defined]
    assert ours == theirs
    assert covering not in {one.covered_by for one in ours.versions.values()}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_a_child_process_leaves_what_its_parent_has_opened(local_store: Store) -> None:
    pack(local_store)
    datasets = reopened(local_store).datasets
    handle = datasets.open(LOCATION, version=5)
    place = Path(handle.dataset.uri)  # type: ignore[attr-defined]
    child = os.fork()
    if not child:
        del handle, datasets
        os._exit(0)
    os.waitpid(child, 0)
    assert place.is_dir()


def test_a_view_of_a_transaction_on_a_packed_version_is_read_by_others(local_store: Store) -> None:
    pack(local_store)
    store = reopened(local_store)
    base = DatasetVersion(LOCATION, None, 5)
    staged = store.datasets.stage_append(base, people(["late"], 1))
    view = store.datasets.open_staged(staged)
    assert view.count() == 5
    other = reopened(store).datasets.open(LOCATION, version=view.at.version)
    assert other.count() == 5


def test_a_handle_survives_the_loss_of_its_temporary_directory(local_store: Store) -> None:
    pack(local_store)
    store = reopened(local_store)
    handles = [store.datasets.open(LOCATION, version=version) for version in (5, 6)]
    local_store.datasets.create_tag(LOCATION, "pin", version=5)
    for handle in handles:
        shutil.rmtree(handle.dataset.uri)  # type: ignore[attr-defined]
        assert len(handle.scan().read_all()) == handle.at.version - 1  # type: ignore[attr-defined]


def test_what_a_killed_process_has_left_is_removed(
    local_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    pack(local_store)
    code = (
        "import os, sys; from omnigraph.store import connect\n"
        "handle = connect(sys.argv[1]).datasets.open(sys.argv[2], version=5)\n"
        "os._exit(0)"
    )
    command = [sys.executable, "-c", code, local_store.settings.root.uri, LOCATION]
    subprocess.run(command, check=True, env={**os.environ, "TMPDIR": str(folder)})
    [left] = folder.iterdir()
    ours = reopened(local_store).datasets
    fresh = ours.open(LOCATION, version=5)
    assert left.is_dir()  # Its process may live in another container.
    os.utime(left, (0, 0))
    handle = reopened(local_store).datasets.open(LOCATION, version=6)
    assert not left.exists()
    assert (fresh.count(), handle.count()) == (4, 5)


def test_versions_are_gone_for_good_before_their_files_go(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure may otherwise bring a loose version back whose rows are in the pack."""
    at = local_store.datasets.open(LOCATION).at
    for number in range(VERSIONS):
        rows = people(["p0"], number)
        at = local_store.datasets.commit_staged(stage_upsert(local_store.datasets, at, rows)).at
    work = local_store.datasets._packing  # type: ignore[attr-defined]
    done: list[str] = []
    delete, flush = work._objects.delete, work._flusher.directory_of

    def deleted(path: str) -> None:
        done.append("version" if "/_versions/" in path else "file")
        delete(path)

    def flushed(path: str) -> None:
        done.append("flush")
        flush(path)

    monkeypatch.setattr(work._objects, "delete", deleted)
    monkeypatch.setattr(work._flusher, "directory_of", flushed)
    assert local_store.datasets.pack_versions(LOCATION, with_files=True)
    assert list(dict.fromkeys(done)) == ["version", "flush", "file"]


def test_a_loose_version_without_its_files_is_read_out_of_the_pack(local_store: Store) -> None:
    at = local_store.datasets.open(LOCATION).at
    for number in range(VERSIONS):
        rows = people(["p0"], number)
        at = local_store.datasets.commit_staged(stage_upsert(local_store.datasets, at, rows)).at
    expected = local_store.datasets.open(LOCATION, version=15).scan().read_all()
    before = {info.path for info in local_store.objects.list(LOCATION)}
    assert local_store.datasets.pack_versions(LOCATION, with_files=True)
    moved = before - {info.path for info in local_store.objects.list(LOCATION)}
    local_store.datasets.create_tag(LOCATION, "pin", version=15)
    assert is_loose(local_store, 15)
    for path in moved:
        if "/_versions/" not in path:
            local_store.objects.delete(path)
    handle = reopened(local_store).datasets.open(LOCATION, version=15)
    with suppress(CorruptObjectError):
        handle.scan().read_all()  # Rows of other files may have been passed on before.
    assert handle.scan().read_all() == expected


def test_files_without_a_reference_are_found_while_versions_are_packed(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Moving:
        """Lists versions, then reads them, as the library does; a pack is made in between."""

        def __init__(self, dataset: Any) -> None:
            self._dataset = dataset

        def tracked_files(self) -> Any:
            if is_loose(local_store, 5):
                pack(local_store)
                raise OSError("Object at location _versions/5.manifest not found: No such file")
            return self._dataset.tracked_files()

    store = reopened(local_store)
    handle = store.datasets.open(LOCATION)
    monkeypatch.setattr(handle, "dataset", Moving(handle.dataset))  # type: ignore[attr-defined]
    left = [info.path for info in store.datasets.unreferenced_files(LOCATION)]
    assert not is_loose(local_store, 5)
    assert all(path.endswith(".txn") for path in left)


def test_versions_below_many_loose_ones_are_not_looked_at(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "LOOKED_AT_MAX", 13)
    monkeypatch.setattr(packing, "PACKED_MAX", 4)
    at = local_store.datasets.open(LOCATION).at
    for number in range(2 * VERSIONS):
        rows = people(["p0"], number)
        at = local_store.datasets.commit_staged(stage_upsert(local_store.datasets, at, rows)).at
    store = reopened(local_store)
    work = store.datasets._packing  # type: ignore[attr-defined]
    looks = []
    while (span := work._due(LOCATION, None)) is not None:
        looks.append(span.start)
        store.datasets.pack_versions(LOCATION)
    assert looks == [at.version - 7, at.version - 11]


def test_a_pack_with_large_files_holds_fewer_versions(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = local_store.datasets.open(LOCATION).at
    names = [f"{number:06}" for number in range(5_000)]
    for number in range(VERSIONS):
        rows = people(names, number)
        at = local_store.datasets.commit_staged(stage_upsert(local_store.datasets, at, rows)).at
    before = {
        info.version: local_store.datasets.open(LOCATION, version=info.version).scan().read_all()
        for info in local_store.datasets.versions(LOCATION)
    }
    monkeypatch.setattr(packing, "PACKED_BYTES_MAX", 200_000)
    while local_store.datasets.pack_versions(LOCATION, with_files=True):
        pass
    store = reopened(local_store)
    packs = store.datasets._opener.packs.of(LOCATION, None)  # type: ignore[attr-defined]
    assert len(packs) > 2
    assert max(pack.body_size for pack in packs) < 300_000
    for version, expected in before.items():
        assert store.datasets.open(LOCATION, version=version).scan().read_all() == expected


def test_the_first_index_and_deletion_of_a_table_are_written_on_a_packed_version(
    tmp_path: Path,
) -> None:
    """Their directories are not there yet, and those of a packed version are links to them."""
    local_store = connect(str(tmp_path / "graph"), durability="process")
    at = create(local_store)
    for number in range(VERSIONS):
        at = append(local_store, at, people([f"p{number}", f"q{number}"], number)).at
    pack(local_store)
    datasets = reopened(local_store).datasets
    base = DatasetVersion(LOCATION, None, 5)
    [address, *_] = datasets.open(LOCATION, version=5).scan(WITH_ADDRESS).read_all()[ROW_ADDRESS]
    segment = datasets.write_index_segment(base, IndexSpec("id", IndexKind.BTREE))
    [deletion] = datasets.write_deletions(base, [address.as_py()])
    for file in (*segment.files, *deletion.files):
        info = local_store.objects.head(file.path)
        assert info is not None
        assert info.size == file.size
    staged = datasets.stage_create_index(base, segments=[segment])
    with pytest.raises(StaleBaseError):
        datasets.commit_staged(staged, exact=False)


def test_a_large_value_is_read_on_after_the_loss_of_the_temporary_directory(tmp_path: Path) -> None:
    store = connect(str(tmp_path / "graph"), durability="process")
    at = store.datasets.commit_staged(store.datasets.stage_create(LOCATION, BLOBS)).at
    contents = (None, b"small", b"m" * 200_000, b"l" * 5_000_000)
    values = [None if data is None else {"data": data, "uri": None} for data in contents]
    rows = pa.table(
        {"id": ["a", "b", "c", "d"], "content": pa.array(values, BLOB_STORAGE)}, schema=BLOBS
    )
    for _ in range(VERSIONS):
        at = append(store, at, rows).at
        rows = rows.slice(1, 1)
    pack(store)
    handle: Any = reopened(store).datasets.open(LOCATION, version=5)
    opened = [handle.open_blob("content", number) for number in range(4)]
    for is_opened_by_another_call in (False, True):
        shutil.rmtree(handle.dataset.uri)
        if is_opened_by_another_call:
            assert len(handle.scan().read_all()) == handle.count()
        found = [content and content.read(0, content.size) for content in opened]
        assert found == list(contents)
