"""Indexes, compaction, search and blobs, through the store."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.store import Store
from omnigraph.store.errors import InvalidScanError, StaleBaseError
from omnigraph.store.filters import Comparison, Contains, Filter
from omnigraph.store.lance import staging
from omnigraph.store.lance.layout import branch_ref_path, manifest_path, transaction_path
from omnigraph.store.records import (
    CommittedRange,
    CompactionOptions,
    DatasetVersion,
    IndexKind,
    IndexSpec,
    ScanRequest,
    TextSearch,
    VectorSearch,
)
from omnigraph.values import BLOB_EXTENSION, BLOB_STORAGE
from support.people import LOCATION, ages, append, create, numbered, people, row_ids
from support.scans import scan_statistics

NOTES = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False),
        pa.field("text", pa.utf8()),
        pa.field("place", pa.list_(pa.float32(), 4)),
    ]
)


def place(number: int) -> tuple[float, ...]:
    return tuple(np.random.default_rng(number).uniform(-1, 1, 4).astype(np.float32).tolist())


def notes(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": [f"n{number}" for number in numbers],
            "text": [f"Word{number}x and more" for number in numbers],
            "place": pa.array([list(place(n)) for n in numbers], NOTES.field("place").type),
        },
        schema=NOTES,
    )


def made(store: Store) -> DatasetVersion:
    staged = store.datasets.stage_create(LOCATION, NOTES, rows=notes(0, 100))
    at = store.datasets.commit_staged(staged).at
    return append(store, at, notes(100, 50)).at


def found(store: Store, request: ScanRequest) -> list[str]:
    return store.datasets.open(LOCATION).scan(request).read_all()["id"].to_pylist()


def searches(number: int) -> dict[IndexKind, ScanRequest]:
    by_id = Comparison("id", "=", f"n{number}")
    by_part: Filter = Contains("text", f"Word{number}x")
    nearest = VectorSearch("place", place(number), k=1, refine_factor=100)
    return {
        IndexKind.BTREE: ScanRequest(columns=("id",), row_filter=by_id),
        IndexKind.BITMAP: ScanRequest(columns=("id",), row_filter=by_id),
        IndexKind.NGRAM: ScanRequest(columns=("id",), row_filter=by_part),
        IndexKind.INVERTED: ScanRequest(columns=("id",), text=TextSearch("text", f"word{number}x")),
        IndexKind.IVF_FLAT: ScanRequest(columns=("id",), nearest=nearest),
        IndexKind.IVF_PQ: ScanRequest(columns=("id",), nearest=nearest),
        IndexKind.IVF_HNSW_SQ: ScanRequest(columns=("id",), nearest=nearest),
    }


SPECS = [
    IndexSpec("id", IndexKind.BTREE),
    IndexSpec("id", IndexKind.BITMAP),
    IndexSpec("text", IndexKind.NGRAM),
    IndexSpec("text", IndexKind.INVERTED),
    IndexSpec("place", IndexKind.IVF_FLAT),
    IndexSpec("place", IndexKind.IVF_PQ, parameters={"num_sub_vectors": 2, "num_bits": 4}),
    IndexSpec("place", IndexKind.IVF_HNSW_SQ),
]


def check(store: Store, kind: IndexKind) -> None:
    for number in (0, 42, 99, 120, 149):
        assert found(store, searches(number)[kind]) == [f"n{number}"]


def compacted(store: Store, at: DatasetVersion) -> CommittedRange:
    tasks = store.datasets.plan_compaction(at, CompactionOptions(target_rows=1_000))
    assert tasks, "nothing to compact"
    results = [store.datasets.run_compaction(task) for task in tasks]
    return store.datasets.commit_staged(store.datasets.stage_compaction(at, results))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind.value)
def test_an_index_of_every_kind_answers_before_and_after_compaction(
    local_store: Store, spec: IndexSpec
) -> None:
    store = local_store
    at = made(store)
    staged = store.datasets.stage_create_index(at, [spec])
    store.datasets.verify_staged_files(staged)
    at = store.datasets.commit_staged(staged).at
    (index,) = store.datasets.open(LOCATION).indexes()
    assert (index.name, index.kind, index.columns) == (
        f"{spec.column}_idx",
        spec.kind.value,
        (spec.column,),
    )
    assert (index.rows_covered, len(index.segments)) == (150, 1)
    check(store, spec.kind)
    at = compacted(store, at).at
    check(store, spec.kind)
    at = store.datasets.commit_staged(store.datasets.stage_create_index(at, [spec])).at
    (index,) = store.datasets.open(LOCATION).indexes()
    assert (index.rows_covered, len(index.segments)) == (150, 1), "a spec replaces its index"
    check(store, spec.kind)


def test_workers_extend_an_index_by_segments(store: Store) -> None:
    at = made(store)
    spec = IndexSpec("text", IndexKind.INVERTED)
    first, second = (fragment.fragment_id for fragment in store.datasets.open(LOCATION).fragments())
    old = store.datasets.write_index_segment(at, spec, fragment_ids=[first])
    at = store.datasets.commit_staged(store.datasets.stage_create_index(at, segments=[old])).at
    check(store, IndexKind.INVERTED)
    new = pickle.loads(
        pickle.dumps(store.datasets.write_index_segment(at, spec, fragment_ids=[second]))
    )
    at = store.datasets.commit_staged(store.datasets.stage_create_index(at, segments=[new])).at
    (index,) = store.datasets.open(LOCATION).indexes()
    assert {segment.uuid: segment.fragment_ids for segment in index.segments} == {
        old.uuid: (first,),
        new.uuid: (second,),
    }
    check(store, IndexKind.INVERTED)
    whole = store.datasets.write_index_segment(at, spec)
    staged = store.datasets.stage_create_index(at, segments=[whole], replaced=[old.uuid, new.uuid])
    store.datasets.commit_staged(staged)
    (index,) = store.datasets.open(LOCATION).indexes()
    assert [segment.uuid for segment in index.segments] == [whole.uuid]
    check(store, IndexKind.INVERTED)


def test_an_index_can_only_be_dropped(store: Store) -> None:
    at = made(store)
    spec = IndexSpec("id", IndexKind.BTREE)
    at = store.datasets.commit_staged(store.datasets.stage_create_index(at, [spec])).at
    (index,) = store.datasets.open(LOCATION).indexes()
    uuids = [segment.uuid for segment in index.segments]
    store.datasets.commit_staged(store.datasets.stage_create_index(at, replaced=uuids))
    assert store.datasets.open(LOCATION).indexes() == ()


def test_compaction_never_gives_an_old_fragment_id_to_new_rows(local_store: Store) -> None:
    store = local_store
    at = create(store, numbered(10))
    for name in ("a", "b", "c"):
        at = append(store, at, people([name])).at
    newest = store.datasets.open(LOCATION).fragments()[-1]
    at = store.datasets.commit_staged(
        store.datasets.stage_update(at, deleted=[newest.fragment_id << 32])
    ).at
    assert newest.fragment_id not in {
        f.fragment_id for f in store.datasets.open(LOCATION).fragments()
    }
    compacted(store, at)
    (left,) = store.datasets.open(LOCATION).fragments()
    assert left.fragment_id > newest.fragment_id


def test_a_compaction_over_changed_fragments_is_refused(store: Store) -> None:
    at = create(store, numbered(10))
    at = append(store, at, people(["a"])).at
    tasks = store.datasets.plan_compaction(at, CompactionOptions(target_rows=1_000))
    results = [store.datasets.run_compaction(task) for task in tasks]
    moved = append(store, at, people(["b"])).at
    still_fits = store.datasets.stage_compaction(moved, results)
    changed = store.datasets.commit_staged(store.datasets.stage_update(moved, deleted=[3])).at
    with pytest.raises(StaleBaseError, match="has changed since it was rewritten"):
        store.datasets.stage_compaction(changed, results)
    with pytest.raises(StaleBaseError):
        store.datasets.commit_staged(still_fits)


def test_a_compaction_over_fragments_that_an_index_covers_in_part_is_refused(store: Store) -> None:
    at = create(store, numbered(10))
    at = append(store, at, people(["a"])).at
    tasks = store.datasets.plan_compaction(at, CompactionOptions(target_rows=1_000))
    results = [store.datasets.run_compaction(task) for task in tasks]
    first, second = (f.fragment_id for f in store.datasets.open(LOCATION).fragments())
    spec = IndexSpec("id", IndexKind.BTREE)

    def indexed(base: DatasetVersion, *fragment_ids: int) -> DatasetVersion:
        segment = store.datasets.write_index_segment(base, spec, fragment_ids=fragment_ids)
        staged = store.datasets.stage_create_index(base, segments=[segment])
        return store.datasets.commit_staged(staged).at

    half = indexed(at, first)
    with pytest.raises(StaleBaseError, match="covers only some of the rewritten fragments"):
        store.datasets.stage_compaction(half, results)
    apart = indexed(half, second)
    with pytest.raises(StaleBaseError, match="covers only some of the rewritten fragments"):
        store.datasets.stage_compaction(apart, results)
    whole = store.datasets.commit_staged(store.datasets.stage_create_index(apart, [spec])).at
    store.datasets.commit_staged(store.datasets.stage_compaction(whole, results))
    assert len(store.datasets.open(LOCATION).fragments()) == 1


def test_compaction_drops_deleted_rows_and_keeps_row_ids_on_a_branch(store: Store) -> None:
    base = create(store, numbered(20))
    fork = store.datasets.create_branch(LOCATION, "b.1", from_version=base.version)
    at = append(store, fork, people(["x"])).at
    at = store.datasets.commit_staged(store.datasets.stage_update(at, deleted=[1, 2, 3])).at
    before = row_ids(store, at)
    done = compacted(store, at)
    assert row_ids(store, done.at) == before
    (left,) = store.datasets.open(LOCATION, branch="b.1").fragments()
    assert (left.rows, left.deleted_rows) == (18, 0)


def test_fragments_keep_their_identity_across_branches_until_they_change(store: Store) -> None:
    base = create(store, numbered(4))
    fork = store.datasets.create_branch(LOCATION, "b.1", from_version=base.version)
    at = append(store, fork, people(["x"])).at
    at = store.datasets.commit_staged(store.datasets.stage_update(at, deleted=[1])).at
    (main,) = store.datasets.open(LOCATION).fragments()
    changed, added = store.datasets.open(LOCATION, branch="b.1").fragments()
    (same,) = store.datasets.open(LOCATION, branch="b.1", version=base.version).fragments()
    assert same.identity == main.identity
    assert len({main.identity, changed.identity, added.identity}) == 3


def test_searches_rank_and_filter_before_they_rank(local_store: Store) -> None:
    store = local_store
    made(store)
    handle = store.datasets.open(LOCATION)
    search = VectorSearch("place", place(7), k=3, use_index=False)
    request = ScanRequest(columns=("id", "_distance"), nearest=search)
    rows = handle.scan(request).read_all()
    assert rows["id"][0].as_py() == "n7"
    distances = rows["_distance"].to_pylist()
    assert distances == sorted(distances)
    ids = handle.scan(ScanRequest(columns=("id",), with_row_id=True)).read_all()
    allowed = tuple(ids["_rowid"].to_pylist()[20:22])
    within = ScanRequest(columns=("id",), nearest=search, row_ids=allowed)
    assert set(found(store, within)) == {"n20", "n21"}
    filtered = ScanRequest(columns=("id",), nearest=search, row_filter=Comparison("id", "=", "n99"))
    assert found(store, filtered) == ["n99"]


def test_text_searches_take_any_or_all_words_or_a_phrase(local_store: Store) -> None:
    store = local_store
    at = made(store)
    spec = IndexSpec(
        "text", IndexKind.INVERTED, parameters={"with_position": True, "remove_stop_words": False}
    )
    store.datasets.commit_staged(store.datasets.stage_create_index(at, [spec]))

    def ids(search: TextSearch) -> set[str]:
        return set(found(store, ScanRequest(columns=("id", "_score"), text=search)))

    assert ids(TextSearch("text", "word3x word4x")) == {"n3", "n4"}
    assert ids(TextSearch("text", "word3x word4x", mode="all")) == set()
    assert ids(TextSearch("text", "word3x more", mode="all")) == {"n3"}
    assert ids(TextSearch("text", "word3x and", mode="phrase")) == {"n3"}
    assert ids(TextSearch("text", "and word3x", mode="phrase")) == set()
    assert ids(TextSearch("text", "wxrd3x", fuzziness=1)) == {"n3"}


def test_an_indexed_scan_reads_less_than_a_full_one(local_store: Store) -> None:
    store = local_store
    at = made(store)
    store.datasets.commit_staged(
        store.datasets.stage_create_index(at, [IndexSpec("id", IndexKind.BTREE)])
    )
    handle = store.datasets.open(LOCATION)
    by_id = Comparison("id", "=", "n7")
    one, probed = scan_statistics(handle, ScanRequest(row_filter=by_id))
    same, scanned = scan_statistics(handle, ScanRequest(row_filter=by_id, use_scalar_indexes=False))
    assert one.equals(same)
    assert one.num_rows == 1
    assert probed.indexes_loaded == 1
    assert scanned.indexes_loaded == 0
    assert probed.bytes_read > 0


BLOBS = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False),
        pa.field("content", BLOB_STORAGE, metadata=BLOB_EXTENSION),
    ]
)
CONTENTS = [None, b"", b"small", b"m" * 200_000, b"l" * 5_000_000]


def blobs() -> pa.Table:
    values = [None if data is None else {"data": data, "uri": None} for data in CONTENTS]
    return pa.table(
        {"id": [str(number) for number in range(5)], "content": pa.array(values, BLOB_STORAGE)},
        schema=BLOBS,
    )


def test_blobs_are_staged_verified_read_and_compacted_with_their_files(store: Store) -> None:
    staged = store.datasets.stage_create(LOCATION, BLOBS, rows=blobs())
    assert sum(file.path.endswith(".blob") for file in staged.files) == 2
    store.datasets.verify_staged_files(staged)
    at = store.datasets.commit_staged(staged).at
    at = append(store, at, blobs()).at
    done = compacted(store, at)
    handle = store.datasets.open(LOCATION)
    assert handle.at == done.at
    order = [4, 0, 2, 1, 3, 4]
    assert handle.read_blobs("content", order) == tuple(CONTENTS[number] for number in order)
    assert handle.read_blobs("content", []) == ()
    opened = [handle.open_blob("content", number) for number in range(5)]
    assert [content and content.read(0, content.size) for content in opened] == CONTENTS
    whole = handle.scan(
        ScanRequest(columns=("content",), blobs_as_bytes=True, row_ids=(2,))
    ).read_all()
    assert whole["content"].to_pylist() == [b"small"]
    wider = BLOBS.append(pa.field("note", pa.utf8()))
    rows = blobs().append_column(wider.field("note"), pa.nulls(5, pa.utf8()))
    over = store.datasets.stage_overwrite(done.at, wider, rows=rows)
    store.datasets.commit_staged(over)
    fresh = store.datasets.open(LOCATION)
    numbers = fresh.scan(ScanRequest(columns=("id",), with_row_id=True)).read_all()["_rowid"]
    assert fresh.read_blobs("content", numbers.to_pylist()) == tuple(CONTENTS)


def test_rows_that_stream_in_are_split_and_keep_their_row_ids(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = create(store, numbered(10))
    scanned = store.datasets.open(LOCATION).scan(
        ScanRequest(with_row_id=True, with_row_address=True, batch_rows=3)
    )
    rows = scanned.read_all()
    kept = rows.drop_columns(["_rowaddr"]).to_reader(max_chunksize=3)
    monkeypatch.setattr(staging, "ROWS_PER_FRAGMENT_MAX", 4)
    written = store.datasets.write_fragments(base, kept, row_id_column="_rowid")
    assert [fragment.rows for fragment in written] == [4, 4, 2]
    deletions = store.datasets.write_deletions(base, rows["_rowaddr"])
    staged = store.datasets.stage_update(base, fragments=written, deletions=deletions)
    at = store.datasets.commit_staged(staged).at
    assert row_ids(store, at) == row_ids(store, base)


def test_an_error_in_the_stream_of_rows_keeps_its_kind(store: Store) -> None:
    base = create(store)

    def batches() -> object:
        yield numbered(2).to_batches()[0]
        raise StaleBaseError(path="x", branch=None, expected=1, actual=2, reason="upstream")

    for write in (store.datasets.stage_append, store.datasets.write_fragments):
        reader = pa.RecordBatchReader.from_batches(base_schema(store), batches())
        with pytest.raises(StaleBaseError, match="upstream"):
            write(base, reader)


def base_schema(store: Store) -> pa.Schema:
    return store.datasets.open(LOCATION).schema


def test_rows_that_do_not_fit_the_columns_are_refused(store: Store) -> None:
    base = create(store)
    with pytest.raises(InvalidScanError, match=r"unexpected=.name"):
        store.datasets.stage_append(base, pa.table({"name": ["x"]}))
    nobody = pa.table({"id": pa.array([None], pa.utf8()), "age": pa.array([1], pa.int32())})
    with pytest.raises(InvalidScanError, match="null"):
        store.datasets.stage_append(base, nobody)
    assert store.datasets.head_version(LOCATION) == base.version


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (pa.table({"id": ["p0"], "age": pa.array([1], pa.int32())}), "need the column `_rowid`"),
        (
            pa.table(
                {
                    "id": ["p0", "p0"],
                    "age": pa.array([1, 1], pa.int32()),
                    "_rowid": pa.array([0, 0], pa.uint64()),
                    "_rowaddr": pa.array([0, 0], pa.uint64()),
                }
            ),
            "rewritten twice",
        ),
    ],
)
def test_rewritten_rows_must_say_what_they_replace(store: Store, rows: pa.Table, said: str) -> None:
    base = create(store, numbered(2))
    with pytest.raises(InvalidScanError, match=said):
        store.datasets.stage_update(base, rewritten=rows)


def test_a_row_cannot_be_rewritten_and_deleted(store: Store) -> None:
    base = create(store, numbered(2))
    rows = store.datasets.open(LOCATION).scan(ScanRequest(with_row_id=True, with_row_address=True))
    with pytest.raises(InvalidScanError, match="removed twice"):
        store.datasets.stage_update(base, rewritten=rows, deleted=[0])


def test_files_that_no_version_needs_are_found_and_no_others(store: Store) -> None:
    staged = store.datasets.stage_create(LOCATION, BLOBS, rows=blobs())
    base = store.datasets.commit_staged(staged).at
    fork = store.datasets.create_branch(LOCATION, "team/b.1", from_version=base.version)
    on_fork = append(store, fork, blobs()).at
    store.datasets.commit_staged(store.datasets.stage_update(on_fork, deleted=[1]))
    at = store.datasets.commit_staged(
        store.datasets.stage_create_index(base, [IndexSpec("id", IndexKind.BTREE)])
    ).at
    store.datasets.create_tag(LOCATION, "pin", version=at.version)
    assert store.datasets.unreferenced_files(LOCATION) == ()

    lost = store.datasets.stage_append(at, blobs())
    view = store.datasets.open_staged(lost)
    expected = {file.path for file in lost.files} | {manifest_path(LOCATION, None, view.at.version)}
    if not store.settings.root.is_local:
        # On a disk it is removed at once.
        expected.add(transaction_path(LOCATION, None, read_version=at.version, uuid=lost.uuid))
    found_files = store.datasets.unreferenced_files(LOCATION)
    assert {info.path for info in found_files} == expected
    for info in found_files:
        store.objects.delete(info.path)
    handle = store.datasets.open(LOCATION)
    assert handle.read_blobs("content", [3]) == (CONTENTS[3],)
    assert store.datasets.open(LOCATION, branch="team/b.1").count() == 9


def test_the_leftovers_of_a_deleted_branch_are_unreferenced(local_store: Store) -> None:
    base = create(local_store, numbered(3))
    fork = local_store.datasets.create_branch(LOCATION, "b.1", from_version=base.version)
    append(local_store, fork, people(["x"]))
    local_store.objects.delete(branch_ref_path(LOCATION, "b.1"))
    left = local_store.datasets.unreferenced_files(LOCATION)
    assert left
    assert all(info.path.startswith(f"{LOCATION}/tree/b.1/") for info in left)


def test_indexes_can_be_staged_on_what_a_compaction_will_have_made(store: Store) -> None:
    at = create(store, numbered(10))
    for name in ("a", "b"):
        at = append(store, at, people([name])).at
    datasets = store.datasets
    results = [datasets.run_compaction(task) for task in datasets.plan_compaction(at)]
    compaction = datasets.stage_compaction(at, results)
    view = datasets.open_staged(compaction)
    on_view = datasets.stage_create_index(view.at, [IndexSpec("id", IndexKind.BTREE)])
    indexes = datasets.following(on_view, compaction)
    datasets.discard_staged_view(view.at)
    assert (indexes.uuid, indexes.base.version) == (on_view.uuid, at.version + 1)
    assert datasets.commit_staged(compaction).version == at.version + 1
    assert datasets.commit_staged(indexes).version == at.version + 2
    head = datasets.open(LOCATION)
    (index,) = head.indexes()
    assert (index.rows_covered, index.segments[0].dataset_version) == (12, at.version + 1)
    assert ages(store, head.at)["b"] == 1


def test_a_successor_is_refused_when_somebody_comes_in_between(store: Store) -> None:
    at = append(store, create(store, numbered(10)), people(["a"])).at
    datasets = store.datasets
    results = [datasets.run_compaction(task) for task in datasets.plan_compaction(at)]
    compaction = datasets.stage_compaction(at, results)
    view = datasets.open_staged(compaction)
    indexes = datasets.following(
        datasets.stage_create_index(view.at, [IndexSpec("id", IndexKind.BTREE)]), compaction
    )
    append(store, datasets.commit_staged(compaction).at, people(["b"]))
    with pytest.raises(StaleBaseError):
        datasets.commit_staged(indexes)
