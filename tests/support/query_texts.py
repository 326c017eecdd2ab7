"""Random queries that fit a catalog: trees with known names, and texts that compile."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

from omnigraph.schema.catalog import Catalog
from omnigraph.syntax import Span
from omnigraph.values import PropType

VARIABLES = ("a", "b", "c", "d", "_")


def with_known_names(node: Any, catalog: Catalog, random: Random) -> Any:
    """Return the same tree with most names replaced by names of the catalog."""
    if isinstance(node, tuple):
        return tuple(with_known_names(item, catalog, random) for item in node)
    if not dataclasses.is_dataclass(node) or isinstance(node, type | PropType | Span):
        return node
    properties = sorted(
        {
            name
            for entity in (*catalog.node_types.values(), *catalog.edge_types.values())
            for name in entity.properties
        }
        | {"from", "to", "id"}
    )
    types = sorted({*catalog.node_types, *catalog.edge_types, *catalog.interfaces})
    edges = [name[0].lower() + name[1:] for name in catalog.edge_types]
    pools = {"type_name": types, "edge": edges, "property": properties, "variable": VARIABLES}
    kind = type(node).__name__
    if kind in ("Variable", "Parameter"):
        pools["name"] = VARIABLES
    elif kind in ("InlineProperty", "Assignment", "NameRef"):
        pools["name"] = properties
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if isinstance(value, str) and field.name in pools and random.random() < 0.97:
            fields[field.name] = random.choice(pools[field.name])
        else:
            fields[field.name] = with_known_names(value, catalog, random)
    return type(node)(**fields)


@dataclasses.dataclass
class _Names:
    """Variables of one block: `crew` and `ships` can be extended, `readable` only be filtered on.

    `taken` is shared with optional blocks and copied for `not` blocks, so a name that is local to
    a `not` block is often used again outside.
    """

    crew: list[str] = dataclasses.field(default_factory=list)
    ships: list[str] = dataclasses.field(default_factory=list)
    readable: list[str] = dataclasses.field(default_factory=list)
    taken: set[str] = dataclasses.field(default_factory=set)

    def inner(self, *, is_negated: bool) -> _Names:
        taken = set(self.taken) if is_negated else self.taken
        return _Names([*self.crew, *self.readable], list(self.ships), [], taken)

    def new(self) -> str:
        name = next(f"v{i}" for i in range(100) if f"v{i}" not in self.taken)
        self.taken.add(name)
        return name

    def new_crew(self) -> str:
        self.crew.append(self.new())
        return self.crew[-1]


@dataclasses.dataclass
class CrewText:
    """Writes reads over the crew graph that compile, and counts their conditions."""

    random: Random
    conditions: int = 0

    def query(self) -> str:
        names = _Names()
        body = self._block(names, depth=0)
        columns = [f"${name}.{self._pick('tag', 'rank', 'skills')}" for name in names.crew]
        columns += [f"${name}" for name in (*names.ships, *names.readable)]
        order = self._pick(f"order {{ ${names.crew[0]}.rank desc }}", "")
        distinct = "" if order else self._pick("distinct ", "")
        return (
            f"query q($t: String, $n: F64) {{ match {{\n  {body}\n}} return {distinct}"
            f"{{ {', '.join(columns)} }} {order} {self._pick('limit 5 offset 2', '')} }}"
        )

    def _pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def _block(self, names: _Names, depth: int) -> str:
        first = self._hop(names) if depth else f"${names.new_crew()}: Crew {self._inline()}"
        rest = [self._clause(names, depth) for _ in range(self.random.randint(1, 4))]
        return "\n  ".join([first, *rest])

    def _clause(self, names: _Names, depth: int) -> str:
        roll = self.random.random()
        if roll < 0.3:
            return self._hop(names)
        if roll < 0.6 or (roll > 0.75 and depth > 1):
            return self._filter(names)
        if roll < 0.7:
            return f"${names.new_crew()}: Crew {self._inline()}"
        if roll < 0.75:
            return f"${self._pick(*names.crew)}: Crew {self._inline()}"
        is_negated = roll < 0.9
        inner = names.inner(is_negated=is_negated)
        text = self._block(inner, depth + 1)
        if not is_negated:
            names.readable += [name for name in inner.crew if name not in names.crew]
        return f"{'not' if is_negated else 'optional'} {{\n  {text} }}"

    def _inline(self) -> str:
        if self.random.random() < 0.5:
            return ""
        self.conditions += 1
        return self._pick("{ tag: $t }", "{ rank: 5 }", '{ skills: "x" }')

    def _hop(self, names: _Names) -> str:
        known = self._pick(*names.crew)
        roll = self.random.random()
        if roll < 0.25:
            if not names.ships or self.random.random() < 0.7:
                names.ships.append(names.new())
            return f"${known} servesOn ${names.ships[-1]}"
        other = self._pick("_", known, self._pick(*names.crew), "")
        other = other or names.new_crew()
        ends = (known, other) if self.random.random() < 0.6 else (other, known)
        edge = self._pick("mentors", "<mentors>", "mentors{1,2}", "mentors{2,3}")
        if roll < 0.4:
            edge = f"${names.new()}:mentors"
        return f"${ends[0]} {edge} ${ends[1]}"

    def _filter(self, names: _Names) -> str:
        pool = [*names.crew, *names.readable]
        left, right = self._pick(*pool), self._pick(*pool)
        self.conditions += 1
        return self._pick(
            f"${left}.rank > 3",
            f"${left}.rank = ${right}.rank",
            f"(${left}.rank < $n or ${right}.tag = $t)",
            f"${left}.skills contains ${right}.tag",
            f'${left}.tag in ["a", "b"]',
            f"not (${left}.rank is null)",
            '"the x" starts_with $t',
        )
