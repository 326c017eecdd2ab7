"""What another schema breaks: queries, tests and contracts that hold with the accepted one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from omnigraph.graph import SourceText
from omnigraph.pipelines.contracts.bind import check_rule
from omnigraph.pipelines.contracts.model import ContractRule
from omnigraph.pipelines.data_tests.model import (
    Apply,
    DataTest,
    RunPipeline,
    SampledFixture,
    TestFile,
)
from omnigraph.pipelines.data_tests.run import RunSettings, TestResult, run_tests
from omnigraph.pipelines.diagnostics import Findings
from omnigraph.query.compile import try_compile
from omnigraph.query.registry import StoredQuery
from omnigraph.schema import Catalog, compile_schema

_DOMAIN: Final = "0" * 26


@dataclass(frozen=True)
class Break:
    """One thing that holds with the accepted schema and not with the desired one."""

    kind: Literal["query", "test", "contract"]
    name: str
    file: Path
    reason: str

    def to_json(self) -> dict[str, object]:
        """Return it as programs see it."""
        return {"kind": self.kind, "name": self.name, "file": str(self.file), "reason": self.reason}


def find_breaks(
    files: Sequence[TestFile], *, accepted: SourceText, desired: SourceText
) -> tuple[Break, ...]:
    """Return what a change of the schema breaks, in the order of the files.

    Tests are run twice, with each schema. Those of migrations, of pipelines and on samples of a
    graph are left out: their rows come from elsewhere.
    """
    before = compile_schema(accepted, domain=_DOMAIN).catalog
    after = compile_schema(desired, domain=_DOMAIN).catalog
    return tuple(
        found
        for file in files
        for found in (
            *_broken_queries(file, before, after),
            *_broken_tests(file, accepted, desired),
            *_broken_contracts(file, before, after),
        )
    )


def _broken_queries(file: TestFile, before: Catalog, after: Catalog) -> Iterator[Break]:
    for stored in file.registry.queries:
        reason = _query_problem(stored, after)
        if reason is not None and _query_problem(stored, before) is None:
            yield Break("query", stored.name, Path(stored.source.name), reason)


def _query_problem(stored: StoredQuery, catalog: Catalog) -> str | None:
    _, found = try_compile(stored.query, catalog, stored.source)
    return found[0].headline if found else None


def _broken_tests(file: TestFile, accepted: SourceText, desired: SourceText) -> Iterator[Break]:
    held = {one.test.name for one in _results(file, accepted) if one.state == "passed"}
    for result in _results(file, desired):
        if result.state == "failed" and result.test.name in held:
            yield Break("test", result.test.name, file.path, result.problems[0].message)


def _results(file: TestFile, schema: SourceText) -> tuple[TestResult, ...]:
    report = run_tests([file], RunSettings(schema=schema), chosen=_depends_on_schema)
    return tuple(result for one in report.files for result in one.results)


def _depends_on_schema(file: TestFile, test: DataTest) -> bool:
    fixture = None if test.fixture is None else file.fixtures[test.fixture]
    return not isinstance(test.act, Apply | RunPipeline) and not isinstance(fixture, SampledFixture)


def _broken_contracts(file: TestFile, before: Catalog, after: Catalog) -> Iterator[Break]:
    for rule in file.contracts:
        reason = _rule_problem(rule, after)
        if reason is not None and _rule_problem(rule, before) is None:
            yield Break("contract", rule.name, file.path, reason)


def _rule_problem(rule: ContractRule, catalog: Catalog) -> str | None:
    findings = Findings()
    check_rule(rule, catalog, findings)
    return findings.found[0].message if findings.found else None
