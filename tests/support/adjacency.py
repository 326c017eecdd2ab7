"""Edges as a list of pairs, and what the language says about hops over them: slow and obvious."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Edges:
    """A multigraph: edge `i` leads from `pairs[i][0]` to `pairs[i][1]`."""

    pairs: tuple[tuple[int, int], ...]
    sources: int
    targets: int
    same_type: bool

    def hops(self, direction: str) -> list[tuple[int, int, int]]:
        """Every way to take an edge: start, end, edge; an undirected self-loop once."""
        forward = [(a, b, edge) for edge, (a, b) in enumerate(self.pairs)]
        backward = [(b, a, edge) for edge, (a, b) in enumerate(self.pairs)]
        if direction == "both":
            return forward + [hop for hop in backward if hop[0] != hop[1]]
        return forward if direction == "out" else backward

    def start_count(self, direction: str) -> int:
        return self.targets if direction == "in" else self.sources

    def steps(self, direction: str, rows: list[int]) -> list[tuple[int, int, int]]:
        """Row, end and edge of every record that can be taken, by row, then edge."""
        found = [
            (row, end, edge)
            for row, node in enumerate(rows)
            for start, end, edge in self.hops(direction)
            if start == node
        ]
        return sorted(found, key=lambda step: (step[0], step[2]))

    def reach(
        self, direction: str, start: int, low: int, high: int, *, cross_cap: bool = True
    ) -> set[int]:
        """The rules for unbound hops, word for word."""
        if not self.same_type:
            high = 1
            if low > 1:
                return set()
        visited = {start} if self.same_type else set()
        emitted: set[int] = set()
        frontier = [start]
        for hop in range(1, high + 1):
            queue = []
            for node in frontier:
                for begin, end, _ in self.hops(direction):
                    if begin != node:
                        continue
                    if self.same_type and end == node:
                        if hop >= low:
                            emitted.add(end)
                    elif end not in visited:
                        visited.add(end)
                        queue.append(end)
                        if hop >= low:
                            emitted.add(end)
            frontier = queue
        return emitted

    def degree(self, direction: str) -> Counter[int]:
        return Counter(start for start, _, _ in self.hops(direction))


@st.composite
def edge_lists(draw: st.DrawFn) -> Edges:
    """Small multigraphs with isolated nodes, parallel edges and self-loops."""
    same_type = draw(st.booleans())
    sources = draw(st.integers(1, 8))
    targets = sources if same_type else draw(st.integers(1, 8))
    pair = st.tuples(st.integers(0, sources - 1), st.integers(0, targets - 1))
    pairs = tuple(draw(st.lists(pair, max_size=24)))
    return Edges(pairs, sources, targets, same_type)
