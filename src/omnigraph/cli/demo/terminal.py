"""Shows a step, a file, a command and what it prints."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import click


@dataclass
class Step:
    """One step of the story: its title, and each command with its exit code.

    A command that is run in another way than by typing it has none.
    """

    title: str
    commands: list[tuple[str, int | None]] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        """Return the step as programs see it."""
        commands = [{"command": text, "exit_code": code} for text, code in self.commands]
        return {"title": self.title, "commands": commands}


class Stage:
    """One folder, and the commands of the story that run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: list[Step] = []

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
        """Print the title of the next step."""
        self.steps.append(Step(text))
        click.secho(f"\n{len(self.steps)}. {text}", bold=True)

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
        self.steps[-1].commands.append((command, None))
        click.secho(f"$ {command}", fg="cyan")

    def run(self, *args: str | Path) -> int:
        """Show a command and run it."""
        from omnigraph.cli.app import run  # noqa: PLC0415 the root command lists this module

        words = [str(arg) for arg in args]
        command = f"omnigraph {shlex.join(words)}"
        click.secho(f"$ {command}", fg="cyan")
        code = run(words)
        self.steps[-1].commands.append((command, code))
        return code
