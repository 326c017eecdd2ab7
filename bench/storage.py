"""What branches, snapshots and publishes cost, and how that grows.

Branches are created and deleted on graphs of 10 and of 1,000 types, after 10 and 10,000 commits,
on a local disk and over the S3 protocol, where requests are counted as they arrive. The peer is one
raw `create_branch` of Lance on the manifest dataset of the same graph.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lance

from omnigraph import Graph
from omnigraph.maintenance.background import tail_to_compact
from omnigraph.manifest import CommitDraft, Repository, Requirements, Updates
from omnigraph.manifest.compact import compact_manifest
from omnigraph.manifest.layout import MAIN_INCARNATION
from support.s3 import S3Server, serve_s3

ROUNDS = 11
COMMITS_MANY = 10_000
TYPES_MANY = 1_000


def schema(types: int) -> str:
    """Return a schema of so many node types."""
    return "\n".join(f"node Type{n} {{ name: String @key }}" for n in range(types))


def publish_one(repository: Repository) -> None:
    """Publish a commit that moves every third table entry it finds: here, the first one."""
    state = repository.reader.latest(MAIN_INCARNATION)
    entry = next(iter(state.entries.values()))
    repository.publisher.publish(
        MAIN_INCARNATION,
        draft=CommitDraft(
            repository.clock.ulid(), "load", None, created_at=repository.clock.now_us()
        ),
        requirements=Requirements(written={entry.table_key: entry}),
        updates=Updates(entries=(entry,)),
    )


def grow(repository: Repository, commits: int) -> None:
    """Publish so many commits, and compact as small writes do."""
    for _ in range(commits):
        publish_one(repository)
        reader = repository.reader
        options = tail_to_compact(
            reader.open(MAIN_INCARNATION, reader.head_version(MAIN_INCARNATION)).fragments()
        )
        if options is not None:
            compact_manifest(repository, MAIN_INCARNATION, options)


def median_ms(act: Callable[[int], object], rounds: int = ROUNDS) -> float:
    """Return the median time of `act(round)`."""
    times = []
    for number in range(rounds):
        start = time.perf_counter()
        act(number)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def raw_branch_ms(root: str) -> float:
    """Return what Lance alone needs to cut a branch of the manifest dataset."""
    dataset = lance.dataset(f"{root}/__manifest")
    taken = median_ms(lambda n: dataset.create_branch(f"raw{n}"))
    for number in range(ROUNDS):
        dataset.branches.delete(f"raw{number}")
    return taken


def branch_costs(graph: Graph) -> tuple[float, float]:
    """Return the times of creating and of deleting a branch."""
    create = median_ms(lambda n: graph.branch_create(f"b{n}"))
    delete = median_ms(lambda n: graph.branch_delete(f"b{n}"))
    return create, delete


def upload(folder: Path, server: S3Server, prefix: str) -> str:
    """Copy a graph from disk to the server; return its address there."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        server.bucket, prefix=prefix, config=server.options, client_options={"allow_http": True}
    )
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            obstore.put(store, str(file.relative_to(folder)), file.read_bytes())
    return f"s3://{server.bucket}/{prefix}"


def counted(server: S3Server, act: Callable[[], object]) -> int:
    """Return how many requests arrive while `act` runs."""
    with server.requests() as seen:
        act()
    return len(seen)


def measure_branches(name: str, folder: Path, server: S3Server) -> None:
    """Print one row: times on disk, requests over S3."""
    local = Graph.open(str(folder))
    create, delete = branch_costs(local)
    raw = raw_branch_ms(str(folder))
    remote = Graph.open(upload(folder, server, name), storage_options=server.options)
    created = counted(server, lambda: remote.branch_create("counted"))
    deleted = counted(server, lambda: remote.branch_delete("counted"))
    print(
        f"| {name} | {create:.1f} | {delete:.1f} | {raw:.1f} | {create / raw:.1f} |"
        f" {created} | {deleted} |",
        flush=True,
    )


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as scratch, serve_s3() as server:
        print(
            "| graph | create, ms | delete, ms | raw Lance create_branch, ms | ratio |"
            " S3 requests to create | to delete |"
        )
        print("|---|---|---|---|---|---|---|")
        for types in (10, TYPES_MANY):
            root = Path(scratch) / f"types-{types}"
            Graph.init(str(root), schema(types), durability="process")
            measure_branches(f"{types} types", root, server)
        for commits in (10, COMMITS_MANY):
            root = Path(scratch) / f"commits-{commits}"
            graph = Graph.init(str(root), schema(10), durability="process")
            grow(graph._session.repository, commits)
            measure_branches(f"{commits} commits", root, server)
        measure_publishes(Path(scratch))


def measure_publishes(scratch: Path) -> None:
    """Print what a publish and a warm snapshot cost, fresh and after 1,000 commits."""
    print("\n| state | publish p50, ms | warm snapshot, ms |")
    print("|---|---|---|")
    for name, tidied in (("with tidying", True), ("without", False)):
        root = scratch / f"publish-{tidied}"
        graph = Graph.init(str(root), schema(10), durability="full")
        repository = graph._session.repository
        for label, commits in (("fresh", 0), ("after 1,000 commits", 1_000)):
            if tidied:
                grow(repository, commits)
            else:
                for _ in range(commits):
                    publish_one(repository)
            publish = median_ms(lambda _, r=repository: publish_one(r), rounds=21)
            graph.snapshot()
            snapshot = median_ms(lambda _, g=graph: g.snapshot(), rounds=101)
            print(f"| {label}, {name} | {publish:.1f} | {snapshot:.3f} |", flush=True)


if __name__ == "__main__":
    main()
