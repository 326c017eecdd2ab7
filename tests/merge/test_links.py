"""Merges that take over files: the same outcome as merges that write rows, and nothing is read."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import failpoints
from omnigraph.graph import Graph, ReadTarget
from omnigraph.merge.conflicts import MergeConflictError, ReadSetConflictError
from omnigraph.merge.links import LinkedTable, LinkLimits
from omnigraph.merge.stage import Staging, stage_linked_table
from omnigraph.store.errors import CopyRefusedError
from omnigraph.store.lance.store import LanceStore
from omnigraph.store.objects.local import LocalObjectStore
from omnigraph.store.records import (
    ROW_CREATED,
    ROW_ID,
    ROW_UPDATED,
    DatasetVersion,
    LinkedRows,
    ScanRequest,
    StagedTransaction,
)
from omnigraph.write.commit.job import TableWrite
from support.linked import EVERY_TABLE, NO_TABLE, link_limits, links_of_any_size
from support.places import repository_of

SCHEMA = """
node Doc {
    slug: String @key
    note: String?
    at: Vector(2)?
    code: String? @unique
}
node Tag { name: String @key }
edge Cites: Doc -> Doc @card(0..2) { weight: F64? }
"""

Scene = Callable[[Graph], None]
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def engine() -> str:
    """Tables are linked by the process that merges, also where tasks compare the others."""
    return "local"


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that were linked, in their order."""
    seen: list[str] = []
    stage = LanceStore.stage_linked

    def staged(store: LanceStore, base: DatasetVersion, rows: LinkedRows) -> StagedTransaction:
        seen.append(base.location.split("/")[0])
        return stage(store, base, rows)

    create = LanceStore.stage_linked_create

    def created(
        store: LanceStore, location: str, schema: pa.Schema, source: DatasetVersion
    ) -> StagedTransaction | None:
        made = create(store, location, schema, source)
        if made is not None:
            seen.append(f"new {location.split('/', maxsplit=1)[0]}")
        return made

    monkeypatch.setattr(LanceStore, "stage_linked", staged)
    monkeypatch.setattr(LanceStore, "stage_linked_create", created)
    return seen


def started(root: Path, *, checksums: bool = True) -> Graph:
    graph = Graph.init(
        str(root), SCHEMA, durability="process", auto_optimize=False, checksums=checksums
    )
    docs(graph, "main", *(f"d{number}" for number in range(10)))
    cites(graph, "main", "d0", "d1")
    graph.branch_create("draft")
    return graph


def docs(graph: Graph, branch: str, *names: str, note: str = "old") -> None:
    lines = [json.dumps({"type": "Doc", "data": {"slug": n, "note": note}}) for n in names]
    graph.load("\n".join(lines).encode(), mode="merge", branch=branch)


def cites(graph: Graph, branch: str, source: str, target: str) -> None:
    line = json.dumps({"edge": "Cites", "from": source, "to": target, "data": {}})
    graph.load(line.encode(), mode="append", branch=branch)


def deleted(graph: Graph, branch: str, *names: str) -> None:
    for name in names:
        graph.mutate(f'query q() {{ delete Doc where slug = "{name}" }}', branch=branch)


# -- what both paths come to -----------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What a merge says, and what the target holds then."""

    outcome: str
    counts: tuple[object, ...]
    rows: dict[str, list[Row]]
    changes: list[Row]


def rows_of(graph: Graph, table: str, branch: str = "main") -> list[Row]:
    """Return the rows with their versions; ids of edges differ from graph to graph."""
    handle = graph.snapshot_of(ReadTarget.branch(branch)).open(table)
    names = (*handle.schema.names, ROW_CREATED, ROW_UPDATED)
    found = handle.scan(ScanRequest(columns=names)).read_all().to_pylist()
    if table.startswith("edge:"):
        found = [{key: value for key, value in row.items() if key != "id"} for row in found]
    return sorted(found, key=repr)


def tables_of(graph: Graph, branch: str) -> list[str]:
    return sorted(graph.snapshot_of(ReadTarget.branch(branch)).entries)


def changes_of(graph: Graph, commit_id: str) -> list[Row]:
    page = graph.commit_changes(commit_id)
    found = [json.loads(json.dumps(change)) for change in page.changes]
    for change in found:
        change["type"] = change["type"]["name"]
        if change["kind"] == "edge":
            del change["id"]
    return sorted(found, key=repr)


