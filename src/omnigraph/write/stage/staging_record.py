"""`__staging/<operation>.json`: the files and versions that a running bulk job needs.

    {schema_version, operation_id, started_at, renewals,
     tables: [{table_path, table_branch?, version}], files: [path]}

A bulk job may prepare for hours. Until it commits, nothing refers to the files that it has staged,
and the versions that it reads may be old. Its record protects them from cleanup.

1. A record exists from before the first file that it names, or at least from before that file is
   as old as the orphan age, until after the job has committed or given up.
2. The job renews its record every `RENEW_S`, even if nothing is new: the number of renewals
   changes, so the object does.
3. A reader takes a record for dead when it has watched it unchanged for `SILENT_S` by its own
   monotonic clock, or when the storage says that it was last written longer ago than the orphan
   age, and than several renewals: an orphan age of zero does not kill the living. Clocks of
   different machines are never compared.
4. A record that cannot be read counts as live as long as it is young, and names nothing.
5. Cleanup skips tables that a live record names as a whole: tasks write files there that are not
   in the record yet.
6. A record may be shared: the tasks of one write renew the same one, each while it runs, and the
   commit closes it. It names nothing but the operation, so all tasks write the same content.
7. `__staging/<operation>/` holds files that the tasks of a job exchange; they are removed with the
   record.
8. Losing a record loses no data: every staged file is looked for again before phase A.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from typing import Final, Self

import orjson

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.records import Stored, member, to_json
from omnigraph.recovery.members import StoredPath
from omnigraph.store.errors import ObjectNotFoundError
from omnigraph.store.objects.protocol import ObjectInfo, ObjectStore
from omnigraph.store.records import DatasetVersion

FOLDER: Final = "__staging"
RECORD_VERSION: Final = 1
RENEW_S: Final = 30.0
SILENT_S: Final = 10 * RENEW_S
_AGE_MIN_S: Final = 4 * RENEW_S

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DatasetBase:
    """A version of a dataset that a job was prepared on."""

    table_path: StoredPath
    table_branch: StoredPath | None
    version: int

    @classmethod
    def of(cls, at: DatasetVersion) -> DatasetBase:
        """Return an open version as a base."""
        return cls(at.location, at.branch, at.version)


@dataclass(frozen=True)
class StagingRecord:
    """One record in memory."""

    operation_id: str
    started_at: int = 0
    renewals: int = 0
    bases: tuple[DatasetBase, ...] = field(default=(), metadata=member("tables"))
    files: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The path of the record."""
        return f"{FOLDER}/{self.operation_id}.json"

    def to_json(self) -> bytes:
        """Return the stored form."""
        return orjson.dumps({"schema_version": RECORD_VERSION, **to_json(self)})


class StagingJob:
    """A record that is held. Safe to share between threads."""

    def __init__(self, objects: ObjectStore, record: StagingRecord) -> None:
        self._objects = objects
        self._record = record
        self._guard = threading.Lock()

    @property
    def record(self) -> StagingRecord:
        """What is declared so far."""
        return self._record

    def declare(self, *, bases: Iterable[DatasetBase] = (), files: Iterable[str] = ()) -> None:
        """Add versions and files, and write the record."""
        with self._guard:
            self._write(
                replace(
                    self._record,
                    bases=tuple(dict.fromkeys((*self._record.bases, *bases))),
                    files=tuple(dict.fromkeys((*self._record.files, *files))),
                )
            )

    def renew(self) -> None:
        """Show that the job is alive."""
        with self._guard:
            self._write(self._record)

    def close(self) -> None:
        """Remove the record; one that cannot be removed expires."""
        with self._guard:
            try:
                self._objects.delete(self._record.path)
            except OmnigraphError as error:
                _log.warning("the record of a finished job stays until it is old: %s", error)

    def _write(self, record: StagingRecord) -> None:
        self._record = replace(record, renewals=record.renewals + 1)
        self._objects.put(self._record.path, self._record.to_json())


