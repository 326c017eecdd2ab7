"""What the shell does with a statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from omnigraph.cli.output.formats import READ_FORMATS, ReadFormat, TableStyle, read_lines
from omnigraph.cli.output.json_writer import JsonWriter
from omnigraph.cli.output.output import Output
from omnigraph.cli.output.streams import say, terminal_width
from omnigraph.cli.shell.statements import Statements
from omnigraph.errors import InvalidInputError, OmnigraphError

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph

_KEYWORDS: Final = (
    *("query", "match", "return", "order", "limit", "not", "optional"),
    *("insert", "create", "upsert", "update", "delete", "set", "where"),
    *("count", "sum", "avg", "min", "max"),
)
_HELP: Final = r"""\branch [NAME]   show the branches, or go to one
\schema          show the schema
\types           list the types with their sizes
\log             show the newest commits
\explain READ    show how a read would be answered
\format FORM     table, kv, csv, jsonl or json
\help            show this list
\quit            leave"""


_LOG_COMMITS: Final = 10
_WHOLE: Final = re.compile(r"(?:\s|//[^\n]*(?:\n|$)|/\*.*?\*/)*(?:query|match)\b", re.DOTALL)
"""How a text begins that is a whole query."""


class ShellCommandError(InvalidInputError):
    """The shell has no such command, or it was given something else than it takes."""

    code = "OG-SHELL"
    hint = "`\\help` lists what there is"
    template = "{problem}"
    problem: str


class UnfinishedStatementError(InvalidInputError):
    """A script ends in the middle of a statement."""

    code = "OG-SHELL-OPEN"
    hint = "close its braces"
    template = "the last statement is not complete: {rest}"
    rest: str


class ShellSession:
    """One graph, the branch that the user is on, and how results are shown.

    With a `report` each statement is one value of a JSON document instead of text.
    """

    def __init__(
        self,
        graph: Graph | RemoteGraph,
        *,
        branch: str,
        actor: str | None,
        report: JsonWriter | None = None,
    ) -> None:
        self._graph = graph
        self._actor = actor
        self._report = report
        self._form: ReadFormat = "table"
        self.branch = branch
        self.is_over = False
        self._go_to(branch)

    @property
    def words(self) -> list[str]:
        """What may be completed: keywords, types, properties and edges of the schema."""
        catalog = self._graph.catalog(branch=self.branch)
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
            Output(as_json=self._report is not None).error(error)
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
            error = UnfinishedStatementError(statements.rest)
            Output(as_json=self._report is not None).error(error)
            return 1
        return 0

    # -- statements -------------------------------------------------------------------------------

    def _statement(self, statement: str) -> None:
        from omnigraph.graph import QueryKindError  # noqa: PLC0415 loads Lance

        text = _named(statement)
        try:
            self._read(statement, text)
        except QueryKindError:
            result = self._graph.mutate(text, branch=self.branch, actor_id=self._actor)
            line = f"{result.affected_nodes} nodes, {result.affected_edges} edges changed"
            self._tell(statement, "mutation", result.to_json(), [line])

    def _read(self, statement: str, text: str) -> None:
        from omnigraph.graph import ReadTarget  # noqa: PLC0415 loads Lance

        result = self._graph.query(text, target=ReadTarget.branch(self.branch))
        style = TableStyle(line_width_max=terminal_width())
        shape = result.envelope()
        self._tell(statement, "read", shape, read_lines(shape, self._form, style))

    def _tell(
        self, statement: str, kind: str, shape: Mapping[str, object], lines: Iterable[str]
    ) -> None:
        if self._report is not None:
            self._report.value({"statement": statement, "kind": kind, "result": shape})
            return
        for line in lines:
            say(line)

    # -- commands ---------------------------------------------------------------------------------

    def _commands(self) -> dict[str, Callable[[str], list[str]]]:
        return {
            "branch": self._branch,
            "explain": self._explain,
            "format": self._format,
            "help": lambda _: _HELP.splitlines(),
            "log": self._log,
            "quit": self._quit,
            "schema": lambda _: self._graph.schema_source(branch=self.branch).splitlines(),
            "types": self._types,
        }

    def _command(self, line: str) -> None:
        name, _, rest = line.removeprefix("\\").partition(" ")
        found = self._commands().get(name)
        if found is None:
            raise ShellCommandError(f"there is no \\{name}")
        lines = found(rest.strip())
        self._tell(line, "command", {"lines": lines}, lines)

    def _branch(self, name: str) -> list[str]:
        if name:
            self._go_to(name)
            return []
        names = self._graph.branch_list()
        return [f"{'*' if each == self.branch else ' '} {each}" for each in names]

    def _go_to(self, name: str) -> None:
        from omnigraph.graph import Graph  # noqa: PLC0415 loads Lance

        if isinstance(self._graph, Graph):
            self._graph.sync_branch(name)
        else:
            self._graph.head_commit_id_for_branch(name)
        self.branch = name

    def _explain(self, text: str) -> list[str]:
        from omnigraph.graph import ReadTarget  # noqa: PLC0415 loads Lance

        target = ReadTarget.branch(self.branch)
        result = self._graph.query(_named(text), target=target, explain=True)
        return result.explanation_text().splitlines()

    def _format(self, name: str) -> list[str]:
        found = next((form for form in READ_FORMATS if form == name), None)
        if found is None:
            raise ShellCommandError(f"\\format takes one of {', '.join(READ_FORMATS)}")
        self._form = found
        return []

    def _log(self, _: str) -> list[str]:
        commits = self._graph.list_commits(self.branch, limit=_LOG_COMMITS)
        return [f"{commit.graph_commit_id}  {commit.operation}" for commit in commits]

    def _quit(self, _: str) -> list[str]:
        self.is_over = True
        return []

    def _types(self, _: str) -> list[str]:
        from omnigraph.graph import ReadTarget  # noqa: PLC0415 loads Lance

        snapshot = self._graph.snapshot_of(ReadTarget.branch(self.branch))
        datasets = snapshot.to_json()["datasets"]
        return [f"{d['entity_kind']}:{d['type_name']}  {d['entity_count']}" for d in datasets]


def _named(text: str) -> str:
    """Give a change without a name one; a read needs none.

    >>> _named('delete Person where name = "Ada"')
    'query shell() { delete Person where name = "Ada" }'
    """
    return text if _WHOLE.match(text) else f"query shell() {{ {text} }}"


def _as_hop(edge: str) -> str:
    """Return the name by which patterns follow an edge type."""
    return edge[:1].lower() + edge[1:]