def merged(graph: Graph, limits: LinkLimits, target: str = "main") -> Outcome:
    with link_limits(limits):
        planned = graph.branch_merge("draft", target, dry_run=True)
        result = graph.branch_merge("draft", target)
    assert result.commit is not None
    assert (planned.outcome, planned.counts) == (result.outcome, result.counts)
    return Outcome(
        str(result.outcome),
        result.counts,
        {table: rows_of(graph, table, target) for table in tables_of(graph, target)},
        changes_of(graph, result.commit.graph_commit_id),
    )


def inserts(graph: Graph) -> None:
    docs(graph, "draft", "n1", "n2")
    cites(graph, "draft", "n1", "d1")


def updates(graph: Graph) -> None:
    docs(graph, "draft", "d1", "d3", note="new")
    docs(graph, "draft", "d3", "d5", note="newer")


def deletes(graph: Graph) -> None:
    deleted(graph, "draft", "d0", "d7")


def everything(graph: Graph) -> None:
    docs(graph, "draft", "n1", "n2", "n3")
    docs(graph, "draft", "d1", "n1", "d9", note="new")
    deleted(graph, "draft", "n3", "d2", "d9")
    cites(graph, "draft", "n1", "d1")
    docs(graph, "draft", "n4", "d4", note="last")


def all_rows(graph: Graph) -> None:
    docs(graph, "draft", *(f"d{number}" for number in range(10)), note="new")


def other_tables_moved(graph: Graph) -> None:
    everything(graph)
    graph.mutate('query q() { insert Tag { name: "t" } }')


def indexed(graph: Graph) -> None:
    updates(graph)
    graph.ensure_indices()


def returned(graph: Graph) -> None:
    deleted(graph, "draft", "d3", "d4")
    docs(graph, "draft", "d3", "n1", note="back")


def overwritten(graph: Graph) -> None:
    line = {"type": "Doc", "data": {"slug": "d1", "note": "alone"}}
    graph.load(json.dumps(line).encode(), mode="overwrite", branch="draft", cascade=True)


def another_type(graph: Graph) -> None:
    graph.apply_schema(f"{SCHEMA}\nnode Extra {{ name: String @key }}\n", branch="draft")
    everything(graph)
    graph.mutate('query q() { insert Extra { name: "x" } }', branch="draft")


def another_type_with_deleted_rows(graph: Graph) -> None:
    another_type(graph)
    graph.mutate(
        'query q() { insert Extra { name: "y" } insert Extra { name: "z" } }', branch="draft"
    )
    graph.mutate('query q() { delete Extra where name = "y" }', branch="draft")


def another_column(graph: Graph) -> None:
    wider = SCHEMA.replace("note: String?", "note: String?\n    rank: I32?")
    graph.apply_schema(wider, branch="draft")
    everything(graph)


def both_sides(graph: Graph) -> None:
    everything(graph)
    docs(graph, "main", "m1")


def changed_and_back(graph: Graph) -> None:
    """The target has the rows of the base, and has given away the row ids that come next."""
    everything(graph)
    docs(graph, "main", "m1")
    deleted(graph, "main", "m1")


LINKED: dict[str, tuple[Scene, list[str]]] = {
    "inserts": (inserts, ["edges", "nodes"]),
    "updates": (updates, ["nodes"]),
    "deletes": (deletes, ["edges", "nodes"]),
    "everything": (everything, ["edges", "nodes"]),
    "all rows": (all_rows, ["nodes"]),
    "other tables moved": (other_tables_moved, ["edges", "nodes"]),
    "indexed since": (indexed, ["nodes"]),
    "deleted and back": (returned, []),
    "overwritten": (overwritten, ["edges"]),
    "another type": (another_type, ["edges", "nodes", "new nodes"]),
    "another type with deleted rows": (another_type_with_deleted_rows, ["edges", "nodes"]),
    "another column": (another_column, ["edges"]),
    "both sides": (both_sides, ["edges"]),
    "target changed and back": (changed_and_back, ["edges", "nodes"]),
}


@pytest.mark.parametrize("name", LINKED)
def test_links_come_to_what_written_rows_come_to(
    tmp_path: Path, linked: list[str], name: str
) -> None:
    scene, tables = LINKED[name]
    outcomes = []
    for limits in (NO_TABLE, EVERY_TABLE):
        with started(tmp_path / str(limits.rows_min)) as graph:
            scene(graph)
            before = row_ids(graph)
            outcomes.append(merged(graph, limits))
            after = row_ids(graph)
            assert len(set(after.values())) == len(after)
            assert {slug: after[slug] for slug in before.keys() & after.keys()} == {
                slug: before[slug] for slug in before.keys() & after.keys()
            }
            ours, theirs = (row_ids_of_files(graph, branch) for branch in ("draft", "main"))
            for file in ours.keys() & theirs.keys():
                assert ours[file] == theirs[file], "files of one name hold the same rows"
    assert outcomes[0] == outcomes[1]
    assert linked == tables


