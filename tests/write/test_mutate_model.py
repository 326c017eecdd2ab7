"""Random sequences of mutations against a dictionary that knows what each statement should do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.write.rules.violations import ValidationError
from support.entities import entities
from support.places import Place

SCHEMA = """
node A { k: String @key   n: I32?   m: I32? }
node B { n: I32? }
edge E: A -> A { n: I32? }
edge F: A -> A { n: I32? }
"""
KEYS = ("a", "b", "c")
NUMBERS = (0, 1, 2)


@dataclass
class Row:
    """An entity; `is_stored` when a row with its id existed before the query."""

    values: dict[str, int | str | None]
    is_stored: bool = False

    def line(self, kind: str) -> str:
        ends = f"{self.values['from']}->{self.values['to']}" if "from" in self.values else None
        name = ends or self.values.get("k") or "*"
        shown = "".join(
            f" {key}={value}"
            for key, value in sorted(self.values.items())
            if value is not None and key not in ("k", "from", "to")
        )
        return f"{kind} {name}{shown}"


@dataclass
class Model:
    """The graph as lists of rows, and what the running query has met."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {kind: [] for kind in "ABEF"})
    nodes: int = 0
    edges: int = 0
    has_touched_stored: bool = False

    def begin(self) -> Model:
        """Return a copy in which everything is stored and nothing has been met."""
        copy = Model(deepcopy(self.rows))
        for row in (row for rows in copy.rows.values() for row in rows):
            row.is_stored = True
        return copy

    def count(self, kind: str, number: int) -> None:
        if kind in "AB":
            self.nodes += number
        else:
            self.edges += number

    def insert(self, kind: str, values: dict[str, int | str | None]) -> None:
        self.count(kind, 1)
        row = Row(values)
        if kind == "A":
            old = next((r for r in self.rows["A"] if r.values["k"] == values["k"]), None)
            if old is not None:
                self.has_touched_stored |= old.is_stored
                row.is_stored = old.is_stored
                self.rows["A"].remove(old)
        self.rows[kind].append(row)

    def upsert(self, values: dict[str, int | str | None]) -> None:
        old = next((r for r in self.rows["A"] if r.values["k"] == values["k"]), None)
        if old is None:
            self.insert("A", {"n": None, "m": None} | values)
            return
        self.count("A", 1)
        self.has_touched_stored |= old.is_stored
        old.values |= values

    def update(self, kind: str, test: Test, values: dict[str, int | str | None]) -> None:
        for row in self.rows[kind]:
            if test(row.values):
                self.count(kind, 1)
                self.has_touched_stored |= row.is_stored
                row.values |= values

    def delete(self, kind: str, test: Test) -> None:
        gone = [row for row in self.rows[kind] if test(row.values)]
        self.rows[kind] = [row for row in self.rows[kind] if not test(row.values)]
        self.count(kind, len(gone))
        self.has_touched_stored |= any(row.is_stored for row in gone)
        if kind == "A":
            keys = {row.values["k"] for row in gone}
            for edge in "EF":
                self.delete(edge, lambda v: v["from"] in keys or v["to"] in keys)

    @property
    def has_dangling_edges(self) -> bool:
        keys = {row.values["k"] for row in self.rows["A"]}
        ends = [row.values[end] for kind in "EF" for row in self.rows[kind] for end in ENDS]
        return any(end not in keys for end in ends)

    @property
    def has_changed(self) -> bool:
        rows = (row for rows in self.rows.values() for row in rows)
        return self.has_touched_stored or any(not row.is_stored for row in rows)

    def lines(self) -> list[str]:
        return sorted(row.line(kind) for kind, rows in self.rows.items() for row in rows)


ENDS = ("from", "to")
Test = Callable[[dict[str, int | str | None]], bool]


@dataclass(frozen=True)
class Condition:
    """A predicate as text and as a function; unknown counts as false."""

    text: str
    test: Test


@dataclass(frozen=True)
class Statement:
    text: str
    apply: Callable[[Model], None]

    def __repr__(self) -> str:
        return self.text


def compare(name: str, operator: str, value: int | str) -> Condition:
    literal = f'"{value}"' if isinstance(value, str) else str(value)

    def test(values: dict[str, int | str | None]) -> bool:
        found = values[name]
        if found is None:
            return False
        if operator == "=":
            return found == value
        if operator == "!=":
            return found != value
        assert isinstance(found, int)
        assert isinstance(value, int)
        return found < value if operator == "<" else found >= value

    return Condition(f"{name} {operator} {literal}", test)


