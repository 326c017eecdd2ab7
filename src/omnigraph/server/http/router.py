"""From a method and a path to a route.

Paths are matched as they were sent, segment by segment, and each segment is decoded after that: a
branch named `a/b` is one segment, `a%2Fb`. Where a word and a parameter both fit, the word wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from urllib.parse import unquote_to_bytes

from omnigraph.cache import BoundedCache
from omnigraph.server.errors import RequestError

_PATHS_MAX: Final = 1_024
_PATHS_BYTES_MAX: Final = 262_144

R = TypeVar("R")


@dataclass(frozen=True)
class Found(Generic[R]):
    """A route, and the values of its path."""

    route: R
    params: Mapping[str, str]


@dataclass
class _Node(Generic[R]):
    """What may follow the segments so far, and the routes that end here by method."""

    words: dict[str, _Node[R]] = field(default_factory=dict)
    parameter: _Node[R] | None = None
    routes: dict[str, tuple[R, tuple[str, ...]]] = field(default_factory=dict)


class Router(Generic[R]):
    """A table of routes by the segments of their path."""

    def __init__(self, routes: Sequence[tuple[str, str, R]]) -> None:
        """Take methods, path templates such as `/graphs/{graph_id}/query`, and routes."""
        self._root: _Node[R] = _Node()
        self._found: BoundedCache[Found[R]] = BoundedCache(_PATHS_BYTES_MAX, entries_max=_PATHS_MAX)
        for method, template, route in routes:
            node, names = self._root, []
            for part in template.strip("/").split("/"):
                if part.startswith("{"):
                    names.append(part[1:-1])
                    node.parameter = node.parameter or _Node()
                    node = node.parameter
                else:
                    node = node.words.setdefault(part, _Node())
            node.routes[method] = route, tuple(names)

    def find(self, method: str, raw_path: bytes) -> Found[R] | list[str]:
        """Return the route of a request, else the methods that the path has: none, if unknown."""
        known = self._found.get((method, raw_path))
        if known is not None:
            return known
        found = self._find(method, raw_path)
        if isinstance(found, Found):
            self._found.put((method, raw_path), found, len(raw_path))
        return found

    def _find(self, method: str, raw_path: bytes) -> Found[R] | list[str]:
        segments = raw_path.decode("ascii", "replace").removeprefix("/").split("/")
        allowed: set[str] = set()
        for node, values in _ends(self._root, segments, 0):
            routes = node.routes
            known = routes.get(method) or (routes.get("GET") if method == "HEAD" else None)
            if known is not None:
                route, names = known
                return Found(route, dict(zip(names, map(_decoded, values), strict=True)))
            allowed |= {*routes, *({"HEAD"} if "GET" in routes else ())}
        return sorted(allowed)


def _ends(
    node: _Node[R], segments: list[str], at: int
) -> Iterator[tuple[_Node[R], tuple[str, ...]]]:
    """Yield the nodes that segments end at, with those that were parameters; words come first.

    A path may have two: `DELETE /branches/merge` is of the branch `merge`, and `POST` is not.
    """
    if at == len(segments):
        if node.routes:
            yield node, ()
        return
    segment = segments[at]
    word = node.words.get(segment if "%" not in segment else _plain(segment))
    if word is not None:
        yield from _ends(word, segments, at + 1)
    if node.parameter is not None:
        for ended, values in _ends(node.parameter, segments, at + 1):
            yield ended, (segment, *values)


def _plain(segment: str) -> str:
    return unquote_to_bytes(segment).decode("utf-8", "replace")


def _decoded(segment: str) -> str:
    try:
        return unquote_to_bytes(segment).decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"a part of the path is not UTF-8: {segment}") from error
