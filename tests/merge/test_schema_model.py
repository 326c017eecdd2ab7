"""Random schemas and rows on three branches, merged in all directions, against a small model.

The model knows types and properties by number and rows by type and id. It merges schemas aspect by
aspect and rows by the truth table, both as the merged schema sees them. Where it finds that two
schemas contradict each other, the graph must refuse; where it does not, the graph may refuse only
if both sides have touched the same thing. Every row and every value of both sides is in the
result, or it is named: by a conflict, or as dropped.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from omnigraph.errors import OmnigraphError
from omnigraph.graph import MergeResult, ReadTarget
from omnigraph.merge.conflicts import MergeConflictError
from omnigraph.write.export.exporter import stream_lines
from support.faulty_store import FaultMode, FaultPlan, SimulatedDeath
from support.places import Place
from support.sweeps import broken

BRANCHES: Final = ("main", "a", "b")
IDS: Final = [f"n{number}" for number in range(6)]
NAMES: Final = [f"p{number}" for number in range(5)]
TYPE_NAMES: Final = ["Item", "Thing", "Part"]
VALUES: Final[dict[str, list[Any]]] = {
    "I32": [None, 1, 2],
    "I64": [None, 1, 2, 5_000_000_000],
    "String": [None, "x", "y"],
}

Value = str | int | None
Row = dict[int, Value]
"""Values by the number of their property."""
Rows = dict[tuple[int, str], Row]
"""Rows by the number of their type and their id."""


@pytest.fixture(autouse=True)
def engine() -> str:
    """Merge in this process."""
    return "local"


@dataclass(frozen=True)
class Prop:
    """A property; `filled` is what stored rows got when it was added."""

    name: str
    scalar: str
    is_required: bool = False
    default: Value = None
    filled: Value = None

    @property
    def text(self) -> str:
        default = "" if self.default is None else f" @default({json.dumps(self.default)})"
        return f"{self.name}: {self.scalar}{'' if self.is_required else '?'}{default}"

    @property
    def shape(self) -> tuple[str, bool, Value]:
        return self.scalar, self.is_required, self.default


@dataclass(frozen=True)
class Kind:
    """A node type."""

    name: str
    props: dict[int, Prop]


@dataclass(frozen=True)
class State:
    """What one commit holds."""

    kinds: dict[int, Kind]
    rows: Rows

    def text(self, renamed: dict[int, str] | None = None) -> str:
        return "\n".join(
            f"node {kind.name}{_hint(number, renamed)} {{ slug: String @key   "
            + "   ".join(prop.text + _hint(no, renamed) for no, prop in kind.props.items())
            + " }"
            for number, kind in self.kinds.items()
        )


def _hint(number: int, renamed: dict[int, str] | None) -> str:
    return f' @rename_from("{renamed[number]}")' if renamed and number in renamed else ""


class Contradiction(Exception):  # noqa: N818 - it is no error of the test
    """Two schemas cannot be merged."""


@dataclass
class Numbers:
    """The numbers that mean the same, over all branches."""

    parents: dict[int, int] = field(default_factory=dict)
    following: int = 1

    def new(self) -> int:
        self.following += 1
        return self.following

    def find(self, number: int) -> int:
        while number in self.parents:
            number = self.parents[number]
        return number

    def unite(self, kept: int, other: int) -> None:
        if self.find(kept) != self.find(other):
            self.parents[self.find(other)] = self.find(kept)

    def canonical(self, state: State) -> State:
        """Return a state under the numbers that stand for all others."""
        find = self.find
        kinds = {
            find(number): replace(kind, props={find(no): p for no, p in kind.props.items()})
            for number, kind in state.kinds.items()
        }
        rows = {
            (find(number), name): {find(no): value for no, value in row.items()}
            for (number, name), row in state.rows.items()
        }
        return State(kinds, rows)


# -- merging schemas -------------------------------------------------------------------------------


def one_of(base: Any, source: Any, target: Any) -> Any:
    """Merge one aspect three ways."""
    if source in (base, target):
        return target
    if target == base:
        return source
    raise Contradiction


def merged_kinds(
    base: dict[int, Kind], source: dict[int, Kind], target: dict[int, Kind]
) -> dict[int, Kind]:
    found: dict[int, Kind] = {}
    for number in sorted(base.keys() | source.keys() | target.keys()):
        old, mine, theirs = base.get(number), source.get(number), target.get(number)
        if old is not None and (mine is None or theirs is None):
            if mine not in (None, old) or theirs not in (None, old):
                raise Contradiction  # One side dropped what the other changed.
            continue
        if mine is None or theirs is None:
            kind = mine or theirs
            assert kind is not None
            found[number] = kind
            continue
        first = old.props if old is not None else {}
        name = one_of(old.name if old is not None else mine.name, mine.name, theirs.name)
        found[number] = Kind(name, merged_props(first, mine.props, theirs.props))
    _require_distinct([kind.name for kind in found.values()])
    return found


def merged_props(
    base: dict[int, Prop], source: dict[int, Prop], target: dict[int, Prop]
) -> dict[int, Prop]:
    found: dict[int, Prop] = {}
    for number in sorted(base.keys() | source.keys() | target.keys()):
        old, mine, theirs = base.get(number), source.get(number), target.get(number)
        if old is not None and (mine is None or theirs is None):
            if mine not in (None, old) or theirs not in (None, old):
                raise Contradiction
            continue
        if mine is None or theirs is None:
            prop = mine or theirs
            assert prop is not None
            found[number] = prop
            continue
        before = old or theirs
        found[number] = Prop(
            *(
                one_of(getattr(before, name), getattr(mine, name), getattr(theirs, name))
                for name in ("name", "scalar", "is_required", "default", "filled")
            )
        )
    _require_distinct([prop.name for prop in found.values()])
    return found


def _require_distinct(names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise Contradiction


def united(base: State, source: State, target: State, numbers: Numbers) -> None:
    """Make one number of what both sides have added under one name with equal definitions."""
    for number, mine in source.kinds.items():
        if number in base.kinds or number in target.kinds:
            continue
        for other, theirs in target.kinds.items():
            if other in base.kinds or other in source.kinds or theirs.name != mine.name:
                continue
            shapes = [sorted((p.name, p.shape) for p in k.props.values()) for k in (mine, theirs)]
            if shapes[0] == shapes[1]:
                numbers.unite(other, number)
                _unite_props({}, mine.props, theirs.props, numbers)
    for number, mine in source.kinds.items():
        theirs_too = target.kinds.get(number)
        if theirs_too is not None:
            known = base.kinds[number].props if number in base.kinds else {}
            _unite_props(known, mine.props, theirs_too.props, numbers)


def _unite_props(
    base: dict[int, Prop], source: dict[int, Prop], target: dict[int, Prop], numbers: Numbers
) -> None:
    for number, mine in source.items():
        for other, theirs in target.items():
            is_new = {number, other}.isdisjoint(base) and number not in target
            is_same = (mine.name, mine.shape) == (theirs.name, theirs.shape)
            if is_new and other not in source and is_same:
                numbers.unite(other, number)


# -- merging rows ----------------------------------------------------------------------------------


def seen(row: Row | None, kind: Kind, *, is_new: bool) -> Row | None:
    """Return a row as the merged schema sees it."""
    if row is None:
        return None
    return {
        number: row.get(number, prop.default if is_new else prop.filled)
        for number, prop in kind.props.items()
    }


def losses(base: State, side: State, kinds: dict[int, Kind]) -> set[tuple[str, int, int | None]]:
    """Return what rows of one side would lose: types, and properties of types."""
    found: set[tuple[str, int, int | None]] = set()
    for (number, name), row in side.rows.items():
        before = base.rows.get((number, name))
        if number not in kinds:
            if before is None or any(before.get(no) != value for no, value in row.items()):
                found.add(("schema_type_dropped", number, None))
            continue
        for no, value in row.items():
            if no in kinds[number].props:
                continue
            prop = side.kinds[number].props[no]
            old = (None, prop.default) if before is None else (before.get(no, prop.filled),)
            if value not in old:
                found.add(("schema_dropped", number, no))
    return found


def merged_rows(
    base: State, source: State, target: State, kinds: dict[int, Kind]
) -> tuple[Rows, set[tuple[int, str]]]:
    """Return the rows of the merge, and the rows in conflict."""
    result: Rows = {}
    conflicts: set[tuple[int, str]] = set()
    for key in base.rows.keys() | source.rows.keys() | target.rows.keys():
        kind = kinds.get(key[0])
        if kind is None:
            continue
        is_new = key not in base.rows
        old = seen(base.rows.get(key), kind, is_new=False)
        mine = seen(source.rows.get(key), kind, is_new=is_new)
        theirs = seen(target.rows.get(key), kind, is_new=is_new)
        try:
            row = one_of(old, mine, theirs)
        except Contradiction:
            conflicts.add(key)
            continue
        if row is not None:
            result[key] = row
    return result, conflicts


# -- the graph and the model -----------------------------------------------------------------------


class World:
    """The graph and the model, step by step."""

    def __init__(self, root: Path, seed: int, *, kills: bool) -> None:
        self.random = random.Random(seed)
        self.kills = kills
        self.place = Place(str(root / "g.omni"))
        self.numbers = Numbers()
        first = Kind("Item", {self.numbers.new(): Prop("p0", "I32")})
        start = State({self.numbers.new(): first}, {})
        self.graph = self.place.init(start.text())
        self.states: dict[str, State] = {}
        self.heads: dict[str, State] = {}
        self.set_head("main", start)
        for name in BRANCHES[1:]:
            self.graph.branch_create_from("main", name)
            self.heads[name] = start
        self.merges = 0

    def set_head(self, branch: str, state: State) -> None:
        self.heads[branch] = state
        self.states[self.graph.head_commit_id_for_branch(branch)] = state

    def step(self) -> None:
        branch = self.random.choice(BRANCHES)
        act = self.random.choice([self.write, self.write, self.change_schema, self.merge])
        act(branch)

    # -- rows -------------------------------------------------------------------------------------

    def write(self, branch: str) -> None:
        state = self.heads[branch]
        if not state.kinds:
            return
        number = self.random.choice(sorted(state.kinds))
        kind, name = state.kinds[number], self.random.choice(IDS)
        rows = {key: row for key, row in state.rows.items() if key != (number, name)}
        if self.random.random() < 0.2:
            self.graph.mutate(
                f'query d() {{ delete {kind.name} where slug = "{name}" }}', branch=branch
            )
            if rows != state.rows:
                self.set_head(branch, State(state.kinds, rows))
            return
        row: Row = {no: self.value(prop) for no, prop in kind.props.items()}
        data = {"slug": name} | {kind.props[no].name: value for no, value in row.items()}
        line = json.dumps({"type": kind.name, "data": data})
        self.graph.load(line.encode(), mode="merge", branch=branch)
        self.set_head(branch, State(state.kinds, rows | {(number, name): row}))

    def value(self, prop: Prop) -> Value:
        known = VALUES[prop.scalar]
        return self.random.choice([v for v in known if v is not None or not prop.is_required])

    # -- schemas ----------------------------------------------------------------------------------

    def change_schema(self, branch: str) -> None:
        state = self.heads[branch]
        changed, renamed = self.changed(state)
        if changed is None or changed.kinds == state.kinds:
            return
        self.graph.apply_schema(changed.text(renamed), branch=branch)
        self.set_head(branch, changed)

    def changed(  # noqa: PLR0911 - one return for each kind of change
        self, state: State
    ) -> tuple[State | None, dict[int, str]]:
        kinds = dict(state.kinds)
        number = self.random.choice(sorted(kinds))
        kind = kinds[number]
        free_types = [name for name in TYPE_NAMES if name not in {k.name for k in kinds.values()}]
        free = [name for name in NAMES if name not in {p.name for p in kind.props.values()}]
        what = self.random.choice(["add", "add", "drop", "rename", "widen", "type", "rename type"])
        no = self.random.choice(sorted(kind.props)) if kind.props else None
        if what == "type" and free_types:
            kinds[self.numbers.new()] = Kind(free_types[0], {self.numbers.new(): self.added("p0")})
            return State(kinds, state.rows), {}
        if what == "rename type" and free_types:
            kinds[number] = replace(kind, name=free_types[-1])
            return State(kinds, state.rows), {number: kind.name}
        if what == "add" and free:
            new, prop = self.numbers.new(), self.added(self.random.choice(free))
            kinds[number] = replace(kind, props=kind.props | {new: prop})
            rows = {
                key: row | {new: prop.filled} if key[0] == number else row
                for key, row in state.rows.items()
            }
            return State(kinds, rows), {}
        if no is None:
            return None, {}
        prop, others = kind.props[no], {n: p for n, p in kind.props.items() if n != no}
        if what == "drop" and len(kinds) > 1 and self.random.random() < 0.3:
            kinds.pop(number)
            return State(kinds, {k: r for k, r in state.rows.items() if k[0] != number}), {}
        if what == "drop":
            kinds[number] = replace(kind, props=others)
            rows = {
                key: {n: v for n, v in row.items() if n != no} for key, row in state.rows.items()
            }
            return State(kinds, rows), {}
        if what == "rename" and free:
            kinds[number] = replace(kind, props=others | {no: replace(prop, name=free[0])})
            return State(kinds, state.rows), {no: prop.name}
        if what == "widen" and prop.scalar == "I32":
            kinds[number] = replace(kind, props=others | {no: replace(prop, scalar="I64")})
            return State(kinds, state.rows), {}
        return None, {}

    def added(self, name: str) -> Prop:
        scalar = self.random.choice(["I32", "String"])
        default = self.random.choice(VALUES[scalar])
        is_required = default is not None and self.random.random() < 0.5
        return Prop(name, scalar, is_required, default, default if is_required else None)

    # -- merges -----------------------------------------------------------------------------------

    def merge(self, source: str) -> None:
        target = self.random.choice([name for name in BRANCHES if name != source])
        commit = self.graph.merge_base(source, target)
        assert commit is not None
        base, mine, theirs = self.canonical(commit.graph_commit_id, source, target)
        united(base, mine, theirs, self.numbers)
        base, mine, theirs = self.canonical(commit.graph_commit_id, source, target)
        expected, found = self.expected(base, mine, theirs)
        if self.kills and self.was_killed_after(source, target):
            assert expected is not None
            assert not found
            self.set_head(target, expected)
            self.check(target)
            return
        before = self.graph.head_commit_id_for_branch(target)
        result, error = self.attempt(source, target)
        if error is not None:
            assert self.graph.head_commit_id_for_branch(target) == before
            shown = [conflict.to_json() for conflict in error.conflicts]
            if {str(conflict.kind) for conflict in error.conflicts} == {"schema_conflict"}:
                assert expected is None or self.both_touched(base, mine, theirs), shown
                return
            assert expected is not None, shown
            assert self.named(error) == found, shown
            return
        assert result is not None
        assert expected is not None, "schemas that contradict each other were merged"
        assert not found, f"{found} were not named"
        if result.outcome != "already_up_to_date":
            self.merges += 1
            self.set_head(target, expected)
        assert self.graph.branch_merge(source, target).outcome == "already_up_to_date"
        self.check(target)

    def was_killed_after(self, source: str, target: str) -> bool:
        """Let the merge die at some effect; return whether recovery has finished it."""
        before = self.graph.head_commit_id_for_branch(target)
        plan = FaultPlan(at=self.random.randint(1, 40), mode=FaultMode.DIE_AFTER)
        with suppress(SimulatedDeath, OmnigraphError):
            broken(self.place, plan).branch_merge(source, target)
        self.graph = self.place.open()
        assert self.graph.recovery_status() == []
        [head] = self.graph.list_commits(branch=target, limit=1)
        if head.graph_commit_id == before:
            return False
        if head.operation == "recovery":
            # Tables that had moved were put back, which is a commit without changes.
            self.set_head(target, self.heads[target])
            self.check(target)
            return False
        return True

    def attempt(
        self, source: str, target: str
    ) -> tuple[MergeResult | None, MergeConflictError | None]:
        try:
            return self.graph.branch_merge(source, target), None
        except MergeConflictError as error:
            return None, error

    def canonical(self, commit_id: str, source: str, target: str) -> tuple[State, State, State]:
        known = self.states[commit_id], self.heads[source], self.heads[target]
        base, mine, theirs = (self.numbers.canonical(state) for state in known)
        return base, mine, theirs

    def expected(
        self, base: State, source: State, target: State
    ) -> tuple[State | None, set[tuple[str, str, str]]]:
        """Return the state that a merge comes to, and what conflicts; None for schemas."""
        try:
            kinds = merged_kinds(base.kinds, source.kinds, target.kinds)
        except Contradiction:
            return None, set()
        lost = losses(base, source, kinds) | losses(base, target, kinds)
        if lost:
            return State(kinds, {}), set(self.spelled(lost, kinds, (source, target)))
        rows, conflicts = merged_rows(base, source, target, kinds)
        named = {("row", kinds[number].name, name) for number, name in conflicts}
        return State(kinds, rows), named

    def spelled(
        self,
        lost: set[tuple[str, int, int | None]],
        kinds: dict[int, Kind],
        sides: tuple[State, ...],
    ) -> Iterator[tuple[str, str, str]]:
        for kind, number, no in lost:
            holders = [side.kinds[number] for side in sides if number in side.kinds]
            if no is None:
                yield kind, holders[0].name, ""
            else:
                [prop] = {h.props[no].name for h in holders if no in h.props}
                yield kind, kinds[number].name, prop

    def named(self, error: MergeConflictError) -> set[tuple[str, str, str]]:
        found = set()
        for conflict in error.conflicts:
            name = conflict.table_key.partition(":")[2]
            if conflict.entity_id is not None:
                found.add(("row", name, conflict.entity_id))
            else:
                prop = str(conflict.details.get("property", ""))
                found.add((str(conflict.kind), name, prop))
        return found

    def both_touched(self, base: State, source: State, target: State) -> bool:
        """Whether both sides have changed one type, or added or renamed to one name."""
        touched = []
        for side in (source, target):
            changed = {
                number
                for number in base.kinds.keys() | side.kinds.keys()
                if base.kinds.get(number) != side.kinds.get(number)
            }
            names = {side.kinds[n].name for n in changed if n in side.kinds}
            touched.append((changed, names))
        return bool(touched[0][0] & touched[1][0] or touched[0][1] & touched[1][1])

    def check(self, branch: str) -> None:
        state = self.heads[branch]
        snapshot = self.graph.snapshot_of(ReadTarget.branch(branch))
        names = {
            kind.name: sorted(p.name for p in kind.props.values()) for kind in state.kinds.values()
        }
        assert names == {
            name: sorted(set(node.properties) - {"slug"})
            for name, node in snapshot.catalog.node_types.items()
        }
        stored: dict[tuple[str, str], dict[str, Value]] = {}
        for line in stream_lines(snapshot):
            record = json.loads(line)
            data = {k: v for k, v in record["data"].items() if v is not None and k != "id"}
            stored[record["type"], data.pop("slug")] = data
        assert stored == {
            (state.kinds[number].name, name): {
                state.kinds[number].props[no].name: value
                for no, value in row.items()
                if value is not None
            }
            for (number, name), row in state.rows.items()
        }


def run(root: Path, seed: int, steps: int, *, kills: bool = False) -> int:
    world = World(root, seed, kills=kills)
    for _ in range(steps):
        world.step()
    for branch in BRANCHES:
        world.check(branch)
    return world.merges


@pytest.mark.parametrize("seed", range(4))
def test_merges_of_schemas_and_rows_give_what_the_model_gives(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, 24)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_long_histories_of_schemas_and_rows_give_what_the_model_gives(
    tmp_path: Path, seed: int
) -> None:
    run(tmp_path, seed, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 260))
def test_merges_that_die_are_finished_or_taken_back(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, 40, kills=True)
