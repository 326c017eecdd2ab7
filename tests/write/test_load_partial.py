"""What a merge does to properties that its input does not name, in process and in tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.engine import LoadRequest
from omnigraph.errors import InvalidInputError
from omnigraph.graph import Graph, LoadResult
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.spark.engine import source_of
from omnigraph.spark.load.workers import Tuning
from omnigraph.write.load.options import (
    LoadOptions,
    LoadOptionsError,
    Missing,
    NullCells,
    OnDuplicate,
    OnError,
    RowsTiedError,
)
from omnigraph.write.rules.violations import KeyConflictError, ValidationError
from omnigraph.write.stage.delta import WriteMode
from support.inline_jobs import InlineFrame, inline_load
from support.interrupts import interrupt
from support.loads import graph_lines
from support.places import session_of

SCHEMA = """\
node Person {
    name: String @key
    age: I32?
    mail: String? @unique
    level: I32 @default(1)
    team: String
    tags: [String]?
    @unique(team, age)
}
node Thing { label: String?  size: I32?  photo: Blob? }
edge Knows: Person -> Person { since: I32?  note: String?  @unique(note, since) }
"""
CHOICES = {
    "mode": WriteMode,
    "missing": Missing,
    "null_cells": NullCells,
    "on_duplicate": OnDuplicate,
    "on_error": OnError,
}


class Way:
    """One way to load the same input."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._files = 0

    def load(self, graph: Graph, data: Any, *, mode: str = "merge", **options: Any) -> LoadResult:
        given = data if isinstance(data, dict) else lines(*data)
        if self.name == "local":
            return graph.load(given, mode=mode, engine="local", **options)
        if isinstance(given, bytes):
            self._files += 1
            given = self._folder / f"{self._files}.jsonl"
            given.write_bytes(lines(*data))
        asked = {"mode": mode, **options}
        if "reader" in asked:
            asked["conversion"] = ConversionMode(asked.pop("reader"))
        chosen = {
            name: CHOICES[name](value) if name in CHOICES else value
            for name, value in asked.items()
        }
        return inline_load(graph, given, tuning=Tuning(driver_rows_max=0), **chosen)


@pytest.fixture(params=["local", "tasks"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Way:
    return Way(request.param, tmp_path)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "g", SCHEMA, durability="process", auto_optimize=False) as made:
        made.load(
            lines(
                person("ann", age=30, mail="ann@x", level=3, team="red", tags=["a"]),
                person("bob", age=40, mail="bob@x", level=2, team="blue"),
            ),
            mode="append",
        )
        yield made


def person(name: str, **data: object) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, **data}}


def thing(name: str, **data: object) -> dict[str, object]:
    return {"type": "Thing", "data": {"id": name, **data}}


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def people(graph: Graph) -> dict[str, dict[str, Any]]:
    """Return all persons by name."""
    found = [json.loads(line.split(" ", 2)[2]) for line in graph_lines(graph) if "Person" in line]
    return {row.pop("name"): row for row in found}


ANN = {"age": 30, "mail": "ann@x", "level": 3, "team": "red", "tags": ["a"]}
BOB = {"age": 40, "mail": "bob@x", "level": 2, "team": "blue"}


# -- absent and null ------------------------------------------------------------------------------


def test_a_merge_keeps_what_a_record_does_not_name(graph: Graph, way: Way) -> None:
    result = way.load(graph, [person("ann", age=31)])
    assert people(graph) == {"ann": {**ANN, "age": 31}, "bob": BOB}
    counts = result.node_counts["Person"]
    assert (counts.inserted, counts.updated, counts.unchanged, counts.nulled) == (0, 1, 0, {})


def test_a_null_of_a_record_is_null_and_an_absent_member_is_kept(graph: Graph, way: Way) -> None:
    records = [person("ann", age=None), person("bob", mail=None, tags=["z"])]
    result = way.load(graph, records)
    ann, bob = dict(ANN), {**BOB, "tags": ["z"]}
    del ann["age"], bob["mail"]
    assert people(graph) == {"ann": ann, "bob": bob}
    assert result.node_counts["Person"].nulled == {"age": 1, "mail": 1}


def test_a_null_is_found_under_a_name_that_is_spelled_with_escapes(graph: Graph) -> None:
    edge = rb'{"edge": "Knows", "from": "ann", "to": "bob", "data": {"id": "e", %s}}'
    graph.load(edge % b'"since": 1', mode="append")
    graph.load(edge % rb'"\u0073ince": null', mode="merge")
    assert [line for line in graph_lines(graph) if "Knows" in line] == ["Knows e ann->bob {}"]


