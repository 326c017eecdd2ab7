"""The declarations of a merged schema by name, as its text has to have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from omnigraph.names import TypeKind
from omnigraph.schema.catalog import Annotation, Cardinality
from omnigraph.schema.ir.model import UNLIMITED
from omnigraph.schema.language.shape import ShapeConstraint
from omnigraph.schema.language.spell import rule_text
from omnigraph.schema.language.tree import RuleKind
from omnigraph.schema.merge.facts import (
    CardinalityFact,
    ConstraintFact,
    ConstraintIdentity,
    Fact,
    Identity,
    InjectedFact,
    Member,
    PropertyFact,
    PropertyIdentity,
    Rule,
    TypeFact,
    TypeIdentity,
)


@dataclass(frozen=True)
class WantedProperty:
    """A property of a body; notes, rules in note form and `@embed` are all annotations."""

    name: str
    type_text: str
    annotations: tuple[Annotation, ...]


@dataclass
class WantedType:
    """A declaration.

    `properties` are those of its body, by number; `member_names` has those of interfaces too.
    `rules` are spelled.
    """

    kind: TypeKind
    name: str
    annotations: tuple[Annotation, ...]
    implements: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    cardinality: Cardinality = UNLIMITED
    properties: dict[int, WantedProperty] = field(default_factory=dict)
    rules: dict[str, None] = field(default_factory=dict)
    member_names: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Names:
    """The names that the merged schema gives to its identities."""

    facts: Mapping[Identity, Fact]

    def of_type(self, number: int) -> str:
        """Return the name of a type."""
        found = self.facts[TypeIdentity(number)]
        return found.name if isinstance(found, TypeFact) else ""

    def of_member(self, type_id: int, member: Member) -> str | None:
        """Return the name of a property or column; `None` if it is gone."""
        if isinstance(member, str):
            return member
        found = self.facts.get(PropertyIdentity(type_id, member))
        if isinstance(found, InjectedFact):
            offers = (offer for offer in found.offers if offer in self.facts)
            return next((self.of_member(o.type_id, o.property_id) for o in offers), None)
        return found.name if isinstance(found, PropertyFact) else None


def wanted_types(facts: Mapping[Identity, Fact]) -> dict[int, WantedType]:
    """Return all declarations by the numbers of their types."""
    names = Names(facts)
    found: dict[int, WantedType] = {}
    for identity, fact in facts.items():
        if isinstance(fact, TypeFact):
            found[identity.type_id] = _type(fact, names)
    for identity, fact in facts.items():
        if isinstance(identity, PropertyIdentity):
            name = names.of_member(identity.type_id, identity.property_id)
            if name is not None:
                found[identity.type_id].member_names[identity.property_id] = name
        if isinstance(identity, PropertyIdentity) and isinstance(fact, PropertyFact):
            wanted = _property(fact, names)
            found[fact.type_id].properties[identity.property_id] = wanted
        elif isinstance(fact, CardinalityFact):
            found[fact.type_id].cardinality = fact.cardinality
    for identity, fact in facts.items():
        if isinstance(identity, ConstraintIdentity) and isinstance(fact, ConstraintFact):
            _constrain(found[fact.type_id], identity, fact, names)
    return found


def _type(fact: TypeFact, names: Names) -> WantedType:
    return WantedType(
        kind=fact.kind,
        name=fact.name,
        annotations=fact.annotations,
        implements=tuple(sorted(map(names.of_type, fact.implements))),
        ends=tuple(map(names.of_type, fact.ends)),
    )


def _property(fact: PropertyFact, names: Names) -> WantedProperty:
    annotations = list(fact.annotations)
    if fact.embed is not None:
        source, model = fact.embed
        kwargs = () if model is None else (("model", model),)
        annotations.append(Annotation("embed", names.of_member(fact.type_id, source), kwargs))
    return WantedProperty(fact.name, str(fact.prop_type), tuple(annotations))


def _constrain(
    wanted: WantedType, identity: ConstraintIdentity, fact: ConstraintFact, names: Names
) -> None:
    if identity.kind == "card":
        return
    members = tuple(names.of_member(fact.type_id, each) or str(each) for each in fact.members)
    for rule in sorted(fact.rules, key=str):
        if rule.is_note:
            _note(wanted, fact.members, Annotation(identity.kind))
        if rule.is_rule:
            wanted.rules[_spelled(identity.kind, members, rule)] = None


def _note(wanted: WantedType, members: tuple[Member, ...], note: Annotation) -> None:
    for member in members:
        if isinstance(member, int):
            noted = wanted.properties[member]
            annotations = (*noted.annotations, note)
            wanted.properties[member] = replace(noted, annotations=annotations)


def _spelled(kind: RuleKind, members: tuple[str, ...], rule: Rule) -> str:
    return canonical_rule(
        ShapeConstraint(
            kind,
            members,
            min=rule.min.value if rule.min else None,
            max=rule.max.value if rule.max else None,
            pattern=rule.pattern,
        )
    )


def canonical_rule(rule: ShapeConstraint) -> str:
    """Spell a rule so that equal ones have equal texts: members by name, each once."""
    fields = tuple(sorted(set(rule.fields)))
    return rule_text(ShapeConstraint(rule.kind, fields, rule.min, rule.max, rule.pattern))