def is_null(name: str, negated: bool) -> Condition:
    text = f"{name} is {'not ' if negated else ''}null"
    return Condition(text, lambda values: (values[name] is None) is not negated)


def both(left: Condition, right: Condition) -> Condition:
    return Condition(f"({left.text} and {right.text})", lambda v: left.test(v) and right.test(v))


def either(left: Condition, right: Condition) -> Condition:
    return Condition(f"({left.text} or {right.text})", lambda v: left.test(v) or right.test(v))


NUMBER_TESTS = st.one_of(
    st.builds(
        compare, st.just("n"), st.sampled_from(("=", "!=", "<", ">=")), st.sampled_from(NUMBERS)
    ),
    st.builds(is_null, st.just("n"), st.booleans()),
)
TEXTS = {"A": ("k",), "B": (), "E": ENDS, "F": ENDS}


def conditions(kind: str) -> st.SearchStrategy[Condition]:
    leaf = NUMBER_TESTS
    if TEXTS[kind]:
        leaf = leaf | st.builds(
            compare,
            st.sampled_from(TEXTS[kind]),
            st.sampled_from(("=", "!=")),
            st.sampled_from(KEYS),
        )
    return leaf | st.builds(both, leaf, leaf) | st.builds(either, leaf, leaf)


def fields(values: dict[str, int | str | None]) -> str:
    shown = (
        f'{name}: "{value}"' if isinstance(value, str) else f"{name}: {value}"
        for name, value in values.items()
        if value is not None
    )
    return "{ " + ", ".join(shown) + " }"


def insert(kind: str, values: dict[str, int | str | None]) -> Statement:
    text = f"insert {kind} {fields(values)}"
    return Statement(text, lambda model: model.insert(kind, dict(values)))


def upsert(key: str, changed: dict[str, int | str | None]) -> Statement:
    values = {"k": key} | changed
    return Statement(f"upsert A {fields(values)}", lambda model: model.upsert(dict(values)))


def update(kind: str, where: Condition, number: int) -> Statement:
    text = " ".join(("update", kind, f"set {{ n: {number} }} where", where.text))
    return Statement(text, lambda model: model.update(kind, where.test, {"n": number}))


def delete(kind: str, where: Condition) -> Statement:
    text = f"delete {kind} where {where.text}"
    return Statement(text, lambda model: model.delete(kind, where.test))


keys = st.sampled_from(KEYS)
numbers = st.sampled_from(NUMBERS)
maybe = st.none() | numbers
kinds = st.sampled_from("ABEF")

STATEMENTS = st.one_of(
    st.builds(lambda k, n, m: insert("A", {"k": k, "n": n, "m": m}), keys, maybe, maybe),
    st.builds(lambda n: insert("B", {"n": n}), numbers),
    st.builds(
        lambda kind, a, b, n: insert(kind, {"from": a, "to": b, "n": n}),
        st.sampled_from("EF"),
        keys,
        keys,
        maybe,
    ),
    st.builds(upsert, keys, st.fixed_dictionaries({}, optional={"n": numbers, "m": numbers})),
    kinds.flatmap(lambda kind: st.builds(update, st.just(kind), conditions(kind), numbers)),
    kinds.flatmap(lambda kind: st.builds(delete, st.just(kind), conditions(kind))),
)
SEED = [insert("A", {"k": key, "n": None, "m": None}) for key in KEYS]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "graph"
    Place(str(path)).init(SCHEMA).close()
    return path


@settings(max_examples=40)
@given(queries=st.lists(st.lists(STATEMENTS, min_size=1, max_size=7), min_size=1, max_size=4))
def test_mutations_do_what_a_dictionary_would_do(
    template: Path, queries: list[list[Statement]]
) -> None:
    model = Model()
    with TemporaryDirectory() as folder, ExitStack() as stack:
        shutil.copytree(template, f"{folder}/graph")
        graph = stack.enter_context(Place(f"{folder}/graph").open())
        for statements in (SEED, *queries):
            text = f"query q() {{ {' '.join(s.text for s in statements)} }}"
            after = model.begin()
            for statement in statements:
                statement.apply(after)
            if after.has_dangling_edges:
                with pytest.raises(ValidationError, match="not found in A"):
                    graph.mutate(text)
            else:
                result = graph.mutate(text)
                assert (result.affected_nodes, result.affected_edges) == (after.nodes, after.edges)
                assert (result.commit is not None) is after.has_changed
                model = after
            assert entities(graph) == model.lines()
