"""What must hold of a graph after whatever has happened to it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from crash.world import Content
from omnigraph.graph import Graph
from omnigraph.manifest import ReadTarget, Snapshot
from omnigraph.manifest.layout import COMMITS
from omnigraph.recovery.intent import FOLDER
from omnigraph.store.records import ScanRequest
from support.places import Place, repository_of, tree

COLUMNS = ("src", "dst", "name", "code", "age", "years", "note", "since")
"""Every column of the workload's schemas but `id`, in the order in which the model has them."""


def read_content(graph: Graph) -> dict[str, Content]:
    """Return the rows of every branch."""
    return {
        branch: snapshot_content(graph.snapshot_of(ReadTarget.branch(branch)))
        for branch in graph.branch_list()
    }


def snapshot_content(snapshot: Snapshot) -> Content:
    """Return the rows of every table without their ids, below the names of their columns."""
    return {key: _rows(snapshot, key) for key in snapshot.entries}


def _rows(snapshot: Snapshot, key: str) -> list[tuple[object, ...]]:
    handle = snapshot.open(key)
    assert set(handle.schema.names) <= {"id", *COLUMNS}
    names = [name for name in COLUMNS if name in handle.schema.names]
    rows = handle.scan(ScanRequest(columns=tuple(names))).read_all()
    assert rows.num_rows == snapshot.entry(key).row_count, f"{key} has another number of rows"
    columns = [rows[name].to_pylist() for name in names]
    return [tuple(names), *sorted(zip(*columns, strict=True), key=repr)]


def pending_records(place: Place) -> dict[str, str]:
    """Return the intent records that lie there, by operation."""
    objects = place.store().objects
    return {
        Path(info.path).stem: objects.get(info.path).data.decode() for info in objects.list(FOLDER)
    }


def check_sound(graph: Graph) -> None:
    """Every head is published, nothing is pending, no edge dangles, history is one chain."""
    repository = repository_of(graph)
    assert graph.recovery_status() == []
    for branch in graph.branch_list():
        snapshot = graph.snapshot_of(ReadTarget.branch(branch))
        for key, entry in snapshot.entries.items():
            head = repository.store.datasets.head_version(entry.location, branch=entry.table_branch)
            if entry.owner_branch == snapshot.incarnation.text:
                assert head == entry.table_version, f"{key} on {branch}: the head is {head}"
            else:
                assert head >= entry.table_version, f"{key} on {branch}: the head is {head}"
        check_chain(graph, branch)


def check_chain(graph: Graph, branch: str) -> None:
    """Every commit has the one below it as its parent."""
    listed = graph.list_commits(branch)
    parents = [commit.parent_commit_id for commit in listed]
    assert parents == [*(commit.graph_commit_id for commit in listed[1:]), None]
    assert len({commit.graph_commit_id for commit in listed}) == len(listed)


def check_no_dangling_edges(graph: Graph, branch: str = "main") -> None:
    """The ends of every edge exist."""
    snapshot = graph.snapshot_of(ReadTarget.branch(branch))
    for edge in graph.catalog().edge_types.values():
        rows = snapshot.open(edge.table_key).scan(ScanRequest(columns=("src", "dst"))).read_all()
        for column, node_type in (("src", edge.from_type), ("dst", edge.to_type)):
            handle = snapshot.open(f"node:{node_type}")
            known = set(handle.scan(ScanRequest(columns=("id",))).read_all()["id"].to_pylist())
            assert set(rows[column].to_pylist()) <= known, f"{edge.name} has a dangling {column}"


def check_audit(graph: Graph, operations: Iterable[str]) -> None:
    """Exactly these operations have been settled by recovery, each once."""
    audited = [record.operation_id for record in graph.recovery_list()]
    assert len(set(audited)) == len(audited), "an operation was settled twice"
    assert set(audited) == set(operations)


def check_derived(graph: Graph) -> None:
    """The derived commit table has every commit of `main` once."""
    datasets = repository_of(graph).store.datasets
    rows = datasets.open(COMMITS).scan(ScanRequest(columns=("graph_commit_id",))).read_all()
    recorded = rows["graph_commit_id"].to_pylist()
    assert len(set(recorded)) == len(recorded)
    assert {commit.graph_commit_id for commit in graph.list_commits("main")} <= set(recorded)


def check_opening_changes_nothing(place: Place) -> None:
    """A second open after recovery finds nothing to do."""
    before = tree(Path(place.uri)) if place.is_local else _objects(place)
    place.open().close()
    after = tree(Path(place.uri)) if place.is_local else _objects(place)
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    assert changed == [], f"a second open changes {changed}"


def _objects(place: Place) -> dict[str, tuple[int, str]]:
    """Everything below the root but leases, which change with every lock."""
    return {
        info.path: (info.size, info.tag)
        for info in place.store().objects.list()
        if not info.path.startswith("__leases")
    }
