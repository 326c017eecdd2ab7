"""Every format and container of a load: the same rows give the same graph."""

from __future__ import annotations

import gzip
import json
import random
import string
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from omnigraph.errors import InvalidInputError
from omnigraph.graph import Graph
from omnigraph.store.outside_files import locate
from omnigraph.write.load.formats import csv_rows, json_array
from omnigraph.write.load.formats.description import SourceSpecError
from omnigraph.write.load.formats.files import InputUnreadableError
from omnigraph.write.load.formats.kinds import InputFormatError
from omnigraph.write.rules.violations import ValidationError
from support.s3 import serve_s3

SCHEMA = """
node Thing {
    key: String @key
    text: String?
    flag: Bool?
    small: I32?
    large: I64?
    word: U32?
    ratio: F64?
    day: Date?
    moment: DateTime?
    state: enum(new, old) @default("new")
    tags: [String]?
    numbers: [I64]?
}
edge Link: Thing -> Thing { since: I32? }
"""
COLUMNS = pa.schema(
    [
        pa.field("key", pa.utf8()),
        pa.field("text", pa.utf8()),
        pa.field("flag", pa.bool_()),
        pa.field("small", pa.int32()),
        pa.field("large", pa.int64()),
        pa.field("word", pa.int64()),
        pa.field("ratio", pa.float64()),
        pa.field("day", pa.date32()),
        pa.field("moment", pa.timestamp("ms", "UTC")),
        pa.field("state", pa.utf8()),
        pa.field("tags", pa.list_(pa.utf8())),
        pa.field("numbers", pa.list_(pa.int64())),
    ]
)
ALPHABET = string.ascii_letters + string.digits + " ,;\t\"'\n\r\\{}[]:é✓𝄞"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    root = tmp_path_factory.mktemp("formats") / "graph"
    with Graph.init(str(root), SCHEMA, durability="process") as made:
        yield made


@pytest.fixture
def graph(shared: Graph) -> Graph:
    """An empty graph."""
    shared.load({"Thing": [], "Link": []}, mode="overwrite")
    return shared


def random_rows(seed: int, count: int = 60) -> list[dict[str, Any]]:
    """Rows that name every property; nulls are spread over all that may be null."""
    chance = random.Random(seed)

    def text(shortest: int = 0) -> str:
        return "".join(chance.choices(ALPHABET, k=chance.randint(shortest, 8)))

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.25 else value

    return [
        {
            "key": f"{number}-{text()}",
            "text": maybe(text()),
            "flag": maybe(chance.random() < 0.5),
            "small": maybe(chance.randint(-(2**31), 2**31 - 1)),
            "large": maybe(chance.randint(-(2**63), 2**63 - 1)),
            "word": maybe(chance.randint(0, 2**32 - 1)),
            "ratio": maybe(chance.choice([0.1, -2.5e-300, 1e300, 3.0, chance.random()])),
            "day": maybe(date(1900, 1, 1).fromordinal(chance.randint(1, 3_000_000))),
            "moment": maybe(datetime.fromtimestamp(chance.randint(-(10**9), 9 * 10**9), UTC)),
            "state": chance.choice(["new", "old"]),
            "tags": maybe([text() for _ in range(chance.randint(0, 3))]),
            "numbers": maybe([chance.randint(-5, 5) for _ in range(chance.randint(0, 3))]),
        }
        for number in range(count)
    ]


def json_row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, date) else value for name, value in row.items()
    }


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, COLUMNS)


