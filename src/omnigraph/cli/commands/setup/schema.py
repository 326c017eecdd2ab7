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
from omnigraph.cli.output.output import Output, json_option
from omnigraph.cli.output.streams import say
from omnigraph.texts import on_one_line

if TYPE_CHECKING:
    from omnigraph.pipelines.data_tests.breaks import Break

_desired = click.option(
    "--schema",
    "schema_path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The desired schema (`.pg`).",
)


@click.group("schema", cls=ScopedGroup)
def command() -> None:
    """Show a schema, plan its changes and apply them."""


@command.command("show")
@graph_address
@json_option
def show(uri: str | None, as_json: bool) -> None:
    """Show the accepted schema."""
    source = open_graph(uri, read_only=True).schema_source()
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


@command.command("plan")
@graph_address
@_desired
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
    allow_data_loss: bool,
    tests: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Say what it takes to get to another schema; touches no data."""
    graph = open_graph(uri, read_only=True)
    planned = graph.plan_schema_file(schema_path, allow_data_loss=allow_data_loss).plan
    shape: dict[str, object] = {
        "uri": graph.uri,
        "step_count": len(planned.steps),
        **planned.to_json(),
    }
    text = planned.render()
    if tests:
        breaks = _breaks(tests, graph.schema_source(), schema_path)
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
@click.option("--allow-data-loss", is_flag=True, help="Purge what drops remove.")
@commit_options
@json_option
def apply(
    uri: str | None,
    schema_path: Path,
    allow_data_loss: bool,
    message: str | None,
    properties: dict[str, str],
    as_json: bool,
) -> None:
    """Make another schema the accepted one, with what it means for stored rows."""
    graph, out = open_target(uri, as_json=as_json)
    with graph:
        result = graph.apply_schema_file(
            schema_path,
            allow_data_loss=allow_data_loss,
            actor_id=acting(),
            message=message,
            properties=properties,
        )
        for warning in result.warnings:
            say(f"warning: {warning}", err=True)
        shape = {"uri": graph.uri, "step_count": len(result.plan.steps), **result.to_json()}
        done = f"applied: {'yes' if result.applied else 'no'}"
        out.result(f"{done}\n{result.plan.render()}", shape)
