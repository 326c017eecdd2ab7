"""What a load means, written with dictionaries: slow, obvious, and independent of the engine.

A graph is a dictionary from type to a dictionary from id to row. Ids that a load would make are
`Made` objects. `load` returns the next graph, or the problems as (rule, line) pairs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field

Row = dict[str, object]
Rows = dict[object, Row]


@dataclass(frozen=True)
class ModelType:
    """A node type, or an edge type when it has ends."""

    name: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    ends: tuple[str, str] | None = None
    card: tuple[int, int | None] = (0, None)

    @property
    def properties(self) -> tuple[str, ...]:
        return tuple(sorted(self.required + self.optional))

    def text(self) -> str:
        """Spell the type as a schema; every property is a small integer with a range."""
        members = [f"{name}: I32" for name in self.required]
        members += [f"{name}: I32?" for name in self.optional]
        members += [f"@unique({', '.join(members_)})" for members_ in self.unique]
        if self.ends is None:
            members += [f"@range({name}, 0..9)" for name in self.properties]
            members += [f"@key({', '.join(self.key)})"] if self.key else []
            return f"node {self.name} {{ {' '.join(members)} }}"
        low, high = self.card
        card = "" if self.card == (0, None) else f" @card({low}..{'' if high is None else high})"
        source, target = self.ends
        return f"edge {self.name}: {source} -> {target}{card} {{ {' '.join(members)} }}"


class Made:
    """An id that the load makes itself."""


@dataclass
class Model:
    types: dict[str, ModelType]
    graph: dict[str, Rows] = field(default_factory=dict)

    def rows(self, name: str) -> Rows:
        return self.graph.setdefault(name, {})

    def load(self, records: list[dict[str, object]], mode: str) -> Outcome:
        """Judge records of the form of a bulk load, each already a legal envelope."""
        outcome = Outcome()
        written: dict[str, list[tuple[int, object, Row]]] = {}
        for line, record in enumerate(records, 1):
            self._read(line, record, written, outcome)
        folded = {name: self._fold(rows, mode) for name, rows in written.items()}
        is_readable = not outcome.problems
        for name, rows in folded.items():
            self._values(self.types[name], rows, outcome)
        if not is_readable:
            return outcome
        after = {name: dict(rows) for name, rows in self.graph.items()}
        for name, rows in folded.items():
            if mode == "overwrite":
                after[name] = {}
            for _, identity, row in rows:
                after.setdefault(name, {})[identity] = row
        for name in sorted(self.types):
            kind = self.types[name]
            self._unique(kind, written.get(name, []), folded.get(name, []), mode, outcome)
            if kind.ends is not None:
                self._ends(kind, folded.get(name, []), after, outcome)
                self._card(kind, folded.get(name), after, mode, outcome)
        if not outcome.problems:
            self._conflicts(written, mode, outcome)
        outcome.graph = after
        return outcome

    def _read(
        self,
        line: int,
        record: dict[str, object],
        written: dict[str, list[tuple[int, object, Row]]],
        outcome: Outcome,
    ) -> None:
        kind = self.types[str(record.get("type", record.get("edge")))]
        data = record.get("data", {})
        assert isinstance(data, dict)
        row: Row = {}
        is_good = True
        for name in kind.properties:
            value = data.get(name)
            if value is None and name in kind.required:
                outcome.add("required", line)
                is_good = False
            elif value is not None and type(value) is not int:
                outcome.add("type", line)
                is_good = False
            row[name] = value
        if kind.ends is not None:
            row["src"], row["dst"] = record["from"], record["to"]
        identity: object = data.get("id") or Made()
        if kind.key:
            identity = self._key(kind, row)
        written.setdefault(kind.name, [])
        if is_good:
            written[kind.name].append((line, identity, row))

    @staticmethod
    def _key(kind: ModelType, row: Row) -> str:
        spelled = [str(row[name]) for name in sorted(kind.key)]
        return spelled[0] if len(spelled) == 1 else '["' + '","'.join(spelled) + '"]'

    @staticmethod
    def _fold(rows: list[tuple[int, object, Row]], mode: str) -> list[tuple[int, object, Row]]:
        if mode != "merge":
            return rows
        last = {identity: number for number, (_, identity, _) in enumerate(rows)}
        return [rows[number] for number in sorted(last.values())]

    @staticmethod
    def _values(kind: ModelType, rows: list[tuple[int, object, Row]], outcome: Outcome) -> None:
        if kind.ends is not None:
            return
        for line, _, row in rows:
            for name in kind.properties:
                value = row[name]
                if isinstance(value, int) and not 0 <= value <= 9:
                    outcome.add("range", line)

    def _unique(
        self,
        kind: ModelType,
        records: list[tuple[int, object, Row]],
        folded: list[tuple[int, object, Row]],
        mode: str,
        outcome: Outcome,
    ) -> None:
        if kind.key:
            seen: set[object] = set()
            for line, identity, _ in records:
                if identity in seen:
                    outcome.add("key", line)
                seen.add(identity)
        own = {identity for _, identity, _ in folded}
        for members in kind.unique:
            tuples: set[object] = set()
            for line, _, row in records:
                found = tuple(row[name] for name in members)
                if None not in found and found in tuples:
                    outcome.add("unique", line)
                tuples.add(found)
            if mode == "overwrite":
                continue
            held = {
                tuple(row[name] for name in members)
                for identity, row in self.rows(kind.name).items()
                if identity not in own
            }
            for line, _, row in folded:
                found = tuple(row[name] for name in members)
                if None not in found and found in held:
                    outcome.add("unique", line)

    def _ends(
        self,
        kind: ModelType,
        folded: list[tuple[int, object, Row]],
        after: dict[str, Rows],
        outcome: Outcome,
    ) -> None:
        assert kind.ends is not None
        lines = {id(row): line for line, _, row in folded}
        rows = [row for _, _, row in folded]
        rows += [row for row in after.get(kind.name, {}).values() if id(row) not in lines]
        for row, (end, node_type) in itertools.product(
            rows, zip(("src", "dst"), kind.ends, strict=True)
        ):
            if row[end] not in after.get(node_type, {}):
                outcome.add("endpoint", lines.get(id(row)))

    def _card(
        self,
        kind: ModelType,
        folded: list[tuple[int, object, Row]] | None,
        after: dict[str, Rows],
        mode: str,
        outcome: Outcome,
    ) -> None:
        if folded is None:
            return
        before = self.rows(kind.name)
        affected: dict[object, int | None] = {row["src"]: line for line, _, row in folded}
        if mode != "overwrite":
            for _, identity, _ in folded:
                if identity in before:
                    affected.setdefault(before[identity]["src"], None)
        # Two records of one id both count where nothing folds them; that is a conflict later.
        rows = [row for _, _, row in folded]
        own = {identity for _, identity, _ in folded}
        rows += [row for identity, row in after[kind.name].items() if identity not in own]
        counts = Counter(row["src"] for row in rows)
        low, high = kind.card
        for source, line in affected.items():
            if counts[source] < low or (high is not None and counts[source] > high):
                outcome.add("cardinality", line)

    def _conflicts(
        self, written: dict[str, list[tuple[int, object, Row]]], mode: str, outcome: Outcome
    ) -> None:
        if mode == "merge":
            return
        for name, rows in written.items():
            ids = [identity for _, identity, _ in rows]
            is_stored = mode == "append" and any(one in self.rows(name) for one in ids)
            if len(set(ids)) < len(ids) or is_stored:
                outcome.is_conflict = True


@dataclass
class Outcome:
    problems: list[tuple[str, int | None]] = field(default_factory=list)
    is_conflict: bool = False
    graph: dict[str, Rows] = field(default_factory=dict)

    def add(self, rule: str, line: int | None) -> None:
        self.problems.append((rule, line))

    @property
    def is_legal(self) -> bool:
        return not self.problems and not self.is_conflict

    @property
    def answer(self) -> object:
        """What the caller hears: sorted problems, a key conflict, or that it was loaded."""
        if self.problems:
            return sorted((rule, line or 0) for rule, line in self.problems)
        return "key conflict" if self.is_conflict else "loaded"


def model_lines(model: Model) -> list[str]:
    """Return the graph in the form of `support.loads.graph_lines`."""
    lines = []
    for name, rows in model.graph.items():
        kind = model.types[name]
        for identity, row in rows.items():
            shown = ", ".join(
                f'"{member}": {row[member]}'
                for member in kind.properties
                if row[member] is not None
            )
            ends = "" if kind.ends is None else f" {row['src']}->{row['dst']}"
            shown_id = "*" if isinstance(identity, Made) else identity
            lines.append(f"{name} {shown_id}{ends} {{{shown}}}")
    return sorted(lines)
