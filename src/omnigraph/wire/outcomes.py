"""One table from error type to HTTP status and exit code.

The engine knows neither. A type without a row of its own has the row of its nearest base class.
"""

from __future__ import annotations

from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    ConflictError,
    CorruptError,
    DeniedError,
    InvalidInputError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
    PreconditionError,
    UnavailableError,
)

EXIT_FAILURE: Final = 1
EXIT_PRECONDITION: Final = 4
EXIT_INTERRUPTED: Final = 130


@dataclass(frozen=True)
class Outcome:
    """How an error looks from outside."""

    http_status: int
    exit_code: int


OUTCOMES: Final[dict[type[OmnigraphError], Outcome]] = {
    InvalidInputError: Outcome(400, EXIT_FAILURE),
    NotFoundError: Outcome(404, EXIT_FAILURE),
    DeniedError: Outcome(403, EXIT_FAILURE),
    ConflictError: Outcome(409, EXIT_FAILURE),
    PreconditionError: Outcome(412, EXIT_PRECONDITION),
    OutcomeUnknownError: Outcome(500, EXIT_FAILURE),
    CorruptError: Outcome(500, EXIT_FAILURE),
    UnavailableError: Outcome(503, EXIT_FAILURE),
    OmnigraphError: Outcome(500, EXIT_FAILURE),
}


def outcome_of(error: OmnigraphError) -> Outcome:
    """Find the row of an error by walking up its classes.

    >>> outcome_of(NotFoundError("branch 'x' not found")).http_status
    404
    """
    return next(OUTCOMES[base] for base in type(error).__mro__ if base in OUTCOMES)


def error_json(error: OmnigraphError) -> dict[str, object]:
    """Return the JSON form of an error: `error`, `code`; `details` and `hint` where there are."""
    shape: dict[str, object] = {"error": str(error), "code": error.code}
    if error.details is not None:
        shape["details"] = error.details
    if error.hint:
        shape["hint"] = error.hint
    return shape


def precondition_json(error: PreconditionError) -> dict[str, object]:
    """Return the body of a lost compare-and-swap: `error` and `precondition_failure`."""
    failure = {"expected": error.expected}
    if error.actual is not None:
        failure["actual"] = error.actual
    return {"error": str(error), "precondition_failure": failure}
