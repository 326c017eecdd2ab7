"""Schema apply on any branch: what it touches, what it leaves alone, and who waits for whom."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from omnigraph import failpoints
from omnigraph.errors import ConflictError, NotFoundError, OmnigraphError
from omnigraph.graph import Graph, OpenMode, ReadTarget
from omnigraph.manifest.errors import SchemaApplyInProgressError
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST, schema_mark
from omnigraph.manifest.publish import Updates
from omnigraph.manifest.requirements import Requirements
from omnigraph.manifest.rows import IDENTITY_COUNTER
from omnigraph.names import MAIN, BranchName, IllegalNameError
from omnigraph.schema import read_ir
from omnigraph.syntax import SourceError
from omnigraph.write.schema_apply import SchemaApplyLostError, SchemaApplyRunningError
from support.places import CITY, KNOWS, PERSON, SCHEMA, Place, ids, repository_of

pytestmark = pytest.mark.usefixtures("disarmed")

WIDER = SCHEMA.replace("age: I32?", "age: I32?\n    motto: String?", 1)
SLIM = SCHEMA.replace("    age: I32?\n", "", 1)
BARE = "node City {\n    name: String @key\n    age: I32?\n}\n"
NOTED = SCHEMA.replace("node City", 'node City @description("x")')


def load(graph: Graph, branch: str, *lines: str) -> None:
    graph.load("\n".join(lines).encode(), mode="append", branch=branch)


def person(name: str, **values: object) -> str:
    members = "".join(f', "{key}": "{value}"' for key, value in values.items())
    return f'{{"type": "Person", "data": {{"name": "{name}"{members}}}}}'


def known(name: str, other: str) -> str:
    return f'{{"edge": "Knows", "from": "{name}", "to": "{other}", "data": {{}}}}'


def columns(graph: Graph, branch: str, key: str = PERSON) -> list[str]:
    return list(graph.snapshot_of(ReadTarget.branch(branch)).open(key).schema.names)


def numbers(graph: Graph, branch: str) -> set[int]:
    ir = read_ir(graph.snapshot_of(ReadTarget.branch(branch)).schema.ir)
    properties = {prop.property_id for declared in ir.types() for prop in declared.properties}
    tables = {table.table_incarnation_id for table in ir.tables}
    return properties | tables | {declared.type_id for declared in ir.types()}


def has_mark(graph: Graph, branch: str) -> bool:
    branches = repository_of(graph).branches
    return branches.has_schema_lock(branches.resolve(BranchName(branch)))


# -- what an apply touches -------------------------------------------------------------------------


def test_an_apply_touches_its_branch_only(place: Place) -> None:
    graph = place.init()
    load(graph, MAIN, person("ann"))
    graph.branch_create("dev")
    main, files = graph.snapshot(), repository_of(graph).store.objects.get("_schema.pg").data
    result = graph.schema.apply(WIDER, branch="dev", actor_id="eva")
    assert (result.applied, result.branch) == (True, "dev")
    assert graph.schema.source(branch="dev") == WIDER
    assert graph.schema.source() == SCHEMA
    assert columns(graph, "dev") == ["id", "age", "motto", "name"]
    assert columns(graph, MAIN) == ["id", "age", "name"]
    assert graph.snapshot().entries == main.entries
    assert repository_of(graph).store.objects.get("_schema.pg").data == files
    head = graph.list_commits("dev")[0]
    assert (head.operation, head.actor_id, head.graph_branch) == ("schema_apply", "eva", "dev")
    load(graph, "dev", person("bob", motto="m"))
    load(graph, MAIN, person("cy"))
    fresh = place.open()
    assert ids(fresh.snapshot_of(ReadTarget.branch("dev"))) == ["ann", "bob"]
    assert ids(fresh.snapshot()) == ["ann", "cy"]


def test_main_changes_its_schema_while_branches_keep_theirs(place: Place) -> None:
    graph = place.init()
    load(graph, MAIN, person("ann"))
    graph.branch_create("dev")
    load(graph, "dev", person("bob"))
    graph.schema.apply(WIDER)
    assert (place_schema(place), graph.schema.source(branch="dev")) == (WIDER, SCHEMA)
    load(graph, "dev", person("cy"))
    load(graph, MAIN, person("dan", motto="m"))
    fresh = place.open()
    assert ids(fresh.snapshot_of(ReadTarget.branch("dev"))) == ["ann", "bob", "cy"]
    assert ids(fresh.snapshot()) == ["ann", "dan"]


def place_schema(place: Place) -> str:
    return place.repository().store.objects.get("_schema.pg").data.decode()


def test_a_handle_applies_to_the_branch_that_it_is_bound_to(local_place: Place) -> None:
    local_place.init().branch_create("dev")
    bound = local_place.open("dev")
    assert bound.schema.plan(WIDER).plan.steps
    assert bound.schema.apply(WIDER).branch == "dev"
    assert not bound.schema.plan(WIDER).plan.steps
    assert bound.schema.plan(WIDER, branch=MAIN).plan.steps
    assert local_place.open().schema.source() == SCHEMA


def test_a_metadata_only_change_forks_nothing(local_place: Place) -> None:
    graph = local_place.init()
    load(graph, MAIN, person("ann"))
    graph.branch_create("dev")
    graph.schema.apply(NOTED, branch="dev")
    main, dev = graph.snapshot(), graph.snapshot_of(ReadTarget.branch("dev"))
    assert dev.entries == main.entries


def test_only_inherited_tables_that_are_rewritten_are_forked(local_place: Place) -> None:
    graph = local_place.init()
    load(graph, MAIN, person("ann"))
    graph.branch_create("dev")
    graph.schema.apply(WIDER + "\nnode Town { code: String @key }", branch="dev")
    dev = graph.snapshot_of(ReadTarget.branch("dev"))
    incarnation = dev.incarnation.text
    assert dev.entries[PERSON].owner_branch == incarnation
    assert dev.entries["node:Town"].owner_branch == incarnation
    assert dev.entries[CITY] == graph.snapshot().entries[CITY]
    load(graph, "dev", '{"type": "Town", "data": {"code": "t"}}')
    again = graph.snapshot_of(ReadTarget.branch("dev")).entries["node:Town"]
    assert again.location == dev.entries["node:Town"].location, "its own table is not forked"
    assert again.table_branch is None


def test_numbers_are_unique_over_all_branches_living_and_dead(local_place: Place) -> None:
    graph = local_place.init()
    common = numbers(graph, MAIN)
    for name in ("a", "b", "c"):
        graph.branch_create(name)
    given: list[set[int]] = []
    for name, text in (("a", "x"), ("b", "y"), (MAIN, "z")):
        wider = SCHEMA.replace("age: I32?", f"age: I32?\n    {text}: String?", 1)
        graph.schema.apply(wider + f"\nnode New{text} {{ k: String @key }}", branch=name)
        given.append(numbers(graph, name) - common)
    graph.branch_delete("a")
    graph.schema.apply(WIDER, branch="c")
    given.append(numbers(graph, "c") - common)
    assert [len(each) for each in given] == [4, 4, 4, 1]
    assert len(set().union(*given)) == 13


def test_an_apply_that_adds_nothing_reserves_no_numbers(local_place: Place) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    before = graph.snapshot().manifest_version
    graph.schema.apply(NOTED, branch="dev")
    graph.schema.apply(SLIM, branch="dev")
    assert graph.snapshot().manifest_version == before
    reader = repository_of(graph).reader
    assert reader.latest(MAIN_INCARNATION).identity_counter == 0


def test_queries_run_on_the_schema_of_their_snapshot(local_place: Place) -> None:
    graph = local_place.init()
    load(graph, MAIN, person("ann"), person("bob"), known("ann", "bob"))
    graph.branch_create("dev")
    hop = "query q() { match { $a: Person $a knows $b } return { $a.name as a, $b.name as b } }"
    assert graph.query(hop, target=ReadTarget.branch("dev")).to_pylist() == [
        {"a": "ann", "b": "bob"}
    ]
    graph.schema.apply(WIDER, branch="dev")
    load(graph, "dev", person("cy", motto="m"), known("cy", "ann"))
    motto = "query q() { match { $a: Person } return { $a.motto as m } }"
    fresh = local_place.open()
    for handle in (graph, fresh):
        found = handle.query(hop, target=ReadTarget.branch("dev")).to_pylist()
        assert sorted((row["a"], row["b"]) for row in found) == [("ann", "bob"), ("cy", "ann")]
        assert handle.query(hop).to_pylist() == [{"a": "ann", "b": "bob"}]
        assert len(handle.query(motto, target=ReadTarget.branch("dev")).to_pylist()) == 3
        with pytest.raises(SourceError):
            handle.query(motto)


def test_tables_are_loaded_by_the_schema_of_their_branch(local_place: Place) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    graph.schema.apply(SCHEMA + "\nedge Likes: Person -> Person\n", branch="dev")
    load(graph, "dev", person("ann"))
    graph.load({"Likes": [{"from": "ann", "to": "ann"}]}, mode="append", branch="dev")
    assert len(ids(graph.snapshot_of(ReadTarget.branch("dev")), "edge:Likes")) == 1


def test_a_graph_that_counted_for_itself_before_goes_on_above_it(local_place: Place) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    graph.schema.apply(WIDER, branch="dev")
    repository = repository_of(graph)
    taken = numbers(graph, "dev") | numbers(graph, MAIN)
    repository.publisher.publish(
        MAIN_INCARNATION,
        draft=None,
        requirements=Requirements(),
        updates=Updates(removed=(IDENTITY_COUNTER,)),
    )
    assert repository.identities.reserve(1).start > max(taken)


# -- hard drops ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [SLIM, BARE])
def test_a_hard_drop_on_main_harms_no_branch(place: Place, text: str) -> None:
    graph = place.init()
    load(graph, MAIN, person("ann"), person("bob"), known("ann", "bob"))
    graph.branch_create("dev")
    load(graph, MAIN, person("cy"))
    result = graph.schema.apply(text, allow_data_loss=True)
    kept = {(k.table_key, k.branch) for k in result.kept_for}
    assert (PERSON, "dev") in kept
    assert result.warnings == ()
    fresh = place.open()
    dev = fresh.snapshot_of(ReadTarget.branch("dev"))
    assert ids(dev) == ["ann", "bob"]
    assert dev.open(PERSON).schema.names == ["id", "age", "name"]
    assert len(ids(dev, KNOWS)) == 1
    load(fresh, "dev", person("dan"))
    assert ids(fresh.snapshot_of(ReadTarget.branch("dev"))) == ["ann", "bob", "dan"]


@pytest.mark.parametrize("text", [SLIM, BARE])
def test_a_hard_drop_on_a_branch_harms_no_other(place: Place, text: str) -> None:
    graph = place.init()
    load(graph, MAIN, person("ann"))
    graph.branch_create("dev")
    before = repository_of(graph).store.datasets.versions(graph.snapshot().entries[PERSON].location)
    result = graph.schema.apply(text, branch="dev", allow_data_loss=True)
    assert {(k.table_key, k.branch) for k in result.kept_for} >= {(PERSON, MAIN)}
    fresh = place.open()
    assert ids(fresh.snapshot()) == ["ann"]
    datasets = repository_of(fresh).store.datasets
    assert datasets.versions(fresh.snapshot().entries[PERSON].location) == before


def test_a_hard_drop_purges_what_only_its_branch_had(local_place: Place) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    load(graph, "dev", person("ann"))
    full = graph.snapshot_of(ReadTarget.branch("dev"))
    load(graph, "dev", person("bob"))
    result = graph.schema.apply(SLIM, branch="dev", allow_data_loss=True)
    assert {k.branch for k in result.kept_for} == {MAIN}, "main shares the empty first version"
    with pytest.raises(NotFoundError, match="cleanup has removed it"):
        ids(local_place.open().snapshot_of(ReadTarget.commit(full.commit_id)))


def test_a_hard_drop_spares_and_names_tags(local_place: Place) -> None:
    graph = local_place.init()
    load(graph, MAIN, person("ann"))
    graph.tag_create("v1")
    load(graph, MAIN, person("bob"))
    result = graph.schema.apply(SLIM, allow_data_loss=True)
    assert [k.to_json() for k in result.kept_for] == [{"type": PERSON, "tag": "v1"}]
    assert result.to_json()["kept_for"] == [{"type": PERSON, "tag": "v1"}]
    tagged = local_place.open().snapshot_of(ReadTarget.tag("v1"))
    assert ids(tagged) == ["ann"]
    assert tagged.open(PERSON).schema.names == ["id", "age", "name"]


def test_forks_of_deleted_branches_keep_nothing(local_place: Place) -> None:
    graph = local_place.init()
    load(graph, MAIN, person("ann"))
    full = graph.snapshot()
    graph.branch_create("dev")
    load(graph, "dev", person("bob"))
    graph.branch_create_from("dev", "leaf")
    load(graph, "leaf", person("cy"))
    graph.branch_delete("leaf")
    graph.branch_delete("dev")
    result = graph.schema.apply(SLIM, allow_data_loss=True)
    assert (result.kept_for, result.warnings) == ((), ())
    with pytest.raises(NotFoundError, match="cleanup has removed it"):
        ids(local_place.open().snapshot_of(ReadTarget.commit(full.commit_id)))


def test_a_merge_base_survives_a_hard_drop(local_place: Place) -> None:
    """A branch that has moved on still needs the state that it was cut from to be merged."""
    graph = local_place.init()
    load(graph, MAIN, person("ann"))
    graph.branch_create("dev")
    load(graph, "dev", person("bob"))
    base = graph.merge_base("dev", MAIN)
    graph.schema.apply(SLIM, allow_data_loss=True)
    assert base is not None
    found = local_place.open().snapshot_of(ReadTarget.commit(base.graph_commit_id))
    assert ids(found) == ["ann"]


# -- marks and locks -------------------------------------------------------------------------------


def test_names_of_marks_are_reserved_and_never_listed(local_place: Place) -> None:
    graph = local_place.init()
    graph.branch_create("team/dev")
    repository = repository_of(graph)
    dev = repository.branches.resolve(BranchName("team/dev"))
    assert schema_mark(dev) == f"__schema_apply_lock__.{dev.text}"
    repository.branches.set_schema_lock(dev)
    assert graph.branch_list() == [MAIN, "team/dev"]
    for name in ("__schema_apply_lock__.x", "__schema_apply_lock__.x/y", schema_mark(dev)):
        with pytest.raises(IllegalNameError):
            graph.branch_create(name)


def operations(graph: Graph) -> list[tuple[str, Callable[[], object]]]:
    """Return operations on `dev` that a schema change of it refuses, with their names there."""
    return [
        ("branch create", lambda: graph.branch_create_from("dev", "other")),
        ("branch delete", lambda: graph.branch_delete("dev")),
        ("branch merge", lambda: graph.branch_merge("dev")),
        ("branch merge", lambda: graph.branch_merge(MAIN, "dev")),
        ("load", lambda: load(graph, "dev", person("x"))),
        ("cleanup", lambda: graph.cleanup(keep_versions=1, confirm=True)),
    ]


def test_operations_on_a_branch_are_refused_while_its_schema_changes(local_place: Place) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    repository = repository_of(graph)
    dev = repository.branches.resolve(BranchName("dev"))
    other = local_place.open()
    with repository.branch_locks.take(BranchName("dev"), operation_id="OP"):
        repository.branches.set_schema_lock(dev)
        for name, call in operations(other):
            with pytest.raises(SchemaApplyInProgressError, match=f"{name} is unavailable"):
                call()
        with pytest.raises(SchemaApplyRunningError):
            other.schema.apply(WIDER, branch="dev")
        load(other, MAIN, person("ann"))
        other.branch_create("from_main")
        assert other.schema.apply(WIDER).applied, "other branches do not wait"
        repository.branches.clear_schema_lock(dev)


@pytest.mark.parametrize("by", ["apply", "load", "branch create", "branch delete", "repair"])
def test_the_mark_of_a_dead_apply_is_removed_by_whoever_comes_next(
    local_place: Place, by: str
) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    repository = repository_of(graph)
    dev = repository.branches.resolve(BranchName("dev"))
    repository.branches.set_schema_lock(dev)
    if by == "apply":
        assert graph.schema.apply(WIDER, branch="dev").applied
    elif by == "load":
        load(graph, "dev", person("x"))
    elif by == "branch create":
        graph.branch_create_from("dev", "other")
    elif by == "branch delete":
        graph.branch_delete("dev")
    else:
        graph.repair(confirm=True)
    assert schema_mark(dev) not in repository.store.datasets.branch_names(MANIFEST)


@pytest.mark.parametrize(
    "point", ["schema_apply.reserved", "schema_apply.locked", "schema_apply.published"]
)
def test_an_apply_that_fails_takes_its_mark_away(local_place: Place, point: str) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    failpoints.arm(point)
    with pytest.raises(failpoints.FailpointError):
        graph.schema.apply(WIDER, branch="dev")
    failpoints.disarm()
    assert not has_mark(graph, "dev")
    fresh = local_place.open()
    assert (fresh.schema.source(branch="dev") == WIDER) is (point == "schema_apply.published")
    fresh.schema.apply(WIDER, branch="dev")
    assert fresh.schema.source(branch="dev") == WIDER


def test_numbers_are_reserved_again_when_the_schema_changes_before_the_lock(
    local_place: Place,
) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    other = local_place.open()
    more = WIDER + "\nnode Town { code: String @key }"

    def once() -> None:
        failpoints.disarm()
        other.schema.apply(SLIM, branch="dev")

    failpoints.arm("schema_apply.reserved", once)
    assert graph.schema.apply(more, branch="dev").applied
    assert graph.schema.source(branch="dev") == more
    assert columns(graph, "dev") == ["id", "age", "motto", "name"]


@pytest.mark.parametrize("allows", [False, True])
def test_an_apply_that_lost_against_a_merge_drops_nothing_that_the_merge_brought(
    local_place: Place, allows: bool
) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    graph.schema.apply(WIDER + "\nnode Port { code: String @key  dock: String? }", branch="dev")
    load(graph, "dev", person("ann", motto="slow"))
    other, town = local_place.open(), "\nnode Town { code: String @key }"

    def once() -> None:
        failpoints.disarm()
        other.branch_merge("dev")

    failpoints.arm("schema_apply.reserved", once)
    with pytest.raises(SchemaApplyLostError) as lost:
        graph.schema.apply(SCHEMA + town, allow_data_loss=allows)
    assert lost.value.undone == "node:Person.motto, node:Port"
    fresh = local_place.open()
    motto = fresh.query("query q() { match { $p: Person } return { $p.motto } }")
    assert motto.to_pylist() == [{"p.motto": "slow"}]
    assert fresh.recovery_status() == []
    brought_in = fresh.schema.source() + town
    assert graph.schema.apply(brought_in).applied
    assert graph.schema.apply(SCHEMA + town, allow_data_loss=allows).applied, "asked for again"


@pytest.mark.parametrize(
    ("brought", "undone"),
    [
        (SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")', 1), "node:Person.years"),
        (
            SCHEMA.replace("node Person", 'node Human @rename_from("Person")').replace(
                "Person -> Person", "Human -> Human"
            ),
            "node:Human",
        ),
        (SCHEMA.replace("age: I32?", "age: I64?", 1), "node:Person.age"),
        (NOTED, "node:City"),
    ],
)
def test_an_apply_that_lost_against_another_undoes_no_change_of_it(
    local_place: Place, brought: str, undone: str
) -> None:
    """The values of what has another name would be dropped, without that anybody asked for it."""
    graph = local_place.init()
    load(graph, MAIN, '{"type": "Person", "data": {"name": "ann", "age": 7}}')
    other, town = local_place.open(), "\nnode Town { code: String @key }"

    def once() -> None:
        failpoints.disarm()
        other.schema.apply(brought)

    failpoints.arm("schema_apply.reserved", once)
    with pytest.raises(SchemaApplyLostError) as lost:
        graph.schema.apply(SCHEMA + town)
    assert lost.value.undone == undone
    assert local_place.open().schema.source() == brought


def test_a_branch_that_is_deleted_before_the_lock_is_reported(local_place: Place) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    other = local_place.open()

    def once() -> None:
        failpoints.disarm()
        other.branch_delete("dev")

    failpoints.arm("schema_apply.reserved", once)
    with pytest.raises(NotFoundError):
        graph.schema.apply(WIDER, branch="dev")
    assert graph.branch_list() == [MAIN]
    assert local_place.open(mode=OpenMode.READ_ONLY).schema.source() == SCHEMA


def race(*work: Callable[[], None]) -> list[OmnigraphError]:
    """Run at the same time; return what was refused."""
    refused: list[OmnigraphError] = []
    barrier = threading.Barrier(len(work))

    def guarded(task: Callable[[], None]) -> None:
        barrier.wait()
        try:
            task()
        except OmnigraphError as error:
            refused.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return refused


def test_an_apply_on_a_branch_beside_one_on_main_and_writes_to_both(local_place: Place) -> None:
    graph = local_place.init()
    graph.branch_create("dev")
    tall = SCHEMA.replace("age: I32?", "age: I32?\n    height: F64?", 1)
    handles = [local_place.open() for _ in range(4)]
    refused = race(
        lambda: _applied(handles[0], WIDER, "dev"),
        lambda: _applied(handles[1], tall, MAIN),
        lambda: load(handles[2], "dev", person("ann")),
        lambda: load(handles[3], MAIN, person("bob")),
    )
    assert [type(error) for error in refused if not isinstance(error, ConflictError)] == []
    fresh = local_place.open()
    assert (fresh.schema.source(), fresh.schema.source(branch="dev")) == (tall, WIDER)
    assert columns(fresh, "dev") == ["id", "age", "motto", "name"]
    assert columns(fresh, MAIN) == ["id", "age", "height", "name"]
    new = {MAIN: numbers(fresh, MAIN), "dev": numbers(fresh, "dev")}
    assert len(new[MAIN] ^ new["dev"]) == 2, "each has a number of its own"


def _applied(graph: Graph, text: str, branch: str) -> None:
    assert graph.schema.apply(text, branch=branch).applied


@pytest.mark.parametrize("other", ["delete", "merge into", "merge from"])
def test_an_apply_beside_a_merge_or_a_deletion_ends_in_one_of_both_orders(
    local_place: Place, other: str
) -> None:
    graph = local_place.init()
    load(graph, MAIN, person("ann"))
    graph.branch_create("dev")
    load(graph, "dev", person("bob"))
    one, two = local_place.open(), local_place.open()
    rival: Callable[[], object] = {
        "delete": lambda: two.branch_delete("dev"),
        "merge into": lambda: two.branch_merge(MAIN, "dev"),
        "merge from": lambda: two.branch_merge("dev", MAIN),
    }[other]
    refused = race(lambda: _applied(one, WIDER, "dev"), lambda: rival() and None)
    assert all(isinstance(error, ConflictError | NotFoundError) for error in refused)
    fresh = local_place.open()
    if "dev" in fresh.branch_list():
        dev = fresh.snapshot_of(ReadTarget.branch("dev"))
        declared = dev.catalog.node_types["Person"].arrow_schema.names
        assert dev.open(PERSON).schema.names == declared
        assert {"ann", "bob"} <= set(ids(dev))
    assert fresh.recovery_status() == []


# -- what is derived from tables -------------------------------------------------------------------


def test_topologies_and_indexes_of_forked_tables_stay_right(local_place: Place) -> None:
    """Enough edges for a stored topology; the apply rewrites nodes and edges of the branch."""
    graph = local_place.init()
    count = 11_000
    names = [f"p{number:05}" for number in range(count)]
    edges = {"from": names, "to": [*names[1:], names[0]]}
    people = pa.table({"name": names})
    graph.load_tables(nodes={"Person": people}, edges={"Knows": pa.table(edges)}, mode="append")
    graph.branch_create("dev")
    dev = ReadTarget.branch("dev")
    hops = "query q() { match { $a: Person $a knows $b } return { count($b) as n } }"
    assert graph.query(hops, target=dev).to_pylist() == [{"n": count}]
    wider = WIDER.replace("Knows: Person -> Person", "Knows: Person -> Person { since: Date? }")
    graph.schema.apply(wider, branch="dev")
    graph.mutate('query q() { delete Person where name = "p00007" }', branch="dev")
    graph.ensure_indices(branch="dev")
    two = (
        'query q() { match { $a: Person { name: "p00005" } $a knows{1,3} $b }'
        " return { $b.name as b } }"
    )
    for handle in (graph, local_place.open()):
        assert handle.query(hops, target=dev).to_pylist() == [{"n": count - 2}]
        assert handle.query(hops).to_pylist() == [{"n": count}]
        assert [row["b"] for row in handle.query(two, target=dev)] == ["p00006"]
        assert sorted(row["b"] for row in handle.query(two)) == ["p00006", "p00007", "p00008"]


def test_doctor_names_branches_whose_schema_is_behind(local_place: Place) -> None:
    graph = local_place.init()
    for name in ("behind", "ahead", "same"):
        graph.branch_create(name)
    assert [f for f in graph.examine(try_writing=False) if f.topic == "schema"] == []
    graph.schema.apply(WIDER, branch="ahead")
    assert [f for f in graph.examine(try_writing=False) if f.topic == "schema"] == []
    graph.schema.apply(NOTED)
    graph.schema.apply(NOTED, branch="same")
    found = [f for f in graph.examine(try_writing=False) if f.topic == "schema"]
    assert sorted(f.message for f in found) == [
        "the schema of branch 'ahead' is behind that of main",
        "the schema of branch 'behind' is behind that of main",
    ]
    assert found[0].remedy is not None
    assert "branch merge main --into " in found[0].remedy
