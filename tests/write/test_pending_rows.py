"""The accumulator of a mutation alone: what it reads, what it remembers, what it hands on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from omnigraph.graph import Graph
from omnigraph.manifest import Snapshot
from omnigraph.query import MutationPlan, compile_query, parse_queries
from omnigraph.query.bindings import no_bindings
from omnigraph.store.datasets import DatasetStore
from omnigraph.write.mutate.pending_rows import PendingChanges
from omnigraph.write.mutate.statements import StatementRunner
from omnigraph.write.stage.delta import TableDelta
from support.clocks import ManualClock
from support.entities import store_records
from support.places import Place

SCHEMA = """
node Crew { tag: String @key   rank: I32? }
node Log { text: String }
edge Mentors: Crew -> Crew
"""
RECORDS = """\
{"type": "Crew", "data": {"tag": "ann", "rank": 5}}
{"type": "Crew", "data": {"tag": "bo"}}
{"edge": "Mentors", "from": "ann", "to": "bo"}
"""


class Closed:
    """A store that nobody may look into."""

    def open(self, location: str, **_: object) -> None:
        raise AssertionError(f"{location} was opened")


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    graph: Graph = Place(str(tmp_path / "graph")).init(SCHEMA)
    store_records(graph, RECORDS)
    return graph.snapshot()


def closed(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, datasets=cast("DatasetStore", Closed()))


def run(snapshot: Snapshot, statements: str) -> PendingChanges:
    catalog = snapshot.catalog
    file = parse_queries(f"query q() {{ {statements} }}")
    plan = compile_query(file.queries[0], catalog, file.source)
    assert isinstance(plan, MutationPlan)
    staging = PendingChanges(snapshot, catalog)
    runner = StatementRunner(staging, no_bindings(0), ManualClock())
    for number, statement in enumerate(plan.statements, start=1):
        runner.run(statement, number)
    return staging


def only(staging: PendingChanges) -> TableDelta:
    (delta,) = staging.delta().tables.values()
    return delta


def texts(values: Iterable[object]) -> list[str]:
    return sorted(str(value) for value in values)


def test_plain_inserts_look_into_no_table(snapshot: Snapshot) -> None:
    staging = run(
        closed(snapshot),
        'insert Crew { tag: "ann" } insert Log { text: "x" } insert Mentors { from: "a", to: "b" }',
    )
    assert sorted(staging.delta().tables) == ["edge:Mentors", "node:Crew", "node:Log"]
    assert staging.decisive_entries() == {}


def test_an_empty_table_is_not_opened(snapshot: Snapshot) -> None:
    staging = run(closed(snapshot), 'delete Log where text = "x"')
    assert staging.delta().is_empty
    assert list(staging.decisive_entries()) == ["node:Log"]


def test_the_edges_of_a_deleted_node_decide_nothing(snapshot: Snapshot) -> None:
    staging = run(snapshot, 'delete Crew where tag = "ann"')
    assert list(staging.decisive_entries()) == ["node:Crew"]
    assert sorted(staging.delta().tables) == ["edge:Mentors", "node:Crew"]


def test_ids_are_known_to_be_new_only_when_the_query_made_all_of_them(snapshot: Snapshot) -> None:
    assert only(run(snapshot, 'insert Log { text: "a" } insert Log { text: "b" }')).ids_are_new
    assert not only(run(snapshot, 'insert Crew { tag: "x" }')).ids_are_new
    assert not only(run(snapshot, 'upsert Crew { tag: "ann", rank: 1 }')).ids_are_new


def test_a_delta_names_the_statement_that_wrote_a_row_last(snapshot: Snapshot) -> None:
    delta = only(
        run(
            snapshot,
            'insert Crew { tag: "x" } insert Crew { tag: "y" } insert Crew { tag: "x", rank: 1 }'
            ' update Crew set { rank: 2 } where tag = "y"',
        )
    )
    assert delta.positions is not None
    rows = zip(delta.rows["id"].to_pylist(), delta.positions.to_pylist(), strict=True)
    assert dict(rows) == {"x": 3, "y": 4}


def test_a_row_deleted_and_written_again_is_only_written(snapshot: Snapshot) -> None:
    staging = run(snapshot, 'delete Crew where tag = "bo" insert Crew { tag: "bo", rank: 1 }')
    crew = staging.delta().tables["node:Crew"]
    assert (texts(crew.rows["id"]), len(crew.deleted)) == (["bo"], 0)
    mentors = staging.delta().tables["edge:Mentors"]
    assert (mentors.rows.num_rows, len(mentors.deleted)) == (0, 1)
