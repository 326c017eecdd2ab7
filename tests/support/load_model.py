"""What a load means, written with dictionaries: slow, obvious, and independent of the engine.

A graph is a dictionary from type to a dictionary from id to row. Ids that a load would make are
`Made` objects. `load` returns the next graph, or the problems as (rule, line) pairs; with a
quarantine it leaves out what breaks a rule, again and again until nothing more falls.
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


@dataclass(frozen=True)
class Record:
    """A record that could be read: its line, its id and its row."""

    line: int
    identity: object
    row: Row


Written = dict[str, list[Record]]


@dataclass(frozen=True)
class Problem:
    """A broken rule; `rejects` are the lines that have to go for it to hold, `line` is reported."""

    rule: str
    line: int | None
    rejects: tuple[int, ...] = ()


@dataclass
class Model:
    types: dict[str, ModelType]
    graph: dict[str, Rows] = field(default_factory=dict)
    cascades: bool = False

    def rows(self, name: str) -> Rows:
        return self.graph.setdefault(name, {})

    def load(
        self,
        records: list[dict[str, object]],
        mode: str,
        *,
        quarantines: bool = False,
        keeps_last: bool = False,
        cascades: bool = False,
        adds_edges: bool = False,
    ) -> Outcome:
        """Judge records of the form of a bulk load, each already a legal envelope."""
        self.cascades = cascades
        outcome = Outcome()
        read: Written = {}
        for line, record in enumerate(records, 1):
            self._read(line, record, read, outcome)
        superseded = self._superseded(read, keeps_last=keeps_last)
        while True:
            written = {
                name: [one for one in rows if one.line not in outcome.rejected]
                for name, rows in read.items()
            }
            equal: set[int] = set()
            if mode == "merge" and not adds_edges:
                for name, rows in written.items():
                    if self.types[name].ends is not None:
                        written[name] = self._matched(name, rows, superseded, equal)
            live = {
                name: [one for one in rows if one.line not in superseded | equal]
                for name, rows in written.items()
            }
            tuples_of = live if keeps_last else written
            problems = self._problems(tuples_of, live, mode)
            conflicts = self._conflicts(live, mode)
            if not quarantines:
                outcome.problems += [(one.rule, one.line) for one in problems]
                outcome.conflicts = [(one.rule, one.line) for one in conflicts]
                break
            if any(not one.rejects for one in problems):
                outcome.is_hopeless = True
                break
            rejected_now = {line for one in problems + conflicts for line in one.rejects}
            if not rejected_now:
                break
            outcome.rejected |= rejected_now
        outcome.graph = self._after(live, mode)
        outcome.count(self, live, mode)
        outcome.unchanged += len(equal)
        return outcome

    def _matched(
        self, name: str, rows: list[Record], superseded: set[int], equal: set[int]
    ) -> list[Record]:
        """Give edges without an id those of stored edges; note the lines that change nothing."""
        free = dict(self.rows(name))
        for one in rows:
            free.pop(one.identity, None)
        found = []
        for one in rows:
            matched = one
            if isinstance(one.identity, Made) and one.line not in superseded:
                by_ends = ("dst", "src") in self.types[name].unique
                compared = ("src", "dst") if by_ends else tuple(one.row)
                for identity, row in list(free.items()):
                    if all(row[member] == one.row[member] for member in compared):
                        del free[identity]
                        if by_ends:
                            matched = Record(one.line, identity, one.row)
                        else:
                            equal.add(one.line)
                        break
            found.append(matched)
        return found

    def _read(self, line: int, record: dict[str, object], read: Written, outcome: Outcome) -> None:
        kind = self.types[str(record.get("type", record.get("edge")))]
        data = record.get("data", {})
        assert isinstance(data, dict)
        row: Row = {}
        problems: list[str] = []
        for name in kind.properties:
            value = data.get(name)
            if value is None and name in kind.required:
                problems.append("required")
            elif value is not None and type(value) is not int:
                problems.append("type")
            elif isinstance(value, int) and not 0 <= value <= 9 and kind.ends is None:
                problems.append("range")
            row[name] = value
        if kind.ends is not None:
            row["src"], row["dst"] = record["from"], record["to"]
        identity: object = data.get("id") or Made()
        if kind.key:
            identity = self._key(kind, row)
        read.setdefault(kind.name, [])
        if problems:
            outcome.problems += [(rule, line) for rule in problems]
            outcome.rejected.add(line)
        else:
            read[kind.name].append(Record(line, identity, row))

    @staticmethod
    def _key(kind: ModelType, row: Row) -> str:
        spelled = [str(row[name]) for name in sorted(kind.key)]
        return spelled[0] if len(spelled) == 1 else '["' + '","'.join(spelled) + '"]'

    @staticmethod
    def _superseded(read: Written, *, keeps_last: bool) -> set[int]:
        """Return the lines that count for nothing because a later one has their id."""
        superseded: set[int] = set()
        for rows in read.values():
            if not keeps_last:
                continue
            last = {one.identity: one.line for one in rows}
            superseded |= {one.line for one in rows if last[one.identity] != one.line}
        return superseded

    def _after(self, live: Written, mode: str) -> dict[str, Rows]:
        after = {name: dict(rows) for name, rows in self.graph.items()}
        for name, rows in live.items():
            if mode == "overwrite":
                after[name] = {}
            for one in rows:
                after.setdefault(name, {})[one.identity] = one.row
        for name in self.types if self.cascades else ():
            for identity in self._cascaded(self.types[name], live, after):
                del after[name][identity]
        return after

    def _cascaded(self, kind: ModelType, live: Written, after: dict[str, Rows]) -> list[object]:
        """Return the stored edges of a type whose nodes an overwrite takes away."""
        if kind.ends is None or kind.name in live:
            return []
        ends = [
            (end, node_type)
            for end, node_type in zip(("src", "dst"), kind.ends, strict=True)
            if node_type in live
        ]
        return [
            identity
            for identity, row in after.get(kind.name, {}).items()
            if any(row[end] not in after.get(node_type, {}) for end, node_type in ends)
        ]

    def _problems(self, records: Written, live: Written, mode: str) -> list[Problem]:
        after = self._after(live, mode)
        problems: list[Problem] = []
        for name in sorted(self.types):
            kind = self.types[name]
            problems += self._unique(kind, records.get(name, []), live.get(name, []), mode)
            if kind.ends is not None:
                problems += self._ends(kind, live.get(name, []), after)
                problems += self._card(kind, live.get(name), after, mode)
        return problems

    def _unique(
        self, kind: ModelType, records: list[Record], live: list[Record], mode: str
    ) -> list[Problem]:
        problems: list[Problem] = []
        if kind.key:
            seen: set[object] = set()
            for one in live:
                if one.identity in seen:
                    problems.append(Problem("key", one.line, (one.line,)))
                seen.add(one.identity)
        own = {one.identity for one in live}
        for members in kind.unique:
            tuples: set[object] = set()
            for one in records:
                found = tuple(one.row[name] for name in members)
                if None not in found and found in tuples:
                    problems.append(Problem("unique", one.line, (one.line,)))
                tuples.add(found)
            if mode == "overwrite":
                continue
            held = {
                tuple(row[name] for name in members)
                for identity, row in self.rows(kind.name).items()
                if identity not in own
            }
            for one in live:
                found = tuple(one.row[name] for name in members)
                if None not in found and found in held:
                    problems.append(Problem("unique", one.line, (one.line,)))
        return problems

    def _ends(self, kind: ModelType, live: list[Record], after: dict[str, Rows]) -> list[Problem]:
        assert kind.ends is not None
        lines = {id(one.row): one.line for one in live}
        rows = [one.row for one in live]
        rows += [row for row in after.get(kind.name, {}).values() if id(row) not in lines]
        problems: list[Problem] = []
        for row, (end, node_type) in itertools.product(
            rows, zip(("src", "dst"), kind.ends, strict=True)
        ):
            if row[end] not in after.get(node_type, {}):
                line = lines.get(id(row))
                problems.append(Problem("endpoint", line, () if line is None else (line,)))
        return problems

    def _card(
        self, kind: ModelType, live: list[Record] | None, after: dict[str, Rows], mode: str
    ) -> list[Problem]:
        if live is None:
            return self._left_behind(kind, after)
        before = self.rows(kind.name)
        moving: dict[object, list[int]] = {}
        if mode != "overwrite":
            for one in live:
                if one.identity in before:
                    moving.setdefault(before[one.identity]["src"], []).append(one.line)
        written: dict[object, list[int]] = {}
        for one in live:
            written.setdefault(one.row["src"], []).append(one.line)
        # Two records of one id both count where nothing folds them; that is a conflict later.
        own = {one.identity for one in live}
        rows = [one.row for one in live]
        kept = after.get(kind.name, {}).items()
        rows += [row for identity, row in kept if identity not in own]
        counts = Counter(row["src"] for row in rows)
        low, high = kind.card
        problems: list[Problem] = []
        for source in dict.fromkeys([*written, *moving]):
            lines = written.get(source, [])
            last = lines[-1] if lines else None
            if high is not None and counts[source] > high:
                excess = min(counts[source] - high, len(lines))
                problems.append(Problem("cardinality", last, tuple(lines[len(lines) - excess :])))
            elif counts[source] < low:
                problems.append(Problem("cardinality", last, tuple(lines or moving[source])))
        return problems

    def _left_behind(self, kind: ModelType, after: dict[str, Rows]) -> list[Problem]:
        """Count what is left of the sources of edges that went with their nodes."""
        assert kind.ends is not None
        left = after.get(kind.name, {})
        gone = [row for identity, row in self.rows(kind.name).items() if identity not in left]
        counts = Counter(row["src"] for row in left.values())
        sources = {row["src"] for row in gone} & after.get(kind.ends[0], {}).keys()
        low, _ = kind.card
        return [Problem("cardinality", None) for source in sources if counts[source] < low]

    def _conflicts(self, live: Written, mode: str) -> list[Problem]:
        conflicts: list[Problem] = []
        for name, rows in live.items():
            seen: set[object] = set()
            for one in rows:
                if one.identity in seen and not self.types[name].key:
                    conflicts.append(Problem("key_conflict", one.line, (one.line,)))
                if mode == "append" and one.identity in self.rows(name):
                    conflicts.append(Problem("key_conflict", one.line, (one.line,)))
                seen.add(one.identity)
        return conflicts


@dataclass
class Outcome:
    problems: list[tuple[str, int | None]] = field(default_factory=list)
    conflicts: list[tuple[str, int | None]] = field(default_factory=list)
    is_hopeless: bool = False
    rejected: set[int] = field(default_factory=set)
    graph: dict[str, Rows] = field(default_factory=dict)
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0

    @property
    def is_legal(self) -> bool:
        return not self.problems and not self.conflicts

    @property
    def answer(self) -> object:
        """What the caller hears: everything that is wrong, sorted, or that it was loaded."""
        found = sorted((rule, line or 0) for rule, line in self.problems + self.conflicts)
        return found or "loaded"

    def count(self, model: Model, live: Written, mode: str) -> None:
        """Count what has become of the rows that count."""
        for name, rows in live.items():
            before = {} if mode == "overwrite" else model.rows(name)
            for one in rows:
                if one.identity not in before:
                    self.inserted += 1
                elif before[one.identity] == one.row:
                    self.unchanged += 1
                else:
                    self.updated += 1
        for name in model.types.keys() - live.keys():
            self.removed += len(model.rows(name)) - len(self.graph.get(name, {}))


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
