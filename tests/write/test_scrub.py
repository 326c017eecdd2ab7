"""Files are compared with what was written: damage is found, everything else is left alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.graph import Damage, Graph, OpenMode, ReadTarget, ScrubReport
from omnigraph.graph.session import ReadOnlyGraphError
from omnigraph.maintenance import background
from omnigraph.maintenance.scrub import scrub as scrubbing
from omnigraph.maintenance.scrub.report import ScrubRequest, ScrubShareError
from omnigraph.maintenance.scrub.scrub import scrub
from omnigraph.manifest import Repository, checksums
from omnigraph.manifest.errors import BranchNotFoundError
from omnigraph.manifest.layout import CHECKSUMS, MANIFEST
from omnigraph.store.digests import HASHED_AT_ONCE_BYTES, hash_file
from omnigraph.store.lance.layout import branch_ref_path, manifest_path
from omnigraph.store.records import DatasetVersion, IndexKind, IndexSpec
from support.places import PERSON, SCHEMA, Place, add, ids, repository_of, session_of, settled

BOTH = pytest.mark.parametrize("where", ["local", "s3"])
HARD = SCHEMA.replace("node City {\n    name: String @key\n    age: I32?\n}\n\n", "")


@pytest.fixture
def chosen(request: pytest.FixtureRequest, where: str) -> Place:
    found: Place = request.getfixturevalue(f"{where}_place")
    return found


def busy(graph: Graph) -> None:
    """Let every kind of writer leave files."""
    add(graph, "ann", "bob")
    graph.load(b'{"edge": "Knows", "from": "ann", "to": "bob"}\n', mode="append")
    graph.mutate('query q() { delete Person where name = "bob" }')
    graph.mutate('query q() { update Person set { age: 3 } where name = "ann" }')
    graph.tag_create("early")
    graph.branch_create("dev")
    graph.mutate('query q() { insert Person { name: "cas" } }', branch="dev")
    graph.branch_create("gone")
    graph.mutate('query q() { insert City { name: "rome" } }', branch="gone")
    graph.branch_delete("gone")
    graph.mutate('query q() { insert City { name: "kiel" } }')
    graph.branch_merge("dev")
    graph.optimize()
    graph.tag_create("late")
    graph.tag_delete("late")
    graph.branch_delete("dev")
    graph.apply_schema(SCHEMA.replace("node City {", 'node Town @rename_from("City") {'))
    graph.branch_create("last")
    graph.mutate('query q() { delete Person where name = "cas" }', branch="last")


def change(place: Place, path: str, edit: Callable[[bytes], bytes] | None) -> None:
    """Do something to the bytes of a file, or remove it."""
    objects = place.store().objects
    if edit is None:
        objects.delete(path)
    else:
        objects.put(path, edit(objects.get(path).data))


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def scrubbed(place: Place) -> ScrubReport:
    return place.open(mode=OpenMode.READ_ONLY).scrub()


def only(report: ScrubReport) -> Damage:
    (damage,) = report.damaged
    return damage


def first(place: Place, part: str, prefix: str = "") -> str:
    return next(i.path for i in place.store().objects.list() if part in i.path and prefix in i.path)


# -- nothing is wrong ------------------------------------------------------------------------------


@BOTH
def test_whatever_was_written_has_a_checksum_and_is_sound(chosen: Place) -> None:
    with settled(chosen.init()) as graph:
        busy(graph)
    report = scrubbed(chosen)
    assert report.is_sound
    assert report.without_checksum == ()
    assert report.compared == report.files > 50
    assert (report.bytes_read > 0) == chosen.is_local, "an object store is not read back"


def test_without_a_background_thread_the_writer_stores_the_checksums(place: Place) -> None:
    place.init()
    graph = Graph.open(place.uri, auto_optimize=False)
    add(graph, "ann")
    graph.mutate('query q() { insert Person { name: "bob" } }')
    graph.branch_create("dev")
    report = Graph.open(place.uri, mode=OpenMode.READ_ONLY).scrub()
    assert (report.damaged, report.without_checksum) == ((), ())


def test_what_the_background_thread_has_not_recorded_yet_is_recorded_first(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(repository: Repository, request: ScrubRequest) -> ScrubReport:
        # What the thread does next after a commit, at the worst moment.
        session_of(graph).background._record_pending()
        return scrub(repository, request)

    monkeypatch.setattr(scrubbing, "scrub", overtaken)
    monkeypatch.setattr(background, "PAUSE_S", 60.0)
    with settled(place.init()) as graph:
        graph.mutate('query q() { insert Person { name: "ann" } }')
        report = graph.scrub()
    assert (report.damaged, report.without_checksum) == ((), ())


@BOTH
def test_cleanup_takes_out_the_checksums_of_files_that_are_gone(chosen: Place) -> None:
    with settled(chosen.init()) as graph:
        busy(graph)
        before = rows_of(graph)
        graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
        graph.optimize()
        present = {info.path for info in chosen.store().objects.list()}
        assert {path for path in rows_of(graph) if path not in present} == set()
        assert len(rows_of(graph)) < len(before)
        assert len(set(rows_of(graph))) == len(rows_of(graph)), "one row per file"
    report = scrubbed(chosen)
    assert (report.damaged, report.without_checksum) == ((), ())


def rows_of(graph: Graph) -> list[str]:
    rows = repository_of(graph).store.datasets.open(CHECKSUMS).scan().read_all()
    return list(rows["path"].to_pylist())


def test_what_a_hard_drop_has_purged_is_not_missed(place: Place) -> None:
    with settled(place.init()) as graph:
        busy(graph)
        graph.branch_delete("last")
        graph.tag_delete("early")
        assert graph.apply_schema(HARD, allow_data_loss=True).applied
    assert scrubbed(place).is_sound


def test_a_torn_head_that_was_written_anew_counts_as_it_is_now(place: Place) -> None:
    with settled(place.init()) as graph:
        add(graph, "ann")
    datasets = place.store().datasets
    location = graph.snapshot().entry(PERSON).location
    staged = datasets.stage_append(
        DatasetVersion(location, None, 2), pa.table({"id": ["x"], "name": ["x"]})
    )
    datasets.commit_staged(staged)
    repository = repository_of(place.open())
    change(place, manifest_path(location, None, 3), lambda data: data[:10])
    place.open()
    with settled(place.open()) as graph:
        add(graph, "bob")
    assert repository.checksums.sums(location).damaged_rows == 0
    assert scrubbed(place).is_sound


# -- what is damaged -------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("how", ["flipped", "cut", "removed"])
def test_damaged_rows_are_named_with_what_is_lost(chosen: Place, how: str) -> None:
    with settled(chosen.init()) as graph:
        add(graph, "ann")
        kept = graph.snapshot().commit_id
        add(graph, "bob", "cas")
        add(graph, "dan")
        location = graph.snapshot().entry(PERSON).location
    store = chosen.store()
    second = store.datasets.open(location).fragments()[1]
    path = f"{location}/data/{second.data_identity}"
    edits = {"flipped": flipped, "cut": lambda data: data[:-7], "removed": None}
    change(chosen, path, edits[how])
    damage = only(scrubbed(chosen))
    assert (damage.path, damage.kind, damage.table) == (path, "rows", PERSON)
    assert damage.problem == {"flipped": "content", "cut": "size", "removed": "missing"}[how]
    assert damage.rows is not None
    assert (damage.rows.fragment_ids, damage.rows.rows) == ((1,), 2)
    assert (damage.rows.first_row_id, damage.rows.last_row_id) == (1, 2)
    (commits,) = damage.commits
    assert (commits.branch, commits.newest) == ("main", kept)
    assert (commits.readable, commits.unreadable) == (2, 2)
    assert ids(graph.snapshot_of(ReadTarget.commit(kept))) == ["ann"]
    assert path in damage.remedy
    assert kept in damage.remedy


def test_a_flipped_bit_is_read_without_a_word_and_found_by_a_scrub(place: Place) -> None:
    with settled(place.init()) as graph:
        add(graph, "annabel")
    location = graph.snapshot().entry(PERSON).location
    path = first(place, "/data/", location)
    change(place, path, lambda data: data.replace(b"annabel", b"annabem"))
    assert ids(place.open().snapshot()) == ["annabem"], "Lance does not notice"
    assert only(scrubbed(place)).path == path


@BOTH
def test_the_newest_version_of_the_manifest_cannot_vanish(chosen: Place) -> None:
    with settled(chosen.init()) as graph:
        add(graph, "ann")
        add(graph, "bob")
        head = graph.snapshot().manifest_version
    path = manifest_path(MANIFEST, None, head)
    change(chosen, path, None)
    assert ids(chosen.open(mode=OpenMode.READ_ONLY).snapshot()) == ["ann"], "without a word"
    damage = only(scrubbed(chosen))
    assert (damage.path, damage.kind, damage.problem) == (path, "version", "missing")
    (commits,) = damage.commits
    assert (commits.readable, commits.unreadable) == (2, 1)


def test_cleanup_does_not_hide_a_version_that_has_vanished(place: Place) -> None:
    with settled(place.init()) as graph:
        add(graph, "ann")
        add(graph, "bob")
        path = manifest_path(MANIFEST, None, graph.snapshot().manifest_version - 1)
    change(place, path, None)
    place.open().cleanup(keep_versions=100, confirm=True)
    assert only(scrubbed(place)).path == path


@BOTH
def test_a_branch_cannot_vanish(chosen: Place) -> None:
    with settled(chosen.init()) as graph:
        graph.branch_create("dev")
        graph.mutate('query q() { insert Person { name: "ann" } }', branch="dev")
        graph.branch_create("other")
        graph.branch_delete("other")
    (name,) = chosen.store().datasets.branch_names(MANIFEST)
    change(chosen, branch_ref_path(MANIFEST, name), None)
    assert chosen.open(mode=OpenMode.READ_ONLY).branch_list() == ["main"], "without a word"
    damage = only(scrubbed(chosen))
    assert (damage.path, damage.kind) == (branch_ref_path(MANIFEST, name), "ref")
    readable = {c.branch: (c.readable, c.unreadable) for c in damage.commits}
    assert readable == {"main": (1, 0), "dev": (1, 1)}, "what it was cut from is there"


def test_a_damaged_manifest_is_named_although_the_graph_cannot_be_opened(place: Place) -> None:
    with settled(place.init()) as graph:
        add(graph, "ann")
        head = graph.snapshot().manifest_version
    datasets = place.store().datasets
    newest = datasets.open(MANIFEST, version=head).fragments()[-1]
    path = f"{MANIFEST}/data/{newest.data_identity}"
    change(place, path, lambda data: bytes(len(data)))
    report = graph.scrub()
    damage = only(report)
    assert (damage.path, damage.table) == (path, MANIFEST)
    assert damage.commits[0].readable == 1


def test_tables_are_looked_at_although_no_manifest_can_be_read(place: Place) -> None:
    with settled(place.init()) as graph:
        add(graph, "ann")
    for info in place.store().objects.list(MANIFEST):
        if info.path.endswith(".manifest"):
            change(place, info.path, lambda _: b"nothing")
    path = first(place, "/data/", "nodes/")
    change(place, path, flipped)
    tables = [damage.path for damage in graph.scrub().damaged if damage.table != MANIFEST]
    assert tables == [path]


def test_an_index_is_built_anew(place: Place) -> None:
    with settled(place.init()) as graph:
        add(graph, "ann", "bob")
        graph.optimize()
        before = graph.snapshot().open(PERSON).indexes()
    path = first(place, "/_indices/")
    change(place, path, flipped)
    damage = only(scrubbed(place))
    assert damage.kind == "index"
    assert damage.rows is not None
    assert damage.rows.rows == 2
    assert f"optimize --rebuild-indexes {PERSON}" in damage.remedy
    with settled(place.open()) as graph:
        report = graph.rebuild_indexes([PERSON])
        assert report.commit is not None
        after = graph.snapshot().open(PERSON).indexes()
    assert {index.name for index in after} == {index.name for index in before}
    old = {segment.uuid for index in before for segment in index.segments}
    assert not old & {segment.uuid for index in after for segment in index.segments}
    head = graph.snapshot().commit_id
    damage = only(scrubbed(place))
    assert damage.commits[0].newest == head, "only history needs the old one"
    assert ids(place.open().snapshot()) == ["ann", "bob"]


def test_a_derived_table_is_named_and_can_be_made_anew(place: Place) -> None:
    with settled(place.init()) as graph:
        add(graph, "ann")
    path = first(place, "_graph_commits.lance/data/")
    change(place, path, flipped)
    damage = only(scrubbed(place))
    assert (damage.path, damage.table, damage.commits) == (path, "_graph_commits.lance", ())
    assert "delete `_graph_commits.lance`" in damage.remedy
    place.store().objects.delete_prefix("_graph_commits.lance")
    with place.open():
        pass
    assert scrubbed(place).is_sound


# -- files without a checksum ----------------------------------------------------------------------


@BOTH
def test_old_files_are_reported_and_adopted(chosen: Place) -> None:
    graph = Graph.init(chosen.uri, SCHEMA, storage_options=chosen.options, checksums=False)
    add(graph, "ann")
    graph.close()
    report = scrubbed(chosen)
    assert report.is_sound
    assert len(report.without_checksum) == report.files > 0
    with settled(chosen.open()) as graph:
        adopted = graph.scrub(adopt=True)
        assert adopted.adopted >= len(report.without_checksum)
        assert adopted.without_checksum == ()
    assert scrubbed(chosen).compared == scrubbed(chosen).files
    change(chosen, first(chosen, "/data/", "nodes/"), flipped)
    assert not scrubbed(chosen).is_sound


def test_adoption_never_replaces_a_checksum(place: Place) -> None:
    with settled(place.init()) as graph:
        add(graph, "ann")
    path = first(place, "/data/", "nodes/")
    change(place, path, flipped)
    with settled(place.open()) as graph:
        assert only(graph.scrub(adopt=True)).path == path
    assert only(scrubbed(place)).path == path


def test_a_process_that_dies_loses_checksums_and_not_more(place: Place) -> None:
    place.init()
    graph = Graph.open(place.uri, auto_optimize=True)
    repository = repository_of(graph)
    add(graph, "ann")
    assert repository.store.ledger.take()
    report = scrubbed(place)
    assert report.is_sound
    assert report.without_checksum


def test_adopting_needs_a_graph_that_was_opened_for_writing(place: Place) -> None:
    place.init()
    with pytest.raises(ReadOnlyGraphError):
        place.open(mode=OpenMode.READ_ONLY).scrub(adopt=True)


# -- what is looked at -----------------------------------------------------------------------------


def test_one_branch_alone(place: Place) -> None:
    with settled(place.init()) as graph:
        add(graph, "ann")
        graph.branch_create("dev")
        graph.mutate('query q() { insert Person { name: "bob" } }', branch="dev")
        add(graph, "cas")
        location = graph.snapshot().entry(PERSON).location
        names = {f.data_identity for f in graph.snapshot().open(PERSON).fragments()}
        shared = {
            f.data_identity
            for f in graph.snapshot_of(ReadTarget.branch("dev")).open(PERSON).fragments()
        }
    (own,) = names - shared
    change(place, f"{location}/data/{own}", flipped)
    graph = place.open(mode=OpenMode.READ_ONLY)
    assert graph.scrub(branch="dev").is_sound
    assert not graph.scrub(branch="main").is_sound
    assert graph.scrub(branch="dev").files < graph.scrub().files
    with pytest.raises(BranchNotFoundError):
        graph.scrub(branch="nobody")


def test_a_sample_is_chosen_by_path_and_seed(place: Place) -> None:
    with settled(place.init()) as graph:
        for number in range(30):
            add(graph, f"p{number}")
    location = graph.snapshot().entry(PERSON).location
    for info in place.store().objects.list(f"{location}/data"):
        change(place, info.path, flipped)
    graph = place.open(mode=OpenMode.READ_ONLY)

    def found(seed: str) -> set[str]:
        return {damage.path for damage in graph.scrub(share=0.3, seed=seed).damaged}

    assert found("monday") == found("monday")
    assert found("monday") != found("tuesday")
    assert 0 < len(found("monday")) < 30
    assert graph.scrub(share=0.3).seed != "monday", "the day"
    assert len(graph.scrub().damaged) == 30


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_a_sample_is_a_share(place: Place, share: float) -> None:
    place.init()
    with pytest.raises(ScrubShareError):
        place.open(mode=OpenMode.READ_ONLY).scrub(share=share)


def test_a_scrub_changes_nothing(place: Place) -> None:
    with settled(place.init()) as graph:
        add(graph, "ann")
    before = {info.path: info.tag for info in place.store().objects.list()}
    scrubbed(place)
    assert {info.path: info.tag for info in place.store().objects.list()} == before


# -- the table of checksums ------------------------------------------------------------------------


def test_damage_of_the_table_is_named_as_such(place: Place) -> None:
    with settled(place.init()) as graph:
        add(graph, "ann")
    head = place.store().datasets.head_version(CHECKSUMS)
    change(place, manifest_path(CHECKSUMS, None, head), lambda data: data[:20])
    damage = only(scrubbed(place))
    assert (damage.path, damage.kind, damage.problem) == (CHECKSUMS, "checksums", "unreadable")
    assert "--adopt" in damage.remedy


def test_a_row_that_is_not_what_was_written_blames_no_file(place: Place) -> None:
    with settled(place.init()) as graph:
        add(graph, "ann")
    datasets = place.store().datasets
    handle = datasets.open(CHECKSUMS)
    rows = handle.scan().read_all().slice(0, 1)
    other = rows.set_column(2, checksums.SCHEMA.field("digest"), pa.array(["xxh3:00"]))
    datasets.commit_staged(datasets.stage_append(handle.at, other))
    damage = only(scrubbed(place))
    assert (damage.path, damage.kind, damage.problem) == (CHECKSUMS, "checksums", "content")


def test_a_table_that_cannot_be_written_fails_no_write(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.init().close()
    head = place.store().datasets.head_version(CHECKSUMS)
    change(place, manifest_path(CHECKSUMS, None, head), lambda data: data[:20])
    with caplog.at_level(logging.WARNING), place.open() as graph:
        add(graph, "ann")
        graph.mutate('query q() { insert Person { name: "bob" } }')
    assert "checksums" in caplog.text
    assert ids(place.open().snapshot()) == ["ann", "bob"]


def test_files_that_a_task_has_hashed_are_not_read_again(place: Place) -> None:
    with settled(place.init()) as graph:
        pass
    repository = repository_of(place.open())
    datasets = repository.store.datasets
    entry = repository.reader.latest(graph.snapshot().incarnation).entries[PERSON]
    base = DatasetVersion(entry.location, None, entry.table_version)
    names = [f"{number:06}{number * 7919 % 1_000_003}" for number in range(10_000)]
    rows = pa.table({"id": names, "name": names, "age": pa.array(range(10_000), pa.int32())})
    staged = datasets.stage_append(base, rows)
    (file,) = staged.files
    assert file.digest == hash_file(repository.store.settings.root, file.path)[1]
    datasets.commit_staged(staged)
    (Path(place.uri) / file.path).unlink()
    repository.checksums.record()
    assert repository.checksums.sums(entry.location).by_path[file.path].digest == file.digest


def test_compactions_and_indexes_are_hashed_where_they_are_made(place: Place) -> None:
    names = [f"{number:06}{number * 7919 % 1_000_003}" for number in range(20_000)]
    with settled(place.init()) as graph:
        add(graph, *names[:10_000])
        add(graph, *names[10_000:])
        at = graph.snapshot().open(PERSON).at
    datasets = place.store().datasets
    results = [datasets.run_compaction(task) for task in datasets.plan_compaction(at)]
    index = datasets.write_index_segment(at, IndexSpec("id", IndexKind.BTREE))
    large = [
        file
        for part in (*results, index)
        for file in part.files
        if (file.size or 0) >= HASHED_AT_ONCE_BYTES
    ]
    assert len(large) >= 2
    for file in large:
        assert file.digest == hash_file(place.store().settings.root, file.path)[1]
