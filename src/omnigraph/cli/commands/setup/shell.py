"""`omnigraph shell`: a prompt on one graph."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from omnigraph.cli.address import acting, graph_address, open_graph
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.json_writer import JsonWriter
from omnigraph.cli.shell.session import ShellSession
from omnigraph.cli.shell.statements import Statements


@click.command("shell", cls=ScopedCommand)
@graph_address
@click.option("--branch", default="main", show_default=True, help="The branch to begin on.")
@click.option(
    "--file",
    "script",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run the statements of a file instead of asking for them.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print what a script does as one JSON document."
)
def command(uri: str | None, branch: str, script: Path | None, as_json: bool) -> None:
    r"""Ask and change a graph at a prompt.

    A statement ends when its braces are closed. `match { … } return { … }` needs no name. `\help`
    lists what else there is. Without a terminal, statements are read from stdin; the first that
    fails ends the run.
    """
    is_script = script is not None or not sys.stdin.isatty()
    if as_json and not is_script:
        raise click.UsageError("--json is for scripts: give --file FILE, or statements on stdin")
    graph = open_graph(uri, read_only=False)
    report = JsonWriter() if as_json else None
    session = ShellSession(graph, branch=branch, actor=acting(), report=report)
    if not is_script:
        _ask(session)
        return
    text = sys.stdin.read() if script is None else script.read_text(encoding="utf-8")
    sys.exit(session.run_script(text) if report is None else _reported(session, text, report))


def _reported(session: ShellSession, text: str, report: JsonWriter) -> int:
    """Run a script; the document is complete also when a statement fails."""
    with report.in_object():
        with report.in_list("statements"):
            code = session.run_script(text)
        report.value(session.branch, "branch")
        report.value(code == 0, "ok")
    return code


def _ask(session: ShellSession) -> None:
    """Read statements from a terminal, with history and completion, until the end."""
    from prompt_toolkit import PromptSession  # noqa: PLC0415 only for terminals
    from prompt_toolkit.completion import WordCompleter  # noqa: PLC0415 only for terminals
    from prompt_toolkit.history import FileHistory  # noqa: PLC0415 only for terminals

    from omnigraph.cli.config.operator_config import operator_home  # noqa: PLC0415 only for terminals

    home = operator_home()
    home.mkdir(parents=True, exist_ok=True)
    prompt: PromptSession[str] = PromptSession(
        history=FileHistory(str(home / "shell_history")),
        completer=WordCompleter(session.words, sentence=False),
        complete_while_typing=False,
    )
    statements = Statements()
    while not session.is_over:
        mark = "… " if statements.is_open else f"{session.branch}> "
        try:
            line = prompt.prompt(mark)
        except KeyboardInterrupt:
            statements = Statements()
            continue
        except EOFError:
            return
        for statement in statements.feed(line):
            session.run(statement)
