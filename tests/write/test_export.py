"""Export: what is written, and that a load takes it back."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import Graph, ReadTarget
from omnigraph.write.export.exporter import (
    SUMMARY,
    ExportFormat,
    ExportTargetError,
    UnknownExportTypeError,
    parquet_schema,
)

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    total: U64?
    small: U32?
    share: F32?
    ratio: F64?
    born: Date?
    seen: DateTime?
    active: Bool?
    kind: enum(cat, dog)?
    tags: [String]?
    sightings: [DateTime]?
    place: Vector(2)?
    photo: Blob?
}
node Note { text: String }
edge Knows: Person -> Person { since: Date? }
"""

F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
MOMENTS = st.integers(-(2**53), 2**53)
PEOPLE = st.lists(
    st.fixed_dictionaries(
        {"name": st.text("abcé'\"\n", min_size=1, max_size=4)},
        optional={
            "age": st.integers(-(2**31), 2**31 - 1),
            "total": st.integers(0, 2**64 - 1),
            "small": st.integers(0, 2**32 - 1),
            "share": F32,
            "ratio": st.floats(allow_nan=False, allow_infinity=False),
            "born": st.integers(-(2**31), 2**31 - 1),
            "seen": MOMENTS,
            "active": st.booleans(),
            "kind": st.sampled_from(["cat", "dog"]),
            "tags": st.lists(st.text(max_size=3), max_size=3),
            "sightings": st.lists(MOMENTS, max_size=2),
            "place": st.lists(F32, min_size=2, max_size=2),
            "photo": st.sampled_from(["base64:", "base64:AAEC"]),
        },
    ),
    unique_by=lambda person: person["name"],
    max_size=6,
)


def lines(*records: dict[str, object]) -> bytes:
    return b"\n".join(json.dumps(record).encode() for record in records)


def new_graph(root: Path, schema: str = SCHEMA) -> Graph:
    return Graph.init(root, schema, durability="process", auto_optimize=False)


def load_back(graph: Graph, out: Path, export_format: ExportFormat) -> None:
    if export_format is ExportFormat.JSONL:
        graph.load(str(out / "*" / "*" / "*.jsonl"), mode="append")
        return
    graph.load_tables(
        nodes={folder.name: folder for folder in (out / "nodes").iterdir()},
        edges={folder.name: folder for folder in (out / "edges").iterdir()},
        mode="append",
    )


