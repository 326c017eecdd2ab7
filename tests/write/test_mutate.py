"""Mutations as a whole: conditional writes, lost races, branches, results."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.errors import ConflictError, InvalidInputError, OmnigraphError
from omnigraph.graph import Graph, InvalidTextError, OpenMode, ReadOnlyGraphError
from omnigraph.manifest import CommitDraft, Requirements, Updates
from omnigraph.manifest.errors import (
    BranchNotFoundError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    SchemaMovedError,
)
from omnigraph.manifest.layout import MAIN_INCARNATION
from omnigraph.manifest.locks.branch_lock import BranchLockTimeoutError
from omnigraph.names import BranchName, RetriesError
from omnigraph.query.params import ParamsError
from omnigraph.query.select import QueryKindError, QuerySelectionError
from omnigraph.store.durability import Durability
from omnigraph.store.records import DatasetVersion
from omnigraph.write.commit.attempts import OPTIMISTIC_ATTEMPTS_MAX
from omnigraph.write.mutate.predicates import VALUES_PUSHED_MAX
from omnigraph.write.rules.violations import CreateConflictError, ValidationError
from support.clocks import START_US, ManualClock
from support.entities import entities, store_records
from support.places import Place, repository_of
from support.s3 import serve_s3

pytestmark = pytest.mark.usefixtures("disarmed")

SCHEMA = """
node Crew { tag: String @key   rank: I32?   seen: DateTime? }
node Ship { hull: String @key }
node Log { text: String }
edge Mentors: Crew -> Crew { since: Date? }
edge ServesOn: Crew -> Ship
"""
NOTHING_ELSE = {"updated": 0, "replaced": 0, "deleted": 0, "unchanged": 0}
RECORDS = """\
{"type": "Crew", "data": {"tag": "ann", "rank": 5}}
{"type": "Crew", "data": {"tag": "bo", "rank": 3}}
{"type": "Ship", "data": {"hull": "argo"}}
{"edge": "Mentors", "from": "ann", "to": "bo"}
"""


@pytest.fixture
def graph(place: Place) -> Graph:
    graph = place.init(SCHEMA)
    store_records(graph, RECORDS)
    return graph


def statement(text: str) -> str:
    return f"query q() {{ {text} }}"


def before_commit(*acts: Callable[[], object]) -> list[int]:
    """Run one act between preparation and commit of each next attempt; return a live count."""
    left, attempts = list(acts), [0]

    def act() -> None:
        attempts[0] += 1
        if left:
            current = left.pop(0)
            failpoints.disarm()
            current()
            failpoints.arm("write.post_stage", act)

    failpoints.arm("write.post_stage", act)
    return attempts


def maintenance(graph: Graph, table_key: str) -> None:
    """Publish a new version of a table that changes no content."""
    repository = repository_of(graph)
    entry = graph.snapshot().entry(table_key)
    base = DatasetVersion(entry.location, entry.table_branch, entry.table_version)
    datasets = repository.store.datasets
    staged = datasets.stage_metadata(base, schema_metadata={"tidied": repository.clock.ulid()})
    landed = datasets.commit_staged(staged)
    repository.publisher.publish(
        MAIN_INCARNATION,
        draft=CommitDraft(repository.clock.ulid(), "optimize", None, repository.clock.now_us()),
        requirements=Requirements(written={table_key: entry}),
        updates=Updates(entries=(replace(entry, table_version=landed.version),)),
    )


# -- results and requests --------------------------------------------------------------------------


def test_the_result_is_the_envelope_of_the_language(graph: Graph) -> None:
    parent = graph.snapshot().commit_id
    text = "query add($t: String) { insert Crew { tag: $t } insert Mentors { from: $t, to: $t } }"
    result = graph.mutate(text, params={"t": "eve"}, actor_id="me")
    commit = graph.list_commits(limit=1)[0]
    assert result.to_json() == {
        "branch": "main",
        "query_name": "add",
        "affected_nodes": 1,
        "affected_edges": 1,
        "actor_id": "me",
        "commit": {
            "graph_commit_id": commit.graph_commit_id,
            "graph_branch": None,
            "graph_manifest_version": graph.snapshot().manifest_version,
            "parent_commit_id": parent,
            "merged_parent_commit_id": None,
            "actor_id": "me",
            "created_at": commit.created_at,
        },
        "counts": [
            {"entity_kind": "node", "type_name": "Crew", "inserted": 1, **NOTHING_ELSE},
            {"entity_kind": "edge", "type_name": "Mentors", "inserted": 1, **NOTHING_ELSE},
        ],
        "durability": "process",
    }
    assert commit.operation == "mutation"


def test_the_commit_keeps_message_and_properties(graph: Graph) -> None:
    text = statement('update Crew set { rank: 7 } where tag = "ann"')
    graph.mutate(text, message="promoted", properties={"ticket": "C-7"})
    commit = graph.list_commits(limit=1)[0]
    assert (commit.message, commit.properties) == ("promoted", {"ticket": "C-7"})
    with pytest.raises(InvalidTextError):
        graph.mutate(text, properties={"": "x"})


def test_a_parameter_that_is_not_declared_is_refused(graph: Graph) -> None:
    text = 'query q($rank: I32?) { insert Crew { tag: "eve", rank: $rank } }'
    with pytest.raises(ParamsError, match="declares no such parameter") as caught:
        graph.mutate(text, params={"rnak": 3})
    assert caught.value.hint == "did you mean 'rank'?"


def test_a_created_key_names_the_commit_that_wrote_it(graph: Graph) -> None:
    graph.mutate(statement('insert Crew { tag: "eve" }'))
    inserted = graph.head_commit_id_for_branch()
    graph.mutate(statement('update Crew set { rank: 1 } where tag = "eve"'))
    updated = graph.head_commit_id_for_branch()
    graph.mutate(statement('insert Ship { hull: "brig" } insert Crew { tag: "fay" }'))
    graph.branch_create("draft")
    for branch, tag, commit in (("main", "eve", updated), ("draft", "eve", updated)):
        with pytest.raises(CreateConflictError) as caught:
            graph.mutate(statement(f'create Crew {{ tag: "{tag}" }}'), branch=branch)
        assert caught.value.key_conflict["graph_commit_id"] == commit != inserted
    graph.mutate(statement('update Crew set { rank: 2 } where tag = "fay"'), branch="draft")
    with pytest.raises(CreateConflictError) as caught:
        graph.mutate(statement('create Crew { tag: "fay" }'), branch="draft")
    assert caught.value.graph_commit_id == graph.head_commit_id_for_branch("draft")


def test_a_created_key_names_no_commit_of_maintenance(graph: Graph) -> None:
    head = graph.head_commit_id_for_branch()
    graph.mutate(statement('insert Crew { tag: "eve" }'))
    inserted = graph.head_commit_id_for_branch()
    graph.optimize()
    with pytest.raises(CreateConflictError) as caught:
        graph.mutate(statement('create Crew { tag: "eve" }'))
    assert caught.value.graph_commit_id in (None, inserted)
    assert head != inserted


def test_a_create_that_loses_to_the_same_key_is_a_conflict(graph: Graph, place: Place) -> None:
    other = place.open()
    before_commit(lambda: other.mutate(statement('insert Crew { tag: "eve", rank: 1 }')))
    with pytest.raises(CreateConflictError):
        graph.mutate(statement('create Crew { tag: "eve", rank: 2 }'))
    assert "Crew eve rank=1" in entities(graph)


@pytest.mark.parametrize("durability", ["full", "process"])
def test_results_say_how_durable_a_write_is(tmp_path: Path, durability: Durability) -> None:
    graph = Graph.init(tmp_path / "graph", SCHEMA, durability=durability)
    result = graph.mutate('query q() { insert Ship { hull: "argo" } }')
    assert result.durability == durability
    assert result.to_json().get("durability", "full") == durability
    assert graph.load(RECORDS.encode(), mode="merge").durability == durability


def test_the_name_picks_one_of_several_queries(graph: Graph) -> None:
    text = statement('insert Ship { hull: "a" }') + ' query r() { insert Ship { hull: "b" } }'
    assert graph.mutate(text, "r").query_name == "r"
    assert "Ship b" in entities(graph)
    assert "Ship a" not in entities(graph)
    with pytest.raises(QuerySelectionError, match="2 queries"):
        graph.mutate(text)
    with pytest.raises(QuerySelectionError, match="query 'none' not found"):
        graph.mutate(text, "none")


def test_a_query_with_a_mistake_does_not_stop_another_one_of_its_text(graph: Graph) -> None:
    text = statement('insert Ship { hull: "a" }') + ' query r() { insert Boat { hull: "b" } }'
    assert graph.mutate(text, "q").affected_nodes == 1


def test_a_read_is_refused_before_its_parameters_are_looked_at(graph: Graph) -> None:
    with pytest.raises(QueryKindError, match="use omnigraph query q"):
        graph.mutate("query q($t: String) { match { $c: Crew { tag: $t } } return { $c } }")


def test_a_branch_is_written_without_touching_main(graph: Graph) -> None:
    graph.branch_create("draft")
    before = entities(graph)
    result = graph.mutate(statement('delete Crew where tag = "ann"'), branch="draft")
    assert (result.branch, result.affected_nodes, result.affected_edges) == ("draft", 1, 1)
    assert result.commit is not None
    assert result.commit.graph_branch == "draft"
    assert entities(graph) == before
    graph.sync_branch("draft")
    assert entities(graph) == ["Crew bo rank=3", "Ship argo"]
    graph.mutate(statement('update Crew set { rank: 1 } where tag = "bo"'))
    assert entities(graph) == ["Crew bo rank=1", "Ship argo"]


def test_an_unknown_branch_is_refused(graph: Graph) -> None:
    with pytest.raises(BranchNotFoundError, match="branch 'nowhere' not found"):
        graph.mutate(statement('insert Ship { hull: "a" }'), branch="nowhere")


def test_a_graph_that_is_open_for_reading_refuses(graph: Graph, place: Place) -> None:
    reader = place.open(mode=OpenMode.READ_ONLY)
    with pytest.raises(ReadOnlyGraphError, match="mutate"):
        reader.mutate(statement('insert Ship { hull: "a" }'))


def test_a_failed_query_leaves_nothing_and_the_next_one_works(graph: Graph) -> None:
    before, head = entities(graph), graph.snapshot().commit_id
    with pytest.raises(ValidationError, match="not found in Ship"):
        graph.mutate(
            statement('delete Crew where tag = "bo" insert ServesOn { from: "ann", to: "x" }')
        )
    assert (entities(graph), graph.snapshot().commit_id) == (before, head)
    assert graph.mutate(statement('delete Crew where tag = "bo"')).affected_edges == 1


def test_a_value_that_cannot_be_stored_has_its_facts_in_the_details(graph: Graph) -> None:
    text = "query q($n: String?) { insert Log { text: $n } }"
    with pytest.raises(InvalidInputError) as caught:
        graph.mutate(text, params={"n": None})
    assert caught.value.details == {
        "statement": 1,
        "type": "Log",
        "property": "text",
        "problem": "non-nullable property 'text' has null or invalid values",
    }


def test_more_rows_than_a_filter_names_are_deleted_with_their_edges(place: Place) -> None:
    count = VALUES_PUSHED_MAX + 500
    graph = place.init(SCHEMA)
    people = [{"type": "Crew", "data": {"tag": f"c{n}", "rank": n % 10}} for n in range(count)]
    edges = [
        {"edge": "Mentors", "from": f"c{n}", "to": f"c{(n + 5) % count}"} for n in range(count)
    ]
    store_records(graph, "\n".join(json.dumps(record) for record in people + edges))
    result = graph.mutate(
        statement(
            "update Crew set { rank: 100 } where rank >= 0"
            ' insert Mentors { from: "c9", to: "c1" }'
            ' delete Crew where tag != "c9" and tag not in ["c4", "c14"]'
        )
    )
    gone = count - 3
    assert result.affected_nodes == count + gone
    assert result.affected_edges == 1 + count - 1
    assert entities(graph) == [
        "Crew c14 rank=100",
        "Crew c4 rank=100",
        "Crew c9 rank=100",
        "Mentors c4->c9",
        "Mentors c9->c14",
    ]


# -- conditional writes ----------------------------------------------------------------------------


def test_the_expected_head_lets_the_write_through(graph: Graph) -> None:
    head = graph.snapshot().commit_id
    text = statement('update Crew set { rank: 1 } where tag = "ann"')
    assert graph.mutate(text, expected_head=head).commit is not None
    with pytest.raises(PreconditionFailedError) as caught:
        graph.mutate(text, expected_head=head)
    assert (caught.value.expected, caught.value.actual) == (head, graph.snapshot().commit_id)


def test_maintenance_does_not_move_the_expected_head(graph: Graph) -> None:
    head = graph.snapshot().commit_id
    maintenance(graph, "node:Crew")
    text = statement('update Crew set { rank: 1 } where tag = "ann"')
    assert graph.mutate(text, expected_head=head).affected_nodes == 1


def test_a_head_that_does_not_hold_fails_even_when_nothing_matches(graph: Graph) -> None:
    with pytest.raises(PreconditionFailedError):
        graph.mutate(statement('delete Crew where tag = "nobody"'), expected_head="01J")


def test_a_conditional_write_is_never_retried(graph: Graph, place: Place) -> None:
    head = graph.snapshot().commit_id
    other = place.open()
    attempts = before_commit(lambda: other.mutate(statement('insert Log { text: "first" }')))
    with pytest.raises(PreconditionFailedError):
        graph.mutate(statement('insert Ship { hull: "a" }'), expected_head=head)
    assert attempts == [1]
    assert "Ship a" not in entities(graph)


# -- lost races ------------------------------------------------------------------------------------


def test_an_insert_that_loses_is_prepared_again(graph: Graph, place: Place) -> None:
    other = place.open()
    text = 'insert Crew { tag: "eve", seen: now() } upsert Crew { tag: "ann", seen: now() }'
    attempts = before_commit(
        lambda: other.mutate(statement('update Crew set { rank: 9 } where tag = "ann"')),
        lambda: other.mutate(statement('insert Crew { tag: "fay" }')),
    )
    result = graph.mutate(statement(text))
    assert attempts == [3]
    assert result.commit is not None
    assert [line.split()[1] for line in entities(graph) if line.startswith("Crew")] == [
        "ann",
        "bo",
        "eve",
        "fay",
    ]
    assert any(line.startswith("Crew ann rank=9 seen=") for line in entities(graph))


def test_now_is_one_moment_across_attempts(place: Place) -> None:
    clock = ManualClock()
    graph = place.init(SCHEMA, clock=clock)
    other = place.open()

    def later() -> None:
        clock.advance(100)
        other.mutate(statement('insert Crew { tag: "fay" }'))

    before_commit(later)
    graph.mutate(statement('insert Crew { tag: "eve", seen: now() }'))
    assert "Crew eve seen=2025-06-15T15:06:40.000Z" in entities(graph)
    assert START_US == 1_750_000_000_000_000


def test_an_insert_that_always_loses_is_prepared_under_the_lock(graph: Graph, place: Place) -> None:
    other = place.open()
    names = itertools.count()

    def overtake() -> None:
        other.mutate(statement(f'insert Crew {{ tag: "x{next(names)}" }}'))

    def is_held() -> None:
        with pytest.raises(BranchLockTimeoutError):
            repository_of(other).branch_locks.take(
                BranchName("main"), operation_id="rival", wait_max_s=0.05
            ).__enter__()

    attempts = before_commit(*[overtake] * OPTIMISTIC_ATTEMPTS_MAX, is_held)
    result = graph.mutate(statement('insert Crew { tag: "eve" }'))
    assert result.commit is not None
    assert attempts == [OPTIMISTIC_ATTEMPTS_MAX + 1]
    assert "Crew eve" in entities(graph)


@pytest.mark.parametrize(
    "text",
    [
        'update Crew set { rank: 1 } where tag = "ann"',
        'delete Crew where tag = "ann"',
        'insert Crew { tag: "eve" } delete Crew where tag = "ann"',
    ],
)
def test_an_update_or_delete_that_loses_is_handed_back(
    graph: Graph, place: Place, text: str
) -> None:
    other = place.open()
    attempts = before_commit(
        lambda: other.mutate(statement('update Crew set { rank: 2 } where tag = "ann"'))
    )
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        graph.mutate(statement(text))
    assert attempts == [1]
    assert caught.value.table_key == "node:Crew"
    assert "Crew ann rank=2" in entities(graph)


def test_an_update_that_loses_runs_again_from_its_text_with_retries(
    graph: Graph, place: Place
) -> None:
    other = place.open()
    steal = 'update Crew set { rank: 9 } where tag = "bo"'
    attempts = before_commit(lambda: other.mutate(statement(steal)))
    done = graph.mutate(statement("update Crew set { seen: now() } where rank >= 5"), retries=1)
    assert attempts == [2]
    assert done.counts[0].updated == 2, "the second run has seen what the other one wrote"


def test_the_last_retry_holds_the_lock_of_the_branch(graph: Graph, place: Place) -> None:
    other = place.open()
    steal = statement('update Crew set { rank: 9 } where tag = "ann"')
    attempts = before_commit(lambda: other.mutate(steal), lambda: other.mutate(steal))
    graph.mutate(statement('update Crew set { rank: 1 } where tag = "ann"'), retries=2)
    assert attempts == [3]
    assert "Crew ann rank=1" in entities(graph)


def test_racing_updates_all_land_with_retries(graph: Graph, place: Place) -> None:
    def work(number: int) -> None:
        text = 'query q($rank: I32) { update Crew set { rank: $rank } where tag = "ann" }'
        place.open().mutate(text, params={"rank": number}, retries=5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
    assert len(graph.list_commits()) == 2 + 8


@pytest.mark.parametrize("retries", [-1, 1001, True, "3"])
def test_a_number_of_retries_that_is_none_is_refused(graph: Graph, retries: int) -> None:
    with pytest.raises(RetriesError, match="is not a number of times"):
        graph.mutate(statement('delete Crew where tag = "ann"'), retries=retries)


def test_maintenance_makes_everybody_prepare_again(graph: Graph) -> None:
    attempts = before_commit(lambda: maintenance(graph, "node:Crew"))
    result = graph.mutate(statement('update Crew set { rank: 1 } where tag = "ann"'))
    assert attempts == [2]
    assert result.affected_nodes == 1
    assert "Crew ann rank=1" in entities(graph)


def test_maintenance_of_a_table_does_not_hide_a_change_of_another(
    graph: Graph, place: Place
) -> None:
    other = place.open()

    def both() -> None:
        other.mutate(statement('insert Mentors { from: "bo", to: "ann" }'))
        maintenance(graph, "node:Crew")

    before_commit(both)
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        graph.mutate(
            statement('update Crew set { rank: 1 } where rank > 0 delete Mentors where to = "bo"')
        )
    assert caught.value.table_key == "edge:Mentors"
    assert "Crew ann rank=5" in entities(graph)


def test_a_table_in_which_nothing_matched_must_not_move(graph: Graph, place: Place) -> None:
    other = place.open()
    before_commit(lambda: other.mutate(statement('insert Ship { hull: "dhow" }')))
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        graph.mutate(statement('insert Log { text: "x" } delete Ship where hull = "dhow"'))
    assert caught.value.table_key == "node:Ship"


def test_a_schema_change_in_between_compiles_an_insert_again(graph: Graph, place: Place) -> None:
    other = place.open()
    wider = SCHEMA.replace("node Ship {", "node Ship { flag: String? ")
    before_commit(lambda: other.apply_schema(wider))
    assert graph.mutate(statement('insert Ship { hull: "dhow" }')).commit is not None
    assert "Ship dhow" in entities(graph)


def test_a_schema_change_in_between_hands_an_update_back(graph: Graph, place: Place) -> None:
    other = place.open()
    wider = SCHEMA.replace("node Ship {", "node Ship { flag: String? ")
    before_commit(lambda: other.apply_schema(wider))
    with pytest.raises(SchemaMovedError):
        graph.mutate(statement('update Crew set { rank: 1 } where tag = "ann"'))


# -- edges and their nodes -------------------------------------------------------------------------


def test_an_edge_cannot_overtake_the_delete_of_its_node(graph: Graph, place: Place) -> None:
    other = place.open()
    before_commit(lambda: other.mutate(statement('delete Ship where hull = "argo"')))
    with pytest.raises(ValidationError, match="dst 'argo' not found in Ship"):
        graph.mutate(statement('insert ServesOn { from: "ann", to: "argo" }'))
    assert "ServesOn ann->argo" not in entities(graph)


def test_a_delete_cannot_overtake_an_edge_to_its_node(graph: Graph, place: Place) -> None:
    other = place.open()
    before_commit(lambda: other.mutate(statement('insert ServesOn { from: "ann", to: "argo" }')))
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        graph.mutate(statement('delete Ship where hull = "argo"'))
    assert caught.value.table_key == "edge:ServesOn"
    assert {"Ship argo", "ServesOn ann->argo"} <= set(entities(graph))


def test_a_delete_is_not_disturbed_by_edges_of_other_nodes(graph: Graph, place: Place) -> None:
    graph.mutate(statement('insert Ship { hull: "dhow" }'))
    other = place.open()
    attempts = before_commit(
        lambda: other.mutate(statement('insert ServesOn { from: "ann", to: "dhow" }'))
    )
    assert graph.mutate(statement('delete Ship where hull = "argo"')).affected_nodes == 1
    assert attempts == [1]
    assert "ServesOn ann->dhow" in entities(graph)


def test_an_edge_is_not_disturbed_by_changes_of_other_nodes(graph: Graph, place: Place) -> None:
    other = place.open()
    attempts = before_commit(
        lambda: other.mutate(statement('update Crew set { rank: 1 } where tag = "bo"'))
    )
    assert graph.mutate(statement('insert ServesOn { from: "ann", to: "argo" }')).affected_edges
    assert attempts == [1]


@pytest.mark.parametrize("seed", range(6))
def test_threads_that_insert_and_delete_leave_no_dangling_edge(
    graph: Graph, place: Place, seed: int
) -> None:
    chance = random.Random(seed)
    start = threading.Barrier(4)
    texts = [
        [
            chance.choice(
                (
                    'insert ServesOn { from: "ann", to: "argo" }',
                    'delete Ship where hull = "argo"',
                    'insert Ship { hull: "argo" }',
                    'delete Crew where tag = "ann"',
                    'insert Crew { tag: "ann" } insert Mentors { from: "ann", to: "ann" }',
                )
            )
            for _ in range(4)
        ]
        for _ in range(4)
    ]

    def work(mine: list[str]) -> list[OmnigraphError]:
        own = place.open()
        start.wait()
        failures: list[OmnigraphError] = []
        for text in mine:
            try:
                own.mutate(statement(text))
            except (ConflictError, InvalidInputError) as error:
                failures.append(error)
        return failures

    with ThreadPoolExecutor(4) as pool:
        failures = [error for found in pool.map(work, texts) for error in found]
    assert all(isinstance(e, ExpectedVersionMismatchError | ValidationError) for e in failures)
    snapshot = graph.refresh()
    ids = {
        name: set(snapshot.open(f"node:{name}").scan().read_all()["id"].to_pylist())
        for name in ("Crew", "Ship")
    }
    for edge, source, target in (("Mentors", "Crew", "Crew"), ("ServesOn", "Crew", "Ship")):
        rows = snapshot.open(f"edge:{edge}").scan().read_all()
        assert set(rows["src"].to_pylist()) <= ids[source]
        assert set(rows["dst"].to_pylist()) <= ids[target]
        assert rows.num_rows == snapshot.entry(f"edge:{edge}").row_count
    parents = [commit.parent_commit_id for commit in graph.list_commits()]
    assert len(set(parents)) == len(parents)


def test_inserts_of_many_threads_all_land(graph: Graph, place: Place) -> None:
    def work(number: int) -> None:
        own = place.open()
        for lock in range(3):
            name = f"t{number}-{lock}"
            own.mutate(
                "query q($t: String) { insert Log { text: $t } insert Ship { hull: $t } }",
                params={"t": name},
            )

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    found = {line for line in entities(graph) if line.startswith(("Log", "Ship t"))}
    wanted = {f"t{number}-{lock}" for number in range(3) for lock in range(3)}
    assert found == {f"Log * text={n}" for n in wanted} | {f"Ship {n}" for n in wanted}


# -- object stores ---------------------------------------------------------------------------------


def test_mutations_work_on_an_object_store() -> None:
    with serve_s3() as s3:
        graph = Place(f"s3://{s3.bucket}/mutate/graph", s3.options).init(SCHEMA)
        graph.mutate(
            statement(
                'insert Crew { tag: "ann", rank: 5 } insert Crew { tag: "bo" }'
                ' insert Mentors { from: "ann", to: "bo" }'
            )
        )
        graph.mutate(statement("update Crew set { rank: 6 } where rank = 5"))
        assert entities(graph) == ["Crew ann rank=6", "Crew bo", "Mentors ann->bo"]
        result = graph.mutate(statement('delete Crew where tag = "bo"'))
        assert (result.affected_nodes, result.affected_edges) == (1, 1)
        assert entities(graph) == ["Crew ann rank=6"]
