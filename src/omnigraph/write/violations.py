"""What is wrong with the rows of a write: collected records, and the errors that they end in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from omnigraph.errors import ConflictError, InvalidInputError

VIOLATIONS_MAX: Final = 20
"""So many are kept in full; the others are only counted."""

JSON_RULE: Final = "json"


_INPUT_BITS: Final = 40
_NUMBER_MASK: Final = (1 << _INPUT_BITS) - 1


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
class Violation:
    """One broken rule: where, what of, which value, and in words.

    `position` counts from 1 in the units of the operation (lines, records, rows, statements); it
    is None for a stored row that the operation would leave behind broken. `source` is the file, if
    there is one.
    """

    position: int | None
    type: str | None
    property: str | None
    value: str | None
    rule: str
    code: str
    message: str
    source: str | None = None

    def text(self, place: str) -> str:
        """Return the message with its position; `place` names the unit.

        >>> Violation(3, "T", "p", "x", "enum", "V201", "invalid enum value").text("line")
        'line 3: invalid enum value'
        """
        # The parser's own sentence names its position already.
        if self.position is None or self.rule == JSON_RULE:
            return self.message
        return f"{place} {self.position}: {self.message}"

    def to_json(self) -> dict[str, object]:
        """Return the record as JSON."""
        return dict(vars(self))

    def located(self, inputs: Sequence[str | None]) -> Violation:
        """Return the violation with the number of its record and the name of its input."""
        if self.position is None or not inputs:
            return self
        source = inputs[input_of(self.position)]
        return replace(self, position=number_of(self.position), source=source)


class ViolationLog:
    """Collects violations in the order in which they are reported: some in full, all by number."""

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
        """How many more would be kept in full."""
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
        """Count more of a rule than were added."""
        if number:
            self.counts[rule] += number

    def absorb(self, other: ViolationLog) -> None:
        """Add what another log has collected."""
        self.kept += other.kept[: self.room]
        self.counts += other.counts

    def sort_from(self, start: int) -> None:
        """Put those that were kept from `start` on into the order of their positions."""
        self.kept[start:] = sorted(self.kept[start:], key=lambda found: found.position or 0)

    def require_clean(self, place: str, inputs: Sequence[str | None] = ()) -> None:
        """Raise everything that was collected; positions are those of `inputs`."""
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
    hint = "mend the rows; a load leaves them out with `--on-error quarantine`"

    def __init__(
        self,
        *,
        violations: tuple[Violation, ...],
        total: int,
        totals: dict[str, int],
        place: str,
        shows_source: bool = False,
    ) -> None:
        self.violations = violations
        self.total = total
        self.totals = totals
        self.place = place
        self.shows_source = shows_source
        more = f" (and {total - 1} more)" if total > 1 else ""
        super().__init__(self._line(violations[0]) + more)

    def _line(self, violation: Violation) -> str:
        source = f"{violation.source} " if self.shows_source and violation.source else ""
        return source + violation.text(self.place)

    def render(self) -> str:
        """Return all that was kept, one per line, and the totals."""
        lines = [f"error: {self._line(self.violations[0])}"]
        lines += [f"       {self._line(violation)}" for violation in self.violations[1:]]
        if self.total > len(self.violations):
            lines.append(f"       … and {self.total - len(self.violations)} more")
        if self.total > 1:
            rules = ", ".join(f"{rule} {count}" for rule, count in self.totals.items())
            lines.append(f"{self.total} violations, nothing was written ({rules})")
        return "\n".join(lines)

    @property
    def details(self) -> dict[str, object]:
        """The facts for the JSON form of the error."""
        return {
            "violations": [violation.to_json() for violation in self.violations],
            "total": self.total,
            "totals": self.totals,
        }


class KeyConflictError(ConflictError):
    """An id that was to be inserted is stored already, or was given twice; nothing was written."""

    code = "OG-KEY-CONFLICT"
    hint = "mode `merge` replaces stored rows"

    def __init__(
        self,
        *,
        entity_kind: str,
        type_name: str,
        entity_id: str,
        is_stored: bool,
        total: int = 1,
        where: str = "",
        offenders: tuple[str, ...] = (),
    ) -> None:
        self.entity_kind = entity_kind
        self.type_name = type_name
        self.entity_id = entity_id
        self.is_stored = is_stored
        self.total = total
        self.offenders = offenders or (entity_id,)
        what = key_conflict_text(entity_kind, type_name, entity_id, is_stored=is_stored)
        more = f" (and {total - 1} more)" if total > 1 else ""
        super().__init__(what + where + more)

    @property
    def key_conflict(self) -> dict[str, str]:
        """The first offender: `entity_kind`, `type_name` and `entity_id`."""
        return {
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "entity_id": self.entity_id,
        }

    @property
    def details(self) -> dict[str, object]:
        """The facts for the JSON form of the error."""
        return {
            "key_conflict": self.key_conflict,
            "offenders": list(self.offenders),
            "total": self.total,
        }


def key_conflict_text(kind: str, type_name: str, entity_id: str, *, is_stored: bool) -> str:
    """Say that an id cannot be inserted.

    >>> key_conflict_text("node", "Person", "ann", is_stored=True)
    "node 'ann' of type Person already exists"
    """
    what = "already exists" if is_stored else "is given twice in one input"
    return f"{kind} '{entity_id}' of type {type_name} {what}"
