"""What Spark tells about a failure, as one sentence.

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
_NO_PACKAGE: Final = re.compile(r"No module named '?(omnigraph|pyspark_omnigraph|lance)\b")
_NO_FORMAT: Final = re.compile(r"DATA_SOURCE_NOT_FOUND.*omnigraph", re.DOTALL)
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
    if type(error).__module__.partition(".")[0] not in _SPARKS_OWN:
        return None
    text = str(error)
    sentence = sentence_of(error)
    if _NO_PACKAGE.search(text) or _NO_FORMAT.search(text):
        return SparkWorkersError(sentence)
    return SparkJobError(stage, sentence)


def sentence_of(error: Exception) -> str:
    r"""Return the line that says what went wrong: ours, else that of a worker, else the first.

    >>> text = "Job aborted\n  at x\nomnigraph.a.B.SomeError: it is too far away\n"
    >>> sentence_of(RuntimeError(text))
    'it is too far away'
    >>> sentence_of(RuntimeError("Job aborted\nValueError: no"))
    'ValueError: no'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [found for found in map(_RAISED.match, lines) if found is not None]
    own = next((found["text"] for found in raised if found["name"].startswith(_OURS)), None)
    if own is not None:
        return own
    return ([found[0] for found in raised] or lines or [type(error).__name__])[0]


@contextmanager
def translated(stage: str) -> Iterator[None]:
    """Raise what Spark raises inside as one of our errors."""
    try:
        yield
    except Exception as error:
        found = failure_of(error, stage)
        if found is None:
            raise
        raise found from error
