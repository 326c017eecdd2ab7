"""A value of another kind than a call expects is a typed error, which says what is expected."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import OmnigraphError, ReadTarget
from omnigraph.graph import Graph
from omnigraph.manifest.errors import CommitNotFoundError, ProcessBoundError

SCHEMA = "node Person { name: String @key }"
READ = "match { $p: Person } return { $p.name }"
ADD = 'query add() { insert Person { name: "Bob" } }'
RECORD = b'{"type": "Person", "data": {"name": "Ada"}}'


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "graph", SCHEMA, durability="process") as made:
        made.load(RECORD, mode="append")
        made.branches.create("draft")
        yield made


Call = Callable[[Any], object]
WRONG: dict[str, tuple[Call, str]] = {
    "target number": (lambda g: g.query(READ, target=2), "target: expected a branch, tag"),
    "target date": (lambda g: g.query(READ, target=date(2026, 3, 6)), "found of type date"),
    "target text": (lambda g: g.query(READ, target="12:00"), "such as 2026-03-06T12:00:00Z"),
    "moment": (lambda _: ReadTarget.at("yesterday"), "such as 2026-03-06T12:00:00Z"),
    "moment list": (lambda _: ReadTarget.at([2026]), "found of type list"),  # type: ignore[arg-type]  # the point
    "query": (lambda g: g.query(None), "a text, or the `Path` of a file, found None"),
    "mutation": (lambda g: g.mutate(3), "a text, or the `Path` of a file, found 3"),
    "query name": (lambda g: g.query(READ, {"n": 1}), "(parameters are `params=`), found of type"),
    "mutation name": (lambda g: g.mutate(ADD, {"n": 1}), "name: expected the name of a query"),
    "query file": (lambda g: g.query(Path("no.gq")), "cannot read no.gq"),
    "decisions": (lambda g: g.branches.merge("draft", resolve_file="no.jsonl"), "no.jsonl"),
    "no decisions": (
        lambda g: g.branches.merge("draft", resolve_file=[{}]),  # type: ignore[arg-type]  # the point
        "resolve_file: expected the path of a file, found of type list",
    ),
    "address": (lambda _: Graph.open(None), "uri: expected a path or an address"),  # type: ignore[arg-type]  # the point
    "bytes": (lambda _: Graph.init(b"g", "node A {}"), "found of type bytes"),  # type: ignore[arg-type]  # the point
    "message": (lambda g: g.mutate(ADD, message=3), "the commit message: expected a text, found 3"),
    "commit": (lambda g: g.commits.revert(3), "expected a text, found 3"),
    "tag": (lambda g: g.tags.create(3), "the name of a tag: expected a text, found 3"),
    "properties": (lambda g: g.load([], mode="merge", properties=["a"]), "a mapping of texts"),
    "progress": (lambda g: g.load([], mode="merge", progress="yes"), "True, False or a function"),
    "limit": (lambda g: g.commits.list(limit=-1), "limit: expected a whole number from 0"),
    "limit text": (lambda g: g.commits.list(limit="3"), "limit: expected a whole number from 0"),
    "timeout": (lambda g: g.query(READ, timeout_s="3"), "timeout_s: expected a number of seconds"),
    "rows": (lambda g: g.query(READ, rows_max="3"), "rows_max: expected a whole number from 0"),
    "kept": (lambda g: g.maintenance.cleanup(keep_versions="3"), "keep_versions: expected a num"),
    "age": (lambda g: g.maintenance.cleanup(older_than_s=timedelta(days=3)), "type timedelta"),
    "storage option": (
        lambda g: Graph.open(g.uri, storage_options={"region": 3}),  # type: ignore[dict-item]  # the point
        "storage option region: expected a text, found of type int",
    ),
    "lists of lists": (lambda g: g.load({"Person": [["Ada"]]}, mode="merge"), "list is no table"),
}


@pytest.mark.parametrize("argument", WRONG)
def test_the_error_says_what_is_expected(graph: Graph, argument: str) -> None:
    call, expected = WRONG[argument]
    with pytest.raises(OmnigraphError, match=re.escape(expected)):
        call(graph)


def test_a_commit_and_the_text_of_a_moment_are_targets(graph: Graph) -> None:
    [newest, first] = graph.commits.list()
    assert len(graph.query(READ, target=newest)) == 1
    assert len(graph.query(READ, target=first)) == 0
    assert len(graph.query(READ, target=datetime.now(UTC).isoformat())) == 1
    with pytest.raises(CommitNotFoundError, match=re.escape("before 1999-12-31T00:00:00+00:00")):
        graph.query(READ, target="1999-12-31T00:00:00Z")


def test_a_query_may_be_in_a_file(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "read.gq").write_text(READ)
    (tmp_path / "wrong.gq").write_text(READ.replace("name", "nmae"))
    assert len(graph.query(tmp_path / "read.gq")) == 1
    with pytest.raises(OmnigraphError) as caught:
        graph.query(tmp_path / "wrong.gq")
    assert "wrong.gq:1:" in str(caught.value.__notes__)


def test_one_type_may_be_named_without_a_list(graph: Graph, tmp_path: Path) -> None:
    assert graph.export(tmp_path / "out", types="Person").files[0].rows == 1


def test_batches_in_a_list_are_a_table(graph: Graph) -> None:
    batches = pa.table({"name": ["Ada", "Bob", "Cid"]}).to_batches(max_chunksize=2)
    loaded = graph.load({"Person": batches}, mode="merge")
    assert (loaded.inserted, loaded.unchanged) == (2, 1)
    with pytest.raises(OmnigraphError, match="not only batches of one schema"):
        graph.load({"Person": [*batches, pa.record_batch({"x": [1]})]}, mode="merge")


def test_a_row_that_is_not_there_is_named(graph: Graph) -> None:
    with pytest.raises(IndexError, match="row 9 of a result that has 1 rows"):
        graph.query(READ)[9]


def test_hints_about_columns_do_not_advise_to_leave_rows_out(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("name;age\nAda;3\n")
    for table in ({"Person": tmp_path / "people.csv"}, {"Persn": []}):
        with pytest.raises(OmnigraphError) as caught:
            graph.load(table, mode="merge")
        [hint] = caught.value.__notes__
        assert "`map` names the column" in hint
        assert "on_error" not in hint
    with pytest.raises(OmnigraphError, match="if the delimiter is ';'"):
        graph.load({"Person": tmp_path / "people.csv"}, mode="merge")
    with pytest.raises(OmnigraphError) as caught:
        graph.load(tmp_path / "people.csv", mode="merge")
    assert "`data={'TYPE': rows}` for nodes" in str(caught.value.__notes__)
    assert "--" not in str(caught.value.__notes__)


def test_a_traceback_lists_the_violations_of_a_load(graph: Graph) -> None:
    rows: list[dict[str, object]] = [{"name": number} for number in range(25)]
    with pytest.raises(OmnigraphError) as caught:
        graph.load({"Person": rows}, mode="append")
    assert str(caught.value).startswith("record 1: ")
    others, hint = caught.value.__notes__
    assert [line.partition(":")[0] for line in others.splitlines()] == [
        *(f"record {number}" for number in range(2, 21)),
        "… and 5 more",
    ]
    assert hint.startswith("hint: correct the rows")
    graph.load({"Person": [{"name": "Bob"}]}, mode="append")
    with pytest.raises(OmnigraphError, match="'Ada' of type Person already exists") as caught:
        graph.load({"Person": [{"name": "Ada"}, {"name": "Bob"}]}, mode="append")
    assert caught.value.__notes__[0] == "record 2: node 'Bob' of type Person already exists"


def test_the_hint_of_a_mutation_does_not_advise_to_leave_rows_out(graph: Graph) -> None:
    text = 'query q($n: String) { insert Knows { from: "Ada", to: $n } }'
    graph.schema.apply(SCHEMA + "\nedge Knows: Person -> Person")
    with pytest.raises(OmnigraphError, match="'Bob' not found") as caught:
        graph.mutate(text, params={"n": "Bob"})
    assert caught.value.__notes__ == [
        "hint: change the values that are written; `graph.schema.source()` has the rules"
    ]


def test_a_key_that_is_given_twice_is_told_of_the_option_for_it(graph: Graph) -> None:
    rows = {"Person": [{"name": "Bob"}, {"name": "Bob"}]}
    with pytest.raises(OmnigraphError) as caught:
        graph.load(rows, mode="merge")
    assert "a merge takes the last row of each key with `on_duplicate='last'`" in str(
        caught.value.__notes__
    )
    assert graph.load(rows, mode="merge", on_duplicate="last").inserted == 1


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (pa.table({"name": ["Bob"]}), "`graph.load({'TYPE': rows}, mode=...)`"),
        ({"Person": ({"name": name} for name in "ab")}, "`list(rows)` of a generator"),
        (RECORD.decode(), "give rows as bytes (`text.encode()`)"),
        (f"[{RECORD.decode()}]", "give rows as bytes (`text.encode()`)"),
        ("nowhere.jsonl", "give files, folders or globs that exist"),
    ],
)
def test_rows_in_a_wrong_place_are_told_the_right_one(graph: Graph, data: Any, hint: str) -> None:
    with pytest.raises(OmnigraphError) as caught:
        graph.load(data, mode="merge")
    assert hint in str(caught.value.__notes__)


def test_rows_that_are_taken_for_a_path_are_not_repeated_as_a_whole(graph: Graph) -> None:
    rows = RECORD.decode() * 1000
    for data in (rows, {"Person": rows}):
        with pytest.raises(OmnigraphError) as caught:
            graph.load(data, mode="merge")
        assert len(str(caught.value)) < 200
    with pytest.raises(OmnigraphError, match="null"):
        graph.load("a\0.jsonl", mode="merge")


def test_what_belongs_to_its_process_says_so_and_results_can_be_sent(graph: Graph) -> None:
    for held in (graph, graph.snapshot()):
        for send in (pickle.dumps, copy.deepcopy):
            with pytest.raises(ProcessBoundError, match="belongs to its process") as caught:
                send(held)
            assert "open the graph there" in str(caught.value.hint)
    result = pickle.loads(pickle.dumps(graph.query(READ)))
    assert [row["p.name"] for row in result] == ["Ada"]
