"""The flags that every command knows, before or after its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click

from omnigraph.cli.capabilities import SCOPE_FLAGS, require_applicable


@dataclass
class GlobalFlags:
    """The flags of one run; of several spellings the last one wins."""

    scope: dict[str, str] = field(default_factory=dict)
    """The values of scope flags by name, without the dashes."""
    storage_options: dict[str, str] = field(default_factory=dict)
    yes: bool = False
    quiet: bool = False

    def get(self, flag: str) -> str | None:
        """Return the value of a scope flag, or None."""
        return self.scope.get(flag)


def flags() -> GlobalFlags:
    """Return the flags of the run."""
    root = click.get_current_context().find_root()
    return root.ensure_object(GlobalFlags)


def note_scope(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Remember the value of an option that says what a command works on."""
    if value is not None:
        name = option.opts[0].removeprefix("--")
        context.find_root().ensure_object(GlobalFlags).scope[name] = value


def _note_storage(context: click.Context, _: click.Parameter, pairs: tuple[str, ...]) -> None:
    for pair in pairs:
        name, mark, value = pair.partition("=")
        if not mark or not name:
            raise click.BadParameter(f"'{pair}' is not KEY=VALUE")
        context.find_root().ensure_object(GlobalFlags).storage_options[name] = value


def _note_switch(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        found = context.find_root().ensure_object(GlobalFlags)
        setattr(found, option.opts[0].removeprefix("--"), True)


_SCOPE_HELP: Final = {
    "as": ("ACTOR", "Record who did it."),
    "server": ("NAME|URL", "Work on a served graph."),
    "graph": ("ID", "Pick a graph of a server or a cluster."),
    "profile": ("NAME", "Use an address from the operator's configuration."),
    "store": ("URI", "Address one graph by its root."),
    "cluster": ("DIR|URI", "Work on the graphs of a cluster."),
}

_SWITCH_HELP: Final = {
    "yes": "Do not ask before something on remote storage is destroyed.",
    "quiet": "Print nothing on stderr but warnings and errors.",
}


def global_options() -> list[click.Option]:
    """Return the options that every command has."""
    scope = [
        click.Option(
            [f"--{name}", f"_{name}"],
            metavar=metavar,
            help=text,
            expose_value=False,
            is_eager=True,
            callback=note_scope,
        )
        for name, (metavar, text) in _SCOPE_HELP.items()
    ]
    switches = [
        click.Option(
            [f"--{name}", f"_{name}"],
            is_flag=True,
            help=text,
            expose_value=False,
            is_eager=True,
            callback=_note_switch,
        )
        for name, text in _SWITCH_HELP.items()
    ]
    return [*scope, _storage_option(), *switches, _version_option()]


def _storage_option() -> click.Option:
    return click.Option(
        ["--storage-option", "_storage_option"],
        metavar="KEY=VALUE",
        multiple=True,
        help="A setting of the storage, such as `endpoint=http://…`. May be repeated.",
        expose_value=False,
        is_eager=True,
        callback=_note_storage,
    )


def _version_option() -> click.Option:
    return click.Option(
        ["-v", "--version", "_version"],
        is_flag=True,
        help="Show the version and exit.",
        expose_value=False,
        is_eager=True,
        callback=_show_version,
    )


def _show_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version  # noqa: PLC0415 slow to import

        click.echo(f"omnigraph {version('omnigraph')}")
        context.exit()


class _Scoped(click.Command):
    """Takes the global options after its own, and lists only its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = {name for param in self.params for name in param.opts}
        self._global_options = [option for option in global_options() if option.opts[0] not in own]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters, then the global ones."""
        *own, last = super().get_params(ctx)
        return [*own, *self._global_options, last]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the command's own options; the global ones stand in the help of the root."""
        own = (param for param in super().get_params(ctx) if isinstance(param, click.Option))
        rows = [param.get_help_record(ctx) for param in own]
        with formatter.section("Options"):
            formatter.write_dl([row for row in rows if row is not None])
        formatter.write_paragraph()
        formatter.write_text("The global options of `omnigraph --help` apply here too.")


class ScopedCommand(_Scoped):
    """A command that also takes the global options, and refuses those that do not apply to it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Check first that the given scope applies here, then everything else."""
        before = frozenset(ctx.find_root().ensure_object(GlobalFlags).scope)
        own = frozenset(option.opts[0] for option in self._global_options)
        require_applicable(words_of(ctx), before | scope_flags_in(args, own))
        return super().parse_args(ctx, args)


class ScopedGroup(_Scoped, click.Group):
    """A group whose commands take the global options, and that takes them before their names."""

    command_class = ScopedCommand

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the group's own options and its commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def scope_flags_in(args: Sequence[str], own: frozenset[str] | None = None) -> frozenset[str]:
    """Return the scope flags among arguments; `own` names those that a command does not redefine.

    >>> sorted(scope_flags_in(["list", "--store=g", "--", "--as"]))
    ['store']
    """
    names = {arg.partition("=")[0] for arg in args[: _end_of_options(args)]}
    return frozenset(
        flag for flag in SCOPE_FLAGS if f"--{flag}" in names and (own is None or f"--{flag}" in own)
    )


def words_of(context: click.Context) -> tuple[str, ...]:
    """Return the words of the running command, without the program's name."""
    words: list[str] = []
    while context.parent is not None:
        words.insert(0, context.info_name or "")
        context = context.parent
    return tuple(words)


def _end_of_options(args: Sequence[str]) -> int:
    return args.index("--") if "--" in args else len(args)
