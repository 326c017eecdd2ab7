"""What the driver of a bulk load does, with tasks that run in this process."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph import failpoints
from omnigraph.engine import EngineDeclinedError
from omnigraph.errors import UnavailableError
from omnigraph.graph import Graph, Snapshot
from omnigraph.manifest import checksums
from omnigraph.manifest.errors import ExpectedVersionMismatchError
from omnigraph.names import BranchName
from omnigraph.schema import EntityType
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.spark.load import commit as load_commit
from omnigraph.spark.load import proofs as load_proofs
from omnigraph.spark.load import tasks as load_tasks
from omnigraph.spark.load.inputs import plan_lines, plan_tables
from omnigraph.spark.load.loaded_rows import SparkRows
from omnigraph.spark.load.run import LoadRun
from omnigraph.spark.load.workers import Tuning
from omnigraph.store.digests import HASHED_AT_ONCE_BYTES
from omnigraph.store.records import ScanRequest
from omnigraph.store.uri import Root
from omnigraph.write.load.formats.description import SourceSpecError
from omnigraph.write.load.input.source import record_files
from omnigraph.write.load.stage import StagedTable
from omnigraph.write.rules import validate
from omnigraph.write.rules.check import RuleCheck
from omnigraph.write.rules.violations import KeyConflictError, ValidationError, Violation
from omnigraph.write.stage.delta import WriteMode
from support.inline_jobs import InlineJobs, inline_load
from support.loads import graph_lines
from support.places import Place, repository_of
from support.s3 import serve_s3

SCHEMA = """\
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
APPEND, MERGE, OVERWRITE = WriteMode.APPEND, WriteMode.MERGE, WriteMode.OVERWRITE
IN_TASKS = Tuning(driver_rows_max=0)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(str(tmp_path / "graph"), SCHEMA, durability="process") as made:
        yield made


def people(*names: str, age: int = 1) -> dict[str, pa.Table]:
    ages = pa.array([age] * len(names), pa.int32())
    return {"Person": pa.table({"name": pa.array(names, pa.utf8()), "age": ages})}


def knows(source: str, target: str) -> dict[str, pa.Table]:
    return {"Knows": pa.table({"src": [source], "dst": [target]})}


