"""What the shell does with a statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from omnigraph.cli.formats import READ_FORMATS, ReadFormat, TableStyle, read_lines
from omnigraph.cli.output import Output
from omnigraph.cli.statements import Statements
from omnigraph.cli.streams import terminal_width
from omnigraph.errors import OmnigraphError

if TYPE_CHECKING:
    from omnigraph.graph import Graph

_KEYWORDS: Final = (
    *("query", "match", "return", "order", "limit", "not", "optional"),
    *("insert", "update", "delete", "set", "where", "count", "sum", "avg", "min", "max"),
)
_HELP: Final = r"""\branch [NAME]   show the branches, or go to one
\schema          show the schema
\types           list the types with their sizes
\log             show the newest commits
\explain READ    show how a read would be answered
\format FORM     table, kv, csv, jsonl or json
\help            show this list
\quit            leave"""


class ShellSession:
    """One graph, the branch that the user is on, and how results are shown."""

    def __init__(self, graph: Graph, *, branch: str, actor: str | None) -> None:
        self._graph = graph
        self._actor = actor
        self._form: ReadFormat = "table"
        self.branch = branch
        self.is_over = False
        self._go_to(branch)

    @property
    def words(self) -> list[str]:
        """What may be completed: keywords, types, properties and edges of the schema."""
        catalog = self._graph.catalog()
        nodes, edges = catalog.node_types, catalog.edge_types
        names = {*nodes, *edges, *(_as_hop(edge) for edge in edges)}
        names |= {name for node in nodes.values() for name in node.properties}
        names |= {name for edge in edges.values() for name in edge.properties}
        return sorted(names.union(_KEYWORDS, (f"\\{name}" for name in self._commands())))

    def run(self, statement: str) -> bool:
        """Run one statement; a problem is printed. Return whether it went well."""
        try:
            if statement.startswith("\\"):
                self._command(statement)
            else:
                self._statement(statement)
        except OmnigraphError as error:
            Output(as_json=False).error(error)
            return False
        return True

    def run_script(self, text: str) -> int:
        """Run statements one after the other; stop at the first problem. Return the exit code."""
        statements = Statements()
        for line in text.splitlines():
            for statement in statements.feed(line):
                if not self.run(statement):
                    return 1
                if self.is_over:
                    return 0
        if statements.is_open:
            click.echo(f"error: the last statement is not complete: {statements.rest}", err=True)
            return 1
        return 0

    # -- statements -------------------------------------------------------------------------------

    def _statement(self, text: str) -> None:
        from omnigraph.graph import QueryKindError  # noqa: PLC0415 loads Lance

        text = _named(text)
        try:
            self._read(text)
        except QueryKindError:
            result = self._graph.mutate(text, branch=self.branch, actor_id=self._actor)
            click.echo(f"{result.affected_nodes} nodes, {result.affected_edges} edges changed")

    def _read(self, text: str, *, explain: bool = False) -> None:
        from omnigraph.graph import ReadTarget  # noqa: PLC0415 loads Lance

        result = self._graph.query(text, target=ReadTarget.branch(self.branch), explain=explain)
        if explain:
            click.echo(result.explanation_text())
            return
        style = TableStyle(line_width_max=terminal_width())
        for line in read_lines(result.envelope(), self._form, style):
            click.echo(line)

    # -- commands ---------------------------------------------------------------------------------

    def _commands(self) -> dict[str, Callable[[str], None]]:
        return {
            "branch": self._branch,
            "explain": lambda text: self._read(_named(text), explain=True),
            "format": self._format,
            "help": lambda _: click.echo(_HELP),
            "log": self._log,
            "quit": self._quit,
            "schema": lambda _: click.echo(self._graph.schema_source()),
            "types": self._types,
        }

    def _command(self, line: str) -> None:
        name, _, rest = line.removeprefix("\\").partition(" ")
        found = self._commands().get(name)
        if found is None:
            click.echo(f"there is no \\{name}; \\help lists what there is", err=True)
            return
        found(rest.strip())

    def _branch(self, name: str) -> None:
        if name:
            self._go_to(name)
            return
        for each in self._graph.branch_list():
            click.echo(f"{'*' if each == self.branch else ' '} {each}")

    def _go_to(self, name: str) -> None:
        self._graph.sync_branch(name)
        self.branch = name

    def _format(self, name: str) -> None:
        found = next((form for form in READ_FORMATS if form == name), None)
        if found is None:
            click.echo(f"expected one of {', '.join(READ_FORMATS)}", err=True)
            return
        self._form = found

    def _log(self, _: str) -> None:
        for commit in self._graph.list_commits(self.branch, limit=10):
            click.echo(f"{commit.graph_commit_id}  {commit.operation}")

    def _quit(self, _: str) -> None:
        self.is_over = True

    def _types(self, _: str) -> None:
        for key, entry in self._graph.snapshot().entries.items():
            click.echo(f"{key}  {entry.row_count}")


def _named(text: str) -> str:
    """Give a read or a change without a name one.

    >>> _named("match { $p: Person } return { $p.name }")
    'query shell() { match { $p: Person } return { $p.name } }'
    """
    return text if text.lstrip().startswith("query") else f"query shell() {{ {text} }}"


def _as_hop(edge: str) -> str:
    """Return the name by which patterns follow an edge type."""
    return edge[:1].lower() + edge[1:]
