"""Completion of commands and options in bash, zsh and fish.

1. The script asks the installed `omnigraph` for words, so it never becomes outdated.
2. Installing twice changes nothing: the line in the shell's own file is added once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import get_completion_class

from omnigraph.cli.config.operator_config import operator_home
from omnigraph.dataclass import dataclass

PROGRAM: Final = "omnigraph"
SHELLS: Final = ("bash", "zsh", "fish")
_VARIABLE: Final = "_OMNIGRAPH_COMPLETE"


@dataclass(frozen=True)
class Installed:
    """Where the script of a shell lives, and the file and line that load it."""

    script: Path
    startup: Path | None = None
    line: str = ""


def script_for(shell: str, command: click.Command) -> str:
    """Return the script that makes a shell complete our words."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(_unknown(shell))
    return kind(command, {}, PROGRAM, _VARIABLE).source()


def install(shell: str, command: click.Command) -> Installed:
    """Write the script, and make new shells load it."""
    installed = script_of_shell(shell)
    installed.script.parent.mkdir(parents=True, exist_ok=True)
    installed.script.write_text(script_for(shell, command), encoding="utf-8")
    if installed.startup is not None:
        _append_once(installed.startup, installed.line)
    return installed


def script_of_shell(shell: str) -> Installed:
    """Return where the script of a shell is stored."""
    home = Path.home()
    if shell == "fish":
        settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        return Installed(settings / "fish" / "completions" / f"{PROGRAM}.fish")
    script = operator_home() / f"completion.{shell}"
    if shell == "bash":
        return Installed(script, home / ".bashrc", f"source '{script}'")
    folder = Path(os.environ.get("ZDOTDIR") or home)
    line = f"autoload -Uz compinit && compinit && source '{script}'"
    return Installed(script, folder / ".zshrc", line)


def shell_named(text: str) -> str:
    """Return the shell that was named, else the one of this login."""
    shell = text or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise click.UsageError(_unknown(shell))
    return shell


def completion_options() -> list[click.Option]:
    """Return the two options of the root command."""
    return [
        _option("--install-completion", _install, "Make a shell complete commands and options."),
        _option("--show-completion", _show, "Print the script that does it."),
    ]


def _option(
    name: str, callback: Callable[[click.Context, click.Parameter, Any], None], text: str
) -> click.Option:
    return click.Option(
        [name],
        metavar="[bash|zsh|fish]",
        is_flag=False,
        flag_value="",
        help=text,
        expose_value=False,
        is_eager=True,
        callback=callback,
    )


def _install(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    shell = shell_named(value)
    installed = install(shell, context.command)
    click.echo(f"installed completion for {shell} in {installed.script}")
    if installed.startup is not None:
        click.echo(f"{installed.startup} loads it; for this shell: {installed.line}")
    if shutil.which(PROGRAM) is None:
        click.echo(f"warning: `{PROGRAM}` is not on your PATH, so nothing can answer", err=True)
    context.exit()


def _show(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    click.echo(script_for(shell_named(value), context.command))
    context.exit()


def _append_once(path: Path, line: str) -> None:
    found = path.read_text(encoding="utf-8") if path.exists() else ""
    if line in found.splitlines():
        return
    separator = "" if not found or found.endswith("\n") else "\n"
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{separator}{line}\n")


def _unknown(shell: str) -> str:
    named = f"'{shell}' is" if shell else "this shell is"
    return f"{named} not one of {', '.join(SHELLS)}: name one, as in `--show-completion bash`"
