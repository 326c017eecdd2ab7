"""Loads that leave out what breaks a rule, and other answers to input that is not clean."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import InvalidInputError
from omnigraph.failpoints import arm, disarm
from omnigraph.graph import Graph, LoadResult
from omnigraph.names import BranchName
from omnigraph.write.load.formats.files import InputUnreadableError
from omnigraph.write.load.input.source import RecordSource
from omnigraph.write.load.loader import Loader
from omnigraph.write.load.options import LoadOptions, LoadOptionsError, OnError
from omnigraph.write.load.rows.quarantine import QuarantineInUseError, QuarantineUnwritableError
from omnigraph.write.load.rows.spool import MEMORY_MAX
from omnigraph.write.load.workers import LocalLoadWorkers
from omnigraph.write.rules.violations import VIOLATIONS_MAX, KeyConflictError, ValidationError
from omnigraph.write.stage.delta import WriteMode
from support.loads import graph_lines
from support.places import Place, repository_of, session_of

SCHEMA = """
node Person { name: String @key  age: I32?  mail: String? @unique  @range(age, 0..150) }
node Note { text: String? }
edge Knows: Person -> Person @card(0..2) { since: I32? }
"""


@pytest.fixture
def graph(local_place: Place) -> Graph:
    return local_place.init(SCHEMA)


def person(name: str, **data: object) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, **data}}


def knows(source: str, target: str, **data: object) -> dict[str, object]:
    return {"edge": "Knows", "from": source, "to": target, "data": data}


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def set_aside(folder: Path) -> dict[tuple[str, int], dict[str, object]]:
    """Return what a load has left out, by file and position."""
    found = {}
    for path in sorted(folder.iterdir()):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            found[path.name, line["position"]] = line
    return found


def test_edges_follow_their_nodes_into_quarantine(graph: Graph, tmp_path: Path) -> None:
    text = lines(
        person("a"),
        person("b", age=200, mail="x"),
        knows("a", "b"),
        knows("a", "a"),
        person("c", mail="m"),
        person("d", mail="m"),
        knows("d", "a"),
        {"type": "Ghost"},
    )
    folder = tmp_path / "left-out"
    result = graph.load(
        text + b'{"type": "Person"\n', mode="append", on_error="quarantine", quarantine=folder
    )
    assert (result.inserted, result.rejected, result.total_entities) == (3, 6, 7)
    assert [line.split(" {")[0] for line in graph_lines(graph)] == [
        "Knows * a->a",
        "Person a",
        "Person c",
    ]
    found = set_aside(folder)
    assert {key: line["reason"] for key, line in found.items()} == {
        ("edge-Knows.jsonl", 3): "dst 'b' not found in Person",
        ("edge-Knows.jsonl", 7): "src 'd' not found in Person",
        ("node-Person.jsonl", 2): "@range violation on Person.age: value 200 > max 150",
        ("node-Person.jsonl", 6): (
            "@unique violation on Person.mail: value 'm' held by 'c' and 'd' (lines 5 and 6)"
        ),
        ("unreadable.jsonl", 8): "unknown node type 'Ghost'",
        ("unreadable.jsonl", 9): found["unreadable.jsonl", 9]["reason"],
    }
    assert found["node-Person.jsonl", 2]["record"] == person("b", age=200, mail="x")
    assert found["unreadable.jsonl", 9]["text"] == '{"type": "Person"'


def test_what_is_left_out_can_be_loaded_again_once_it_is_mended(
    graph: Graph, tmp_path: Path
) -> None:
    folder = tmp_path / "q"
    text = lines(person("a"), knows("a", "b", id="k", since=3))
    graph.load(text, mode="append", on_error="quarantine", quarantine=folder)
    records = [line["record"] for line in set_aside(folder).values()]
    graph.load(lines(person("b"), *records), mode="append")
    assert 'Knows k a->b {"since": 3}' in graph_lines(graph)


@pytest.mark.parametrize("max_errors", [0, 1, 2])
def test_more_bad_rows_than_tolerated_fail_the_load(
    graph: Graph, tmp_path: Path, max_errors: int
) -> None:
    text = lines(person("a"), person("b", age=-1), knows("a", "b"))

    def load() -> object:
        return graph.load(
            text,
            mode="append",
            on_error="quarantine",
            quarantine=tmp_path / "q",
            max_errors=max_errors,
        ).rejected

    if max_errors == 2:
        assert load() == 2
        return
    with pytest.raises(ValidationError) as caught:
        load()
    assert caught.value.totals["range"] == 1
    assert graph_lines(graph) == []


def test_a_rule_that_no_row_can_mend_fails_a_load_with_a_quarantine(
    graph: Graph, tmp_path: Path
) -> None:
    graph.load(lines(person("a"), person("b"), knows("a", "b")), mode="append")
    with pytest.raises(ValidationError, match="dst 'b' not found in Person"):
        graph.load(
            lines(person("a")), mode="overwrite", on_error="quarantine", quarantine=tmp_path / "q"
        )
    assert len(graph_lines(graph)) == 3


@pytest.mark.usefixtures("disarmed")
def test_a_node_that_goes_in_a_race_takes_its_new_edges_to_quarantine(
    graph: Graph, tmp_path: Path
) -> None:
    graph.load(lines(person("a"), person("b")), mode="append")

    def rival() -> None:
        disarm()
        graph.load(lines(person("a")), mode="overwrite")

    arm("write.post_stage", rival)
    result = graph.load(
        lines(knows("a", "b"), knows("a", "a")),
        mode="append",
        on_error="quarantine",
        quarantine=tmp_path / "q",
    )
    assert (result.inserted, result.rejected) == (1, 1)
    assert list(set_aside(tmp_path / "q")) == [("edge-Knows.jsonl", 1)]


def test_options_that_do_not_go_together_are_refused(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(LoadOptionsError, match="give both or none"):
        graph.load(b"", mode="append", on_error="quarantine")
    with pytest.raises(LoadOptionsError, match="give both or none"):
        graph.load(b"", mode="append", quarantine=tmp_path)
    with pytest.raises(LoadOptionsError, match="is for mode `merge`"):
        graph.load(b"", mode="append", on_duplicate="last")
    with pytest.raises(LoadOptionsError, match="expected 0 or more"):
        graph.load(b"", mode="append", max_errors=-1)
    with pytest.raises(InvalidInputError, match="unknown on_error 'skip'"):
        graph.load(b"", mode="append", on_error="skip")
    (tmp_path / "old.jsonl").touch()
    with pytest.raises(QuarantineInUseError, match="is not empty"):
        graph.load(b"", mode="append", on_error="quarantine", quarantine=tmp_path)


def test_a_quarantine_that_cannot_be_written_fails_before_anything_is_loaded(
    graph: Graph, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "below"):
        with pytest.raises(QuarantineUnwritableError, match="cannot be written: "):
            graph.load(lines(person("a")), mode="append", on_error="quarantine", quarantine=place)
    assert graph_lines(graph) == []


def test_rows_that_are_left_out_are_on_the_disk_before_the_others_are_committed(
    graph: Graph, tmp_path: Path
) -> None:
    kept: list[object] = []
    arm("write.post_stage", lambda: kept.extend(set_aside(tmp_path / "q").values()))
    try:
        graph.load(
            lines(person("a", age=-1), person("b"), knows("b", "ghost")),
            mode="append",
            on_error="quarantine",
            quarantine=tmp_path / "q",
        )
    finally:
        disarm()
    assert len(kept) == 2


def test_nothing_is_loaded_when_the_rest_of_a_stream_cannot_be_read(
    graph: Graph, tmp_path: Path
) -> None:
    text = lines(person("a")) + b'{"type": oops}\n' + lines(person("b"))
    with pytest.raises(ValidationError, match=r"record 2: .*; nothing after it can be read"):
        graph.load(
            text,
            mode="append",
            reader="compatible",
            on_error="quarantine",
            quarantine=tmp_path / "q",
        )
    assert graph_lines(graph) == []


def test_values_of_a_stream_that_cannot_be_held_are_set_aside_as_texts(
    graph: Graph, tmp_path: Path
) -> None:
    bad = b'{"type": "Person",\n"data": {"name": "\xff", "age": 1e999}}'
    result = graph.load(
        lines(person("a")) + bad + lines(person("b", age=-1), person("c")),
        mode="append",
        reader="compatible",
        on_error="quarantine",
        quarantine=tmp_path / "q",
    )
    assert (result.inserted, result.rejected) == (2, 2)
    kept = json.loads((tmp_path / "q" / "unreadable.jsonl").read_text())
    assert kept["position"] == 2
    assert kept["text"] == bad.decode(errors="backslashreplace")
    assert json.loads((tmp_path / "q" / "node-Person.jsonl").read_text())["position"] == 3


@pytest.mark.parametrize("memory_max", [1 << 10, MEMORY_MAX], ids=["in files", "in memory"])
def test_rows_with_blobs_are_left_out_merged_and_compared_wherever_they_wait(
    local_place: Place, tmp_path: Path, memory_max: int
) -> None:
    graph = local_place.init("node Pic { name: String @key  code: I32 @unique  bytes: Blob? }")
    blobs = ["base64:" + "YWJj" * 4_000, None, "base64:"]
    records = [
        {"type": "Pic", "data": {"name": f"p{n}", "code": n // 2, "bytes": blobs[n % 3]}}
        for n in range(1_200)
    ]
    loader = Loader(repository_of(graph), session_of(graph).committer)

    def load(name: str) -> LoadResult:
        options = LoadOptions(
            WriteMode.MERGE,
            BranchName("main"),
            on_error=OnError.QUARANTINE,
            quarantine=tmp_path / name,
            memory_max=memory_max,
        )
        return loader.load(LocalLoadWorkers(RecordSource(lines(*records))), options)

    first = load("first")
    assert (first.inserted, first.rejected) == (600, 600)
    kept = set_aside(tmp_path / "first")
    for number in (1, 3, 5):
        record = kept["node-Pic.jsonl", number + 1]["record"]
        assert isinstance(record, dict)
        assert record["data"]["bytes"] == blobs[number % 3]
    again = load("again")
    assert (again.unchanged, again.updated, again.rejected) == (600, 0, 600)


def test_reading_errors_do_not_hide_rules_across_rows(graph: Graph) -> None:
    with pytest.raises(ValidationError) as caught:
        graph.load(lines(person("a", age="x"), person("b"), knows("b", "z")), mode="append")
    assert caught.value.totals == {"type": 1, "endpoint": 1}


def test_one_key_twice_names_both_records(graph: Graph) -> None:
    with pytest.raises(ValidationError, match=r"'a' and 'a' \(lines 1 and 3\)"):
        graph.load(lines(person("a"), person("b"), person("a")), mode="merge")


def test_the_facts_of_a_key_conflict_are_in_the_details(graph: Graph) -> None:
    graph.load(lines(person("a"), person("b")), mode="append")
    with pytest.raises(KeyConflictError) as caught:
        graph.load(lines(person("b"), person("a"), person("c")), mode="append")
    assert str(caught.value) == "line 1: node 'b' of type Person already exists (and 1 more)"
    facts = {"type": "Person", "property": "id", "rule": "key_conflict", "code": "W205"}
    assert caught.value.details == {
        "key_conflict": {"entity_kind": "node", "type_name": "Person", "entity_id": "b"},
        "offenders": ["b", "a"],
        "violations": [
            {
                **facts,
                "position": position,
                "value": name,
                "message": f"node '{name}' of type Person already exists",
                "source": None,
            }
            for position, name in ((1, "b"), (2, "a"))
        ],
        "total": 2,
    }
    assert caught.value.render().splitlines() == [
        "error: line 1: node 'b' of type Person already exists",
        "       line 2: node 'a' of type Person already exists",
    ]
    with pytest.raises(KeyConflictError, match=r"given twice in one input \(lines 1 and 2\)"):
        graph.load(lines(knows("a", "b", id="k"), knows("a", "a", id="k")), mode="append")


def test_key_conflicts_of_all_types_are_counted_and_the_first_are_listed(graph: Graph) -> None:
    people = [person(f"p{n}") for n in range(30)]
    edges = [knows(f"p{n}", "p0", id=f"k{n}") for n in range(30)]
    graph.load(lines(*people, *edges), mode="append")
    with pytest.raises(KeyConflictError) as caught:
        graph.load(lines(*people, *edges), mode="append")
    assert caught.value.total == 60
    assert len(caught.value.violations) == VIOLATIONS_MAX
    assert caught.value.render().splitlines()[-1] == "       … and 40 more"


def test_key_conflicts_are_told_beside_other_violations(graph: Graph) -> None:
    graph.load(lines(person("a"), person("b")), mode="append")
    with pytest.raises(ValidationError) as caught:
        graph.load(lines(person("a", age=-1), person("b"), knows("b", "ghost")), mode="append")
    assert caught.value.totals == {"range": 1, "endpoint": 1, "key_conflict": 1}
    assert [one.position for one in caught.value.violations] == [1, 3, 2]


def test_the_last_of_several_rows_wins_where_that_is_asked_for(graph: Graph) -> None:
    text = lines(person("a", mail="m", age=1), person("a", mail="m", age=2))
    graph.load(text, mode="merge", on_duplicate="last")
    assert graph_lines(graph) == ['Person a {"age": 2, "mail": "m", "name": "a"}']
    notes = pa.table({"id": ["n", "n"], "text": ["x", "y"]})
    with pytest.raises(KeyConflictError, match="given twice"):
        graph.load_tables(nodes={"Note": notes}, mode="merge")
    graph.load_tables(nodes={"Note": notes}, mode="merge", on_duplicate="last")
    assert 'Note n {"text": "y"}' in graph_lines(graph)


def test_rows_that_did_not_change_are_not_written(graph: Graph) -> None:
    graph.load(lines(person("a", age=1), person("b"), knows("a", "b", id="k")), mode="append")
    before = graph.snapshot()
    again = graph.load(lines(person("a", age=1), knows("a", "b", id="k")), mode="merge")
    assert (again.unchanged, again.updated, again.inserted, again.commit) == (2, 0, 0, None)
    mixed = graph.load(lines(person("a", age=1), person("b", age=2), person("c")), mode="merge")
    assert (mixed.unchanged, mixed.updated, mixed.inserted) == (1, 1, 1)
    after = graph.snapshot()
    assert after.entry("edge:Knows") == before.entry("edge:Knows")
    updated = after.open("node:Person")
    assert updated.count() == 3
    # One new fragment each for rewritten and new rows; the old row of `b` is deleted.
    assert [info.rows for info in updated.fragments()] == [1, 1, 1]


def test_several_files_are_one_input_and_problems_name_theirs(graph: Graph, tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.jsonl").write_bytes(lines(person(f"p{number}")))
    (tmp_path / "notes.txt").write_text("no records")
    first = graph.load(tmp_path, mode="append")
    again = graph.load(str(tmp_path / "?.jsonl"), mode="merge")
    listed = graph.load([tmp_path / "2.jsonl", tmp_path / "1.jsonl"], mode="merge")
    assert [one.total_entities for one in (first, again, listed)] == [2, 2, 2]
    (tmp_path / "3.jsonl").write_bytes(lines(person("a"), person("b", age=-1)) + b"x\n")
    with pytest.raises(ValidationError) as caught:
        graph.load(tmp_path / "*.jsonl", mode="merge")
    path = str(tmp_path / "3.jsonl")
    assert [(one.source, one.position) for one in caught.value.violations] == [(path, 2), (path, 3)]
    assert f"{path} line 2: @range" in caught.value.render()
    assert "invalid strict JSON at line 3" in caught.value.render()
    with pytest.raises(InputUnreadableError, match="matches no file"):
        graph.load(str(tmp_path / "*.ndjson"), mode="append")


def test_parquet_files_by_glob_name_the_file_of_a_bad_row(graph: Graph, tmp_path: Path) -> None:
    for number, age in enumerate((5, -5)):
        table = pa.table({"name": [f"p{number}"], "age": pa.array([age], pa.int32())})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    with pytest.raises(ValidationError) as caught:
        graph.load_tables(nodes={"Person": str(tmp_path / "*.parquet")}, mode="append")
    (found,) = caught.value.violations
    assert (found.source, found.position) == (str(tmp_path / "1.parquet"), 1)
