"""What crosses a boundary: JSON shapes, HTTP statuses, exit codes."""

from omnigraph.wire.outcomes import Outcome, error_json, outcome_of, precondition_json

__all__ = ["Outcome", "error_json", "outcome_of", "precondition_json"]