def row_ids_of_files(graph: Graph, branch: str) -> dict[str, tuple[int, ...]]:
    handle = graph.snapshot_of(ReadTarget.branch(branch)).open("node:Doc")
    return {
        fragment.data_identity: tuple(handle.row_ids(fragment.fragment_id).to_pylist())
        for fragment in handle.fragments()
    }


def row_ids(graph: Graph) -> dict[str, int]:
    handle = graph.snapshot_of(ReadTarget.branch("main")).open("node:Doc")
    found = handle.scan(ScanRequest(columns=("id",), with_row_id=True)).read_all()
    return dict(zip(found["id"].to_pylist(), found[ROW_ID].to_pylist(), strict=True))


def test_a_branch_that_owns_no_table_gets_files_of_its_own(
    tmp_path: Path, linked: list[str]
) -> None:
    with started(tmp_path / "graph") as graph:
        graph.branch_create_from("main", "other")
        everything(graph)
        assert merged(graph, EVERY_TABLE, "other").rows == merged(graph, NO_TABLE).rows
    assert linked == ["edges", "nodes"]


def test_a_merge_by_pointer_counts_without_reading(tmp_path: Path, linked: list[str]) -> None:
    counts = []
    for limits in (NO_TABLE, EVERY_TABLE):
        with started(tmp_path / str(limits.rows_min)) as graph, link_limits(limits):
            docs(graph, "main", "n1", "n2")
            docs(graph, "main", "d1", "n1", note="new")
            deleted(graph, "main", "d9")
            counts.append(graph.branch_merge("main", "draft").counts)
            entries = [
                graph.snapshot_of(ReadTarget.branch(branch)).entry("node:Doc").at
                for branch in ("main", "draft")
            ]
            assert entries[0] == entries[1]
    assert counts[0] == counts[1]
    assert linked == []


def test_large_differences_are_linked(tmp_path: Path, linked: list[str]) -> None:
    rows = pa.table({"slug": [f"n{number:05}" for number in range(9_000)]})
    with started(tmp_path / "graph") as graph:
        graph.load_tables(nodes={"Doc": rows}, mode="append", branch="draft")
        result = graph.branch_merge("draft")
        assert [each.inserted for each in result.counts] == [9_000]
        assert contents(graph, "main") == contents(graph, "draft")
    assert linked == ["nodes"]


def test_small_differences_are_written(tmp_path: Path, linked: list[str]) -> None:
    with started(tmp_path / "graph") as graph:
        everything(graph)
        graph.branch_merge("draft")
    assert linked == []


# -- again, and back -------------------------------------------------------------------------------


def test_a_branch_is_linked_again_after_it_was_merged(tmp_path: Path, linked: list[str]) -> None:
    """The second time the base is a version of the branch, and the target has its files."""
    with started(tmp_path / "graph") as graph, links_of_any_size():
        everything(graph)
        graph.branch_merge("draft")
        docs(graph, "draft", "n1", "d1", "n7", note="second")
        result = graph.branch_merge("draft")
        assert [each.to_json() for each in result.counts] == [
            {"type_key": "node:Doc", "insert": 1, "update": 2, "delete": 0}
        ]
        assert contents(graph, "main") == contents(graph, "draft")
        docs(graph, "main", "d1", "m1", note="mine")
        graph.branch_merge("main", "draft")
        assert contents(graph, "main") == contents(graph, "draft")
        docs(graph, "draft", "m1", "n8", note="third")
        graph.branch_merge("draft")
        assert contents(graph, "main") == contents(graph, "draft")
    assert linked[:3] == ["edges", "nodes", "nodes"]


def contents(graph: Graph, branch: str) -> dict[str, str]:
    handle = graph.snapshot_of(ReadTarget.branch(branch)).open("node:Doc")
    found = handle.scan(ScanRequest(columns=("id", "note"))).read_all()
    return dict(zip(found["id"].to_pylist(), found["note"].to_pylist(), strict=True))


