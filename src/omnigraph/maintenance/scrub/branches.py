"""What is known of a branch when some of its files may be damaged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from omnigraph.dataclass import dataclass
from omnigraph.maintenance.cleanup.needed import PublishedEntry, published_entries
from omnigraph.manifest.layout import MANIFEST, Incarnation
from omnigraph.manifest.state import ManifestState
from omnigraph.store.records import DatasetVersion


@dataclass(frozen=True)
class SoundBranch:
    """A branch: the versions of its manifest that can be relied on, and the state of the newest."""

    incarnation: Incarnation
    versions: tuple[int, ...] = ()
    state: ManifestState | None = None
    pins: tuple[str, ...] = ()
    """What keeps the commits of tags in the datasets."""
    newer_lost: int = 0
    """How many newer versions there are that cannot be relied on."""

    @cached_property
    def published(self) -> list[tuple[str, PublishedEntry]]:
        """What the branch has ever published, with the keys of its tables."""
        if self.state is None:
            return []
        return [
            (key, each)
            for key, history in self.state.entry_history().items()
            for each in published_entries(history, {})
        ]

    def needed(self) -> Iterator[tuple[str, DatasetVersion]]:
        """Yield table key and version of everything that a retained version publishes."""
        for key, each in self.published:
            if each.is_live_in(self.versions):
                yield key, each.entry.at

    @cached_property
    def commits(self) -> list[tuple[str, frozenset[DatasetVersion]]]:
        """The commits of the branch, newest first, each with the versions that it needs."""
        if self.state is None:
            return []
        found = []
        for commit in self.state.commits():
            shown = (commit.manifest_version,)
            needs = {each.entry.at for _, each in self.published if each.is_live_in(shown)}
            own = DatasetVersion(MANIFEST, commit.manifest_branch, commit.manifest_version)
            found.append((commit.graph_commit_id, frozenset({own, *needs})))
        return found
