"""Edges without an id in a merge, in this process and by tasks, against a model."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from omnigraph.failpoints import arm, disarm
from omnigraph.graph import Graph
from omnigraph.spark.load.workers import Tuning
from omnigraph.write.load import loader, match_edges
from omnigraph.write.load.options import Missing, OnDuplicate, OnError
from omnigraph.write.load.result import LoadResult
from omnigraph.write.load.rows import row_parts
from omnigraph.write.load.rows.spool import MEMORY_MAX, SpoolBudget
from omnigraph.write.rules.violations import ValidationError
from omnigraph.write.stage import columns
from omnigraph.write.stage.delta import WriteMode
from support.inline_jobs import InlineJobs, inline_load
from support.places import Place

NODES = [{"type": "N", "data": {"k": name}} for name in "pqr"]
GROUPS = (
    (),
    (("dst", "src"),),
    (("a", "dst", "src"),),
    (("a", "dst", "src"), ("b", "dst", "src")),
    (("a", "b", "dst", "src"),),
)
MERGE = WriteMode.MERGE
Row = tuple[object, ...]
Record = dict[str, Any]


@dataclass
class Model:
    """Stored edges by id, and what a merge of records means."""

    groups: tuple[tuple[str, ...], ...]
    stored: dict[str, Record] = field(default_factory=dict)

    def merge(self, records: list[Record]) -> dict[str, Record] | None:
        """Return the edges after a merge, or None if it breaks a rule."""
        written = {one["id"]: _row(one) for one in records if one["id"] is not None}
        free = {key: row for key, row in self.stored.items() if key not in written}
        left = [_row(one) for one in records if one["id"] is None]
        for group in self.groups:
            own = [row for row in left if _tuple(row, group) is not None]
            left = [row for row in left if _tuple(row, group) is None]
            holders = {_tuple(row, group): key for key, row in free.items()}
            for row in own:
                key = holders.pop(_tuple(row, group), f"new{len(written)}-{len(self.stored)}")
                free.pop(key, None)
                written[key] = row
        for row in left:
            equal = min((key for key, other in free.items() if other == row), default=None)
            if equal is None:
                written[f"new{len(written)}-{len(self.stored)}"] = row
            else:
                del free[equal]
                written[equal] = row
        after = self.stored | written
        rows = [_row(one) for one in records]
        if any(_repeats(rows, group) or _repeats(after.values(), group) for group in self.groups):
            return None
        return after


def _row(record: Record) -> Record:
    return {name: value for name, value in record.items() if name != "id"}


def _tuple(row: Record, group: tuple[str, ...]) -> Row | None:
    found = tuple(row[name] for name in group)
    return None if None in found else found


def _repeats(rows: Any, group: tuple[str, ...]) -> bool:
    found = [one for one in (_tuple(row, group) for row in rows) if one is not None]
    return len(set(found)) < len(found)


def _rows_of(edges: dict[str, Record]) -> Counter[Row]:
    """Return the edges, with their ids where the input gave them."""
    return Counter(
        (key if key.startswith("g") else "*", *sorted(row.items())) for key, row in edges.items()
    )


def _stored(graph: Graph) -> dict[str, Record]:
    rows = graph.snapshot().open("edge:E").scan().read_all().to_pylist()
    return {row["id"]: _row(row) for row in rows}


def _lines(records: list[Record]) -> bytes:
    lines = []
    for record in records:
        data = {"a": record["a"], "b": record["b"]}
        if record["id"] is not None:
            data["id"] = record["id"]
        lines.append({"edge": "E", "from": record["src"], "to": record["dst"], "data": data})
    return b"\n".join(json.dumps(line).encode() for line in lines)


def _table(records: list[Record]) -> dict[str, pa.Table]:
    types = dict.fromkeys(("id", "src", "dst"), pa.utf8()) | dict.fromkeys("ab", pa.int32())
    made = {name: pa.array([one[name] for one in records], kind) for name, kind in types.items()}
    return {"E": pa.table(made)}


ends = st.sampled_from("ppqr")
values = st.sampled_from([None, None, 1, 2])


@st.composite
def inputs(draw: st.DrawFn) -> list[Record]:
    """Few different edges, some with ids."""
    records = draw(
        st.lists(
            st.fixed_dictionaries({"src": ends, "dst": ends, "a": values, "b": values}), max_size=8
        )
    )
    keys = iter(draw(st.permutations([f"g{n}" for n in range(8)])))
    chosen = draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    mixed = draw(st.booleans())
    return [
        {"id": next(keys) if mixed and with_id else None, **record}
        for record, with_id in zip(records, chosen, strict=True)
    ]


Load = Callable[[Graph, list[Record], Path], LoadResult]


def _locally(graph: Graph, records: list[Record], folder: Path) -> LoadResult:
    del folder
    return graph.load(_lines(records), mode="merge")


def _by_tasks(graph: Graph, records: list[Record], folder: Path) -> LoadResult:
    tuning = Tuning(driver_rows_max=0, set_rows_max=3)
    if len(records) % 2:
        path = folder / "records.jsonl"
        path.write_bytes(_lines(records))
        return inline_load(graph, path, mode=MERGE, tuning=tuning)
    return inline_load(graph, _table(records), mode=MERGE, tuning=tuning)


def _check(data: st.DataObject, load: Load) -> None:
    groups = data.draw(st.sampled_from(GROUPS))
    rules = " ".join(f"@unique({', '.join(group)})" for group in groups)
    schema = f"node N {{ k: String @key }}\nedge E: N -> N {{ a: I32?  b: I32?  {rules} }}"
    model = Model(groups)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(match_edges, "PROBES_MAX", data.draw(st.sampled_from([0, 2048])))
        patch.setattr(match_edges, "_WHOLE_SCAN_SHARE", data.draw(st.sampled_from([0, 4])))
        memory = data.draw(st.sampled_from([64, MEMORY_MAX]))
        patch.setattr(loader, "SpoolBudget", lambda _: SpoolBudget(memory))
        patch.setattr(columns, "SLAB_ROWS", data.draw(st.sampled_from([2, columns.SLAB_ROWS])))
        patch.setattr(row_parts, "_STREAM_BYTES_MIN", data.draw(st.sampled_from([1, 8 << 20])))
        with Place(str(Path(folder) / "graph")).init(schema) as graph:
            graph.load(b"\n".join(json.dumps(node).encode() for node in NODES), mode="append")
            for _ in range(data.draw(st.integers(1, 3))):
                records = data.draw(inputs())
                wanted = model.merge(records)
                event("refused" if wanted is None else "merged")
                if wanted is None:
                    with pytest.raises(ValidationError):
                        load(graph, records, Path(folder))
                    continue
                load(graph, records, Path(folder))
                assert _rows_of(_stored(graph)) == _rows_of(wanted)
                model.stored = _stored(graph)
                again = load(graph, records, Path(folder))
                assert (again.commit, again.unchanged) == (None, len(records))
                assert _stored(graph) == model.stored


_settings = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@_settings
@given(st.data())
def test_merges_in_this_process_agree_with_the_model(data: st.DataObject) -> None:
    _check(data, _locally)


@_settings
@given(st.data())
def test_merges_by_tasks_agree_with_the_model(data: st.DataObject) -> None:
    _check(data, _by_tasks)


# -- what the model does not have -----------------------------------------------------------------

SCHEMA = """
node N { k: String @key }
edge Plain: N -> N
edge Lone: N -> N @card(0..1) { a: I32? }
edge Ends: N -> N { a: I32?  @unique(src, dst) }
edge Rich: N -> N { t: String?  l: [F64]?  v: Vector(2)?  b: Blob? }
edge Keyed: N -> N { a: I32  n: F64?  @key(src, dst, a) }
edge Full: N -> N { a: I32  w: I32  n: String?  @unique(src, dst, a) }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = Place(str(tmp_path / "graph")).init(SCHEMA)
    made.load(b"\n".join(json.dumps(node).encode() for node in NODES), mode="append")
    return made


