"""Files of micro-batches: which they are, and whether they have the columns of their stream."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.spark.steps import SourceRead, SparkStepError
from omnigraph.spark.steps.new_files import files_of_batch, require_columns


def write_log(folder: Path, name: str, *lines: object) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(["v1", *texts]))


def entry(path: str, number: int) -> dict[str, object]:
    return {"path": path, "timestamp": 1, "batchId": number}


def test_the_files_of_a_micro_batch_are_in_the_log_of_its_stream(tmp_path: Path) -> None:
    write_log(tmp_path, "offsets/0", {}, "-", {"logOffset": 0})
    write_log(tmp_path, "offsets/1", {}, {"logOffset": 1}, {"logOffset": 0})
    write_log(tmp_path, "sources/0/0", entry("a", 0))
    write_log(tmp_path, "sources/0/1.compact", entry("a", 0), entry("b", 1))
    write_log(tmp_path, "sources/1/0", entry("c", 0))
    place = tmp_path.as_uri()
    assert files_of_batch(place, 0, 0) == ()
    assert files_of_batch(place, 1, 0) == ("c",)
    assert files_of_batch(place, 0, 1) == ("a", "b")
    assert files_of_batch(place, 1, 1) == ()
    # What is not there, or of another shape, is not known.
    assert files_of_batch(place, 0, 2) is None
    assert files_of_batch("s3://bucket/checkpoint", 0, 0) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name,age\nann,1\n", None),
        ("name,age,new\nann,1,x\n", None),
        ("\ufeffname,age\nann,1\n", None),
        ("", None),
        ("name\nann\n", "has no column 'age'"),
        ("name,extra,age\nann,x,1\n", "has the column 'extra' in the place of 'age'"),
    ],
)
def test_columns_of_csv_are_taken_by_their_places(
    tmp_path: Path, text: str, problem: str | None
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    read = SourceRead("people", "csv", (str(tmp_path),), options={"header": "true"})
    if problem is None:
        require_columns(read, ["name", "age"], [path.as_uri()])
        return
    with pytest.raises(SparkStepError, match=problem):
        require_columns(read, ["name", "age"], [path.as_uri()])


def test_columns_of_parquet_may_be_in_the_names_of_folders(tmp_path: Path) -> None:
    path = tmp_path / "country=de" / "a b.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"NAME": ["ann"]}), path)
    read = SourceRead("people", "parquet", (str(tmp_path),))
    require_columns(read, ["name", "country"], [path.as_uri(), "s3://bucket/x.parquet"])
    with pytest.raises(SparkStepError, match=r"a b\.parquet' has no column 'age'"):
        require_columns(read, ["name", "age"], [path.as_uri()])


@pytest.mark.parametrize("options", [{"sep": "||"}, {"encoding": "x-windows-874"}])
def test_what_only_spark_can_read_is_left_to_spark(tmp_path: Path, options: dict[str, str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("name||age\nann||1\n")
    read = SourceRead("people", "csv", (str(tmp_path),), options={"header": "true", **options})
    require_columns(read, ["name", "age"], [path.as_uri()])