def test_the_target_keeps_its_files_when_the_source_goes(tmp_path: Path) -> None:
    with started(tmp_path / "graph") as graph:
        everything(graph)
        before = graph.head_commit_id_for_branch("main")
        expected = contents(graph, "draft")
        with links_of_any_size():
            graph.branch_merge("draft")
        graph.branch_delete("draft")
        old = graph.snapshot_of(ReadTarget.commit(before)).open("node:Doc")
        assert old.count() == 10
        graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
        assert contents(graph, "main") == expected
        report = graph.scrub()
        assert (report.damaged, report.without_checksum) == ((), ())
        docs(graph, "main", "n9")
        assert len(set(row_ids(graph).values())) == len(row_ids(graph)) == len(expected) + 1
    with Graph.open(str(tmp_path / "graph")) as graph:
        assert contents(graph, "main") == expected | {"n9": "old"}
        assert graph.scrub().damaged == ()


def test_a_merge_that_was_put_back_is_made_again_while_its_old_version_is_removed(
    tmp_path: Path,
) -> None:
    """Removing versions takes no lock, and removes the files that only they name."""
    root = str(tmp_path / "graph")
    with started(tmp_path / "graph") as graph:
        everything(graph)
        deleted(graph, "draft", "d7")
        expected = contents(graph, "draft")
        failpoints.arm("write.post_phase_b_pre_manifest_commit")
        try:
            with links_of_any_size(), pytest.raises(failpoints.FailpointError):
                graph.branch_merge("draft")
        finally:
            failpoints.disarm()

    def clean() -> None:
        failpoints.disarm()
        with Graph.open(root, durability="process", auto_optimize=False) as other:
            other.cleanup(keep_versions=1, confirm=True)

    with Graph.open(root, durability="process", auto_optimize=False) as graph:
        assert contents(graph, "main") != expected
        failpoints.arm("recovery.sidecar_write", clean)
        try:
            with links_of_any_size():
                graph.branch_merge("draft")
        finally:
            failpoints.disarm()
        assert contents(graph, "main") == expected
        assert graph.scrub().damaged == ()


def test_cleanup_finds_the_names_that_a_dead_merge_has_left(tmp_path: Path) -> None:
    with started(tmp_path / "graph") as graph:
        everything(graph)
        datasets = repository_of(graph).store.datasets
        draft, main = (
            graph.snapshot_of(ReadTarget.branch(branch)).entry("node:Doc").at
            for branch in ("draft", "main")
        )
        rows = datasets.linked_rows(draft, main, base=main)
        assert rows is not None
        names = [tmp_path / "graph" / file.path for file in datasets.stage_linked(main, rows).files]
        assert names
        assert all(name.exists() for name in names)
        graph.cleanup(keep_versions=10, orphan_age_s=0, confirm=True)
        assert not any(name.exists() for name in names)
        expected = contents(graph, "draft")
        with links_of_any_size():
            graph.branch_merge("draft")
        assert contents(graph, "main") == contents(graph, "draft") == expected


def test_linked_files_take_the_checksums_of_their_first_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(tmp_path / "graph") as graph:
        docs(graph, "draft", *(f"n{number}" for number in range(20)))
        graph.scrub()
        first = data_files(graph, "draft") - data_files(graph, "main")
        with links_of_any_size():
            graph.branch_merge("draft")
        read: list[str] = []
        table = repository_of(graph).checksums
        measure = table._measure
        monkeypatch.setattr(
            table, "_measure", lambda paths: (read.extend(paths), measure(paths))[1]
        )
        report = graph.scrub()
        assert (report.damaged, report.without_checksum) == ((), ())
    assert first
    assert not [path for path in read if path.rpartition("/")[2] in first]


def data_files(graph: Graph, branch: str) -> set[str]:
    handle = graph.snapshot_of(ReadTarget.branch(branch)).open("node:Doc")
    return {fragment.data_identity for fragment in handle.fragments()}


def test_a_storage_without_second_names_gets_the_rows_written(
    tmp_path: Path, linked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_store: LocalObjectStore, _path: str, to_path: str) -> None:
        raise CopyRefusedError(path=to_path, reason="no links here")

    monkeypatch.setattr(LocalObjectStore, "copy", refused)
    with started(tmp_path / "graph") as graph:
        everything(graph)
        expected = contents(graph, "draft")
        with links_of_any_size():
            result = graph.branch_merge("draft")
        assert contents(graph, "main") == expected
        assert [each.inserted for each in result.counts] == [1, 3]
    assert linked == ["edges"]


