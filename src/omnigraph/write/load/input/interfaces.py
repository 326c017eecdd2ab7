"""Between the readers and the rest of a load: what is read, and where the rows go."""

from __future__ import annotations

from typing import Protocol

from omnigraph.schema import Catalog, EntityType
from omnigraph.write.load.rows.check_rows import ColumnBatch
from omnigraph.write.rules.violations import Violation


class LoadSink(Protocol):
    """Takes what a reader reads, batch by batch."""

    def begin(self, name: str | None, place: str | None = None) -> int:
        """Start the next input, a file by its name, and return its first position.

        `place` is the unit of its positions, where it is another one than that of the load.
        """
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
        """Finish a batch: all of its rows and refused records were handed over."""
        ...


class TypeSink(LoadSink, Protocol):
    """Takes what a source of a whole load reads."""

    def end_type(self, entity_type: EntityType) -> None:
        """Finish a type: no more rows of it follow."""
        ...


class LoadInput(Protocol):
    """What a load has to know of its input."""

    @property
    def place(self) -> str:
        """The unit in which positions are counted: "line", "record" or "row"."""
        ...

    @property
    def last_wins_for_unkeyed_ids(self) -> bool:
        """Whether, in a merge, the last record of an id that is no key replaces the others."""
        ...


class LoadSource(LoadInput, Protocol):
    """An input that this process reads."""

    def read(self, catalog: Catalog, sink: TypeSink) -> None:
        """Hand everything to the sink."""
        ...
