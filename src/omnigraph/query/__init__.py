"""The `.gq` query language: text to tree, type check against a catalog, lint, typed plan."""

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