def edge(name: str, between: str, **data: object) -> Record:
    return {"edge": name, "from": between[0], "to": between[1], "data": data}


def text(*records: Record) -> bytes:
    return b"\n".join(json.dumps(record).encode() for record in records)


def load_lines(
    graph: Graph, folder: Path, *records: Record, engine: str, **options: Any
) -> LoadResult:
    if engine == "local":
        return graph.load(text(*records), mode="merge", **options)
    path = folder / "lines.jsonl"
    path.write_bytes(text(*records))
    return inline_load(graph, path, mode=MERGE, tuning=Tuning(driver_rows_max=0), **options)


ENGINES = pytest.mark.parametrize("engine", ["local", "spark"])
ALL = [
    edge("Plain", "pq"),
    edge("Plain", "pq"),
    edge("Lone", "pq", a=1),
    edge("Lone", "qp"),
    edge("Ends", "pq", a=1),
    edge("Rich", "pq", t="é", l=[-0.0, 1.5], v=[1, 2], b="base64:aGk="),
    edge("Rich", "pq", t="", l=[]),
    edge("Rich", "pq"),
    edge("Keyed", "pq", a=1, n=2.5),
]


@ENGINES
def test_edges_of_every_kind_are_loaded_a_second_time(
    graph: Graph, tmp_path: Path, engine: str
) -> None:
    first = load_lines(graph, tmp_path, *ALL, engine=engine)
    head = graph.snapshot().commit_id
    again = load_lines(graph, tmp_path, *ALL, engine=engine)
    assert (first.inserted, again.inserted, again.updated) == (len(ALL), 0, 0)
    assert (again.unchanged, again.commit) == (len(ALL), None)
    assert graph.snapshot().commit_id == head


