"""The root command. Subcommands are imported when they are called, so `--help` stays quick."""

from __future__ import annotations

import importlib
import os
import sys
from io import StringIO
from typing import Final

import click
from click.shell_completion import CompletionItem

from omnigraph.cli.capabilities import RULES
from omnigraph.cli.completion import completion_options
from omnigraph.cli.local_files import local_failure
from omnigraph.cli.options.flags import GlobalFlags, global_options
from omnigraph.cli.output.output import Output
from omnigraph.cli.output.streams import prepare_streams, say
from omnigraph.cli.planned import planned_command
from omnigraph.errors import InvalidInputError, OmnigraphError, missing_extra
from omnigraph.names import nearest_name
from omnigraph.texts import shown
from omnigraph.wire import EXIT_FAILURE, EXIT_INTERRUPTED, outcome_of

COMMANDS: Final = {
    # name: module in `commands/`, help
    "alias": ("served.alias", "Run a stored query under a name of yours."),
    "blob": ("data.blob", "Read the Blob values of nodes and edges."),
    "branch": ("history.branch", "Create, list, merge and delete branches."),
    "changes": ("history.changes", "Follow what happens on a branch."),
    "check": ("testing.check", "Check the rows of a graph against contracts."),
    "cleanup": ("maintenance.cleanup", "Remove old versions and leftovers."),
    "cluster": ("cluster.group", "Declare graphs in files and apply what they say."),
    "commit": ("history.commit", "Look at the history of a graph."),
    "diff": ("history.diff", "Show what differs between two states."),
    "doctor": ("maintenance.doctor", "Check this machine, and a graph."),
    "demo": ("setup.demo", "Walk through what omnigraph does, end to end."),
    "embed": ("data.embed", "Make the vectors of records or of a graph."),
    "export": ("data.export", "Write nodes and edges to files."),
    "graphs": ("served.graphs", "See the graphs of a server."),
    "ingest": ("data.ingest", "Deprecated: use load."),
    "init": ("setup.init", "Make a new graph."),
    "lineage": ("history.lineage", "See where rows came from; send OpenLineage events."),
    "lint": ("setup.lint", "Check a file of queries against a schema."),
    "load": ("data.load", "Load a file of nodes and edges."),
    "log": ("history.log", "Show what happened, newest first."),
    "login": ("setup.login", "Keep the token of a server."),
    "logout": ("setup.logout", "Forget the token of a server."),
    "mutate": ("data.mutate", "Change a graph by a mutation query."),
    "optimize": ("maintenance.optimize", "Compact and index every table."),
    "pipeline": ("pipeline.group", "Check and run declared pipelines."),
    "policy": ("setup.policy", "Check a policy, test it, explain a decision."),
    "profile": ("setup.profile", "See the addresses you have named."),
    "queries": ("served.queries", "See and check the stored queries of a cluster or a server."),
    "query": ("data.query", "Run a read query."),
    "recovery": ("maintenance.recovery", "See what recovery did, and what is pending."),
    "repair": ("maintenance.repair", "Look for versions that came from outside."),
    "schema": ("setup.schema", "Show a schema, plan and apply changes."),
    "serve": ("setup.serve", "Serve a graph over HTTP."),
    "shell": ("setup.shell", "Ask and change a graph at a prompt."),
    "sql": ("data.sql", "Ask a graph in Spark SQL."),
    "snapshot": ("history.snapshot", "Show what a branch publishes."),
    "tag": ("history.tag", "Name commits, list and forget their names."),
    "test": ("testing.test", "Run tests of queries, loads, merges and schemas."),
    "version": ("setup.version", "Show the version."),
}
"""Name, module and one-line help of each command; the module's `command` is the click command."""

HIDDEN: Final = frozenset({"ingest"})
"""Commands that work and are not listed."""


def _by_capability() -> list[tuple[str, str]]:
    """Return the phrase of each class of commands, and the listed commands that are of it."""
    found: dict[str, list[str]] = {}
    for name, rule in RULES.items():
        if name.partition(" ")[0] in COMMANDS.keys() - HIDDEN:
            found.setdefault(str(rule.capability), []).append(name)
    return [(phrase, ", ".join(sorted(names))) for phrase, names in found.items()]


INTERRUPTED: Final = (
    "interrupted: a write that had begun to publish is settled by the next write,"
    " everything else left nothing; see `omnigraph recovery status`"
)

_TRACEBACK: Final = "OMNIGRAPH_TRACEBACK"
"""The variable that shows where an unexpected failure came from."""

OLD_SPELLINGS: Final = {
    ("change",): ("mutate",),
    ("query", "check"): ("lint",),
    ("query", "lint"): ("lint",),
    ("read",): ("query",),
    ("schema", "get"): ("schema", "show"),
}
"""Old names of commands, by their first words: they still work, with a warning."""

_CHECK_OF_QUERIES: Final = "--query"
"""The option of `lint`: with it, `check` is its old name; without it, the check of contracts."""

SILENT_SPELLINGS: Final = frozenset({("schema", "get")})
"""Old names that work without a warning."""


