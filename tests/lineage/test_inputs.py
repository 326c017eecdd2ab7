"""What a load is about to read, described without reading it, and without secrets."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.lineage.inputs import address, describe, graph_read

SECRETS = ("hunter2", "ter2", "AKIAKEY", "SIGN", "tok3n")


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("s3://AKIAKEY:hunter2@lake/x.parquet", "s3://***@lake/x.parquet"),
        ("https://acc.blob/x.csv?sv=1&sig=SIGN", "https://acc.blob/x.csv?***"),
        ("https://h/x?page=tok3n#part", "https://h/x?***#part"),
        ("abfss://c@acc.dfs/x", "abfss://***@acc.dfs/x"),
        ("jdbc:postgresql://h/db?user=u&password=hunter2", "jdbc:postgresql://h/db?***"),
        ("jdbc:mysql://u:hun;ter2@h/db", "jdbc:mysql://***@h/db"),
        ("jdbc:oracle:thin:scott/hunter2@//h:1521/x", "jdbc:oracle:thin:***@//h:1521/x"),
        ("jdbc:oracle:thin:scott/hunter2@h:1521:sid", "jdbc:oracle:thin:***@h:1521:sid"),
        ("jdbc:mysql://address=(host=h)(password=hunter2)/db", "jdbc:mysql://address=***"),
        ("jdbc:db2://h:50000/db:password=hunter2;user=u;", "jdbc:db2://h:50000/db:***"),
        ("jdbc:sqlserver://h;pwd={hun ter2;x};database=d", "jdbc:sqlserver://h;database=d;***"),
        ("jdbc:duckdb:/data/x.db", "jdbc:duckdb:/data/x.db"),
        ("/data/in?.parquet", "file:///data/in?.parquet"),
        ("file:///data/in?.parquet", "file:///data/in?.parquet"),
    ],
)
def test_an_address_has_no_secret(place: str, shown: str) -> None:
    assert address(place) == shown
    assert not any(secret in address(place) for secret in SECRETS)


def test_options_of_a_source_are_not_stored() -> None:
    options = {"password": "hunter2", "fs.s3a.secret.key": "AKIAKEY"}
    spec = {"path": "s3://u:hunter2@b/x", "format": "csv", "options": options}
    found = describe({"Person": spec})
    assert found.inputs[0].to_json() == {"source": "x", "uri": "s3://***@b/x", "format": "csv"}
    assert not any(secret in repr(found) for secret in SECRETS)
    assert graph_read("s3://u:hunter2@b/g", "node:P", "01K").uri == "s3://***@b/g#node:P@01K"


def test_a_file_that_changes_has_another_digest(tmp_path: Path) -> None:
    file = tmp_path / "people.jsonl"
    file.write_bytes(b"{}\n")
    first = describe(file).inputs[0]
    assert describe(str(file)).inputs == (first,)
    assert (first.source, first.bytes, first.files) == ("people", 3, None)
    file.write_bytes(b"{}\n{}\n")
    assert describe(file).inputs[0].digest != first.digest


def test_a_glob_and_a_folder_are_one_input_with_all_their_files(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet"):
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "sub").mkdir()
    pattern = describe({"Person": str(tmp_path / "*.parquet")}).inputs[0]
    folder = describe({"node:Person": tmp_path}).inputs[0]
    assert (pattern.files, pattern.bytes, pattern.uri) == (2, 10, f"file://{tmp_path}/*.parquet")
    assert (folder.files, folder.digest) == (2, pattern.digest)


def test_rows_in_memory_have_the_name_of_their_type_and_a_content_hash() -> None:
    same = [describe(b"{}\n").inputs[0], describe(io.BytesIO(b"{}\n")).inputs[0]]
    assert same[0] == same[1]
    assert (same[0].uri, same[0].bytes) == ("memory:records", 3)
    assert describe(b"x" * (2 << 20)).inputs[0].digest is None
    table = describe({"Person": pa.table({"name": ["a"]})}).inputs[0]
    assert (table.uri, table.format, table.columns) == ("memory:Person", "arrow", ("name",))


def test_rows_are_given_to_an_input_that_has_them_all() -> None:
    tables = describe({"Person": pa.table({"name": ["a"]}), "Knows": [Path("a"), Path("b")]})
    rows = tables.with_rows({"node:Person": 1, "edge:Knows": 7})
    assert [(one.uri.rpartition("/")[2], one.rows) for one in rows] == [
        ("memory:Person", 1),
        ("a", None),
        ("b", None),
    ]


def test_plain_columns_of_a_mapping_are_lineage_and_expressions_are_not() -> None:
    spec = {
        "path": "in/people.csv",
        "map": {"name": "full_name", "age": "int(a) + 1", "city": "`town`"},
        "src": "follower",
    }
    assert describe({"Person": spec}).columns == {
        "Person.name": ["people.full_name"],
        "Person.city": ["people.town"],
        "Person.src": ["people.follower"],
    }


class Odd:
    """A path of bytes, which nothing here reads."""

    def __fspath__(self) -> bytes:
        return b"x"


def closed() -> io.BytesIO:
    file = io.BytesIO(b"{}")
    file.close()
    return file


@pytest.mark.parametrize(
    "data",
    [
        *(7, None, object(), Odd(), "a\0b", "no-such-file", [1, 2], [], {7: 8}, closed()),
        *({"Person": {}}, {"Person": {"path": "x", "map": [1]}}, {"Person": {"path": 7}}),
    ],
)
def test_what_cannot_be_described_is_no_error(data: object) -> None:
    describe(data)


class Frame:
    """A frame of Spark, which must not be asked anything."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"asked for {name}")


Frame.__module__ = "pyspark.sql.connect.dataframe"


def test_a_frame_of_spark_is_not_asked() -> None:
    [read] = describe({"Person": Frame()}).inputs
    assert read.to_json() == {"uri": "memory:Person", "format": "spark"}
