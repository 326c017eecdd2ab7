"""`omnigraph blob …`: the Blob values of nodes and edges."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from omnigraph.cli.address import graph_address_in_flags, open_graph
from omnigraph.cli.options.flags import ScopedGroup
from omnigraph.cli.options.read_target import read_target, target_options
from omnigraph.cli.options.together import together
from omnigraph.cli.output.output import Output, json_option, pair_lines

if TYPE_CHECKING:
    from omnigraph.client import RemoteBlob
    from omnigraph.graph import Blob


@click.group("blob", cls=ScopedGroup)
def command() -> None:
    """Read the Blob values of nodes and edges."""


_cell = together(
    graph_address_in_flags,
    click.argument("entity", metavar="ENTITY", type=click.Choice(["node", "edge"])),
    click.argument("type_name", metavar="TYPE"),
    click.argument("entity_id", metavar="ID"),
    click.argument("property_name", metavar="PROPERTY"),
    target_options,
)
"""What selects one value."""


@command.command("get")
@_cell
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="Begin at this byte.")
@click.option("--length", type=int, metavar="N", help="Read at most so many bytes.")
@click.option(
    "--out",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the bytes go; by default to standard output.",
)
def get(
    entity: Literal["node", "edge"],
    type_name: str,
    entity_id: str,
    property_name: str,
    branch: str | None,
    snapshot: str | None,
    offset: int | None,
    length: int | None,
    path: Path | None,
) -> None:
    """Write the bytes of one value, or a range of them.

    ENTITY is node or edge. An external value is never fetched: `blob stat` shows its address.
    """
    from omnigraph.graph import ByteRange  # noqa: PLC0415 loads Lance

    wanted = ByteRange(offset, length)
    target = read_target(branch, snapshot)
    blob = open_graph(read_only=True).blob(
        entity, type_name, entity_id, property_name, target=target
    )
    _write(blob.chunks(wanted), path)


@command.command("stat")
@_cell
@json_option
def stat(
    entity: Literal["node", "edge"],
    type_name: str,
    entity_id: str,
    property_name: str,
    branch: str | None,
    snapshot: str | None,
    as_json: bool,
) -> None:
    """Say what one value is: bytes of the graph, or the address of an external object."""
    target = read_target(branch, snapshot)
    blob = open_graph(read_only=True).blob(
        entity, type_name, entity_id, property_name, target=target
    )
    asked = {"branch": branch, "snapshot": snapshot}
    shape = _shape(blob, {name: value for name, value in asked.items() if value is not None})
    Output(as_json=as_json).result(_text(shape), shape)


def _write(chunks: Iterator[bytes], path: Path | None) -> None:
    """Write parts as they come; a file is opened only when the first one is there."""
    first = next(chunks, b"")
    if path is None:
        stream = sys.stdout.buffer
        stream.write(first)
        for chunk in chunks:
            stream.write(chunk)
        stream.flush()
        return
    with path.open("wb") as file:
        file.write(first)
        for chunk in chunks:
            file.write(chunk)


def _shape(blob: Blob | RemoteBlob, asked: dict[str, str]) -> dict[str, Any]:
    stat = blob.stat
    value = {"size": stat.size, "etag": stat.etag, "uri": stat.uri}
    return {
        "selector": stat.selector.to_json(),
        "kind": stat.kind,
        **{name: each for name, each in value.items() if each is not None},
        "target": {**asked, "resolved_snapshot": stat.snapshot_id},
    }


def _text(shape: dict[str, Any]) -> str:
    lines = {"kind": shape["kind"], "size": shape.get("size"), "etag": shape.get("etag")}
    lines |= {"uri": shape.get("uri"), "snapshot": shape["target"]["resolved_snapshot"]}
    return pair_lines(lines)