def texts(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as CSV has them."""

    def cell(value: Any) -> str | None:
        if value is None or isinstance(value, str):
            return value
        return value.isoformat() if isinstance(value, date) else json.dumps(value)

    columns = {name: [cell(row[name]) for row in rows] for name in COLUMNS.names}
    return pa.table({name: pa.array(cells, pa.utf8()) for name, cells in columns.items()})


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(json_row(row)) + b"\n" for row in rows))
    return path


def write_array(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(orjson.dumps([json_row(row) for row in rows], option=orjson.OPT_INDENT_2))
    return path


def write_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    arrow_csv.write_csv(texts(rows), path, arrow_csv.WriteOptions(delimiter=delimiter))
    return path


def write_ipc(path: Path, rows: list[dict[str, Any]]) -> Path:
    with pa.ipc.new_file(path, COLUMNS) as writer:
        writer.write_table(table(rows), max_chunksize=7)
    return path


def write_ipc_stream(path: Path, rows: list[dict[str, Any]]) -> Path:
    with pa.ipc.new_stream(path, COLUMNS) as writer:
        writer.write_table(table(rows), max_chunksize=7)
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(table(rows), path, row_group_size=7)
    return path


def write_orc(path: Path, rows: list[dict[str, Any]]) -> Path:
    orc.write_table(table(rows), path)
    return path


def packed(path: Path, codec: str) -> Path:
    target = path.with_name(f"{path.name}.{'gz' if codec == 'gzip' else 'zst'}")
    with pa.CompressedOutputStream(str(target), codec) as out:
        out.write(path.read_bytes())
    return target


class Streamed:
    """Something with Arrow's stream interface and nothing else."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


class LazyFrame:
    """Collects its rows when it is asked, as a lazy frame of polars does."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def collect(self) -> Streamed:
        return Streamed(self._rows)


LazyFrame.__module__ = "polars.lazyframe.frame"

Source = Callable[[Path, list[dict[str, Any]]], Any]
SOURCES: dict[str, Source] = {
    "jsonl": lambda at, rows: write_lines(at / "a.jsonl", rows),
    "json": lambda at, rows: write_array(at / "a.json", rows),
    "csv": lambda at, rows: write_csv(at / "a.csv", rows),
    "tsv": lambda at, rows: write_csv(at / "a.tsv", rows, "\t"),
    "parquet": lambda at, rows: write_parquet(at / "a.parquet", rows),
    "arrow": lambda at, rows: write_ipc(at / "a.arrow", rows),
    "arrow stream": lambda at, rows: write_ipc_stream(at / "a.arrows", rows),
    "orc": lambda at, rows: write_orc(at / "a.orc", rows),
    "gzip": lambda at, rows: packed(write_csv(at / "a.csv", rows), "gzip"),
    "zstd": lambda at, rows: packed(write_lines(at / "a.jsonl", rows), "zstd"),
    "a name that says nothing": lambda at, rows: write_parquet(at / "data", rows),
    "objects": lambda _, rows: rows,
    "table": lambda _, rows: table(rows),
    "reader": lambda _, rows: table(rows).to_reader(),
    "dataset": lambda at, rows: ds.dataset(write_parquet(at / "a.parquet", rows)),
    "pandas": lambda _, rows: table(rows).to_pandas(types_mapper=pd.ArrowDtype),
    "stream": lambda _, rows: Streamed(table(rows)),
    "lazy": lambda _, rows: LazyFrame(table(rows)),
}


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_rows_give_the_same_graph_in_every_format(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    if seed == 2:
        # Rows lie across the ends of blocks.
        monkeypatch.setattr(csv_rows, "BLOCK_BYTES", 50)
        monkeypatch.setattr(json_array, "BATCH_BYTES", 50)
    rows = random_rows(seed)
    graph.load({"Thing": table(rows)}, mode="overwrite")
    expected = list(graph.export_lines())
    assert len(expected) == len(rows)
    for name, source in SOURCES.items():
        folder = tmp_path / name
        folder.mkdir()
        result = graph.load({"Thing": source(folder, rows)}, mode="overwrite")
        assert (result.engine, result.total_entities) == ("local", len(rows)), name
        assert list(graph.export_lines()) == expected, name


def test_polars_frames_are_tables(graph: Graph) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(table(random_rows(3)))
    graph.load({"Thing": frame}, mode="overwrite")
    expected = list(graph.export_lines())
    graph.load({"Thing": frame.lazy()}, mode="overwrite")
    assert list(graph.export_lines()) == expected


def test_categories_of_polars_are_texts(graph: Graph, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    state = polars.Series(["new", "old", "old"], dtype=polars.Categorical)
    listed = polars.Series([["x"], None, []], dtype=polars.List(polars.Categorical))
    frame = polars.DataFrame({"key": ["a", "b", "c"], "state": state, "tags": listed})
    frame.write_ipc(tmp_path / "a.arrow")
    frame.cast({"state": polars.Enum(["new", "old"])}).write_ipc(tmp_path / "b.arrow")
    for source in (frame, frame.lazy(), tmp_path / "a.arrow", tmp_path / "b.arrow"):
        graph.load({"Thing": source}, mode="overwrite")
        assert [(row["state"], row["tags"]) for row in things(graph).values()] == [
            ("new", ["x"]),
            ("old", None),
            ("old", []),
        ]


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_an_exported_folder_comes_back_in_one_call(graph: Graph, tmp_path: Path, form: str) -> None:
    rows = random_rows(4)
    links = [{"src": rows[n]["key"], "dst": rows[n + 1]["key"], "since": n} for n in range(20)]
    graph.load({"Thing": rows, "Link": links}, mode="overwrite")
    expected = list(graph.export_lines())
    graph.export(tmp_path / "out", format=form)
    with Graph.init(str(tmp_path / "copy"), SCHEMA, durability="process") as copy:
        result = copy.load(tmp_path / "out", mode="append")
        assert result.inserted == len(expected)
        assert list(copy.export_lines()) == expected


def test_a_member_that_is_left_out_takes_the_default_and_a_null_does_not(
    graph: Graph, tmp_path: Path
) -> None:
    rows = [{"key": "a"}, {"key": "b", "small": None}]
    records = [{"type": "Thing", "data": row} for row in rows]
    for data in (
        {"Thing": rows},
        {"Thing": write_lines(tmp_path / "rows.jsonl", rows)},
        {"Thing": write_array(tmp_path / "rows.json", rows)},
        records,
        write_array(tmp_path / "records.json", records),
    ):
        graph.load(data, mode="overwrite")
        assert [json.loads(line)["data"]["state"] for line in graph.export_lines()] == ["new"] * 2
        with pytest.raises(ValidationError, match="'state'"):
            graph.load({"Thing": [{"key": "a", "state": None}]}, mode="overwrite")


def things(graph: Graph) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in graph.export_lines()]
    return {one["data"]["key"]: one["data"] for one in found if "type" in one}


def test_cells_of_csv(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        b"\xef\xbb\xbfkey,text,flag,small,tags\r\n"
        b'a,"",TRUE, 7,"[""x"", ""y""]"\r\n'
        b"\r\n"
        b"b,,0,8.0,[]\r\n"
        b'"c\r\nd",5" pipe,,,\r\n'
    )
    graph.load({"Thing": path}, mode="overwrite")
    found = things(graph)
    assert [(row["text"], row["flag"], row["small"], row["tags"]) for row in found.values()] == [
        ("", True, 7, ["x", "y"]),
        (None, False, 8, []),
        ('5" pipe', None, None, None),
    ]
    assert list(found) == ["a", "b", "c\r\nd"]


def test_rows_of_csv_that_are_wrong_are_named_by_their_lines(graph: Graph, tmp_path: Path) -> None:
    path, other = tmp_path / "a.csv", tmp_path / "b.parquet"
    path.write_text('key,small,day\n"a\nb",1,2020-01-01\n\nc,x,2020-01-01\nd,1\ne,99999999999,no\n')
    pq.write_table(pa.table({"src": ["q"], "dst": pa.array([None], pa.utf8())}), other)
    with pytest.raises(ValidationError) as raised:
        graph.load({"Thing": path, "Link": other}, mode="append")
    assert raised.value.lines == (
        f"""{path} line 5: Thing: strict property 'small' expects Int32, got "x\"""",
        f"{path} line 6: Thing: expected 3 cells, found 2",
        f"{path} line 7: Thing: property 'day': invalid Date literal 'no'",
        f"{path} line 7: Thing: property 'small' value 99999999999 exceeds Int32 range",
        f"{other} row 1: edge 'Link' requires field 'dst'",
    )


