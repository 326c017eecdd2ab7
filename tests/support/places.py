"""Where the behaviour suites keep their graphs: the same tests run on disk and on S3."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from omnigraph.clock import Clock, SystemClock
from omnigraph.graph import Graph
from omnigraph.graph.session import Session, start_session
from omnigraph.manifest import (
    OpenMode,
    Published,
    Repository,
    Snapshot,
    init_repository,
    open_read_only,
)
from omnigraph.manifest.format_stamp import migrate
from omnigraph.manifest.layout import MAIN_INCARNATION, Incarnation
from omnigraph.manifest.repository import assemble, check_contract, refresh_derived
from omnigraph.recovery import Recovery
from omnigraph.schema import compile_schema
from omnigraph.store import Store, connect
from support.writer import append, people

PERSON = "node:Person"
CITY = "node:City"
KNOWS = "edge:Knows"
SCHEMA = """\
node Person {
    name: String @key
    age: I32?
}

node City {
    name: String @key
    age: I32?
}

edge Knows: Person -> Person
"""


@dataclass(frozen=True)
class Place:
    """A root, and how to reach it. `open` always starts from nothing that was read before."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    def store(self) -> Store:
        return connect(self.uri, storage_options=self.options, durability="process")

    def init(
        self, schema: str = SCHEMA, *, clock: Clock | None = None, force: bool = False
    ) -> Graph:
        return Graph.init(
            self.uri,
            schema,
            storage_options=self.options,
            durability="process",
            clock=clock,
            force=force,
        )

    def init_quiet(self) -> Graph:
        """Make a graph whose handle does nothing in the background, for tests that count."""
        return Graph.init(
            self.uri,
            SCHEMA,
            storage_options=self.options,
            durability="process",
            auto_optimize=False,
            checksums=False,
        )

    def open(
        self,
        branch: str = "main",
        *,
        mode: OpenMode = OpenMode.READ_WRITE,
        clock: Clock | None = None,
    ) -> Graph:
        return Graph.open(
            self.uri,
            branch=branch,
            mode=mode,
            storage_options=self.options,
            durability="process",
            clock=clock,
        )

    def init_repository(self, schema: str = SCHEMA) -> Repository:
        clock = SystemClock()
        compiled = compile_schema(schema, domain=clock.ulid())
        return init_repository(self.store(), clock, compiled)

    def repository(self, *, mode: OpenMode = OpenMode.READ_WRITE) -> Repository:
        """Open what a graph stands on, without sweeping it first."""
        store, clock = self.store(), SystemClock()
        if mode is OpenMode.READ_ONLY:
            return open_read_only(store, clock)
        repository = assemble(store, clock)
        migrate(repository.root, store.datasets)
        state = repository.reader.latest(MAIN_INCARNATION)
        check_contract(state)
        refresh_derived(repository, state)
        return repository


def session_of(graph: Graph) -> Session:
    """Return what the parts of a graph share, for tests of what lies below."""
    return graph._session


def finish_maintenance(graph: Graph) -> None:
    """Do what closing does before the graph is closed; no thread of it writes afterwards."""
    session_of(graph).background.close()


@contextmanager
def settled(graph: Graph) -> Iterator[Graph]:
    """Finish the maintenance of a graph at the end, and leave it open."""
    yield graph
    finish_maintenance(graph)


def repository_of(graph: Graph) -> Repository:
    """Return what a graph stands on, for tests that write without the write room."""
    return session_of(graph).repository


def graph_on(
    repository: Repository,
    *,
    recovery: Recovery | None = None,
    mode: OpenMode = OpenMode.READ_WRITE,
    incarnation: Incarnation = MAIN_INCARNATION,
    auto_optimize: bool = True,
) -> Graph:
    """Return a graph on a repository, with none of the steps of `Graph.open`."""
    session = start_session(
        repository,
        recovery or Recovery(repository),
        mode=mode,
        incarnation=incarnation,
        auto_optimize=auto_optimize,
    )
    return Graph(session)


def add(graph: Graph, *names: str, branch: str | None = None, **options: str) -> Published:
    """Add people to a branch, by default the one that the graph is bound to."""
    return append(
        repository_of(graph),
        {PERSON: people(*names)},
        branch=graph.branch if branch is None else branch,
        **options,
    )


def ids(snapshot: Snapshot, table_key: str = PERSON) -> list[str]:
    """Everybody in a table, sorted."""
    return sorted(snapshot.open(table_key).scan().read_all()["id"].to_pylist())


def tree(root: Path) -> dict[str, tuple[int, int, str]]:
    """Everything under a directory: size, modification time and content of each file."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.stat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        found[path.relative_to(root).as_posix()] = (status.st_size, status.st_mtime_ns, content)
    return found


def with_shared_lineage(place: Place) -> Graph:
    """Make a graph whose branch `second` reads a table that `first` has gone on writing."""
    graph = place.init()
    add(graph, "ann")
    graph.branch_create("first")
    graph.mutate('query q() { insert Person { name: "bob" } }', branch="first")
    graph.branch_create_from("first", "second")
    graph.mutate('query q() { insert Person { name: "cas" } }', branch="first")
    return graph
