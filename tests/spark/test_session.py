"""Finding or starting a Spark session."""

from __future__ import annotations

import pickle
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from omnigraph.spark import JavaMissingError, get_spark, java_problem


def fake_java(folder: Path, version_line: str) -> None:
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("version_line", "problem"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "25" 2025-09-16', None),
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11"),
        ('java version "1.8.0_392"', "is Java 8"),
        ("no version here", "shows no version"),
    ],
)
def test_the_java_version_is_read_from_what_java_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version_line: str, problem: str | None
) -> None:
    fake_java(tmp_path, version_line)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = java_problem()
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert problem in found
        assert "install a Java runtime" in found


def test_a_machine_without_java_is_told_what_to_install(tmp_path: Path) -> None:
    script = "from omnigraph.spark import get_spark\nget_spark()"
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("omnigraph.spark.session.JavaMissingError: Spark needs Java 17")
    assert "apt-get install openjdk-17-jre-headless" in last


def test_a_missing_java_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(JavaMissingError("no Java")))  # noqa: S301 our own bytes
    assert error.problem == "no Java"


@pytest.mark.spark
def test_an_active_session_is_reused(spark: SparkSession) -> None:
    assert get_spark() is spark


@pytest.mark.spark
def test_arrow_batches_cross_into_python_workers(spark: SparkSession) -> None:
    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = [2 * value for value in batch.column("id").to_pylist()]
            yield pa.RecordBatch.from_pydict({"id": values})

    frame = spark.range(1_000).repartition(3).mapInArrow(doubled, "id long")
    assert frame.toArrow().column("id").to_numpy().sum() == 999_000
