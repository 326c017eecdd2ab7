"""Conflicts of a merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from omnigraph.errors import ConflictError
from omnigraph.texts import shown

_PREVIEWED: Final = 3
_SHOWN_MAX: Final = 100
_NAMED_MAX: Final = 10
_COLUMNS: Final = ("entity_kind", "type_name", "entity_id", "kind", "message")


class ConflictKind(StrEnum):
    """Why a schema or a row cannot be merged."""

    SCHEMA_CONFLICT = "schema_conflict"
    SCHEMA_TYPE_DROPPED = "schema_type_dropped"
    SCHEMA_DROPPED = "schema_dropped"
    SCHEMA_REQUIRED = "schema_required"
    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    UNIQUE_VIOLATION = "unique_violation"
    ORPHAN_EDGE = "orphan_edge"
    CARDINALITY_VIOLATION = "cardinality_violation"
    VALUE_CONSTRAINT_VIOLATION = "value_constraint_violation"


_SCHEMA_KINDS: Final = frozenset(
    {
        ConflictKind.SCHEMA_CONFLICT,
        ConflictKind.SCHEMA_TYPE_DROPPED,
        ConflictKind.SCHEMA_DROPPED,
        ConflictKind.SCHEMA_REQUIRED,
    }
)
"""Conflicts that are not of single rows: what two schemas, and the rows under them, disagree in."""

_MESSAGES: Final = {
    ConflictKind.DIVERGENT_INSERT: "divergent insert for id '{}'",
    ConflictKind.DIVERGENT_UPDATE: "divergent update for id '{}'",
    ConflictKind.DELETE_VS_UPDATE: "delete/update conflict for id '{}'",
}


@dataclass(frozen=True)
class Conflict:
    """One conflict; `entity_id` is None where it is not about one row.

    `table_key` is `interface:<name>` where the schemas of an interface conflict. `details` are what
    programs learn of a conflict of schemas; its JSON has them under the name of its kind.
    """

    table_key: str
    kind: ConflictKind
    message: str
    entity_id: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    has_choice: bool = True
    """Whether choosing a side settles it; otherwise a branch has to be changed first."""
    only_choice: str | None = None
    """The side that can be chosen, where the other one cannot: the one that dropped something."""

    @property
    def subject(self) -> str:
        """What the conflict is about, in words.

        >>> row_conflict("node:Doc", ConflictKind.DIVERGENT_UPDATE, "d7").subject
        "node type 'Doc', entity id 'd7' (divergent_update)"
        """
        entity_kind, _, type_name = self.table_key.partition(":")
        of_row = f", entity id '{self.entity_id}'" if self.entity_id is not None else ""
        return f"{entity_kind} type '{type_name}'{of_row} ({self.kind})"

    @property
    def is_of_schemas(self) -> bool:
        """Whether it is one of schemas and not of single rows."""
        return self.kind in _SCHEMA_KINDS

    def to_json(self) -> dict[str, object]:
        """Return the conflict as programs see it."""
        entity_kind, _, type_name = self.table_key.partition(":")
        shape: dict[str, object] = {
            "entity_kind": entity_kind,
            "type_name": type_name,
            "entity_id": self.entity_id,
            "kind": str(self.kind),
            "message": self.message,
        }
        return shape | {str(self.kind): dict(self.details)} if self.details else shape


def row_conflict(
    table_key: str, kind: ConflictKind, entity_id: str, properties: Sequence[str] = ()
) -> Conflict:
    """Return the conflict of one row; `properties` are those that clash, if only they do."""
    message = _MESSAGES[kind].format(entity_id)
    if properties:
        message += f" on {', '.join(properties)}"
    return Conflict(table_key, kind, message, entity_id)


def value_conflict(table_key: str, what: str, ids: Sequence[str]) -> Conflict:
    """Return the conflict of rows whose values the merged schema cannot hold."""
    named = ", ".join(f"'{each}'" for each in sorted(ids)[:_NAMED_MAX])
    more = ", …" if len(ids) > _NAMED_MAX else ""
    rows = "1 row" if len(ids) == 1 else f"{len(ids)} rows"
    message = f"{what}: {rows} ({named}{more})"
    return Conflict(table_key, ConflictKind.VALUE_CONSTRAINT_VIOLATION, message)


class Conflicts(tuple[Conflict, ...]):
    """All conflicts of a merge, in their order; also as a table."""

    __slots__ = ()

    def to_arrow(self) -> pa.Table:
        """Return a row for each conflict.

        >>> Conflicts([row_conflict("node:Doc", ConflictKind.DIVERGENT_UPDATE, "d7")]).to_arrow()[
        ...     "entity_id"
        ... ].to_pylist()
        ['d7']
        """
        schema = pa.schema([pa.field(name, pa.utf8()) for name in _COLUMNS])
        rows = [{name: found.to_json()[name] for name in _COLUMNS} for found in self]
        return pa.Table.from_pylist(rows, schema=schema)

    def to_spark(self, spark: Any) -> Any:
        """Return the same as a DataFrame of a Spark session."""
        return spark.createDataFrame(self.to_arrow())


class MergeConflictError(ConflictError):
    """Two branches cannot be merged as they are; neither was changed."""

    code = "OG-MERGE-CONFLICT"
    source: str
    target: str
    conflicts: Conflicts

    def __init__(
        self, source: str, target: str, conflicts: Sequence[Conflict], *, is_revert: bool = False
    ) -> None:
        self.source = source
        self.target = target
        self.conflicts = Conflicts(conflicts)
        self.hint = self._revert_hint() if is_revert else self._hint()
        shown = [f"{found.subject}: {found.message}" for found in self.conflicts[:_SHOWN_MAX]]
        rest = len(self.conflicts) - len(shown)
        listed = "; ".join([*shown, f"and {rest} more"] if rest else shown)
        super().__init__(f"merge conflicts: {listed}")

    def _revert_hint(self) -> str:
        """Say what to do about a commit that cannot be undone as it is."""
        if any(found.is_of_schemas for found in self.conflicts):
            return (
                f"change branch '{self.target}' first: a revert drops no value that came since,"
                " and has no choice of a schema"
            )
        return (
            f"`omnigraph commit revert {self.source} --branch {self.target} --prefer source` undoes"
            " what was changed again since (`target` leaves it alone); change the branch to settle"
            " broken rules"
        )

    def _hint(self) -> str:
        """Say what to do about branches that cannot be merged as they are."""
        source, target = self.source, self.target
        hint = (
            f"`omnigraph branch merge {source} --into {target} --prefer source` (or `target`)"
            " settles conflicts of rows; change the branches to settle the others"
        )
        if any(found.is_of_schemas for found in self.conflicts):
            hint = (
                f"`omnigraph branch merge {source} --into {target} --schema source` (or `target`)"
                " settles conflicts of schemas; add `--allow-data-loss` where values are lost"
            )
        choices = {found.only_choice for found in self.conflicts if found.is_of_schemas}
        if len(choices) == 1 and None not in choices:
            hint = (
                f"`omnigraph branch merge {source} --into {target} --schema {choices.pop()}"
                " --allow-data-loss` drops these values; the other side cannot be chosen"
            )
        if not all(found.has_choice for found in self.conflicts):
            hint = (
                f"`omnigraph branch conflicts {source} --into {target}` says what is wrong:"
                " change a branch first, no choice of a side settles all of it"
            )
        return hint

    @property
    def details(self) -> dict[str, object]:
        """All conflicts."""
        return {"merge_conflicts": [found.to_json() for found in self.conflicts]}

    def preview(self) -> str:
        """Return the first conflicts in one line."""
        return self._listed([found.subject for found in self.conflicts[:_PREVIEWED]])

    def render(self) -> str:
        """Return the text for people: conflicts of schemas with their messages."""
        listed = self._listed(
            [
                f"{found.subject}: {found.message}" if found.is_of_schemas else found.subject
                for found in self.conflicts[:_PREVIEWED]
            ]
        )
        return shown(f"error: {listed}\nhint: {self.hint}")

    def _listed(self, first: Sequence[str]) -> str:
        rest = len(self.conflicts) - len(first)
        listed = "; ".join([*first, f"and {rest} more"] if rest else first)
        return f"merge conflicts: {listed}"


class ReadSetConflictError(ConflictError):
    """The state that a merge was computed from has changed; nothing was merged."""

    code = "OG-READ-SET"
    hint = "merge again"
    template = "the merge was computed from a state that has changed: {member}"
    member: str

    @property
    def details(self) -> dict[str, object]:
        """The member of the read set that has changed."""
        return {"read_set_conflict": {"member": self.member}}