@ENGINES
def test_an_edge_with_other_bytes_is_another_edge(
    graph: Graph, tmp_path: Path, engine: str
) -> None:
    load_lines(graph, tmp_path, edge("Rich", "pq", b="base64:aGk="), engine=engine)
    result = load_lines(graph, tmp_path, edge("Rich", "pq", b="base64:aGU="), engine=engine)
    assert result.inserted == 1


@ENGINES
def test_updates_keep_ids_and_count(graph: Graph, tmp_path: Path, engine: str) -> None:
    first = [edge("Ends", "pq", a=1), edge("Keyed", "pq", a=1), edge("Lone", "pq", a=1)]
    load_lines(graph, tmp_path, *first, engine=engine)
    keys = {row["id"] for row in graph.snapshot().open("edge:Ends").scan().read_all().to_pylist()}
    changed = [edge("Ends", "pq", a=2), edge("Keyed", "pq", a=1, n=0.5), edge("Ends", "qr")]
    result = load_lines(graph, tmp_path, *changed, engine=engine)
    assert (result.inserted, result.updated) == (1, 2)
    rows = graph.snapshot().open("edge:Ends").scan().read_all().to_pylist()
    assert {row["id"] for row in rows if row["src"] == "p"} == keys
    with pytest.raises(ValidationError, match="@card violation"):
        load_lines(graph, tmp_path, edge("Lone", "pr", a=1), engine=engine)


@ENGINES
def test_rules_that_rows_break_are_found_among_matched_rows(
    graph: Graph, tmp_path: Path, engine: str
) -> None:
    load_lines(graph, tmp_path, *ALL, engine=engine)
    bad = [*ALL, edge("Lone", "pr"), edge("Lone", "rp"), edge("Plain", "rr")]
    options: dict[str, Any] = {"on_error": OnError.QUARANTINE, "quarantine": tmp_path / "bad"}
    result = load_lines(graph, tmp_path, *bad, engine=engine, **options)
    assert (result.rejected, result.inserted, result.unchanged) == (1, 2, len(ALL))


