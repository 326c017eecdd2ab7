"""Writes that are committed as one group, in a known order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from omnigraph.graph import Graph
from omnigraph.manifest.locks.branch_lock import in_process
from omnigraph.manifest.publish import Published
from support.places import repository_of

Write = Callable[[Graph], object]
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.002


@dataclass
class Answer:
    """What a writer was told; both are None as long as it waits."""

    value: object = None
    error: BaseException | None = None


def run_together(graph: Graph, writes: Sequence[Write], branch: str = "main") -> list[Answer]:
    """Run writes in threads that queue in this order, then let all of them go.

    The lock of the branch is held until all of them wait. It is only the one between threads, so
    that holding it has no effect on storage.
    """
    repository = repository_of(graph)
    answers = [Answer() for _ in writes]
    threads = []
    with in_process(repository.root, branch, _PATIENCE_S, repository.clock):
        for write, answer in zip(writes, answers, strict=True):
            before = queue_length(graph)
            thread = threading.Thread(target=_run, args=(graph, write, answer))
            threads.append(thread)
            thread.start()
            _await_place(graph, before, thread)
    for thread in threads:
        thread.join()
    return answers


def _run(graph: Graph, write: Write, answer: Answer) -> None:
    try:
        answer.value = write(graph)
    except BaseException as error:  # noqa: BLE001 - the test looks at it
        answer.error = error


def _await_place(graph: Graph, before: int, thread: threading.Thread) -> None:
    """Wait until a thread waits behind this many others, or has ended."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while thread.is_alive() and queue_length(graph) <= before:
        assert time.monotonic() < give_up_at, "the writer does not get into the queue"
        time.sleep(_LOOK_S)


def queue_length(graph: Graph) -> int:
    """Return how many writes wait for the locks of branches, those that lead included."""
    queues = graph._session.committer._shared.queue._queues
    return sum(1 + len(queue) for queue in list(queues.values()))


def group_sizes(graph: Graph) -> list[int]:
    """Return a list that grows by the size of each group of this handle from now on."""
    committer = graph._session.committer
    commit, sizes = committer._commit_group, list[int]()

    def counted(group: Sequence[object], lock: object) -> Published | None:
        sizes.append(len(group))
        return commit(group, lock)  # type: ignore[arg-type, func-returns-value]

    committer._commit_group = counted  # type: ignore[assignment, method-assign]
    return sizes