def test_a_graph_that_was_made_again_at_the_same_place_is_read_anew(tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        shutil.rmtree(tmp_path / "graph", ignore_errors=True)
        with Graph.init(str(tmp_path / "graph"), SCHEMA, durability="process") as graph:
            inline_load(graph, people(name), mode=APPEND, tuning=IN_TASKS)
            inline_load(graph, knows(name, name), mode=APPEND, tuning=IN_TASKS)
            assert len(graph_lines(graph)) == 2


def test_rows_that_were_staged_for_another_lineage_are_written_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline_load(graph, people("ann"), mode=APPEND)
    graph.branch_create("dev")
    stage = SparkRows.stage
    attempts = []

    def overtaken(self: SparkRows, snapshot: Snapshot) -> dict[str, StagedTable]:
        found = stage(self, snapshot)
        attempts.append(snapshot)
        if len(attempts) == 1:
            graph.load(people("zoe"), mode="append", branch="dev", engine="local")
        return found

    monkeypatch.setattr(SparkRows, "stage", overtaken)
    inline_load(graph, people("bob"), mode=APPEND, target=BranchName("dev"))
    assert len(attempts) == 2
    with Graph.open(graph.uri, branch="dev") as dev:
        assert [line.split()[1] for line in graph_lines(dev)] == ["ann", "bob", "zoe"]
    assert len(graph_lines(graph)) == 1


def test_a_rule_without_a_proof_is_run_over_the_staged_rows(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_ages(entity_type: EntityType, check: RuleCheck) -> None:
        rows = check.rows(entity_type)
        if rows is not None and entity_type.name == "Person":
            first = np.zeros(1, np.int64)
            (age,) = rows.pick(first, ("age",))["age"].to_pylist()
            (position,) = rows.positions(first)
            violation = Violation(position, "Person", "age", str(age), "age", "W2", f"age {age}")
            check.findings.add(0, violation)

    for module in (validate, load_proofs):
        monkeypatch.setattr(module, "RULES", (*validate.RULES, (check_ages,)))
    with pytest.raises(ValidationError, match="age 7"):
        inline_load(graph, people("ann", age=7), mode=APPEND, tuning=IN_TASKS)


@pytest.mark.parametrize("mode", [APPEND, MERGE])
def test_ends_are_looked_up_again_when_their_nodes_have_moved(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, mode: WriteMode
) -> None:
    inline_load(graph, people("ann", "bob"), mode=APPEND)
    stage = SparkRows.stage
    attempts = []

    def overtaken(self: SparkRows, snapshot: Snapshot) -> dict[str, StagedTable]:
        found = stage(self, snapshot)
        attempts.append(snapshot)
        if len(attempts) == 1:
            graph.mutate('query q() { delete Person where name = "bob" }')
        return found

    monkeypatch.setattr(SparkRows, "stage", overtaken)
    with pytest.raises(ValidationError, match="dst 'bob' not found in Person"):
        inline_load(graph, knows("ann", "bob"), mode=mode)
    assert [line.split()[1] for line in graph_lines(graph)] == ["ann"]


def test_a_few_ids_are_looked_up_by_the_index(graph: Graph) -> None:
    inline_load(graph, people("ann", "bob"), mode=APPEND)
    jobs = InlineJobs()
    inline_load(graph, people("cas"), mode=APPEND, jobs=jobs, tuning=IN_TASKS)
    assert "reading stored ids" not in jobs.stages
    with pytest.raises(KeyConflictError, match="'bob' of type Person already exists"):
        inline_load(graph, people("bob"), mode=APPEND, tuning=IN_TASKS)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("probes", [2_048, 0])
def test_the_ends_of_few_edges_are_looked_for_among_the_stored_nodes(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probes: int, *, is_known: bool
) -> None:
    inline_load(graph, people(*(f"p{n}" for n in range(9))), mode=APPEND)
    monkeypatch.setattr(load_proofs, "PROBES_MAX", probes)
    monkeypatch.setattr(LoadRun, "node_sets", None)
    own = people("new") | knows("p3", "new" if is_known else "nobody")
    paths = {name: str(tmp_path / f"{name}.parquet") for name in own}
    for name, table in own.items():
        pq.write_table(table, paths[name])
    if is_known:
        assert inline_load(graph, paths, mode=MERGE).inserted == 2
        return
    with pytest.raises(ValidationError, match="dst 'nobody' not found in Person"):
        inline_load(graph, paths, mode=MERGE)


def test_a_merge_of_few_rows_leaves_equal_ones_alone_and_keeps_row_ids(graph: Graph) -> None:
    names = [f"p{n}" for n in range(40)]
    inline_load(graph, people(*names), mode=APPEND)
    before = row_ids(graph)
    few = pa.table({"name": ["p7", "p8", "q"], "age": pa.array([1, 2, 3], pa.int32())})
    result = inline_load(graph, {"Person": few}, mode=MERGE, tuning=IN_TASKS)
    assert (result.inserted, result.updated, result.unchanged) == (1, 1, 1)
    assert {name: row for name, row in row_ids(graph).items() if name != "q"} == before


@pytest.mark.parametrize("branch", ["main", "dev"])
@pytest.mark.parametrize("tuning", [None, IN_TASKS])
def test_tasks_take_edges_along_with_the_nodes_that_an_overwrite_removes(
    graph: Graph, tuning: Tuning | None, branch: str
) -> None:
    names = [f"p{n}" for n in range(6)]
    ring = pa.table({"src": names, "dst": [*names[1:], names[0]]})
    inline_load(graph, people(*names) | {"Knows": ring}, mode=APPEND)
    if branch != "main":
        graph.branch_create(branch)
    target = BranchName(branch)
    with pytest.raises(ValidationError, match="not found in Person"):
        inline_load(graph, people("p1", "p2"), mode=OVERWRITE, target=target, tuning=tuning)
    jobs = InlineJobs()
    result = inline_load(
        graph,
        people("p1", "p2", "p3"),
        mode=OVERWRITE,
        cascade=True,
        target=target,
        tuning=tuning,
        jobs=jobs,
    )
    assert result.cascaded == {"Knows": 4}
    assert ("removing edges" in jobs.stages) is (tuning is IN_TASKS)
    with Graph.open(graph.uri, branch=branch) as changed:
        edges = [line for line in graph_lines(changed) if line.startswith("Knows")]
        assert [line.split()[2] for line in edges] == ["p1->p2", "p2->p3"]


def test_edges_that_must_stay_are_counted_before_others_go(tmp_path: Path) -> None:
    schema = SCHEMA + "edge Must: Person -> Person @card(1..)"
    with Graph.init(str(tmp_path / "must"), schema, durability="process") as graph:
        must = {"Must": pa.table({"src": ["ann", "ann"], "dst": ["bob", "cas"]})}
        inline_load(graph, people("ann", "bob", "cas") | must, mode=APPEND)
        kept = inline_load(graph, people("ann", "bob"), mode=OVERWRITE, cascade=True)
        assert kept.cascaded == {"Must": 1}
        with pytest.raises(ValidationError, match="source 'ann' has 0 edges"):
            inline_load(graph, people("ann"), mode=OVERWRITE, cascade=True)


def test_ids_in_another_spelling_are_left_to_one_process(tmp_path: Path) -> None:
    schema = "node Item { n: I32 @key }\nedge Next: Item -> Item"
    path = tmp_path / "in.json"
    path.write_text('{"type": "Item", "data": {"id": "007", "n": 7}} {"type": "Item",\n')
    with path.open("a") as file:
        file.write('"data": {"n": 8}}')
    compatible = ConversionMode.COMPATIBLE
    with Graph.init(str(tmp_path / "spelled"), schema, durability="process") as graph:
        # Without edges nobody needs the other spelling.
        assert inline_load(graph, path, mode=APPEND, conversion=compatible).inserted == 2
        with path.open("a") as file:
            file.write('{"edge": "Next", "from": "007", "to": "8"}')
        with pytest.raises(EngineDeclinedError, match="spells ids of Item in its own way"):
            inline_load(graph, path, mode=MERGE, conversion=compatible)


def row_ids(graph: Graph) -> dict[str, int]:
    request = ScanRequest(columns=("id",), with_row_id=True)
    rows = graph.snapshot().open("node:Person").scan(request).read_all()
    return dict(zip(rows["id"].to_pylist(), rows["_rowid"].to_pylist(), strict=True))


def test_on_an_object_store_a_set_is_fetched_once_per_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with serve_s3() as server:
        place = Place(f"s3://{server.bucket}/bulk/graph", server.options)
        with place.init(SCHEMA) as graph:
            tables = people("ann", "bob") | knows("ann", "bob")
            with server.requests() as requests:
                inline_load(graph, tables, mode=APPEND, tuning=IN_TASKS)
                inline_load(graph, people("bob", age=2), mode=MERGE, tuning=IN_TASKS)
            assert graph_lines(graph)[-1] == 'Person bob {"age": 2, "name": "bob"}'
            sets = [one for one in requests if "/set-node-Person" in one.path]
            fetched = [one.path for one in sets if one.method == "GET" and "?" not in one.path]
            assert len(fetched) == len(set(fetched)) > 0
            assert list(tmp_path.glob("omnigraph-sets-*")) == [], "the host is left as it was"


def test_small_fragments_are_written_together(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_commit, "SMALL_FRAGMENTS_MAX", 1)
    inline_load(graph, people("ann", "bob", "cas"), mode=APPEND)
    assert len(graph.snapshot().open("node:Person").fragments()) == 1


def test_a_load_that_is_done_is_not_failed_by_tidying_up(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class StorageGoneError(UnavailableError):
        pass

    def fails(*_: Any) -> None:
        raise StorageGoneError("the storage is gone")

    monkeypatch.setattr("omnigraph.spark.load.side_files.SideFiles.remove", fails)
    assert inline_load(graph, people("ann"), mode=APPEND).inserted == 1
    assert "the storage is gone" in caplog.text


def test_the_record_of_a_load_names_its_tables_while_it_runs(graph: Graph) -> None:
    class Looking(InlineJobs):
        seen: str = ""

        def rows(self, *args: Any, **named: Any) -> list[Any]:
            (record,) = Path(graph.uri, "__staging").glob("*.json")
            self.seen = record.read_text()
            return super().rows(*args, **named)

    jobs = Looking()
    inline_load(graph, people("ann"), mode=APPEND, jobs=jobs)
    assert graph.snapshot().entry("node:Person").location in jobs.seen
    assert list(Path(graph.uri, "__staging").glob("*.json")) == []


@pytest.mark.parametrize("form", ["lines", "parquet"])
def test_every_piece_of_a_file_is_opened_once(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr("omnigraph.spark.load.inputs.LINES_BYTES_MIN", 200)
    monkeypatch.setattr("omnigraph.spark.load.inputs.ROWS_PER_TASK_MIN", 10)
    names = [f"p{n}" for n in range(40)]
    source: object
    if form == "lines":
        source = tmp_path / "in.jsonl"
        records = ({"type": "Person", "data": {"name": name}} for name in names)
        source.write_text("\n".join(map(json.dumps, records)))
    else:
        source = {"Person": str(tmp_path / "in.parquet")}
        pq.write_table(people(*names)["Person"], tmp_path / "in.parquet", row_group_size=10)
    opened: Counter[str] = Counter()
    for reader in ("_lines", "_parquet_batches"):
        read = getattr(load_tasks, reader)

        def counted(*asked: Any, read: Any = read) -> Any:
            opened[repr(asked)] += 1
            return read(*asked)

        monkeypatch.setattr(load_tasks, reader, counted)
    assert inline_load(graph, source, mode=MERGE, tuning=IN_TASKS).inserted == 40
    assert len(opened) > 1
    assert set(opened.values()) == {1}


def test_lines_are_split_where_they_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.spark.load.inputs.LINES_BYTES_MIN", 7)
    path = tmp_path / "in.jsonl"
    names = [f"p{n}" for n in range(40)]
    path.write_text("\n".join(f'{{"type": "Person", "data": {{"name": "{n}"}}}}' for n in names))
    plan = plan_lines(record_files(path), parallelism=100)
    assert len(plan.lines) > 10
    with Graph.init(str(tmp_path / "graph"), SCHEMA, durability="process") as graph:
        result = inline_load(graph, path, mode=APPEND)
        assert result.inserted == 40
        assert sorted(line.split()[1] for line in graph_lines(graph)) == sorted(names)
        with path.open("a") as file:
            file.write('\n{"type": "Person", "data": {"name": 7}}\n')
        with pytest.raises(ValidationError, match=r"^line 41: "):
            inline_load(graph, path, mode=MERGE)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"paht": "x"}, "unknown entry 'paht'; did you mean 'path'"),
        ({"format": "csv"}, "expected one of 'path' and 'table'"),
    ],
)
def test_a_description_of_a_source_that_nobody_can_read_is_refused(
    graph: Graph, spec: dict[str, str], words: str
) -> None:
    unused: Any = None
    with pytest.raises(SourceSpecError, match=words):
        plan_tables({"Person": spec}, graph.catalog(), unused, parallelism=1)


