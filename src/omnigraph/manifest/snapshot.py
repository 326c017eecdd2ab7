"""Snapshots: one version of the graph, for as long as a read needs it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NoReturn, TypeAlias

from omnigraph.dataclass import dataclass
from omnigraph.display import Display, Displayed
from omnigraph.errors import InvalidInputError
from omnigraph.manifest.commits import GraphCommit
from omnigraph.manifest.errors import (
    DatasetMissingError,
    ProcessBoundError,
    TypeNotFoundError,
)
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.rows import AcceptedSchema, Entry
from omnigraph.manifest.state import ManifestState
from omnigraph.names import INTERNAL_SCHEMA_VERSION, ArgumentError, BranchName, TableKey
from omnigraph.schema import Catalog
from omnigraph.store.datasets import DatasetHandle, DatasetStore
from omnigraph.store.errors import DatasetNotFoundError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, repr=False)
class Snapshot(Displayed):
    """One version of the whole graph.

    Opening a table opens exactly its published version. Nothing that is written later, on this
    or another branch, changes what a snapshot shows.
    """

    incarnation: Incarnation
    state: ManifestState
    datasets: DatasetStore

    def _display(self) -> Display:
        rows = [(str(key), entry.row_count) for key, entry in self.entries.items()]
        title = f"branch {self.branch} at commit {self.commit_id}"
        return Display(title, ("type", "rows"), rows)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: datasets are open files of this process."""
        raise ProcessBoundError(f"the snapshot of commit {self.commit_id}")

    @property
    def branch(self) -> BranchName:
        """The branch that the snapshot was read from."""
        return self.incarnation.branch

    @property
    def manifest_version(self) -> int:
        """The version of the branch's manifest."""
        return self.state.version

    @property
    def commit_id(self) -> str:
        """The head commit of the snapshot."""
        return self.state.head.commit_id

    @property
    def schema(self) -> AcceptedSchema:
        """The schema that describes exactly this data."""
        return self.state.schema

    @property
    def catalog(self) -> Catalog:
        """What the schema declares; snapshots with equal schemas share one catalog."""
        return self.state.catalog

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The published entry of every table, by key."""
        return self.state.entries

    def entry(self, table_key: str) -> Entry:
        """Return the published entry of a table."""
        entry = self.entries.get(table_key)
        if entry is None:
            raise TypeNotFoundError(table_key, self.manifest_version)
        return entry

    def to_json(self) -> dict[str, Any]:
        """Return what the branch publishes, table by table."""
        datasets = []
        for key, entry in self.entries.items():
            kind, name = TableKey(key).parts
            datasets.append(
                {
                    "entity_kind": kind,
                    "type_name": name,
                    "dataset_path": entry.location,
                    "published_dataset_version": entry.table_version,
                    "native_dataset_branch": entry.table_branch,
                    "entity_count": entry.row_count,
                }
            )
        return {
            "graph_branch": str(self.branch),
            "graph_manifest_version": self.manifest_version,
            "internal_schema_version": INTERNAL_SCHEMA_VERSION,
            "datasets": datasets,
        }

    def open(self, table_key: str) -> DatasetHandle:
        """Open a table at its published version."""
        return open_entry(self.datasets, self.entry(table_key))


def open_entry(datasets: DatasetStore, entry: Entry) -> DatasetHandle:
    """Open what an entry names."""
    try:
        return datasets.open(entry.location, branch=entry.table_branch, version=entry.table_version)
    except DatasetNotFoundError as error:
        raise DatasetMissingError(entry.table_key, entry.location, entry.table_branch) from error


class NaiveMomentError(InvalidInputError):
    """A moment without a time zone was given."""

    code = "OG-MOMENT"
    hint = "give it a time zone, as in `datetime.now(UTC)`"
    template = "the moment {moment} has no time zone"
    moment: str


@dataclass(frozen=True)
class ReadTarget:
    """Which snapshot to read.

    >>> ReadTarget.tag("release-1")
    ReadTarget(kind='tag', value='release-1')
    """

    kind: Literal["branch", "commit", "tag", "time"]
    value: str | int

    @classmethod
    def branch(cls, name: str) -> ReadTarget:
        """Read the head of a branch."""
        return cls("branch", name)

    @classmethod
    def commit(cls, commit_id: str) -> ReadTarget:
        """Read the graph as a commit left it."""
        return cls("commit", commit_id)

    @classmethod
    def snapshot(cls, commit_id: str) -> ReadTarget:
        """Read the graph as a commit left it: another name for `commit`."""
        return cls("commit", commit_id)

    @classmethod
    def tag(cls, name: str) -> ReadTarget:
        """Read the commit that a tag names."""
        return cls("tag", name)

    @classmethod
    def at(cls, moment: int | datetime | str) -> ReadTarget:
        """Read the last commit made at or before a moment.

        A number counts microseconds since the epoch; a `datetime` must have a time zone, and so
        must a text such as `2026-03-06T12:00:00Z`.

        >>> ReadTarget.at(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
        ReadTarget(kind='time', value=1000000)
        """
        if isinstance(moment, int):
            return cls("time", moment)
        if isinstance(moment, str):
            moment = _read_moment(moment)
        if not isinstance(moment, datetime):
            raise ArgumentError.of("the moment", "a `datetime`, or a text such as one", moment)
        if moment.tzinfo is None:
            raise NaiveMomentError(moment.isoformat())
        return cls("time", (moment - _EPOCH) // timedelta(microseconds=1))


def _read_moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentError.of(
            "the moment", "a date and time such as 2026-03-06T12:00:00Z", text
        ) from None


AnyTarget: TypeAlias = ReadTarget | Snapshot | GraphCommit | str | datetime
"""What reads take: a text is the name of a branch, else of a tag, else the id of a commit."""
