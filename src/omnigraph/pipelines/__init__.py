"""Declared pipelines, contracts and tests of data: YAML files become checked values and runs.

Names are loaded when they are first used: pipelines need Spark, contracts and tests do not.
"""

from typing import TYPE_CHECKING

from omnigraph.late import late_names

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

__getattr__ = late_names(
    __name__,
    {
        "omnigraph.pipelines.record": "CheckResult RunRecord RunState TypeCounts",
        "omnigraph.pipelines.diagnostics": "Diagnostic PipelineFileError",
        "omnigraph.pipelines.history": "History",
        "omnigraph.pipelines.pipeline": "Pipeline validate_path",
        "omnigraph.pipelines.plan": "Plan",
        "omnigraph.pipelines.validate": "Validation",
    },
    globals(),
)