@pytest.mark.parametrize("is_early", [True, False])
def test_a_source_that_was_made_again_is_not_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_early: bool
) -> None:
    with started(tmp_path / "graph") as graph:
        everything(graph)
        before = contents(graph, "main")

        def recreated(link: LinkedTable, staging: Staging) -> TableWrite:
            written = None if is_early else stage_linked_table(link, staging)
            with Graph.open(graph.uri, durability="process", auto_optimize=False) as other:
                if "draft" in other.branch_list():
                    other.branch_delete("draft")
                other.branch_create("draft")
                other.cleanup(keep_versions=10, orphan_age_s=0, confirm=True)
            monkeypatch.undo()
            return written or stage_linked_table(link, staging)

        monkeypatch.setattr("omnigraph.merge.commit.stage_linked_table", recreated)
        with (
            links_of_any_size(),
            pytest.raises(ReadSetConflictError, match="branch_merge_source_incarnation:draft"),
        ):
            graph.branch_merge("draft")
        assert contents(graph, "main") == before


# -- blobs -----------------------------------------------------------------------------------------


def test_blobs_of_every_size_are_linked(tmp_path: Path, linked: list[str]) -> None:
    """Large ones lie in files of their own."""
    contents = {"small": b"s" * 10, "middle": b"m" * 300_000, "large": b"l" * 6_000_000}
    with blob_graph(tmp_path / "graph") as graph:
        for name, content in contents.items():
            put_blob(graph, name, base64.b64encode(content).decode(), prefix="base64:")
        with links_of_any_size():
            graph.branch_merge("draft")
        graph.branch_delete("draft")
        graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
        assert blobs_of(graph) == contents
        report = graph.scrub()
        assert (report.damaged, report.without_checksum) == ((), ())
    assert linked == ["nodes"]


def test_external_blobs_become_bytes_of_the_graph(tmp_path: Path, linked: list[str]) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a.bin").write_bytes(b"outside")
    bases = [(tmp_path / "outside").as_uri() + "/"]
    with blob_graph(tmp_path / "graph") as graph:
        line = {"type": "File", "data": {"name": "a", "body": f"{bases[0]}a.bin"}}
        graph.load(
            json.dumps(line).encode(), mode="overwrite", branch="draft", external_blob_bases=bases
        )
        with links_of_any_size():
            graph.branch_merge("draft", external_blob_bases=bases)
        (tmp_path / "outside/a.bin").unlink()
        assert blobs_of(graph) == {"a": b"outside"}
    assert linked == []


def blob_graph(root: Path) -> Graph:
    schema = "node File { name: String @key   body: Blob? }"
    graph = Graph.init(str(root), schema, durability="process", auto_optimize=False)
    graph.branch_create("draft")
    return graph


def put_blob(graph: Graph, name: str, text: str, *, prefix: str) -> None:
    line = {"type": "File", "data": {"name": name, "body": prefix + text}}
    graph.load(json.dumps(line).encode(), mode="merge", branch="draft")


def blobs_of(graph: Graph) -> dict[str, bytes | None]:
    handle = graph.snapshot_of(ReadTarget.branch("main")).open("node:File")
    found = handle.scan(ScanRequest(columns=("id",), with_row_id=True)).read_all()
    contents = handle.read_blobs("body", found[ROW_ID].to_pylist())
    return dict(zip(found["id"].to_pylist(), contents, strict=True))


# -- rules -----------------------------------------------------------------------------------------


def test_rules_are_checked_where_the_target_has_moved(tmp_path: Path) -> None:
    with started(tmp_path / "graph") as graph:
        cites(graph, "draft", "d5", "d6")
        cites(graph, "draft", "d6", "d7")
        deleted(graph, "main", "d6")
        found = []
        for limits in (NO_TABLE, EVERY_TABLE):
            with link_limits(limits), pytest.raises(MergeConflictError) as caught:
                graph.branch_merge("draft")
            found.append([conflict.message for conflict in caught.value.conflicts])
    assert found[0] == found[1]
    assert sorted(found[1]) == ["dst 'd6' not found in Doc", "src 'd6' not found in Doc"]


def test_an_edge_of_the_target_keeps_its_node(tmp_path: Path) -> None:
    """The nodes are linked, the edges are not: both are checked together."""
    with started(tmp_path / "graph") as graph:
        docs(graph, "draft", "n1")
        deleted(graph, "draft", "d9")
        cites(graph, "main", "d8", "d9")
        with links_of_any_size(), pytest.raises(MergeConflictError) as caught:
            graph.branch_merge("draft")
        assert [each.message for each in caught.value.conflicts] == ["dst 'd9' not found in Doc"]
        graph.mutate('query q() { delete Cites where to = "d9" }')
        cites(graph, "draft", "n1", "d1")
        with links_of_any_size():
            graph.branch_merge("draft")
        assert "d9" not in contents(graph, "main")
        assert len(rows_of(graph, "edge:Cites")) == 2
