"""What `query` and `mutate` take in: the text of queries, and parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import is_served
from omnigraph.cli.options.together import together
from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.texts import read_json

if TYPE_CHECKING:
    from omnigraph.graph import SourceText

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class QueryInputError(InvalidInputError):
    """The text or the parameters of a query cannot be read."""

    code = "OG-QUERY-INPUT"
    template = "{problem}"
    problem: str
    hint: str = "fix it, then run the command again"


@dataclass(frozen=True)
class QueryInput:
    """The arguments that name a query, not read yet."""

    name: str | None
    path: Path | None
    text: str | None
    params_text: str | None
    params_path: Path | None
    pairs: tuple[str, ...] = ()

    def source(self) -> SourceText | None:
        """Return the text of the queries, under the name that messages use.

        None stands for a stored query, which only a server has.
        """
        if self.path is None and self.text is None and is_served():
            if self.name is None:
                raise click.UsageError("give the NAME of a stored query, --query FILE or -e GQ")
            return None
        return _read_query(name=self.name, path=self.path, text=self.text)

    def params(self) -> Mapping[str, object] | None:
        """Return the parameters, or None; `--param` wins over the others."""
        params = read_params(text=self.params_text, path=self.params_path)
        if not self.pairs:
            return params
        texts = _text_parameters(self.source(), self.name)
        return {**(params or {}), **dict(_pair(pair, texts) for pair in self.pairs)}


_options = together(
    click.argument("name", required=False),
    click.option("--query", "query_path", type=_FILE, help="A file of queries (`.gq`)."),
    click.option("-e", "--query-string", "query_text", metavar="GQ", help="The queries."),
    click.option("--params", "params_text", metavar="JSON", help="Parameters, as an object."),
    click.option(
        "--param",
        "pairs",
        multiple=True,
        metavar="NAME=VALUE",
        help="One parameter: text as it is, other types as JSON. May be repeated.",
    ),
    click.option("--params-file", "params_path", type=_FILE, help="A file with the JSON object."),
)


def query_input(command: Callable[..., None]) -> Callable[..., None]:
    """Add the name of a query and the ways to give its text and parameters, as `given`."""

    @wraps(command)
    def with_input(
        *,
        name: str | None,
        query_path: Path | None,
        query_text: str | None,
        params_text: str | None,
        params_path: Path | None,
        pairs: tuple[str, ...],
        **options: object,
    ) -> None:
        given = QueryInput(name, query_path, query_text, params_text, params_path, pairs)
        command(given=given, **options)

    return _options(with_input)


def _read_query(*, name: str | None, path: Path | None, text: str | None) -> SourceText:
    from omnigraph.graph import SourceText  # noqa: PLC0415 loads Lance

    if path is not None and text is not None:
        raise click.UsageError("--query and -e are mutually exclusive")
    if path is not None:
        return SourceText(_decoded(path), str(path))
    if text is None:
        what = f"the stored query '{name}'" if name else "a stored query"
        raise QueryInputError(
            f"{what} needs a server: a graph that is opened directly has none",
            "give the text with `--query FILE` or `-e '…'`",
        )
    if not text.strip():
        raise QueryInputError("the text after -e is blank", "write a query, or use `--query FILE`")
    return SourceText(text)


def read_params(*, text: str | None, path: Path | None) -> Mapping[str, object] | None:
    """Return the parameters that a text or a file gives, or None."""
    if text is not None and path is not None:
        raise click.UsageError("--params and --params-file are mutually exclusive")
    if path is not None:
        text = _decoded(path)
    if text is None:
        return None
    try:
        params = read_json(text)
    except ValueError as error:
        problem = f"the parameters are not JSON: {error}"
        raise QueryInputError(
            problem, "write an object, or `--param NAME=VALUE` once for each parameter"
        ) from None
    if params is not None and not isinstance(params, dict):
        raise QueryInputError("params must be a JSON object", '`--params \'{"name": "value"}\'`')
    return params


def _text_parameters(source: SourceText | None, name: str | None) -> frozenset[str]:
    """Return the parameters of type String of the query that will run; none of a stored one."""
    from omnigraph.graph import parse_queries  # noqa: PLC0415 loads Lance
    from omnigraph.values import Scalar  # noqa: PLC0415

    if source is None:
        return frozenset()
    return frozenset(
        parameter.name
        for query in parse_queries(source).queries
        if name in (None, query.name)
        for parameter in query.parameters
        if parameter.prop_type.scalar is Scalar.STRING and not parameter.prop_type.is_list
    )


def _pair(pair: str, texts: frozenset[str]) -> tuple[str, object]:
    """Return a parameter and its value: what is neither text nor JSON is taken as text."""
    name, mark, value = pair.partition("=")
    name = name.removeprefix("$")
    if not mark or not name:
        raise QueryInputError(
            f"`--param {pair}` is not NAME=VALUE", "write `--param name=value`, once for each"
        )
    if name in texts:
        return name, value
    try:
        return name, read_json(value)
    except ValueError:
        return name, value


def _decoded(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise QueryInputError(f"{path} is not UTF-8 text: {error.reason}") from None
