"""Records that lie in a folder, one file each, named by a ULID.

One that cannot be read is reported and left in place: only a person can say what it meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from omnigraph.cluster.diagnostics import DiagnosedError, Diagnostic, error, warning
from omnigraph.cluster.stored.json_objects import (
    OtherVersionError,
    UnreadableError,
    decode,
    encode,
)
from omnigraph.cluster.stored.root import StorageRoot
from omnigraph.errors import OmnigraphError
from omnigraph.store.errors import ObjectNotFoundError

_R = TypeVar("_R")


@dataclass(frozen=True)
class FolderForm(Generic[_R]):
    """Where records of one kind lie, their type, and what is said of those that are not."""

    path: str
    record: type[_R]
    version: int
    unreadable: str
    invalid: str
    other_version: str
    unwritable: str

    def file(self, record_id: str) -> str:
        """Return the path of one record."""
        return f"{self.path}/{record_id}.json"


@dataclass(frozen=True)
class Found(Generic[_R]):
    """The records of a folder by their path, in the order of names, and what cannot be read."""

    records: dict[str, _R]
    diagnostics: tuple[Diagnostic, ...] = ()
    is_complete: bool = True
    """Whether the folder could be listed; if not, there may be unknown records."""


def read_folder(root: StorageRoot, form: FolderForm[_R]) -> Found[_R]:
    """Read every record of a folder."""
    try:
        paths = [info.path for info in root.objects.list(form.path)]
    except OmnigraphError as problem:
        found = (warning(form.unreadable, form.path, str(problem)),)
        return Found({}, found, is_complete=False)
    records: dict[str, _R] = {}
    diagnostics: list[Diagnostic] = []
    for path in paths:
        try:
            data = root.objects.get(path).data
            records[path] = decode(
                data, form.record, version_member="schema_version", version=form.version
            )
        except ObjectNotFoundError:
            continue  # Its command has finished since the folder was listed.
        except OmnigraphError as problem:
            diagnostics.append(warning(form.unreadable, path, str(problem)))
        except OtherVersionError as problem:
            diagnostics.append(warning(form.other_version, path, str(problem)))
        except UnreadableError as problem:
            diagnostics.append(warning(form.invalid, path, str(problem)))
    return Found(records, tuple(diagnostics))


def write_record(root: StorageRoot, form: FolderForm[_R], record_id: str, record: _R) -> None:
    """Write a record, or replace the one of the same id."""
    path = form.file(record_id)
    try:
        root.objects.put(path, encode(record))
    except OmnigraphError as problem:
        raise DiagnosedError(error(form.unwritable, path, str(problem))) from problem
