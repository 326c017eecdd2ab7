"""Declared pipelines, contracts and tests of data: YAML files become checked values and runs.

Names are loaded when they are first used: pipelines need Spark, contracts and tests do not.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.pipelines.diagnostics import Diagnostic, PipelineFileError
    from omnigraph.pipelines.history import History
    from omnigraph.pipelines.pipeline import Pipeline, validate_path
    from omnigraph.pipelines.plan import Plan
    from omnigraph.pipelines.record import CheckResult, RunRecord, RunState, TypeCounts
    from omnigraph.pipelines.validate import Validation

__all__ = [
    "CheckResult",
    "Diagnostic",
    "History",
    "Pipeline",
    "PipelineFileError",
    "Plan",
    "RunRecord",
    "RunState",
    "TypeCounts",
    "Validation",
    "validate_path",
]

_HOMES = {
    "CheckResult": "omnigraph.pipelines.record",
    "Diagnostic": "omnigraph.pipelines.diagnostics",
    "History": "omnigraph.pipelines.history",
    "Pipeline": "omnigraph.pipelines.pipeline",
    "PipelineFileError": "omnigraph.pipelines.diagnostics",
    "Plan": "omnigraph.pipelines.plan",
    "RunRecord": "omnigraph.pipelines.record",
    "RunState": "omnigraph.pipelines.record",
    "TypeCounts": "omnigraph.pipelines.record",
    "Validation": "omnigraph.pipelines.validate",
    "validate_path": "omnigraph.pipelines.pipeline",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'omnigraph.pipelines' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
