"""The `.gq` query language: text to tree, type check against a catalog, lint, typed plan.

Names are loaded when they are first used: most calls need few of them.
"""

from typing import TYPE_CHECKING

from omnigraph.late import late_names

if TYPE_CHECKING:
    from omnigraph.query.compile import (
        cached_queries,
        compile_queries,
        compile_query,
        compile_text,
    )
    from omnigraph.query.describe import OperationDescriptor, describe_plan
    from omnigraph.query.language.parse import QueryText, parse_queries
    from omnigraph.query.language.tree import QueryDecl, QueryFile
    from omnigraph.query.lint import LintReport, SchemaSource, lint_queries
    from omnigraph.query.plan.plan import MutationPlan, Plan, ReadPlan
    from omnigraph.query.plan.print_plan import print_plan

__all__ = [
    "LintReport",
    "MutationPlan",
    "OperationDescriptor",
    "Plan",
    "QueryDecl",
    "QueryFile",
    "QueryText",
    "ReadPlan",
    "SchemaSource",
    "cached_queries",
    "compile_queries",
    "compile_query",
    "compile_text",
    "describe_plan",
    "lint_queries",
    "parse_queries",
    "print_plan",
]

__getattr__ = late_names(
    __name__,
    {
        "omnigraph.query.compile": "cached_queries compile_queries compile_query compile_text",
        "omnigraph.query.describe": "OperationDescriptor describe_plan",
        "omnigraph.query.language.parse": "QueryText parse_queries",
        "omnigraph.query.language.tree": "QueryDecl QueryFile",
        "omnigraph.query.lint": "LintReport SchemaSource lint_queries",
        "omnigraph.query.plan.plan": "MutationPlan Plan ReadPlan",
        "omnigraph.query.plan.print_plan": "print_plan",
    },
    globals(),
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
