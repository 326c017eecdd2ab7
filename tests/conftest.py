"""Options and settings of the whole suite."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from omnigraph.spark import get_spark, java_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The quick run tries the same examples every time, so that a change is judged by what it changes;
# the slow run looks for new ones.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=100,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "slow", parent=settings.get_profile("default"), max_examples=5_000, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A run that a shell started in the background inherits that Ctrl+C is ignored, and so would every
# process that it starts; tests that press it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_LEFT_OUT = "left out: "


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-cases", action="store_true", help="rewrite the expected text of failing cases"
    )
    parser.addoption("--kills", type=int, help="how many processes the runs in tests/crash kill")
    parser.addoption(
        "--schedules", type=int, help="how many schedules each test in tests/sim plays"
    )
    parser.addoption(
        "--seed", help="the episode that tests/crash repeats, or the schedule of tests/sim"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    spark_items = [item for item in items if item.get_closest_marker("spark")]
    if not spark_items:
        return
    problem = java_problem()
    for item in spark_items:
        # One JVM for all of them: xdist's loadgroup keeps them on one worker.
        item.add_marker(pytest.mark.xdist_group("spark"))
        if problem is not None:
            item.add_marker(pytest.mark.skip(reason=_LEFT_OUT + problem))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = [
        report.longrepr[2]
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and _LEFT_OUT in report.longrepr[2]
    ]
    if reasons:
        problem = reasons[0].split(_LEFT_OUT, 1)[1]
        terminalreporter.write_line(
            f"{len(reasons)} Spark tests (tests/spark) were left out. {problem}", yellow=True
        )


@pytest.fixture(scope="session", autouse=True)
def _no_operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the settings of whoever runs the tests out of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_HOME", str(tmp_path_factory.mktemp("operator")))
        patch.delenv("OMNIGRAPH_PROFILE", raising=False)
        yield


@pytest.fixture
def update_cases(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-cases"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local session for all tests: starting a JVM costs seconds."""
    session = get_spark(master="local[2]")
    yield session
    session.stop()
