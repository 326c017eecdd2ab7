"""What Spark says when a step cannot be analysed or run, as one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.errors import InvalidInputError
from omnigraph.spark.failures import is_sparks_own, quiet_analysis, sentence_of


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
    try:
        with quiet_analysis():
            yield
    except Exception as error:
        if not is_sparks_own(error):
            raise
        raise SparkStepError(name, sentence_of(error)) from error