@ENGINES
def test_edges_that_were_set_aside_have_only_ids_that_the_input_gave(
    graph: Graph, tmp_path: Path, engine: str
) -> None:
    late = [edge("Plain", "px"), edge("Plain", "px", id="given"), edge("Ends", "px", a=1)]
    options: dict[str, Any] = {"on_error": OnError.QUARANTINE, "quarantine": tmp_path / "bad"}
    result = load_lines(graph, tmp_path, *late, edge("Plain", "pq"), engine=engine, **options)
    assert (result.rejected, result.inserted) == (3, 1)
    texts = [line for path in (tmp_path / "bad").iterdir() for line in path.read_text().split("\n")]
    aside = [json.loads(line)["record"] for line in texts if line]
    assert sorted(one["data"].get("id", "") for one in aside) == ["", "", "given"]
    graph.load(text({"type": "N", "data": {"k": "x"}}), mode="append")
    assert load_lines(graph, tmp_path, *late, engine=engine).inserted == 3
    assert load_lines(graph, tmp_path, *aside, engine=engine).unchanged == 3


def test_the_second_load_by_tasks_reads_no_rows_into_the_driver(
    graph: Graph, tmp_path: Path
) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(text(*ALL))
    for _ in range(2):
        jobs = InlineJobs()
        inline_load(graph, path, mode=MERGE, tuning=Tuning(driver_rows_max=0), jobs=jobs)
    assert {"hashing edges", "hashing stored edges", "matching edges"} <= set(jobs.stages)


# -- records that do not name everything ----------------------------------------------------------


def full_rows(graph: Graph) -> list[tuple[object, ...]]:
    rows = graph.snapshot().open("edge:Full").scan().read_all().to_pylist()
    return sorted((row["src"], row["dst"], row["a"], row["w"], row["n"]) for row in rows)


@ENGINES
def test_a_matched_edge_keeps_what_its_record_does_not_name(
    graph: Graph, tmp_path: Path, engine: str
) -> None:
    load_lines(graph, tmp_path, edge("Full", "pq", a=0, w=5, n="x"), engine=engine)
    result = load_lines(graph, tmp_path, edge("Full", "pq", a=0, n="y"), engine=engine)
    assert (result.inserted, result.updated) == (0, 1)
    assert full_rows(graph) == [("p", "q", 0, 5, "y")]
    again = load_lines(graph, tmp_path, edge("Full", "pq", a=0, n="y"), engine=engine)
    assert (again.unchanged, again.commit) == (1, None)
    with pytest.raises(ValidationError, match="non-nullable property 'w'"):
        load_lines(graph, tmp_path, edge("Full", "pr", a=0, n="y"), engine=engine)


@ENGINES
@pytest.mark.parametrize("on_duplicate", [OnDuplicate.ERROR, OnDuplicate.COMBINE])
@pytest.mark.parametrize("missing", [Missing.KEEP, Missing.NULL])
def test_a_record_without_a_required_member_of_its_group_matches_nothing(
    graph: Graph, tmp_path: Path, engine: str, on_duplicate: OnDuplicate, missing: Missing
) -> None:
    # Tasks write 0 in the place of a required number that is not there.
    load_lines(graph, tmp_path, edge("Full", "pq", a=0, w=0), engine=engine)
    for data in ({"w": 0}, {"w": 0, "n": "y"}):
        with pytest.raises(ValidationError, match="non-nullable property 'a'"):
            load_lines(
                graph,
                tmp_path,
                edge("Full", "pq", **data),
                engine=engine,
                missing=missing,
                on_duplicate=on_duplicate,
            )
    assert full_rows(graph) == [("p", "q", 0, 0, None)]


@ENGINES
@pytest.mark.parametrize("on_duplicate", list(OnDuplicate))
def test_two_records_of_one_group_are_refused_also_where_one_equals_the_stored_edge(
    graph: Graph, tmp_path: Path, engine: str, on_duplicate: OnDuplicate
) -> None:
    load_lines(graph, tmp_path, edge("Ends", "pq", a=1), engine=engine)
    with pytest.raises(ValidationError, match="@unique violation"):
        load_lines(
            graph,
            tmp_path,
            edge("Ends", "pq", a=2),
            edge("Ends", "pq", a=1),
            engine=engine,
            on_duplicate=on_duplicate,
        )


