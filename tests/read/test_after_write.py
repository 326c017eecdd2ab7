"""A read after a write answers as a new handle does, and reads in proportion to the write."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.maintenance.background import BackgroundMaintenance
from omnigraph.manifest import Snapshot
from omnigraph.manifest.history import History
from omnigraph.manifest.layout import Incarnation
from omnigraph.read.access import table_reader
from omnigraph.read.access.column_cache import USES_MIN
from omnigraph.read.access.path_chooser import TRAVERSAL_MODE
from omnigraph.search import table_delta
from omnigraph.search.topology import cache as topology_cache
from omnigraph.store.errors import StorageUnavailableError
from omnigraph.store.lance.handle import LanceHandle
from omnigraph.store.objects.local import LocalObjectStore
from omnigraph.store.records import ScanRequest
from omnigraph.write.commit.job import WriteJob

SCHEMA = """
node Person { pid: String @key  age: I32?  city: String? }
node Account { number: I64 @key  owner: String? }
edge Knows: Person -> Person { since: I32? }
edge Owns: Person -> Account { share: I32? }
"""
WIDER = SCHEMA.replace("city: String?", "city: String?  email: String?")
NARROWER = SCHEMA.replace("city: String?", "")
QUERIES = """
query point($k: String) { match { $a: Person { pid: $k } } return { $a, $a.age, $a.city } }
query city($k: String) { match { $a: Person { city: $k } } return { $a } }
query account($n: I64) { match { $a: Account { number: $n } } return { $a, $a.owner } }
query one($k: String) {
    match { $a: Person { pid: $k }  $a knows $b } return { $b, $b.age, $b.city }
}
query back($k: String) { match { $a: Person { pid: $k }  $b knows $a } return { $b } }
query two($k: String) {
    match { $a: Person { pid: $k }  $a knows $b  $b knows $c } return distinct { $c }
}
query far($k: String) {
    match { $a: Person { pid: $k }  $a knows{1,3} $b } return { count($b) as n }
}
query owns($k: String) {
    match { $a: Person { pid: $k }  $a owns $x } return { $x, $x.owner }
}
query since($k: String) {
    match { $a: Person { pid: $k }  $a $e: knows $b }
    return { $b, $e.since }
}
query all() { match { $a: Person } return { $a, $a.age, $a.city } }
query ages() {
    match { $a: Person  $a knows $b } return { $a, count($b) as n, sum($b.age) as s }
}
query alone() { match { $a: Person  not { $a knows $_ } } return { $a } }
"""
MUTATIONS = """
query person($k: String, $c: String) { insert Person { pid: $k, age: 1, city: $c } }
query account($n: I64) { insert Account { number: $n, owner: "o" } }
query knows($a: String, $b: String) { insert Knows { from: $a, to: $b, since: 1 } }
query owns($a: String, $b: String) { insert Owns { from: $a, to: $b, share: 1 } }
query older($k: String, $age: I32) { update Person set { age: $age, city: "moved" } where pid = $k }
query gone($k: String) { delete Person where pid = $k }
query apart($k: String) { delete Knows where from = $k }
query later($k: String, $s: I32) { update Knows set { since: $s } where from = $k }
"""


@pytest.fixture(autouse=True)
def _topologies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRAVERSAL_MODE, "csr")


def started(folder: Path, people: int = 30, edges: int = 80) -> Graph:
    graph = Graph.init(folder / "g", SCHEMA, durability="process")
    names = [f"p{number}" for number in range(people)]
    graph.load_tables(
        nodes={
            "Person": pa.table(
                {"pid": names, "age": pa.array(range(people), pa.int32()), "city": names}
            ),
            "Account": pa.table({"number": pa.array(range(people), pa.int64()), "owner": names}),
        },
        edges={
            "Knows": pa.table(
                {
                    "src": [names[n // 3 % people] for n in range(edges)],
                    "dst": [names[(n // 3 + n % 3 + 1) % people] for n in range(edges)],
                    "since": pa.array(range(edges), pa.int32()),
                }
            ),
            "Owns": pa.table(
                {
                    "src": names,
                    "dst": [str(n) for n in range(people)],
                    "share": pa.array([1] * people, pa.int32()),
                }
            ),
        },
        mode="append",
    )
    return graph


def answers(
    graph: Graph, names: Sequence[str], numbers: Sequence[int], commit: str | None = None
) -> list[object]:
    """Everything that the queries tell about some people and accounts, now or at a commit."""
    kinds = ("point", "city", "one", "back", "two", "far", "owns", "since")
    asked: list[tuple[str, dict[str, object]]] = [("all", {}), ("ages", {}), ("alone", {})]
    asked += [(kind, {"k": name}) for name in names for kind in kinds]
    asked += [("account", {"n": number}) for number in numbers]
    return [
        sorted(map(orjson.dumps, graph.query(QUERIES, kind, given, target=commit).json_rows()))
        for kind, given in asked
    ]


@dataclass
class Story:
    """Random changes through one handle, which stays open, and through another one."""

    graph: Graph
    other: Graph
    chance: random.Random
    names: list[str] = field(default_factory=lambda: [f"p{number}" for number in range(30)])
    commits: list[str] = field(default_factory=list)
    steps: int = 0

    def step(self) -> str:
        self.steps += 1
        kind = self.chance.choice(sorted(CHANGES))
        try:
            CHANGES[kind](self)
        except OmnigraphError:
            # A node that is gone, a merge of nothing: both are right.
            return f"{kind} (refused)"
        return kind

    def mutate(self, name: str, **params: object) -> None:
        writer = self.chance.choice([self.graph, self.other])
        writer.mutate(MUTATIONS, name, params, branch=self.branch)

    @property
    def branch(self) -> str:
        return str(self.graph.branch)

    def some(self) -> str:
        return self.chance.choice(self.names)

    def person(self) -> None:
        self.names.append(f"n{self.steps}")
        self.mutate("person", k=self.names[-1], c="new")

    def loop(self) -> None:
        name = self.some()
        self.mutate("knows", a=name, b=name)

    def load(self) -> None:
        rows = [
            {"type": "Person", "data": {"pid": self.some(), "age": self.steps}} for _ in range(3)
        ]
        rows.append({"edge": "Knows", "from": self.some(), "to": self.some(), "data": {}})
        self.graph.load(b"\n".join(map(orjson.dumps, rows)), mode="merge", branch=self.branch)

    def again(self) -> None:
        """A key comes back as another row."""
        name = self.some()
        self.mutate("gone", k=name)
        self.mutate("person", k=name, c="again")
        self.mutate("knows", a=name, b=self.some())

    def overwrite(self) -> None:
        names = sorted(set(self.chance.choices(self.names, k=12)))
        rows: list[dict[str, object]] = [
            {"type": "Person", "data": {"pid": name}} for name in names
        ]
        for _ in range(15):
            ends = {"from": self.chance.choice(names), "to": self.chance.choice(names)}
            rows.append({"edge": "Knows", **ends, "data": {"since": self.steps}})
        rows.append({"edge": "Owns", "from": names[0], "to": "3", "data": {}})
        self.graph.load(b"\n".join(map(orjson.dumps, rows)), mode="overwrite", branch=self.branch)

    def recreate(self) -> None:
        """A column is dropped, and another one gets its name."""
        for schema in (NARROWER, SCHEMA):
            self.graph.schema.apply(schema, branch=self.branch)

    def fork(self) -> None:
        name = f"b{self.steps}"
        self.graph.branches.create(name)
        self.go_to(name)

    def home(self) -> None:
        self.go_to("main")

    def merge(self) -> None:
        branch = self.branch
        self.go_to("main")
        if branch != "main":
            self.graph.branches.merge(branch)

    def go_to(self, branch: str) -> None:
        self.graph.branches.bind(branch)

    def optimize(self) -> None:
        self.graph.maintenance.optimize()

    def widen(self) -> None:
        self.go_to("main")
        self.graph.schema.apply(WIDER)


CHANGES: dict[str, Callable[[Story], object]] = {
    "person": Story.person,
    "account": lambda story: story.mutate("account", n=1000 + story.steps),
    "knows": lambda story: story.mutate("knows", a=story.some(), b=story.some()),
    "loop": Story.loop,
    "owns": lambda story: story.mutate("owns", a=story.some(), b="3"),
    "older": lambda story: story.mutate("older", k=story.some(), age=story.steps),
    "gone": lambda story: story.mutate("gone", k=story.some()),
    "apart": lambda story: story.mutate("apart", k=story.some()),
    "later": lambda story: story.mutate("later", k=story.some(), s=story.steps),
    "again": Story.again,
    "overwrite": Story.overwrite,
    "recreate": Story.recreate,
    "load": Story.load,
    "fork": Story.fork,
    "home": Story.home,
    "merge": Story.merge,
    "optimize": Story.optimize,
    "widen": Story.widen,
}


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        *((seed, 8) for seed in range(2)),
        *(pytest.param(seed, 40, marks=pytest.mark.slow) for seed in range(2, 12)),
    ],
)
def test_answers_are_those_of_a_new_handle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, steps: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(topology_cache, "FOLD_ROWS", chance.choice([4, 4_096]))
    monkeypatch.setattr(table_reader, "FOLD_ROWS", chance.choice([4, 4_096]))
    monkeypatch.setattr(table_delta, "COMPARED_ROWS_MAX", chance.choice([0, 4_096]))
    with started(tmp_path) as graph, Graph.open(graph.uri, durability="process") as other:
        for _ in range(USES_MIN):
            answers(graph, ["p1"], [1])
        story = Story(graph, other, chance)
        done = []
        for _ in range(steps):
            done.append(story.step())
            picked = [story.some(), story.names[-1]]
            numbers = [3, 1000 + story.steps]
            with Graph.open(graph.uri, branch=story.branch, durability="process") as fresh:
                expected = answers(fresh, picked, numbers)
                story.commits.append(fresh.snapshot().commit_id)
                earlier = chance.choice(story.commits)
                left = answers(fresh, picked[:1], numbers[:1], earlier)
            assert answers(graph, picked, numbers) == expected, done
            assert answers(graph, picked[:1], numbers[:1], earlier) == left, done


# -- what is read ----------------------------------------------------------------------------------


@dataclass
class Reads:
    """What the thread of a test reads of datasets and objects.

    Graphs of other tests may have work in the background that is not done yet.
    """

    thread: int = field(default_factory=threading.get_ident)
    rows: list[tuple[str, int]] = field(default_factory=list)
    """What was read, and how many rows of it; one for each call."""
    object_bytes: int = 0

    @property
    def is_own(self) -> bool:
        return threading.get_ident() == self.thread

    def forget(self) -> None:
        self.rows.clear()
        self.object_bytes = 0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    seen = Reads()
    batches, take, get = LanceHandle.batches, LanceHandle.take, LocalObjectStore.get

    def counted_batches(
        self: LanceHandle, request: ScanRequest
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        schema, found = batches(self, request)
        if not seen.is_own:
            return schema, found
        whole = list(found)
        seen.rows.append((f"{self.at} {request}", sum(batch.num_rows for batch in whole)))
        return schema, iter(whole)

    def counted_take(self: LanceHandle, *args: object) -> pa.Table:
        found = take(self, *args)  # type: ignore[arg-type]  # passed on as they are
        if seen.is_own:
            seen.rows.append((f"{self.at} {args}", found.num_rows))
        return found

    def counted_get(self: LocalObjectStore, path: str) -> object:
        found = get(self, path)
        seen.object_bytes += len(found.data) if seen.is_own else 0
        return found

    monkeypatch.setattr(LanceHandle, "batches", counted_batches)
    monkeypatch.setattr(LanceHandle, "take", counted_take)
    monkeypatch.setattr(LocalObjectStore, "get", counted_get)
    return seen


WRITES: dict[str, tuple[str, dict[str, object]]] = {
    "an inserted node": ("person", {"k": "late", "c": "c"}),
    "an inserted edge": ("knows", {"a": "p5", "b": "p9"}),
    "an updated node": ("older", {"k": "p5", "age": 7}),
    "a deleted node": ("gone", {"k": "p5"}),
    "deleted edges": ("apart", {"k": "p5"}),
}


def opened_alone(uri: Path) -> Graph:
    """Open a graph without maintenance in the background, whose reads would be counted too."""
    return Graph.open(uri, durability="process", auto_optimize=False)


SIZES = (200, 2_000)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Graphs of two sizes, to be copied."""
    folders = {size: tmp_path_factory.mktemp(f"size-{size}") for size in SIZES}
    for size, folder in folders.items():
        started(folder, size, size * 3).close()
    return folders


