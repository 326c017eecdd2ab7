"""`omnigraph alias`: a stored query of a server under a name of the operator's."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from omnigraph.cli.address import operator, server_address, server_token
from omnigraph.cli.capabilities import SCOPE_FLAGS, AliasOwnsAddressError
from omnigraph.cli.commands.data.query import print_result
from omnigraph.cli.options.flags import GlobalFlags, ScopedCommand, scope_flags_in
from omnigraph.cli.options.query_input import QueryInputError, read_params
from omnigraph.cli.output.formats import READ_FORMATS
from omnigraph.errors import InvalidInputError
from omnigraph.texts import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.cli.output.formats import ReadFormat


class AliasError(InvalidInputError):
    """There is no alias of this name, or it cannot be used as it stands."""

    code = "OG-ALIAS"
    hint = "see `aliases` in config.yaml"
    template = "{problem}"
    problem: str


@dataclass(frozen=True)
class Alias:
    """What an alias stands for."""

    server: str
    query: str
    graph: str | None = None
    args: tuple[str, ...] = ()
    params: Mapping[str, object] = field(default_factory=dict)
    format: str | None = None

    @classmethod
    def named(cls, name: str, known: Mapping[str, object]) -> Alias:
        """Read one alias of the operator's file."""
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise AliasError(f"unknown alias '{name}' (defined: {listed})")
        found = known[name]
        section = cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}
        server, query = section.get("server"), section.get("query")
        args, params = section.get("args") or [], section.get("params") or {}
        if not isinstance(server, str) or not isinstance(query, str):
            raise AliasError(f"alias '{name}' needs a server and a query")
        if not isinstance(args, list) or not isinstance(params, dict):
            raise AliasError(f"alias '{name}': args must be a list and params a mapping")
        form = section.get("format")
        if form is not None and form not in READ_FORMATS:
            raise AliasError(f"alias '{name}': format is none of {', '.join(READ_FORMATS)}")
        names = tuple(str(one) for one in args)
        return cls(server, query, section.get("graph"), names, params, form)

    def bound(self, given: tuple[str, ...]) -> dict[str, object]:
        """Return the parameters with positional values, each read as JSON or taken as text."""
        if len(given) > len(self.args):
            takes = ", ".join(self.args) or "no arguments"
            raise AliasError(f"{len(given)} arguments are too many: the alias takes {takes}")
        values = {name: _value(text) for name, text in zip(self.args, given, strict=False)}
        return {**self.params, **values}


class AliasCommand(ScopedCommand):
    """Refuses every address, since the alias has one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Check first that no scope is given, then everything else."""
        before = frozenset(ctx.find_root().ensure_object(GlobalFlags).scope)
        given = before | scope_flags_in(args)
        if given:
            raise AliasOwnsAddressError(tuple(flag for flag in SCOPE_FLAGS if flag in given))
        return super().parse_args(ctx, args)


@click.command("alias", cls=AliasCommand)
@click.argument("name")
@click.argument("values", nargs=-1, metavar="[ARG]...")
@click.option("--params", "params_text", metavar="JSON", help="Parameters, as an object.")
@click.option(
    "--params-file",
    "params_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the JSON object.",
)
@click.option("--format", "form", type=click.Choice(READ_FORMATS), help="The output form.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def command(
    name: str,
    values: tuple[str, ...],
    params_text: str | None,
    params_path: Path | None,
    form: ReadFormat | None,
    as_json: bool,
) -> None:
    """Run the stored read that an alias of config.yaml names.

    ARGs are bound to the parameters that the alias lists, in order.
    """
    if as_json and form is not None:
        raise click.UsageError("--json and --format are mutually exclusive")
    settings = operator()
    alias = Alias.named(name, settings.aliases)
    given = read_params(text=params_text, path=params_path) or {}
    params = {**alias.bound(values), **given}
    from omnigraph.client import RemoteGraph, graph_url  # noqa: PLC0415 loads Lance

    base = server_address(alias.server)
    url = base if alias.graph is None else graph_url(base, alias.graph)
    with RemoteGraph(url, token=server_token(url)) as graph:
        result = graph.query(None, alias.query, params)
    chosen = "json" if as_json else form or alias.format or settings.output or "table"
    print_result(result, cast("ReadFormat", chosen), explain=False, analyze=False)


def _value(text: str) -> object:
    try:
        return read_json(text)
    except (ValueError, QueryInputError):
        return text
