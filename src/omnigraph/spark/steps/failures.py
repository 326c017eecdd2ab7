"""What Spark says when a step cannot be analysed or run, as one sentence."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from omnigraph.errors import InvalidInputError
from omnigraph.spark.failures import sentence

_SPARKS_LOG: Final = "SQLQueryContextLogger"


class SparkStepError(InvalidInputError):
    """A source, view, mapping or check cannot be analysed or run by Spark."""

    code = "OG-SPARK-STEP"
    hint = "`omnigraph pipeline validate FILE` checks all steps without reading rows"
    template = "{step}: {reason}"
    step: str
    reason: str


@contextmanager
def step(name: str) -> Iterator[None]:
    """Raise what Spark raises as the failure of a step."""
    # PySpark logs every failed analysis with its whole stack; the error says all of it.
    log = logging.getLogger(_SPARKS_LOG)
    was_disabled, log.disabled = log.disabled, True
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in {"pyspark", "py4j"}:
            raise
        raise SparkStepError(name, sentence(str(error))) from error
    finally:
        log.disabled = was_disabled
