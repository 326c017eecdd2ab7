"""Staging: one transaction per changed table, of the cheapest kind, and no head moves."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from omnigraph.store.records import OperationKind
from omnigraph.write.commit.job import TableWrite
from omnigraph.write.stage.delta import GraphDelta, TableDelta
from omnigraph.write.stage.stage_delta import PrestagedRows, prestage_new_rows, stage_delta
from support.places import CITY, PERSON, Place, add, repository_of
from support.writer import people

NOBODY = pa.array([], pa.utf8())


@pytest.fixture
def graph(local_place: Place) -> Graph:
    graph = local_place.init()
    add(graph, "a", "b", "c")
    return graph


def change(
    rows: pa.Table, deleted: tuple[str, ...] = (), *, ids_are_new: bool = False
) -> GraphDelta:
    table = TableDelta(PERSON, rows, pa.array(deleted, pa.utf8()), ids_are_new=ids_are_new)
    return GraphDelta({PERSON: table})


def staged(
    graph: Graph, delta: GraphDelta, kept: PrestagedRows | None = None
) -> tuple[TableWrite, ...]:
    snapshot = graph.snapshot()
    repository = repository_of(graph)
    heads = {key: entry.table_version for key, entry in snapshot.entries.items()}
    writes = stage_delta(
        delta,
        snapshot,
        snapshot.incarnation,
        repository,
        operation_id=repository.clock.ulid(),
        prestaged=kept,
    )
    for key, entry in graph.snapshot().entries.items():
        head = repository.store.datasets.head_version(entry.location, branch=entry.table_branch)
        assert head == heads[key], "a head has moved"
    return writes


@pytest.mark.parametrize(
    ("delta", "kind", "counts", "row_count"),
    [
        (change(people("d"), ids_are_new=True), OperationKind.APPEND, (1, 0, 0), 4),
        (change(people("d", "e")), OperationKind.APPEND, (2, 0, 0), 5),
        (change(people("a", "d")), OperationKind.UPDATE, (1, 1, 0), 4),
        (change(people("a", "b", "c")), OperationKind.UPDATE, (0, 3, 0), 3),
        (change(people("a", "d"), deleted=("b",)), OperationKind.UPDATE, (1, 1, 1), 3),
        (change(people("d"), deleted=("b", "ghost")), OperationKind.UPDATE, (1, 0, 1), 3),
        (change(people(), deleted=("a", "b", "c")), OperationKind.UPDATE, (0, 0, 3), 0),
    ],
)
def test_a_change_is_staged_as_the_cheapest_kind(
    graph: Graph,
    delta: GraphDelta,
    kind: OperationKind,
    counts: tuple[int, int, int],
    row_count: int,
) -> None:
    (write,) = staged(graph, delta)
    (transaction,) = write.staged
    found = transaction.counts
    assert transaction.kind is kind
    assert (found.inserted, found.updated, found.deleted) == counts
    assert write.row_count == row_count


def test_nothing_is_staged_where_nothing_changes(graph: Graph) -> None:
    assert staged(graph, change(people())) == ()
    assert staged(graph, change(people(), deleted=("ghost",))) == ()
    assert staged(graph, GraphDelta({})) == ()


def test_a_branch_forks_the_tables_that_it_writes_and_no_others(graph: Graph) -> None:
    graph.branch_create("draft")
    graph.sync_branch("draft")
    (write,) = staged(graph, change(people("a", "d")))
    assert write.base is not None
    assert write.base.is_fork
    repository = repository_of(graph)
    city = graph.snapshot().entry(CITY)
    assert repository.store.datasets.branch_names(city.location) == ()


def test_nodes_are_staged_before_edges_and_each_by_name(graph: Graph) -> None:
    both = {key: TableDelta(key, people("x"), NOBODY, ids_are_new=True) for key in (PERSON, CITY)}
    assert [write.table_key for write in staged(graph, GraphDelta(both))] == [CITY, PERSON]


def test_a_second_attempt_uses_the_rows_that_the_first_one_wrote(graph: Graph) -> None:
    repository = repository_of(graph)
    kept: PrestagedRows = {}
    files = []
    for name in ("y", "z"):
        snapshot = graph.snapshot()
        (write,) = stage_delta(
            change(people("d"), ids_are_new=True),
            snapshot,
            snapshot.incarnation,
            repository,
            operation_id=repository.clock.ulid(),
            prestaged=kept,
        )
        files.append(write.staged[0].files)
        assert write.staged[0].base.version == snapshot.entry(PERSON).table_version
        add(graph, name)
    assert files[0] == files[1]


def data_files(graph: Graph) -> set[Path]:
    return set(Path(graph.uri).glob("nodes/*/data/*"))


def test_rows_that_can_only_be_new_are_written_while_they_are_checked(graph: Graph) -> None:
    repository, snapshot = repository_of(graph), graph.snapshot()
    delta = change(people("d"), ids_are_new=True)
    before = data_files(graph)
    with prestage_new_rows(delta, snapshot, snapshot.incarnation, repository) as kept:
        assert not kept
    written = data_files(graph) - before
    assert len(written) == 1
    (write,) = staged(graph, delta, kept)
    assert data_files(graph) - before == written
    assert {Path(graph.uri) / file.path for file in write.staged[0].files} == written


def test_rows_that_do_not_pass_leave_no_file(graph: Graph) -> None:
    snapshot = graph.snapshot()
    before = data_files(graph)
    delta = change(people("d"), ids_are_new=True)
    with (
        pytest.raises(ZeroDivisionError),
        prestage_new_rows(delta, snapshot, snapshot.incarnation, repository_of(graph)),
    ):
        raise ZeroDivisionError
    assert data_files(graph) == before


@pytest.mark.parametrize(
    "delta",
    [
        change(people("a")),
        change(people("d"), deleted=("a",), ids_are_new=True),
        change(people(), ids_are_new=True),
    ],
)
def test_rows_that_may_be_stored_wait_for_the_look_up(graph: Graph, delta: GraphDelta) -> None:
    snapshot = graph.snapshot()
    before = data_files(graph)
    with prestage_new_rows(delta, snapshot, snapshot.incarnation, repository_of(graph)) as kept:
        pass
    assert not kept
    assert data_files(graph) == before


def test_a_guess_that_rows_are_new_is_taken_back_when_one_is_stored(graph: Graph) -> None:
    repository, snapshot = repository_of(graph), graph.snapshot()
    rows = people("a", "d")
    delta = GraphDelta({PERSON: TableDelta(PERSON, rows, NOBODY, is_insert=True)})
    before = data_files(graph)
    with prestage_new_rows(delta, snapshot, snapshot.incarnation, repository) as kept:
        pass
    assert len(data_files(graph) - before) == 1
    (write,) = staged(graph, delta, kept)
    assert not kept
    assert write.staged[0].counts.updated == 1
    named = {Path(graph.uri) / file.path for file in write.staged[0].files}
    assert data_files(graph) - before <= named


def test_a_table_that_must_be_forked_is_not_written_ahead(graph: Graph) -> None:
    graph.branch_create("side")
    graph.sync_branch("side")
    snapshot = graph.snapshot()
    before = set(Path(graph.uri).rglob("*"))
    delta = change(people("d"), ids_are_new=True)
    with prestage_new_rows(delta, snapshot, snapshot.incarnation, repository_of(graph)) as kept:
        pass
    assert not kept
    assert set(Path(graph.uri).rglob("*")) == before
