"""Random partial records against a plain dictionary, in process and in tasks."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.graph import Graph, LoadResult
from omnigraph.spark.load.workers import Tuning
from omnigraph.write.load import loader, stage
from omnigraph.write.load.options import Missing, OnDuplicate
from omnigraph.write.load.rows.spool import MEMORY_MAX, SpoolBudget
from omnigraph.write.rules.violations import ValidationError
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.stored_rows import PROBES_MAX
from support.inline_jobs import inline_load
from support.loads import graph_lines

SCHEMA = """\
node Keyed { k: I32 @key  a: I32?  b: String?  c: [I32]?  d: I32 @default(7)  must: String }
node Free { a: I32?  b: String?  c: [I32]?  d: I32 @default(7) }
"""
KINDS = ("Keyed", "Free")
MEMBERS = ("a", "b", "c", "d", "must")
Row = dict[str, Any]
Rows = dict[str, dict[str, Row]]

values = {
    "a": st.none() | st.integers(0, 3),
    "b": st.none() | st.sampled_from(["x", "null", '"a": null', ""]),
    "c": st.none() | st.lists(st.integers(0, 2), max_size=2),
    "d": st.integers(0, 3),
    "must": st.sampled_from(["m", "n"]),
}


@st.composite
def records(draw: st.DrawFn, *, may_repeat: bool) -> list[tuple[str, str, Row]]:
    """Records as (type, id, what they name)."""
    found = []
    for _ in range(draw(st.integers(0, 6))):
        kind, number = draw(st.sampled_from(KINDS)), draw(st.integers(0, 4))
        names = [name for name in MEMBERS if name != "must" or kind == "Keyed"]
        named = [name for name in names if draw(st.booleans())]
        found.append((kind, str(number), {name: draw(values[name]) for name in named}))
    if may_repeat:
        return found
    return list({(kind, identity): (kind, identity, row) for kind, identity, row in found}.values())


class Refused(Exception):  # noqa: N818 - an outcome
    """A row would lack a required property."""


def after(
    before: Rows, given: list[tuple[str, str, Row]], *, keeps: bool, choice: str
) -> tuple[Rows, tuple[int, ...]]:
    """Return what a merge leaves, and its counts."""
    folded: dict[tuple[str, str], Row] = {}
    for kind, identity, row in given:
        key = kind, identity
        if key not in folded or choice == "last":
            folded[key] = row
        elif choice == "combine":
            folded[key] = {**folded[key], **row}
    graph = {kind: dict(rows) for kind, rows in before.items()}
    inserted = updated = unchanged = nulled = 0
    for (kind, identity), named in folded.items():
        empty = {"a": None, "b": None, "c": None, "d": 7}
        stored = graph[kind].get(identity)
        row = {**empty, **(stored if stored is not None and keeps else {}), **named}
        if kind == "Keyed" and "must" not in row:
            raise Refused
        inserted += stored is None
        updated += stored is not None and stored != row
        unchanged += stored == row
        nulled += sum(
            value is not None and row[name] is None for name, value in (stored or {}).items()
        )
        graph[kind][identity] = row
    return graph, (inserted, updated, unchanged, nulled, len(given) - len(folded))


def lines(given: list[tuple[str, str, Row]]) -> bytes:
    shaped = [
        {"type": kind, "data": {**({"k": int(one)} if kind == "Keyed" else {"id": one}), **row}}
        for kind, one, row in given
    ]
    return b"".join(json.dumps(record).encode() + b"\n" for record in shaped)


def stored(graph: Graph) -> Rows:
    """Return the graph in the form of the model."""
    found: Rows = {kind: {} for kind in KINDS}
    for line in graph_lines(graph):
        kind, identity, text = line.split(" ", 2)
        row = {"a": None, "b": None, "c": None, **json.loads(text)}
        row.pop("k", None)
        found[kind][identity] = row
    return found


def load(
    graph: Graph, way: str, data: bytes, folder: Path, *, missing: str, choice: str
) -> LoadResult:
    if way == "local":
        return graph.load(data, mode="merge", missing=missing, on_duplicate=choice)
    path = folder / "records.jsonl"
    path.write_bytes(data)
    return inline_load(
        graph,
        path,
        tuning=Tuning(driver_rows_max=0 if way == "tasks" else 10),
        mode=WriteMode.MERGE,
        missing=Missing(missing),
        on_duplicate=OnDuplicate(choice),
    )


def check(data: st.DataObject, way: str) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.setattr(stage, "PROBES_MAX", data.draw(st.sampled_from([0, PROBES_MAX])))
        memory = data.draw(st.sampled_from([64, MEMORY_MAX]))
        patch.setattr(loader, "SpoolBudget", lambda _: SpoolBudget(memory))
        model: Rows = {kind: {} for kind in KINDS}
        with Graph.init(folder / "g", SCHEMA, durability="process", auto_optimize=False) as graph:
            for _ in range(data.draw(st.integers(1, 3))):
                choice = data.draw(st.sampled_from(["error", "last", "first", "combine"]))
                missing = data.draw(st.sampled_from(["keep", "keep", "null"]))
                given_records = data.draw(records(may_repeat=choice != "error"))
                text = lines(given_records)
                try:
                    expected, counts = after(
                        model, given_records, keeps=missing == "keep", choice=choice
                    )
                except Refused:
                    with pytest.raises(ValidationError, match="must"):
                        load(graph, way, text, folder, missing=missing, choice=choice)
                else:
                    found = load(graph, way, text, folder, missing=missing, choice=choice)
                    model = expected
                    assert counts == (
                        found.inserted,
                        found.updated,
                        found.unchanged,
                        found.nulled,
                        found.superseded,
                    )
                assert stored(graph) == model


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
@pytest.mark.parametrize("way", ["local", "tasks"])
def test_partial_merges_agree_with_a_dictionary(way: str, data: st.DataObject) -> None:
    check(data, way)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
@pytest.mark.parametrize("way", ["local", "tasks", "driver"])
def test_many_partial_merges_agree_with_a_dictionary(way: str, data: st.DataObject) -> None:
    check(data, way)


def test_tables_and_records_mean_the_same(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g", SCHEMA, durability="process") as graph:
        graph.load(lines([("Free", "0", {"a": 1, "b": "x"})]), mode="append")
        table = pa.table({"id": ["0"], "a": pa.array([None], pa.int32())})
        result = graph.load({"Free": table}, mode="merge")
        assert stored(graph)["Free"]["0"] == {"a": None, "b": "x", "c": None, "d": 7}
        assert result.node_counts["Free"].nulled == {"a": 1}
