"""What `cleanup` must keep: facts in, versions out; nothing here touches storage.

A version of a dataset is needed when

1. it is the head of its lineage, or not older than a version that a live branch publishes on it;
2. it is among the newest `keep_versions` entries that a live branch has published of the table, or
   was published or replaced after the moment that `older_than` names (with both options, a version
   goes only if neither keeps it);
3. it was a branch's published entry until less than `orphan_age` ago: a branch may be
   created from it at this moment;
4. a fork was created from it, a tag pins it, it belongs to the merge base of two live branches, or
   a pending intent record or a running job names it.

Versions of `__manifest` obey the same rules, and what a kept one shows is needed too: a snapshot
that can still be found can be read.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from omnigraph.clock import CROCKFORD
from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.manifest import Entry
from omnigraph.names import ArgumentError
from omnigraph.store.records import VersionInfo

KEEP_RECOMMENDED: Final = 10
KEEP_WARNED: Final = 3
ORPHAN_AGE_S: Final = 24 * 3600
ORPHAN_AGE_WARNED_S: Final = 3600
LEASED_ORPHAN_AGE_MIN_S: Final = 3600
"""The lowest age of leftovers where locks are leases.

A cleanup that is paused can lose its locks and continue with what it has found. Files of a write
that happened in between are younger than this, by any clock that an object store accepts.
"""
"""Writes may take this long to prepare their files."""
_FAR_FUTURE: Final = 1 << 62

Lineage = tuple[str, str | None]
"""A dataset's location and the name of one of its forks; None is its main lineage."""


class NoCleanupPolicyError(InvalidInputError):
    """A cleanup needs to know what to keep."""

    code = "OG-CLEANUP-POLICY"
    hint = f"`omnigraph cleanup --keep {KEEP_RECOMMENDED}`"
    template = "{problem}"
    problem: str


