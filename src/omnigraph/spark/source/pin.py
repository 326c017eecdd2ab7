"""Which snapshot a read sees.

It is looked up once, when the source is made, and then travels as a commit id: every task and
every later action of the same frame sees exactly it, whatever is written meanwhile. On Spark
Connect a frame is made anew for every action; give `versionAsOf` there, as `Graph.to_spark` does.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from omnigraph.clock import SystemClock
from omnigraph.manifest import ReadTarget, Repository, Snapshot, open_read_only
from omnigraph.manifest.errors import GraphNotFoundError
from omnigraph.names import BranchName
from omnigraph.spark.source.options import SourceOptionError, SourceOptions
from omnigraph.spark.source.scan import Pin
from omnigraph.store import StoreSettings, open_store

COMMIT_ID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_US_PER_S: Final = 1_000_000


def pin_snapshot(options: SourceOptions) -> Pin:
    """Look up which snapshot the options mean now."""
    try:
        repository = read_repository(options.settings)
    except GraphNotFoundError:
        if "://" in options.uri or Path(options.uri).is_absolute():
            raise
        problem = (
            f"is relative: `{options.uri}` was looked for below {Path.cwd()}, where Spark plans the"
            " read, and there is no graph; give an absolute path"
        )
        raise SourceOptionError("path", problem) from None
    return Pin(options.settings, options.branch, _meant(repository, options).commit_id)


def open_pinned(pin: Pin) -> Snapshot:
    """Open the snapshot that a pin names."""
    return read_repository(pin.settings).history.snapshot_of_commit(pin.commit_id)


def read_repository(settings: StoreSettings) -> Repository:
    """Open a graph for reading only."""
    return open_read_only(open_store(settings), SystemClock())


def _meant(repository: Repository, options: SourceOptions) -> Snapshot:
    version, moment = options["versionAsOf"], options["timestampAsOf"]
    if version is not None and moment is not None:
        raise SourceOptionError("timestampAsOf", "contradicts `versionAsOf`: give one of them")
    history = repository.history
    bound = repository.branches.resolve(BranchName.parse(options.branch))
    if moment is not None:
        return history.snapshot_of(ReadTarget.at(_microseconds(moment)), bound)
    if version is None:
        return history.snapshot(bound)
    if COMMIT_ID.fullmatch(version):
        return history.snapshot_of_commit(version)
    if version.isdecimal():
        return history.snapshot_at_version(bound, int(version))
    return history.snapshot_of(ReadTarget.tag(version), bound)


def _microseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        problem = f"is a date or an ISO 8601 moment, in UTC without a zone; found '{text}'"
        raise SourceOptionError("timestampAsOf", problem) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * _US_PER_S + since.microseconds
