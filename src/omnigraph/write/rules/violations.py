"""Violations in the rows of a write, the log that collects them, and their errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.errors import ConflictError, InvalidInputError
from omnigraph.names import TableKey
from omnigraph.texts import shown
from omnigraph.write.rules import codes

VIOLATIONS_MAX: Final = 20
"""So many violations are reported in full; the others are only counted."""

JSON_RULE: Final = "json"
JSON_REST_RULE: Final = "json-rest"
"""A text that is not JSON, so that the start of the values after it is unknown."""
JSON_RULES: Final = frozenset({JSON_RULE, JSON_REST_RULE})


_OF_TABLES: Final = frozenset(
    {codes.UNKNOWN_PROPERTY, codes.DUPLICATE_MEMBER, codes.MISSING_COLUMN, codes.UNKNOWN_TYPE}
)
KEY_RULE: Final = "key"
"""The rule that a write gives each id once."""
_KEY_HINT: Final = (
    "correct the rows; a merge takes the last row of each key with `--on-duplicate last`"
)
_FORM_HINTS: Final = {
    codes.ENVELOPE: (
        "name the type of rows that name none: `--node TYPE` for nodes, `--edge TYPE` for edges"
    ),
    codes.UNKNOWN_FIELD: (
        'properties stand in `data`: {"type": "Person", "data": {"name": "Ada"}}'
    ),
}
"""What to write where all records have the same wrong form."""
_TABLE_HINT: Final = (
    "`omnigraph schema show` lists types and properties; `--map` names the column of a property"
)
STATEMENT: Final = "statement"
"""The unit of positions in what is no load: no row of it can be left out."""
_STATEMENT_HINT: Final = "change the values that are written; `omnigraph schema show` has the rules"
_INPUT_BITS: Final = 40
_NUMBER_MASK: Final = (1 << _INPUT_BITS) - 1
_NOT_SHOWN: Final = frozenset({"table_key", "place"})


def position_in(input_number: int, number: int) -> int:
    """Return the position of a record of one of several inputs, as one number.

    >>> number_of(position_in(3, 17)), input_of(position_in(3, 17))
    (17, 3)
    """
    return (input_number << _INPUT_BITS) + number


def number_of(position: int) -> int:
    """Return the number of a record within its input."""
    return position & _NUMBER_MASK


def input_of(position: int) -> int:
    """Return the input of a position."""
    return position >> _INPUT_BITS


@dataclass(frozen=True)
class InputName:
    """One of several inputs: its file, if it has one, and the unit of its positions, if its own."""

    name: str | None
    place: str | None = None


@dataclass(frozen=True)
class Violation:
    """One broken rule: position, property, value, and a message.

    `position` counts from 1 in the units of the operation (lines, records, rows, statements); it
    is None for a stored row that the operation would leave behind broken. `source` is the file, if
    there is one, and `place` the unit of its positions, where it has its own. `table_key` names the
    table whose rows were checked: a node type and an edge type may have the same name, so `type`
    alone does not.
    """

    position: int | None
    type: str | None
    property: str | None
    value: str | None
    rule: str
    code: str
    message: str
    source: str | None = None
    table_key: TableKey | None = None
    place: str | None = None

    def checked_table(self) -> TableKey:
        """Return the table whose rows were checked; a rule always names it."""
        if self.table_key is None:
            raise AssertionError(f"rule '{self.rule}' does not name its table")
        return self.table_key

    def text(self, place: str) -> str:
        """Return the message with its position; `place` names the unit.

        >>> Violation(3, "T", "p", "x", "enum", "V201", "invalid enum value").text("line")
        'line 3: invalid enum value'
        """
        # The parser's own sentence names its position already.
        if self.position is None or self.rule in JSON_RULES:
            return self.message
        return f"{self.place or place} {self.position}: {self.message}"

    def to_json(self) -> dict[str, object]:
        """Return the record as JSON."""
        return {name: value for name, value in vars(self).items() if name not in _NOT_SHOWN}

    def located(self, inputs: Sequence[InputName]) -> Violation:
        """Return the violation with the number of its record and the name of its input."""
        if self.position is None or not inputs:
            return self
        source = inputs[input_of(self.position)]
        number = number_of(self.position)
        return replace(self, position=number, source=source.name, place=source.place)


class ViolationLog:
    """Collects violations in the order in which they are reported: some in full, all as counts."""

    def __init__(self, limit: int = VIOLATIONS_MAX) -> None:
        self._limit = limit
        self.kept: list[Violation] = []
        self.counts: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """How many there are."""
        return self.counts.total()

    @property
    def room(self) -> int:
        """How many more are collected in full."""
        return max(0, self._limit - len(self.kept))

    def add(self, violation: Violation) -> None:
        """Add one."""
        self.counts[violation.rule] += 1
        if self.room:
            self.kept.append(violation)

    def extend(self, violations: Iterable[Violation]) -> None:
        """Add several."""
        for violation in violations:
            self.add(violation)

    def count(self, rule: str, number: int) -> None:
        """Count violations of a rule that are not collected in full."""
        if number:
            self.counts[rule] += number

    def absorb(self, other: ViolationLog) -> None:
        """Add the violations of another log."""
        self.kept += other.kept[: self.room]
        self.counts += other.counts

    def sort_from(self, start: int) -> None:
        """Sort the collected violations from `start` on by their positions."""
        self.kept[start:] = sorted(self.kept[start:], key=lambda found: found.position or 0)

    def require_clean(self, place: str, inputs: Sequence[InputName] = ()) -> None:
        """Raise if anything was collected; positions are those of `inputs`."""
        if self.total:
            raise ValidationError(
                violations=tuple(found.located(inputs) for found in self.kept[:VIOLATIONS_MAX]),
                total=self.total,
                totals=dict(sorted(self.counts.items())),
                place=place,
                shows_source=len(inputs) > 1,
            )


class ValidationError(InvalidInputError):
    """Rows break rules of the schema, or cannot be read at all; nothing was written.

    `violations` holds the first of them in the order of checking, `total` counts all, `totals` by
    rule. `place` names the unit of their positions.
    """

    code = "OG-VALIDATION"
    hint = "correct the rows; a load leaves them out with `--on-error quarantine`"
    violations: tuple[Violation, ...]
    total: int
    totals: dict[str, int]
    place: str
    shows_source: bool = False

    def _message(self) -> str:
        return _first_line(self.lines, self.total)

    def _excerpt(self) -> str | None:
        return _other_lines(self.lines, self.total)

    def _hint(self) -> str | None:
        if self.place == STATEMENT:
            return _STATEMENT_HINT
        if self.totals.keys() == {KEY_RULE}:
            return _KEY_HINT
        found = {violation.code for violation in self.violations}
        if len(found) == 1 and found <= _FORM_HINTS.keys():
            return _FORM_HINTS[found.pop()]
        is_of_table = all(
            found.position is None and found.code in _OF_TABLES for found in self.violations
        )
        # No row can be left out for what is wrong with all of them.
        return _TABLE_HINT if is_of_table and self.violations else super()._hint()

    @property
    def lines(self) -> tuple[str, ...]:
        """The collected violations with their positions."""
        return located_lines(self.violations, self.place, self.shows_source)

    def render(self) -> str:
        """Return the collected violations, one per line, and the totals."""
        lines = rendered(self.lines, self.total)
        if self.total > 1:
            rules = ", ".join(f"{rule} {count}" for rule, count in self.totals.items())
            lines.append(f"{self.total} violations, nothing was written ({rules})")
        return shown("\n".join(lines))

    @property
    def details(self) -> dict[str, object]:
        """The facts for the JSON form of the error."""
        return {
            "violations": [violation.to_json() for violation in self.violations],
            "total": self.total,
            "totals": self.totals,
        }


@dataclass(frozen=True)
class KeyConflict:
    """An id that cannot be inserted: it is stored already, or the input gives it twice."""

    entity_kind: str
    type_name: str
    entity_id: str
    is_stored: bool

    @property
    def text(self) -> str:
        """The conflict in words.

        >>> KeyConflict("node", "Person", "ann", is_stored=True).text
        "node 'ann' of type Person already exists"
        """
        what = "already exists" if self.is_stored else "is given twice in one input"
        return f"{self.entity_kind} '{self.entity_id}' of type {self.type_name} {what}"


class KeyConflictError(ConflictError):
    """Ids that were to be inserted are stored already, or were given twice; nothing was written.

    `violations` are the first of them with their positions, `total` counts all.
    """

    code = "OG-KEY-CONFLICT"
    hint = "mode `merge` updates stored rows"
    first: KeyConflict
    total: int = 1
    violations: tuple[Violation, ...] = ()
    place: str = "line"
    shows_source: bool = False

    def _message(self) -> str:
        return _first_line(self.lines, self.total)

    def _excerpt(self) -> str | None:
        return _other_lines(self.lines, self.total)

    @property
    def lines(self) -> tuple[str, ...]:
        """The collected conflicts with their positions."""
        located = located_lines(self.violations, self.place, self.shows_source)
        return located or (self.first.text,)

    @classmethod
    def of(
        cls, first: KeyConflict, log: ViolationLog, *, place: str, inputs: Sequence[InputName]
    ) -> KeyConflictError:
        """Return the error of everything that a log has collected."""
        return cls(
            first,
            total=log.total,
            violations=tuple(found.located(inputs) for found in log.kept),
            place=place,
            shows_source=len(inputs) > 1,
        )

    def render(self) -> str:
        """Return the collected conflicts, one per line."""
        return shown("\n".join(rendered(self.lines, self.total)))

    @property
    def is_stored(self) -> bool:
        """Whether the first offender is stored, not given twice."""
        return self.first.is_stored

    @property
    def key_conflict(self) -> dict[str, str | None]:
        """The first offender: `entity_kind`, `type_name` and `entity_id`."""
        return {
            "entity_kind": self.first.entity_kind,
            "type_name": self.first.type_name,
            "entity_id": self.first.entity_id,
        }

    @property
    def offenders(self) -> tuple[str, ...]:
        """The ids of the collected conflicts."""
        return tuple(str(found.value) for found in self.violations) or (self.first.entity_id,)

    @property
    def details(self) -> dict[str, object]:
        """The facts for the JSON form of the error."""
        return {
            "key_conflict": self.key_conflict,
            "offenders": list(self.offenders),
            "violations": [violation.to_json() for violation in self.violations],
            "total": self.total,
        }


class CreateConflictError(KeyConflictError):
    """The key of a `create` is stored already, or the same query has written it.

    `graph_commit_id` is the commit that wrote the stored row, where the retained history tells.
    """

    code = "OG-CREATE-CONFLICT"
    hint = "`insert` replaces the row, `upsert` changes some of its properties"
    graph_commit_id: str | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """The conflict in words."""
        if not self.first.is_stored:
            named = f"{self.first.entity_kind} '{self.first.entity_id}' of type"
            return (f"{named} {self.first.type_name} is written twice in one query",)
        by = f", written by commit {self.graph_commit_id}" if self.graph_commit_id else ""
        return (f"{self.first.text}{by}",)

    @property
    def key_conflict(self) -> dict[str, str | None]:
        """The key, with the commit that wrote it, or null."""
        return {**super().key_conflict, "graph_commit_id": self.graph_commit_id}


def located_lines(
    violations: Sequence[Violation], place: str, shows_source: bool
) -> tuple[str, ...]:
    """Return violations in words, with their positions, and their files where there are several."""
    return tuple(
        (f"{found.source} " if shows_source and found.source else "") + found.text(place)
        for found in violations
    )


def _first_line(lines: Sequence[str], total: int) -> str:
    return f"{lines[0]} (and {total - 1} more)" if total > 1 else lines[0]


def _other_lines(lines: Sequence[str], total: int) -> str | None:
    """Return the violations after the first, which is the message; None where there are none."""
    return shown("\n".join(_without_first(lines, total))) or None


def rendered(lines: Sequence[str], total: int) -> list[str]:
    """Return the lines of a report that shows some of `total` violations."""
    others = _without_first(lines, total)
    return [f"error: {lines[0]}", *(f"       {line}" for line in others)]


def _without_first(lines: Sequence[str], total: int) -> list[str]:
    more = [f"… and {total - len(lines)} more"] if total > len(lines) else []
    return [*lines[1:], *more]