def test_a_merge_keeps_columns_that_a_table_does_not_have(graph: Graph, way: Way) -> None:
    table = pa.table({"name": ["ann", "bob"], "age": pa.array([30, None], pa.int32())})
    result = way.load(graph, {"Person": table})
    bob = dict(BOB)
    del bob["age"]
    assert people(graph) == {"ann": ANN, "bob": bob}
    counts = result.node_counts["Person"]
    assert (counts.updated, counts.unchanged, counts.nulled) == (1, 1, {"age": 1})


def test_null_cells_can_name_nothing(graph: Graph, way: Way) -> None:
    table = pa.table(
        {
            "name": ["ann", "bob", "eve"],
            "age": pa.array([31, None, None], pa.int32()),
            "level": pa.array([None, 5, None], pa.int32()),
            "team": pa.array([None, None, "red"], pa.utf8()),
        }
    )
    result = way.load(graph, {"Person": table}, null_cells="keep")
    assert people(graph) == {
        "ann": {**ANN, "age": 31},
        "bob": {**BOB, "level": 5},
        "eve": {"level": 1, "team": "red"},
    }
    assert result.node_counts["Person"].nulled == {}


def test_whole_rows_are_replaced_on_request(graph: Graph, way: Way) -> None:
    result = way.load(graph, [person("ann", team="red", age=30)], missing="null")
    assert people(graph)["ann"] == {"age": 30, "team": "red", "level": 1}
    assert result.node_counts["Person"].nulled == {"mail": 1, "tags": 1}


def test_the_compatible_reader_replaces_whole_rows(graph: Graph, way: Way) -> None:
    way.load(graph, [person("ann", team="red")], reader="compatible")
    assert people(graph)["ann"] == {"team": "red", "level": 1}
    way.load(graph, [person("bob", age=1)], reader="compatible", missing="keep")
    assert people(graph)["bob"] == {**BOB, "age": 1}


def test_defaults_fill_new_rows_only(graph: Graph, way: Way) -> None:
    way.load(graph, [person("ann", age=31), person("eve", team="red")])
    assert people(graph)["ann"]["level"] == 3
    assert people(graph)["eve"] == {"team": "red", "level": 1}


def test_edges_and_unkeyed_nodes_are_found_by_their_ids(graph: Graph, way: Way) -> None:
    graph.load(
        lines(
            thing("t", label="x", size=1),
            {"edge": "Knows", "from": "ann", "to": "bob", "data": {"id": "e", "since": 1}},
        ),
        mode="append",
    )
    way.load(
        graph,
        [
            thing("t", size=2),
            {"edge": "Knows", "from": "ann", "to": "ann", "data": {"id": "e", "note": "n"}},
        ],
    )
    assert [line for line in graph_lines(graph) if "Person" not in line] == [
        'Knows e ann->ann {"note": "n", "since": 1}',
        'Thing t {"label": "x", "size": 2}',
    ]


def test_a_blob_that_is_not_named_stays(graph: Graph, way: Way) -> None:
    graph.load(
        lines(thing("t", photo="base64:aGVsbG8=", size=1), thing("u", size=1)), mode="append"
    )
    result = way.load(graph, [thing("t", size=2), thing("u", size=1)])
    assert [line for line in graph_lines(graph) if "Thing" in line] == [
        'Thing t {"photo": "hello", "size": 2}',
        'Thing u {"size": 1}',
    ]
    result = way.load(graph, [thing("t", photo=None)])
    assert result.node_counts["Thing"].nulled == {"photo": 1}


# -- rules ----------------------------------------------------------------------------------------


def test_required_is_judged_on_the_resulting_row(graph: Graph, way: Way) -> None:
    with pytest.raises(ValidationError) as caught:
        way.load(graph, [person("ann", age=31), person("eve", age=1)])
    assert [(one.rule, one.property, one.position) for one in caught.value.violations] == [
        ("required", "team", 2)
    ]
    with pytest.raises(ValidationError, match="team"):
        way.load(graph, [person("ann", team=None)])
    assert people(graph) == {"ann": ANN, "bob": BOB}


def test_a_new_row_that_lacks_a_required_property_is_rejected(
    graph: Graph, way: Way, tmp_path: Path
) -> None:
    records = [person("ann", age=31), person("eve", age=1)]
    result = way.load(graph, records, on_error="quarantine", quarantine=tmp_path / "bad")
    assert people(graph) == {"ann": {**ANN, "age": 31}, "bob": BOB}
    assert (result.updated, result.rejected) == (1, 1)
    kept = json.loads((tmp_path / "bad" / "node-Person.jsonl").read_text())
    assert kept["record"]["data"] == {"id": "eve", "name": "eve", "age": 1}


