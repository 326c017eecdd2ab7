"""`omnigraph recovery …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import graph_address, open_graph
from omnigraph.cli.flags import ScopedGroup
from omnigraph.cli.output import Output, json_option

if TYPE_CHECKING:
    from omnigraph.graph import PendingRecovery, RecoveryRecord


@click.group("recovery", cls=ScopedGroup)
def command() -> None:
    """See what recovery has done, and what is pending."""


@command.command("list")
@graph_address(positional=True)
@json_option
def list_(uri: str | None, as_json: bool) -> None:
    """List the operations that recovery has settled, newest first."""
    with open_graph(uri, read_only=True) as graph:
        records = graph.recovery_list()
    text = "\n".join(_line(record) for record in records)
    Output(as_json=as_json).result(
        text or "nothing was recovered", {"recoveries": [_shape(r) for r in records]}
    )


@command.command("show")
@graph_address(positional=False)
@click.argument("operation_id")
@json_option
def show(uri: str | None, operation_id: str, as_json: bool) -> None:
    """Show what recovery did about one operation."""
    with open_graph(uri, read_only=True) as graph:
        shape = _shape(graph.recovery_show(operation_id))
    text = "\n".join(f"{key}: {value}" for key, value in shape.items() if value is not None)
    Output(as_json=as_json).result(text, shape)


@command.command("status")
@graph_address(positional=True)
@json_option
def status(uri: str | None, as_json: bool) -> None:
    """Show pending records and what recovery would do; changes nothing."""
    with open_graph(uri, read_only=True) as graph:
        pending = [_pending(each) for each in graph.recovery_status()]
    lines = [
        f"{each['operation_id']} {each['writer_kind']} on {each['branch']}: {each['verdict']}"
        for each in pending
    ]
    Output(as_json=as_json).result("\n".join(lines) or "nothing pending", {"pending": pending})


@command.command("quarantine")
@graph_address(positional=False)
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


def _line(record: RecoveryRecord) -> str:
    tables = ", ".join(
        f"{o.table_key} {o.from_version}→{o.to_version}" for o in record.per_table_outcomes
    )
    return f"{record.operation_id} {record.recovery_kind} {record.sidecar_writer_kind}: {tables}"


def _shape(record: RecoveryRecord) -> dict[str, object]:
    return {
        **vars(record),
        "recovery_kind": record.recovery_kind.value,
        "per_table_outcomes": [vars(outcome) for outcome in record.per_table_outcomes],
        "transaction_ids": list(record.transaction_ids),
    }


def _pending(each: PendingRecovery) -> dict[str, object]:
    sidecar = each.sidecar
    return {
        "operation_id": sidecar.operation_id,
        "writer_kind": sidecar.writer_kind.value,
        "branch": sidecar.branch,
        "actor_id": sidecar.actor_id,
        "started_at": sidecar.started_at,
        "verdict": each.verdict.value,
        "datasets": [
            {"type_key": table.table_key, "classification": label.value}
            for table, label in zip(sidecar.tables, each.classes, strict=False)
        ],
    }
