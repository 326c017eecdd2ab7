"""Declared pipelines: a YAML file becomes checked values, a run, and a record in its commit."""

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
