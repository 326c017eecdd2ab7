"""The difference of two compiled schemas of one graph, whatever branches they come from."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.ir.model import SchemaIR
from omnigraph.schema.ir.renumber import renumbered
from omnigraph.schema.migration.plan import MigrationPlan, plan_migration


def schema_difference(
    before: SchemaIR,
    after: SchemaIR,
    aliases: Aliases | None = None,
    *,
    row_counts: Mapping[str, int] | None = None,
) -> MigrationPlan:
    """Return the steps from one schema to the other, by identity and never by name.

    Numbers that the schemas, or the given aliases, call the same are one identity, so the list is
    empty where the schemas differ in numbers only. It says what differs, in either direction: a
    property that lost its wider type is a `retype_property`, which no apply could make.
    `row_counts` maps table keys of `before` to rows, for the price of the steps.
    """
    known = aliases or Aliases.of(before, after)
    return plan_migration(
        accepted=renumbered(before, known),
        desired=renumbered(after, known),
        row_counts=row_counts,
        is_difference=True,
    )
