"""From a method and a path to a route.

Paths are matched as they were sent, segment by segment, and each segment is decoded after that: a
branch named `a/b` is one segment, `a%2Fb`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar
from urllib.parse import unquote_to_bytes

from omnigraph.server.errors import RequestError

R = TypeVar("R")
_ANY: Final = "{}"
_Methods: TypeAlias = dict[str, tuple[R, tuple[str, ...]]]


@dataclass(frozen=True)
class Found(Generic[R]):
    """A route, and the values of its path."""

    route: R
    params: Mapping[str, str]


class Router(Generic[R]):
    """A table of routes by the shape of their path."""

    def __init__(self, routes: Sequence[tuple[str, str, R]]) -> None:
        """Take methods, path templates such as `/graphs/{graph_id}/query`, and routes."""
        self._by_shape: dict[tuple[str, ...], _Methods[R]] = {}
        for method, template, route in routes:
            segments = template.strip("/").split("/")
            shape = tuple(_ANY if part.startswith("{") else part for part in segments)
            names = tuple(part[1:-1] for part in segments if part.startswith("{"))
            self._by_shape.setdefault(shape, {})[method] = route, names

    def find(self, method: str, raw_path: bytes) -> Found[R] | list[str]:
        """Return the route of a request, else the methods that the path has: none, if unknown."""
        segments = raw_path.decode("ascii", "replace").removeprefix("/").split("/")
        allowed: set[str] = set()
        for shape, methods in self._fitting(segments):
            known = methods.get(method) or (methods.get("GET") if method == "HEAD" else None)
            if known is not None:
                route, names = known
                return Found(route, dict(zip(names, _values(segments, shape), strict=True)))
            allowed |= set(methods) | ({"HEAD"} if "GET" in methods else set())
        return sorted(allowed)

    def _fitting(self, segments: list[str]) -> list[tuple[tuple[str, ...], _Methods[R]]]:
        """Return the shapes of a path; a literal segment comes before a parameter.

        A path may have two: `DELETE /branches/merge` is of the branch `merge`, and `POST` is not.
        """
        plain = tuple(_plain(segment) for segment in segments)
        fitting = [
            (shape, methods)
            for shape, methods in self._by_shape.items()
            if len(shape) == len(plain)
            and all(part in (_ANY, have) for part, have in zip(shape, plain, strict=True))
        ]
        return sorted(fitting, key=lambda found: found[0].count(_ANY))


def _values(segments: list[str], shape: tuple[str, ...]) -> list[str]:
    return [_decoded(have) for part, have in zip(shape, segments, strict=True) if part == _ANY]


def _plain(segment: str) -> str:
    return unquote_to_bytes(segment).decode("utf-8", "replace")


def _decoded(segment: str) -> str:
    try:
        return unquote_to_bytes(segment).decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"a part of the path is not UTF-8: {segment}") from error