def test_a_row_of_csv_that_is_left_out_can_be_loaded_again(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('key,small,tags,state\na,7,"[""x""]",gone\nb,1,,old\n')
    left = tmp_path / "left"
    graph.load({"Thing": path}, mode="overwrite", on_error="quarantine", quarantine=left)
    (line,) = (left / "node-Thing.jsonl").read_text().splitlines()
    record = json.loads(line)["record"]
    assert record == {
        "type": "Thing",
        "data": {"key": "a", "small": 7, "tags": ["x"], "state": "gone"},
    }
    record["data"]["state"] = "old"
    assert graph.load([record], mode="append").inserted == 1


def test_a_carriage_return_may_end_a_file_or_be_in_a_quoted_cell(
    graph: Graph, tmp_path: Path
) -> None:
    path = _written(tmp_path / "a.csv", b'key,text\r\na,"x\ry"\r\nb,y\r')
    graph.load({"Thing": path}, mode="overwrite")
    assert {key: row["text"] for key, row in things(graph).items()} == {"a": "x\ry", "b": "y"}


def test_files_with_tabs_stay_so_with_other_options(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes("key\tsmall\tä\nb\tNA\tx\n".encode("latin-1"))
    options = {"null": ["NA"], "encoding": "latin1"}
    source = {"path": tmp_path / "a.tsv", "options": options, "map": {"text": "ä"}}
    graph.load({"Thing": source}, mode="overwrite")
    assert {(key, row["small"], row["text"]) for key, row in things(graph).items()} == {
        ("b", None, "x")
    }
    (tmp_path / "b.csv").write_text("key\nc\n", encoding="utf-16")
    source = {"path": tmp_path / "b.csv", "options": {"encoding": "UTF-16"}}
    graph.load({"Thing": source}, mode="overwrite")
    assert list(things(graph)) == ["c"]


MISTAKES: dict[str, tuple[Any, str]] = {
    "a text in UTF-16": ("a.csv", "is text in UTF-16, expected CSV"),
    "a workbook": ("a.xlsx", "is a ZIP archive or an Excel workbook, expected a table"),
    "a column of no name": ("b.csv", "a column has no name: pandas leaves its index out"),
    "a map the wrong way": (
        {"path": "c.csv", "map": {"Key": "key"}},
        "columns by property, {'key': 'Key'}",
    ),
    "an option as an entry": ({"path": "c.csv", "sep": ";"}, "{'options': {'sep': …}}"),
    "no delimiter": ({"path": "c.csv", "options": {"sep": ""}}, "expected one character"),
    "columns of lists": ({"key": ["a"]}, "expected one of 'path' and 'table'"),
    "no number": ([{"key": "a", "small": float("nan")}], "expects Int32, got NaN"),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_usual_mistake_is_told_what_to_write(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("key\na\n", encoding="utf-16")
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04\0\0")
    (tmp_path / "b.csv").write_text(",key\n0,a\n")
    (tmp_path / "c.csv").write_text("Key\na\n")
    source, words = MISTAKES[name]
    with pytest.raises(InvalidInputError) as raised:
        graph.load({"Thing": source}, mode="overwrite")
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"key": "a"}, "name the type of rows"),
        ({"type": "Thing", "key": "a"}, "properties stand in `data`"),
        ({"type": "Thing", "data": {"kex": "a"}}, "on_error="),
    ],
)
def test_records_in_a_wrong_form_are_told_the_right_one(
    graph: Graph, record: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        graph.load([record], mode="overwrite")
    [hint] = raised.value.__notes__
    assert words in hint


def test_options_say_how_csv_is_written(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("a comment\nä;NA;'x;\\'y'\n".encode("latin-1"))
    options = {
        "delimiter": ";",
        "quote": "'",
        "escape": "\\",
        "header": False,
        "columns": ["key", "small", "text"],
        "null": ["NA"],
        "encoding": "latin-1",
        "skip": 1,
    }
    graph.load({"Thing": {"path": path, "format": "csv", "options": options}}, mode="overwrite")
    assert (things(graph)["ä"]["small"], things(graph)["ä"]["text"]) == (None, "x;'y")
    for wrong, words in (
        ({"delimeter": ";"}, "unknown option 'delimeter': did you mean 'delimiter'?"),
        ({"delimiter": ";;"}, "'delimiter' is ';;', expected one character"),
        ({"encoding": "none"}, "'encoding' is 'none', which is not known"),
    ):
        with pytest.raises(SourceSpecError) as raised:
            graph.load({"Thing": {"path": path, "options": wrong}}, mode="overwrite")
        assert words in str(raised.value)


def test_a_map_names_columns_and_leaves_others_out(graph: Graph, tmp_path: Path) -> None:
    path, links = tmp_path / "a.csv", tmp_path / "links.jsonl"
    path.write_text("name,small,junk\na,1,x\nb,2,y\n")
    links.write_text('{"a": "a", "b": "b", "since": 4, "junk": 1}\n')
    graph.load(
        {
            "Thing": {"path": path, "map": {"key": "name"}},
            "Link": {"path": links, "map": {"src": "a", "dst": "b"}},
        },
        mode="overwrite",
    )
    assert {key: row["small"] for key, row in things(graph).items()} == {"a": 1, "b": 2}
    (link,) = [json.loads(line) for line in graph.export_lines() if b'"edge"' in line]
    assert (link["from"], link["to"], link["data"]["since"]) == ("a", "b", 4)
    for columns, words in (
        ({"key": "nam"}, "'map' names the column 'nam', which is not there: did you mean 'name'?"),
        ({"kex": "name"}, "'map' names the unknown property 'kex'; did you mean 'key'?"),
        ({"key": "upper(name)"}, "'upper(name)' is an expression of SQL"),
    ):
        source = {"path": path, "map": columns}
        with pytest.raises(SourceSpecError) as raised:
            graph.load({"Thing": source}, mode="overwrite", engine="local")
        assert words in str(raised.value)


def test_folders_of_partitions_add_columns(graph: Graph, tmp_path: Path) -> None:
    for small, name in (("1", "a"), ("__HIVE_DEFAULT_PARTITION__", "b"), ("3", "c")):
        folder = tmp_path / f"small={small}" / "day=2020-01-0%31"
        folder.mkdir(parents=True)
        rows = [{"key": name}]
        if name == "a":
            pq.write_table(pa.Table.from_pylist(rows), folder / "x.parquet")
        elif name == "b":
            (folder / "x.csv").write_text("key\nb\n")
        else:
            write_lines(folder / "x.jsonl", rows)
        (folder / "_SUCCESS").touch()
    for source in (tmp_path, str(tmp_path / "*"), f"{tmp_path}/**/x.*"):
        graph.load({"Thing": source}, mode="overwrite")
        found = {key: (row["small"], row["day"]) for key, row in things(graph).items()}
        assert found == {"a": (1, 18262), "b": (None, 18262), "c": (3, 18262)}


WRONG: dict[str, tuple[Source, dict[str, str], str]] = {
    "CSV as records": (lambda at, rows: write_csv(at / "a.csv", rows), {}, "CSV, graph records"),
    "CSV of one column": (
        lambda at, _: _written(at / "a.jsonl", b"key\na\nb\n"),
        {},
        "CSV, graph records",
    ),
    "Parquet as records": (
        lambda at, rows: write_parquet(at / "a.parquet", rows),
        {},
        "Parquet, graph records",
    ),
    "records as rows": (
        lambda at, _: {"Thing": write_lines(at / "a.jsonl", [{"type": "Thing", "data": {}}])},
        {},
        "graph records, rows of Thing",
    ),
    "Parquet as CSV": (
        lambda at, rows: {"Thing": write_parquet(at / "a.parquet", rows)},
        {"format": "csv"},
        "Parquet, CSV",
    ),
    "CSV as Parquet": (
        lambda at, rows: {"Thing": write_csv(at / "a.parquet", rows)},
        {},
        "CSV, Parquet",
    ),
    "JSON as CSV": (
        lambda at, rows: {"Thing": write_lines(at / "a.csv", rows)},
        {},
        "JSON lines, CSV",
    ),
    "CSV as JSON": (
        lambda at, rows: {"Thing": write_csv(at / "a.json", rows)},
        {},
        "CSV, JSON lines",
    ),
    "nothing as Parquet": (
        lambda at, _: {"Thing": _written(at / "a.parquet", b"")},
        {},
        "an empty file, Parquet",
    ),
    "something": (
        lambda at, _: {"Thing": _written(at / "a", b"\0\1\2")},
        {},
        "binary data of no known format, a table",
    ),
    "a table that is asked for": (
        lambda at, rows: write_csv(at / "a.csv", rows),
        {"format": "csv"},
        "CSV, graph records",
    ),
    "packed Parquet": (
        lambda at, rows: {"Thing": packed(write_parquet(at / "a.parquet", rows), "gzip")},
        {},
        "compressed (gzip), Parquet, which is never compressed as a whole",
    ),
}


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", list(WRONG))
def test_a_file_of_another_format_is_one_error_that_names_both(
    graph: Graph, tmp_path: Path, name: str
) -> None:
    source, options, words = WRONG[name]
    with pytest.raises(InputFormatError) as raised:
        graph.load(source(tmp_path, random_rows(5)), mode="overwrite", **options)
    assert f"{raised.value.found}, {raised.value.expected}" == words
    assert "a" in Path(raised.value.source).name


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"", "is empty, expected a header"),
        ("a.csv", b"key,text\na,\xff\n", "is no UTF-8 text: byte 0xff in line 2"),
        ("a.csv.gz", gzip.compress(b"key\na\n", mtime=0)[:12], "cannot be read"),
        ("a.parquet", b"PAR1 and nothing else", "cannot be read"),
        ("a.csv", b'key,text\na,x\nb,"y\nc,z\n', "never ends, in the row that begins in line 3"),
        ("a.csv", b'key,"text\na,x\n', "never ends, in the row that begins in line 1"),
        ("a.csv", b"key,text\ra,x\r", "without a line feed in line 1"),
        ("a.csv", b'key,text\na,"x\ry"\nb,y\rc,z\n', "without a line feed in line 3"),
        ("a.csv", b"key" * 50_000 + b"\n", "has no header of a CSV file"),
    ],
)
def test_a_broken_file_is_one_error_that_names_it(
    graph: Graph, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    with pytest.raises(InputUnreadableError, match=words) as raised:
        graph.load({"Thing": _written(tmp_path / name, content)}, mode="overwrite")
    assert raised.value.source.endswith(name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'[{"type": "Thing", "data": {"key": "a"}} {}]', "record 2: expected ',' or ']'"),
        (b'[{"type": "Thing", "data": {"key": "a"}},', "record 2: Expecting value"),
        (b'[{"type": "Thing", "data": {"kex": "a"}}]', "record 1: unknown input field 'kex'"),
    ],
)
def test_a_broken_array_names_the_record(graph: Graph, text: bytes, words: str) -> None:
    with pytest.raises(ValidationError) as raised:
        graph.load(text, mode="overwrite")
    assert words in raised.value.lines[0]


