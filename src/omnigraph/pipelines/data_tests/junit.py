"""The report as JUnit XML, in the form that Jenkins, GitLab and GitHub read (junit-10.xsd)."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from omnigraph.pipelines.data_tests.compare import canonical
from omnigraph.pipelines.data_tests.run import FileReport, TestReport, TestResult
from omnigraph.pipelines.data_tests.verify import Problem
from omnigraph.texts import shown


def junit_xml(report: TestReport) -> str:
    """Return the report as a document: one suite per file."""
    root = ET.Element(
        "testsuites",
        name="omnigraph test",
        tests=str(sum(len(file.results) for file in report.files)),
        failures=str(report.count("failed")),
        errors="0",
        time=_time(report.seconds),
    )
    root.extend(_suite(file) for file in report.files)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _suite(file: FileReport) -> ET.Element:
    suite = ET.Element(
        "testsuite",
        name=shown(str(file.path)),
        file=shown(str(file.path)),
        tests=str(len(file.results)),
        failures=str(file.count("failed")),
        errors="0",
        skipped=str(file.count("skipped")),
        time=_time(file.seconds),
    )
    class_name = ".".join(file.path.with_suffix("").with_suffix("").parts[-2:])
    suite.extend(_case(one, class_name) for one in file.results)
    return suite


def _case(result: TestResult, class_name: str) -> ET.Element:
    case = ET.Element(
        "testcase",
        name=shown(result.test.name),
        classname=shown(class_name),
        time=_time(result.seconds),
    )
    if result.state == "skipped":
        ET.SubElement(case, "skipped", message=shown(result.note or ""))
    if result.problems:
        first = result.problems[0].message
        failure = ET.SubElement(case, "failure", type="failure", message=shown(first))
        lines = [line for one in result.problems for line in problem_lines(one)]
        failure.text = shown("\n".join(lines))
    return case


def problem_lines(problem: Problem, rows_max: int | None = None) -> Iterator[str]:
    """Return a problem as lines: the message, then a line for each row."""
    yield problem.message
    for word, rows in (("missing", problem.missing), ("extra  ", problem.extra)):
        kept = rows[:rows_max]
        yield from (f"{word} {canonical(row)}" for row in kept)
        if len(kept) < len(rows):
            yield f"{word} … and {len(rows) - len(kept)} more rows"


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"
