"""Runs the tests of a file: a fixture is built once, and each test that writes has its own branch.

A test that only reads looks at the fixture itself, which nothing changes. A test of a schema change
has a copy of the fixture, because a schema is applied to a graph without branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from omnigraph.clock import Clock, SystemClock
from omnigraph.engine import engine_named
from omnigraph.graph import SourceText
from omnigraph.pipelines.data_tests import acts
from omnigraph.pipelines.data_tests.acts import Facts, TestBranch
from omnigraph.pipelines.data_tests.fixtures import FixtureFailure, Fixtures
from omnigraph.pipelines.data_tests.model import (
    Apply,
    Ask,
    DataTest,
    Load,
    Merge,
    Mutate,
    RunPipeline,
    TestFile,
)
from omnigraph.pipelines.data_tests.verify import Problem, Verifier

Engine: TypeAlias = Literal["local", "spark"]
State: TypeAlias = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class RunSettings:
    """How a caller wants tests to run."""

    updates: bool = False
    """Whether snapshots that differ are written again."""
    engine: Engine | None = None
    """Where loads and merges run. Pipelines need Spark; with `local` their tests are skipped."""
    schema: SourceText | None = None
    """Takes the place of the schema of the file."""
    clock: Clock = field(default_factory=SystemClock)


@dataclass(frozen=True)
class TestResult:
    """What became of one test."""

    __test__ = False

    test: DataTest
    state: State
    seconds: float
    problems: tuple[Problem, ...] = ()
    note: str | None = None
    """Why the test was skipped, or which snapshot was written."""

    def to_json(self) -> dict[str, object]:
        """Return the result as programs see it."""
        shape: dict[str, object] = {
            "name": self.test.name,
            "line": self.test.line,
            "state": self.state,
            "seconds": round(self.seconds, 6),
        }
        if self.problems:
            shape["problems"] = [_problem_json(one) for one in self.problems]
        if self.note is not None:
            shape["note"] = self.note
        return shape


def _problem_json(problem: Problem) -> dict[str, object]:
    shape: dict[str, object] = {"message": problem.message}
    if problem.missing or problem.extra:
        shape |= {"missing": list(problem.missing), "extra": list(problem.extra)}
    return shape


class _SkippedError(Exception):
    """A test cannot run here."""


class FileRun:
    """Runs tests of one file; the graphs of its fixtures live as long as the run."""

    def __init__(self, file: TestFile, settings: RunSettings | None = None) -> None:
        self._file = file
        self._settings = settings or RunSettings()
        self._fixtures = Fixtures(file, self._settings.schema)
        self._number = 0

    def close(self) -> None:
        """Remove the graphs."""
        self._fixtures.close()

    def run(self, test: DataTest) -> TestResult:
        """Run one test; what does not hold is in the result."""
        clock = self._settings.clock
        began_s = clock.monotonic_s()
        verifier = Verifier(self._settings.updates)
        note: str | None = None
        state: State = "passed"
        problems: list[Problem] = []
        try:
            problems = self._problems(test, verifier)
            state = "failed" if problems else "passed"
            note = None if verifier.updated is None else f"wrote {verifier.updated}"
        except _SkippedError as skipped:
            state, note = "skipped", str(skipped)
        seconds = clock.monotonic_s() - began_s
        return TestResult(test, state, seconds, tuple(problems), note)

    def _problems(self, test: DataTest, verifier: Verifier) -> list[Problem]:
        needs_own = isinstance(test.act, Apply)
        missing = self._missing_spark() if isinstance(test.act, RunPipeline) else None
        if missing is not None:
            return [Problem(missing)]
        graph = (self._fixtures.own if needs_own else self._fixtures.shared)(test.fixture)
        if isinstance(graph, FixtureFailure):
            return [Problem(graph.message)]
        engine = self._settings.engine or "local"
        pinned = None if needs_own else graph.snapshot()
        shared = TestBranch(
            graph, self._file.registry, self._fixtures.path, engine=engine, pinned=pinned
        )
        facts, branch = self._do(test, shared)
        problems = verifier.problems(test.wanted, facts, branch)
        if problems:
            return problems
        for then in test.then:
            found = acts.ask(branch, then.ask, then.wanted)
            problems += [
                Problem(f"then: {one.message}", one.missing, one.extra)
                for one in verifier.problems(then.wanted, found, branch)
            ]
        return problems

    def _do(self, test: DataTest, branch: TestBranch) -> tuple[Facts, TestBranch]:
        """Do what a test says; return the facts, and where later reads look."""
        match test.act:
            case Ask() as act:
                return acts.ask(branch, act, test.wanted), branch
            case Mutate() as act:
                own = self._branch(branch)
                return acts.mutate(own, act), own
            case Load() as act:
                own = self._branch(branch)
                return acts.load(own, act), own
            case Merge() as act:
                ours, theirs = self._branch(branch), self._branch(branch)
                return acts.merge(ours, theirs, act), ours
            case Apply() as act:
                return acts.apply(branch, act), branch
            case RunPipeline() as act:
                # It imports PySpark, which other tests do without.
                from omnigraph.pipelines.data_tests import pipeline_act  # noqa: PLC0415

                return pipeline_act.run(self._branch(branch), act)

    def _branch(self, branch: TestBranch) -> TestBranch:
        self._number += 1
        return branch.cut(f"test-{self._number}")

    def _missing_spark(self) -> str | None:
        """Return why there is no Spark if the caller has asked for it; else the test is skipped."""
        if self._settings.engine == "local":
            raise _SkippedError("pipelines run on Spark, and --engine local was given")
        problem = engine_named("spark").problem()
        if problem is None or self._settings.engine == "spark":
            return problem
        raise _SkippedError(f"pipelines run on Spark: {problem}")


# -- several files --------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileReport:
    """The results of one file."""

    path: Path
    results: tuple[TestResult, ...]

    def count(self, state: State) -> int:
        """Return how many tests have ended so."""
        return sum(one.state == state for one in self.results)

    @property
    def seconds(self) -> float:
        """How long the tests took."""
        return sum(one.seconds for one in self.results)


@dataclass(frozen=True)
class TestReport:
    """The results of all files."""

    __test__ = False

    files: tuple[FileReport, ...]

    @property
    def ok(self) -> bool:
        """Whether no test has failed."""
        return self.count("failed") == 0

    def count(self, state: State) -> int:
        """Return how many tests have ended so."""
        return sum(file.count(state) for file in self.files)

    @property
    def seconds(self) -> float:
        """How long the tests took."""
        return sum(file.seconds for file in self.files)

    def to_json(self) -> dict[str, object]:
        """Return the report as programs see it."""
        return {
            "ok": self.ok,
            "passed": self.count("passed"),
            "failed": self.count("failed"),
            "skipped": self.count("skipped"),
            "seconds": round(self.seconds, 6),
            "files": [
                {"path": str(file.path), "tests": [one.to_json() for one in file.results]}
                for file in self.files
            ],
        }


def run_tests(
    files: Sequence[TestFile],
    settings: RunSettings | None = None,
    *,
    chosen: Callable[[TestFile, DataTest], bool] = lambda _file, _test: True,
    fail_fast: bool = False,
    report: Callable[[TestFile, TestResult], None] = lambda _file, _result: None,
) -> TestReport:
    """Run the chosen tests of some files; `report` is called after each test."""
    reports: list[FileReport] = []
    has_failed = False
    for file in files:
        tests = [test for test in file.tests if chosen(file, test)]
        if not tests or (has_failed and fail_fast):
            continue
        with closing(FileRun(file, settings)) as run:
            results = tuple(_results(run, file, tests, report, fail_fast=fail_fast))
        has_failed |= any(one.state == "failed" for one in results)
        reports.append(FileReport(file.path, results))
    return TestReport(tuple(reports))


def _results(
    run: FileRun,
    file: TestFile,
    tests: Sequence[DataTest],
    report: Callable[[TestFile, TestResult], None],
    *,
    fail_fast: bool,
) -> Iterator[TestResult]:
    for test in tests:
        result = run.run(test)
        report(file, result)
        yield result
        if fail_fast and result.state == "failed":
            return
