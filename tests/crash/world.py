"""What a graph should contain: dictionaries, and the meaning of operations on them.

A `World` is the truth about all branches. `Workload` draws operations that are legal in a world and
says what the world is afterwards. One seed fixes everything that it draws.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from crash.child import Form

BRANCHES_MAX: Final = 3
BRANCH_NAMES: Final = ("draft", "review", "team/a", "team/b")
EXTRAS: Final = ("Extra0", "Extra1")
AGES: Final = (None, 1, 2, 3, 4)
DAY_S: Final = 24 * 3600
_UPDATE: Final = "update {kind} set {{ {change} }} where {where}"

Content = dict[str, list[tuple[object, ...]]]
"""Rows by table, sorted, below the names of their columns."""


@dataclass(frozen=True)
class Shape:
    """A schema: everything that a schema apply may change."""

    place: str = "City"
    age: str = "age"
    has_note: bool = False
    extras: frozenset[str] = frozenset()

    def text(self, before: Shape | None = None) -> str:
        """Spell the schema, with the names that it comes from."""
        place = "" if before in (None, self) else _renamed_type(before, self)
        age = "" if before in (None, self) else _renamed_age(before, self)
        note = "    note: String?\n" if self.has_note else ""
        extras = "".join(f"node {name} {{ code: String @key }}\n" for name in sorted(self.extras))
        return (
            f"node Person {{\n    name: String @key\n    {self.age}: I32? @index{age}\n{note}}}\n"
            f"node {self.place}{place} {{ name: String @key }}\n"
            "edge Knows: Person -> Person { since: I32? }\n"
            f"edge LivesIn: Person -> {self.place}\n{extras}"
        )


def _renamed_type(before: Shape | None, after: Shape) -> str:
    assert before is not None
    return "" if before.place == after.place else f' @rename_from("{before.place}")'


def _renamed_age(before: Shape | None, after: Shape) -> str:
    assert before is not None
    return "" if before.age == after.age else f" @rename_from({before.age})"


@dataclass
class Rows:
    """The rows of one branch."""

    people: dict[str, tuple[int | None, str | None]] = field(default_factory=dict)
    places: set[str] = field(default_factory=set)
    knows: list[tuple[str, str, int | None]] = field(default_factory=list)
    lives_in: list[tuple[str, str]] = field(default_factory=list)
    extras: dict[str, set[str]] = field(default_factory=dict)

    def copy(self) -> Rows:
        return Rows(
            dict(self.people),
            set(self.places),
            list(self.knows),
            list(self.lives_in),
            {name: set(codes) for name, codes in self.extras.items()},
        )

    def delete_people(self, gone: set[str]) -> None:
        self.people = {name: row for name, row in self.people.items() if name not in gone}
        self.knows = [edge for edge in self.knows if not gone & set(edge[:2])]
        self.lives_in = [edge for edge in self.lives_in if edge[0] not in gone]

    def delete_place(self, gone: str) -> None:
        self.places.discard(gone)
        self.lives_in = [edge for edge in self.lives_in if edge[1] != gone]

    def content(self, shape: Shape) -> Content:
        note = ("note",) if shape.has_note else ()
        people = [
            (name, age, note) if shape.has_note else (name, age)
            for name, (age, note) in self.people.items()
        ]
        found: Content = {
            "node:Person": _table(("name", shape.age, *note), people),
            f"node:{shape.place}": _table(("name",), [(name,) for name in self.places]),
            "edge:Knows": _table(("src", "dst", "since"), self.knows),
            "edge:LivesIn": _table(("src", "dst"), self.lives_in),
        }
        for name in shape.extras:
            codes = [(code,) for code in self.extras.get(name, ())]
            found[f"node:{name}"] = _table(("code",), codes)
        return found


Edge = TypeVar("Edge", bound=tuple[object, ...])


def _merged(stored: Counter[Edge], edges: list[Edge]) -> list[Edge]:
    """Return edges after a merge, given the stored ones and those with the records behind them.

    Every stored edge stands for one equal record.
    """
    every = Counter(edges)
    return [
        edge
        for edge, count in every.items()
        for _ in range(max(stored[edge], count - stored[edge]))
    ]


def _table(names: tuple[str, ...], rows: list[Any]) -> list[tuple[object, ...]]:
    return [names, *sorted(rows, key=repr)]


@dataclass
class World:
    """The truth about a graph."""

    shape: Shape = field(default_factory=Shape)
    branches: dict[str, Rows] = field(default_factory=lambda: {"main": Rows()})
    sources: dict[str, str] = field(default_factory=dict)
    """Where each branch was cut from."""
    changes: dict[str, int] = field(default_factory=lambda: {"main": 0})
    """How often each branch was written."""
    bases: dict[str, int] = field(default_factory=dict)
    """How often the source of each branch had been written when the two were last one."""

    def copy(self) -> World:
        branches = {name: rows.copy() for name, rows in self.branches.items()}
        shared = (dict(self.sources), dict(self.changes), dict(self.bases))
        return World(self.shape, branches, *shared)

    def mergeable(self) -> list[str]:
        """Return the branches whose source has not moved: merging makes both the same."""
        return sorted(
            name
            for name, source in self.sources.items()
            if self.changes[source] == self.bases[name] and self.changes[name]
        )

    def content(self) -> dict[str, Content]:
        return {name: rows.content(self.shape) for name, rows in self.branches.items()}


@dataclass(frozen=True)
class Operation:
    """Something to do, and what is true afterwards."""

    form: Form
    after: World

    @property
    def branch(self) -> str:
        return str(self.form.get("branch", "main"))


class Workload:
    """Draws operations from a seed."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)
        self._numbers = itertools.count()

    def operations(self, world: World, count: int, *, orphan_age_s: int) -> list[Operation]:
        """Draw operations that follow each other."""
        drawn = []
        for _ in range(count):
            operation = self.operation(world, orphan_age_s=orphan_age_s)
            drawn.append(operation)
            world = operation.after
        return drawn

    def operation(self, world: World, *, orphan_age_s: int = DAY_S) -> Operation:
        """Draw one operation that is legal in this world."""
        can_apply = len(world.branches) == 1
        can_create = len(world.branches) <= BRANCHES_MAX
        leaves = sorted(set(world.branches) - {"main"} - set(world.sources.values()))
        mergeable = world.mergeable()
        choices: list[tuple[int, Callable[[World], Form]]] = [
            (40, self._mutate),
            (12, self._append),
            (8, self._merge),
            (6, self._overwrite),
            (4, self._load_tables),
            (5, lambda _: {"kind": "optimize"}),
            (5, lambda w: {"kind": "ensure_indices", "branch": self._branch(w)}),
            (4, lambda _: self._cleanup(orphan_age_s)),
            (14 if can_apply else 0, self._schema),
            (4 if can_create else 0, self._create),
            (9 if leaves else 0, lambda w: self._delete(w, leaves)),
            (40 if mergeable else 0, lambda w: self._merge_branch(w, mergeable)),
        ]
        weights = [weight for weight, _ in choices]
        draw = self.chance.choices([draw for _, draw in choices], weights)[0]
        after = world.copy()
        form = draw(after)
        if "branch" in form:
            after.changes[form["branch"]] += 1
        return Operation(form, after)

    # -- branches and maintenance ------------------------------------------------------------------

    def _branch(self, world: World) -> str:
        """Draw a branch, seldom one that others were cut from, so that those can be merged."""
        names = sorted(world.branches)
        weights = [1 if name in world.sources.values() else 4 for name in names]
        return self.chance.choices(names, weights)[0]

    def _cleanup(self, orphan_age_s: int) -> Form:
        keep = self.chance.choice((1, 2, 10))
        return {"kind": "cleanup", "keep": keep, "orphan_age_s": orphan_age_s}

    def _create(self, world: World) -> Form:
        source = self._branch(world)
        name = self.chance.choice([n for n in BRANCH_NAMES if n not in world.branches])
        world.branches[name] = world.branches[source].copy()
        world.sources[name] = source
        world.changes[name], world.bases[name] = 0, world.changes[source]
        return {"kind": "branch_create", "source": source, "name": name}

    def _delete(self, world: World, leaves: list[str]) -> Form:
        name = self.chance.choice(leaves)
        for known in (world.branches, world.sources, world.changes, world.bases):
            del known[name]
        return {"kind": "branch_delete", "name": name}

    def _merge_branch(self, world: World, mergeable: list[str]) -> Form:
        name = self.chance.choice(mergeable)
        target = world.sources[name]
        world.branches[target] = world.branches[name].copy()
        # The change of the target is counted by whoever drew this operation.
        world.bases[name] = world.changes[target] + 1
        linked = self.chance.random() < 0.5
        return {"kind": "branch_merge", "source": name, "branch": target, "linked": linked}

    def _schema(self, world: World) -> Form:
        before, rows = world.shape, world.branches["main"]
        changes = self.chance.sample(("place", "age", "note", "extra"), self.chance.randint(1, 2))
        shape = before
        if "place" in changes:
            shape = replace(shape, place="Town" if shape.place == "City" else "City")
        if "age" in changes:
            shape = replace(shape, age="years" if shape.age == "age" else "age")
        if "note" in changes:
            shape = replace(shape, has_note=not shape.has_note)
            rows.people = {name: (age, None) for name, (age, _) in rows.people.items()}
        if "extra" in changes:
            name = self.chance.choice(EXTRAS)
            shape = replace(shape, extras=shape.extras ^ {name})
            rows.extras.pop(name, None)
        world.shape = shape
        return {
            "kind": "schema",
            "text": shape.text(before),
            "allow_data_loss": self.chance.random() < 0.5,
        }

    # -- loads ------------------------------------------------------------------------------------

    def _append(self, world: World) -> Form:
        branch = self._branch(world)
        rows = world.branches[branch]
        count = self.chance.randint(1, 6)
        records = [self._person(world, rows, self._fresh("p")) for _ in range(count)]
        if self.chance.random() < 0.5:
            name = self._fresh("c")
            rows.places.add(name)
            records.append({"type": world.shape.place, "data": {"name": name}})
        for name in sorted(world.shape.extras):
            code = self._fresh("x")
            rows.extras.setdefault(name, set()).add(code)
            records.append({"type": name, "data": {"code": code}})
        records += self._edges(rows, self.chance.randint(0, 4))
        return {"kind": "load", "mode": "append", "branch": branch, "records": records}

    def _merge(self, world: World) -> Form:
        branch = self._branch(world)
        rows = world.branches[branch]
        known = self.chance.sample(sorted(rows.people), min(len(rows.people), 3))
        records = [self._person(world, rows, name) for name in (*known, self._fresh("p"))]
        knows, lives_in = Counter(rows.knows), Counter(rows.lives_in)
        records += self._edges(rows, self.chance.randint(0, 2))
        rows.knows = _merged(knows, rows.knows)
        rows.lives_in = _merged(lives_in, rows.lives_in)
        return {"kind": "load", "mode": "merge", "branch": branch, "records": records}

    def _overwrite(self, world: World) -> Form:
        branch = self._branch(world)
        rows = world.branches[branch]
        names = sorted(rows.people)
        if names and self.chance.random() < 0.5:
            rows.knows = []
            records = [self._knows(rows) for _ in range(self.chance.randint(1, 4))]
        else:
            records = [self._person(world, rows, n) for n in (*names, self._fresh("p"))]
        return {"kind": "load", "mode": "overwrite", "branch": branch, "records": records}

    def _load_tables(self, world: World) -> Form:
        branch = self._branch(world)
        rows = world.branches[branch]
        data = [
            self._person(world, rows, self._fresh("p"))["data"]
            for _ in range(self.chance.randint(1, 9))
        ]
        nodes = {"Person": {name: [one[name] for one in data] for name in data[0]}}
        if all(age is None for age in nodes["Person"][world.shape.age]):
            # A column of nulls has no type of its own: leave it out.
            del nodes["Person"][world.shape.age]
        if world.shape.has_note and all(note is None for note in nodes["Person"]["note"]):
            del nodes["Person"]["note"]
        return {"kind": "load_tables", "mode": "append", "branch": branch, "nodes": nodes}

    def _person(self, world: World, rows: Rows, name: str) -> dict[str, Any]:
        age = self.chance.choice(AGES)
        note = self.chance.choice((None, "n")) if world.shape.has_note else None
        rows.people[name] = (age, note)
        data: dict[str, Any] = {"name": name, world.shape.age: age}
        if world.shape.has_note:
            data["note"] = note
        return {"type": "Person", "data": data}

    def _edges(self, rows: Rows, count: int) -> list[dict[str, Any]]:
        edges = []
        for _ in range(count):
            if rows.places and self.chance.random() < 0.4:
                person, place = self._one(rows.people), self._one(rows.places)
                rows.lives_in.append((person, place))
                edges.append({"edge": "LivesIn", "from": person, "to": place})
            else:
                edges.append(self._knows(rows))
        return edges

    def _knows(self, rows: Rows) -> dict[str, Any]:
        edge = (self._one(rows.people), self._one(rows.people), self.chance.choice(AGES))
        rows.knows.append(edge)
        return {"edge": "Knows", "from": edge[0], "to": edge[1], "data": {"since": edge[2]}}

    # -- mutations --------------------------------------------------------------------------------

    def _mutate(self, world: World) -> Form:
        branch = self._branch(world)
        rows = world.branches[branch]
        statements = [
            self._statement(world.shape, rows) for _ in range(self.chance.choice((1, 1, 2, 4)))
        ]
        text = f"query q() {{ {' '.join(statements)} }}"
        return {"kind": "mutate", "branch": branch, "text": text}

    def _statement(self, shape: Shape, rows: Rows) -> str:
        draw = self.chance.choice(
            (
                self._insert_person,
                self._insert_person,
                self._insert_place,
                self._insert_edge,
                self._insert_edge,
                self._upsert_person,
                self._update_people,
                self._update_edges,
                self._delete_person,
                self._delete_place,
                self._delete_edges,
            )
        )
        return draw(shape, rows) or self._insert_person(shape, rows)

    def _insert_person(self, shape: Shape, rows: Rows) -> str:
        known = rows.people and self.chance.random() < 0.3
        name = self._one(rows.people) if known else self._fresh("p")
        age = self.chance.choice(AGES)
        rows.people[name] = (age, None)
        return f'insert Person {{ name: "{name}"{_property(shape.age, age)} }}'

    def _insert_place(self, shape: Shape, rows: Rows) -> str:
        name = self._fresh("c")
        rows.places.add(name)
        return f'insert {shape.place} {{ name: "{name}" }}'

    def _insert_edge(self, shape: Shape, rows: Rows) -> str | None:
        if not rows.people:
            return None
        source = self._one(rows.people)
        if rows.places and self.chance.random() < 0.4:
            target = self._one(rows.places)
            rows.lives_in.append((source, target))
            return f'insert LivesIn {{ from: "{source}", to: "{target}" }}'
        target, since = self._one(rows.people), self.chance.choice(AGES)
        rows.knows.append((source, target, since))
        return f'insert Knows {{ from: "{source}", to: "{target}"{_property("since", since)} }}'

    def _upsert_person(self, shape: Shape, rows: Rows) -> str | None:
        if not rows.people:
            return None
        name, age = self._one(rows.people), self.chance.randint(5, 9)
        rows.people[name] = (age, rows.people[name][1])
        return f'upsert Person {{ name: "{name}", {shape.age}: {age} }}'

    def _update_people(self, shape: Shape, rows: Rows) -> str:
        limit, age = self.chance.randint(0, 4), self.chance.randint(0, 9)
        for name, (old, note) in rows.people.items():
            if old is not None and old > limit:
                rows.people[name] = (age, note)
        where = f"{shape.age} > {limit}"
        return _UPDATE.format(kind="Person", change=f"{shape.age}: {age}", where=where)

    def _update_edges(self, shape: Shape, rows: Rows) -> str | None:
        if not rows.knows:
            return None
        source, target, _ = self.chance.choice(rows.knows)
        since = self.chance.randint(0, 9)
        rows.knows = [
            (*edge[:2], since) if edge[:2] == (source, target) else edge for edge in rows.knows
        ]
        where = f'from = "{source}" and to = "{target}"'
        return _UPDATE.format(kind="Knows", change=f"since: {since}", where=where)

    def _delete_person(self, shape: Shape, rows: Rows) -> str | None:
        if not rows.people:
            return None
        name = self._one(rows.people)
        rows.delete_people({name})
        return f'delete Person where name = "{name}"'

    def _delete_place(self, shape: Shape, rows: Rows) -> str | None:
        if not rows.places:
            return None
        name = self._one(rows.places)
        rows.delete_place(name)
        return f'delete {shape.place} where name = "{name}"'

    def _delete_edges(self, shape: Shape, rows: Rows) -> str | None:
        if not rows.knows:
            return None
        source, target, _ = self.chance.choice(rows.knows)
        rows.knows = [edge for edge in rows.knows if edge[:2] != (source, target)]
        return f'delete Knows where from = "{source}" and to = "{target}"'

    # -- names ------------------------------------------------------------------------------------

    def _one(self, names: Mapping[str, object] | set[str]) -> str:
        return self.chance.choice(sorted(names))

    def _fresh(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"


def _property(name: str, value: int | None) -> str:
    return "" if value is None else f", {name}: {value}"