class StagingRecords:
    """The records of one graph; remembers their tags, to notice records that are not renewed."""

    def __init__(self, objects: ObjectStore, clock: Clock, *, renew_s: float = RENEW_S) -> None:
        self._objects = objects
        self._clock = clock
        self._renew_s = renew_s
        self._guard = threading.Lock()
        self._seen: dict[str, tuple[str, float]] = {}
        """Tag of each record, and the time since which it has not changed."""

    def open(self, operation_id: str, bases: Iterable[DatasetBase] = ()) -> StagingJob:
        """Write a new record; the caller renews and closes it."""
        record = StagingRecord(operation_id, self._clock.now_us(), bases=tuple(bases))
        self._objects.put_if_absent(record.path, record.to_json())
        return StagingJob(self._objects, record)

    @contextmanager
    def hold(self, operation_id: str, bases: Iterable[DatasetBase] = ()) -> Iterator[StagingJob]:
        """Hold a record that a thread renews until the block ends or raises."""
        job = self.open(operation_id, bases)
        try:
            with self._renewed(job):
                yield job
        finally:
            job.close()

    @contextmanager
    def share(self, operation_id: str) -> Iterator[StagingJob]:
        """Renew a record that others may renew too, until the block ends; the record stays.

        The end of the operation closes it. If that never happens, it expires.
        """
        job = StagingJob(self._objects, StagingRecord(operation_id, self._clock.now_us()))
        job.renew()
        with self._renewed(job):
            yield job

    @contextmanager
    def _renewed(self, job: StagingJob) -> Iterator[None]:
        stop = threading.Event()
        name = f"staging-{job.record.operation_id}"
        renewer = threading.Thread(
            target=self._renew_until, args=(job, stop), name=name, daemon=True
        )
        renewer.start()
        try:
            yield
        finally:
            stop.set()
            renewer.join()

    def live(self, *, orphan_age_s: float) -> tuple[StagingRecord, ...]:
        """Return the records of jobs that are not known to be dead."""
        return self.partition(orphan_age_s=orphan_age_s)[0]

    def partition(self, *, orphan_age_s: float) -> tuple[tuple[StagingRecord, ...], list[str]]:
        """Return the live records and the paths of the dead ones."""
        everything = self._objects.list(FOLDER)
        infos = [info for info in everything if _operation_of(info.path) is None]
        silent = self._observe(infos)
        oldest_us = self._clock.now_us() - max(orphan_age_s, _AGE_MIN_S) * 1_000_000
        dead = [info.path for info in infos if info.path in silent or info.modified_us < oldest_us]
        read = (self._read(info.path) for info in infos if info.path not in dead)
        live = tuple(record for record in read if record is not None)
        working = {record.operation_id for record in live}
        for info in everything:
            operation = _operation_of(info.path)
            if operation is not None and operation not in working and info.modified_us < oldest_us:
                dead.append(info.path)
        return live, dead

    def _observe(self, infos: Iterable[ObjectInfo]) -> frozenset[str]:
        """Remember the tag of each record; return those that have not changed for too long."""
        now = self._clock.monotonic_s()
        with self._guard:
            known, self._seen = self._seen, {}
            for info in infos:
                tag, since = known.get(info.path, ("", now))
                self._seen[info.path] = (info.tag, since if tag == info.tag else now)
            return frozenset(
                path for path, (_, since) in self._seen.items() if now - since >= SILENT_S
            )

    def _read(self, path: str) -> StagingRecord | None:
        try:
            return _parse(path, self._objects.get(path).data)
        except ObjectNotFoundError:
            return None

    def _renew_until(self, job: StagingJob, stop: threading.Event) -> None:
        while not stop.wait(self._renew_s):
            try:
                job.renew()
            except OmnigraphError as error:
                # The next renewal may work; a reader waits for several of them.
                _log.warning("could not renew %s: %s", job.record.path, error)


class LazyRecord:
    """A record for one operation that is written with its first table, and then held."""

    def __init__(self, records: StagingRecords, operation_id: str) -> None:
        self._records = records
        self._operation_id = operation_id
        self._held = ExitStack()
        self._job: StagingJob | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._held.close()

    def declare(self, base: DatasetBase) -> None:
        """Record that files are going to be written for a version."""
        if self._job is None:
            self._job = self._held.enter_context(self._records.hold(self._operation_id, [base]))
        elif base not in self._job.record.bases:
            self._job.declare(bases=[base])


def _operation_of(path: str) -> str | None:
    """Return the operation of a file in its folder; None for a record."""
    operation, _, rest = path.removeprefix(f"{FOLDER}/").partition("/")
    return operation if rest else None


def _parse(path: str, data: bytes) -> StagingRecord:
    operation_id = path.rpartition("/")[2].removesuffix(".json")
    try:
        form = Stored(orjson.loads(data)).object()
        return Stored({**form, "operation_id": operation_id}).record(StagingRecord)
    except ValueError as error:
        _log.warning("%s cannot be read and names nothing: %s", path, error)
        return StagingRecord(operation_id)
