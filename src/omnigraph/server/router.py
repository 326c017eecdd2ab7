"""From a method and a path to a route.

Paths are matched as they were sent, segment by segment, and each segment is decoded after that: a
branch named `a/b` is one segment, `a%2Fb`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import unquote_to_bytes

from omnigraph.server.errors import RequestError

R = TypeVar("R")
_ANY: Final = "{}"


@dataclass(frozen=True)
class Found(Generic[R]):
    """A route, and the values of its path."""

    route: R
    params: Mapping[str, str]


class Router(Generic[R]):
    """A table of routes by the shape of their path."""

    def __init__(self, routes: Sequence[tuple[str, str, R]]) -> None:
        """Take methods, path templates such as `/graphs/{graph_id}/query`, and routes."""
        self._by_shape: dict[tuple[str, ...], dict[str, tuple[R, tuple[str, ...]]]] = {}
        for method, template, route in routes:
            segments = template.strip("/").split("/")
            shape = tuple(_ANY if part.startswith("{") else part for part in segments)
            names = tuple(part[1:-1] for part in segments if part.startswith("{"))
            self._by_shape.setdefault(shape, {})[method] = route, names

    def find(self, method: str, raw_path: bytes) -> Found[R] | list[str]:
        """Return the route of a request, else the methods that the path has: none, if unknown."""
        segments = raw_path.decode("ascii", "replace").removeprefix("/").split("/")
        methods = self._shape_of(segments)
        if methods is None:
            return []
        known = methods.get(method) or (methods.get("GET") if method == "HEAD" else None)
        if known is None:
            allowed = set(methods) | ({"HEAD"} if "GET" in methods else set())
            return sorted(allowed)
        route, names = known
        return Found(route, dict(zip(names, self._values(segments, methods), strict=True)))

    def _shape_of(self, segments: list[str]) -> dict[str, tuple[R, tuple[str, ...]]] | None:
        """Return the methods of the path; a literal segment wins over a parameter."""
        plain = tuple(_plain(segment) for segment in segments)
        best: tuple[int, dict[str, tuple[R, tuple[str, ...]]]] | None = None
        for shape, methods in self._by_shape.items():
            if len(shape) != len(plain):
                continue
            if all(part in (_ANY, have) for part, have in zip(shape, plain, strict=True)):
                literal = sum(part != _ANY for part in shape)
                if best is None or literal > best[0]:
                    best = literal, methods
        return None if best is None else best[1]

    def _values(
        self, segments: list[str], methods: dict[str, tuple[R, tuple[str, ...]]]
    ) -> list[str]:
        shape = next(shape for shape, known in self._by_shape.items() if known is methods)
        return [_decoded(have) for part, have in zip(shape, segments, strict=True) if part == _ANY]


def _plain(segment: str) -> str:
    return unquote_to_bytes(segment).decode("utf-8", "replace")


def _decoded(segment: str) -> str:
    try:
        return unquote_to_bytes(segment).decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"a part of the path is not UTF-8: {segment}") from error
