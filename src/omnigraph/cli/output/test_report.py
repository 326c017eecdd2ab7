"""Results of tests and of contracts, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from omnigraph.texts import on_one_line

if TYPE_CHECKING:
    from omnigraph.pipelines.contracts.run import RuleResult
    from omnigraph.pipelines.data_tests.run import TestReport, TestResult

ROWS_SHOWN_MAX: Final = 10
_MARKS: Final = {"passed": "ok     ", "failed": "failed ", "skipped": "skipped"}
_COLOURS: Final = {"passed": None, "failed": "red", "skipped": "yellow"}


def result_lines(result: TestResult) -> Iterator[tuple[str, str | None]]:
    """Yield the lines of a test, each with its colour on a terminal."""
    from omnigraph.pipelines.data_tests.junit import problem_lines  # noqa: PLC0415 loads Lance

    note = "" if result.note is None else f": {result.note}"
    line = f"  {_MARKS[result.state]} {result.test.name}{note}"
    yield on_one_line(line), _COLOURS[result.state]
    for problem in result.problems:
        for text in problem_lines(problem, ROWS_SHOWN_MAX):
            for part in text.splitlines():
                yield f"          {on_one_line(part)}", None


def summary(report: TestReport) -> str:
    """Return how many tests have passed and failed."""
    counts = [
        (report.count("passed"), "passed"),
        (report.count("failed"), "failed"),
        (report.count("skipped"), "skipped"),
    ]
    shown = [f"{number} {state}" for number, state in counts if number or state == "passed"]
    return f"{', '.join(shown)} in {report.seconds:.2f} s"


def contract_text(results: Sequence[RuleResult]) -> str:
    """Return a line per rule, then how many hold."""
    lines = [_rule_line(one) for one in results]
    failed = sum(one.check.stops for one in results)
    warned = sum(not one.check.passed and one.check.is_warning for one in results)
    held = len(results) - failed - warned
    return "\n".join([*lines, f"{held} hold, {failed} failed, {warned} warned"])


def _rule_line(result: RuleResult) -> str:
    check = result.check
    mark = "ok    " if check.passed else "warn  " if check.is_warning else "failed"
    value = "nothing" if check.value is None else check.value
    found = check.error if check.error is not None else f"found {value}"
    owner = "" if result.rule.owner is None or check.passed else f" ({result.rule.owner})"
    return f"{mark} {check.name}: {check.expect}, {on_one_line(found)}{owner}"
