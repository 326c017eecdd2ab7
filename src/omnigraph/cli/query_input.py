"""What `query` and `mutate` take in: the text of queries, and parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from omnigraph.errors import InvalidInputError

if TYPE_CHECKING:
    from omnigraph.graph import SourceText

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class QueryInputError(InvalidInputError):
    """The text or the parameters of a query cannot be read."""

    code = "OG-QUERY-INPUT"
    hint = "mend it, then run the command again"

    def __init__(self, problem: str, hint: str | None = None) -> None:
        self.problem = problem
        if hint is not None:
            self.hint = hint
        super().__init__(problem)


def query_input(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the name of a query, the ways to give its text, and those to give parameters."""
    for option in (
        click.option(
            "--params-file", "params_path", type=_FILE, help="A file with the JSON object."
        ),
        click.option("--params", "params_text", metavar="JSON", help="Parameters, as an object."),
        click.option("-e", "--query-string", "query_text", metavar="GQ", help="The queries."),
        click.option("--query", "query_path", type=_FILE, help="A file of queries (`.gq`)."),
        click.argument("name", required=False),
    ):
        command = option(command)
    return command


def read_query(*, name: str | None, query_path: Path | None, query_text: str | None) -> SourceText:
    """Return the text of the queries that were given, under the name that messages use."""
    from omnigraph.graph import SourceText  # noqa: PLC0415 loads Lance

    if query_path is not None and query_text is not None:
        raise click.UsageError("--query and -e are mutually exclusive")
    if query_path is not None:
        return SourceText(_decoded(query_path), str(query_path))
    if query_text is None:
        what = f"the stored query '{name}'" if name else "a stored query"
        raise QueryInputError(
            f"{what} needs a server: a graph that is opened directly has none",
            "give the text with `--query FILE` or `-e '…'`",
        )
    if not query_text.strip():
        raise QueryInputError("the text after -e is blank", "write a query, or use `--query FILE`")
    return SourceText(query_text)


def read_params(
    *, params_text: str | None, params_path: Path | None
) -> Mapping[str, object] | None:
    """Return the parameters that were given, or None."""
    if params_text is not None and params_path is not None:
        raise click.UsageError("--params and --params-file are mutually exclusive")
    if params_path is not None:
        params_text = _decoded(params_path)
    if params_text is None:
        return None
    try:
        params = json.loads(params_text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise QueryInputError(f"the parameters are not JSON: {error}") from None
    if params is not None and not isinstance(params, dict):
        raise QueryInputError("params must be a JSON object", '`--params \'{"name": "value"}\'`')
    return params


def _decoded(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise QueryInputError(f"{path} is not UTF-8 text: {error.reason}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
