"""The numbers of types, properties and tables, given out once for the whole graph.

1. The row `identity_counter` of the manifest of `main` holds the next free number. It only grows.
   A branch inherits a copy of the row when it is cut; nothing reads or writes that copy.
2. `reserve` raises it by one publish on `main` without a commit, under the lock of `main`. The
   caller holds no other lock, so no order of locks is broken.
3. The publish requires the value that the range was computed from. Two processes that both believe
   to hold the lock therefore never get one number twice.
4. Numbers that a caller does not use are lost: one that dies after the publish leaves a gap.
5. A graph from before has no such row. The first range starts above every number of every live
   branch. Later ranges start above the numbers of `main` too, where a process that does not know
   the row may have counted on.
"""

from __future__ import annotations

from typing import Final

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.manifest.branches import Branches
from omnigraph.manifest.errors import BranchGoneError, CounterMovedError
from omnigraph.manifest.layout import MAIN_INCARNATION
from omnigraph.manifest.locks.branch_lock import BranchLocks
from omnigraph.manifest.publish import Publisher, Updates
from omnigraph.manifest.reader import ManifestReader
from omnigraph.manifest.requirements import Requirements
from omnigraph.manifest.rows import identity_counter_row
from omnigraph.manifest.state import ManifestState
from omnigraph.names import MAIN, BranchName

_ATTEMPTS_MAX: Final = 10
"""How often a process that has taken the lock over may be faster."""


@dataclass(frozen=True, kw_only=True)
class IdentityCounter:
    """Gives out numbers that no branch of one graph has used."""

    reader: ManifestReader
    publisher: Publisher
    branches: Branches
    branch_locks: BranchLocks
    clock: Clock

    def reserve(self, count: int, *, above: int = 0) -> range:
        """Return `count` numbers that nobody else gets, all of them at or above `above`.

        Takes the lock of `main`: the caller must hold no lock.
        """
        if count < 1:
            raise ValueError(f"cannot reserve {count} numbers")
        with self.branch_locks.take(BranchName(MAIN), operation_id=self.clock.ulid()):
            for _ in range(_ATTEMPTS_MAX - 1):
                try:
                    return self._reserve(count, above)
                except CounterMovedError:
                    continue
            return self._reserve(count, above)

    def _reserve(self, count: int, above: int) -> range:
        state = self.reader.latest(MAIN_INCARNATION)
        start = max(above, self._next(state))
        self.publisher.publish(
            MAIN_INCARNATION,
            draft=None,
            requirements=Requirements(identity_counter=state.identity_counter),
            updates=Updates(rows=(identity_counter_row(start + count),)),
        )
        return range(start, start + count)

    def _next(self, main: ManifestState) -> int:
        if main.identity_counter:
            return max(main.identity_counter, _following(main))
        return max(self._following_on_branches())

    def _following_on_branches(self) -> list[int]:
        found = []
        for incarnation in self.branches.incarnations():
            try:
                found.append(_following(self.reader.latest(incarnation)))
            except BranchGoneError:
                continue  # It was deleted since it was listed.
        return found


def _following(state: ManifestState) -> int:
    return int(state.schema.ir["next_identity_id"])
