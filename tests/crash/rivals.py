"""A writer that goes on until its time is over or it is killed.

It inserts rows without a key, so that a write that happened twice shows, and raises one shared
counter under the head that it has read, so that an update that was lost shows.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from crash.nursery import say
from omnigraph.errors import ConflictError, OmnigraphError, PreconditionError
from omnigraph.graph import Graph
from omnigraph.manifest.errors import ExpectedVersionMismatchError
from support.linked import links_of_any_size

SCHEMA = """
node Log { text: String }
node Counter { name: String @key   value: I64 }
"""
READ = "query q() { match { $c: Counter } return { $c.value } }"


def insert(graph: Graph, text: str) -> None:
    """Add a row that nobody else adds."""
    graph.mutate("query q($t: String) { insert Log { text: $t } }", params={"t": text})


def increment(graph: Graph) -> None:
    """Raise the counter by one, however often others are faster."""
    while True:
        head = graph.refresh().commit_id
        value = counter_value(graph)
        if graph.head_commit_id_for_branch() != head:
            continue
        try:
            graph.mutate(
                'query q($v: I64) { update Counter set { value: $v } where name = "all" }',
                params={"v": value + 1},
                expected_head=head,
            )
        except (PreconditionError, ExpectedVersionMismatchError):
            continue
        return


def counter_value(graph: Graph) -> int:
    rows = graph.snapshot().open("node:Counter").scan().read_all()
    return int(rows["value"].to_pylist()[0])


def insert_by_merge(graph: Graph, text: str) -> None:
    """Add a row on a branch, and let `main` take over its files."""
    branch = f"with/{text}"
    graph.branch_create(branch)
    try:
        graph.mutate(
            "query q($t: String) { insert Log { text: $t } }", params={"t": text}, branch=branch
        )
        with links_of_any_size():
            graph.branch_merge(branch)
    finally:
        with suppress(OmnigraphError):
            graph.branch_delete(branch)


def race(graph: Graph, message: Mapping[str, Any], answers: IO[bytes]) -> None:
    """Write until the time is over; say what came of each attempt."""
    end = time.monotonic() + message["seconds"]
    for number in itertools.count():
        if time.monotonic() > end:
            break
        text = f"{message['name']}-{number}"
        is_increment = number % 3 == 2
        say(answers, begin=text, increment=is_increment)
        try:
            if is_increment:
                increment(graph)
            elif message.get("merges") and number % 3 == 1:
                insert_by_merge(graph, text)
            else:
                insert(graph, text)
        except ConflictError as error:
            say(answers, refused=text, error=f"{type(error).__name__}: {error}")
        except OmnigraphError as error:
            say(answers, failed=text, error=f"{type(error).__name__}: {error}")
        else:
            say(answers, done=text)
    say(answers, over=True)
