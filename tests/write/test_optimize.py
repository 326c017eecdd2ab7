"""Optimize: one commit for all tables, nothing removed, nothing changed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import ConflictError
from omnigraph.graph import Graph, ReadTarget
from omnigraph.manifest.layout import COMMITS, MANIFEST
from omnigraph.recovery import failpoints
from omnigraph.store.records import ScanRequest
from omnigraph.write.strays import DriftNeedsRepairError
from support.places import CITY, PERSON, Place, add, ids, repository_of, with_shared_lineage
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


def test_a_commit_of_upkeep_does_not_break_an_expected_head(place: Place) -> None:
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