def read_after(
    uri: Path, write: tuple[str, dict[str, object]], reads: Reads, *, is_own: bool
) -> tuple[list[tuple[str, int]], int]:
    with opened_alone(uri) as graph, opened_alone(uri) as other:
        for _ in range(USES_MIN + 1):
            for query in ("point", "one", "two"):
                graph.query(QUERIES, query, {"k": "p2"})
        # The second write is the one that counts: the first one may find indexes missing.
        for name, params in (("knows", {"a": "p7", "b": "p8"}), write):
            (graph if is_own else other).mutate(MUTATIONS, name, params)
            reads.forget()
            for query in ("point", "one", "two"):
                graph.query(QUERIES, query, {"k": "p3"})
        return list(reads.rows), reads.object_bytes


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("is_own", [True, False], ids=["own", "of another handle"])
def test_what_is_read_after_a_write_does_not_depend_on_the_size(
    tmp_path: Path, stored: dict[int, Path], reads: Reads, write: str, is_own: bool
) -> None:
    found = []
    for size, folder in stored.items():
        shutil.copytree(folder / "g", tmp_path / str(size))
        found.append(read_after(tmp_path / str(size), WRITES[write], reads, is_own=is_own))
    (small, small_bytes), (large, large_bytes) = found
    assert [rows for _, rows in small] == [rows for _, rows in large], (small, large)
    assert sum(rows for _, rows in small) <= 20, small
    assert len(small) <= 8, small
    assert large_bytes <= small_bytes + 100, "bytes of deletion files"


