"""What crosses a boundary: JSON shapes, HTTP statuses, exit codes."""

from omnigraph.wire.outcomes import Outcome, error_json, outcome_of

__all__ = ["Outcome", "error_json", "outcome_of"]
