"""What stored rows must obey before a schema with new rules is accepted.

Every validated step of a plan is one check over the rows in their desired form: renamed, widened
and filled. All offenders are counted and the first of them are listed. Only the columns that a rule
names are read. Memory holds the violations and, for `@unique` and `@card`, the columns that they
compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import singledispatch
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.schema.language.shape import ShapeConstraint
from omnigraph.schema.migration.plan import MigrationPlan
from omnigraph.schema.migration.steps import (
    AddConstraint,
    NarrowEnum,
    RequireEnum,
    RequireProperty,
    Step,
    UpdateCardinality,
)
from omnigraph.schema.values.row_errors import cut
from omnigraph.store.datasets import DatasetHandle
from omnigraph.write.rules.cardinality import SourceCounts, card_message
from omnigraph.write.rules.unique import UNIQUE_RULE, comparable, tuple_text, unique_message
from omnigraph.write.rules.values import ValueRule, value_rules
from omnigraph.write.stage.columns import flat
from omnigraph.write.stage.rewrite_table import TableChange

OFFENDERS_MAX: Final = 100
"""How many offenders an error lists; it counts all of them."""
_QUOTED_MAX: Final = 5


@dataclass(frozen=True)
class Offender:
    """A stored row, or a group of rows, that breaks a new rule."""

    table_key: str
    entity_id: str
    message: str


@dataclass(frozen=True)
class BrokenRule:
    """One validated step that the stored rows do not pass."""

    step: str
    count: int
    offenders: tuple[Offender, ...]
    code: str | None = None


class StoredRowsError(InvalidInputError):
    """Stored rows break rules of the desired schema; nothing was changed."""

    code = "OG-SCHEMA-ROWS"
    hint = "change or remove these rows, then apply the schema again"
    broken: tuple[BrokenRule, ...]

    @property
    def count(self) -> int:
        """How many rows, or groups of rows, break a rule."""
        return sum(rule.count for rule in self.broken)

    def _message(self) -> str:
        lines = [line for rule in self.broken for line in _lines(rule)]
        found = "1 violation" if self.count == 1 else f"{self.count} violations"
        return "\n".join([f"stored rows do not fit the desired schema: {found}", *lines])

    @property
    def details(self) -> dict[str, object]:
        """The facts for the JSON form of the error: every rule with its first offenders."""
        return {
            "broken": [
                {
                    "step": rule.step,
                    "code": rule.code,
                    "count": rule.count,
                    "offenders": [dict(vars(offender)) for offender in rule.offenders],
                }
                for rule in self.broken
            ],
            "total": self.count,
        }


def _lines(rule: BrokenRule) -> Iterator[str]:
    prefix = f"[{rule.code}] " if rule.code else ""
    yield f"- {prefix}{rule.step}: {rule.count}"
    for offender in rule.offenders[:_QUOTED_MAX]:
        yield f"    {offender.table_key} '{cut(offender.entity_id)}': {offender.message}"
    if rule.count > _QUOTED_MAX:
        yield f"    … and {rule.count - _QUOTED_MAX} more"


@dataclass(frozen=True)
class StoredTable:
    """A table to check: its change and its rows."""

    change: TableChange
    handle: DatasetHandle


def validated_steps(plan: MigrationPlan) -> tuple[Step, ...]:
    """Return the steps that depend on stored rows."""
    return tuple(step for step in plan.steps if step.tier == "validated")


def check_stored_rows(steps: Iterable[Step], tables: Mapping[str, StoredTable]) -> None:
    """Raise with all violations of the new rules; `tables` is by accepted key."""
    broken = []
    for step in steps:
        if step.table_key is None:
            continue
        rule = _summary(step, _violations(step, tables[step.table_key]))
        if rule is not None:
            broken.append(rule)
    if broken:
        raise StoredRowsError(tuple(broken))


def _summary(step: Step, violations: Iterator[Offender]) -> BrokenRule | None:
    listed = tuple(islice(violations, OFFENDERS_MAX))
    count = len(listed) + sum(1 for _ in violations)
    if count == 0:
        return None
    return BrokenRule(step.describe(), count, listed, getattr(step, "code", None))


# -- one rule per kind of step -------------------------------------------------------------------


@singledispatch
def _violations(step: Step, _table: StoredTable) -> Iterator[Offender]:
    raise TypeError(f"no rule checks stored rows for a step of kind '{step.kind}'")


@_violations.register
def _(step: RequireProperty, table: StoredTable) -> Iterator[Offender]:
    name = step.property_name
    key = table.change.accepted.table_key
    for batch in table.change.read(table.handle, ("id", name)):
        for entity_id in batch["id"].filter(batch[name].is_null()).to_pylist():
            yield Offender(key, entity_id, f"{step.type_name}.{name} is null")


@_violations.register
def _(step: NarrowEnum, table: StoredTable) -> Iterator[Offender]:
    return _breaking("enum", step.property_name, table)


@_violations.register
def _(step: RequireEnum, table: StoredTable) -> Iterator[Offender]:
    return _breaking("enum", step.property_name, table)


@_violations.register
def _(step: AddConstraint, table: StoredTable) -> Iterator[Offender]:
    constraint = step.constraint
    if constraint.kind == UNIQUE_RULE:
        return _repeated(constraint.fields, table)
    return _breaking(constraint.kind, constraint.fields[0], table, constraint)


@_violations.register
def _(step: UpdateCardinality, table: StoredTable) -> Iterator[Offender]:
    sources = flat(_read(table, ("src",))["src"])
    counted = SourceCounts.of(pc.unique(sources), [sources])
    for row in counted.outside(step.cardinality).tolist():
        source, count = counted.sources[row].as_py(), int(counted.counts[row])
        edges = "1 edge" if count == 1 else f"{count} edges"
        message = card_message(step.type_name, step.cardinality, source, count, edges)
        yield Offender(table.change.accepted.table_key, source, message)


# -- parts -----------------------------------------------------------------------------------------


def _breaking(
    kind: str, name: str, table: StoredTable, constraint: ShapeConstraint | None = None
) -> Iterator[Offender]:
    """Find rows whose value breaks a rule of the desired type."""
    rule = _value_rule(kind, name, table, constraint)
    key = table.change.accepted.table_key
    for batch in table.change.read(table.handle, ("id", rule.property)):
        messages = rule.check(batch[rule.property]).messages
        is_bad = messages.is_valid()
        bad = zip(
            batch["id"].filter(is_bad).to_pylist(),
            messages.filter(is_bad).to_pylist(),
            strict=True,
        )
        for entity_id, message in bad:
            yield Offender(key, entity_id, message)


def _value_rule(
    kind: str, name: str, table: StoredTable, constraint: ShapeConstraint | None
) -> ValueRule:
    for rule in value_rules(table.change.desired):
        if (rule.name, rule.property) == (kind, name) and all(
            getattr(constraint, term) == value for term, value in rule.terms.items()
        ):
            return rule
    raise TypeError(f"no rule checks stored rows for '@{kind}'")


def _repeated(members: tuple[str, ...], table: StoredTable) -> Iterator[Offender]:
    """Find tuples that several rows hold; a null in a tuple exempts its row."""
    rows = _read(table, ("id", *members)).drop_null()
    keys = {f"member {name}": comparable(flat(rows[name])) for name in members}
    numbered = pa.table({**keys, "id": rows["id"], "row": pa.array(np.arange(rows.num_rows))})
    wanted = [("id", "count"), ("id", "min"), ("id", "max"), ("row", "min")]
    held = numbered.group_by(list(keys)).aggregate(wanted)
    type_name = table.change.desired.name
    for row in held.filter(pc.greater(held["id_count"], 1)).to_pylist():
        first = row["row_min"]
        value = cut(tuple_text([str(rows[member][first].as_py()) for member in members]))
        holders = row["id_min"], row["id_max"]
        message = unique_message(type_name, members, value, held_by=holders)
        yield Offender(table.change.accepted.table_key, holders[0], message)


def _read(table: StoredTable, columns: tuple[str, ...]) -> pa.Table:
    names = tuple(dict.fromkeys(columns))
    schema = pa.schema([table.change.desired.arrow_schema.field(name) for name in names])
    return pa.Table.from_batches(table.change.read(table.handle, names), schema=schema)