def test_an_empty_table_overwrites_whatever_its_form(graph: Graph, tmp_path: Path) -> None:
    empty = [write_lines(tmp_path / "a.jsonl", []), write_array(tmp_path / "a.json", []), []]
    empty.append(_written(tmp_path / "a.csv", b"key\n"))
    for source in empty:
        graph.load({"Thing": [{"key": "a"}]}, mode="overwrite")
        graph.load({"Thing": source}, mode="overwrite")
        assert list(graph.export_lines()) == []


def test_columns_that_the_type_does_not_have_are_reported_once(
    graph: Graph, tmp_path: Path
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("key,smal\na,1\nb,2\n")
    with pytest.raises(ValidationError) as raised:
        graph.load({"Thing": tmp_path}, mode="overwrite")
    assert raised.value.lines == (
        "unknown input field 'smal' for 'node:Thing'; did you mean 'small'?",
    )


def test_values_of_python_are_taken_as_they_are_meant(graph: Graph) -> None:
    row = {"key": "a", "day": date(2020, 1, 1), "moment": pd.Timestamp("2020-01-01T00:00:01Z")}
    row |= {"small": pd.NA, "text": pd.NaT}
    graph.load([{"type": "Thing", "data": row | {"tags": ("x",)}}], mode="overwrite")
    found = things(graph)["a"]
    assert (found["day"], found["moment"], found["tags"]) == (18262, 1577836801000, ["x"])


def test_inputs_may_lie_in_object_storage() -> None:
    with serve_s3() as server:

        def put(uri: str, content: bytes) -> None:
            at = locate(uri, server.options)
            with at.system.open_output_stream(at.path, compression=None) as out:
                out.write(content)

        base = f"s3://{server.bucket}/in"
        with Graph.init(
            f"s3://{server.bucket}/graph", SCHEMA, storage_options=server.options
        ) as far:
            for number in (1, 2):
                text = f"key\n{number}\n".encode()
                put(f"{base}/small={number}/a.csv", text)
            line = b'{"type": "Thing", "data": {"key": "x"}}\n'
            put(f"s3://{server.bucket}/records/a.jsonl.gz", gzip.compress(line))
            for source in (base, f"{base}/*/a.csv", [f"{base}/small=1", f"{base}/small=2"]):
                far.load({"Thing": source}, mode="overwrite")
                assert sorted(things(far)) == ["1", "2"]
            assert {key: row["small"] for key, row in things(far).items()} == {"1": None, "2": None}
            far.load({"Thing": base}, mode="overwrite")
            assert {key: row["small"] for key, row in things(far).items()} == {"1": 1, "2": 2}
            far.load(f"s3://{server.bucket}/records", mode="overwrite")
            assert list(things(far)) == ["x"]
            with pytest.raises(InvalidInputError, match="is not there"):
                far.load({"Thing": f"{base}/none.csv"}, mode="overwrite")
