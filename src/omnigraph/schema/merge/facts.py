"""What a schema declares, taken apart by identity.

Each type, property and constraint is one fact under one identity. A merge compares facts of the
same identity; a change of a type's notes, for example, leaves the facts of its properties as they
are. All numbers in identities and facts are canonical, so facts of several branches compare.

| identity | text | what the fact has |
|---|---|---|
| type | `type:12` | name, notes, interfaces, ends |
| property | `property:34` | name, type, notes, `@embed`; nothing where it is injected |
| constraint | `constraint:12:unique:34,35` | arguments and forms of the rules over these members |
| key | `constraint:12:key` | its members and form |
| cardinality | `constraint:12:card` | the bounds |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from omnigraph.names import TypeKind
from omnigraph.records import Json, to_json
from omnigraph.schema.catalog import Annotation, Cardinality
from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.ir.model import (
    Filled,
    IrConstraint,
    IrEdge,
    IrNode,
    IrProperty,
    IrPropertyRef,
    IrType,
    SchemaIR,
)
from omnigraph.schema.language.shape import Bound
from omnigraph.schema.language.spell import rule_text
from omnigraph.schema.language.tree import RuleKind
from omnigraph.values import PropType

Member: TypeAlias = int | str
"""The number of a property, or the name of a structural column."""


@dataclass(frozen=True, order=True)
class TypeIdentity:
    """A type."""

    type_id: int

    def __str__(self) -> str:
        return f"type:{self.type_id}"


@dataclass(frozen=True, order=True)
class PropertyIdentity:
    """A property; `type_id` is the number of its type."""

    type_id: int
    property_id: int

    def __str__(self) -> str:
        return f"property:{self.property_id}"


@dataclass(frozen=True)
class ConstraintIdentity:
    """The rules of one kind over the same members; a type has one key, so it needs none of them."""

    type_id: int
    kind: RuleKind | Literal["card"]
    members: tuple[Member, ...] = ()

    def __str__(self) -> str:
        members = f":{','.join(map(str, self.members))}" if self.members else ""
        return f"constraint:{self.type_id}:{self.kind}{members}"


Identity: TypeAlias = TypeIdentity | PropertyIdentity | ConstraintIdentity


@dataclass(frozen=True)
class TypeFact:
    """A declaration without its members."""

    kind: TypeKind
    name: str
    annotations: tuple[Annotation, ...] = ()
    implements: frozenset[int] = frozenset()
    ends: tuple[int, ...] = ()

    @property
    def uses(self) -> tuple[Identity, ...]:
        """What must exist for this to be declared."""
        return tuple(TypeIdentity(number) for number in (*sorted(self.implements), *self.ends))


@dataclass(frozen=True)
class PropertyFact:
    """A property that the body of its type declares."""

    type_id: int
    name: str
    prop_type: PropType
    annotations: tuple[Annotation, ...]
    embed: tuple[Member, str | None] | None
    filled: Filled | None

    @property
    def uses(self) -> tuple[Identity, ...]:
        """What must exist for this to be declared."""
        found: list[Identity] = [TypeIdentity(self.type_id)]
        if self.embed is not None and isinstance(self.embed[0], int):
            found.append(PropertyIdentity(self.type_id, self.embed[0]))
        return tuple(found)


@dataclass(frozen=True)
class InjectedFact:
    """A property that interfaces give to a node; what it is like is said there.

    `offers` are the interface properties that do so, the first one of which names it.
    """

    type_id: int
    offers: tuple[PropertyIdentity, ...] = field(compare=False)

    @property
    def uses(self) -> tuple[Identity, ...]:
        """What must exist for this to be declared; the offers are alternatives."""
        return (TypeIdentity(self.type_id),)


@dataclass(frozen=True)
class Rule:
    """The arguments of one rule, and whether it is written as note, as rule, or as both."""

    min: Bound | None = None
    max: Bound | None = None
    pattern: str | None = None
    is_note: bool = False
    is_rule: bool = False


@dataclass(frozen=True)
class ConstraintFact:
    """All rules of one kind over the same members."""

    type_id: int
    members: tuple[Member, ...]
    rules: frozenset[Rule]

    @property
    def uses(self) -> tuple[Identity, ...]:
        """What must exist for this to be declared."""
        numbers = (member for member in self.members if isinstance(member, int))
        return TypeIdentity(self.type_id), *(
            PropertyIdentity(self.type_id, each) for each in numbers
        )


@dataclass(frozen=True)
class CardinalityFact:
    """How many edges of a type a source node may have."""

    type_id: int
    cardinality: Cardinality

    @property
    def uses(self) -> tuple[Identity, ...]:
        """What must exist for this to be declared."""
        return (TypeIdentity(self.type_id),)


Fact: TypeAlias = TypeFact | PropertyFact | InjectedFact | ConstraintFact | CardinalityFact
Facts: TypeAlias = Mapping[Identity, Fact]


@dataclass(frozen=True)
class Declared:
    """One schema under canonical numbers.

    `base_types` are the types that have rows from before the branches parted; what a property was
    filled with matters only there.
    """

    ir: SchemaIR
    aliases: Aliases
    base_types: frozenset[int] = frozenset()

    @cached_property
    def types(self) -> dict[int, IrType]:
        """The types by their canonical numbers."""
        return {self.aliases.canonical(each.type_id): each for each in self.ir.types()}

    @cached_property
    def properties(self) -> dict[int, tuple[IrType, IrProperty]]:
        """The properties, each with its type, by canonical numbers."""
        return {
            self.aliases.canonical(prop.property_id): (declared, prop)
            for declared in self.ir.types()
            for prop in declared.properties
        }

    @cached_property
    def facts(self) -> dict[Identity, Fact]:
        """Everything that the schema declares."""
        return dict(found for each in self.ir.types() for found in self._facts_of(each))

    def identity_of(self, declared: IrType, prop: IrProperty) -> PropertyIdentity:
        """Return the identity of a property."""
        canonical = self.aliases.canonical
        return PropertyIdentity(canonical(declared.type_id), canonical(prop.property_id))

    def number_of(self, identity: TypeIdentity | PropertyIdentity) -> int | None:
        """Return the number that this schema itself has; `None` if it has no such thing."""
        if isinstance(identity, TypeIdentity):
            found = self.types.get(identity.type_id)
            return found.type_id if found else None
        known = self.properties.get(identity.property_id)
        return known[1].property_id if known else None

    def offers_of(self, prop: IrProperty) -> tuple[PropertyIdentity, ...]:
        """Return the interface properties that a property satisfies."""
        canonical = self.aliases.canonical
        found = (
            PropertyIdentity(canonical(ref.owner_type_id), canonical(ref.property_id))
            for ref in prop.satisfies_interface_properties
            if ref.property_id is not None
        )
        return tuple(sorted(found))

    def name_of(self, identity: Identity) -> str | None:
        """Return the name as messages have it; `None` if the schema has no such thing."""
        declared = self.types.get(identity.type_id)
        if declared is None or identity not in self.facts:
            return None
        entity = f"{declared.kind}:{declared.name}"
        if isinstance(identity, TypeIdentity):
            return entity
        if isinstance(identity, PropertyIdentity):
            return f"{entity}.{self.properties[identity.property_id][1].name}"
        if identity.kind == "card":
            return f"@card of {entity}"
        return f"@{identity.kind}({', '.join(self._member_names(identity))}) of {entity}"

    def json_of(self, identity: Identity) -> Json:
        """Return the definition as the compiled schema has it; `None` if there is none."""
        found = self.facts.get(identity)
        if found is None:
            return None
        if isinstance(identity, TypeIdentity):
            form: Json = to_json(self.types[identity.type_id])
        elif isinstance(identity, PropertyIdentity):
            form = to_json(self.properties[identity.property_id][1])
        elif isinstance(found, CardinalityFact):
            form = to_json(found.cardinality)
        else:
            form = [*self._rule_texts(identity)]
        return form

    def _member_names(self, identity: Identity) -> list[str]:
        found = self.facts[identity]
        members = found.members if isinstance(found, ConstraintFact) else ()
        return [self.properties[m][1].name if isinstance(m, int) else m for m in members]

    def _rule_texts(self, identity: ConstraintIdentity) -> Iterator[str]:
        declared = self.types[identity.type_id]
        for rule, form in _written(declared):
            if self._identity(declared, rule) == identity:
                [member, *_] = rule.fields
                yield f"{member.name} @{rule.kind}" if form == "note" else rule_text(rule.by_name)

    # -- facts -----------------------------------------------------------------------------------

    def _facts_of(self, found: IrType) -> Iterator[tuple[Identity, Fact]]:
        number = self.aliases.canonical(found.type_id)
        yield TypeIdentity(number), self._type_fact(found)
        for prop in found.properties:
            yield self.identity_of(found, prop), self._property_fact(found, prop)
        if isinstance(found, IrEdge):
            yield ConstraintIdentity(number, "card"), CardinalityFact(number, found.cardinality)
        yield from self._constraint_facts(found)

    def _type_fact(self, found: IrType) -> TypeFact:
        canonical = self.aliases.canonical
        implements: frozenset[int] = frozenset()
        ends: tuple[int, ...] = ()
        if isinstance(found, IrNode):
            implements = frozenset(canonical(ref.type_id) for ref in found.implements)
        elif isinstance(found, IrEdge):
            ends = canonical(found.from_type.type_id), canonical(found.to_type.type_id)
        return TypeFact(found.kind, found.name, found.annotations, implements, ends)

    def _property_fact(self, declared: IrType, prop: IrProperty) -> PropertyFact | InjectedFact:
        number = self.aliases.canonical(declared.type_id)
        if not prop.declared_directly:
            return InjectedFact(number, self.offers_of(prop))
        embed = prop.embed_source
        return PropertyFact(
            type_id=number,
            name=prop.name,
            prop_type=prop.prop_type,
            annotations=prop.annotations,
            embed=(self._member(embed.source), embed.model) if embed else None,
            filled=prop.filled if number in self.base_types else None,
        )

    def _constraint_facts(self, declared: IrType) -> Iterator[tuple[Identity, Fact]]:
        found: dict[ConstraintIdentity, dict[Rule, Rule]] = {}
        members: dict[ConstraintIdentity, tuple[Member, ...]] = {}
        for rule, form in _written(declared):
            identity = self._identity(declared, rule)
            members[identity] = self._members(rule)
            plain = Rule(rule.min, rule.max, rule.pattern)
            known = found.setdefault(identity, {}).get(plain, plain)
            found[identity][plain] = Rule(
                plain.min,
                plain.max,
                plain.pattern,
                is_note=known.is_note or form == "note",
                is_rule=known.is_rule or form == "rule",
            )
        number = self.aliases.canonical(declared.type_id)
        for identity, rules in found.items():
            yield identity, ConstraintFact(number, members[identity], frozenset(rules.values()))

    def _identity(self, declared: IrType, rule: IrConstraint) -> ConstraintIdentity:
        members = () if rule.kind == "key" else self._members(rule)
        return ConstraintIdentity(self.aliases.canonical(declared.type_id), rule.kind, members)

    def _members(self, rule: IrConstraint) -> tuple[Member, ...]:
        found = {
            self._member(each) if isinstance(each, IrPropertyRef) else each.role
            for each in rule.fields
        }
        return tuple(sorted(found, key=lambda each: (isinstance(each, int), str(each).zfill(20))))

    def _member(self, ref: IrPropertyRef) -> Member:
        if ref.property_id is None:
            return ref.property_name
        return self.aliases.canonical(ref.property_id)


def _written(declared: IrType) -> Iterator[tuple[IrConstraint, Literal["note", "rule"]]]:
    """Yield the rules that the declaration has itself; an injected property brings its own."""
    for prop in declared.properties:
        for kind in prop.property_constraints if prop.declared_directly else ():
            yield _noted(declared, prop, kind), "note"
    for rule in declared.constraints:
        yield rule, "rule"


def _noted(declared: IrType, prop: IrProperty, kind: RuleKind) -> IrConstraint:
    member = IrPropertyRef(declared.type_id, declared.name, prop.property_id, prop.name)
    return IrConstraint(kind, (member,))
