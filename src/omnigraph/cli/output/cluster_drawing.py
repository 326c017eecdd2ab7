"""The resources of a cluster and what depends on what, as text, for Graphviz and for Mermaid.

Drawings leave out an edge that follows from two others: a query needs its graph, but that is clear
from the schema between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from omnigraph.cluster.addresses import Address
from omnigraph.cluster.desired import Dependency, Desired


def direct_dependencies(dependencies: Sequence[Dependency]) -> tuple[Dependency, ...]:
    """Return the dependencies that do not follow from two others."""
    targets: dict[Address, set[Address]] = {}
    for each in dependencies:
        targets.setdefault(each.source, set()).add(each.target)
    return tuple(
        each
        for each in dependencies
        if not any(
            each.target in targets.get(between, ())
            for between in targets[each.source] - {each.target}
        )
    )


def text_drawing(desired: Desired) -> list[str]:
    """Return a tree: what depends on a resource is indented below it."""
    dependents: dict[Address, list[Address]] = {}
    dependencies = direct_dependencies(desired.dependencies)
    for each in dependencies:
        dependents.setdefault(each.target, []).append(each.source)
    inner = {each.source for each in dependencies}
    roots = [address for address in desired.resources if address not in inner]
    return [line for root in roots for line in _branch(root, dependents, 0)]


def _branch(
    address: Address, dependents: Mapping[Address, Sequence[Address]], depth: int
) -> Iterator[str]:
    yield f"{'  ' * depth}{address}"
    for dependent in dependents.get(address, ()):
        yield from _branch(dependent, dependents, depth + 1)


def dot_drawing(desired: Desired) -> list[str]:
    """Return the text of a Graphviz graph; arrows lead to what is needed."""
    return [
        "digraph cluster {",
        "  rankdir=LR;",
        "  node [shape=box];",
        *(f'  "{address}";' for address in desired.resources),
        *(
            f'  "{each.source}" -> "{each.target}";'
            for each in direct_dependencies(desired.dependencies)
        ),
        "}",
    ]


def mermaid_drawing(desired: Desired) -> list[str]:
    """Return the text of a Mermaid flowchart; arrows lead to what is needed."""
    ids = {address: f"r{index}" for index, address in enumerate(desired.resources)}
    return [
        "flowchart LR",
        *(f'  {name}["{address}"]' for address, name in ids.items()),
        *(
            f"  {ids[each.source]} --> {ids[each.target]}"
            for each in direct_dependencies(desired.dependencies)
        ),
    ]
