"""What Spark says about a failure, as one sentence.

Spark turns an exception of a Python worker into text inside of the text of another one. The
sentence of the first of ours in it is what a caller wants to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from omnigraph.errors import OmnigraphError, UnavailableError

_RAISED: Final = re.compile(
    r"^(?!org\.|java\.|pyspark\.)(?P<name>[\w.]+(Error|Exception|Interrupt)): (?P<text>.*)"
)
_OURS: Final = "omnigraph."
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]+)")
_STREAM: Final = re.compile(
    r"^Query \[id = [^\]]*\] terminated with exception: (?:\[[A-Z][A-Z0-9_.]+\] )?"
)
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*$")
_MISSING_FORMAT: Final = re.compile(r"Failed to find (?:the )?data source: (\w+)")
_NO_DRIVER: Final = "No suitable driver"
_NO_PACKAGE: Final = re.compile(r"No module named '?(omnigraph|pyspark_omnigraph|lance)\b")
_NO_FORMAT: Final = re.compile(r"DATA_SOURCE_NOT_FOUND.*omnigraph", re.DOTALL)
_ANALYSIS_LOG: Final = "SQLQueryContextLogger"
_SPARKS_OWN: Final = frozenset({"pyspark", "py4j", "grpc"})


class SparkJobError(UnavailableError):
    """A job has failed with an error that omnigraph does not know; nothing was committed."""

    code = "OG-SPARK-JOB"
    hint = "the cause is in the log of Spark's executors; the same load can be started again"
    template = "{reason} (in the Spark job '{stage}')"
    stage: str
    reason: str


class SparkWorkersError(UnavailableError):
    """Spark's Python workers run an interpreter without omnigraph."""

    code = "OG-SPARK-WORKERS"
    hint = "`omnigraph doctor` shows which interpreter the workers run"
    template = (
        "Spark's Python workers do not have omnigraph: set PYSPARK_PYTHON to an interpreter that"
        " has it, where the workers run and before the session starts ({reason})"
    )
    reason: str


def failure_of(error: Exception, stage: str) -> OmnigraphError | None:
    """Return an error of Spark as one of ours; None when it is not an error of Spark."""
    if not is_sparks_own(error):
        return None
    text = str(error)
    sentence = sentence_of(error)
    if _NO_PACKAGE.search(text) or _NO_FORMAT.search(text):
        return SparkWorkersError(sentence)
    return SparkJobError(stage, sentence)


def is_sparks_own(error: Exception) -> bool:
    """Whether Spark has raised an error, and not the code that it has called."""
    return type(error).__module__.partition(".")[0] in _SPARKS_OWN


def sentence_of(error: Exception) -> str:
    """Return the sentence that says what went wrong."""
    return sentence(str(error)) or type(error).__name__


def sentence(text: str) -> str:
    r"""Return the sentence of a text of Spark that says what went wrong.

    That of an error of ours, else of a Python worker, else of Spark itself.

    >>> sentence("Job aborted\n  at x\nomnigraph.a.B.SomeError: it is too far away\n")
    'it is too far away'
    >>> sentence("Job aborted\nValueError: no")
    'ValueError: no'
    >>> sentence("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03")
    'Path does not exist: file:/x.'
    >>> sentence("[STREAM_FAILED] Query [id = a] terminated with exception: [NO_FILE] It is gone.")
    'It is gone.'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _missing_part(text) or _of_worker(lines) or _of_spark(text, lines)


def _missing_part(text: str) -> str | None:
    missing = _MISSING_FORMAT.search(text)
    if missing is not None:
        return (
            f"this Spark session has no data source '{missing[1]}': add its package to the session"
            " (`spark.jars.packages`)"
        )
    if _NO_DRIVER in text:
        return (
            "this Spark session has no JDBC driver for the url: add its package to the session"
            " (`spark.jars.packages`), or name the class by the option 'driver'"
        )
    return None


def _of_worker(lines: list[str]) -> str | None:
    raised = [found for found in map(_RAISED.match, lines) if found is not None]
    own = [found["text"] for found in raised if found["name"].startswith(_OURS)]
    return next(iter((*own, *(found[0] for found in raised))), None)


def _of_spark(text: str, lines: list[str]) -> str:
    found = _CONDITION.findall(text)
    if found:
        # An error of a job names its cause last.
        chosen = found[-1] if "Job aborted" in text else found[0]
        return _STREAM.sub("", _STATE.sub("", chosen[1])).strip()
    causes = [line.partition(": ")[2] for line in lines if line.startswith(":")]
    return next(iter((*causes, *lines)), "")


@contextmanager
def quiet_analysis() -> Iterator[None]:
    """Keep PySpark from logging the stack of a failed analysis; the error says what failed."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - an optional library

    # A logger that is made in another way than this cannot take what PySpark logs.
    log = PySparkLogger.getLogger(_ANALYSIS_LOG)
    was_disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was_disabled


@contextmanager
def translated(stage: str) -> Iterator[None]:
    """Raise what Spark raises inside as one of our errors."""
    try:
        with quiet_analysis():
            yield
    except Exception as error:
        found = failure_of(error, stage)
        if found is None:
            raise
        raise found from error
