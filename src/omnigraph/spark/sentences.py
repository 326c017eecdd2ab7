"""Errors of Spark as one sentence each."""

from __future__ import annotations

import re
from typing import Final

_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]+)")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*$")
_RAISED: Final = re.compile(r"omnigraph\.[\w.]+: .")
"""The last line of a traceback of code of ours that Spark has called."""
_MISSING_FORMAT: Final = re.compile(r"Failed to find (?:the )?data source: (\w+)")
_NO_DRIVER: Final = "No suitable driver"


def sentence(text: str) -> str:
    r"""Return the sentence of an error of Spark that says what is wrong.

    >>> sentence("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03")
    'Path does not exist: file:/x.'
    """
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
    raised = [line for line in map(str.strip, text.splitlines()) if _RAISED.match(line)]
    if raised:
        return raised[-1].partition(": ")[2]
    # An error of a job names its cause last.
    found = _CONDITION.findall(text)
    if found:
        is_job = "Job aborted" in text
        return _STATE.sub("", (found[-1] if is_job else found[0])[1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.partition(": ")[2] for line in lines if line.startswith(":")]
    return (causes or lines or ["the step has failed"])[0]
