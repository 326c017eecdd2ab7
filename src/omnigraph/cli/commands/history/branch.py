"""`omnigraph branch …`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from omnigraph.cli.address import (
    acting,
    graph_address,
    open_graph,
    open_target,
    refuse_served_spark,
    resolve_address,
)
from omnigraph.cli.options.blobs import external_blob_option
from omnigraph.cli.options.commit_note import commit_options, retries_option
from omnigraph.cli.options.consent import require_consent
from omnigraph.cli.options.engine import engine_option
from omnigraph.cli.options.flags import ScopedGroup
from omnigraph.cli.options.together import choice_option
from omnigraph.cli.output.output import Output, json_option, type_label
from omnigraph.cli.output.streams import say
from omnigraph.errors import OmnigraphError
from omnigraph.texts import on_one_line, read_json
from omnigraph.wire.outcomes import EXIT_FAILURE

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph, MergeResult

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_strategy = choice_option(
    "--strategy",
    known=["row", "property"],
    help="Whether two sides may change different properties of one row.",
)


@click.group("branch", cls=ScopedGroup)
def command() -> None:
    """Create, list, merge and delete branches."""


@command.command("create")
@graph_address
@click.argument("name")
@click.option("--from", "source", default="main", show_default=True, help="The branch to cut from.")
@json_option
def create(uri: str | None, name: str, source: str, as_json: bool) -> None:
    """Cut a branch from the head of another one."""
    graph, out = open_target(uri, as_json=as_json)
    actor = graph.branch_create_from(source, name, actor_id=acting())
    shape = {"uri": graph.uri, "from": source, "name": name, "actor_id": actor}
    out.result(f"created branch {name} from {source}", shape)


@command.command("list")
@graph_address
@json_option
def list_(uri: str | None, as_json: bool) -> None:
    """List the branches, `main` first."""
    names = open_graph(uri, read_only=True).branch_list()
    Output(as_json=as_json).result("\n".join(names), {"branches": names})


@command.command("merge")
@graph_address
@click.argument("source")
@click.option("--into", "target", default="main", show_default=True, help="The branch to change.")
@click.option(
    "--prefer",
    type=click.Choice(["source", "target"]),
    help="Whose row stands where both sides changed it.",
)
@click.option(
    "--resolve",
    "resolve_file",
    type=_FILE,
    help="A file of `branch conflicts`, edited, that settles rows one by one.",
)
@_strategy
@click.option(
    "--schema",
    "schema",
    type=click.Choice(["source", "target"]),
    help="Whose schema stands where both sides changed the same type, property or rule.",
)
@click.option(
    "--allow-data-loss",
    is_flag=True,
    help="With `--schema`: drop values of what that side dropped, although the other changed them.",
)
@external_blob_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say what would happen, and write nothing; exit 1 where there are conflicts.",
)
@click.option("--delete-branch", is_flag=True, help="Delete the source when it is merged.")
@commit_options
@retries_option
@engine_option("Where rows are compared and written.")
@json_option
def merge(
    uri: str | None,
    source: str,
    target: str,
    prefer: str | None,
    resolve_file: Path | None,
    strategy: str,
    schema: str | None,
    allow_data_loss: bool,
    external_blob_bases: tuple[str, ...],
    dry_run: bool,
    delete_branch: bool,
    message: str | None,
    properties: dict[str, str],
    retries: int,
    engine: str,
    as_json: bool,
) -> None:
    """Merge a branch into another one as one commit, or not at all.

    A schema that the source has changed is merged too, before its rows.
    """
    refuse_served_spark(uri, on_spark=engine == "spark")
    graph = open_graph(uri, read_only=dry_run)
    out = Output(as_json=as_json)
    if not dry_run:
        out.write_target(graph.uri)
    result = graph.branch_merge(
        source,
        target,
        strategy=strategy,
        prefer=prefer,
        resolve_file=resolve_file,
        schema=schema,
        allow_data_loss=allow_data_loss,
        dry_run=dry_run,
        message=message,
        properties=properties,
        retries=retries,
        external_blob_bases=external_blob_bases,
        actor_id=acting(),
        engine=engine,
    )
    if dry_run:
        _show_plan(result, out)
        sys.exit(EXIT_FAILURE if result.conflicts else 0)
    lines = [f"merged {source} into {target}: {result.outcome}", *_schema_lines(result)]
    text, shape = "\n".join(lines), result.to_json()
    if delete_branch:
        problem = _deleted(graph, source)
        shape["branch_deleted"] = problem is None
        if problem is None:
            text += f"\ndeleted branch {source}"
        else:
            shape["branch_delete_error"] = problem
            say(f"warning: merged, but could not delete branch '{source}': {problem}", err=True)
    out.result(text, shape)


def _schema_lines(result: MergeResult) -> list[str]:
    """Return how a merge changes the schema of its target, and what it drops."""
    lines = [f"schema: {step.render()}" for step in result.schema_changes.steps]
    for each in result.dropped_values:
        what = "rows" if each.property is None else f"values of `{each.property}`"
        lines.append(f"dropped {what}: {type_label(each.table_key)}: {each.count}")
    return lines


def _deleted(graph: Graph | RemoteGraph, name: str) -> str | None:
    """Delete a branch; return why not if that fails."""
    try:
        graph.branch_delete(name, actor_id=acting())
    except OmnigraphError as error:
        return str(error)
    return None


def _show_plan(result: MergeResult, out: Output) -> None:
    names = f"merge {result.source} into {result.target}"
    count = len(result.conflicts)
    lines = [f"cannot {names}: {count} conflicts" if count else f"would {names}: {result.outcome}"]
    lines += _schema_lines(result)
    of_schemas = [found for found in result.conflicts if found.is_of_schemas]
    lines += [f"conflict: {found.subject}: {found.message}" for found in of_schemas]
    lines += [
        f"{type_label(each.table_key)}: {each.inserted} inserted, {each.updated} updated,"
        f" {each.deleted} deleted"
        for each in result.counts
    ]
    of_rows = [found for found in result.conflicts if not found.is_of_schemas]
    lines += [f"conflict: {found.subject}: {found.message}" for found in of_rows]
    out.result("\n".join(lines), result.to_json())


@command.command("conflicts")
@graph_address
@click.argument("source")
@click.option("--into", "target", default="main", show_default=True, help="The branch to change.")
@_strategy
@click.option(
    "--out",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file for one line of JSON per conflict.",
)
@json_option
def conflicts(
    uri: str | None, source: str, target: str, strategy: str, path: Path | None, as_json: bool
) -> None:
    """Show what conflicts, or write it to a file: edit `take`, then `branch merge --resolve` it.

    Where no row conflicts, these are the rules of the schema that the merge would break.
    """
    graph = open_graph(uri, read_only=True)
    lines = list(graph.merge_conflicts(source, target, strategy=strategy))
    if path is None:
        found = cast("list[dict[str, Any]]", [read_json(line) for line in lines])
        report = {"source": source, "target": target, "conflicts": found}
        text = "\n".join(_conflict_line(each) for each in found)
        Output(as_json=as_json).result(text or "(no conflicts)", report)
        return
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    shape = {"source": source, "target": target, "conflicts": len(lines), "out": str(path)}
    Output(as_json=as_json).result(f"wrote {len(lines)} conflicts to {path}", shape)


def _conflict_line(conflict: Mapping[str, Any]) -> str:
    """Return one conflict as people read it."""
    entity = "" if conflict.get("id") is None else f" '{on_one_line(conflict['id'])}'"
    what = f"{conflict['entity_kind']} {conflict['type']}{entity}"
    return f"{what}: {conflict['kind']}: {on_one_line(conflict['message'])}"


@command.command("delete")
@graph_address
@click.argument("name")
@json_option
def delete(uri: str | None, name: str, as_json: bool) -> None:
    """Delete a branch that no other one was cut from."""
    require_consent("branch delete", resolve_address(uri), as_json=as_json)
    graph, out = open_target(uri, as_json=as_json)
    actor = graph.branch_delete(name, actor_id=acting())
    out.result(f"deleted branch {name}", {"uri": graph.uri, "name": name, "actor_id": actor})