def test_unique_looks_at_the_members_that_rows_keep(graph: Graph, way: Way) -> None:
    with pytest.raises(ValidationError, match=r"violation on Person.mail: value 'ann@x'"):
        way.load(graph, [person("ann", age=31), person("bob", mail="ann@x")])
    with pytest.raises(
        ValidationError, match=r"@unique violation on Person.\(team, age\)|age, team"
    ):
        way.load(graph, [person("bob", team="red", age=30)])
    with pytest.raises(ValidationError, match="@unique violation"):
        way.load(graph, [person("bob", team="red"), person("ann", age=40)])
    way.load(graph, [person("ann", mail="bob@x"), person("bob", mail="ann@x")])
    assert people(graph)["ann"]["mail"] == "bob@x"


def test_a_value_that_a_row_gives_up_may_be_taken(graph: Graph, way: Way) -> None:
    way.load(graph, [person("ann", mail=None, age=1), person("bob", mail="ann@x")])
    assert people(graph)["bob"]["mail"] == "ann@x"


# -- several records of one id --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("last", {**ANN, "age": 2, "team": "c"}),
        ("first", {**ANN, "age": 1, "mail": None}),
        ("combine", {**ANN, "age": 2, "mail": None, "team": "c", "tags": ["t"]}),
    ],
)
def test_several_records_of_one_id(
    graph: Graph, way: Way, choice: str, expected: dict[str, object]
) -> None:
    records = [
        person("ann", age=1, mail=None),
        person("eve", team="x"),
        person("ann", team="b", tags=["t"]),
        person("ann", age=2, team="c"),
    ]
    result = way.load(graph, records, on_duplicate=choice)
    found = people(graph)
    assert found["ann"] == {name: value for name, value in expected.items() if value is not None}
    counts = result.node_counts["Person"]
    assert (counts.superseded, counts.inserted, counts.updated) == (2, 1, 1)


def test_combined_records_make_one_new_row(graph: Graph, way: Way) -> None:
    result = way.load(
        graph,
        [person("eve", age=1), person("eve", team="x"), person("eve", age=2)],
        on_duplicate="combine",
    )
    assert people(graph)["eve"] == {"age": 2, "team": "x", "level": 1}
    assert (result.inserted, result.superseded) == (1, 2)
    with pytest.raises(ValidationError, match="team"):
        way.load(graph, [person("f", age=1), person("f", age=2)], on_duplicate="combine")
    way.load(
        graph,
        [person("ann", age=1), person("ann", team="x")],
        on_duplicate="combine",
        missing="null",
    )
    assert people(graph)["ann"] == {"age": 1, "team": "x", "level": 1}


def test_an_id_twice_is_an_error_by_default(graph: Graph, way: Way) -> None:
    with pytest.raises(KeyConflictError, match="given twice"):
        way.load(graph, [thing("t", size=1), thing("t", size=2)])
    result = way.load(graph, [thing("t", size=1), thing("t", size=2)], reader="compatible")
    assert result.superseded == 1


@pytest.mark.parametrize("choice", ["last", "first", "combine"])
def test_rows_of_a_frame_must_differ_in_their_order(
    graph: Graph, tmp_path: Path, choice: str
) -> None:
    table = pa.table({"id": ["t", "t", "u"], "size": pa.array([1, 2, 2], pa.int32())})
    way = Way("tasks", tmp_path)
    way.load(graph, {"Thing": table}, on_duplicate=choice, order_by=("size",))
    tied = pa.table({"id": ["t", "u", "t"], "size": pa.array([2, 2, 2], pa.int32())})
    with pytest.raises(RowsTiedError, match="Thing 't' has several rows that are equal in size"):
        way.load(graph, {"Thing": tied}, on_duplicate=choice, order_by=("size",))


def test_frames_without_an_order_are_not_folded(graph: Graph) -> None:
    options = LoadOptions(
        WriteMode.MERGE, graph.snapshot().incarnation, on_duplicate=OnDuplicate.LAST
    )
    session = session_of(graph)
    frames = {"Thing": InlineFrame(pa.table({"id": ["t"]}))}
    request = LoadRequest(session.repository, session.committer, frames, options)
    with pytest.raises(LoadOptionsError, match="needs `order_by`"):
        source_of(request, _NoSession())  # type: ignore[arg-type]  # only its setting is read


