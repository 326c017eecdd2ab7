"""Writes of one handle that wait for the lock of a branch: the first commits for those behind it.

1. The first write of a branch leads: it takes the lock of the branch, then the writes that wait
   behind it, and answers each of them. The others wait for their answer and take no lock.
2. A leader leaves the queue however it ends, and the next write leads. So no write waits for a
   leader that has failed or was interrupted.
3. A write that is interrupted while it waits leaves the queue, and nothing of it was written. One
   that a leader has taken may still land, like any write that is interrupted in its commit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from omnigraph.manifest import Published
from omnigraph.write.commit.job import WriteJob

GROUP_MAX: Final = 32
"""How many writes one leader commits: all of them wait for the last one."""


@dataclass(eq=False)
class WaitingWrite:
    """A prepared write in the queue, and its answer."""

    job: WriteJob
    entered_s: float
    """When it began to wait, on the monotonic clock."""
    is_begun: bool = False
    """Whether its intent record may exist."""
    answer: Future[Published] = field(default_factory=Future)
    leads: bool = False
    woken: threading.Event = field(default_factory=threading.Event)
    """Set when it is answered, or leads."""
    group: list[WaitingWrite] = field(default_factory=list)
    """The writes that it has taken to commit them, itself included, if it leads."""

    @property
    def is_answered(self) -> bool:
        """Whether the leader has answered it."""
        return self.answer.done()

    def finish(self, outcome: Published | Exception) -> None:
        """Answer the write: its thread goes on, even while the leader commits others."""
        if isinstance(outcome, Exception):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)
        self.woken.set()

    def end(self, error: Exception) -> None:
        """Answer the write with an error unless it has an answer; wake its thread in any case.

        An interrupt of the leader may have come between an answer and the waking.
        """
        if not self.is_answered:
            self.finish(error)
        self.woken.set()


TakeGroup: TypeAlias = Callable[[], Sequence[WaitingWrite]]
"""Returns the leader's own write and those that wait behind it, in order."""


class CommitQueue:
    """The queues of one handle: a branch has one as long as a write leads it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._queues: dict[str, deque[WaitingWrite]] = {}

    def commit(self, write: WaitingWrite, lead: Callable[[TakeGroup], None]) -> Published:
        """Wait until the write is answered, or until it leads.

        `lead` takes the lock and then the group, and answers every write of the group, however it
        ends.
        """
        incarnation = write.job.incarnation.text
        try:
            self._enter(incarnation, write)
            write.woken.wait()
            if write.leads and not write.is_answered:
                lead(lambda: self._take(incarnation, write))
        finally:
            self._leave(incarnation, write)
        return write.answer.result()

    def _enter(self, incarnation: str, write: WaitingWrite) -> None:
        with self._guard:
            if incarnation in self._queues:
                self._queues[incarnation].append(write)
            else:
                # In this order an interrupt leaves no queue without a leader.
                _appoint(write)
                self._queues[incarnation] = deque()

    def _take(self, incarnation: str, leader: WaitingWrite) -> list[WaitingWrite]:
        with self._guard:
            queue, group = self._queues[incarnation], leader.group
            group.append(leader)
            while queue and len(group) < GROUP_MAX:
                # In this order an interrupt leaves no write without an answer.
                group.append(queue[0])
                queue.popleft()
            return group

    def _leave(self, incarnation: str, write: WaitingWrite) -> None:
        """Let the next one lead, if this one did; leave the queue, if it was still waiting."""
        with self._guard:
            queue = self._queues.get(incarnation)
            if queue is None:
                return
            if write in queue:
                queue.remove(write)
            if not write.leads:
                return
            if queue:
                _appoint(queue.popleft())
            else:
                del self._queues[incarnation]


def _appoint(write: WaitingWrite) -> None:
    write.leads = True
    write.woken.set()
