"""Finding or starting a Spark session."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omnigraph.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MAJOR_MIN: Final = 17
_JAVA_TIMEOUT_S: Final = 30.0
_INSTALL_JAVA: Final = (
    f"install a Java runtime, version {JAVA_MAJOR_MIN} or newer "
    f"(for example `apt-get install openjdk-{JAVA_MAJOR_MIN}-jre-headless`), or set JAVA_HOME"
)


class SparkMissingError(UnavailableError):
    """PySpark is not installed."""

    code = "OG-NO-SPARK"
    hint = "pip install 'omnigraph[spark]'"

    def __init__(self) -> None:
        super().__init__("PySpark is not installed: pip install 'omnigraph[spark]'")


class JavaMissingError(UnavailableError):
    """There is no Java that can run Spark."""

    code = "OG-NO-JAVA"
    hint = _INSTALL_JAVA

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


def java_problem() -> str | None:
    """Say in one sentence why Spark cannot start on this machine, or return None."""
    executable = _java_executable()
    if executable is None:
        return f"Spark needs Java {JAVA_MAJOR_MIN} and there is none here: {_INSTALL_JAVA}."
    try:
        run = subprocess.run(  # noqa: S603 the executable is the one that Spark itself would start
            [executable, "-version"],
            capture_output=True,
            text=True,
            timeout=_JAVA_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"Spark needs Java and {executable} does not run ({error}): {_INSTALL_JAVA}."
    found = re.search(r'version "(\d+)(?:\.(\d+))?', run.stderr + run.stdout)
    if found is None:
        return f"Spark needs Java and {executable} shows no version: {_INSTALL_JAVA}."
    # Java 8 and older call themselves 1.8, 1.7, …
    major = int(found[2]) if found[1] == "1" and found[2] else int(found[1])
    if major < JAVA_MAJOR_MIN:
        return (
            f"Spark needs Java {JAVA_MAJOR_MIN} and {executable} is Java {major}: {_INSTALL_JAVA}."
        )
    return None


def _java_executable() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        return str(candidate) if candidate.exists() else None
    return shutil.which("java")


def get_spark(*, master: str | None = None, remote: str | None = None) -> SparkSession:
    """Return a Spark session: the active one, else a remote, else a master, else a local one.

    `remote` defaults to `SPARK_REMOTE`, `master` to `OMNIGRAPH_SPARK_MASTER`. A session started
    here has quiet settings for embedded use; its driver memory is
    `OMNIGRAPH_SPARK_DRIVER_MEMORY`.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 optional library
    except ImportError as error:
        raise SparkMissingError from error
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    remote = remote or os.environ.get("SPARK_REMOTE")
    if remote:
        return SparkSession.builder.remote(remote).getOrCreate()
    problem = java_problem()
    if problem is not None:
        raise JavaMissingError(problem)
    # Python workers must run the interpreter that has omnigraph installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("omnigraph").master(
        master or os.environ.get("OMNIGRAPH_SPARK_MASTER") or "local[*]"
    )
    for key, value in _embedded_settings().items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        # Starting the JVM forks and executes at once: nothing of Lance is used in between.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        return builder.getOrCreate()


def _embedded_settings() -> dict[str, str]:
    scratch = str(Path(tempfile.gettempdir()) / "omnigraph-spark")
    return {
        "spark.driver.memory": os.environ.get("OMNIGRAPH_SPARK_DRIVER_MEMORY", "2g"),
        "spark.local.dir": scratch,
        "spark.log.level": "ERROR",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(Path(scratch) / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
