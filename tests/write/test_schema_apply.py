"""Schema apply: the lock, drops, and what happens in parallel with other writers."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import failpoints
from omnigraph.errors import ConflictError, NotFoundError, OmnigraphError
from omnigraph.graph import Graph, ReadTarget
from omnigraph.manifest.errors import SchemaApplyInProgressError, SchemaMovedError
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST
from omnigraph.names import MAIN, SCHEMA_APPLY_LOCK, BranchName
from omnigraph.store.records import ScanRequest
from omnigraph.values import STABLE_PROPERTY_ID
from omnigraph.write.rules.stored_checks import StoredRowsError
from omnigraph.write.schema_apply import SchemaApplyRunningError
from support.places import CITY, KNOWS, PERSON, SCHEMA, Place, add, ids, repository_of
from support.sweep_jobs import RENAMED

pytestmark = pytest.mark.usefixtures("disarmed")

WIDER = SCHEMA.replace("age: I32?", "age: I32?\n    motto: String?", 1)


def make_stale_lock(graph: Graph) -> None:
    datasets = repository_of(graph).store.datasets
    datasets.create_branch(MANIFEST, SCHEMA_APPLY_LOCK, from_branch=None, from_version=1)


def has_lock(graph: Graph) -> bool:
    return repository_of(graph).branches.has_schema_lock(MAIN_INCARNATION)


def test_the_result_has_the_shape_of_the_contract(place: Place) -> None:
    graph = place.init()
    result = graph.apply_schema(WIDER, actor_id="eva")
    shape = result.to_json()
    assert set(shape) == {"branch", "supported", "applied", "graph_manifest_version", "steps"}
    assert (shape["supported"], shape["applied"]) == (True, True)
    assert shape["graph_manifest_version"] == graph.snapshot().manifest_version
    commit = graph.list_commits()[0]
    assert (commit.operation, commit.actor_id) == ("schema_apply", "eva")


def test_a_text_that_differs_only_in_comments_is_not_stored(place: Place) -> None:
    graph = place.init()
    before = graph.snapshot().manifest_version
    result = graph.apply_schema(SCHEMA + "\n// a comment\n")
    assert (result.applied, result.graph_manifest_version) == (False, before)
    assert graph.schema_source() == SCHEMA


def test_rows_that_do_not_fit_are_counted_and_listed_in_the_details(place: Place) -> None:
    graph = place.init()
    graph.load(b'{"type": "Person", "data": {"name": "ann"}}', mode="append")
    with pytest.raises(StoredRowsError) as caught:
        graph.apply_schema(SCHEMA.replace("age: I32?", "age: I32"))
    assert caught.value.details == {
        "broken": [
            {
                "step": "make property node:Person.age required",
                "code": "OG-MF-104",
                "count": 1,
                "offenders": [
                    {"table_key": PERSON, "entity_id": "ann", "message": "Person.age is null"}
                ],
            }
        ],
        "total": 1,
    }
    assert graph.schema_source() == SCHEMA


def test_a_metadata_only_plan_makes_one_commit_and_moves_no_table(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    before = graph.snapshot()
    graph.apply_schema(SCHEMA.replace("node City", 'node City @description("x")'))
    after = graph.snapshot()
    assert {k: e.table_version for k, e in after.entries.items()} == {
        k: e.table_version for k, e in before.entries.items()
    }
    assert len(graph.list_commits()) == 3


def test_new_datasets_carry_the_id_of_their_operation_and_columns_their_numbers(
    place: Place,
) -> None:
    graph = place.init()
    graph.apply_schema(WIDER + "\nnode Town { code: String @key }")
    entry = graph.snapshot().entries["node:Town"]
    assert len(entry.location.rpartition("-")[2]) == 26
    catalog = graph.catalog()
    for key, declared in (
        ("node:Town", catalog.node_types["Town"]),
        (PERSON, catalog.node_types["Person"]),
    ):
        for field in graph.snapshot().open(key).schema:
            number = (field.metadata or {}).get(STABLE_PROPERTY_ID)
            prop = declared.properties.get(field.name)
            assert number == (str(prop.property_id).encode() if prop else None)


def test_a_type_that_was_dropped_and_declared_again_starts_empty(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    full = graph.snapshot()
    bare = "node City {\n    name: String @key\n    age: I32?\n}\n"
    graph.apply_schema(bare)
    assert sorted(graph.snapshot().entries) == [CITY]
    graph.apply_schema(SCHEMA)
    assert ids(graph.snapshot()) == []
    assert graph.snapshot().entries[PERSON].location != full.entries[PERSON].location
    assert ids(full) == ["ann"]
    assert ids(graph.snapshot_of(ReadTarget.commit(full.commit_id))) == ["ann"]


def test_a_hard_drop_purges_what_older_snapshots_held(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    add(graph, "bob")
    full = graph.snapshot()
    slim = SCHEMA.replace("    age: I32?\n", "", 1)
    result = graph.apply_schema(slim, allow_data_loss=True)
    assert [step.to_json()["mode"] for step in result.plan.steps] == ["hard"]
    assert result.warnings == ()
    fresh = place.open()
    assert ids(fresh.snapshot()) == ["ann", "bob"]
    with pytest.raises(NotFoundError, match="cleanup has removed it"):
        ids(fresh.snapshot_of(ReadTarget.commit(full.commit_id)))
    bare = "node City {\n    name: String @key\n    age: I32?\n}\n"
    kept = graph.snapshot()
    assert graph.apply_schema(bare, allow_data_loss=True).warnings == ()
    with pytest.raises(NotFoundError, match="cleanup has removed it"):
        ids(place.open().snapshot_of(ReadTarget.commit(kept.commit_id)))


def test_a_soft_drop_keeps_values_in_older_snapshots(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    full = graph.snapshot()
    graph.apply_schema(SCHEMA.replace("    age: I32?\n", "", 1))
    old = place.open().snapshot_of(ReadTarget.commit(full.commit_id))
    assert old.open(PERSON).schema.names == ["id", "age", "name"]
    assert graph.snapshot().open(PERSON).schema.names == ["id", "name"]


# -- the lock --------------------------------------------------------------------------------------


def test_a_second_apply_is_refused_while_one_is_under_way(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    repository = repository_of(graph)
    with repository.branch_locks.take(BranchName(MAIN), operation_id="OP"):
        repository.branches.set_schema_lock(MAIN_INCARNATION)
        with pytest.raises(SchemaApplyRunningError, match="schema apply is already in progress"):
            place.open().apply_schema(WIDER)
        other = place.open()
        said = "branch create is unavailable while schema apply is in progress"
        with pytest.raises(SchemaApplyInProgressError, match=said):
            other.branch_create("dev")
        with pytest.raises(SchemaApplyInProgressError, match="repair is unavailable"):
            other.repair(confirm=True)
        with pytest.raises(SchemaApplyInProgressError, match="ensure_indices is unavailable"):
            other.ensure_indices()
        with pytest.raises(SchemaApplyInProgressError, match="load is unavailable"):
            other.load(b'{"type":"Person","data":{"name":"x"}}\n', mode="append")
        repository.branches.clear_schema_lock(MAIN_INCARNATION)
    assert graph.apply_schema(WIDER).applied


@pytest.mark.parametrize("by", ["apply", "load", "branch create", "optimize"])
def test_the_lock_of_a_dead_apply_is_removed_by_whoever_comes_next(place: Place, by: str) -> None:
    graph = place.init()
    add(graph, "ann")
    make_stale_lock(graph)
    assert graph.branch_list() == ["main"]
    if by == "apply":
        assert graph.apply_schema(WIDER).applied
    elif by == "load":
        graph.load(b'{"type":"Person","data":{"name":"x"}}\n', mode="append")
    elif by == "branch create":
        graph.branch_create("dev")
    else:
        graph.optimize()
    assert not has_lock(graph)


@pytest.mark.parametrize("point", ["schema_apply.locked", "schema_apply.published"])
def test_an_apply_that_fails_takes_its_lock_away(place: Place, point: str) -> None:
    graph = place.init()
    failpoints.arm(point)
    with pytest.raises(failpoints.FailpointError):
        graph.apply_schema(WIDER)
    failpoints.disarm()
    assert not has_lock(graph)
    fresh = place.open()
    assert (fresh.schema_source() == WIDER) is (point == "schema_apply.published")
    fresh.apply_schema(WIDER)
    assert fresh.schema_source() == WIDER


@pytest.mark.parametrize("dies_again", [False, True])
def test_the_audit_of_an_apply_that_was_taken_back_has_the_names_that_types_keep(
    place: Place, dies_again: bool
) -> None:
    graph = place.init()
    add(graph, "ann")
    published = graph.snapshot().entries[PERSON].table_version
    failpoints.arm("write.after_first_table")
    with pytest.raises(failpoints.FailpointError):
        graph.apply_schema(RENAMED)
    failpoints.disarm()
    if dies_again:
        failpoints.arm("recovery.record_audit")
        with pytest.raises(failpoints.FailpointError):
            place.open()
        failpoints.disarm()
    (row,) = place.open().recovery_list()
    left = {outcome.table_key: outcome.to_version for outcome in row.per_table_outcomes}
    assert left == {PERSON: published, "node:Extra": 0}
    assert place.open().schema_source() == SCHEMA


def test_schema_files_follow_and_an_outdated_file_is_not_taken_for_an_edited_one(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    graph = place.init()
    failpoints.arm("schema_apply.published")
    with pytest.raises(failpoints.FailpointError):
        graph.apply_schema(WIDER)
    root = Path(place.uri)
    assert (root / "_schema.pg").read_text() == SCHEMA
    place.open()
    assert (root / "_schema.pg").read_text() == WIDER
    assert not list(root.glob("*.rejected"))
    assert "edited by hand" not in caplog.text
    (root / "_schema.pg").write_text("node Mine { a: String }")
    place.open()
    assert "edited by hand" in caplog.text
    assert (root / "_schema.pg").read_text() == WIDER


# -- beside other writers --------------------------------------------------------------------------


def test_a_write_that_was_prepared_before_an_apply_never_lands_under_the_old_schema(
    place: Place,
) -> None:
    graph = place.init()
    add(graph, "ann")
    other = place.open()

    def once() -> None:
        failpoints.disarm()
        _apply(other)

    failpoints.arm("write.post_stage", once)
    with pytest.raises(SchemaMovedError):
        graph.mutate('query q() { update Person set { age: 3 } where name = "ann" }')
    failpoints.arm("write.post_stage", lambda: (failpoints.disarm(), other.apply_schema(SCHEMA)))
    graph.mutate('query q() { insert Person { name: "bob" } }')
    assert ids(graph.snapshot()) == ["ann", "bob"], "an insert is prepared again"
    assert graph.snapshot().open(PERSON).schema.names == ["id", "age", "name"]


def _apply(graph: Graph) -> None:
    assert graph.apply_schema(WIDER).applied


def race(place: Place, rounds: int) -> None:
    """Let one thread write people while another changes their type back and forth."""
    graph = place.init()
    written: list[str] = []
    stop = threading.Event()
    problems: list[Exception] = []

    def write() -> None:
        try:
            handle = place.open()
            number = 0
            while not stop.is_set():
                number += 1
                name = f"p{number}"
                try:
                    handle.load(
                        b'{"type":"Person","data":{"name":"%s"}}\n' % name.encode(), mode="append"
                    )
                except ConflictError:
                    continue
                written.append(name)
        except Exception as error:  # noqa: BLE001 the main thread reports it
            problems.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(20 * rounds):
            # On a busy machine the writer may need more time for its first lock.
            if number >= rounds and written:
                break
            graph.apply_schema(WIDER if number % 2 == 0 else SCHEMA)
            snapshot = graph.snapshot()
            expected = [f.name for f in graph.catalog().node_types["Person"].arrow_schema]
            assert snapshot.open(PERSON).schema.names == expected
    finally:
        stop.set()
        writer.join()
    assert problems == []
    fresh = place.open()
    assert ids(fresh.snapshot()) == sorted(written)
    assert written, "the writer never had a lock"


def test_writes_and_applies_side_by_side_lose_nothing(place: Place) -> None:
    race(place, 20)


@pytest.mark.slow
def test_writes_and_applies_side_by_side_lose_nothing_for_long(place: Place) -> None:
    race(place, 200)


def test_renaming_keeps_rows_that_are_written_meanwhile_out_of_the_old_name(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    renamed = SCHEMA.replace("node Person {", 'node Human @rename_from("Person") {')
    renamed = renamed.replace("Person -> Person", "Human -> Human")
    graph.apply_schema(renamed)
    with pytest.raises(OmnigraphError):
        graph.load(b'{"type":"Person","data":{"name":"x"}}\n', mode="append")
    graph.load(b'{"type":"Human","data":{"name":"bob"}}\n', mode="append")
    assert ids(graph.snapshot(), "node:Human") == ["ann", "bob"]
    assert sorted(graph.snapshot().entries) == [KNOWS, CITY, "node:Human"]


def test_rewritten_rows_stream_in_batches(place: Place) -> None:
    graph = place.init()
    names = [f"p{number:05}" for number in range(20_000)]
    rows = pa.table({"name": names, "age": pa.array(range(len(names)), pa.int32())})
    graph.load_tables(nodes={"Person": rows}, mode="append")
    graph.apply_schema(SCHEMA.replace("age: I32?", "years: I64? @rename_from(age)", 1))
    stored = graph.snapshot().open(PERSON).scan(ScanRequest(columns=("id", "years"))).read_all()
    assert stored.sort_by("id")["years"].to_pylist() == list(range(len(names)))
