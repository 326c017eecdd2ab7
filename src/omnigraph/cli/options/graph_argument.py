"""The graph as the first argument of a command, which may be left away.

`omnigraph branch create draft` and `omnigraph branch create g.omni draft` differ by the number of
words. Where that does not decide, because another argument may be left away too, the first word is
the graph if it looks like an address.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

GRAPH_SUFFIX: Final = ".omni"


class GraphArgument(click.Argument):
    """The root of a graph, before the other arguments of its command."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Give the words to the other arguments, unless the first of them is the graph."""
        others = self._others(ctx)
        # All arguments read this one mapping, and this one is processed first.
        if isinstance(opts, dict) and all(param.nargs == 1 for param in others):
            _assign(opts, self, others)
        return super().handle_parse_result(ctx, opts, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete as the argument after this one would: the graph may be left away."""
        found = super().shell_complete(ctx, incomplete)
        for param in self._others(ctx)[:1]:
            found += param.shell_complete(ctx, incomplete)
        return found

    def _others(self, ctx: click.Context) -> list[click.Argument]:
        params = ctx.command.params
        return [p for p in params if isinstance(p, click.Argument) and p is not self]


def graph_argument(*, expose_value: bool = True, **attributes: Any) -> GraphArgument:
    """Return the argument; it is eager, so that the words are assigned before they are used."""
    return GraphArgument(
        ["uri"], required=False, is_eager=True, expose_value=expose_value, **attributes
    )


def _assign(opts: dict[str, Any], graph: click.Argument, others: Sequence[click.Argument]) -> None:
    params = [graph, *others]
    found = [opts.get(str(param.name)) for param in params]
    words = [word for word in found if isinstance(word, str)]
    if not words or _begins_with_graph(words, others):
        _refuse_graph_behind(words)
        return
    missing = found[len(words) :] + [None] * len(params)
    for param, value in zip(params, [None, *words, *missing], strict=False):
        if value is None:
            opts.pop(str(param.name), None)
        else:
            opts[str(param.name)] = value


def _begins_with_graph(words: Sequence[str], others: Sequence[click.Argument]) -> bool:
    if len(words) > len(others):
        return True
    required = sum(param.required for param in others)
    return len(words) > required and looks_like_address(words[0])


def _refuse_graph_behind(words: Sequence[str]) -> None:
    """Say which word is the graph where it is not the first one."""
    if not words or looks_like_address(words[0]):
        return
    for word in words[1:]:
        # A branch may have a slash in its name.
        if "://" in word or word.endswith(GRAPH_SUFFIX) or Path(word).is_dir():
            raise click.UsageError(f"the graph comes first: give '{word}' before '{words[0]}'")


def looks_like_address(word: str) -> bool:
    """Whether a word can only be meant as the root of a graph.

    >>> [looks_like_address(word) for word in ("s3://bucket/g", "g.omni", "v1.0")]
    [True, True, False]
    """
    return "://" in word or os.sep in word or word.endswith(GRAPH_SUFFIX) or Path(word).is_dir()