def test_tasks_hash_what_they_write_and_the_driver_reads_none_of_it_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    plain = checksums.hash_file

    def noted(root: Root, path: str) -> tuple[int, str]:
        measured.append(path)
        return plain(root, path)

    monkeypatch.setattr(checksums, "hash_file", noted)
    names = [f"{number:06}{number * 7919 % 1_000_003}" for number in range(20_000)]
    inline_load(graph, people(*names), mode=APPEND, tuning=IN_TASKS)
    report = graph.scrub()
    assert (report.damaged, report.without_checksum) == ((), ())
    root = Path(graph.uri)
    large = [path for path in measured if (root / path).stat().st_size >= HASHED_AT_ONCE_BYTES]
    assert measured
    assert large == []
    stored = graph.snapshot().open("node:Person").fragments()
    assert sum(fragment.data_bytes for fragment in stored) >= HASHED_AT_ONCE_BYTES


def test_an_overwrite_that_starts_over_after_maintenance_replaces_no_commit_of_others(
    graph: Graph,
) -> None:
    for name in ("a", "b", "c"):
        inline_load(graph, people(name), mode=APPEND)
    other = Graph.open(graph.uri, durability="process")

    def maintain_then_write() -> None:
        failpoints.disarm()
        other.optimize()
        clock = repository_of(graph).clock
        inner = clock.sleep

        def write_and_sleep(seconds: float) -> None:
            clock.sleep = inner  # type: ignore[method-assign]  # once
            other.mutate('query q() { insert Person { name: "late" } }')
            inner(seconds)

        clock.sleep = write_and_sleep  # type: ignore[method-assign]  # between two attempts

    failpoints.arm("write.post_stage", maintain_then_write)
    try:
        with pytest.raises(ExpectedVersionMismatchError):
            inline_load(graph, people("new"), mode=OVERWRITE, tuning=IN_TASKS)
    finally:
        failpoints.disarm()
    assert "late" in "".join(map(str, graph_lines(graph)))
