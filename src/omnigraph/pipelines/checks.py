"""Runs the checks of a pipeline on a branch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph, ReadTarget
from omnigraph.pipelines.contracts.run import run_rules
from omnigraph.pipelines.file.expect import ExpectError
from omnigraph.pipelines.file.model import Check, PipelineFile
from omnigraph.pipelines.file.view_order import tables_read
from omnigraph.pipelines.record import CheckResult
from omnigraph.schema import Catalog, EntityType
from omnigraph.spark.steps import Workspace


def checking_workspace(
    file: PipelineFile, session: object | None, catalog: Catalog | None
) -> Workspace | None:
    """Return where the types that checks in SQL read are tables without rows; None without such."""
    if all(check.language != "sql" for check in file.checks):
        return None
    checking = Workspace(session, file.spark)
    if catalog is not None:
        checking.add_types_without_rows(_types_read(file, catalog))
    return checking


def run_checks(
    file: PipelineFile, graph: Graph, branch: str, checking: Workspace | None
) -> tuple[CheckResult, ...]:
    """Run all checks on the rows of a branch; one that cannot be decided has failed."""
    if checking is not None:
        for entity_type in _types_read(file, graph.schema.catalog()):
            checking.add_type(graph, entity_type.table_key, branch)
    rules = [check.rule for check in file.checks if check.rule is not None]
    results = run_rules(rules, graph, ReadTarget.branch(branch))
    ruled = {one.rule.name: _hidden(file, one.check) for one in results}
    return tuple(
        ruled[check.name] if check.rule is not None else _run(file, check, graph, branch, checking)
        for check in file.checks
    )


def _hidden(file: PipelineFile, check: CheckResult) -> CheckResult:
    if check.error is None:
        return check
    return replace(check, error=file.variables.hide(check.error))


def _types_read(file: PipelineFile, catalog: Catalog) -> list[EntityType]:
    """Return the types that checks in SQL read."""
    texts = [check.text for check in file.checks if check.language == "sql"]
    read = frozenset[str]().union(*map(tables_read, texts))
    types: list[EntityType] = [*catalog.edge_types.values(), *catalog.node_types.values()]
    return [entity_type for entity_type in types if entity_type.name.lower() in read]


def _run(
    file: PipelineFile, check: Check, graph: Graph, branch: str, checking: Workspace | None
) -> CheckResult:
    try:
        columns, rows = _rows(check, graph, branch, checking)
        outcome = check.expect.decide(columns, rows)
    except (ExpectError, OmnigraphError) as error:
        problem = file.variables.hide(str(error))
        return CheckResult(
            check.name,
            check.expect.text,
            None,
            passed=False,
            is_warning=check.is_warning,
            error=problem,
        )
    return CheckResult(
        check.name, check.expect.text, outcome.value, outcome.passed, is_warning=check.is_warning
    )


def _rows(
    check: Check, graph: Graph, branch: str, checking: Workspace | None
) -> tuple[list[str], list[dict[str, Any]]]:
    if checking is not None and check.language == "sql":
        return checking.rows(check.text, f"check '{check.name}'")
    found = graph.query(check.text, target=ReadTarget.branch(branch))
    return found.column_names, found.to_pylist()
