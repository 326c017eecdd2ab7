"""The steps of a migration.

Each class is one `kind`. Its public fields are the members of the step's JSON, in that order,
followed by the price: `tier`, and where they are known `table_key` and `row_count`. Members that
are `None` and marked *optional* are left out. Hidden fields carry the declarations and numbers with
which a step can be applied: the tests apply every plan to the accepted schema, and compare the
result with the desired one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

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
from omnigraph.schema.migration.cost import Price, Tier
from omnigraph.values import PropType

DropMode = Literal["soft", "hard"]
Form = Literal["note", "rule"]


@dataclass(frozen=True)
class Step(ABC):
    """One change of a schema; the subclasses are the kinds."""

    price: Price = field(metadata=HIDDEN)

    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str = "") -> None:
        super().__init_subclass__()
        cls.kind = kind

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

    @abstractmethod
    def _text(self) -> str: ...


# -- types ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AddType(Step, kind="add_type"):
    """A new declaration: an empty dataset, or nothing for an interface."""

    type_kind: TypeKind
    name: str
    declaration: IrType = field(metadata=HIDDEN)

    def _text(self) -> str:
        return f"add {self.type_kind} type {self.name}"


@dataclass(frozen=True)
class RenameType(Step, kind="rename_type"):
    """A type keeps its dataset, versions and history under another name."""

    type_kind: TypeKind
    from_name: str = field(metadata=member("from"))
    to_name: str = field(metadata=member("to"))

    def _text(self) -> str:
        return f"rename {self.type_kind} type {self.from_name} to {self.to_name}"


@dataclass(frozen=True)
class DropType(Step, kind="drop_type"):
    """A type is gone; older snapshots keep its rows unless the mode is hard."""

    type_kind: TypeKind
    name: str
    mode: DropMode

    def _text(self) -> str:
        return f"drop {self.type_kind} type {self.name} ({self.mode})"


@dataclass(frozen=True)
class UpdateTypeMetadata(Step, kind="update_type_metadata"):
    """The annotations of a type change; `annotations` is the whole new list."""

    type_kind: TypeKind
    name: str
    annotations: tuple[Annotation, ...]

    def _text(self) -> str:
        return f"set notes of {self.type_kind}:{self.name} to {_annotations_text(self.annotations)}"


@dataclass(frozen=True)
class UpdateImplements(Step, kind="update_implements"):
    """A node implements other interfaces; `implements` is the whole new list."""

    type_kind: TypeKind
    type_name: str
    implements: tuple[str, ...]
    interfaces: tuple[IrTypeRef, ...] = field(metadata=HIDDEN)

    def _text(self) -> str:
        names = ", ".join(self.implements) or "no interface"
        return f"{self.type_kind}:{self.type_name} now implements {names}"


@dataclass(frozen=True)
class UpdateCardinality(Step, kind="update_cardinality"):
    """Other numbers of edges per source node are legal."""

    type_kind: TypeKind
    type_name: str
    previous: Cardinality
    cardinality: Cardinality

    def _text(self) -> str:
        return (
            f"change @card of {self.type_kind}:{self.type_name} "
            f"from {_card_text(self.previous)} to {_card_text(self.cardinality)}"
        )


# -- properties ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PropertyStep(Step):
    """A change of one property; `property_name` is its name after all renames."""

    type_kind: TypeKind
    type_name: str
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
class RenameProperty(Step, kind="rename_property"):
    """A property keeps its values under another name."""

    type_kind: TypeKind
    type_name: str
    from_name: str = field(metadata=member("from"))
    to_name: str = field(metadata=member("to"))

    def _text(self) -> str:
        renamed = f"{self.type_kind}:{self.type_name}.{self.from_name}"
        return f"rename property {renamed} to {self.to_name}"


@dataclass(frozen=True)
class DropProperty(PropertyStep, kind="drop_property"):
    """A property is gone; older snapshots keep its values unless the mode is hard."""

    mode: DropMode

    def _text(self) -> str:
        return f"drop property {self.entity} ({self.mode})"


@dataclass(frozen=True)
class ExtendEnum(PropertyStep, kind="extend_enum"):
    """More values are legal, at once."""

    added_values: tuple[str, ...]

    def _text(self) -> str:
        return f"extend enum {self.entity} by {', '.join(self.added_values)}"


@dataclass(frozen=True)
class NarrowEnum(PropertyStep, kind="narrow_enum"):
    """Fewer values are legal; no stored row may hold one of the removed ones."""

    removed_values: tuple[str, ...]

    def _text(self) -> str:
        return f"narrow enum {self.entity} by {', '.join(self.removed_values)}"


@dataclass(frozen=True)
class OpenEnum(PropertyStep, kind="open_enum"):
    """An enum becomes a String."""

    def _text(self) -> str:
        return f"open enum {self.entity} to String"


@dataclass(frozen=True)
class RequireEnum(PropertyStep, kind="require_enum"):
    """A String becomes an enum; every stored value must be one of the listed ones."""

    enum_values: tuple[str, ...]

    def _text(self) -> str:
        return f"restrict {self.entity} to enum({', '.join(self.enum_values)})"


@dataclass(frozen=True)
class WidenProperty(PropertyStep, kind="widen_property"):
    """Values move to a wider type, each exactly."""

    previous_type: PropType
    property_type: PropType

    def _text(self) -> str:
        return f"widen property {self.entity} from {self.previous_type} to {self.property_type}"


@dataclass(frozen=True)
class RelaxProperty(PropertyStep, kind="relax_property"):
    """A required property becomes nullable."""

    def _text(self) -> str:
        return f"make property {self.entity} nullable"


@dataclass(frozen=True)
class RequireProperty(PropertyStep, kind="require_property"):
    """A nullable property becomes required; `code` is what apply reports for stored nulls."""

    code: str | None = field(metadata=OPTIONAL)

    def _text(self) -> str:
        return f"make property {self.entity} required"


@dataclass(frozen=True)
class UpdatePropertyMetadata(PropertyStep, kind="update_property_metadata"):
    """The annotations of a property change; `annotations` is the whole new list."""

    annotations: tuple[Annotation, ...]

    def _text(self) -> str:
        return f"set notes of {self.entity} to {_annotations_text(self.annotations)}"


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
class ConstraintStep(Step):
    """A change of one constraint."""

    type_kind: TypeKind
    type_name: str
    constraint: ShapeConstraint

    @property
    def entity(self) -> str:
        """The type as messages name it."""
        return f"{self.type_kind}:{self.type_name}"

    def to_json(self) -> JsonObject:
        """Return the step as plans show it."""
        return super().to_json() | {"constraint": _constraint_json(self.constraint)}


@dataclass(frozen=True)
class AddConstraint(ConstraintStep, kind="add_constraint"):
    """A new constraint, as annotation, as rule, or as both."""

    forms: tuple[Form, ...]
    rule: IrConstraint = field(metadata=HIDDEN)

    def _text(self) -> str:
        return f"add {constraint_text(self.constraint)} to {self.entity}"


@dataclass(frozen=True)
class DropConstraint(ConstraintStep, kind="drop_constraint"):
    """A constraint is gone."""

    identity: ConstraintIdentity = field(metadata=HIDDEN)

    def _text(self) -> str:
        # Ids of stored rows could not be derived again, so a key never comes back.
        warning = " (cannot be undone)" if self.constraint.kind == "key" else ""
        return f"drop {constraint_text(self.constraint)} of {self.entity}{warning}"


@dataclass(frozen=True)
class UpdateConstraintForm(ConstraintStep, kind="update_constraint_form"):
    """A constraint moves between annotation form and rule form; its meaning stays."""

    from_forms: tuple[Form, ...] = field(metadata=member("from"))
    to_forms: tuple[Form, ...] = field(metadata=member("to"))
    rule: IrConstraint = field(metadata=HIDDEN)

    def _text(self) -> str:
        return (
            f"write {constraint_text(self.constraint)} of {self.entity} "
            f"as {' and '.join(self.to_forms)}"
        )


# -- refusals ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnsupportedChange(Step, kind="unsupported_change"):
    """A change that no apply can make; one of them makes the whole plan unsupported."""

    entity: str
    reason: str
    code: str | None = field(default=None, metadata=OPTIONAL)

    @property
    def message(self) -> str:
        """The reason with its code in front, as apply reports it."""
        return f"[{self.code}] {self.reason}" if self.code else self.reason

    def _text(self) -> str:
        return f"unsupported change of {self.entity}: {self.message}"


STEP_KINDS: Final[tuple[type[Step], ...]] = (
    AddType,
    RenameType,
    DropType,
    UpdateTypeMetadata,
    UpdateImplements,
    UpdateCardinality,
    AddProperty,
    RenameProperty,
    DropProperty,
    ExtendEnum,
    NarrowEnum,
    OpenEnum,
    RequireEnum,
    WidenProperty,
    RelaxProperty,
    RequireProperty,
    UpdatePropertyMetadata,
    UpdateEmbed,
    MoveProperty,
    AddConstraint,
    DropConstraint,
    UpdateConstraintForm,
    UnsupportedChange,
)
"""Every kind, for documentation and tests."""


# -- spelling ------------------------------------------------------------------------------------


def constraint_text(constraint: ShapeConstraint) -> str:
    """Spell a constraint as a rule of a `.pg` text.

    >>> constraint_text(ShapeConstraint("range", ("depth",), min=-50.0, max=4000))
    '@range(depth, -50.0..4000)'
    """
    if constraint.kind == "range":
        low = "" if constraint.min is None else str(constraint.min)
        high = "" if constraint.max is None else str(constraint.max)
        return f"@range({constraint.fields[0]}, {low}..{high})"
    if constraint.kind == "check":
        return f"@check({constraint.fields[0]}, {quote(constraint.pattern or '')})"
    return f"@{constraint.kind}({', '.join(constraint.fields)})"


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


def _annotations_text(annotations: tuple[Annotation, ...]) -> str:
    return " ".join(_annotation_text(annotation) for annotation in annotations) or "none"


def _annotation_text(annotation: Annotation) -> str:
    if annotation.value is None:
        return f"@{annotation.name}"
    arguments = [
        quote(annotation.value),
        *(f"{name}={quote(text)}" for name, text in annotation.kwargs),
    ]
    return f"@{annotation.name}({', '.join(arguments)})"


def _literal(value: DefaultValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return quote(value) if isinstance(value, str) else str(value)


def _card_text(cardinality: Cardinality) -> str:
    return f"{cardinality.min}..{'' if cardinality.max is None else cardinality.max}"
