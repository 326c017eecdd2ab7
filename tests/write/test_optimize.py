"""Optimize: one commit for all tables, nothing removed, nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import failpoints
from omnigraph.errors import ConflictError
from omnigraph.graph import Graph, ReadTarget
from omnigraph.maintenance.optimize import MaintenanceReport
from omnigraph.maintenance.workers import LocalWorkers, MaintenanceWorkers, SegmentPlan
from omnigraph.manifest.layout import COMMITS, MAIN_INCARNATION, MANIFEST
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.records import (
    CompactionOptions,
    CompactionResult,
    CompactionTask,
    DatasetVersion,
    ScanRequest,
    WrittenIndexSegment,
)
from omnigraph.write.commit.late_commits import DriftNeedsRepairError
from support.places import (
    CITY,
    PERSON,
    Place,
    add,
    ids,
    repository_of,
    session_of,
    with_shared_lineage,
)
from support.writer import append, people

pytestmark = pytest.mark.usefixtures("disarmed")

BLOBS = "node Doc { code: String @key  body: Blob? }"
CONTENTS = [b"hello", None, b"", b"x" * 300_000, b"last"]


def fragments(graph: Graph, key: str = PERSON) -> int:
    return len(graph.snapshot().open(key).fragments())


def row_ids(graph: Graph) -> dict[str, int]:
    request = ScanRequest(columns=("id",), with_row_id=True)
    rows = graph.snapshot().open(PERSON).scan(request).read_all()
    return dict(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_all_tables_are_compacted_and_indexed_in_one_commit(place: Place) -> None:
    graph = place.init()
    for name in ("ann", "bob", "cas"):
        append(repository_of(graph), {PERSON: people(name), CITY: people(name)})
    commits = len(graph.list_commits())
    before, versions = row_ids(graph), graph.snapshot().manifest_version
    report = graph.optimize()
    assert report.commit is not None
    assert len(graph.list_commits()) == commits + 1
    assert (fragments(graph), fragments(graph, CITY)) == (1, 1)
    assert row_ids(graph) == before
    by_key = {table.table_key: table for table in report.tables}
    assert (by_key[PERSON].fragments_removed, by_key[PERSON].fragments_added) == (3, 1)
    assert by_key[PERSON].committed
    assert by_key["edge:Knows"].committed is False
    assert by_key[MANIFEST].committed
    for version in range(1, versions + 1):
        graph.snapshot_at_version(version).open(PERSON).count()
    assert set(by_key[PERSON].to_json()) == {
        "type_key",
        "fragments_removed",
        "fragments_added",
        "committed",
        "skipped",
        "published_dataset_version",
        "lance_head_version",
        "pending_indexes",
    }


def test_a_run_with_nothing_to_do_publishes_nothing(place: Place) -> None:
    graph = place.init()
    for name in ("ann", "bob"):
        add(graph, name)
    graph.ensure_indices()
    add(graph, "cas")
    graph.optimize()
    version = graph.snapshot().manifest_version
    report = graph.optimize()
    assert report.commit is None
    assert not any(table.committed for table in report.tables)
    assert graph.snapshot().manifest_version == version


def test_system_tables_are_compacted_too(place: Place) -> None:
    graph = place.init()
    for number in range(5):
        add(graph, f"p{number}")
    datasets = repository_of(graph).store.datasets
    assert len(datasets.open(COMMITS).fragments()) > 1
    graph.optimize()
    assert len(datasets.open(COMMITS).fragments()) == 1
    assert len(datasets.open(MANIFEST).fragments()) == 2, "the fence and the rest"
    recorded = datasets.open(COMMITS).scan().read_all()["graph_commit_id"].to_pylist()
    assert set(recorded) == {commit.graph_commit_id for commit in graph.list_commits()}


def test_a_commit_of_maintenance_does_not_break_an_expected_head(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    head = graph.head_commit_id_for_branch()
    graph.optimize()
    result = graph.mutate('query q() { insert Person { name: "bob" } }', expected_head=head)
    assert result.commit is not None
    assert ids(graph.snapshot()) == ["ann", "bob"]


def test_a_table_that_moves_meanwhile_is_prepared_again(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    add(graph, "bob")
    other = place.open()
    names = iter(["c1", "c2", "c3", "c4", "c5", "c6"])

    def move() -> None:
        add(other, next(names))

    failpoints.arm("write.post_stage", move)
    report = graph.optimize()
    assert report.commit is not None
    assert ids(graph.snapshot()) == ["ann", "bob", "c1", "c2", "c3", "c4"]
    datasets = repository_of(graph).store.datasets
    entry = graph.snapshot().entries[PERSON]
    assert datasets.head_version(entry.location) == entry.table_version


def _insert(other: Graph, name: str = "new") -> None:
    other.mutate(f'query q() {{ insert Person {{ name: "{name}", age: 9 }} }}')


def _delete(other: Graph) -> None:
    other.mutate('query q() { delete Person where name = "p1" }')


def _update(other: Graph) -> None:
    other.mutate('query q() { update Person set { age: 7 } where name = "p2" }')


def _index(other: Graph) -> None:
    other.ensure_indices()


def _optimize(other: Graph) -> None:
    other.optimize()


def _clean(other: Graph) -> None:
    other.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)


def _apply(other: Graph) -> None:
    other.apply_schema(SEARCHED.replace("age: I32?", "age: I32? @index  note: String?"))


SEARCHED = "node Person { name: String @key  age: I32? }\n"
MOVES: dict[str, tuple[Callable[[Graph], None], ...]] = {
    "append": (_insert,),
    "delete": (_delete,),
    "update": (_update,),
    "indexes": (_index,),
    "append and indexes": (_insert, _index),
    "update and indexes": (_update, _index),
    "delete and indexes": (_delete, _index),
    "optimize": (_optimize,),
    "append and optimize": (_insert, _optimize),
    "schema": (_apply,),
    "schema and append": (_apply, _insert),
    "cleanup": (_clean,),
    "append, optimize and cleanup": (_insert, _optimize, _clean),
}
RUNS: dict[str, Callable[[Graph, MaintenanceWorkers | None], MaintenanceReport]] = {
    "optimize": lambda graph, workers: session_of(graph).maintenance.optimize(workers),
    "compact_tail": lambda graph, _: session_of(graph).maintenance.compact_tail(
        MAIN_INCARNATION, {PERSON: CompactionOptions()}
    ),
    "compact_tail without indexes": lambda graph, _: session_of(graph).maintenance.compact_tail(
        MAIN_INCARNATION, {PERSON: CompactionOptions()}, with_indexes=False
    ),
    "ensure_indices": lambda graph, _: graph.ensure_indices(),
}


def half_covered(place: Place) -> Graph:
    """Make a graph of small fragments, of which the indexes cover the first half."""
    graph = place.init(SEARCHED)
    for number in range(4):
        _insert(graph, f"p{number}")
    graph.ensure_indices()
    for number in range(4, 8):
        _insert(graph, f"p{number}")
    return graph


def check_rows(graph: Graph, done: Sequence[Callable[[Graph], None]]) -> None:
    """Compare the rows, and what an index finds, with what the moves must have left."""
    expected = {f"p{number}": 9 for number in range(8)}
    if _insert in done:
        expected["new"] = 9
    if _delete in done:
        del expected["p1"]
    if _update in done:
        expected["p2"] = 7
    text = "query q() { match { $p: Person } return { $p.name, $p.age } }"
    rows = graph.query(text).to_pylist()
    assert {row["p.name"]: row["p.age"] for row in rows} == expected
    assert len(rows) == len(expected)
    one = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
    for name, age in expected.items():
        assert graph.query(one, params={"n": name}).to_pylist() == [{"p.age": age}]
    entry = graph.snapshot().entries[PERSON]
    datasets = repository_of(graph).store.datasets
    assert datasets.head_version(entry.location) == entry.table_version


@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("run", RUNS)
def test_maintenance_fits_whatever_another_process_does_before_it_commits(
    local_place: Place, run: str, moves: str
) -> None:
    graph = half_covered(local_place)
    other, waiting = local_place.open(), list(MOVES[moves])

    def move() -> None:
        failpoints.disarm()
        for act in waiting:
            act(other)

    failpoints.arm("write.post_stage", move)
    RUNS[run](graph, None)
    check_rows(graph, MOVES[moves])
    # Fragments that an index covers in part are covered by one run, and rewritten by the next.
    for _ in range(2):
        assert graph.optimize().tables[0].skipped is None
    assert fragments(graph) == 1
    check_rows(graph, MOVES[moves])


class Overtaken(LocalWorkers):
    """Works here, after another process has done something before one of the steps."""

    def __init__(self, datasets: DatasetStore, step: str, moves: Callable[[], None]) -> None:
        super().__init__(datasets)
        self._pending = {step: moves}

    def compact(self, tasks: Sequence[CompactionTask]) -> Sequence[CompactionResult]:
        self._pending.pop("compact", _nothing)()
        return super().compact(tasks)

    def index(
        self, at: DatasetVersion, plans: Sequence[SegmentPlan]
    ) -> Sequence[WrittenIndexSegment]:
        self._pending.pop("index", _nothing)()
        return super().index(at, plans)


def _nothing() -> None:
    pass


@pytest.mark.parametrize("step", ["index", "compact"])
@pytest.mark.parametrize("moves", MOVES)
def test_optimize_fits_whatever_another_process_does_while_it_prepares(
    local_place: Place, moves: str, step: str
) -> None:
    half_covered(local_place)
    graph, other = local_place.open(), local_place.open()
    done: list[Callable[[Graph], None]] = []

    def move() -> None:
        for act in MOVES[moves]:
            act(other)
            done.append(act)

    RUNS["optimize"](graph, Overtaken(repository_of(graph).store.datasets, step, move))
    assert done
    check_rows(graph, done)
    graph.optimize()
    assert fragments(graph) == 1
    check_rows(graph, done)


def test_a_drifted_table_is_skipped_and_reported(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    add(graph, "bob")
    entry = graph.snapshot().entries[PERSON]
    datasets = repository_of(graph).store.datasets
    at = datasets.open(entry.location).at
    datasets.commit_staged(datasets.stage_append(at, people("outsider")))
    append(repository_of(graph), {CITY: people("x")})
    append(repository_of(graph), {CITY: people("y")})
    report = graph.optimize()
    by_key = {table.table_key: table for table in report.tables}
    assert by_key[PERSON].skipped == "drift_needs_repair"
    assert by_key[PERSON].head_version == entry.table_version + 1
    assert by_key[CITY].committed
    assert ids(graph.snapshot()) == ["ann", "bob"]


def test_building_indexes_refuses_a_table_that_somebody_else_has_moved(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    entry = graph.snapshot().entries[PERSON]
    datasets = repository_of(graph).store.datasets
    at = datasets.open(entry.location).at
    datasets.commit_staged(datasets.stage_append(at, people("outsider")))
    with pytest.raises(DriftNeedsRepairError) as caught:
        graph.ensure_indices()
    assert "omnigraph repair" in str(caught.value.hint)
    graph.repair(confirm=True, force=True)
    assert graph.ensure_indices().commit is not None


def test_a_table_that_another_branch_writes_on_has_not_drifted(place: Place) -> None:
    graph = with_shared_lineage(place)
    report = graph.ensure_indices("second")
    assert [(t.table_key, t.skipped, t.committed) for t in report.tables] == [(PERSON, None, True)]
    assert ids(graph.snapshot_of(ReadTarget.branch("second"))) == ["ann", "bob"]


def test_optimize_requires_a_clean_recovery_state(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    (Path(place.uri) / "__recovery").mkdir(exist_ok=True)
    (Path(place.uri) / "__recovery" / "01J00000000000000000000000.json").write_text("{")
    with pytest.raises(ConflictError, match="requires a clean recovery state"):
        graph.optimize()


def test_null_empty_and_full_blobs_survive(place: Place) -> None:
    graph = place.init(BLOBS)
    declared = graph.catalog().node_types["Doc"]
    for number, content in enumerate(CONTENTS):
        value = None if content is None else {"data": content, "uri": None}
        rows = pa.Table.from_pylist(
            [{"id": f"d{number}", "code": f"d{number}", "body": value}],
            schema=declared.arrow_schema,
        )
        append(repository_of(graph), {"node:Doc": rows})
    graph.optimize()
    handle = graph.snapshot().open("node:Doc")
    assert len(handle.fragments()) == 1
    rows = handle.scan(ScanRequest(blobs_as_bytes=True)).read_all().sort_by("id")
    assert rows["body"].to_pylist() == CONTENTS


def test_branches_keep_what_they_inherited(place: Place) -> None:
    graph = place.init()
    add(graph, "ann")
    add(graph, "bob")
    graph.branch_create("dev")
    graph.optimize()
    assert ids(graph.snapshot_of(ReadTarget.branch("dev"))) == ["ann", "bob"]
    add(graph, "cas", branch="dev")
    assert ids(graph.snapshot_of(ReadTarget.branch("dev"))) == ["ann", "bob", "cas"]
    assert ids(graph.snapshot()) == ["ann", "bob"]
