"""What a commit says of the job that made it: its inputs, outputs and checks; OpenLineage."""

from omnigraph.lineage.record import (
    ENGINE_KEYS,
    LINEAGE_KEYS,
    CheckResult,
    InputRead,
    Job,
    Lineage,
    ReservedPropertyError,
    TypeCounts,
    check_properties,
    job_of,
    read_lineage,
    runtime,
    type_names,
)

__all__ = [
    "ENGINE_KEYS",
    "LINEAGE_KEYS",
    "CheckResult",
    "InputRead",
    "Job",
    "Lineage",
    "ReservedPropertyError",
    "TypeCounts",
    "check_properties",
    "job_of",
    "read_lineage",
    "runtime",
    "type_names",
]
