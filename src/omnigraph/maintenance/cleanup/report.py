"""What a cleanup has removed, dataset by dataset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.display import Display, Displayed
from omnigraph.errors import OmnigraphError
from omnigraph.maintenance.cleanup.needed import CleanupPolicy
from omnigraph.records import JsonObject

TEMPORARY_FILES: Final = "temporary files"
"""The name in reports for temporary files that dead writers have left, in any folder."""


@dataclass
class DatasetCleanup:
    """What went from one dataset, or would go; `error` is why not all of it did."""

    type_key: str
    bytes_removed: int = 0
    old_versions_removed: int = 0
    forks_removed: int = 0
    files_removed: int = 0
    dataset_removed: bool = False
    error: str | None = None
    error_code: str | None = None

    def to_json(self) -> JsonObject:
        """Return the dataset as the command line shows it."""
        return asdict(self)


@dataclass(frozen=True, repr=False)
class CleanupResult(Displayed):
    """What a cleanup has removed, or would remove when it was not confirmed."""

    policy: CleanupPolicy
    confirmed: bool
    datasets: tuple[DatasetCleanup, ...]

    def _display(self) -> Display:
        rows = [
            (
                one.type_key,
                one.old_versions_removed,
                one.files_removed,
                one.bytes_removed,
                one.error,
            )
            for one in self.datasets
        ]
        title = "removed" if self.confirmed else "would remove, with confirm=True"
        return Display(title, ("table", "versions", "files", "bytes", "error"), rows)

    @property
    def failed(self) -> tuple[DatasetCleanup, ...]:
        """The datasets of which not everything could be removed."""
        return tuple(dataset for dataset in self.datasets if dataset.error is not None)

    @property
    def warning(self) -> str | None:
        """What the caller should know about the policy."""
        return self.policy.warning

    def to_json(self) -> JsonObject:
        """Return `{keep_versions, older_than_secs, datasets}`."""
        return {
            "keep_versions": self.policy.keep_versions,
            "older_than_secs": self.policy.older_than_s,
            "datasets": [dataset.to_json() for dataset in self.datasets],
        }


@contextmanager
def reporting(report: DatasetCleanup) -> Iterator[None]:
    """Keep an error with the dataset that it belongs to."""
    try:
        yield
    except OmnigraphError as error:
        report.error, report.error_code = str(error), error.code
