"""What a reader hands over: rows of types as columns, and records that are no rows at all."""

from __future__ import annotations

from typing import Protocol

from omnigraph.schema import Catalog, EntityType
from omnigraph.write.load.rows.check_rows import ColumnBatch
from omnigraph.write.rules.violations import Violation


class LoadSink(Protocol):
    """Takes what a reader reads, batch by batch."""

    def begin(self, name: str | None) -> int:
        """Hear of the next input, a file by its name, and return its first position."""
        ...

    def add(self, entity_type: EntityType, batch: ColumnBatch) -> None:
        """Take rows of one type."""
        ...

    def refuse(self, violation: Violation, record: object) -> None:
        """Take a record that is no row: a JSON value, or its text as bytes, or None.

        A record that breaks several rules is refused once for each.
        """
        ...

    def end_batch(self) -> None:
        """Hear that all about the records so far has been said."""
        ...


class LoadSource(Protocol):
    """What a load reads. `place` names the unit in which it counts positions."""

    @property
    def place(self) -> str:
        """The unit of positions."""
        ...

    @property
    def folds_free_ids(self) -> bool:
        """Whether, in a merge, the last record of an id that is no key wins by itself."""
        ...

    def read(self, catalog: Catalog, sink: LoadSink) -> None:
        """Hand everything over."""
        ...
