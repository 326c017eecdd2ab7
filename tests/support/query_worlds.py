"""Small graphs with history, and random queries that fit them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import strategies as st

from omnigraph.graph import Graph, ReadTarget

SCHEMA = """\
node P {
    key: String @key
    i: I32?
    j: I64?
    u: U64?
    f: F32?
    g: F64?
    b: Bool?
    s: String?
    d: Date?
    t: DateTime?
    tags: [String]?
    nums: [I32]?
}

node Q {
    name: String @key
    i: I64?
    s: String?
}

edge Knows: P -> P {
    w: I32?
    since: Date?
}

edge At: P -> Q {
    share: F64?
}

edge Likes: Q -> P
"""

_TEXTS = ("", "a", "b", "ab", "abc", "B", "é", "zz")
_WHOLE = (-3, -1, 0, 1, 2, 3, 7)
_LARGE = (*_WHOLE, 2**53, 2**53 + 1, -(2**53) - 1, 2**62)
_HALVES = (-2.5, -0.5, 0.0, 0.1, 0.25, 1.0, 1.5, 2.5, 3.0)
_DAYS = ("1969-12-31", "2020-01-01", "2020-01-02", "2024-02-29")
_MOMENTS = ("1969-12-31T23:59:59.999Z", "2020-01-01T00:00:00.000Z", "2020-01-01T12:34:56.789Z")


@dataclass(frozen=True)
class Place:
    """One snapshot of a graph, by name."""

    name: str
    graph: Graph
    target: ReadTarget


def make_places(root: Path, seed: int) -> list[Place]:
    """Make a graph with three commits and a branch: an old commit, the head, and the branch."""
    random = Random(seed)
    graph = Graph.init(root / f"world{seed}", SCHEMA, durability="process")
    people = [f"p{number}" for number in range(6)]
    places = [f"q{number}" for number in range(3)]
    graph.load(_lines(random, people, places, edges=9), mode="append")
    old = graph.head_commit_id_for_branch()
    if seed % 2:
        # What comes later is not covered by these indexes.
        graph.ensure_indices()
    graph.branch_create("side")
    late_people, late_places = ["p6", "p7"], ["q3"]
    more = _lines(random, late_people, late_places, edges=6, known=(people, places))
    graph.load(more, mode="append", branch="side")
    graph.load(_edge_lines(random, people, places, 5), mode="append")
    # A gap in the row ids, and rows of other fragments than their neighbours.
    graph.mutate('query gone() { delete P where key = "p1" }')
    if seed % 3 == 0:
        graph.optimize()
    return [
        Place(f"world {seed}, old commit", graph, ReadTarget.commit(old)),
        Place(f"world {seed}, branch", graph, ReadTarget.branch("side")),
        Place(f"world {seed}, head", graph, ReadTarget.branch("main")),
    ]


def _lines(
    random: Random,
    people: list[str],
    places: list[str],
    edges: int,
    known: tuple[list[str], list[str]] = ([], []),
) -> bytes:
    rows = [_person(random, name) for name in people]
    rows += [
        {
            "type": "Q",
            "data": {"name": name, "i": _maybe(random, _WHOLE), "s": _maybe(random, _TEXTS)},
        }
        for name in places
    ]
    everyone, everywhere = [*known[0], *people], [*known[1], *places]
    return _dumped(rows) + b"\n" + _edge_lines(random, everyone, everywhere, edges)


def _edge_lines(random: Random, people: list[str], places: list[str], count: int) -> bytes:
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        ends = {"from": random.choice(people), "to": random.choice(people)}
        data = {"w": _maybe(random, _WHOLE), "since": _maybe(random, _DAYS)}
        rows.append({"edge": "Knows", **ends, "data": data})
    for _ in range(count // 2):
        person, place = random.choice(people), random.choice(places)
        data = {"share": _maybe(random, _HALVES)}
        rows.append({"edge": "At", "from": person, "to": place, "data": data})
        rows.append({"edge": "Likes", "from": random.choice(places), "to": random.choice(people)})
    return _dumped(rows)


def _person(random: Random, name: str) -> dict[str, Any]:
    data = {
        "key": name,
        "i": _maybe(random, _WHOLE),
        "j": _maybe(random, _LARGE),
        "u": _maybe(random, (0, 1, 2, 3, 2**53 + 1)),
        "f": _maybe(random, _HALVES),
        "g": _maybe(random, (*_HALVES, 2.0**53)),
        "b": _maybe(random, (True, False)),
        "s": _maybe(random, _TEXTS),
        "d": _maybe(random, _DAYS),
        "t": _maybe(random, _MOMENTS),
        "tags": _maybe(random, ([], ["a"], ["a", "b"], ["b", "é"])),
        "nums": _maybe(random, ([], [1], [1, 2], [3, 3])),
    }
    return {"type": "P", "data": {key: value for key, value in data.items() if value is not None}}


def _maybe(random: Random, values: Any) -> Any:
    return None if random.random() < 0.3 else random.choice(values)


def _dumped(rows: list[dict[str, Any]]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


# -- queries ------------------------------------------------------------------------------------

_NODE_PROPERTIES: Mapping[str, Mapping[str, str]] = {
    "P": {
        "key": "text",
        "i": "number",
        "j": "number",
        "u": "number",
        "f": "number",
        "g": "number",
        "b": "bool",
        "s": "text",
        "d": "date",
        "t": "moment",
        "tags": "texts",
        "nums": "numbers",
    },
    "Q": {"name": "text", "i": "number", "s": "text"},
}
_EDGES = {
    "knows": ("P", "P", {"w": "number", "since": "date"}),
    "at": ("P", "Q", {"share": "number"}),
    "likes": ("Q", "P", {}),
}
PARAMETERS: Mapping[str, tuple[str, Any]] = {
    "text": ("String", "ab"),
    "no_text": ("String?", None),
    "number": ("F64", 0.1),
    "whole": ("I64", 2**53 + 1),
    "small": ("I32?", 1),
    "day": ("Date", "2020-01-01"),
    "moment": ("DateTime", "2020-01-01T12:34:56.789Z"),
    "texts": ("[String]", ["a", "é", "p2"]),
    "numbers": ("[F64]", [0.1, 1.0, 3.0]),
    "no_numbers": ("[I64]?", None),
}


@dataclass
class _Scope:
    """Variables of the query that is being written."""

    nodes: dict[str, str]
    edges: dict[str, str]
    names: Iterator[int] = field(default_factory=lambda: count(1))

    def fresh(self) -> str:
        return f"v{next(self.names)}"

    def copy(self) -> _Scope:
        """Return what an inner block sees; no name is used twice in a query."""
        return _Scope(dict(self.nodes), dict(self.edges), self.names)


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A query text over `SCHEMA`; a few are not well typed."""
    scope = _Scope({}, {})
    clauses = draw(_clauses(scope, depth=0))
    declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in PARAMETERS.items())
    columns, tail = draw(_results(scope))
    return f"query q({declared}) {{ match {{ {clauses} }} return {columns} {tail} }}"


