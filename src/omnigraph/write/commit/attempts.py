"""The attempts of a write that may lose a race.

1. `OPTIMISTIC_ATTEMPTS_MAX` attempts, or fewer if the caller wants so, are optimistic: they are
   prepared without the lock, with a growing, random pause after each one that lost.
2. One more is prepared and committed under the lock, where no other writer can be faster, so it
   succeeds. Preparing is long and a lock should be short, so it is the last resort.
3. The caller decides which conflicts are tried again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.names import BranchName
from omnigraph.write.commit.committer import Committer

OPTIMISTIC_ATTEMPTS_MAX: Final = 5
_PAUSE_S: Final = 0.005
_PAUSE_MAX_S: Final = 0.25


@dataclass(frozen=True)
class Attempt:
    """One attempt: do the work inside `with attempt.lock:`."""

    number: int
    lock: AbstractContextManager[None]
    """Holds the lock of the branch, when this is the last attempt."""
    is_last: bool = False
    """Whether a loss is final."""


def attempts(
    committer: Committer,
    clock: Clock,
    branch: BranchName,
    *,
    operation: str,
    optimistic_max: int = OPTIMISTIC_ATTEMPTS_MAX,
) -> Iterator[Attempt]:
    """Yield one attempt after the other until the caller stops.

    ```python
    for attempt in attempts(committer, clock, branch, operation="load"):
        with attempt.lock:
            try:
                return prepare_and_commit()
            except ExpectedVersionMismatchError:
                if attempt.is_last:
                    raise
    ```
    """
    for number in range(optimistic_max):
        yield Attempt(number, nullcontext())
        clock.sleep(clock.jitter(0.0, min(_PAUSE_S * 2**number, _PAUSE_MAX_S)))
    lock = committer.reserved_lock(branch, operation=operation)
    yield Attempt(optimistic_max, lock, is_last=True)