def in_new_words(args: list[str]) -> list[str]:
    """Return the words of a call with an old name replaced, and warn about it.

    >>> in_new_words(["schema", "get", "papers.omni"])
    ['schema', 'show', 'papers.omni']
    >>> in_new_words(["check", "papers.omni"])
    ['check', 'papers.omni']
    """
    spellings = dict(OLD_SPELLINGS)
    if any(word.partition("=")[0] == _CHECK_OF_QUERIES for word in args):
        spellings[("check",)] = ("lint",)
    for old, new in spellings.items():
        if tuple(args[: len(old)]) == old:
            if old not in SILENT_SPELLINGS:
                was, now = " ".join(old), " ".join(new)
                click.echo(f"warning: `omnigraph {was}` is now `omnigraph {now}`", err=True)
            return [*new, *args[len(old) :]]
    return args


def is_planned(name: str) -> bool:
    """Whether a word is a command of a later release.

    >>> is_planned("mcp"), is_planned("query"), is_planned("frobnicate")
    (True, False, False)
    """
    return name not in COMMANDS and name in {words.partition(" ")[0] for words in RULES}


class LazyGroup(click.Group):
    """A group that knows its commands by name and loads only the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(COMMANDS.keys() - HIDDEN)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command that was asked for."""
        if is_planned(cmd_name):
            return planned_command(cmd_name)
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"omnigraph.cli.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete from the table, without importing any command."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=COMMANDS[name][1]) for name in names]
        # The method of the group would load every command for its help.
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """End the help with the commands by capability."""
        with formatter.section("COMMANDS BY CAPABILITY"):
            formatter.write_dl(_by_capability())

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an interrupt from the keyboard ends it with one line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(f"\n{INTERRUPTED}" if sys.stderr.isatty() else INTERRUPTED, err=True)
            ctx.exit(EXIT_INTERRUPTED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command for a typo."""
        args = in_new_words(args)
        name = args[0]
        if name not in COMMANDS and not is_planned(name) and not name.startswith("-"):
            near = nearest_name(name, COMMANDS)
            remedy = f"did you mean `omnigraph {near}`?" if near else "see `omnigraph --help`"
            ctx.fail(f"no such command '{name}'; {remedy}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    params=[*global_options(), *completion_options()],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.pass_context
def root(context: click.Context) -> None:
    """Work with a versioned property graph, in process or on Spark."""
    context.ensure_object(GlobalFlags)
    if os.environ.get("NO_COLOR"):
        context.color = False


def run(args: list[str] | None = None) -> int:
    """Run one command and return its exit code; a typed error becomes one message."""
    words = sys.argv[1:] if args is None else args
    try:
        code = root.main(args=words, prog_name="omnigraph", standalone_mode=False)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else EXIT_FAILURE
    except click.ClickException as error:
        return _misused(error, words)
    except click.Abort:
        click.echo(INTERRUPTED, err=True)
        return EXIT_INTERRUPTED
    except OmnigraphError as error:
        return _failed(error, words)
    except (OSError, UnicodeDecodeError, ModuleNotFoundError) as error:
        return _failed(_typed(error), words)
    return code if isinstance(code, int) else 0


def _typed(error: OSError | UnicodeDecodeError | ModuleNotFoundError) -> OmnigraphError:
    """Return an error of Python as one of ours; raise what is a mistake in the program."""
    if not isinstance(error, ModuleNotFoundError):
        return local_failure(error)
    missing = missing_extra(error)
    if missing is None:
        raise error
    return missing


def _failed(error: OmnigraphError, words: list[str]) -> int:
    Output(as_json="--json" in words).error(error)
    return outcome_of(error).exit_code


def _misused(error: click.ClickException, words: list[str]) -> int:
    if "--json" in words and isinstance(error, click.UsageError):
        Output(as_json=True).error(WrongUsageError(error))
    else:
        # The message repeats words of the call, which may be addresses.
        message = StringIO()
        error.show(file=message)
        click.echo(shown(_without_tabs(message.getvalue())), err=True, nl=False)
    return error.exit_code


def _without_tabs(message: str) -> str:
    """Return a message of click with its indented list of choices on one line.

    Its tabs would be shown as the escapes of control characters.
    """
    return message.replace("\n\t", " ")


class WrongUsageError(InvalidInputError):
    """The words after a command are not what it takes."""

    code = "OG-USAGE"

    def __init__(self, mistake: click.UsageError) -> None:
        self.command = "omnigraph" if mistake.ctx is None else mistake.ctx.command_path
        super().__init__(_without_tabs(mistake.format_message()))
        self.hint = f"`{self.command} --help` lists what it takes"


def serve() -> None:
    """Run `omnigraph serve`: the program `omnigraph-server`."""
    main(["serve", *sys.argv[1:]])


def main(args: list[str] | None = None) -> None:
    """Run the command line; an unexpected failure ends in a message, not in a stack trace."""
    prepare_streams()
    try:
        sys.exit(run(args))
    except KeyboardInterrupt:
        click.echo(INTERRUPTED, err=True)
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        if os.environ.get(_TRACEBACK):
            raise
        say(f"error: {type(error).__name__}: {shown(str(error))}", err=True)
        click.echo(f"hint: please report this bug, with what {_TRACEBACK}=1 shows", err=True)
        sys.exit(EXIT_FAILURE)
