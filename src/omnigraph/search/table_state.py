"""The physical state of a dataset version: which files its rows are in.

Two versions with the same state hold the same rows with the same row ids, whatever their version
numbers and branches are. Derived data is therefore keyed by state: branches that share files share
it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, Final, Self

from omnigraph.dataclass import dataclass
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import DatasetVersion

_KEY_DIGITS: Final = 32


@dataclass(frozen=True)
class FragmentState:
    """One fragment: its rows are fixed by its data files and its deletion file."""

    fragment_id: int
    identity: str
    """Names all of its files."""
    data_identity: str
    """Names its data files: equal ones hold the same rows, except for deleted ones."""
    files: tuple[str, ...] = field(default=(), compare=False)
    """All of its files, those of columns that were added later included; not stored."""


@dataclass(frozen=True)
class TableState:
    """The fragments of one dataset version, and the version that it was read from."""

    at: DatasetVersion
    fragments: tuple[FragmentState, ...]

    @classmethod
    def of(cls, handle: DatasetHandle) -> Self:
        """Read the state from an open dataset's manifest; touches no storage."""
        fragments = (
            FragmentState(info.fragment_id, info.identity, info.data_identity, info.files)
            for info in handle.fragments()
        )
        return cls(handle.at, tuple(fragments))

    @cached_property
    def key(self) -> str:
        """A name for the state: equal for equal content of the same dataset."""
        parts = [self.at.location, *(f"{f.fragment_id}:{f.identity}" for f in self.fragments)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_KEY_DIGITS]

    @cached_property
    def by_data(self) -> dict[str, FragmentState]:
        """The fragments by their data files."""
        return {fragment.data_identity: fragment for fragment in self.fragments}

    @property
    def lineage(self) -> tuple[str, str | None]:
        """Dataset and branch; within one lineage a row id belongs to one row only."""
        return self.at.location, self.at.branch

    def sharing_data_with(self, base: TableState) -> tuple[int, ...]:
        """Return the ids of the fragments whose data files `base` has too."""
        known = {fragment.data_identity for fragment in base.fragments}
        return tuple(f.fragment_id for f in self.fragments if f.data_identity in known)

    def fragment_ids_without(self, shared: Iterable[int]) -> tuple[int, ...]:
        """Return the ids of all other fragments."""
        excluded = frozenset(shared)
        return tuple(f.fragment_id for f in self.fragments if f.fragment_id not in excluded)

    def to_json(self) -> dict[str, Any]:
        """Return the state as it is stored in the header of a topology file."""
        at = self.at
        return {
            "location": at.location,
            "branch": at.branch,
            "version": at.version,
            "fragments": [[f.fragment_id, f.identity, f.data_identity] for f in self.fragments],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        at = DatasetVersion(str(value["location"]), value["branch"], int(value["version"]))
        fragments = (FragmentState(int(n), str(i), str(d)) for n, i, d in value["fragments"])
        return cls(at, tuple(fragments))