@dataclass(frozen=True)
class CleanupPolicy:
    """What a caller wants to keep."""

    keep_versions: int | None = None
    older_than_s: int | None = None
    orphan_age_s: int = ORPHAN_AGE_S

    def __post_init__(self) -> None:
        for name in ("keep_versions", "older_than_s", "orphan_age_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float | None):
                raise ArgumentError.of(name, "a number", value)
        if self.keep_versions is None and self.older_than_s is None:
            raise NoCleanupPolicyError("cleanup needs keep_versions, older_than, or both")
        if self.keep_versions is not None and self.keep_versions < 1:
            raise NoCleanupPolicyError(
                "keep_versions must be at least 1: the head is never removed"
            )
        if min(self.older_than_s or 0, self.orphan_age_s) < 0:
            raise NoCleanupPolicyError("ages must not be negative")

    @property
    def warning(self) -> str | None:
        """What the caller should know before confirming."""
        warnings = []
        if self.keep_versions is not None and self.keep_versions < KEEP_WARNED:
            warnings.append(
                f"keeping {self.keep_versions} versions removes versions to roll back to;"
                f" {KEEP_RECOMMENDED} is the recommended value"
            )
        if self.orphan_age_s < ORPHAN_AGE_WARNED_S:
            warnings.append(
                f"an orphan age of {self.orphan_age_s} s removes what running writes have"
                " prepared: they have to prepare again"
            )
        return "; ".join(warnings) or None

    def describe(self) -> str:
        """Return on one line what is removed."""
        parts = []
        if self.keep_versions is not None:
            parts.append(f"beyond the newest {self.keep_versions}")
        if self.older_than_s is not None:
            parts.append(f"older than {self.older_than_s} s")
        return f"versions {' and '.join(parts)} that nothing needs"

    def keeps(self, rank: int, until: int | None, now: int) -> bool:
        """Whether the policy keeps a version.

        `rank` 0 is the newest; `until` is when it stopped being the newest (None: it has not).
        """
        if until is None or now - until < self.orphan_age_s * 1_000_000:
            return True
        return self.keeps_by_itself(rank, until, now)

    def keeps_by_itself(self, rank: int, since: int, now: int) -> bool:
        """Whether the number or the age of a version keeps it, also if no reader uses it."""
        by_count = self.keep_versions is not None and rank < self.keep_versions
        by_age = self.older_than_s is not None and now - since < self.older_than_s * 1_000_000
        return by_count or by_age


@dataclass(frozen=True)
class PublishedEntry:
    """An entry that a live branch has published, and what ended its time.

    It is live in the manifest versions from `first` up to, not including, `end`; `end` and
    `replaced_at` are None for what is published now.
    """

    entry: Entry
    first: int
    end: int | None
    replaced_at: int | None

    def is_live_in(self, versions: Sequence[int]) -> bool:
        """Whether one of these manifest versions, in order, shows this entry."""
        position = bisect_left(versions, self.first)
        return position < len(versions) and (self.end is None or versions[position] < self.end)


def published_entries(
    history: Sequence[tuple[int, Entry | None]], committed_at: Mapping[int, int]
) -> list[PublishedEntry]:
    """Return what a branch has published of one table, newest first."""
    found = []
    following = [*history[1:], None]
    for (first, entry), after in zip(history, following, strict=True):
        if entry is None:
            continue
        end = None if after is None else after[0]
        # A publish whose commit is unknown counts as recent, so what it replaced stays.
        replaced_at = None if end is None else committed_at.get(end, _FAR_FUTURE)
        found.append(PublishedEntry(entry, first, end, replaced_at))
    return found[::-1]


@dataclass
class Needs:
    """Which versions of which lineages are needed, and which lineages and datasets at all."""

    versions: dict[Lineage, set[int]] = field(default_factory=lambda: defaultdict(set))
    floors: dict[Lineage, int] = field(default_factory=dict)
    """The oldest published head of each lineage: nothing at or above it is ever touched."""

    def add(self, entry: Entry) -> None:
        """Need the version that an entry names."""
        self.add_version(entry.location, entry.table_branch, entry.table_version)

    def add_version(self, location: str, branch: str | None, version: int) -> None:
        """Need one version."""
        self.versions[location, branch].add(version)

    def add_head(self, entry: Entry) -> None:
        """Need a version that a live branch publishes now, and everything above it."""
        self.add(entry)
        lineage = (entry.location, entry.table_branch)
        self.floors[lineage] = min(
            self.floors.get(lineage, entry.table_version), entry.table_version
        )

    @property
    def locations(self) -> frozenset[str]:
        """Datasets of which anything is needed."""
        return frozenset(location for location, _ in self.versions)


def need_published(
    needs: Needs,
    published: Sequence[PublishedEntry],
    *,
    retained: Sequence[int],
    policy: CleanupPolicy,
    now: int,
) -> None:
    """Apply the policy to what one branch has published of one table, newest first.

    `retained` are the manifest versions of the branch that stay, in order. A type that is gone has
    no newest versions: only they, and its age, keep it.
    """
    is_gone = bool(published) and published[0].end is not None
    for rank, each in enumerate(published):
        if each.end is None:
            needs.add_head(each.entry)
            continue
        counted = sys.maxsize if is_gone else rank
        if policy.keeps(counted, each.replaced_at, now) or each.is_live_in(retained):
            needs.add(each.entry)


def removable(stored: Iterable[VersionInfo], lineage: Lineage, needs: Needs) -> tuple[int, ...]:
    """Return the versions of a lineage that nothing needs.

    A lineage that no branch publishes any more keeps only what is needed by name, and its newest
    version: storage cannot do without one.
    """
    numbers = sorted(info.version for info in stored)
    if not numbers:
        return ()
    floor = needs.floors.get(lineage, numbers[-1])
    needed = needs.versions.get(lineage, set())
    return tuple(n for n in numbers if n < floor and n not in needed)


def ulid_time_us(text: str) -> int | None:
    """Return when a ULID was made, in microseconds; None when the text does not end in one.

    >>> ulid_time_us("nodes/40d76f1f51639ec0-01ARZ3NDEKTSV4RRFFQ69G5FAV")
    1469922850259000
    """
    ulid = text[-26:]
    if len(ulid) < 26 or any(digit not in CROCKFORD for digit in ulid):
        return None
    value = 0
    for digit in ulid[:10]:
        value = value * 32 + CROCKFORD.index(digit)
    return value * 1_000


def removable_manifest_versions(
    stored: Iterable[VersionInfo],
    *,
    needed: frozenset[int],
    committed_at: Mapping[int, int],
    policy: CleanupPolicy,
    now: int,
) -> tuple[int, ...]:
    """Return the versions of one lineage of `__manifest` that nothing needs.

    `committed_at` is when commits were made, by manifest version; storage has a clock of its own,
    and the later of the two counts. Commits are what is counted: a version without one (a tag, a
    void, compaction) shows what the commit before it shows.
    """
    newest_first = sorted(stored, key=lambda info: info.version, reverse=True)
    going = []
    rank, replaced_at = 0, None
    for info in newest_first:
        if info.version not in needed and not policy.keeps(rank, replaced_at, now):
            going.append(info.version)
        if info.version in committed_at:
            rank += 1
            replaced_at = max(info.created_us, committed_at[info.version])
    return tuple(sorted(going))


def removable_derived_versions(
    stored: Iterable[VersionInfo], *, policy: CleanupPolicy, now: int
) -> tuple[int, ...]:
    """Return the versions of a derived table that go; no snapshot needs one, but the newest stays.

    Their age is the time since they were made.
    """
    newest_first = sorted(stored, key=lambda info: info.version, reverse=True)
    return tuple(
        info.version
        for rank, info in enumerate(newest_first)
        if rank and not policy.keeps_by_itself(rank, info.created_us, now)
    )