@pytest.mark.parametrize("export_format", [ExportFormat.JSONL, ExportFormat.PARQUET])
@settings(max_examples=15)
@given(people=PEOPLE, notes=st.lists(st.text(max_size=3), max_size=2), data=st.data())
def test_what_was_exported_comes_back_with_a_load(
    tmp_path_factory: pytest.TempPathFactory,
    export_format: ExportFormat,
    people: list[dict[str, object]],
    notes: list[str],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("export")
    records: list[dict[str, object]] = [{"type": "Person", "data": person} for person in people]
    records += [{"type": "Note", "data": {"text": text}} for text in notes]
    if people:
        names = st.sampled_from([person["name"] for person in people])
        pairs = data.draw(st.lists(st.tuples(names, names), max_size=3))
        records += [{"edge": "Knows", "from": a, "to": b, "data": {"since": 1}} for a, b in pairs]
    with new_graph(folder / "one.omni") as one, new_graph(folder / "other.omni") as other:
        one.load(lines(*records), mode="append")
        result = one.export(folder / "out", format=export_format, engine="local")
        assert result.rows == len(records)
        if records:
            load_back(other, folder / "out", export_format)
        assert list(other.export_lines()) == list(one.export_lines())


def test_entities_are_streamed_by_type_edges_first_and_then_by_id(tmp_path: Path) -> None:
    with new_graph(tmp_path / "g.omni") as graph:
        people = [{"type": "Person", "data": {"name": name}} for name in ("zoe", "ann", "moe")]
        knows = {"edge": "Knows", "from": "zoe", "to": "ann", "data": {"since": "1970-01-03"}}
        graph.load(lines(*people, knows), mode="append")
        records = [json.loads(line) for line in graph.export_lines()]
        assert [record.get("edge") or record["data"]["id"] for record in records] == [
            "Knows",
            "ann",
            "moe",
            "zoe",
        ]
        assert records[0]["data"]["since"] == 2
        assert records[1]["data"]["photo"] is None
        only = [json.loads(line)["data"]["id"] for line in graph.export_lines(types=["Person"])]
        assert only == ["ann", "moe", "zoe"]


def test_an_export_is_of_one_snapshot_and_says_so(tmp_path: Path) -> None:
    with new_graph(tmp_path / "g.omni") as graph:
        graph.load(lines({"type": "Person", "data": {"name": "ann"}}), mode="append")
        graph.tag_create("first")
        graph.load(lines({"type": "Person", "data": {"name": "bob"}}), mode="append")
        result = graph.export(tmp_path / "out", types=["Person"], target=ReadTarget.tag("first"))
        assert result.rows == 1
        summary = json.loads((tmp_path / "out" / SUMMARY).read_text())
        assert summary["graph_commit_id"] == graph.snapshot_of(ReadTarget.tag("first")).commit_id
        assert summary["types"] == [
            {
                "entity_kind": "node",
                "type_name": "Person",
                "entities": 1,
                "bytes": (tmp_path / "out/nodes/Person/part-00000.jsonl").stat().st_size,
                "files": ["nodes/Person/part-00000.jsonl"],
            }
        ]
        assert (tmp_path / "out" / "schema.pg").read_text() == graph.schema_source()


def test_small_fragments_share_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.write.export.exporter.PART_ROWS", 3)
    with new_graph(tmp_path / "g.omni") as graph:
        for number in range(4):
            fresh = [{"type": "Note", "data": {"text": f"{number}-{row}"}} for row in range(2)]
            graph.load(lines(*fresh), mode="append")
        result = graph.export(tmp_path / "out", format="parquet", types=["node:Note"])
        assert [file.rows for file in result.files] == [2, 2, 2, 2]
        monkeypatch.setattr("omnigraph.write.export.exporter.PART_ROWS", 4)
        result = graph.export(tmp_path / "out2", format="parquet", types=["node:Note"])
        assert [file.rows for file in result.files] == [4, 4]


def test_parquet_has_types_that_every_reader_knows(tmp_path: Path) -> None:
    with new_graph(tmp_path / "g.omni") as graph:
        graph.export(tmp_path / "out", format="parquet")
        schema = parquet_schema(graph.catalog().node_types["Person"])
    found = pq.read_schema(tmp_path / "out/nodes/Person/part-00000.parquet")
    assert found.equals(schema)
    assert found.field("total").type == pa.decimal128(20, 0)
    assert found.field("small").type == pa.int64()
    assert found.field("seen").type == pa.timestamp("ms", tz="UTC")


def test_an_export_never_mixes_with_other_files(tmp_path: Path) -> None:
    with new_graph(tmp_path / "g.omni") as graph:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "mine.txt").write_text("keep")
        with pytest.raises(ExportTargetError, match=r"found `mine\.txt` in it"):
            graph.export(tmp_path / "out")
        with pytest.raises(ExportTargetError, match="found a file"):
            graph.export(tmp_path / "out" / "mine.txt")
        assert (tmp_path / "out" / "mine.txt").read_text() == "keep"


def test_an_unknown_type_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    with new_graph(tmp_path / "g.omni") as graph:
        with pytest.raises(UnknownExportTypeError, match="unknown export type 'Persn'") as caught:
            list(graph.export_lines(types=["Persn"]))
        assert caught.value.hint == "did you mean 'Person'?"


def test_an_export_that_fails_leaves_no_half_file_and_no_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise OSError("the disk is full")

    with new_graph(tmp_path / "g.omni") as graph:
        graph.load(lines({"type": "Note", "data": {"text": "x"}}), mode="append")
        monkeypatch.setattr("omnigraph.write.export.exporter.entity_lines", broken)
        with pytest.raises(OSError, match="the disk is full"):
            graph.export(tmp_path / "out", types=["Note"])
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == ["schema.pg"]
