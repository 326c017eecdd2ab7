"""Draws a history as lines of text, newest commit first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Commit:
    """A commit as far as drawing it goes."""

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
        place = rails.index(commit.commit_id)
        marks = ["*" if rail == place else "|" for rail in range(len(rails))]
        is_merge = len(commit.parents) > 1
        yield f"{' '.join(marks)}{'  ' if is_merge else ''} {commit.label}"
        yield from _go_on(rails, place, commit.parents)


def _go_on(rails: list[str], place: int, parents: tuple[str, ...]) -> Iterator[str]:
    """Move the rail of a commit on to its parents, and yield the lines that this takes."""
    if not parents:
        del rails[place]
        if place < len(rails):
            yield _rails(place) + " /" * (len(rails) - place)
        return
    first, *others = parents
    for other in others:
        if other not in rails:
            rails.insert(place + 1, other)
            yield _rails(place + 1) + "\\" + " \\" * (len(rails) - place - 2)
    if first not in rails or rails.index(first) == place:
        rails[place] = first
        return
    # Two rails lead to one commit: the right one bends into the left one and ends.
    left, right = sorted((place, rails.index(first)))
    rails[left] = first
    del rails[right]
    yield _rails(right) + "/" + " /" * (len(rails) - right)


def _rails(count: int) -> str:
    return " ".join("|" * count)
