"""The schemas of a merge: three accepted ones in, the merged one out.

1. Schemas are merged before any row is read, and all their conflicts are found at once.
2. Where both sides have the same schema, or the source has that of the base, the target's stays.
3. Numbers are reserved only when the merged schema needs new ones, and never by a dry run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from omnigraph.manifest import Repository, Snapshot
from omnigraph.manifest.genesis import accepted_schema
from omnigraph.manifest.rows import AcceptedSchema
from omnigraph.merge.conflicts import Conflict, ConflictKind
from omnigraph.schema import Catalog, MigrationPlan, read_ir
from omnigraph.schema.difference import schema_difference
from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.ir.model import SchemaIR
from omnigraph.schema.merge.facts import Declared
from omnigraph.schema.merge.merge import merge_schemas
from omnigraph.schema.merge.model import (
    AcceptedTexts,
    Dropped,
    SchemaChoices,
    SchemaConflict,
)

_RESERVED_AT_ONCE: Final = 16


@dataclass(frozen=True)
class MergedSchemas:
    """What a merge does to the schema of the target; `accepted` is None when it stays.

    `settled` are the identities of the conflicts that choices have settled.
    """

    catalog: Catalog
    aliases: Aliases
    accepted: AcceptedSchema | None = None
    steps: MigrationPlan = field(default_factory=MigrationPlan)
    conflicts: tuple[Conflict, ...] = ()
    settled: frozenset[str] = frozenset()
    keeps_text: bool = False
    """Whether only numbers of the target's schema change, which no schema apply could do."""


SchemaGuard = Callable[[MergedSchemas], None]
"""Raises where the target may not get a schema: what a schema apply on it would refuse."""


def merged_schemas(
    repository: Repository,
    *,
    base: Snapshot,
    source: Snapshot,
    target: Snapshot,
    choices: SchemaChoices,
    dry_run: bool,
) -> MergedSchemas:
    """Merge the schemas of three snapshots."""
    hashes = [snapshot.schema.schema_hash for snapshot in (base, source, target)]
    irs = [read_ir(snapshot.schema.ir) for snapshot in (base, source, target)]
    if hashes[1] in (hashes[0], hashes[2]):
        return MergedSchemas(target.catalog, Aliases.of(*irs))
    merged = merge_schemas(
        base=_texts(base),
        source=_texts(source),
        target=_texts(target),
        numbers=_unused(irs) if dry_run else _reserved(repository),
        choices=choices,
    )
    if merged.conflicts or merged.schema is None:
        found = tuple(map(_conflict, merged.conflicts))
        return MergedSchemas(target.catalog, merged.aliases, conflicts=found)
    accepted = accepted_schema(merged.schema)
    steps = _steps(target, merged.schema.ir, merged.aliases)
    kept = tuple(_kept(each) for each in merged.dropped if each.is_kept and each.property_name)
    if kept:
        return MergedSchemas(target.catalog, merged.aliases, None, steps, kept)
    return MergedSchemas(
        merged.schema.catalog,
        merged.aliases,
        None if accepted.schema_hash == hashes[2] else accepted,
        steps,
        settled=merged.settled,
        keeps_text=not steps.steps and accepted.source == target.schema.source,
    )


def identities(snapshots: Iterable[Snapshot], aliases: Aliases) -> frozenset[str]:
    """Return the texts of everything that a choice could be about."""
    found: set[str] = set()
    for snapshot in snapshots:
        schema = snapshot.schema.compiled
        found |= {str(identity) for identity in Declared(schema, aliases).facts}
        for declared in schema.types():
            found.add(f"type:{declared.type_id}")
            found |= {f"property:{prop.property_id}" for prop in declared.properties}
    return frozenset(found)


def _steps(target: Snapshot, merged: SchemaIR, aliases: Aliases) -> MigrationPlan:
    """Return the way from the target's schema to the merged one, with the rows that it concerns."""
    row_counts = {key: entry.row_count for key, entry in target.entries.items()}
    return schema_difference(target.schema.compiled, merged, aliases, row_counts=row_counts)


def _kept(dropped: Dropped) -> Conflict:
    """Refuse to keep a property that one side has dropped: its rows have no values of it."""
    key = f"{dropped.type_kind}:{dropped.type_name}"
    name = f"{key}.{dropped.property_name}"
    other = "target" if dropped.side == "source" else "source"
    return Conflict(
        key,
        ConflictKind.SCHEMA_CONFLICT,
        f"the {dropped.side} dropped {name} and has no values of it: take the {dropped.side}; to"
        f" keep values, copy them to a new property of the {other} first",
        details={
            "identity": f"property:{dropped.number}",
            "name": name,
            "base": None,
            "source": None,
            "target": None,
        },
    )


def _texts(snapshot: Snapshot) -> AcceptedTexts:
    return AcceptedTexts(snapshot.schema.source, read_ir(snapshot.schema.ir))


def _reserved(repository: Repository) -> Iterator[int]:
    while True:
        yield from repository.identities.reserve(_RESERVED_AT_ONCE)


def _unused(schemas: list[SchemaIR]) -> Iterator[int]:
    """Yield numbers that no side has: a dry run keeps none of them."""
    return count(max(schema.next_identity_id for schema in schemas))


def _conflict(found: SchemaConflict) -> Conflict:
    rule, _, owner = found.name.rpartition(" of ")
    key, _, member = owner.partition(".")
    part = rule or member
    return Conflict(
        key,
        ConflictKind.SCHEMA_CONFLICT,
        f"{part}: {found.message}" if part else found.message,
        details={
            "identity": found.identity,
            "name": found.name,
            "base": found.base,
            "source": found.source,
            "target": found.target,
        },
    )
