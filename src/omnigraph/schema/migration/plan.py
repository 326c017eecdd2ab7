"""Planning a migration: the difference of two compiled schemas as a list of steps.

Planning never touches data. Steps come in the order in which people read a schema: interfaces,
nodes, edges, each by name; within a type its rename, annotations, interfaces and endpoints,
properties by name with drops last, then constraints; dropped types end their kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omnigraph.display import Display, Displayed
from omnigraph.errors import InvalidInputError
from omnigraph.names import TYPE_KINDS, TableKey, TypeKind
from omnigraph.records import JsonObject
from omnigraph.schema.ir.model import IrEdge, IrNode, IrType, SchemaIR
from omnigraph.schema.migration.constraints import constraint_steps
from omnigraph.schema.migration.cost import TIERS, Price, Tier, is_loosened
from omnigraph.schema.migration.properties import PropertyPlanner
from omnigraph.schema.migration.steps import (
    AddType,
    DropMode,
    DropType,
    RenameType,
    Step,
    UnsupportedChange,
    UpdateCardinality,
    UpdateImplements,
    UpdateTypeMetadata,
)


class UnsupportedMigrationError(InvalidInputError):
    """The plan contains a change that cannot be applied; names the first one."""

    code = "OG-SCHEMA-UNSUPPORTED"
    hint = "`omnigraph schema plan --schema FILE` shows every step; take this one out of the file"
    template = "{change.message}"
    change: UnsupportedChange


@dataclass(frozen=True, repr=False)
class MigrationPlan(Displayed):
    """What has to happen so that the desired schema becomes the accepted one."""

    steps: tuple[Step, ...] = ()

    def _display(self) -> Display:
        verdict = "supported" if self.supported else "not supported"
        rows = [(step.kind, step.describe(), step.tier, step.row_count) for step in self.steps]
        title = f"{len(rows)} steps, {verdict}" if rows else "no schema changes"
        return Display(title, ("step", "change", "cost", "rows") if rows else (), rows)

    @property
    def unsupported(self) -> tuple[UnsupportedChange, ...]:
        """The changes that stand in the way."""
        return tuple(step for step in self.steps if isinstance(step, UnsupportedChange))

    @property
    def supported(self) -> bool:
        """Whether the plan can be applied as a whole."""
        return not self.unsupported

    @property
    def tier(self) -> Tier | None:
        """The most expensive tier of all steps; `None` for an empty plan."""
        return max((step.tier for step in self.steps), key=TIERS.index, default=None)

    def raise_if_unsupported(self) -> None:
        """Raise the first unsupported change, if there is one."""
        if self.unsupported:
            raise UnsupportedMigrationError(self.unsupported[0])

    def to_json(self) -> JsonObject:
        """Return `{supported, steps}`."""
        return {"supported": self.supported, "steps": [step.to_json() for step in self.steps]}

    def render(self) -> str:
        """Return the plan for people: a verdict, then one line per step."""
        verdict = f"supported: {'yes' if self.supported else 'no'}"
        lines = [f"- {step.render()}" for step in self.steps]
        return "\n".join([verdict, *(lines or ["no schema changes"])])


def plan_migration(
    *,
    accepted: SchemaIR,
    desired: SchemaIR,
    allow_data_loss: bool = False,
    row_counts: Mapping[str, int] | None = None,
    is_difference: bool = False,
) -> MigrationPlan:
    """Compare two compiled schemas of one graph.

    `desired` must have been resolved against `accepted`. `row_counts` maps accepted table keys
    (`node:Station`) to rows; without it the steps show none. `allow_data_loss` makes every drop
    hard. `is_difference` lists what differs, also where no apply could get there.
    """
    planner = _Planner("hard" if allow_data_loss else "soft", row_counts, is_difference)
    steps = [
        step
        for kind in TYPE_KINDS
        for step in planner.kind_steps(kind, accepted=accepted, desired=desired)
    ]
    return MigrationPlan(tuple(steps))


@dataclass(frozen=True)
class _TypePrice:
    """Prices the steps of one type: an interface has no dataset, so nothing there costs more."""

    type_kind: TypeKind
    table_key: str
    row_count: int | None

    def __call__(self, tier: Tier) -> Price:
        if self.type_kind == "interface":
            return Price("metadata")
        return Price(tier, self.table_key, self.row_count)


@dataclass(frozen=True)
class _Planner:
    mode: DropMode
    row_counts: Mapping[str, int] | None
    is_difference: bool

    def kind_steps(
        self, kind: TypeKind, *, accepted: SchemaIR, desired: SchemaIR
    ) -> Iterator[Step]:
        known = {t.type_id: t for t in accepted.of_kind(kind)}
        kept = {t.type_id for t in desired.of_kind(kind)}
        for new in desired.of_kind(kind):
            old = known.get(new.type_id)
            if old is None:
                rows = None if self.row_counts is None else 0
                price = _TypePrice(kind, TableKey.of(kind, new.name), rows)("metadata")
                yield AddType(price, kind, new.name, new)
            else:
                yield from self._changed_type(old, new)
        for old in accepted.of_kind(kind):
            if old.type_id not in kept:
                yield DropType(self._price(old)("destructive"), kind, old.name, self.mode)

    def _price(self, accepted: IrType) -> _TypePrice:
        key = TableKey.of(accepted.kind, accepted.name)
        return _TypePrice(accepted.kind, key, (self.row_counts or {}).get(key))

    def _changed_type(self, old: IrType, new: IrType) -> Iterator[Step]:
        price = self._price(old)
        properties = PropertyPlanner(old, new, price, self.mode, self.is_difference)
        numbered = list(properties.steps())
        if old.name != new.name:
            yield RenameType(price("metadata"), new.kind, old.name, new.name)
        if old.annotations != new.annotations:
            yield UpdateTypeMetadata(price("metadata"), new.kind, new.name, new.annotations)
        if isinstance(old, IrNode) and isinstance(new, IrNode):
            yield from _implements_steps(old, new, price, numbered)
        if isinstance(old, IrEdge) and isinstance(new, IrEdge):
            yield from _endpoint_steps(old, new, price)
        yield from (step for _, step in numbered)
        if isinstance(old, IrEdge) and isinstance(new, IrEdge):
            yield from _cardinality_steps(old, new, price)
        yield from constraint_steps(
            old,
            new,
            price=price,
            empty_columns=properties.empty_columns(),
            is_difference=self.is_difference,
        )


def _implements_steps(
    old: IrNode, new: IrNode, price: _TypePrice, property_steps: list[tuple[int, Step]]
) -> Iterator[Step]:
    before = {ref.type_id for ref in old.implements}
    after = {ref.type_id for ref in new.implements}
    if before == after:
        return
    refused = _refused_properties(before ^ after, old, new, property_steps)
    names = tuple(sorted(ref.type_name for ref in new.implements))
    if refused is None:
        yield UpdateImplements(price("metadata"), new.kind, new.name, names, new.implements)
        return
    yield UnsupportedChange(
        price(refused.tier),
        f"{new.kind}:{new.name}",
        f"changing implemented interfaces of '{new.name}' to ({', '.join(names)}) needs properties "
        f"that agree, but {refused.entity} does not: {refused.message}",
    )


def _refused_properties(
    interfaces: set[int], old: IrNode, new: IrNode, property_steps: list[tuple[int, Step]]
) -> UnsupportedChange | None:
    """Find a property of the interfaces that come or go which cannot follow."""
    contested = {
        prop.property_id
        for version in (old, new)
        for prop in version.properties
        for ref in prop.satisfies_interface_properties
        if ref.owner_type_id in interfaces
    }
    for number, step in property_steps:
        if number in contested and isinstance(step, UnsupportedChange):
            return step
    return None


def _endpoint_steps(old: IrEdge, new: IrEdge, price: _TypePrice) -> Iterator[Step]:
    before = old.from_type.type_id, old.to_type.type_id
    if before != (new.from_type.type_id, new.to_type.type_id):
        yield UnsupportedChange(
            price("destructive"),
            f"{new.kind}:{new.name}",
            f"changing edge endpoints of '{new.name}' "
            f"from {old.from_type.type_name} -> {old.to_type.type_name} "
            f"to {new.from_type.type_name} -> {new.to_type.type_name} would leave stored edges "
            f"without nodes; declare a new edge type",
        )


def _cardinality_steps(old: IrEdge, new: IrEdge, price: _TypePrice) -> Iterator[Step]:
    if old.cardinality != new.cardinality:
        tier: Tier = "metadata" if is_loosened(old.cardinality, new.cardinality) else "validated"
        yield UpdateCardinality(price(tier), new.kind, new.name, old.cardinality, new.cardinality)
