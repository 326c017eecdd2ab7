"""Checks rules against a schema, before any row is read."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from omnigraph.pipelines.contracts.model import Bound, ContractRule, find_type
from omnigraph.pipelines.diagnostics import Findings, did_you_mean
from omnigraph.query import MutationPlan, compile_text, parse_queries
from omnigraph.schema import Catalog, EntityType
from omnigraph.schema.values.convert import convert_values
from omnigraph.syntax import SourceError
from omnigraph.values import PropType, Scalar

_TEXT: Final = PropType(Scalar.STRING)
_MOMENTS: Final = frozenset({Scalar.DATE, Scalar.DATETIME})


def check_rule(rule: ContractRule, catalog: Catalog, findings: Findings) -> EntityType | None:
    """Add what is wrong with a rule; return its type if nothing is."""
    entity_type = find_type(catalog, rule.type_name)
    if entity_type is None:
        known = (*catalog.node_types, *catalog.edge_types)
        message = f"the graph has no type '{rule.type_name}'{did_you_mean(rule.type_name, known)}"
        findings.error("unknown_name", rule.path, message)
        return None
    if rule.kind == "gq":
        columns = gq_columns(rule.text, catalog, findings, rule.path)
        missing = None if columns is None else rule.expect.missing(columns)
        if missing is not None:
            message = f"'{missing}' is no column of the result: {', '.join(columns or ())}"
            findings.error("bad_expect", rule.path, message)
        return None if columns is None or missing is not None else entity_type
    problems = [
        problem for column in rule.columns for problem in _problems(rule, entity_type, column)
    ]
    for code, message in problems:
        findings.error(code, rule.path, message)
    return None if problems else entity_type


def gq_columns(text: str, catalog: Catalog, findings: Findings, path: str) -> list[str] | None:
    """Return the columns of the one read of a text; add what is wrong with it."""
    try:
        plans = compile_text(text, catalog)
    except SourceError as error:
        for found in error.diagnostics:
            findings.error("bad_gq", path, f"{found.headline} [{found.code}]")
        return None
    if len(plans) != 1:
        findings.error("bad_gq", path, f"expected one query, found {len(plans)}")
        return None
    plan = plans[0]
    if isinstance(plan, MutationPlan):
        findings.error("bad_gq", path, "a check reads; this query changes the graph")
        return None
    parameters = parse_queries(text).queries[0].parameters
    if parameters:
        names = ", ".join(f"${one.name}" for one in parameters)
        findings.error("bad_gq", path, f"a check takes no parameters: {names}")
        return None
    return [column.header for column in plan.columns]


def column_type(entity_type: EntityType, column: str) -> PropType | None:
    """Return the type of a property, or of `id`, `src` and `dst`; None if there is no such one."""
    prop = entity_type.properties.get(column)
    if prop is not None:
        return prop.prop_type
    return _TEXT if column in entity_type.arrow_schema.names else None


def _problems(rule: ContractRule, entity_type: EntityType, column: str) -> list[tuple[str, str]]:
    found = column_type(entity_type, column)
    if found is None:
        known = tuple(entity_type.arrow_schema.names)
        message = f"'{entity_type.name}' has no property '{column}'{did_you_mean(column, known)}"
        return [("unknown_name", message)]
    problem = _kind_problem(rule, found)
    if problem is not None:
        return [("wrong_type", f"'{entity_type.name}.{column}' {problem}")]
    bounds = [one for one in (rule.low, rule.high) if one is not None]
    wrong = [text for one in bounds if (text := bound_value(found, column, one)[1]) is not None]
    return [("wrong_value", text) for text in wrong]


def _kind_problem(rule: ContractRule, prop_type: PropType) -> str | None:
    if prop_type.scalar is Scalar.BLOB:
        return "is a Blob, and a rule cannot look into one"
    is_plain = not prop_type.is_list and not prop_type.is_vector
    if rule.kind == "unique" and not is_plain:
        return "is a list, and rows are told apart by single values only"
    if rule.kind == "range" and not (
        is_plain and (prop_type.scalar.is_numeric or prop_type.scalar in _MOMENTS)
    ):
        return "has no order that bounds could be of: it is no number, Date or DateTime"
    if rule.kind == "fresh" and not (is_plain and prop_type.scalar in _MOMENTS):
        return "is no Date or DateTime, so it says nothing about age"
    return None


def bound_value(
    prop_type: PropType, column: str, bound: Bound
) -> tuple[pa.Scalar | None, str | None]:
    """Return a bound as a value that a column compares with, or what is wrong with it."""
    is_number = not isinstance(bound, str)
    if prop_type.scalar.is_numeric != is_number:
        return None, f"bound {bound!r} is no value of '{column}', which is {prop_type.scalar}"
    if isinstance(bound, float):
        return pa.scalar(bound), None
    done = convert_values([bound], PropType(prop_type.scalar), column)
    problem = done.errors[0].as_py()
    return (None, str(problem)) if problem is not None else (done.column[0], None)
