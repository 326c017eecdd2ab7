"""Loads as a whole: where they go, what they return, how they fail and how they race."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import ConflictError, InvalidInputError, NotFoundError
from omnigraph.failpoints import arm, disarm
from omnigraph.graph import Graph, LoadResult, OpenMode
from omnigraph.manifest.errors import ExpectedVersionMismatchError
from omnigraph.names import BranchName
from omnigraph.store.errors import StorageFullError
from omnigraph.store.lance.handle import LanceHandle
from omnigraph.write.commit.attempts import OPTIMISTIC_ATTEMPTS_MAX
from omnigraph.write.load.formats.files import InputUnreadableError
from omnigraph.write.load.input.source import RecordSource
from omnigraph.write.load.loader import Loader
from omnigraph.write.load.options import LoadOptions
from omnigraph.write.load.rows.spool import SpoolBudget
from omnigraph.write.load.workers import LocalLoadWorkers
from omnigraph.write.rules.violations import VIOLATIONS_MAX, KeyConflictError, ValidationError
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.external_blobs import BlobSourceUnreadableError
from support.interrupts import interrupt
from support.loads import graph_lines
from support.places import Place, repository_of, session_of

SCHEMA = """
node Person { name: String @key  age: I32?  mail: String? @unique  @range(age, 0..150) }
node City { name: String @key }
edge Knows: Person -> Person
edge LivesIn: Person -> City
"""


@pytest.fixture
def graph(local_place: Place) -> Graph:
    return local_place.init(SCHEMA)


def person(name: str, **data: object) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, **data}}


def knows(source: str, target: str) -> dict[str, object]:
    return {"edge": "Knows", "from": source, "to": target}


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def names(graph: Graph, branch: str | None = None) -> list[str]:
    return [line.split()[1] for line in graph_lines(graph, branch) if line.startswith("Person ")]


# -- input ----------------------------------------------------------------------------------------


def test_a_path_bytes_and_an_open_file_are_the_same_input(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "people.jsonl"
    path.write_bytes(lines(person("a")))
    graph.load(path, mode="append")
    graph.load(str(path), mode="merge")
    graph.load(lines(person("b")), mode="append")
    with BytesIO(lines(person("c"))) as file:
        graph.load(file, mode="append")
    assert names(graph) == ["a", "b", "c"]


def test_an_input_that_is_not_there_is_a_typed_error(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read: No such file"):
        graph.load(tmp_path / "nowhere.jsonl", mode="append")


def test_a_last_line_without_an_end_and_carriage_returns_are_fine(graph: Graph) -> None:
    graph.load(lines(person("a"), person("b")).replace(b"\n", b"\r\n")[:-2], mode="append")
    assert names(graph) == ["a", "b"]


def test_a_line_of_five_megabytes_is_one_record(graph: Graph) -> None:
    graph.load(lines(person("a", mail="x" * (5 << 20)), person("b")), mode="append")
    assert names(graph) == ["a", "b"]


def test_text_that_is_not_utf8_names_its_line(graph: Graph) -> None:
    broken = lines(person("a")) + b'{"type": "Person", "data": {"name": "\xff"}}\n'
    with pytest.raises(ValidationError, match="invalid strict JSON at line 2"):
        graph.load(broken, mode="append")
    with pytest.raises(ValidationError, match="invalid JSON at record"):
        graph.load(broken, mode="append", reader="compatible")


BROKEN: dict[str, tuple[bytes, str]] = {
    "no JSON": (b'{"type": "Person", "data": {', "json"),
    "not an object": (b"[]", "envelope"),
    "no type": (b'{"data": {}}', "envelope"),
    "an unknown type": (b'{"type": "Ghost", "data": {}}', "envelope"),
    "an unknown field": (b'{"type": "Person", "data": {"name": "q", "x": 1}}', "property"),
    "a repeated member": (b'{"type": "Person", "data": {"name": "q", "name": "r"}}', "json-member"),
    "a wrong kind": (b'{"type": "Person", "data": {"name": "q", "age": "x"}}', "type"),
    "nothing required": (b'{"type": "Person", "data": {"age": 1}}', "required"),
    "an end without a node": (b'{"edge": "Knows", "from": "p1", "to": "ghost"}', "endpoint"),
    "an end that is no text": (b'{"edge": "Knows", "from": 1, "to": "p1"}', "endpoint"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_one_percent_of_broken_records_is_found_to_the_last(graph: Graph, kind: str) -> None:
    record, rule = BROKEN[kind]
    good = [lines(person(f"p{n}")).rstrip() for n in range(2_000)]
    text, places = [], []
    for number, line in enumerate(good):
        text.append(line)
        if number % 100 == 50:
            text.append(record)
            places.append(len(text))
    with pytest.raises(ValidationError) as caught:
        graph.load(b"\n".join(text), mode="append")
    assert [found.position for found in caught.value.violations] == places
    assert caught.value.totals == {rule: len(places)}
    assert names(graph) == []


def test_violations_are_bounded_and_counted(graph: Graph) -> None:
    records = [person(f"p{n}", age=200 + n) for n in range(1_000)]
    with pytest.raises(ValidationError) as caught:
        graph.load(lines(*records), mode="append")
    assert len(caught.value.violations) == VIOLATIONS_MAX
    assert caught.value.total == 1_000
    assert caught.value.totals == {"range": 1_000}
    assert "and 999 more" in str(caught.value)
    assert "980 more" in caught.value.render()


def test_violations_that_are_only_counted_are_counted_under_their_own_rule(graph: Graph) -> None:
    missing = [b'{"type": "Person", "data": {"age": 1}}'] * 50
    wrong = [b'{"type": "Person", "data": {"name": "q", "age": "x"}}'] * 50
    with pytest.raises(ValidationError) as caught:
        graph.load(b"\n".join([*missing, *wrong]), mode="append")
    assert caught.value.totals == {"required": 50, "type": 50}


def test_what_is_no_input_of_records_is_refused(graph: Graph) -> None:
    no_inputs: list[Any] = [7, None, StringIO("{}"), [7], pa.table({"name": ["a"]})]
    for data in no_inputs:
        with pytest.raises(InputUnreadableError):
            graph.load(data, mode="append")


def test_a_violation_is_a_record_with_all_of_its_facts(graph: Graph) -> None:
    with pytest.raises(ValidationError) as caught:
        graph.load(lines(person("a"), person("b", age=151)), mode="append")
    assert caught.value.details == {
        "violations": [
            {
                "position": 2,
                "type": "Person",
                "property": "age",
                "value": "151",
                "rule": "range",
                "code": "V203",
                "message": "@range violation on Person.age: value 151 > max 150",
                "source": None,
            }
        ],
        "total": 1,
        "totals": {"range": 1},
    }


def test_rows_that_wait_in_files_load_like_those_in_memory(
    graph: Graph, local_place: Place
) -> None:
    records = [person(f"p{n}", mail=f"m{n}") for n in range(30_000)]
    records += [knows(f"p{n}", f"p{n // 2}") for n in range(30_000)]
    repository, committer = repository_of(graph), session_of(graph).committer
    options = LoadOptions(WriteMode.MERGE, BranchName("main"), memory_max=1 << 16)
    result = Loader(repository, committer).load(
        LocalLoadWorkers(RecordSource(lines(*records))), options
    )
    assert result.total_entities == 60_000
    snapshot = graph.snapshot()
    assert snapshot.open("node:Person").count() == 30_000
    rows = snapshot.open("edge:Knows").scan().read_all()
    assert rows["src"].to_pylist() == [f"p{n}" for n in range(30_000)]
    Loader(repository, committer).load(
        LocalLoadWorkers(RecordSource(lines(*records[:30_000]))), options
    )
    rows = graph.snapshot().open("node:Person").scan().read_all()
    assert rows["name"].to_pylist() == [f"p{n}" for n in range(30_000)]
    assert pa.compute.count_distinct(rows["id"]).as_py() == 30_000


def test_no_space_for_rows_that_wait_is_told_as_such(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every write to this device finds the disk full.
    monkeypatch.setattr(SpoolBudget, "new_file", lambda _: Path("/dev/full"))
    records = [person(f"p{n}") for n in range(5_000)]
    options = LoadOptions(WriteMode.MERGE, BranchName("main"), memory_max=1 << 10)
    loader = Loader(repository_of(graph), session_of(graph).committer)
    with pytest.raises(StorageFullError, match="TMPDIR can name another place"):
        loader.load(LocalLoadWorkers(RecordSource(lines(*records))), options)
    assert names(graph) == []
    graph.load(lines(person("a")), mode="merge")
    assert names(graph) == ["a"]


def test_rewritten_ends_and_ids_that_come_late_name_the_right_records(
    local_place: Place, tmp_path: Path
) -> None:
    graph = local_place.init("node N { k: I32 @key }\nedge E: N -> N")
    node = {"type": "N", "data": {"id": "007", "k": 7}}
    first = [node, *({"edge": "E", "from": "007", "to": "7"} for _ in range(3))]
    twice = {"edge": "E", "from": "007", "to": "007", "data": {"id": "e"}}
    paths = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    paths[0].write_bytes(lines(*first))
    paths[1].write_bytes(lines(twice, twice))
    with pytest.raises(KeyConflictError, match=r"edge 'e' .* \(records 1 and 2\)"):
        graph.load(paths, mode="append", reader="compatible")
    graph.load(paths, mode="merge", reader="compatible")
    edges = [line for line in graph_lines(graph) if line.startswith("E ")]
    assert edges == ["E * 7->7 {}"] * 3 + ["E e 7->7 {}"]


# -- where ----------------------------------------------------------------------------------------


def test_the_result_counts_records_by_type_in_name_order(graph: Graph) -> None:
    records = [person("b"), person("a"), {"type": "City", "data": {"name": "x"}}, knows("a", "b")]
    result = graph.load(lines(*records), mode="append", actor_id="ada", message="first")
    shape = result.to_json()
    assert result.commit is not None
    seconds, written = shape.pop("seconds"), shape.pop("bytes_written")
    assert isinstance(seconds, dict)
    assert list(seconds) == ["read", "validate", "write", "commit"]
    assert isinstance(written, int)
    assert written > 0
    none = dict.fromkeys(("updated", "unchanged", "deleted", "rejected", "superseded"), 0)
    own = {**none, "nulled": {}, "warnings": []}
    assert shape == {
        "branch": "main",
        "base_branch": None,
        "branch_created": False,
        "mode": "append",
        "nodes": [
            {"name": "City", "entities_loaded": 1, "inserted": 1, **own},
            {"name": "Person", "entities_loaded": 2, "inserted": 2, **own},
        ],
        "edges": [{"name": "Knows", "entities_loaded": 1, "inserted": 1, **own}],
        "total_entities": 4,
        "commit": result.commit.to_json(),
        "engine": "local",
        "engine_reason": "records in memory are loaded in this process",
        "durability": "process",
        "inserted": 4,
        **none,
        "nulled": 0,
        "warnings": [],
        "actor_id": "ada",
    }
    commit = graph.get_commit(result.commit.graph_commit_id)
    assert (commit.operation, commit.actor_id, commit.message) == ("load", "ada", "first")


def test_a_load_goes_to_the_bound_branch_unless_told_otherwise(graph: Graph) -> None:
    graph.branch_create("draft")
    graph.load(lines(person("a")), mode="append", branch="draft")
    graph.sync_branch("draft")
    graph.load(lines(person("b")), mode="append")
    assert names(graph) == ["a", "b"]
    assert names(graph, "main") == []


def test_an_unknown_branch_is_not_found(graph: Graph) -> None:
    with pytest.raises(NotFoundError, match="branch 'x' not found"):
        graph.load(lines(person("a")), mode="append", branch="x")


def test_from_makes_a_missing_branch_and_is_only_echoed_for_an_existing_one(graph: Graph) -> None:
    graph.load(lines(person("a")), mode="append")
    first = graph.load(lines(person("b")), mode="append", branch="etl", from_branch="main")
    assert (first.branch_created, first.base_branch) == (True, "main")
    second = graph.load(lines(person("c")), mode="append", branch="etl", from_branch="nowhere")
    assert (second.branch_created, second.base_branch) == (False, "nowhere")
    assert names(graph, "etl") == ["a", "b", "c"]
    assert names(graph) == ["a"]


def test_a_failed_load_takes_the_branch_that_it_made_away_again(graph: Graph) -> None:
    with pytest.raises(ValidationError):
        graph.load(b"x", mode="append", branch="etl", from_branch="main")
    assert graph.branch_list() == ["main"]


def test_a_failed_load_leaves_a_branch_that_existed(graph: Graph) -> None:
    graph.branch_create("etl")
    with pytest.raises(ValidationError):
        graph.load(b"x", mode="append", branch="etl", from_branch="main")
    assert graph.branch_list() == ["main", "etl"]


def test_a_load_with_another_head_than_expected_does_nothing(graph: Graph) -> None:
    head = graph.snapshot().commit_id
    graph.load(lines(person("a")), mode="append", expected_head=head)
    with pytest.raises(ConflictError):
        graph.load(lines(person("b")), mode="append", expected_head=head)
    assert names(graph) == ["a"]


def test_a_load_needs_a_graph_that_may_be_written(local_place: Place, graph: Graph) -> None:
    reader = local_place.open(mode=OpenMode.READ_ONLY)
    with pytest.raises(InvalidInputError, match="load needs a graph"):
        reader.load(b"", mode="append")
    with pytest.raises(InvalidInputError, match="reserved"):
        graph.load(b"", mode="append", actor_id="omnigraph:me")
    with pytest.raises(InvalidInputError, match="unknown load mode 'upsert': expected append"):
        graph.load(b"", mode="upsert")
    with pytest.raises(InvalidInputError, match="unknown reader 'lax'"):
        graph.load(b"", mode="merge", reader="lax")


# -- races ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("disarmed")
def test_a_load_on_a_branch_that_loses_a_race_forks_again(graph: Graph) -> None:
    graph.branch_create("x")
    interrupt(lambda: graph.load(lines(person("b")), mode="append", branch="x"))
    graph.load(lines(person("a")), mode="append", branch="x")
    assert names(graph, "x") == ["a", "b"]
    assert names(graph) == []


@pytest.mark.usefixtures("disarmed")
def test_a_load_that_loses_every_race_takes_the_lock_first_at_last(graph: Graph) -> None:
    rivals: list[LoadResult] = []

    def rival() -> None:
        disarm()
        rivals.append(graph.load(lines(person(f"r{len(rivals)}")), mode="append"))
        if len(rivals) < OPTIMISTIC_ATTEMPTS_MAX:
            arm("write.post_stage", rival)

    arm("write.post_stage", rival)
    reserved: list[str] = []
    take = session_of(graph).committer.reserved_lock

    @contextmanager
    def reserved_lock(branch: BranchName, *, operation: str) -> Iterator[None]:
        reserved.append(operation)
        with take(branch, operation=operation):
            yield

    session_of(graph).committer.reserved_lock = reserved_lock  # type: ignore[method-assign]  # to see its use
    result = graph.load(lines(person("a")), mode="append")
    assert (len(rivals), reserved) == (OPTIMISTIC_ATTEMPTS_MAX, ["load"])
    assert result.commit is not None
    assert "a" in names(graph)


@pytest.mark.usefixtures("disarmed")
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_load_that_loses_a_race_is_prepared_again(graph: Graph, mode: str) -> None:
    interrupt(lambda: graph.load(lines(person("b")), mode="append"))
    graph.load(lines(person("a")), mode=mode)
    assert names(graph) == ["a", "b"]


@pytest.mark.usefixtures("disarmed")
def test_an_append_that_loses_its_id_in_a_race_is_a_key_conflict(graph: Graph) -> None:
    interrupt(lambda: graph.load(lines(person("a")), mode="append"))
    with pytest.raises(KeyConflictError) as caught:
        graph.load(lines(person("a", age=3)), mode="append")
    assert caught.value.key_conflict == {
        "entity_kind": "node",
        "type_name": "Person",
        "entity_id": "a",
    }


@pytest.mark.usefixtures("disarmed")
def test_a_merge_that_loses_a_race_replaces_what_the_winner_wrote(graph: Graph) -> None:
    interrupt(lambda: graph.load(lines(person("a", age=1)), mode="append"))
    graph.load(lines(person("a", age=2)), mode="merge")
    assert graph_lines(graph) == ['Person a {"age": 2, "name": "a"}']


@pytest.mark.usefixtures("disarmed")
def test_an_overwrite_that_loses_a_race_reports_it(graph: Graph) -> None:
    interrupt(lambda: graph.load(lines(person("b")), mode="append"))
    with pytest.raises(ExpectedVersionMismatchError):
        graph.load(lines(person("a")), mode="overwrite")
    assert names(graph) == ["b"]


@pytest.mark.usefixtures("disarmed")
def test_edges_are_judged_again_when_their_nodes_have_moved(graph: Graph) -> None:
    graph.load(lines(person("a"), person("b")), mode="append")
    interrupt(lambda: graph.load(lines(person("a")), mode="overwrite"))
    with pytest.raises(ValidationError, match="dst 'b' not found in Person"):
        graph.load(lines(knows("a", "b")), mode="append")
    interrupt(lambda: graph.load(lines(person("c")), mode="append"))
    graph.load(lines(knows("a", "a")), mode="append")
    assert len(graph_lines(graph)) == 3


@pytest.mark.usefixtures("disarmed")
def test_nodes_that_go_are_judged_again_when_edges_have_come(graph: Graph) -> None:
    graph.load(lines(person("a"), person("b")), mode="append")
    interrupt(lambda: graph.load(lines(knows("a", "b")), mode="append"))
    with pytest.raises(ValidationError, match="dst 'b' not found in Person"):
        graph.load(lines(person("a")), mode="overwrite")
    assert names(graph) == ["a", "b"]


@pytest.mark.usefixtures("disarmed")
def test_a_branch_that_is_deleted_under_a_load_is_gone(graph: Graph) -> None:
    graph.branch_create("etl")
    interrupt(lambda: graph.branch_delete("etl"))
    with pytest.raises(NotFoundError):
        graph.load(lines(person("a")), mode="append", branch="etl")


@pytest.mark.parametrize("is_same_table", [True, False])
def test_loads_of_several_threads_all_land(graph: Graph, is_same_table: bool) -> None:
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            for lock in range(3):
                name = f"t{number}-{lock}"
                is_person = is_same_table or number % 2
                record = person(name) if is_person else {"type": "City", "data": {"name": name}}
                graph.load(lines(record), mode="append")
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(graph_lines(graph)) == 6
    assert len(graph.list_commits()) == 7


def test_a_load_works_on_an_object_store(s3_place: Place) -> None:
    graph = s3_place.init(SCHEMA)
    graph.load(lines(person("a"), person("b"), knows("a", "b")), mode="append")
    graph.load(lines(person("a", age=3), person("c")), mode="merge", branch="x", from_branch="main")
    branch = s3_place.open("x")
    assert names(branch) == ["a", "b", "c"]
    assert names(graph) == ["a", "b"]
    with pytest.raises(ValidationError):
        graph.load(lines(person("a")), mode="overwrite")


# -- blobs ----------------------------------------------------------------------------------------


def test_blobs_of_rows_that_may_be_unchanged_are_read_together_and_only_if_as_long(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def docs(*contents: bytes) -> bytes:
        return lines(
            *(
                {"type": "Doc", "data": {"name": f"d{n}", "pic": f"base64:{b64encode(c).decode()}"}}
                for n, c in enumerate(contents)
            )
        )

    graph = local_place.init("node Doc { name: String @key  pic: Blob? }")
    graph.load(docs(b"", b"a\0", b"bb", b"c"), mode="append")
    read, asked = LanceHandle.read_blobs, list[int]()

    def watched(handle: LanceHandle, column: str, row_ids: Sequence[int]) -> Any:
        asked.append(len(row_ids))
        return read(handle, column, row_ids)

    monkeypatch.setattr(LanceHandle, "read_blobs", watched)
    result = graph.load(docs(b"", b"a\1", b"bb", b"longer"), mode="merge")
    assert asked == [3]
    counts = result.node_counts["Doc"]
    assert (counts.updated, counts.unchanged) == (2, 2)
    assert graph.load(docs(b"", b"a\1", b"bb", b"longer"), mode="merge").commit is None


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_external_blobs_below_an_allowed_base_are_copied_in(
    local_place: Place, tmp_path: Path, mode: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a b.bin").write_bytes(b"hello")
    graph = local_place.init("node Doc { name: String @key  pic: Blob? }")
    uri = f"file://{tmp_path}/in/a%20b.bin"
    record = {"type": "Doc", "data": {"name": "d", "pic": uri}}
    graph.load(lines(record), mode=mode, external_blob_bases=[f"file://{tmp_path}/in"])
    (tmp_path / "in" / "a b.bin").unlink()
    assert graph_lines(graph) == ['Doc d {"name": "d", "pic": "hello"}']


def test_external_blobs_elsewhere_are_denied_and_missing_ones_unreadable(
    local_place: Place, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in2").write_bytes(b"secret")
    graph = local_place.init("node Doc { name: String @key  pic: Blob? }")
    bases = [f"file://{tmp_path}/in"]
    for rest in ("in2", "in/../in2", "in/%2e%2e/in2", "in//in2", "in/"):
        record = {"type": "Doc", "data": {"name": "d", "pic": f"file://{tmp_path}/{rest}"}}
        with pytest.raises(ValidationError, match="new external Blob URI ingress is denied"):
            graph.load(lines(record), mode="append", external_blob_bases=bases)
    record = {"type": "Doc", "data": {"name": "d", "pic": f"file://{tmp_path}/in/nothing"}}
    with pytest.raises(BlobSourceUnreadableError, match="cannot be read"):
        graph.load(lines(record), mode="append", external_blob_bases=bases)
    assert graph_lines(graph) == []


def test_an_overwrite_keeps_references_to_external_blobs(
    local_place: Place, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.bin").write_bytes(b"hello")
    graph = local_place.init("node Doc { name: String @key  pic: Blob? }")
    uri, bases = f"file://{tmp_path}/in/a.bin", [f"file://{tmp_path}/in"]
    record = lines({"type": "Doc", "data": {"name": "d", "pic": uri}})
    graph.load(record, mode="overwrite", external_blob_bases=bases)
    described = graph.snapshot().open("node:Doc").scan().read_all()["pic"][0].as_py()
    assert described["blob_uri"] == uri
    # Bytes of our own are something else than a reference to the same bytes.
    merged = [graph.load(record, mode="merge", external_blob_bases=bases) for _ in range(2)]
    assert [(one.updated, one.unchanged) for one in merged] == [(1, 0), (0, 1)]
