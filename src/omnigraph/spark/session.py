"""Finding or starting a Spark session."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import getproxies

from omnigraph.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MAJOR_MIN: Final = 17
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_LOGGING_OPTION: Final = "log4j2.configurationFile"
_LOCAL: Final = "local[*]"
_CONNECT_PORT: Final = 15002
_CONNECT_TIMEOUT_S: Final = 10.0
_JAVA_TIMEOUT_S: Final = 30.0
_INSTALL_JAVA: Final = (
    f"install a Java runtime, version {JAVA_MAJOR_MIN} or newer "
    f"(for example `apt-get install openjdk-{JAVA_MAJOR_MIN}-jre-headless`), or set JAVA_HOME"
)


class SparkMissingError(UnavailableError):
    """PySpark is not installed."""

    code = "OG-NO-SPARK"
    hint = "pip install 'omnigraph[spark]'"
    template = "PySpark is not installed: pip install 'omnigraph[spark]'"


class JavaMissingError(UnavailableError):
    """There is no Java that can run Spark."""

    code = "OG-NO-JAVA"
    hint = _INSTALL_JAVA
    template = "{problem}"
    problem: str


class SparkConnectMissingError(UnavailableError):
    """PySpark is there without what a client of Spark Connect needs."""

    code = "OG-NO-SPARK-CONNECT"
    hint = "pip install 'omnigraph[spark]'"
    template = "a client of Spark Connect needs grpcio: pip install 'omnigraph[spark]'"


class SparkStartError(UnavailableError):
    """Spark could not be started or reached."""

    code = "OG-SPARK-START"
    hint = "check the address, or leave it out to run Spark on this machine"
    template = "there is no Spark at '{where}': {reason}"
    where: str
    reason: str


def java_problem() -> str | None:
    """Return in one sentence why Spark cannot start on this machine, or None."""
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
        return _connect(remote)
    return _start(master or os.environ.get("OMNIGRAPH_SPARK_MASTER") or _LOCAL)


def register(spark: SparkSession) -> None:
    """Make the format `omnigraph` known to a session whose workers do not find it by themselves."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 optional library

    from omnigraph.spark.source.data_source import OmnigraphSource  # noqa: PLC0415 needs the optional library

    try:
        spark.dataSource.register(OmnigraphSource)
    except AnalysisException as error:
        # A session that found the installed package refuses a second source of this name.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


# -- Spark Connect --------------------------------------------------------------------------------


def _connect(remote: str) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 optional library

    if find_spec("grpc_status") is None:
        raise SparkConnectMissingError
    if remote.startswith("local"):
        # PySpark starts the server itself, which takes what a local session takes.
        return _started(SparkSession.builder.remote(remote), remote)
    _require_listener(remote)
    try:
        return SparkSession.builder.remote(remote).getOrCreate()
    except Exception as error:
        raise SparkStartError(remote, _first_line(error)) from error


def _require_listener(remote: str) -> None:
    """Raise unless a server listens: the client itself would try again for minutes."""
    try:
        address = urlsplit(remote)
    except ValueError as error:
        raise SparkStartError(remote, f"it is no URL ({error})") from None
    if address.scheme != "sc" or not address.hostname:
        raise SparkStartError(remote, "expected an address like sc://host:15002")
    if getproxies():
        return
    try:
        port = address.port or _CONNECT_PORT
        socket.create_connection((address.hostname, port), _CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        raise SparkStartError(remote, f"nobody answers there ({error})") from error


# -- classic sessions -----------------------------------------------------------------------------


def _start(master: str) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 optional library

    return _started(SparkSession.builder.master(master), master)


def _started(builder: SparkSession.Builder, where: str) -> SparkSession:
    problem = java_problem()
    if problem is not None:
        raise JavaMissingError(problem)
    scratch = _scratch()
    # Python workers must run the interpreter that has omnigraph installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Workers of a local cluster would otherwise write into the folder of the installed PySpark.
    os.environ.setdefault("SPARK_WORKER_DIR", str(scratch / "work"))
    builder = builder.appName("omnigraph")
    for key, value in _embedded_settings(scratch).items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        # Starting the JVM forks and execs immediately: no Lance code runs in between.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise SparkStartError(where, _first_line(error)) from error


def _scratch() -> Path:
    return Path(tempfile.gettempdir()) / f"omnigraph-spark-{getpass.getuser()}"


def _embedded_settings(scratch: Path) -> dict[str, str]:
    return _quiet_settings() | {
        "spark.driver.memory": os.environ.get("OMNIGRAPH_SPARK_DRIVER_MEMORY", "2g"),
        "spark.local.dir": str(scratch),
        "spark.log.level": "ERROR",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _quiet_settings() -> dict[str, str]:
    """Silence the messages that Spark logs at its start, unless the user configures its logging."""
    folders = [os.environ.get("SPARK_CONF_DIR"), f"{os.environ.get('SPARK_HOME', '')}/conf"]
    has_own = any(folder and (Path(folder) / _LOGGING.name).exists() for folder in folders)
    if has_own or _LOGGING_OPTION in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return {}
    # Setting the level alone comes too late: Spark logs before it reads its settings. The user's
    # own options come after these, and win.
    return {"spark.driver.defaultJavaOptions": f"-D{_LOGGING_OPTION}={_LOGGING.as_uri()}"}


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Exception:" in line and not line.startswith("at ")]
    return (causes or lines or [type(error).__name__])[0]
