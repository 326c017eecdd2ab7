"""Draws a history as lines of text, newest commit first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Commit:
    """What is drawn of a commit."""

    commit_id: str
    parents: tuple[str, ...]
    label: str


def draw(commits: Iterable[Commit]) -> Iterator[str]:
    r"""Yield the lines of a drawing; every commit comes before its parents.

    >>> merge = Commit("c", ("a", "b"), "merge")
    >>> side, root = Commit("b", ("a",), "side"), Commit("a", (), "root")
    >>> print("\n".join(draw([merge, side, root])))
    *   merge
    |\
    | * side
    |/
    * root
    """
    rails: list[str] = []
    for commit in commits:
        if commit.commit_id not in rails:
            rails.append(commit.commit_id)
        own = rails.index(commit.commit_id)
        marks = ["*" if rail == own else "|" for rail in range(len(rails))]
        is_merge = len(commit.parents) > 1
        yield f"{' '.join(marks)}{'  ' if is_merge else ''} {commit.label}"
        yield from _to_parents(rails, own, commit.parents)


def _to_parents(rails: list[str], own: int, parents: tuple[str, ...]) -> Iterator[str]:
    """Move the rail of a commit on to its parents, and yield the lines that this takes."""
    if not parents:
        del rails[own]
        if own < len(rails):
            yield _rails(own) + " /" * (len(rails) - own)
        return
    first, *others = parents
    for other in others:
        if other not in rails:
            rails.insert(own + 1, other)
            yield _rails(own + 1) + "\\" + " \\" * (len(rails) - own - 2)
    if first not in rails or rails.index(first) == own:
        rails[own] = first
        return
    # Two rails lead to one commit: the right one bends into the left one and ends.
    left, right = sorted((own, rails.index(first)))
    rails[left] = first
    del rails[right]
    yield _rails(right) + "/" + " /" * (len(rails) - right)


def _rails(count: int) -> str:
    return " ".join("|" * count)
