"""The lineage of commits: what each operation records, and what is answered from it."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.graph import Graph, Job, ReservedPropertyError, Trace, read_lineage
from omnigraph.lineage import LINEAGE_KEYS
from omnigraph.lineage.openlineage import to_bytes
from omnigraph.lineage.trace import LineageSubjectError
from omnigraph.lineage.transport import LineageTargetError, NoLineageTargetError
from omnigraph.manifest.errors import CommitNotFoundError
from support.cases import Case, check_case, load_cases

SCHEMA = """\
node Person { name: String @key  age: I32?  vector: Vector(4)? @embed(name) }
edge Knows: Person -> Person
"""
PEOPLE = b"""\
{"type": "Person", "data": {"name": "ann", "age": 1}}
{"type": "Person", "data": {"name": "bob"}}
{"edge": "Knows", "from": "ann", "to": "bob"}
"""
CASES = load_cases("lineage")


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    with Graph.init(
        tmp_path / "g.omni", SCHEMA, durability="process", auto_optimize=False, checksums=False
    ) as made:
        yield made


def file(graph: Graph, name: str, content: bytes) -> Path:
    path = Path(graph.uri).parent / name
    path.write_bytes(content)
    return path


def person(**row: object) -> bytes:
    return json.dumps({"type": "Person", "data": row}).encode()


def load(graph: Graph, content: bytes, **options: str) -> str:
    result = graph.load(content, **{"mode": "merge", "embed": "off", **options})
    assert result.commit is not None
    return result.commit.graph_commit_id


# -- what each operation records ------------------------------------------------------------------


def load_records(graph: Graph) -> None:
    graph.load(file(graph, "people.jsonl", PEOPLE), mode="append", embed="off")


def load_tables(graph: Graph) -> None:
    path = Path(graph.uri).parent / "people.parquet"
    pq.write_table(pa.table({"name": ["ann", "bob"]}), path)
    tables = {"Person": path, "Knows": pa.table({"src": ["ann"], "dst": ["bob"]})}
    graph.load(
        tables, mode="merge", embed="off", job=Job("airflow", "crm", version="7", run_id="r-1")
    )


def load_rejecting(graph: Graph) -> None:
    path = Path(graph.uri).parent / "rejected"
    records = PEOPLE + b'{"type": "Person", "data": {"age": 3}}\n'
    graph.load(
        records, mode="merge", on_error="quarantine", quarantine=path, embed="off", job="crm"
    )


def overwrite(graph: Graph) -> None:
    load(graph, PEOPLE)
    graph.load({"Knows": pa.table({"src": ["bob"], "dst": ["ann"]})}, mode="overwrite")


def overwrite_with_cascade(graph: Graph) -> None:
    load(graph, PEOPLE)
    graph.load(person(name="bob"), mode="overwrite", cascade=True, embed="off")


def merge(graph: Graph) -> None:
    graph.branches.create("draft")
    load(graph, PEOPLE, branch="draft")
    load(graph, person(name="cas"))
    graph.branches.merge("draft", job="publish")


def revert(graph: Graph) -> None:
    graph.commits.revert(load(graph, PEOPLE))


def embed(graph: Graph) -> None:
    load(graph, PEOPLE)
    graph.embed()


def mutate(graph: Graph) -> None:
    graph.mutate('query q() { insert Person { name: "ann" } }', embed="off")


def apply_schema(graph: Graph) -> None:
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32? nick: String?"))


def optimize(graph: Graph) -> None:
    load(graph, PEOPLE)
    load(graph, person(name="cas"))
    graph.maintenance.optimize()


OPERATIONS: dict[str, Callable[[Graph], None]] = {
    "load of graph JSONL": load_records,
    "load of tables": load_tables,
    "load that rejects rows": load_rejecting,
    "overwrite": overwrite,
    "overwrite with cascade": overwrite_with_cascade,
    "merge": merge,
    "revert": revert,
    "embed": embed,
    "mutation": mutate,
    "schema apply": apply_schema,
    "optimize": optimize,
}


def shown(graph: Graph) -> str:
    """Return the properties of the newest commit, with names for what differs from run to run."""
    commit = graph.commits.list(limit=1)[0]
    lines = [f"{commit.operation}: {sorted(LINEAGE_KEYS & commit.properties.keys())}"]
    lines += [f"{key} = {commit.properties[key]}" for key in sorted(commit.properties)]
    text = "\n".join(lines).replace(str(Path(graph.uri).parent), "DIR")
    text = re.sub(r"sha256:[0-9a-f]{64}", "DIGEST", text)
    text = re.sub(r"(_version = ).*", r"\1VERSION", text)
    text = re.sub(r'("bytes":)\d+', r"\1BYTES", text)
    names: dict[str, str] = {}
    return re.sub(
        r"\b[0-9A-HJKMNP-TV-Z]{26}\b",
        lambda found: names.setdefault(found[0], f"ID{len(names) + 1}"),
        text,
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operation_records_this(case: Case, graph: Graph, update_cases: bool) -> None:
    OPERATIONS[case.name](graph)
    check_case(case, "properties", shown(graph), update_cases)


def test_a_callers_properties_stay_and_reserved_ones_are_refused(graph: Graph) -> None:
    load(graph, PEOPLE, properties={"team": "data"})  # type: ignore[arg-type] - a mapping
    assert graph.commits.list(limit=1)[0].properties["team"] == "data"
    for key in LINEAGE_KEYS:
        with pytest.raises(ReservedPropertyError):
            graph.load(PEOPLE, mode="merge", properties={key: "x"})


WRITES: dict[str, Callable[[Graph, dict[str, str]], object]] = {
    "load": lambda graph, given: graph.load(PEOPLE, mode="merge", properties=given),
    "load_tables": lambda graph, given: graph.load_tables(mode="merge", properties=given),
    "mutate": lambda graph, given: graph.mutate(
        'query q() { insert Person { name: "eve" } }', embed="off", properties=given
    ),
    "delete_rows": lambda graph, given: graph.delete_rows({"node:Person": []}, properties=given),
    "embed": lambda graph, given: graph.embed(properties=given),
    "branches.merge": lambda graph, given: graph.branches.merge("side", properties=given),
    "commits.revert": lambda graph, given: graph.commits.revert(
        graph.commits.head_id(), properties=given
    ),
    "schema.apply": lambda graph, given: graph.schema.apply(SCHEMA, properties=given),
    "schema.apply_file": lambda graph, given: graph.schema.apply_file(
        file(graph, "same.pg", SCHEMA.encode()), properties=given
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_no_write_takes_a_reserved_property(name: str, graph: Graph) -> None:
    load(graph, PEOPLE)
    graph.branches.create("side")
    before = graph.commits.head_id()
    with pytest.raises(ReservedPropertyError, match="'job' is reserved"):
        WRITES[name](graph, {"job": '{"namespace": "pipeline", "name": "social"}'})
    assert graph.commits.head_id() == before


def test_the_list_of_writes_with_properties_is_whole(graph: Graph) -> None:
    parts = {"": graph, "branches.": graph.branches, "commits.": graph.commits}
    parts |= {"schema.": graph.schema, "tags.": graph.tags, "maintenance.": graph.maintenance}
    found = {
        f"{prefix}{name}"
        for prefix, part in parts.items()
        for name, method in inspect.getmembers(type(part), inspect.isfunction)
        if not name.startswith("_") and "properties" in inspect.signature(method).parameters
    }
    flat = {"branch_merge", "commit_revert", "apply_schema", "apply_schema_file"}
    assert found - flat == set(WRITES)


def test_a_handle_names_the_jobs_of_its_writes(graph: Graph) -> None:
    load(graph.with_job("load", namespace="cli"), PEOPLE)
    load(graph.with_job(namespace="http"), person(name="cas"))
    load(graph.with_job(namespace="http"), person(name="dan"), job="crm")
    found = [read_lineage(commit.properties) for commit in graph.commits.list(limit=3)]
    jobs = [one.job for one in found if one is not None]
    assert [(job.namespace, job.name) for job in jobs] == [
        ("http", "crm"),
        ("http", "load"),
        ("cli", "load"),
    ]


# -- what is answered -----------------------------------------------------------------------------


def steps(trace: Trace) -> list[tuple[int, str]]:
    return [(step.depth, step.commit.graph_commit_id) for step in trace.steps]


def test_a_row_leads_to_the_job_and_the_source_that_wrote_it(graph: Graph) -> None:
    first = graph.load(file(graph, "a.jsonl", PEOPLE), mode="append", embed="off").commit
    changed = graph.load(
        file(graph, "b.jsonl", person(name="ann", age=7)), mode="merge", embed="off"
    ).commit
    mutated = graph.mutate('query q() { insert Person { name: "dan" } }', embed="off").commit
    assert first is not None
    assert changed is not None
    assert mutated is not None
    graph.maintenance.optimize()
    ann, bob = graph.lineage.show("Person:ann"), graph.lineage.show("Person:bob")
    assert steps(ann) == [(0, changed.graph_commit_id)]
    assert steps(bob) == [(0, first.graph_commit_id)]
    lineage = ann.steps[0].lineage
    assert lineage is not None
    assert lineage.inputs[0].uri.endswith("/b.jsonl")
    dan = graph.lineage.show("Person:dan")
    assert steps(dan) == [(0, mutated.graph_commit_id)]
    assert dan.steps[0].lineage is None
    knows = graph.lineage.show("Knows")
    assert steps(knows) == [(0, first.graph_commit_id)]
    people = graph.lineage.show("Person.age")
    assert [commit for _, commit in steps(people)] == [
        mutated.graph_commit_id,
        changed.graph_commit_id,
        first.graph_commit_id,
    ]


def test_a_merged_row_leads_to_the_load_on_its_branch(graph: Graph) -> None:
    graph.branches.create("draft")
    source = file(graph, "a.jsonl", PEOPLE)
    loaded = graph.load(source, mode="append", branch="draft", embed="off").commit
    own = load(graph, person(name="cas"))
    merged = graph.branches.merge("draft").commit
    assert loaded is not None
    assert merged is not None
    brought = [(0, merged.graph_commit_id), (1, loaded.graph_commit_id)]
    assert steps(graph.lineage.show("Person:ann")) == brought
    assert steps(graph.lineage.show(merged.graph_commit_id)) == brought
    assert steps(graph.lineage.show("Person:cas")) == [(0, own)]
    assert steps(graph.lineage.show("Person")) == [*brought, (0, own)]
    # Down: the merge has read what the load on the branch wrote, and not what main had.
    for subject in (loaded.graph_commit_id, "Person"):
        down = graph.lineage.show(subject, direction="down")
        assert steps(down) == [(0, merged.graph_commit_id)]
    assert steps(graph.lineage.show(own, direction="down")) == []
    assert steps(graph.lineage.show("Person:cas", direction="down")) == []


def test_a_deleted_branch_leaves_its_commits_and_says_what_is_gone(graph: Graph) -> None:
    graph.branches.create("draft")
    loaded = load(graph, PEOPLE, branch="draft")
    merged = graph.branches.merge("draft").commit
    assert merged is not None
    graph.branches.delete("draft")
    brought = [(0, merged.graph_commit_id), (1, loaded)]
    assert steps(graph.lineage.show(merged.graph_commit_id)) == brought
    row = graph.lineage.show("Person:ann")
    assert steps(row) == brought
    assert "the history of the merged branch was removed" in row.notes[0]


def test_embedding_reads_what_loads_wrote(graph: Graph) -> None:
    loaded = load(graph, PEOPLE)
    embedded = graph.embed().commit
    assert embedded is not None
    down = graph.lineage.show(loaded, direction="down")
    assert steps(down) == [(0, embedded.graph_commit_id)]
    assert steps(graph.lineage.show("Person.name", direction="down")) == steps(down)
    assert steps(graph.lineage.show("Person.age", direction="down")) == []
    assert steps(graph.lineage.show("Person.vector"))[0] == (0, embedded.graph_commit_id)


def test_old_versions_may_be_cleaned_up(graph: Graph) -> None:
    first = load(graph, PEOPLE)
    load(graph, person(name="cas"))
    graph.maintenance.cleanup(keep_versions=1, confirm=True)
    assert steps(graph.lineage.show("Person:ann")) == [(0, first)]


def test_a_limit_is_named(graph: Graph) -> None:
    for name in ("ann", "bob", "cas"):
        load(graph, person(name=name))
    shown_steps = graph.lineage.show("Person", limit=1)
    assert len(shown_steps.steps) == 1
    assert shown_steps.notes == ("2 further commits are not shown",)


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("Persn", "no such type"),
        ("Person.nmae", "has no property 'nmae'"),
        ("Person:nobody", "no row 'nobody'"),
        ("edge:Person", "no such type"),
        ("a b", "expected COMMIT"),
        ("", "expected COMMIT"),
    ],
)
def test_an_unknown_subject_is_named(graph: Graph, subject: str, problem: str) -> None:
    with pytest.raises(LineageSubjectError, match=problem):
        graph.lineage.show(subject)


def test_an_unknown_commit_is_not_found(graph: Graph) -> None:
    missing = "0" * 26
    for call in (graph.lineage.show, lambda one: list(graph.lineage.events(since=one))):
        with pytest.raises(CommitNotFoundError):
            call(missing)


# -- events ---------------------------------------------------------------------------------------


def read_folder(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_events_sent_while_working_equal_those_sent_later(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LINEAGE", f"file:{tmp_path}/live")
    with Graph.open(graph.uri, durability="process", auto_optimize=False) as live:
        merge(live)
        live.embed()
        live.embed()
        mutate(live)
    sent = graph.lineage.emit(f"file:{tmp_path}/later")
    again = graph.lineage.emit(f"file:{tmp_path}/later")
    draft = graph.lineage.emit(f"file:{tmp_path}/later", branch="draft")
    assert (sent.sent, sent.failed, again.sent) == (4, 0, 4)
    assert draft.sent == 1
    first, later = read_folder(tmp_path / "live"), read_folder(tmp_path / "later")
    starts = {name for name in first if name.endswith(".start.json")}
    assert first.keys() - later.keys() == {
        # The second embedding had nothing to do, so no commit tells of it.
        name
        for name in first
        if name.endswith(".complete.json") or name in starts - later.keys()
    }
    for name in first.keys() & later.keys():
        assert without_time(first[name], name) == without_time(later[name], name)


def without_time(content: bytes, name: str) -> bytes:
    if not name.endswith(".start.json"):
        return content
    return to_bytes({**json.loads(content), "eventTime": ""})


def test_a_target_that_fails_is_a_warning(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    monkeypatch.setenv("OMNIGRAPH_LINEAGE", f"file:{blocked}/events")
    with Graph.open(graph.uri, durability="process", auto_optimize=False) as live:
        load(live, PEOPLE)
    assert "a lineage event was not sent" in caplog.text
    assert graph.lineage.emit(f"file:{blocked}/events").failed == 1
    monkeypatch.setenv("OMNIGRAPH_LINEAGE", "nowhere")
    with Graph.open(graph.uri, durability="process", auto_optimize=False) as live:
        load(live, person(name="cas"))
    assert "no lineage events are sent: lineage target 'nowhere'" in caplog.text


def test_a_target_is_needed_and_must_be_one(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNIGRAPH_LINEAGE", raising=False)
    # As if the optional library were not installed.
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with pytest.raises(NoLineageTargetError):
        graph.lineage.emit()
    for target in ("file:", "ftp://x", "https://user:secret@host/"):
        with pytest.raises(LineageTargetError) as caught:
            graph.lineage.emit(target)
        assert "secret" not in str(caught.value)


def test_a_file_that_is_called_as_a_type_is_not_the_type(graph: Graph) -> None:
    path = Path(graph.uri).parent / "Person.parquet"
    pq.write_table(pa.table({"name": ["ann"]}), path)
    described = {"Person": {"path": str(path), "map": {"name": "name"}}}
    graph.load(described, mode="append", embed="off")
    assert graph.lineage.show("Person.name", direction="down").steps == ()
    graph.embed()
    [read] = graph.lineage.show("Person.name", direction="down").steps
    assert read.commit.operation == "embed"
    assert graph.lineage.show("Person.age", direction="down").steps == ()
