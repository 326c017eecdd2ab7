"""`omnigraph recovery …`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import graph_address, open_graph
from omnigraph.cli.options.flags import ScopedGroup
from omnigraph.cli.output.output import Output, json_option, pair_lines
from omnigraph.errors import NotFoundError
from omnigraph.texts import on_one_line

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph, PendingRecovery, RecoveryAuditRow


@click.group("recovery", cls=ScopedGroup)
def command() -> None:
    """See what recovery has done, and what is pending."""


@command.command("list")
@graph_address
@json_option
def list_(uri: str | None, as_json: bool) -> None:
    """List the operations that recovery has settled, newest first."""
    with open_graph(uri, read_only=True) as graph:
        records = graph.recovery_list()
        shapes = [_shape(record, graph) for record in records]
    text = "\n".join(_line(record) for record in records)
    Output(as_json=as_json).result(text or "nothing was recovered", {"recoveries": shapes})


@command.command("show")
@graph_address
@click.argument("operation_id")
@json_option
def show(uri: str | None, operation_id: str, as_json: bool) -> None:
    """Show what recovery did about one operation."""
    with open_graph(uri, read_only=True) as graph:
        shape = _shape(graph.recovery_show(operation_id), graph)
    Output(as_json=as_json).result(pair_lines(shape), shape)


@command.command("status")
@graph_address
@json_option
def status(uri: str | None, as_json: bool) -> None:
    """Show pending records and what recovery would do; changes nothing."""
    with open_graph(uri, read_only=True) as graph:
        pending = [_pending(each) for each in graph.recovery_status()]
    text = "\n".join(_pending_line(each) for each in pending)
    Output(as_json=as_json).result(text or "nothing pending", {"pending": pending})


@command.command("quarantine")
@graph_address
@click.argument("operation_id")
@click.option("--confirm", is_flag=True, help="Set the record aside.")
@json_option
def quarantine(uri: str | None, operation_id: str, confirm: bool, as_json: bool) -> None:
    """Set aside a record that recovery cannot settle, after a look at the tables it names."""
    if not confirm:
        raise click.UsageError("setting a record aside needs --confirm")
    with open_graph(uri, read_only=True) as graph:
        aside = graph.recovery_quarantine(operation_id)
        shape = {"uri": graph.uri, "operation_id": operation_id, "path": aside}
    Output(as_json=as_json).result(f"set aside as {aside}", shape)


def _line(record: RecoveryAuditRow) -> str:
    tables = ", ".join(
        f"{o.table_key} {o.from_version}→{o.to_version}" for o in record.per_table_outcomes
    )
    return f"{record.operation_id} {record.recovery_kind} {record.sidecar_writer_kind}: {tables}"


def _shape(record: RecoveryAuditRow, graph: Graph | RemoteGraph) -> dict[str, object]:
    """Return an audit row together with the commit that settled the operation.

    The commit of a branch that has been deleted is gone with it.
    """
    commit = None
    if record.graph_commit_id is not None:
        with suppress(NotFoundError):
            commit = graph.get_commit(record.graph_commit_id).to_json()
    return {
        **vars(record),
        "commit": commit,
        "recovery_kind": record.recovery_kind.value,
        "per_table_outcomes": [vars(outcome) for outcome in record.per_table_outcomes],
        "transaction_ids": list(record.transaction_ids),
    }


def _pending(each: PendingRecovery) -> dict[str, object]:
    intent = each.intent
    return {
        "operation_id": each.operation_id,
        "writer_kind": intent and intent.writer_kind.value,
        "branch": each.branch,
        "actor_id": intent and intent.actor_id,
        "started_at": intent and intent.started_at,
        "verdict": each.verdict.value,
        "datasets": [
            {"type_key": table.table_key, "classification": label.value}
            for table, label in zip(intent.tables if intent else (), each.classes, strict=False)
        ],
        "problem": each.problem,
    }


def _pending_line(shape: dict[str, object]) -> str:
    if shape["problem"] is not None:
        blocked = f"branch {shape['branch']}" if shape["branch"] else "the graph"
        return f"{shape['operation_id']} blocks {blocked}: {on_one_line(str(shape['problem']))}"
    return (
        f"{shape['operation_id']} {shape['writer_kind']} on {shape['branch']}: {shape['verdict']}"
    )
