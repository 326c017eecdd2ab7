"""Damaged, missing and refused storage: every kind of trouble is a type of its own."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from omnigraph.store import Store, connect
from omnigraph.store.errors import (
    CorruptObjectError,
    DatasetVersionNotFoundError,
    StoragePermissionError,
    StorageTimeoutError,
    StorageUnavailableError,
)
from omnigraph.store.lance.layout import manifest_path
from omnigraph.store.records import CleanupRequest, DatasetVersion, ScanRequest
from support.people import LOCATION, ages, append, create, numbered, people
from support.s3 import S3Server


def data_files(store: Store) -> list[str]:
    return [info.path for info in store.objects.list(f"{LOCATION}/data")]


def fresh(store: Store) -> Store:
    """The same storage without anything cached."""
    return connect(
        store.settings.root,
        storage_options=store.settings.storage_options,
        durability=store.settings.durability,
    )


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.99])
def test_a_truncated_data_file_is_corrupt(store: Store, kept: float) -> None:
    create(store, numbered(50))
    (path,) = data_files(store)
    whole = store.objects.get(path).data
    store.objects.put(path, whole[: int(kept * len(whole)) if kept < 1 else int(kept)])
    reader = fresh(store).datasets.open(LOCATION).scan()
    with pytest.raises(CorruptObjectError, match=LOCATION):
        reader.read_all()


def test_a_data_file_that_is_gone_is_corrupt(store: Store) -> None:
    create(store, numbered(50))
    (path,) = data_files(store)
    store.objects.delete(path)
    handle = fresh(store).datasets.open(LOCATION)
    with pytest.raises(CorruptObjectError, match=LOCATION):
        handle.scan().read_all()
    with pytest.raises(CorruptObjectError, match=LOCATION):
        handle.take([1])


def test_scrambled_bytes_are_corrupt(store: Store) -> None:
    create(store, numbered(50))
    (path,) = data_files(store)
    data = bytearray(store.objects.get(path).data)
    for position in range(0, len(data) // 2, 7):
        data[position] ^= 0xFF
    store.objects.put(path, bytes(data))
    reader = fresh(store).datasets.open(LOCATION).scan()
    with pytest.raises(CorruptObjectError, match=LOCATION):
        reader.read_all()


def test_whatever_happens_to_the_bytes_is_read_or_told(local_store: Store) -> None:
    """Damage makes Lance fail in many ways, a panic of its Rust half among them."""
    at = create(local_store, numbered(500))
    local_store.datasets.commit_staged(local_store.datasets.stage_update(at, deleted=[5]))
    files = [
        info.path
        for info in local_store.objects.list(LOCATION)
        if info.path.endswith((".lance", ".arrow", ".manifest"))
    ]
    outcomes: Counter[str] = Counter()
    for seed in range(120):
        chance = random.Random(seed)
        path = chance.choice(files)
        whole = local_store.objects.get(path).data
        local_store.objects.put(path, damaged(whole, chance))
        try:
            fresh(local_store).datasets.open(LOCATION).scan().read_all()
        except CorruptObjectError:
            outcomes["told"] += 1
        else:
            outcomes["read"] += 1
        local_store.objects.put(path, whole)
    assert outcomes["told"] > 20
    assert outcomes["read"] > 20


def damaged(whole: bytes, chance: random.Random) -> bytes:
    data = bytearray(whole)
    for _ in range(chance.choice([1, 3, 20])):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.randrange(len(data))] if chance.random() < 0.3 else data)


@pytest.mark.parametrize("kept", [0, 10, 100])
def test_a_torn_head_is_corrupt_and_can_be_discarded(store: Store, kept: int) -> None:
    base = create(store, numbered(2))
    head = append(store, base, people(["x"])).at
    path = manifest_path(LOCATION, None, head.version)
    store.objects.put(path, store.objects.get(path).data[:kept])
    reopened = fresh(store)
    with pytest.raises(CorruptObjectError, match=r"\.manifest"):
        reopened.datasets.open(LOCATION)
    assert set(ages(reopened, base)) == {"p0", "p1"}, "the version before can be read"
    assert reopened.datasets.discard_torn_head(LOCATION) == head.version
    assert reopened.datasets.head_version(LOCATION) == base.version
    again = append(reopened, base, people(["y"])).at
    assert again == head
    assert set(ages(reopened, again)) == {"p0", "p1", "y"}


def test_a_head_of_zeros_is_corrupt_and_not_another_version(local_store: Store) -> None:
    """Lance reads it as version 0 and says that the one it was asked for does not exist."""
    store = local_store
    head = append(store, create(store, numbered(2)), people(["x"])).at
    path = manifest_path(LOCATION, None, head.version)
    store.objects.put(path, bytes(len(store.objects.get(path).data)))
    reopened = fresh(store)
    with pytest.raises(CorruptObjectError, match="another version"):
        reopened.datasets.open(LOCATION, version=head.version)
    torn = reopened.datasets.torn_head(LOCATION)
    assert torn is not None
    assert (torn.version, torn.path) == (head.version, path)
    assert reopened.datasets.discard_torn_head(LOCATION) == head.version


def test_a_head_that_is_whole_and_unreadable_is_never_discarded(store: Store) -> None:
    head = append(store, create(store, numbered(2)), people(["x"])).at
    path = manifest_path(LOCATION, None, head.version)
    whole = bytearray(store.objects.get(path).data)
    whole[-16:-8] = b"\xff" * 8
    store.objects.put(path, bytes(whole))
    with pytest.raises(CorruptObjectError):
        fresh(store).datasets.discard_torn_head(LOCATION)
    assert store.objects.head(path) is not None


def test_empty_refs_are_found(store: Store) -> None:
    base = create(store, numbered(1))
    store.datasets.create_branch(LOCATION, "whole", from_version=base.version)
    assert store.datasets.torn_refs(LOCATION) == ()
    torn = (f"{LOCATION}/_refs/branches/b.json", f"{LOCATION}/_refs/tags/t.json")
    for path in torn:
        store.objects.put(path, b"")
    assert store.datasets.torn_refs(LOCATION) == torn
    for path in torn:
        store.objects.delete(path)
    assert [branch.name for branch in store.datasets.list_branches(LOCATION)] == ["whole"]


def test_a_readable_head_is_never_discarded(store: Store) -> None:
    base = create(store, numbered(2))
    assert store.datasets.discard_torn_head(LOCATION) is None
    assert store.datasets.head_version(LOCATION) == base.version
    assert set(ages(store, base)) == {"p0", "p1"}


def test_a_head_that_cannot_be_reached_is_not_taken_for_a_torn_one(
    s3: S3Server, s3_store: Store
) -> None:
    base = create(s3_store, numbered(2))
    path = manifest_path(LOCATION, None, base.version)
    with s3.refusing(path), pytest.raises(StoragePermissionError):
        s3_store.datasets.discard_torn_head(LOCATION)
    assert s3_store.objects.head(path) is not None


def test_a_handle_whose_version_was_cleaned_up_says_so(store: Store) -> None:
    base = create(store, numbered(2))
    at = store.datasets.commit_staged(store.datasets.stage_overwrite(base, schema_of(store))).at
    old = fresh(store).datasets.open(LOCATION, version=base.version)
    at = append(store, at, people(["x"])).at
    store.datasets.cleanup(LOCATION, CleanupRequest(keep_versions=1, older_than_s=0), preview=False)
    with pytest.raises(DatasetVersionNotFoundError, match="cleanup has removed it") as caught:
        old.scan().read_all()
    assert (caught.value.version, caught.value.head) == (base.version, at.version)


def schema_of(store: Store) -> object:
    return store.datasets.open(LOCATION).schema


def test_refused_credentials_are_a_permission_error_in_every_step(
    s3: S3Server, s3_store: Store
) -> None:
    base = create(s3_store, numbered(2))
    staged = s3_store.datasets.stage_append(base, people(["x"]))
    bystander = fresh(s3_store)
    with s3.refusing(LOCATION):
        with pytest.raises(StoragePermissionError, match=LOCATION):
            bystander.datasets.open(LOCATION)
        with pytest.raises(StoragePermissionError, match=LOCATION):
            s3_store.datasets.stage_append(base, people(["y"]))
        with pytest.raises(StoragePermissionError, match=LOCATION):
            s3_store.datasets.commit_staged(staged)
    assert s3_store.datasets.commit_staged(staged).version == base.version + 1


def test_a_refused_commit_is_a_permission_error_and_nothing_has_landed(
    s3: S3Server, s3_store: Store
) -> None:
    base = create(s3_store, numbered(2))
    staged = s3_store.datasets.stage_append(base, people(["x"]))
    with s3.refusing("_transactions"), pytest.raises(StoragePermissionError, match=LOCATION):
        s3_store.datasets.commit_staged(staged)
    assert s3_store.datasets.head_version(LOCATION) == base.version


def test_a_read_only_disk_is_a_permission_error(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(StoragePermissionError, match="a/b"):
        local_store.objects.put("a/b", b"x")


def test_a_location_that_is_a_file_has_no_dataset(local_store: Store) -> None:
    local_store.objects.put(LOCATION, b"not a directory")
    assert not local_store.datasets.exists(LOCATION)


def test_a_missing_bucket_is_not_a_missing_dataset(s3: S3Server) -> None:
    store = connect("s3://no-such-bucket/graph", storage_options=s3.options)
    with pytest.raises(StorageUnavailableError, match="the bucket does not exist"):
        store.datasets.open(LOCATION)


def test_an_unreachable_storage_is_unavailable(tmp_path: Path) -> None:
    options = {
        "aws_endpoint": "http://127.0.0.1:1",
        "aws_access_key_id": "x",
        "aws_secret_access_key": "x",
        "aws_region": "us-east-1",
        "client_max_retries": "0",
    }
    store = connect("s3://bucket/graph", storage_options=options)
    with pytest.raises(StorageUnavailableError, match=LOCATION):
        store.datasets.open(LOCATION)


def test_a_slow_storage_is_a_timeout(s3: S3Server, s3_root: str) -> None:
    at = create(connect(s3_root, storage_options=s3.options), numbered(2))
    # Long enough for opening on a busy machine; what is held takes longer than any time.
    options = s3.options | {"client_max_retries": "0", "timeout": "2s"}
    handle = connect(s3_root, storage_options=options).datasets.open(LOCATION)
    with s3.holding(f"{LOCATION}/data"), pytest.raises(StorageTimeoutError, match=LOCATION):
        handle.scan(ScanRequest(limit=1)).read_all()
    assert handle.at == DatasetVersion(LOCATION, None, at.version)
