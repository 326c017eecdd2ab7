"""Which numbers mean the same type, table or property, over several schemas of one graph.

Two branches may declare the same thing, each under a number of its own. The merge that unites them
keeps one number and lists the others as `also`. Numbers of two schemas are compared by `canonical`,
never as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from omnigraph.dataclass import dataclass
from omnigraph.schema.ir.model import IrInterface, IrType, SchemaIR

Pair = tuple[int, int]
"""A number, and one that it also stands for."""


@dataclass(frozen=True)
class Aliases:
    """The numbers that share their meaning with others, each with the one that stands for all."""

    canonical_numbers: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, *schemas: SchemaIR) -> Aliases:
        """Collect what the schemas say; chains and circles become one group."""
        return cls.of_pairs(pair for schema in schemas for pair in pairs_of(schema))

    @classmethod
    def of_pairs(cls, pairs: Iterable[Pair]) -> Aliases:
        """Group numbers by the pairs that connect them.

        The number that no other one lists stands for its group. Where two merges have made
        different choices there are several such numbers, or none: then it is the smallest.
        """
        known = list(pairs)
        groups: dict[int, set[int]] = {}
        for kept, other in known:
            united = groups.get(kept, {kept}) | groups.get(other, {other})
            groups |= dict.fromkeys(united, united)
        listed = {other for _, other in known}
        return cls({number: min(group - listed or group) for number, group in groups.items()})

    def canonical(self, number: int) -> int:
        """Return the number that stands for this one.

        >>> Aliases.of_pairs([(7, 9), (4, 7)]).canonical(9)
        4
        """
        return self.canonical_numbers.get(number, number)

    def group(self, number: int) -> frozenset[int]:
        """Return all numbers that mean the same as this one."""
        wanted = self.canonical(number)
        found = (each for each, kept in self.canonical_numbers.items() if kept == wanted)
        return frozenset([number, *found])


def pairs_of(schema: SchemaIR) -> Iterator[Pair]:
    """Yield what a schema lists as `also`."""
    for declared in schema.types():
        yield from _type_pairs(declared)
        for prop in declared.properties:
            yield from ((prop.property_id, other) for other in prop.also)


def _type_pairs(declared: IrType) -> Iterator[Pair]:
    if isinstance(declared, IrInterface):
        yield from ((declared.type_id, other) for other in declared.also)
        return
    yield from ((declared.type_id, other) for other in declared.also[::2])
    yield from ((declared.table_incarnation_id, other) for other in declared.also[1::2])
