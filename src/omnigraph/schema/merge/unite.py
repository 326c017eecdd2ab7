"""Unites the facts of two sides over their base, and finds what cannot be united.

Per identity: what only one side has changed is taken from that side, what both have changed equally
is taken once, and the rest is a conflict. Beyond that, these are conflicts as a whole:

1. a type that one side has dropped and in which the other has changed or added something;
2. a type that both sides have added under one name, if anything in it differs;
3. something dropped by one side that a declaration of the other side uses;
4. two identities with one name, or given to one node by one property of an interface.

A choice settles a conflict by taking everything that is involved in it from the chosen side. Its
result may show further conflicts, which the same choice settles, or which stay open. What an
identity in conflict uses, and how it is called, is not looked at before it is settled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from omnigraph.schema.merge.facts import (
    ConstraintIdentity,
    Declared,
    Fact,
    Identity,
    InjectedFact,
    PropertyFact,
    PropertyIdentity,
    TypeFact,
    TypeIdentity,
)
from omnigraph.schema.merge.model import SchemaChoices, SchemaConflict, Side

_SIDES: Final[tuple[Side, Side]] = ("source", "target")
_OTHER: Final[dict[Side, Side]] = {"source": "target", "target": "source"}


@dataclass(frozen=True)
class Finding:
    """A conflict, the identities that settle it, and the pair that it shows where names clash."""

    identity: Identity
    message: str
    involved: frozenset[Identity]
    shown: Mapping[Side, Identity] = field(default_factory=dict)


@dataclass(frozen=True)
class United:
    """The facts of the merged schema, and the conflicts that are left.

    `found` are the identities of all conflicts, also of those that a choice has settled.
    """

    facts: Mapping[Identity, Fact]
    conflicts: tuple[SchemaConflict, ...]
    settled: Mapping[Identity, Side]
    found: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Sides:
    """The three schemas of a merge."""

    base: Declared
    source: Declared
    target: Declared

    def of(self, side: Side) -> Declared:
        """Return the schema of one side."""
        return self.source if side == "source" else self.target

    def conflict(self, finding: Finding) -> SchemaConflict:
        """Show a finding with the definitions of all three."""
        identity = finding.identity
        source = finding.shown.get("source", identity)
        target = finding.shown.get("target", identity)
        names = (self.target.name_of(target), self.source.name_of(source))
        return SchemaConflict(
            identity=str(identity),
            name=next(filter(None, (*names, self.base.name_of(identity))), str(identity)),
            base=self.base.json_of(identity),
            source=self.source.json_of(source),
            target=self.target.json_of(target),
            message=finding.message,
        )


def unite(
    sides: Sides, choices: SchemaChoices, settled: Mapping[Identity, Side] | None = None
) -> United:
    """Merge identity by identity; `settled` are those that are decided before."""
    taken = dict(settled or {})
    found: set[str] = set()
    while True:
        attempt = _Attempt(sides, taken)
        findings = list(attempt.findings())
        found |= {str(finding.identity) for finding in findings}
        progress = settle(findings, choices, taken)
        if not progress:
            conflicts = tuple(sides.conflict(finding) for finding in findings)
            return United(attempt.facts, conflicts, taken, frozenset(found))
        taken |= progress


def settle(
    findings: Iterable[Finding], choices: SchemaChoices, taken: Mapping[Identity, Side]
) -> dict[Identity, Side]:
    """Return what the choices decide about the findings that is not decided yet.

    Something that is decided stays decided, so this comes to an end.
    """
    progress: dict[Identity, Side] = {}
    for finding in findings:
        side = choices.of(str(finding.identity))
        if side is not None:
            undecided = finding.involved - taken.keys() - progress.keys()
            progress |= dict.fromkeys(undecided, side)
    return progress


class _Attempt:
    """One pass over all identities with what is settled so far."""

    def __init__(self, sides: Sides, settled: Mapping[Identity, Side]) -> None:
        self.sides = sides
        self.settled = settled
        self.base = sides.base.facts
        self.source = sides.source.facts
        self.target = sides.target.facts
        self.identities = dict.fromkeys([*self.target, *self.source, *self.base])
        self.by_type: dict[int, list[Identity]] = {}
        for identity in self.identities:
            self.by_type.setdefault(identity.type_id, []).append(identity)
        self.bound: dict[Identity, dict[Identity, None]] = {}
        for facts in (self.target, self.source):
            for identity, fact in facts.items():
                self._bind(identity, fact)
        self.facts: dict[Identity, Fact] = {}
        self.open: list[Identity] = []
        for identity in self.identities:
            found = self._merged(identity)
            if found is not None:
                self.facts[identity] = found
        self._leave_interfaces()

    def findings(self) -> Iterator[Finding]:
        """Yield every conflict; what belongs to a type that conflicts as a whole counts once."""
        whole = {finding.identity.type_id: finding for finding in self._whole_types()}
        yield from whole.values()
        differing = [*self.open, *self._constrained_differently()]
        for identity in dict.fromkeys(differing):
            if identity.type_id not in whole and not self._is_about(identity, differing):
                yield self._differing(identity)
        seen = {*(finding.identity for finding in whole.values()), *differing}
        for finding in self._dangling():
            if finding.identity not in seen and finding.identity.type_id not in whole:
                seen.add(finding.identity)
                yield finding
        yield from (each for each in self._clashes() if each.identity not in seen)

    def _merged(self, identity: Identity) -> Fact | None:
        base, source, target = (
            facts.get(identity) for facts in (self.base, self.source, self.target)
        )
        side = self.settled.get(identity)
        if side is not None:
            return source if side == "source" else target
        if source in (target, base):
            # An injected property compares without its offers; those of both sides count.
            return _with_offers(target, source)
        if target == base:
            return source
        self.open.append(identity)
        return target if target is not None else source

    def _leave_interfaces(self) -> None:
        """Let nodes go on without the interfaces that a choice has dropped."""
        gone = {
            each.type_id
            for each in self.settled
            if isinstance(each, TypeIdentity) and each not in self.facts
        }
        for identity, fact in list(self.facts.items()):
            if isinstance(fact, TypeFact) and fact.implements & gone:
                self.facts[identity] = replace(fact, implements=fact.implements - gone)
            elif isinstance(fact, InjectedFact) and self._is_left(fact, gone):
                del self.facts[identity]

    def _is_left(self, fact: InjectedFact, gone: set[int]) -> bool:
        """Whether only dropped interfaces have offered a property."""
        is_offered = any(offer in self.facts for offer in fact.offers)
        return not is_offered and any(offer.type_id in gone for offer in fact.offers)

    # -- one identity ----------------------------------------------------------------------------

    def _differing(self, identity: Identity) -> Finding:
        missing = [side for side in _SIDES if identity not in self._facts(side)]
        if missing:
            [side] = missing
            message = f"dropped on the {side}, changed on the {_OTHER[side]}"
        elif identity in self.base:
            message = "changed differently on the source and on the target"
        else:
            message = "added on both sides with unlike definitions"
        return Finding(identity, message, frozenset(self._bound_to(identity)))

    def _constrained_differently(self) -> Iterator[Identity]:
        """Find properties that both sides have added equally, but under unlike rules."""
        for identity in self.identities:
            if not isinstance(identity, PropertyIdentity) or not self._is_pair(identity):
                continue
            rules = [each for each in self._bound_to(identity) if each not in self.settled]
            if any(
                self.source.get(each) != self.target.get(each)
                for each in rules
                if isinstance(each, ConstraintIdentity)
            ):
                yield identity

    def _is_about(self, identity: Identity, differing: Iterable[Identity]) -> bool:
        """Whether rules differ over a property that is in conflict itself."""
        if not isinstance(identity, ConstraintIdentity):
            return False
        used = {*self._uses(identity, "source"), *self._uses(identity, "target")}
        return any(
            isinstance(each, PropertyIdentity) and each in used and each not in self.base
            for each in differing
        )

    def _bound_to(self, identity: Identity) -> Iterator[Identity]:
        """Yield an identity and what can only come and go with it."""
        yield identity
        yield from self.bound.get(identity, ())

    def _bind(self, identity: Identity, fact: Fact) -> None:
        """Bind rules to their members, and injected properties to those of the interfaces."""
        bearers: tuple[Identity, ...] = ()
        if isinstance(fact, InjectedFact):
            bearers = fact.offers
        elif isinstance(identity, ConstraintIdentity):
            bearers = tuple(each for each in fact.uses if isinstance(each, PropertyIdentity))
        for bearer in bearers:
            self.bound.setdefault(bearer, {})[identity] = None

    # -- types as a whole ------------------------------------------------------------------------

    def _whole_types(self) -> Iterator[Finding]:
        for identity in self.identities:
            if not isinstance(identity, TypeIdentity):
                continue
            members = frozenset(self._members(identity.type_id))
            if members <= self.settled.keys():
                continue
            missing = [side for side in _SIDES if identity not in self._facts(side)]
            if identity in self.base and len(missing) == 1:
                [side] = missing
                if self._is_touched(members, _OTHER[side]):
                    message = f"dropped on the {side}, changed on the {_OTHER[side]}"
                    yield Finding(identity, message, members)
            elif self._is_pair(identity) and self._is_unlike(members):
                message = "added on both sides with unlike definitions"
                yield Finding(identity, message, members)

    def _is_touched(self, members: Iterable[Identity], side: Side) -> bool:
        facts = self._facts(side)
        return any(facts.get(each) != self.base.get(each) for each in members)

    def _is_unlike(self, members: Iterable[Identity]) -> bool:
        pairs = [(self.source.get(each), self.target.get(each)) for each in members]
        return any(
            source != target
            for source, target in pairs
            if not isinstance(source or target, InjectedFact)
        )

    # -- uses of something dropped ---------------------------------------------------------------

    def _dangling(self) -> Iterator[Finding]:
        """Find what the merged schema uses and does not have, because one side has dropped it."""
        users: dict[Identity, set[Identity]] = {}
        for user, fact in self._settled_facts():
            missing = [each for each in fact.uses if each not in self.facts]
            if isinstance(fact, InjectedFact) and not any(o in self.facts for o in fact.offers):
                missing += fact.offers
            for used in missing:
                users.setdefault(used, set()).add(user)
        for used, found in users.items():
            if isinstance(used, TypeIdentity) or TypeIdentity(used.type_id) not in users:
                yield self._used(used, found)

    def _used(self, used: Identity, users: set[Identity]) -> Finding:
        side: Side = "target" if used in self.source else "source"
        shown = self.sides.of(_OTHER[side])
        involved = {*self._bound_to(used)}
        # A node can go on without an interface, everything else only without what it uses.
        if shown.types[used.type_id].kind != "interface" or isinstance(used, PropertyIdentity):
            involved |= users
        for each in (used, *involved):
            if isinstance(each, TypeIdentity):
                involved |= {*self._members(each.type_id)}
        names = sorted(filter(None, (shown.name_of(user) for user in users)))
        message = f"dropped on the {side}, used on the {_OTHER[side]} by {', '.join(names)}"
        return Finding(used, message, frozenset(involved))

    # -- names -----------------------------------------------------------------------------------

    def _clashes(self) -> Iterator[Finding]:
        first: dict[tuple[object, ...], Identity] = {}
        for identity, fact in self._settled_facts():
            for name in _names_of(fact):
                other = first.setdefault(name, identity)
                if other != identity:
                    yield self._clash(other, identity)

    def _clash(self, one: Identity, other: Identity) -> Finding:
        """Show the two under the identity that the base does not have, else the source's."""
        of_target = one if self._is_of(one, "target", other) else other
        of_source = other if of_target == one else one
        identity = of_target if of_target not in self.base else of_source
        involved = set[Identity]()
        for each in (one, other):
            is_type = isinstance(each, TypeIdentity)
            involved |= {*(self._members(each.type_id) if is_type else self._bound_to(each))}
        what = "types" if isinstance(one, TypeIdentity) else "properties"
        message = f"two different {what} have this name, one of each side"
        message += self._filled_differently(of_source, of_target)
        return Finding(
            identity, message, frozenset(involved), {"source": of_source, "target": of_target}
        )

    def _filled_differently(self, of_source: Identity, of_target: Identity) -> str:
        """Say what stored rows got, where two added properties differ in it."""
        pair: dict[Side, Identity] = {"source": of_source, "target": of_target}
        filled = set()
        for side, each in pair.items():
            if not isinstance(each, PropertyIdentity) or each in self.base:
                return ""
            filled.add(json.dumps(self.sides.of(side).properties[each.property_id][1].filled))
        return f"; stored rows got {' and '.join(sorted(filled))}" if len(filled) > 1 else ""

    def _is_of(self, one: Identity, side: Side, other: Identity) -> bool:
        """Whether a side, not the other one, gives its name to the first of two identities."""
        fact, facts, others = self.facts[one], self._facts(side), self._facts(_OTHER[side])
        if facts.get(one) == fact and others.get(one) != fact:
            return True
        return facts.get(other) != self.facts[other]

    # -- looking up ------------------------------------------------------------------------------

    def _is_pair(self, identity: TypeIdentity | PropertyIdentity) -> bool:
        """Whether both sides have added this, each under a number of its own.

        With one number it is one thing that an older merge has brought to both.
        """
        if identity in self.base:
            return False
        numbers = [self.sides.of(side).number_of(identity) for side in _SIDES]
        return None not in numbers and numbers[0] != numbers[1]

    def _settled_facts(self) -> Iterator[tuple[Identity, Fact]]:
        still_open = {*self.open}
        return ((each, fact) for each, fact in self.facts.items() if each not in still_open)

    def _members(self, type_id: int) -> Iterable[Identity]:
        """Return the identities of a type and of everything in it."""
        return self.by_type.get(type_id, ())

    def _facts(self, side: Side) -> Mapping[Identity, Fact]:
        return self.source if side == "source" else self.target

    def _uses(self, identity: Identity, side: Side) -> tuple[Identity, ...]:
        fact = self._facts(side).get(identity)
        return fact.uses if fact else ()


def _with_offers(one: Fact | None, other: Fact | None) -> Fact | None:
    if isinstance(one, InjectedFact) and isinstance(other, InjectedFact):
        return InjectedFact(one.type_id, tuple(dict.fromkeys([*one.offers, *other.offers])))
    return one


def _names_of(fact: Fact) -> Iterator[tuple[object, ...]]:
    """Yield what no two facts may share; edges are looked up without regard to case.

    What an interface gives to a node is there once; it is named by the interface.
    """
    if isinstance(fact, TypeFact):
        yield fact.kind, fact.name.lower() if fact.kind == "edge" else fact.name
    elif isinstance(fact, PropertyFact):
        yield fact.type_id, fact.name
    elif isinstance(fact, InjectedFact):
        yield from ((fact.type_id, offer) for offer in fact.offers)
