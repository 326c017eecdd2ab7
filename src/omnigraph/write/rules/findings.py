"""What one run of the rules has found."""

from __future__ import annotations

from typing import Final

from omnigraph.write.rules.violations import VIOLATIONS_MAX, KeyConflict, Violation, ViolationLog

UNLIMITED: Final = 1 << 62


class Findings:
    """Violations in the order of checking; with `quarantines` each with its row."""

    def __init__(self, *, limit: int = VIOLATIONS_MAX, quarantines: bool = False) -> None:
        self.log = ViolationLog(UNLIMITED if quarantines else limit)
        self.quarantines = quarantines
        """Whether rows that break a rule are left out, so that all of them are wanted."""
        self.rejected_rows: dict[str, dict[int, list[Violation]]] = {}
        self.unfixable = ViolationLog()
        self.conflicts = ViolationLog()
        """Ids that cannot be inserted; reported with the violations, if there are any."""
        self.first_conflict: KeyConflict | None = None

    @property
    def wanted(self) -> int:
        """How many more violations are wanted in full."""
        return self.log.room

    def add(self, row: int, violation: Violation) -> None:
        """Add a written row that breaks a rule."""
        self.log.add(violation)
        if self.quarantines:
            rows = self.rejected_rows.setdefault(violation.checked_table(), {})
            rows.setdefault(row, []).append(violation)

    def add_unfixable(self, violation: Violation) -> None:
        """Add a broken rule that rejecting written rows cannot fix."""
        self.log.add(violation)
        self.unfixable.add(violation)

    def add_conflict(self, conflict: KeyConflict, violation: Violation) -> None:
        """Add an id that cannot be inserted."""
        self.first_conflict = self.first_conflict or conflict
        self.conflicts.add(violation)

    def count(self, rule: str, number: int) -> None:
        """Count violations that are not wanted in full."""
        self.log.count(rule, number)