@st.composite
def _clauses(draw: st.DrawFn, scope: _Scope, depth: int) -> str:
    written: list[str] = []
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        bindings = draw(st.integers(1, 2)) if depth == 0 else 1
        written += [draw(_binding(scope)) for _ in range(bindings)]
    hops = draw(st.sampled_from([0, 1, 1, 2, 3] if depth == 0 else [1, 1, 2]))
    written += [draw(_hop(scope)) for _ in range(hops)]
    filters = draw(st.sampled_from([0, 0, 1, 1, 2]))
    written += [draw(_filter(scope)) for _ in range(filters)]
    if depth < 2 and draw(st.integers(0, 2)) == 0:
        inner = draw(_clauses(scope.copy(), depth + 1))
        written.append(f"not {{ {inner} }}")
    if depth < 2 and draw(st.integers(0, 2)) == 0:
        inner = draw(_clauses(scope, depth + 1))
        written.append(f"optional {{ {inner} }}")
        if draw(st.booleans()):
            written.append(draw(_filter(scope)))
    return "  ".join(written)


@st.composite
def _binding(draw: st.DrawFn, scope: _Scope) -> str:
    type_name = draw(st.sampled_from(["P", "P", "Q"]))
    name = scope.fresh()
    scope.nodes[name] = type_name
    inline = ""
    if draw(st.integers(0, 2)) == 0:
        prop = draw(st.sampled_from(sorted(_NODE_PROPERTIES[type_name])))
        kind = _NODE_PROPERTIES[type_name][prop].removesuffix("s")
        kind = "text" if kind == "text" else kind
        inline = f" {{ {prop}: {draw(_constant(kind, inline=True))} }}"
    return f"${name}: {type_name}{inline}"


@st.composite
def _hop(draw: st.DrawFn, scope: _Scope) -> str:
    edge = draw(st.sampled_from(["knows", "knows", "knows", "at", "likes"]))
    start_type, end_type, _ = _EDGES[edge]
    source = draw(_end(scope, start_type))
    target = draw(_end(scope, end_type))
    if draw(st.integers(0, 4)) == 0:
        source, target = target, source
    name = edge
    bounds = ""
    if edge == "knows":
        if draw(st.integers(0, 3)) == 0:
            name = f"<{edge}>"
        if draw(st.integers(0, 2)) == 0:
            low = draw(st.integers(1, 3))
            bounds = f"{{{low},{draw(st.integers(low, 4))}}}"
    bound = ""
    if not bounds and draw(st.integers(0, 3)) == 0:
        variable = scope.fresh()
        scope.edges[variable] = edge
        bound = f"${variable}:"
    return f"${source} {bound}{name}{bounds} ${target}"


@st.composite
def _end(draw: st.DrawFn, scope: _Scope, type_name: str) -> str:
    known = [name for name, kind in scope.nodes.items() if kind == type_name]
    choice = draw(st.integers(0, 9))
    if known and choice < 6:
        return draw(st.sampled_from(known))
    if choice == 9:
        return "_"
    name = scope.fresh()
    scope.nodes[name] = type_name
    return name


