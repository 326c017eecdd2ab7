"""What a merge of schemas takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from omnigraph.names import TypeKind
from omnigraph.records import Json
from omnigraph.schema.compile import CompiledSchema
from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.ir.model import SchemaIR

Side = Literal["source", "target"]


@dataclass(frozen=True)
class AcceptedTexts:
    """An accepted schema as it is stored: its text and its compiled form."""

    text: str
    ir: SchemaIR


@dataclass(frozen=True)
class SchemaChoices:
    """Which side settles conflicts: all of them, or single ones by the text of their identity.

    A choice decides only what is in conflict; everything else is merged as ever.
    """

    prefer: Side | None = None
    by_identity: Mapping[str, Side] = field(default_factory=dict)

    def of(self, identity: str) -> Side | None:
        """Return the side that settles a conflict; `None` leaves it open."""
        return self.by_identity.get(identity, self.prefer)


@dataclass(frozen=True)
class SchemaConflict:
    """Something that the two sides do not agree about.

    `identity` is a stable text: `type:12`, `property:34`, `constraint:12:unique:34,35`. `base`,
    `source` and `target` are the three definitions; `None` where there is none.
    """

    identity: str
    name: str
    base: Json
    source: Json
    target: Json
    message: str


@dataclass(frozen=True)
class Dropped:
    """Something of the base that one side has dropped and the other side still has.

    `number` is its number on the side that has it: of a property, or of a type where
    `property_name` is `None`. `is_kept` tells that the merged schema has it, because a choice
    decided so; the rows of `side` then have no values of their own for it.
    """

    side: Side
    type_kind: TypeKind
    type_id: int
    type_name: str
    property_name: str | None
    number: int
    is_kept: bool


@dataclass(frozen=True)
class MergedSchema:
    """The merged schema, or the conflicts that prevent it; `schema` is `None` with those.

    `aliases` is taken over base, source, target and the merged schema. `settled` are the identities
    of the conflicts that choices have settled.
    """

    schema: CompiledSchema | None
    aliases: Aliases
    conflicts: tuple[SchemaConflict, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    settled: frozenset[str] = frozenset()
