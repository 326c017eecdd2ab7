"""Lint reports, by text cases."""

from __future__ import annotations

import json

import pytest

from omnigraph.query import SchemaSource, lint_queries
from omnigraph.query.check.codes import TYPE_CODES
from omnigraph.query.lint import LintReport
from omnigraph.syntax import SourceText
from support.cases import Case, check_case, load_cases
from support.catalogs import crew_catalog, named_catalog

FILE = SchemaSource("file", "s.pg")


def lint(text: str, graph: str = "crew") -> LintReport:
    return lint_queries(
        SourceText(text), named_catalog(graph), schema_source=FILE, query_path="f.gq"
    )


def spelled(report: LintReport) -> str:
    """Spell the report with one result or finding per line."""
    form = report.as_json()
    results, findings = form.pop("results"), form.pop("findings")
    assert isinstance(results, list)
    assert isinstance(findings, list)
    lines = [json.dumps(form, ensure_ascii=False)]
    lines += (json.dumps(entry, ensure_ascii=False) for entry in [*results, *findings])
    return "\n".join(lines)


@pytest.mark.parametrize("case", load_cases("lint"), ids=str)
def test_a_file_gives_its_report(case: Case, update_cases: bool) -> None:
    report = lint(case.sections["query"], case.sections.get("graph", "crew"))
    if "json" in case.sections:
        check_case(case, "json", spelled(report), update_cases)
    check_case(case, "lines", "\n".join(report.lines()), update_cases)


def test_the_report_has_the_fields_of_the_interface_in_order() -> None:
    form = lint("query q() { match { $c: Crew } return { $c } }").as_json()
    assert list(form) == [
        *("status", "schema_source", "query_path", "queries_processed"),
        *("errors", "warnings", "infos", "results", "findings"),
    ]
    assert form["status"] == "ok"


def test_a_graph_is_a_schema_source_too() -> None:
    report = lint_queries(
        SourceText(""),
        crew_catalog(),
        schema_source=SchemaSource("graph", "mem://g"),
        query_path="f.gq",
    )
    assert report.as_json()["schema_source"] == {"kind": "graph", "uri": "mem://g"}


def test_bytes_that_are_not_utf8_are_a_report() -> None:
    report = lint_queries(b"\xff", crew_catalog(), schema_source=FILE, query_path="f.gq")
    assert [finding.code for finding in report.findings] == ["Q000"]
    assert report.status == "error"


def test_a_warning_does_not_fail_the_file() -> None:
    report = lint("query reset() { delete Mentors where since is null }")
    assert (report.status, report.errors, report.warnings) == ("ok", 0, 1)


def test_codes_of_lint_are_documented() -> None:
    assert {"Q000", "L201"} <= set(TYPE_CODES)
