"""Terms of a caller that a commit depends on: what must hold, and what the commit says of itself.

1. `require` sees the state that the commit replaces. The commit lands on exactly this state, or it
   is prepared again on the newer one and `require` sees that.
2. `properties` are made when the rows are staged and counted, so a commit can state its counts.
3. With `commits_unchanged` a load commits even when it changes no row, for its properties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol, TypeAlias

from omnigraph.dataclass import dataclass
from omnigraph.manifest import GraphCommit
from omnigraph.names import check_commit_texts
from omnigraph.write.load.result import LoadCounts

CountsByTable: TypeAlias = Mapping[str, LoadCounts]
_PAGE: Final = 500


class CommitLog(Protocol):
    """The commits of a branch at one state."""

    def commits(self, *, limit: int | None = None, before: int | None = None) -> list[GraphCommit]:
        """Return commits, newest first; `before` is a manifest version."""
        ...


class CommitPages(Protocol):
    """Reads the commits of a branch."""

    def __call__(self, *, limit: int | None = None, before: int | None = None) -> list[GraphCommit]:
        """Return commits, newest first; `before` is a manifest version."""
        ...


def all_commits(pages: CommitPages, *, first: int = _PAGE) -> Iterator[GraphCommit]:
    """Yield the commits of a branch, newest first, a page at a time.

    `first` is the size of the first page: small where the newest commits most often answer.
    """
    before: int | None = None
    size = first
    while True:
        page = pages(limit=size, before=before)
        yield from page
        if len(page) < size:
            return
        before, size = page[-1].manifest_version, _PAGE


@dataclass(frozen=True)
class CommitTerms:
    """What a load or a merge must meet, and what its commit states."""

    require: Callable[[CommitLog], None]
    """Raises when the commit must not land on this state."""
    properties: Callable[[CountsByTable], Mapping[str, str]]
    """Returns the properties of the commit, from the counts of a load; a merge gives none."""
    commits_unchanged: bool = False
    """Whether a load that changes nothing makes a commit."""
    merged_commit: str | None = None
    """The head that a branch must have when it is merged; None for any."""

    def stated(self, counts: CountsByTable) -> dict[str, str]:
        """Return the properties of the commit, or raise if a commit cannot store them."""
        found = {str(key): value for key, value in self.properties(counts).items()}
        check_commit_texts(properties=found)
        return found