def _properties(scope: _Scope) -> list[tuple[str, str]]:
    found = [
        (f"${name}.{prop}", kind)
        for name, type_name in scope.nodes.items()
        for prop, kind in _NODE_PROPERTIES[type_name].items()
    ]
    found += [
        (f"${name}.{prop}", kind)
        for name, edge in scope.edges.items()
        for prop, kind in _EDGES[edge][2].items()
    ]
    return found


@st.composite
def _filter(draw: st.DrawFn, scope: _Scope) -> str:
    return draw(_predicate(scope, depth=0))


@st.composite
def _predicate(draw: st.DrawFn, scope: _Scope, depth: int) -> str:
    if depth < 2 and draw(st.integers(0, 3)) == 0:
        kind = draw(st.sampled_from(["and", "or", "not"]))
        first = draw(_predicate(scope, depth + 1))
        if kind == "not":
            return f"not ({first})"
        return f"({first}) {kind} ({draw(_predicate(scope, depth + 1))})"
    properties = _properties(scope)
    prop, kind = draw(st.sampled_from(properties))
    return draw(_leaf(properties, prop, kind))


@st.composite
def _leaf(draw: st.DrawFn, properties: list[tuple[str, str]], prop: str, kind: str) -> str:
    form = draw(st.integers(0, 9))
    if form == 0:
        return f"{prop} is {draw(st.sampled_from(['', 'not ']))}null"
    if kind in ("texts", "numbers"):
        return f"{prop} contains {draw(_constant(kind.removesuffix('s')))}"
    if form == 1 and kind in ("text", "number"):
        negation = draw(st.sampled_from(["", "not "]))
        return f"{prop} {negation}in {draw(_constant_list(kind))}"
    if form in (2, 3) and kind == "text":
        operator = draw(st.sampled_from(["contains", "starts_with"]))
        return f"{prop} {operator} {draw(_operand(properties, kind))}"
    operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
    return f"{prop} {operator} {draw(_operand(properties, kind))}"


@st.composite
def _operand(draw: st.DrawFn, properties: list[tuple[str, str]], kind: str) -> str:
    others = [prop for prop, other in properties if other == kind]
    if others and draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from(others))
    return draw(_constant(kind))


@st.composite
def _constant(draw: st.DrawFn, kind: str, inline: bool = False) -> str:
    literals = {
        "text": ['""', '"a"', '"b"', '"ab"', '"é"', '"p2"', '"q0"', "$text", "$no_text"],
        "number": [
            *("0", "1", "-1", "2.5", "0.1", "2.7", "9007199254740993", "-1.5", "3000000000"),
            *("$number", "$whole", "$small"),
        ],
        "bool": ["true", "false"],
        "date": ["$day"],
        "moment": ["$moment", "now()"],
    }[kind]
    if inline and kind == "number":
        literals = ["1", "3", "$small"]
    return draw(st.sampled_from(literals))


@st.composite
def _constant_list(draw: st.DrawFn, kind: str) -> str:
    choices = {
        "text": ['["a", "ab", "p2"]', '[""]', "$texts"],
        "number": ["[1, 2, 3]", "[0.1, 2.5]", "[-1, 2.7]", "$numbers", "$no_numbers"],
    }
    return draw(st.sampled_from(choices[kind]))


@st.composite
def _results(draw: st.DrawFn, scope: _Scope) -> tuple[str, str]:
    properties = [prop for prop, _ in _properties(scope)]
    numbers = [prop for prop, kind in _properties(scope) if kind == "number"]
    scalars = [prop for prop, kind in _properties(scope) if kind not in ("texts", "numbers")]
    nodes = [f"${name}" for name in scope.nodes]
    form = draw(st.integers(0, 3))
    picked = draw(st.lists(st.sampled_from([*properties, *nodes]), min_size=1, max_size=3))
    if form == 0:
        columns = [f"{column} as k{number}" for number, column in enumerate(picked)]
        calls = ["count", "count(distinct", "min", "max", "sum", "avg"]
        for number, call in enumerate(
            draw(st.lists(st.sampled_from(calls), min_size=1, max_size=2))
        ):
            pool = numbers if call in ("sum", "avg") else scalars if call in ("min", "max") else []
            argument = draw(st.sampled_from(pool or [*properties, *nodes]))
            opened = call if call.endswith("distinct") else f"{call}("
            space = " " if call.endswith("distinct") else ""
            columns.append(f"{opened}{space}{argument}) as a{number}")
        if draw(st.integers(0, 2)) == 0:
            columns = columns[len(picked) :]
        keys = [f"a0{draw(st.sampled_from(['', ' asc', ' desc']))}"]
    else:
        columns = [f"{column} as k{number}" for number, column in enumerate(picked)]
        keys = ["k0 desc"] if form == 1 else [draw(st.sampled_from(scalars)) + " desc", "k0"]
    distinct = "distinct " if form == 1 else ""
    order = f"order {{ {', '.join(keys)} }}" if draw(st.booleans()) else ""
    limit = draw(st.sampled_from(["", "", "limit 3", "limit 2 offset 1", "limit 0", "limit 50"]))
    return f"{distinct}{{ {', '.join(columns)} }}", f"{order} {limit}"
