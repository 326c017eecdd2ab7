"""What a child process does: it opens a graph and runs operations, until it is killed.

It says `begin` before an operation and `done` after it. What is between the two when it dies is in
flight: it must be found wholly there or not at all. It also says when it has written a recovery
record, so that a test can kill it in the phases that come then.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import traceback
from collections.abc import Mapping
from contextlib import nullcontext
from typing import IO, Any

from crash.nursery import say
from omnigraph import failpoints
from omnigraph.errors import OutcomeUnknownError
from omnigraph.graph import Graph
from omnigraph.manifest.layout import MANIFEST
from omnigraph.store.records import CommittedRange, StagedTransaction

Form = Mapping[str, Any]
"""An operation as JSON."""


def serve(commands: IO[bytes], answers: IO[bytes]) -> None:
    """Do what the test says, line by line."""
    graph: Graph | None = None
    for line in commands:
        message = json.loads(line)
        match message["do"]:
            case "warm":
                import omnigraph.store.lance.store  # noqa: F401 - not before the fork

                say(answers, warm=True)
            case "open":
                graph = open_graph(message)
                say(answers, opened=True)
            case "pack_early":
                pack_early()
            case "arm":
                failpoints.arm_all(message["points"])
                say(answers, armed=True)
            case "stop_at_publish":
                assert graph is not None
                _stop_at_publish(graph)
                say(answers, armed=True)
            case "die_at":
                _die_at(message["point"], message["hit"])
                say(answers, armed=True)
            case "run_together":
                from support.groups import run_together

                assert graph is not None
                texts = message["texts"]
                writes = [lambda graph, text=text: graph.mutate(text) for text in texts]
                say(answers, begin=0)
                told = [answer.error is None for answer in run_together(graph, writes)]
                say(answers, done=0, told=told)
            case "tell":
                failpoints.arm("recovery.sidecar_write", lambda: say(answers, record=True))
            case "run":
                assert graph is not None
                _run(graph, message, answers)
            case "race":
                from crash.rivals import race

                assert graph is not None
                race(graph, message, answers)


def pack_early() -> None:
    """Put versions into packs after a few commits instead of hundreds."""
    from omnigraph.store.lance import packing

    packing.LOOSE_MIN, packing.PACKED_MIN = 6, 4  # type: ignore[misc]  # constants of the product


def _die_at(point: str, hit: int) -> None:
    """Die when a point is passed for the n-th time."""
    hits = itertools.count(1)

    def die() -> None:
        if next(hits) == hit:
            os._exit(137)

    failpoints.arm(point, die)


def _stop_at_publish(graph: Graph) -> None:
    """Stop once, when a publish has looked at the head and is about to replace it."""
    from support.places import repository_of

    datasets = repository_of(graph).store.datasets
    inner = datasets.commit_staged

    def commit(staged: StagedTransaction, *, exact: bool = True) -> CommittedRange:
        if staged.base.location == MANIFEST:
            datasets.commit_staged = inner  # type: ignore[method-assign]  # once
            os.kill(os.getpid(), signal.SIGSTOP)
        return inner(staged, exact=exact)

    datasets.commit_staged = commit  # type: ignore[method-assign]  # no failpoint is so late


def open_graph(message: Form) -> Graph:
    """Open a graph as a message describes it."""
    return Graph.open(
        message["uri"],
        storage_options=message.get("options") or {},
        durability="process",
        auto_optimize=message.get("auto_optimize", False),
    )


def _run(graph: Graph, message: Form, answers: IO[bytes]) -> None:
    number = message["number"]
    say(answers, begin=number)
    try:
        commit = run_operation(graph, message["operation"])
    except Exception as error:  # noqa: BLE001 - the test looks at all of them
        say(
            answers,
            failed=number,
            kind=type(error).__name__,
            error=str(error),
            is_unknown=isinstance(error, OutcomeUnknownError),
            trace="".join(traceback.format_exception(error)[-6:]),
        )
    else:
        say(answers, done=number, commit=commit)


def run_operation(graph: Graph, form: Form) -> str | None:
    """Run one operation; return the id of its commit if it made one."""
    match form["kind"]:
        case "mutate":
            commit = graph.mutate(form["text"], branch=form["branch"]).commit
        case "load":
            data = "".join(json.dumps(record) + "\n" for record in form["records"]).encode()
            commit = graph.load(data, mode=form["mode"], branch=form["branch"]).commit
        case "load_tables":
            import pyarrow as pa

            nodes = {name: pa.table(columns) for name, columns in form["nodes"].items()}
            commit = graph.load_tables(nodes=nodes, mode=form["mode"], branch=form["branch"]).commit
        case "schema":
            commit = graph.apply_schema(
                form["text"], allow_data_loss=form["allow_data_loss"]
            ).commit
        case "optimize":
            commit = graph.optimize().commit
        case "ensure_indices":
            commit = graph.ensure_indices(form["branch"]).commit
        case "branch_create":
            graph.branch_create_from(form["source"], form["name"])
            commit = None
        case "branch_merge":
            from support.linked import links_of_any_size

            with links_of_any_size() if form.get("linked") else nullcontext():
                commit = graph.branch_merge(form["source"], form["branch"]).commit
        case "branch_delete":
            graph.branch_delete(form["name"])
            commit = None
        case "cleanup":
            graph.cleanup(
                keep_versions=form["keep"], orphan_age_s=form["orphan_age_s"], confirm=True
            )
            commit = None
        case unknown:
            raise ValueError(f"unknown operation {unknown!r}")
    return None if commit is None else commit.graph_commit_id
