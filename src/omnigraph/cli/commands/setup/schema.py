"""`omnigraph schema …`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import (
    acting,
    graph_address,
    open_graph,
    open_target,
)
from omnigraph.cli.options.commit_note import commit_options
from omnigraph.cli.options.flags import ScopedGroup
from omnigraph.cli.options.read_target import state_named
from omnigraph.cli.output.output import Output, json_option
from omnigraph.cli.output.streams import say
from omnigraph.texts import on_one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.graph import StillNeeded
    from omnigraph.pipelines.data_tests.breaks import Break

_desired = click.option(
    "--schema",
    "schema_path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The desired schema (`.pg`).",
)


_branch = click.option(
    "--branch", default="main", show_default=True, help="The branch whose schema it is."
)


@click.group("schema", cls=ScopedGroup)
def command() -> None:
    """Show a schema, plan its changes, apply them, and compare schemas of branches."""


@command.command("show")
@graph_address
@_branch
@json_option
def show(uri: str | None, branch: str, as_json: bool) -> None:
    """Show the accepted schema of a branch."""
    source = open_graph(uri, read_only=True).schema_source(branch=branch)
    Output(as_json=as_json).result(source.removesuffix("\n"), {"schema_source": source})


@command.command("check")
@click.argument(
    "schema_path",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@json_option
def check(schema_path: Path, as_json: bool) -> None:
    """Check a schema file alone; opens no graph."""
    from omnigraph.graph import read_schema_file  # noqa: PLC0415 loads the compiler

    catalog = read_schema_file(schema_path)
    shape = {
        "file": str(schema_path),
        "ok": True,
        "node_types": list(catalog.node_types),
        "edge_types": list(catalog.edge_types),
        "interfaces": list(catalog.interfaces),
    }
    nodes, edges = len(catalog.node_types), len(catalog.edge_types)
    Output(as_json=as_json).result(
        f"{schema_path}: ok, {nodes} node types, {edges} edge types", shape
    )


@command.command("diff")
@graph_address
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@json_option
def diff(uri: str | None, before: str, after: str, as_json: bool) -> None:
    """Show the steps from the schema of A to that of B: branches, tags, commits or versions.

    Types and properties are compared by identity, not by name: a rename is a rename.
    """
    graph = open_graph(uri, read_only=True)
    found = graph.schema_diff(state_named(graph, before), state_named(graph, after))
    shape = {"from": before, "to": after, "step_count": len(found.steps), **found.to_json()}
    lines = [f"- {step.render()}" for step in found.steps]
    Output(as_json=as_json).result("\n".join(lines or ["no schema changes"]), shape)


@command.command("plan")
@graph_address
@_desired
@_branch
@click.option("--allow-data-loss", is_flag=True, help="Plan drops as hard ones.")
@click.option(
    "--tests",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="A test file, or a folder of them: list the queries, tests and contracts that the change"
    " breaks; repeatable.",
)
@json_option
def plan(
    uri: str | None,
    schema_path: Path,
    branch: str,
    allow_data_loss: bool,
    tests: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Say what it takes to get a branch to another schema; touches no data."""
    graph = open_graph(uri, read_only=True)
    planned = graph.plan_schema_file(
        schema_path, branch=branch, allow_data_loss=allow_data_loss
    ).plan
    shape: dict[str, object] = {
        "uri": graph.uri,
        "branch": branch,
        "step_count": len(planned.steps),
        **planned.to_json(),
    }
    text = planned.render()
    if tests:
        breaks = _breaks(tests, graph.schema_source(branch=branch), schema_path)
        shape["breaks"] = [one.to_json() for one in breaks]
        text = "\n".join([text, *_break_lines(breaks)])
    Output(as_json=as_json).result(text, shape)


def _breaks(tests: tuple[Path, ...], accepted: str, schema_path: Path) -> tuple[Break, ...]:
    from omnigraph.graph import SourceText  # noqa: PLC0415 loads Lance
    from omnigraph.pipelines.data_tests.breaks import find_breaks  # noqa: PLC0415 loads Lance
    from omnigraph.pipelines.data_tests.find import find_test_files  # noqa: PLC0415 loads Lance
    from omnigraph.pipelines.data_tests.read import load_test_files  # noqa: PLC0415 loads Lance

    files = load_test_files(find_test_files(tests))
    desired = SourceText(schema_path.read_text(encoding="utf-8"), str(schema_path))
    return find_breaks(files, accepted=SourceText(accepted), desired=desired)


def _break_lines(breaks: tuple[Break, ...]) -> list[str]:
    if not breaks:
        return ["breaks: nothing"]
    lines = [f"- {one.kind} {one.name} ({one.file}): {on_one_line(one.reason)}" for one in breaks]
    return ["breaks:", *lines]


@command.command("apply")
@graph_address
@_desired
@_branch
@click.option("--allow-data-loss", is_flag=True, help="Purge what drops remove.")
@commit_options
@json_option
def apply(
    uri: str | None,
    schema_path: Path,
    branch: str,
    allow_data_loss: bool,
    message: str | None,
    properties: dict[str, str],
    as_json: bool,
) -> None:
    """Make another schema the accepted one of a branch, with what it means for stored rows.

    Other branches keep the schemas and rows that they have.
    """
    graph, out = open_target(uri, as_json=as_json)
    with graph:
        result = graph.apply_schema_file(
            schema_path,
            branch=branch,
            allow_data_loss=allow_data_loss,
            actor_id=acting(),
            message=message,
            properties=properties,
        )
        for warning in result.warnings:
            say(f"warning: {warning}", err=True)
        shape = {"uri": graph.uri, "step_count": len(result.plan.steps), **result.to_json()}
        done = f"applied: {'yes' if result.applied else 'no'}"
        lines = [done, result.plan.render(), *_kept_lines(result.kept_for)]
        out.result("\n".join(lines), shape)


def _kept_lines(kept_for: Sequence[StillNeeded]) -> list[str]:
    """Say who needs values that a hard drop would have purged."""
    return [f"kept: old versions of {kept.table_key}, for {_who(kept)}" for kept in kept_for]


def _who(kept: StillNeeded) -> str:
    if kept.branch is not None:
        return f"branch {kept.branch}"
    return f"tag {kept.tag}" if kept.tag is not None else f"load {kept.operation}"
