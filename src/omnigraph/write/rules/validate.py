"""The rules of the data, in their order, and the check of a change in memory.

1. The rules run once, over the net change of a whole operation, before it is committed.
2. All violations are collected, in the order of `RULES`.
3. The result holds as long as the tables do not move. The commit itself compares written tables;
   the others that the result depends on are the `reads` of the check, and `run_again` runs the
   rules again for those of them that have moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.manifest import Entry, Snapshot
from omnigraph.manifest.state import ManifestState
from omnigraph.names import TableKey
from omnigraph.schema import Catalog, EdgeType
from omnigraph.write.rules.cardinality import check_cardinality
from omnigraph.write.rules.check import Rule, RuleCheck, types_by_name
from omnigraph.write.rules.delta_check import DeltaCheck
from omnigraph.write.rules.endpoints import check_endpoints, edge_ends
from omnigraph.write.rules.ids import check_repeated_ids, check_stored_ids
from omnigraph.write.rules.orphans import check_orphans
from omnigraph.write.rules.unique import check_unique
from omnigraph.write.rules.values import check_values
from omnigraph.write.rules.violations import STATEMENT
from omnigraph.write.stage.delta import GraphDelta
from omnigraph.write.stage.stored_rows import StoredRows

RULES: Final[tuple[tuple[Rule, ...], ...]] = (
    (check_values,),
    (check_repeated_ids, check_unique, check_endpoints, check_orphans, check_cardinality),
    (check_stored_ids,),
)
"""All rules in their order. Each group is one pass over the types, by name."""


def run_rules(check: RuleCheck) -> None:
    """Collect all violations of a write in the findings of the check."""
    entity_types = types_by_name(check.catalog)
    for rules in RULES:
        for entity_type in entity_types:
            for rule in rules:
                rule(entity_type, check)


def run_again(check: RuleCheck, moved: frozenset[str]) -> None:
    """Run the rules that depend on tables which are only read, and which have moved."""
    for entity_type in types_by_name(check.catalog):
        if not isinstance(entity_type, EdgeType):
            continue
        if any(TableKey.node(name) in moved for _, name in edge_ends(entity_type)):
            check_endpoints(entity_type, check)
        if entity_type.table_key in moved:
            check_orphans(entity_type, check)


@dataclass(frozen=True)
class Validated:
    """A change that breaks no rule.

    `reads` and `revalidate` go into the `WriteJob`.
    """

    check: DeltaCheck
    snapshot: Snapshot

    @property
    def reads(self) -> Mapping[str, Entry | None]:
        """The published entries of tables that are only read."""
        return self.check.reads

    @property
    def stored(self) -> StoredRows:
        """The stored rows, with what the rules have looked up."""
        return self.check.stored

    def revalidate(self, state: ManifestState, moved: frozenset[str]) -> None:
        """Run the rules again that depend on tables which have moved."""
        now = Snapshot(self.snapshot.incarnation, state, self.snapshot.datasets)
        check = self.check.against(StoredRows(now))
        run_again(check, moved)
        check.findings.log.require_clean(STATEMENT)


def validate(
    delta: GraphDelta, snapshot: Snapshot, catalog: Catalog, *, stored: StoredRows | None = None
) -> Validated:
    """Check every rule over the change of a mutation, or raise `ValidationError`.

    `delta` already removes the edges of the nodes that it deletes.
    """
    check = DeltaCheck(delta, catalog, stored or StoredRows(snapshot), cascades=True)
    run_rules(check)
    check.findings.log.require_clean(STATEMENT)
    return Validated(check, snapshot)
