"""Runs rules on one snapshot: a type is read once, and only the columns that its rules name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from omnigraph.clock import Clock, SystemClock
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph, ReadTarget, Snapshot
from omnigraph.pipelines.contracts.bind import check_rule
from omnigraph.pipelines.contracts.measure import Measure, measure_of
from omnigraph.pipelines.contracts.model import ContractRule
from omnigraph.pipelines.diagnostics import Findings
from omnigraph.pipelines.file.expect import ExpectError
from omnigraph.pipelines.record import CheckResult
from omnigraph.schema import EntityType


@dataclass(frozen=True)
class RuleResult:
    """A rule, and what it has found."""

    rule: ContractRule
    check: CheckResult

    def to_json(self) -> dict[str, object]:
        """Return the result as programs see it."""
        shape: dict[str, object] = {
            "name": self.rule.name,
            "type": self.rule.type_name,
            "rule": self.rule.kind,
            "expect": self.check.expect,
            "value": self.check.value,
            "passed": self.check.passed,
            "severity": "warn" if self.rule.is_warning else "error",
        }
        if self.rule.owner is not None:
            shape["owner"] = self.rule.owner
        if self.check.error is not None:
            shape["error"] = self.check.error
        return shape


def run_rules(
    rules: Sequence[ContractRule],
    graph: Graph,
    target: ReadTarget | Snapshot | None = None,
    *,
    clock: Clock | None = None,
) -> tuple[RuleResult, ...]:
    """Run all rules, in their order; one that cannot be decided has failed."""
    snapshot = graph.snapshot() if target is None else graph.snapshot_of(target)
    now_us = (clock or SystemClock()).now_us()
    found: dict[str, CheckResult] = {}
    bound: dict[str, tuple[EntityType, list[ContractRule]]] = {}
    for rule in rules:
        findings = Findings()
        entity_type = check_rule(rule, snapshot.catalog, findings)
        if entity_type is None:
            found[rule.name] = _undecided(rule, "; ".join(one.message for one in findings.found))
        elif rule.kind == "gq":
            found[rule.name] = _asked(rule, graph, snapshot)
        elif rule.kind == "rows":
            entry = snapshot.entries.get(entity_type.table_key)
            rows = 0 if entry is None else entry.row_count
            found[rule.name] = _decided(rule, {"n": rows})
        else:
            bound.setdefault(entity_type.table_key, (entity_type, []))[1].append(rule)
    for entity_type, measured in bound.values():
        for rule, values in _scanned(graph, snapshot, entity_type, measured, now_us):
            found[rule.name] = _decided(rule, values)
    return tuple(RuleResult(rule, found[rule.name]) for rule in rules)


def _scanned(
    graph: Graph,
    snapshot: Snapshot,
    entity_type: EntityType,
    rules: Sequence[ContractRule],
    now_us: int,
) -> Iterable[tuple[ContractRule, dict[str, object]]]:
    """Read the columns of some rules once, and return what each of them measures."""
    columns = sorted({column for rule in rules for column in rule.columns})
    measures: list[Measure] = [measure_of(rule, entity_type, now_us) for rule in rules]
    key = entity_type.table_key
    for _, batches in graph.export_batches(types=[key], columns=columns, target=snapshot):
        for batch in batches:
            for measure in measures:
                measure.add(batch)
    return [(rule, measure.found()) for rule, measure in zip(rules, measures, strict=True)]


def _asked(rule: ContractRule, graph: Graph, snapshot: Snapshot) -> CheckResult:
    try:
        answer = graph.query(rule.text, target=snapshot)
        outcome = rule.expect.decide(answer.column_names, answer.to_pylist())
    except (ExpectError, OmnigraphError) as error:
        return _undecided(rule, str(error))
    return CheckResult(
        rule.name, rule.expect.text, outcome.value, outcome.passed, is_warning=rule.is_warning
    )


def _decided(rule: ContractRule, values: dict[str, object]) -> CheckResult:
    outcome = rule.expect.decide(list(values), [values])
    return CheckResult(
        rule.name, rule.expect.text, outcome.value, outcome.passed, is_warning=rule.is_warning
    )


def _undecided(rule: ContractRule, error: str) -> CheckResult:
    return CheckResult(
        rule.name, rule.expect.text, None, passed=False, is_warning=rule.is_warning, error=error
    )