def test_an_order_is_refused_where_nothing_would_use_it(graph: Graph, tmp_path: Path) -> None:
    options = LoadOptions(
        WriteMode.MERGE, graph.snapshot().incarnation, on_duplicate=OnDuplicate.LAST
    )
    session = session_of(graph)
    for data in ({"Thing": tmp_path / "t.parquet"}, tmp_path / "t.jsonl"):
        request = LoadRequest(
            session.repository, session.committer, data, options, order_by=("size",)
        )
        with pytest.raises(LoadOptionsError, match="`order_by` is for tables of Spark"):
            source_of(request, _NoSession())  # type: ignore[arg-type]  # only its setting is read


def test_tables_that_spark_reads_need_an_order_as_frames_do(graph: Graph) -> None:
    options = LoadOptions(
        WriteMode.MERGE, graph.snapshot().incarnation, on_duplicate=OnDuplicate.LAST
    )
    session = session_of(graph)
    request = LoadRequest(
        session.repository, session.committer, {"Thing": {"table": "things"}}, options
    )
    with pytest.raises(LoadOptionsError, match="needs `order_by`"):
        source_of(request, _NoSession())  # type: ignore[arg-type]  # only its setting is read


class _NoSession:
    """Has the one setting that planning asks for."""

    class conf:  # noqa: N801 - the name that a session has for it
        @staticmethod
        def get(name: str, default: object) -> str:
            del name, default
            return "2"


def test_only_a_merge_folds(graph: Graph) -> None:
    for mode in ("append", "overwrite"):
        for choice in ("last", "first", "combine"):
            with pytest.raises(InvalidInputError, match="is for mode `merge`"):
                graph.load(b"", mode=mode, on_duplicate=choice)


# -- commits and counts ---------------------------------------------------------------------------


def test_a_merge_that_changes_nothing_commits_only_for_its_properties(
    graph: Graph, way: Way
) -> None:
    records = [person("ann", age=30), person("bob", team="blue")]
    result = way.load(graph, records)
    assert result.commit is None
    assert result.node_counts["Person"].unchanged == 2
    marked = way.load(graph, records, properties={"batch": "7"})
    assert marked.commit is not None
    assert marked.commit.properties["batch"] == "7"
    assert marked.unchanged == 2


def test_an_overwrite_counts_what_it_removes(graph: Graph, way: Way) -> None:
    result = way.load(graph, [person("eve", team="x")], mode="overwrite")
    assert (result.inserted, result.deleted) == (1, 2)


# -- races ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("disarmed")
def test_kept_properties_are_those_of_the_winner_of_a_race(graph: Graph, way: Way) -> None:
    other = Graph.open(graph.uri)
    interrupt(lambda: other.load(lines(person("ann", mail="new@x")), mode="merge"))
    way.load(graph, [person("ann", age=31), person("bob", age=40)])
    assert people(graph)["ann"] == {**ANN, "age": 31, "mail": "new@x"}


@pytest.mark.usefixtures("disarmed")
def test_a_row_that_appears_in_a_race_keeps_what_the_winner_gave_it(graph: Graph, way: Way) -> None:
    other = Graph.open(graph.uri)
    interrupt(lambda: other.load(lines(person("eve", team="y", age=9)), mode="append"))
    result = way.load(graph, [person("eve", team="x")])
    assert people(graph)["eve"] == {"team": "x", "age": 9, "level": 1}
    assert (result.inserted, result.updated) == (0, 1)


@pytest.mark.usefixtures("disarmed")
def test_a_row_that_vanishes_in_a_race_is_judged_as_a_new_one(graph: Graph, way: Way) -> None:
    other = Graph.open(graph.uri)
    gone = lines(person("bob", team="blue"))
    interrupt(lambda: other.load(gone, mode="overwrite"))
    with pytest.raises(ValidationError, match="team"):
        way.load(graph, [person("ann", age=31)])


@pytest.mark.usefixtures("disarmed")
def test_rows_that_were_unchanged_are_compared_again_after_a_race(graph: Graph, way: Way) -> None:
    other = Graph.open(graph.uri)
    interrupt(lambda: other.load(lines(person("ann", age=99)), mode="merge"))
    result = way.load(graph, [person("ann", age=30), thing("t", size=1)])
    assert people(graph)["ann"]["age"] == 30
    assert (result.updated, result.unchanged) == (1, 0)


def test_options_that_mean_nothing_are_refused(graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match="`missing='keep'` is for mode `merge`"):
        graph.load(b"", mode="append", missing="keep")
    with pytest.raises(InvalidInputError, match="missing"):
        graph.load(b"", mode="merge", missing="empty")
    assert not LoadOptions(WriteMode.APPEND, graph.snapshot().incarnation).keeps_absent
