"""The steps of a migration.

Each class is one `kind`. Its public fields are the members of the step's JSON, in that order,
followed by the price: `tier`, and where they are known `table_key` and `row_count`. Members that
are `None` and marked *optional* are left out. `text` is the line for people, with the fields and
the `step` itself to fill in. Hidden fields carry the declarations and numbers with
which a step can be applied: the tests apply every plan to the accepted schema, and compare the
result with the desired one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from omnigraph.names import TypeKind
from omnigraph.records import HIDDEN, OPTIONAL, JsonObject, member, to_json
from omnigraph.schema.catalog import Annotation, Cardinality, EmbedSource
from omnigraph.schema.defaults import DefaultValue
from omnigraph.schema.ir.model import (
    ConstraintIdentity,
    IrConstraint,
    IrEmbed,
    IrProperty,
    IrType,
    IrTypeRef,
)
from omnigraph.schema.language.quote import quote
from omnigraph.schema.language.shape import Bound, ShapeConstraint
from omnigraph.schema.language.spell import annotation_text, rule_text
from omnigraph.schema.migration.cost import Price, Tier
from omnigraph.values import PropType

DropMode = Literal["soft", "hard"]
Form = Literal["note", "rule"]


@dataclass(frozen=True)
class Step:
    """One change of a schema; the subclasses are the kinds."""

    price: Price = field(metadata=HIDDEN)

    kind: ClassVar[str]
    text: ClassVar[str]

    def __init_subclass__(cls, kind: str = "", text: str = "") -> None:
        super().__init_subclass__()
        cls.kind = kind
        cls.text = text

    @property
    def tier(self) -> Tier:
        """What the step costs."""
        return self.price.tier

    @property
    def table_key(self) -> str | None:
        """The dataset that the step touches, by its accepted name; new types by their own."""
        return self.price.table_key

    @property
    def row_count(self) -> int | None:
        """How many rows that dataset has, if the planner knows."""
        return self.price.row_count

    def to_json(self) -> JsonObject:
        """Return the step as plans show it."""
        form: JsonObject = {"kind": self.kind, **to_json(self)}
        form["tier"] = self.tier
        if self.table_key is not None:
            form["table_key"] = self.table_key
        if self.row_count is not None:
            form["row_count"] = self.row_count
        return form

    def describe(self) -> str:
        """Return one line that says what changes."""
        return self._text()

    def render(self) -> str:
        """Return one line that says what changes and what it costs."""
        return f"{self.describe()} [{', '.join(self._costs())}]"

    def _costs(self) -> list[str]:
        costs: list[str] = [self.tier]
        if self.table_key is not None:
            costs.append(self.table_key)
        if self.row_count is not None:
            costs.append("1 row" if self.row_count == 1 else f"{self.row_count} rows")
        return costs

    def _text(self) -> str:
        shown = {name: _shown(value) for name, value in vars(self).items()}
        return self.text.format(step=self, **shown)


# -- types ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AddType(Step, kind="add_type", text="add {type_kind} type {name}"):
    """A new declaration: an empty dataset, or nothing for an interface."""

    type_kind: TypeKind
    name: str
    declaration: IrType = field(metadata=HIDDEN)


@dataclass(frozen=True)
class RenameType(Step, kind="rename_type", text="rename {type_kind} type {from_name} to {to_name}"):
    """A type keeps its dataset, versions and history under another name."""

    type_kind: TypeKind
    from_name: str = field(metadata=member("from"))
    to_name: str = field(metadata=member("to"))


@dataclass(frozen=True)
class DropType(Step, kind="drop_type", text="drop {type_kind} type {name} ({mode})"):
    """A type is gone; older snapshots keep its rows unless the mode is hard."""

    type_kind: TypeKind
    name: str
    mode: DropMode


@dataclass(frozen=True)
class UpdateTypeMetadata(
    Step, kind="update_type_metadata", text="set notes of {type_kind}:{name} to {annotations}"
):
    """The annotations of a type change; `annotations` is the whole new list."""

    type_kind: TypeKind
    name: str
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True)
class TypeStep(Step):
    """A change of one type; `type_name` is its name after all renames."""

    type_kind: TypeKind
    type_name: str

    @property
    def entity(self) -> str:
        """The type as messages name it."""
        return f"{self.type_kind}:{self.type_name}"


@dataclass(frozen=True)
class UpdateImplements(TypeStep, kind="update_implements"):
    """A node implements other interfaces; `implements` is the whole new list."""

    implements: tuple[str, ...]
    interfaces: tuple[IrTypeRef, ...] = field(metadata=HIDDEN)

    def _text(self) -> str:
        names = ", ".join(self.implements) or "no interface"
        return f"{self.entity} now implements {names}"


@dataclass(frozen=True)
class UpdateCardinality(
    TypeStep,
    kind="update_cardinality",
    text="change @card of {step.entity} from {previous} to {cardinality}",
):
    """Other numbers of edges per source node are legal."""

    previous: Cardinality
    cardinality: Cardinality


# -- properties ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PropertyStep(TypeStep):
    """A change of one property; `property_name` is its name after all renames."""

    property_name: str

    @property
    def entity(self) -> str:
        """The property as messages name it."""
        return f"{self.type_kind}:{self.type_name}.{self.property_name}"


@dataclass(frozen=True)
class AddProperty(PropertyStep, kind="add_property"):
    """A new property: all null, or `default` in every row where it is required."""

    property_type: PropType
    default: DefaultValue | None = field(metadata=OPTIONAL)
    declaration: IrProperty = field(metadata=HIDDEN)

    def _text(self) -> str:
        filled = "" if self.default is None else f", filled with {_literal(self.default)}"
        return f"add property {self.entity}: {self.property_type}{filled}"


@dataclass(frozen=True)
class RenameProperty(
    TypeStep, kind="rename_property", text="rename property {step.entity}.{from_name} to {to_name}"
):
    """A property keeps its values under another name."""

    from_name: str = field(metadata=member("from"))
    to_name: str = field(metadata=member("to"))


@dataclass(frozen=True)
class DropProperty(PropertyStep, kind="drop_property", text="drop property {step.entity} ({mode})"):
    """A property is gone; older snapshots keep its values unless the mode is hard."""

    mode: DropMode


@dataclass(frozen=True)
class ExtendEnum(
    PropertyStep, kind="extend_enum", text="extend enum {step.entity} by {added_values}"
):
    """More values are legal, at once."""

    added_values: tuple[str, ...]


@dataclass(frozen=True)
class NarrowEnum(
    PropertyStep, kind="narrow_enum", text="narrow enum {step.entity} by {removed_values}"
):
    """Fewer values are legal; no stored row may hold one of the removed ones."""

    removed_values: tuple[str, ...]


@dataclass(frozen=True)
class OpenEnum(PropertyStep, kind="open_enum", text="open enum {step.entity} to String"):
    """An enum becomes a String."""


@dataclass(frozen=True)
class RequireEnum(
    PropertyStep, kind="require_enum", text="restrict {step.entity} to enum({enum_values})"
):
    """A String becomes an enum; every stored value must be one of the listed ones."""

    enum_values: tuple[str, ...]


@dataclass(frozen=True)
class WidenProperty(
    PropertyStep,
    kind="widen_property",
    text="widen property {step.entity} from {previous_type} to {property_type}",
):
    """Values move to a wider type, each exactly."""

    previous_type: PropType
    property_type: PropType


@dataclass(frozen=True)
class RetypeProperty(
    PropertyStep,
    kind="retype_property",
    text="change type of {step.entity} from {previous_type} to {property_type}",
):
    """Values have another type, which not all of them may fit; only differences have this step."""

    previous_type: PropType
    property_type: PropType


@dataclass(frozen=True)
class RelaxProperty(
    PropertyStep, kind="relax_property", text="make property {step.entity} nullable"
):
    """A required property becomes nullable."""


@dataclass(frozen=True)
class RequireProperty(
    PropertyStep, kind="require_property", text="make property {step.entity} required"
):
    """A nullable property becomes required; `code` is what apply reports for stored nulls."""

    code: str | None = field(metadata=OPTIONAL)


@dataclass(frozen=True)
class UpdatePropertyMetadata(
    PropertyStep,
    kind="update_property_metadata",
    text="set notes of {step.entity} to {annotations}",
):
    """The annotations of a property change; `annotations` is the whole new list."""

    annotations: tuple[Annotation, ...]


@dataclass(frozen=True)
class UpdateEmbed(PropertyStep, kind="update_embed"):
    """Another text or model fills a vector; `pending`: stored vectors are stale until embedded."""

    embed_source: EmbedSource | None
    pending: bool
    embed: IrEmbed | None = field(metadata=HIDDEN)

    def _text(self) -> str:
        if self.embed_source is None:
            return f"stop embedding into {self.entity}"
        model = f" by {self.embed_source.model}" if self.embed_source.model else ""
        stale = ", stored vectors pending" if self.pending else ""
        return f"embed {self.embed_source.source} into {self.entity}{model}{stale}"


@dataclass(frozen=True)
class MoveProperty(PropertyStep, kind="move_property"):
    """A property moves between the body of its node and an interface."""

    declared_directly: bool

    def _text(self) -> str:
        place = "the node's body" if self.declared_directly else "an interface"
        return f"declare property {self.entity} in {place}"


# -- constraints ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConstraintStep(TypeStep):
    """A change of one constraint."""

    constraint: ShapeConstraint

    def to_json(self) -> JsonObject:
        """Return the step as plans show it."""
        return super().to_json() | {"constraint": _constraint_json(self.constraint)}


@dataclass(frozen=True)
class AddConstraint(
    ConstraintStep, kind="add_constraint", text="add {constraint} to {step.entity}"
):
    """A new constraint, as annotation, as rule, or as both."""

    forms: tuple[Form, ...]
    rule: IrConstraint = field(metadata=HIDDEN)


@dataclass(frozen=True)
class DropConstraint(ConstraintStep, kind="drop_constraint"):
    """A constraint is gone."""

    identity: ConstraintIdentity = field(metadata=HIDDEN)

    def _text(self) -> str:
        # Ids of stored rows could not be derived again, so a key never comes back.
        warning = " (cannot be undone)" if self.constraint.kind == "key" else ""
        return f"drop {rule_text(self.constraint)} of {self.entity}{warning}"


@dataclass(frozen=True)
class UpdateConstraintForm(ConstraintStep, kind="update_constraint_form"):
    """A constraint moves between annotation form and rule form; its meaning stays."""

    from_forms: tuple[Form, ...] = field(metadata=member("from"))
    to_forms: tuple[Form, ...] = field(metadata=member("to"))
    rule: IrConstraint = field(metadata=HIDDEN)

    def _text(self) -> str:
        return (
            f"write {rule_text(self.constraint)} of {self.entity} as {' and '.join(self.to_forms)}"
        )


# -- refusals ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnsupportedChange(
    Step, kind="unsupported_change", text="unsupported change of {entity}: {step.message}"
):
    """A change that no apply can make; one of them makes the whole plan unsupported."""

    entity: str
    reason: str
    code: str | None = field(default=None, metadata=OPTIONAL)

    @property
    def message(self) -> str:
        """The reason with its code in front, as apply reports it."""
        return f"[{self.code}] {self.reason}" if self.code else self.reason


# -- spelling ------------------------------------------------------------------------------------


def _constraint_json(constraint: ShapeConstraint) -> JsonObject:
    if constraint.kind == "range":
        low, high = Bound.of(constraint.min), Bound.of(constraint.max)
        return {
            "Range": {
                "property": constraint.fields[0],
                "min": to_json(low),
                "max": to_json(high),
            }
        }
    if constraint.kind == "check":
        return {"Check": {"property": constraint.fields[0], "pattern": constraint.pattern}}
    return {constraint.kind.capitalize(): [*constraint.fields]}


def _shown(value: object) -> str:
    if isinstance(value, ShapeConstraint):
        return rule_text(value)
    if isinstance(value, Cardinality):
        return f"{value.min}..{'' if value.max is None else value.max}"
    if isinstance(value, tuple):
        notes = [annotation_text(each) for each in value if isinstance(each, Annotation)]
        return " ".join(notes) or ", ".join(map(str, value)) or "none"
    return str(value)


def _literal(value: DefaultValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return quote(value) if isinstance(value, str) else str(value)
