"""Connected parts of a pattern: the variables that hops link to each other."""

from __future__ import annotations

from collections.abc import Iterable


def connected(names: Iterable[str], links: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return for each name the number of its part; parts are numbered by first appearance.

    >>> connected(["a", "b", "c", "d"], [("d", "b")])
    {'a': 0, 'b': 1, 'c': 2, 'd': 1}
    """
    parent = {name: name for name in names}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for left, right in links:
        parent[root(left)] = root(right)
    numbers: dict[str, int] = {}
    return {name: numbers.setdefault(root(name), len(numbers)) for name in parent}
