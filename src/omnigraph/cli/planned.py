"""Commands of a later release: their names, what they accept, and what to do until then."""

from __future__ import annotations

from typing import Final

import click

from omnigraph.cli.capabilities import require_applicable
from omnigraph.cli.options.flags import GlobalFlags, ScopedCommand, scope_flags_in
from omnigraph.errors import UnavailableError

INSTEAD: Final = {
    "mcp": "`omnigraph shell URI` asks one graph",
}
"""What works today instead of each command that does not exist yet."""


class PlannedCommandError(UnavailableError):
    """A command that needs a server or a cluster, which this release has not."""

    code = "OG-PLANNED"
    words: tuple[str, ...]

    def _message(self) -> str:
        return f"`{' '.join(self.words)}` is not in this release"

    def _hint(self) -> str:
        return f"{INSTEAD[self.words[0]]}; `omnigraph --help` lists what is there"


class PlannedCommand(ScopedCommand):
    """Checks the address as the command will, then raises that it does not exist yet."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse flags that will not apply either, then the command itself."""
        name = self.name or ""
        words = (name, *args[:1]) if args and not args[0].startswith("-") else (name,)
        before = frozenset(ctx.find_root().ensure_object(GlobalFlags).scope)
        given = before | scope_flags_in(args)
        require_applicable(words, given)
        raise PlannedCommandError(words)


def planned_command(name: str) -> click.Command:
    """Return the stand-in for a command of a later release."""
    return PlannedCommand(name, hidden=True, add_help_option=False)
