"""Finding or starting a Spark session."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from omnigraph.spark import (
    JavaMissingError,
    SparkConnectMissingError,
    SparkStartError,
    get_spark,
    java_problem,
    register,
)
from omnigraph.spark.session import _quiet_settings


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
    problem, hint = run.stderr.strip().splitlines()[-2:]
    assert problem.startswith("omnigraph.spark.session.JavaMissingError: Spark needs Java 17")
    assert "apt-get install openjdk-17-jre-headless" in hint


def test_a_missing_java_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(JavaMissingError("no Java")))
    assert error.problem == "no Java"


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: None))
    monkeypatch.setattr("omnigraph.spark.session.getproxies", dict)


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize(
    ("remote", "problem"),
    [
        ("sc://127.0.0.1:1", "nobody answers there"),
        ("http://127.0.0.1", "expected an address like sc://host:15002"),
        ("sc://", "expected an address like sc://host:15002"),
        ("sc://127.0.0.1:port", "nobody answers there"),
    ],
)
def test_a_remote_that_is_not_there_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch, remote: str, problem: str
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", remote)
    with pytest.raises(SparkStartError, match=problem) as caught:
        get_spark()
    assert caught.value.where == remote


@pytest.mark.usefixtures("no_session")
def test_a_connect_client_without_grpc_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("omnigraph.spark.session.find_spec", lambda _: None)
    with pytest.raises(SparkConnectMissingError, match="grpcio"):
        get_spark(remote="sc://127.0.0.1:1")


@pytest.mark.usefixtures("no_session")
def test_a_remote_wins_over_a_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_SPARK_MASTER", "local[1]")
    with pytest.raises(SparkStartError, match="sc://127"):
        get_spark(remote="sc://127.0.0.1:1")


@pytest.mark.usefixtures("no_session")
def test_a_session_is_started_quietly_at_the_master_with_workers_of_this_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[str, str] = {}

    class Builder:
        def master(self, master: str) -> Builder:
            seen["master"] = master
            return self

        def appName(self, name: str) -> Builder:  # noqa: N802 - Spark's name
            seen["name"] = name
            return self

        def config(self, key: str, value: str) -> Builder:
            seen[key] = value
            return self

        def getOrCreate(self) -> str:  # noqa: N802 - Spark's name
            if seen["master"] == "moon":
                raise RuntimeError("org.apache.spark.SparkException: Could not parse 'moon'")
            return "session"

    monkeypatch.setattr(SparkSession, "builder", Builder())
    monkeypatch.setattr("omnigraph.spark.session.java_problem", lambda: None)
    for name in ("SPARK_REMOTE", "PYSPARK_PYTHON", "SPARK_WORKER_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMNIGRAPH_SPARK_MASTER", "local-cluster[2,1,1024]")
    monkeypatch.setenv("OMNIGRAPH_SPARK_DRIVER_MEMORY", "3g")
    try:
        assert get_spark() == "session"
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
        assert Path(os.environ["SPARK_WORKER_DIR"]).is_relative_to(tempfile.gettempdir())
    finally:
        os.environ.pop("PYSPARK_PYTHON", None)
        os.environ.pop("SPARK_WORKER_DIR", None)
    assert seen["master"] == "local-cluster[2,1,1024]"
    assert seen["spark.driver.memory"] == "3g"
    assert seen["spark.ui.enabled"] == seen["spark.ui.showConsoleProgress"] == "false"
    assert seen["spark.log.level"] == "ERROR"
    assert "log4j2.properties" in seen["spark.driver.defaultJavaOptions"]
    with pytest.raises(SparkStartError, match=r"no Spark at 'moon': .*Could not parse"):
        get_spark(master="moon")
    assert get_spark(master="local[7]") == "session"
    assert seen["master"] == "local[7]"


def test_logging_that_the_user_has_set_up_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    assert _quiet_settings()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert _quiet_settings()
    (tmp_path / "log4j2.properties").touch()
    assert _quiet_settings() == {}
    monkeypatch.delenv("SPARK_CONF_DIR")
    own = "--driver-java-options -Dlog4j2.configurationFile=mine pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", own)
    assert _quiet_settings() == {}


@pytest.mark.spark
def test_a_session_of_our_own_starts_without_a_word() -> None:
    code = (
        "from omnigraph.spark import get_spark\n"
        "print(get_spark(master='local[1]').range(3).count())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )
    said = [line for line in run.stderr.splitlines() if "incubator" not in line]
    assert (run.stdout.strip(), said) == ("3", []), "all that is left is a line of Java's own"


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


class _Refusal(AnalysisException):
    """What Spark raises, with the condition that it names."""

    def __init__(self, condition: str) -> None:
        super().__init__("refused")
        self._named = condition

    def getCondition(self) -> str:  # noqa: N802 - Spark's own name
        return self._named


class _Refusing:
    """A session that registers no source."""

    def __init__(self, condition: str) -> None:
        self.dataSource = self
        self._condition = condition

    def register(self, _: type) -> None:
        raise _Refusal(self._condition)


def test_a_session_that_knows_the_format_already_is_left_as_it_is() -> None:
    register(cast("SparkSession", _Refusing("DATA_SOURCE_ALREADY_EXISTS")))
    with pytest.raises(AnalysisException):
        register(cast("SparkSession", _Refusing("DATA_SOURCE_NOT_FOUND")))
