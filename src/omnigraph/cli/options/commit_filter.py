"""Which commits a listing shows: `--filter KEY=VALUE`, all of them must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from omnigraph.graph import GraphCommit

_PROPERTY: Final = "properties."
_FIELDS: Final[dict[str, Callable[[GraphCommit], str | None]]] = {
    "actor": lambda commit: commit.actor_id,
    "branch": lambda commit: commit.graph_branch or "main",
    "message": lambda commit: commit.message,
    "operation": lambda commit: commit.operation,
}


def commit_filter(texts: Sequence[str]) -> Callable[[GraphCommit], bool]:
    """Return a test for commits; nothing after the `=` means that the commit has no value."""
    wanted = [_parsed(text) for text in texts]
    return lambda commit: all((read(commit) or "") == value for read, value in wanted)


def _parsed(text: str) -> tuple[Callable[[GraphCommit], str | None], str]:
    key, equals, value = text.partition("=")
    if equals and key.startswith(_PROPERTY):
        name = key.removeprefix(_PROPERTY)
        return lambda commit: commit.properties.get(name), value
    if not equals or key not in _FIELDS:
        known = ", ".join(f"{name}=…" for name in (*_FIELDS, f"{_PROPERTY}NAME"))
        raise click.UsageError(f"--filter {text} is none of {known}")
    return _FIELDS[key], value
