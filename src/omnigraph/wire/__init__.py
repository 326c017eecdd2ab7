"""What crosses a boundary: JSON shapes, HTTP statuses, exit codes."""

from omnigraph.wire.outcomes import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    Outcome,
    error_json,
    outcome_of,
    precondition_json,
)

__all__ = [
    "EXIT_FAILURE",
    "EXIT_INTERRUPTED",
    "Outcome",
    "error_json",
    "outcome_of",
    "precondition_json",
]