# -- races ----------------------------------------------------------------------------------------


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    disarm()


def interrupt(action: Callable[[], object]) -> None:
    """Do something between the preparation of the next write and its lock."""

    def once() -> None:
        disarm()
        action()

    arm("write.post_stage", once)


@ENGINES
@pytest.mark.usefixtures("disarmed")
def test_a_load_that_loses_to_one_of_the_same_edges_adds_none(
    graph: Graph, tmp_path: Path, engine: str
) -> None:
    with Graph.open(graph.uri) as rival:
        interrupt(lambda: rival.load(text(*ALL[:5]), mode="merge"))
        result = load_lines(graph, tmp_path, *ALL, engine=engine)
    assert (result.inserted, result.unchanged) == (len(ALL) - 5, 5)


@ENGINES
@pytest.mark.usefixtures("disarmed")
def test_edges_that_vanish_in_a_race_are_inserted(
    graph: Graph, tmp_path: Path, engine: str
) -> None:
    load_lines(graph, tmp_path, edge("Plain", "pq"), edge("Ends", "pq", a=1), engine=engine)
    remove = 'query q() { delete Plain where from = "p" delete Ends where from = "p" }'
    with Graph.open(graph.uri) as rival:
        interrupt(lambda: rival.mutate(remove))
        result = load_lines(
            graph,
            tmp_path,
            edge("Plain", "pq"),
            edge("Ends", "pq", a=1),
            edge("Keyed", "pq", a=1),
            engine=engine,
        )
    assert result.inserted == 3
    assert len(graph.snapshot().open("edge:Plain").scan().read_all()) == 1


@ENGINES
@pytest.mark.usefixtures("disarmed")
def test_a_matched_edge_that_changes_in_a_race_is_matched_again(
    graph: Graph, tmp_path: Path, engine: str
) -> None:
    load_lines(graph, tmp_path, edge("Ends", "pq", a=1), edge("Lone", "qp", a=1), engine=engine)
    change = (
        "query q() { update Ends set { a: 7 } where a = 1 update Lone set { a: 8 } where a = 1 }"
    )
    with Graph.open(graph.uri) as rival:
        interrupt(lambda: rival.mutate(change))
        result = load_lines(
            graph, tmp_path, edge("Ends", "pq", a=1), edge("Keyed", "pq", a=1), engine=engine
        )
    assert (result.inserted, result.updated) == (1, 1)
    (row,) = graph.snapshot().open("edge:Ends").scan().read_all().to_pylist()
    assert row["a"] == 1


@pytest.mark.parametrize("load", [Graph.load, inline_load], ids=["local", "tasks"])
def test_an_append_sets_edges_aside_with_the_ids_that_they_had(
    tmp_path: Path, load: Callable[..., LoadResult]
) -> None:
    """Tasks noted which ids they had made only in loads that match edges."""
    schema = "node A { k: String @key }\nedge Link: A -> A @card(0..1)"
    lines = (
        b'{"type": "A", "data": {"k": "a"}}\n'
        b'{"edge": "Link", "from": "a", "to": "a", "data": {"id": "l0"}}\n'
        b'{"edge": "Link", "from": "a", "to": "a"}\n'
    )
    file = tmp_path / "in.jsonl"
    file.write_bytes(lines)
    with Graph.init(tmp_path / "g.omni", schema, durability="process") as graph:
        aside, mode = tmp_path / "aside", WriteMode.APPEND
        load(graph, file, mode=mode, on_error=OnError.QUARANTINE, quarantine=aside)
    [line] = (tmp_path / "aside" / "edge-Link.jsonl").read_text().splitlines()
    assert "id" not in json.loads(line)["record"].get("data", {})
