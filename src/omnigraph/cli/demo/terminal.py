"""Shows a step, a file, a command and what it prints."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import click


class Stage:
    """One folder, and the commands of the story that run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0

    def clear(self, *names: str) -> None:
        """Remove what an earlier run has left."""
        for name in names:
            path = self.folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    def step(self, text: str) -> None:
        """Say what comes next."""
        self._number += 1
        click.secho(f"\n{self._number}. {text}", bold=True)

    def say(self, text: str) -> None:
        """Add a sentence."""
        click.echo(text)

    def write(self, name: str, text: str, *, shown: bool = True) -> Path:
        """Write a file, and show it."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        if shown:
            click.secho(f"$ cat {path}", fg="cyan")
            click.echo(text.rstrip())
        return path

    def show(self, command: str) -> None:
        """Show a command that is run in another way."""
        click.secho(f"$ {command}", fg="cyan")

    def run(self, *args: str | Path) -> int:
        """Show a command and run it."""
        from omnigraph.cli.app import run  # noqa: PLC0415 the root command lists this module

        words = [str(arg) for arg in args]
        self.show(f"omnigraph {shlex.join(words)}")
        return run(words)
