"""The pytest plugin: collects `*.test.yaml`, each test as an item.

pytest imports it at every start, so it loads the engine only when there is a file to collect.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from omnigraph.pipelines.data_tests.model import DataTest
    from omnigraph.pipelines.data_tests.run import FileRun

_UPDATE = "--omnigraph-update"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes snapshots again."""
    group = parser.getgroup("omnigraph")
    group.addoption(_UPDATE, action="store_true", help="write snapshots of *.test.yaml again")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the files of tests."""
    if not file_path.name.endswith(".test.yaml"):
        return None
    collector: pytest.Collector = DataTestFile.from_parent(parent, path=file_path)
    return collector


class DataTestFile(pytest.File):
    """A test file; its fixtures live until its last test has run."""

    _run: FileRun | None = None

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the tests; a broken file is an error of the collection."""
        from omnigraph.pipelines.data_tests.model import TestFileError  # noqa: PLC0415 heavy
        from omnigraph.pipelines.data_tests.read import load_test_file  # noqa: PLC0415 heavy

        try:
            self._file = load_test_file(self.path)
        except TestFileError as error:
            raise self.CollectError(str(error)) from None
        for test in self._file.tests:
            item: pytest.Item = DataTestItem.from_parent(self, name=test.name, test=test)
            yield item

    @property
    def run(self) -> FileRun:
        """The run of this file, begun by its first test."""
        from omnigraph.pipelines.data_tests.run import FileRun, RunSettings  # noqa: PLC0415 heavy

        if self._run is None:
            updates = bool(self.config.getoption(_UPDATE))
            self._run = FileRun(self._file, RunSettings(updates=updates))
        return self._run

    def teardown(self) -> None:
        """Remove the graphs of the file."""
        if self._run is not None:
            self._run.close()
            self._run = None


class DataTestFailedError(Exception):
    """A test of a file does not hold; the message is what pytest shows."""


class DataTestItem(pytest.Item):
    """One test of a file."""

    def __init__(self, *, test: DataTest, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._test = test

    def runtest(self) -> None:
        """Run the test."""
        from omnigraph.pipelines.data_tests.junit import problem_lines  # noqa: PLC0415 heavy

        assert isinstance(self.parent, DataTestFile)  # noqa: S101 - files make the items
        result = self.parent.run.run(self._test)
        if result.state == "skipped":
            pytest.skip(result.note or "")
        if result.problems:
            lines = [line for one in result.problems for line in problem_lines(one)]
            raise DataTestFailedError("\n".join(lines))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]
        """Return what does not hold, without a traceback of the engine."""
        if isinstance(excinfo.value, DataTestFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the test stands."""
        return self.path, self._test.line - 1, self.name
