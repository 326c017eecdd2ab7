"""`omnigraph cluster …`: one module per command, imported when it is called."""

from __future__ import annotations

import importlib
from typing import Final

import click

from omnigraph.cli.options.flags import ScopedGroup
from omnigraph.names import nearest_name

COMMANDS: Final = {
    # name: module in this package, help
    "apply": ("apply", "Make graphs and catalog what the files declare."),
    "approve": ("approve", "Allow the deletion of a graph."),
    "force-unlock": ("force_unlock", "Remove the lock of a command that is gone."),
    "graph": ("graph", "Draw what depends on what."),
    "import": ("import_", "Make the first ledger from the graphs that are there."),
    "init": ("init", "Write a small cluster to begin with."),
    "plan": ("plan", "Show what apply would do."),
    "refresh": ("refresh", "Record what is really there."),
    "schema": ("schema", "Print the JSON Schema of `cluster.yaml`."),
    "status": ("status", "Show what is applied."),
    "validate": ("validate", "Check the files of a cluster."),
}
"""Name, module and one-line help of each command; the module's `command` is the click command."""


class ClusterGroup(ScopedGroup):
    """A group that knows its commands by name and loads only the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command that was asked for."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"{__package__}.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command for a typo."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = nearest_name(name, COMMANDS)
            remedy = f"did you mean `omnigraph cluster {near}`?" if near else "see its `--help`"
            ctx.fail(f"no such command '{name}'; {remedy}")
        return super().resolve_command(ctx, args)


@click.group("cluster", cls=ClusterGroup)
def command() -> None:
    """Declare graphs in files, check them, and apply what they say."""
