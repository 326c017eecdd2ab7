"""The commands of the command line, also those that are imported only when they are called."""

from __future__ import annotations

from collections.abc import Iterator

import click

from omnigraph.cli.app import COMMANDS, root


def subcommands(group: click.Group) -> dict[str, click.Command]:
    """Return the commands of a group by name."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its words, groups left out."""
    for name in sorted(COMMANDS):
        command = root.get_command(click.Context(root), name)
        if isinstance(command, click.Group):
            for each, child in subcommands(command).items():
                yield f"{name} {each}", child
        elif command is not None:
            yield name, command
