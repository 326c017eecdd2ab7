"""The format stamp of a graph, and the steps from older formats to ours.

The stamp is a number in the schema metadata of `__manifest`. Opening for writing migrates it;
each step can be repeated, also by two processes at once. Opening for reading
changes nothing.

| from | to | step |
|---|---|---|
| 1 | 2 | `object_id` is marked as primary key |
| 2 | 3 | legacy staging branches named `__run__*` are deleted |
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from omnigraph.errors import InvalidInputError
from omnigraph.manifest.errors import FormatTooNewError
from omnigraph.manifest.layout import MANIFEST
from omnigraph.names import INTERNAL_SCHEMA_VERSION
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.errors import RefInUseError, RefNotFoundError, StaleBaseError
from omnigraph.store.records import DatasetVersion, StagedTransaction
from omnigraph.store.retries import commit_retried
from omnigraph.values import PRIMARY_KEY

STAMP_KEY: Final = "omnigraph:internal_schema_version"
LEGACY_RUN_PREFIX: Final = "__run__"
_ATTEMPTS_MAX: Final = 10

_log = logging.getLogger(__name__)


def read_stamp(root: str, datasets: DatasetStore) -> int:
    """Return the format of the graph; a newer format is refused."""
    metadata = datasets.open(MANIFEST).schema.metadata or {}
    text = metadata.get(STAMP_KEY.encode(), b"1").decode()
    if not text.isdecimal() or int(text) > INTERNAL_SCHEMA_VERSION:
        raise FormatTooNewError(f"{root}/{MANIFEST}", text, INTERNAL_SCHEMA_VERSION)
    return int(text)


def migrate(root: str, datasets: DatasetStore) -> None:
    """Bring an older graph to the current format."""
    stamp = read_stamp(root, datasets)
    while stamp < INTERNAL_SCHEMA_VERSION:
        _STEPS[stamp](datasets)
        _raise_stamp(root, datasets, stamp + 1)
        stamp = read_stamp(root, datasets)


def _raise_stamp(root: str, datasets: DatasetStore, wanted: int) -> None:
    """Set the stamp, unless another process has set the same or a newer one."""

    def stage() -> StagedTransaction | None:
        base = DatasetVersion(MANIFEST, None, datasets.head_version(MANIFEST))
        if read_stamp(root, datasets) >= wanted:
            return None
        return datasets.stage_metadata(base, schema_metadata={STAMP_KEY: str(wanted)})

    commit_retried(datasets, stage, attempts_max=_ATTEMPTS_MAX)


def _mark_primary_key(datasets: DatasetStore) -> None:
    def stage() -> StagedTransaction | None:
        handle = datasets.open(MANIFEST)
        if (handle.schema.field("object_id").metadata or {}).get(PRIMARY_KEY) == b"true":
            return None
        marked = {"object_id": {PRIMARY_KEY.decode(): "true"}}
        return datasets.stage_metadata(handle.at, field_metadata=marked)

    # Another process may be faster, and Lance refuses to set the mark a second time.
    races = (StaleBaseError, InvalidInputError)
    commit_retried(datasets, stage, attempts_max=_ATTEMPTS_MAX, retried=races)


def _delete_legacy_runs(datasets: DatasetStore) -> None:
    for name in datasets.branch_names(MANIFEST):
        if not name.startswith(LEGACY_RUN_PREFIX):
            continue
        try:
            datasets.delete_branch(MANIFEST, name)
        except RefNotFoundError:
            continue  # Another process was faster.
        except RefInUseError as error:
            _log.warning("legacy staging branch %s stays: %s", name, error)


_STEPS: Final[dict[int, Callable[[DatasetStore], None]]] = {
    1: _mark_primary_key,
    2: _delete_legacy_runs,
}