def test_a_write_of_another_process_is_read(tmp_path: Path) -> None:
    with started(tmp_path) as graph:
        for _ in range(USES_MIN):
            answers(graph, ["p1"], [1])
        script = (
            "import sys; from omnigraph.graph import Graph\n"
            "with Graph.open(sys.argv[1], durability='process') as graph:\n"
            "    for name, params in (('person', {'k': 'far', 'c': 'c'}),"
            " ('knows', {'a': 'p1', 'b': 'far'}), ('older', {'k': 'p2', 'age': 99}),"
            " ('gone', {'k': 'p3'})):\n"
            "        graph.mutate(sys.argv[2], name, params)\n"
        )
        subprocess.run([sys.executable, "-c", script, graph.uri, MUTATIONS], check=True)
        picked = ["far", "p1", "p2", "p3", "p4"]
        with Graph.open(graph.uri, durability="process") as fresh:
            assert answers(graph, picked, [1]) == answers(fresh, picked, [1])
        known = graph.query(QUERIES, "one", {"k": "p1"}).json_rows()
        assert "far" in [row["b"] for row in known]


def test_a_write_that_has_landed_does_not_fail_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What follows a commit may fail: the next read does it again."""
    remember, snapshot = BackgroundMaintenance.remember, History.snapshot
    landed: list[WriteJob] = []

    def noted(self: BackgroundMaintenance, job: WriteJob) -> None:
        landed.append(job)
        remember(self, job)

    def failing(self: History, incarnation: Incarnation) -> Snapshot:
        if landed:
            raise StorageUnavailableError(path="__manifest", reason="the network is gone")
        return snapshot(self, incarnation)

    with started(tmp_path) as graph:
        for _ in range(USES_MIN):
            answers(graph, ["p1"], [1])
        monkeypatch.setattr(BackgroundMaintenance, "remember", noted)
        monkeypatch.setattr(History, "snapshot", failing)
        graph.mutate(MUTATIONS, "older", {"k": "p1", "age": 99})
        assert "the network is gone" in caplog.text
        monkeypatch.setattr(History, "snapshot", snapshot)
        assert graph.query(QUERIES, "point", {"k": "p1"}).json_rows()[0]["a.age"] == 99


def test_branches_that_filled_a_new_column_differently_share_no_rows(tmp_path: Path) -> None:
    """Both columns have the same name and number, and the same rows come with other values."""
    with Graph.init(tmp_path / "g", SCHEMA, durability="process") as graph:
        people = pa.table({"pid": [f"p{number}" for number in range(5)]})
        graph.load_tables(nodes={"Person": people}, mode="append")
        heads = {}
        for name, rank in (("one", 1), ("two", 2)):
            graph.branches.create(name)
            wider = SCHEMA.replace("age: I32?", f"age: I32?  rank: I32 @default({rank})")
            graph.schema.apply(wider, branch=name)
            heads[name] = graph.snapshot_of(name).commit_id
            row = {"type": "Person", "data": {"pid": "p3", "rank": 7}}
            graph.load(orjson.dumps(row), mode="overwrite", branch=name)
        text = "query q() { match { $a: Person } return { $a.rank } }"
        for name in heads:
            graph.query(text, branch=name)
        found = [graph.query(text, target=head).json_rows()[0] for head in heads.values()]
    assert found == [{"a.rank": 1}, {"a.rank": 2}]


# -- keys ------------------------------------------------------------------------------------------

KEYED = """
node Day { day: Date @key  n: I32 }
node Moment { at: DateTime @key  n: I32 }
node Flag { is_on: Bool @key  n: I32 }
node Size { width: F64 @key  n: I32 }
node Seat { row: I32  place: String  @key(row, place)  n: I32 }
node Big { number: U64 @key  n: I32 }
"""
LOOKUPS: dict[str, tuple[str, str, object]] = {
    "Day": ("{ day: $k }", "Date", "2024-05-17"),
    "Moment": ("{ at: $k }", "DateTime", "2024-05-17T10:00:00Z"),
    "Flag": ("{ is_on: $k }", "Bool", True),
    "Size": ("{ width: $k }", "F64", 2.5),
    "Big": ("{ number: $k }", "U64", 2**40),
    "Seat": ('{ row: $k, place: "b" }', "I32", 2),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_a_key_of_any_type_is_found_in_memory(tmp_path: Path, name: str) -> None:
    properties, kind, value = LOOKUPS[name]
    column = properties.split(":")[0].strip("{ ")
    text = f"query q($k: {kind}) {{ match {{ $a: {name} {properties} }} return {{ $a.n }} }}"
    with Graph.init(tmp_path / "g", KEYED, durability="process") as graph:
        row = {column: value, "n": 1} | ({"place": "b"} if name == "Seat" else {})
        graph.load(orjson.dumps({"type": name, "data": row}), mode="append")

        def found() -> tuple[list[dict[str, object]], bool]:
            result = graph.query(text, "q", {"k": value}, profile=True)
            return result.json_rows(), "resident" in result.measured[0].details

        expected = [{"a.n": 1}]
        assert [found() for _ in range(USES_MIN + 1)][-1] == (expected, True)
        graph.load(orjson.dumps({"type": name, "data": row | {"n": 2}}), mode="merge")
        assert found() == ([{"a.n": 2}], True)
        graph.mutate(f"query gone() {{ delete {name} where n = 2 }}")
        assert found() == ([], True)


def test_filters_beside_a_key_are_checked(tmp_path: Path) -> None:
    text = """query q($n: I64, $o: String) {
        match { $a: Account { number: $n, owner: $o } } return { $a }
    }"""
    with started(tmp_path) as graph:
        for _ in range(USES_MIN + 1):
            assert graph.query(text, "q", {"n": 3, "o": "p3"}).json_rows() == [{"a": "3"}]
        assert graph.query(text, "q", {"n": 3, "o": "p4"}).json_rows() == []
        assert graph.query(text, "q", {"n": -3, "o": "p4"}).json_rows() == []
