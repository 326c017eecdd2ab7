"""Gives numbers to a checked schema, so that names can change.

Invariants:

1. One counter per graph, from 1. A number is never given twice, not even after the type or property
   is gone, nor on two branches: the caller reserves the numbers. `next_identity_id` is above every
   number of the schema, and says no more than that.
2. New numbers go to new types (interfaces, nodes, edges, each by name), then to new properties by
   (number of the type, name), then to one table incarnation per new node or edge by type number.
3. A declaration keeps the numbers of the accepted one with the same kind, name and type. Only
   without such a match does `@rename_from` count.
4. With the numbers a declaration keeps `also` and `filled`. A property that is new in an accepted
   node or edge is filled with its default if it is required, else with null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Final

from omnigraph.names import TYPE_KINDS, TypeKind, nearest_name
from omnigraph.schema.fills import fill_of
from omnigraph.schema.ir.build import Numbers, TypeKey, build_ir
from omnigraph.schema.ir.model import IrProperty, SchemaIR
from omnigraph.schema.language.shape import (
    SchemaShape,
    ShapeEdge,
    ShapeInterface,
    ShapeNode,
    ShapeProperty,
)
from omnigraph.syntax import Diagnostic, Phase, SourceError, SourceText, Span

ShapeType = ShapeInterface | ShapeNode | ShapeEdge

_CLAIMED_TWICE: Final = "keep one @rename_from, and drop the old name where the new one stands"


class IdentityResolutionError(SourceError, init=False):
    """Rename hints do not fit the accepted schema; nothing was planned."""

    code = "OG-SCHEMA-IDENTITY"


def resolve_identities(
    shape: SchemaShape,
    *,
    accepted: SchemaIR | None,
    domain: str,
    source: SourceText,
    free: Iterator[int] | None = None,
) -> SchemaIR:
    """Compile a shape against the accepted schema, or from scratch when there is none.

    `source` is the text that the spans of `shape` point into; it only serves messages. Without an
    accepted schema rename hints do nothing. `free` are the numbers to give out, in ascending order;
    without it numbering goes on where the accepted schema ends, as if there were no other branch.
    """
    if accepted is None:
        numbers, start = Numbers(), 1
    else:
        numbers, start = _matched(shape, accepted, source), accepted.next_identity_id
        numbers.keep_from(accepted)
    last = number_the_rest(shape, numbers, count(start) if free is None else free)
    return build_ir(shape, numbers, domain=domain, next_identity_id=max(start, last + 1))


def _matched(shape: SchemaShape, accepted: SchemaIR, source: SourceText) -> Numbers:
    matcher = _Matcher(shape, _Accepted.of(accepted), source)
    matcher.match_types()
    matcher.match_properties()
    if matcher.problems:
        raise IdentityResolutionError(matcher.problems)
    return matcher.numbers


def _all_types(shape: SchemaShape) -> Iterator[tuple[TypeKey, ShapeType]]:
    groups: tuple[Iterable[ShapeType], ...] = (shape.interfaces, shape.nodes, shape.edges)
    for kind, group in zip(TYPE_KINDS, groups, strict=True):
        for declared in sorted(group, key=lambda t: t.name):
            yield TypeKey(kind, declared.name), declared


def number_the_rest(shape: SchemaShape, numbers: Numbers, free: Iterator[int]) -> int:
    """Give numbers to everything that has none yet; return the highest one given, or 0."""
    highest = 0
    kept = frozenset(numbers.types)
    declared = list(_all_types(shape))
    for key, _ in declared:
        if key not in numbers.types:
            numbers.types[key] = highest = next(free)
    declared.sort(key=lambda pair: numbers.types[pair[0]])
    for key, found in declared:
        for prop in sorted(found.properties, key=lambda p: p.name):
            if (key, prop.name) not in numbers.properties:
                numbers.properties[key, prop.name] = highest = next(free)
                if key in kept and key.kind != "interface":
                    _fill(numbers, highest, prop)
    for key, _ in declared:
        if key.kind != "interface" and key not in numbers.incarnations:
            numbers.incarnations[key] = highest = next(free)
    return highest


def _fill(numbers: Numbers, number: int, prop: ShapeProperty) -> None:
    filled = fill_of(prop)
    if filled is not None:
        numbers.filled[number] = filled


@dataclass(frozen=True)
class _Accepted:
    """The accepted schema by name, and per type number."""

    types: Mapping[TypeKey, int]
    names: Mapping[int, TypeKey]
    incarnations: Mapping[int, int]
    properties: Mapping[int, Mapping[str, IrProperty]]

    @classmethod
    def of(cls, ir: SchemaIR) -> _Accepted:
        types = {TypeKey(t.kind, t.name): t.type_id for t in ir.types()}
        return cls(
            types=types,
            names={number: key for key, number in types.items()},
            incarnations={t.type_id: t.table_incarnation_id for t in ir.tables},
            properties={t.type_id: {p.name: p for p in t.properties} for t in ir.types()},
        )

    def types_with(self, property_name: str) -> list[TypeKey]:
        """Return the types that have a property of that name."""
        return [
            self.names[number]
            for number, properties in self.properties.items()
            if property_name in properties
        ]


@dataclass
class _Matcher:
    """Finds the accepted counterpart of every desired declaration, and collects misfits."""

    shape: SchemaShape
    accepted: _Accepted
    source: SourceText
    numbers: Numbers = field(default_factory=Numbers)
    problems: list[Diagnostic] = field(default_factory=list)

    def report(self, code: str, what: str, *, hint: str, span: Span) -> None:
        message = f"schema identity resolution failed: {what}"
        self.problems.append(Diagnostic(code, Phase.CATALOG, message, self.source, span, hint=hint))

    # -- types ---------------------------------------------------------------------------------

    def match_types(self) -> None:
        claims: dict[int, TypeKey] = {}
        hinted: list[tuple[TypeKey, str, Span]] = []
        for key, declared in _all_types(self.shape):
            number = self.accepted.types.get(key)
            if number is not None:
                claims[number] = key
            elif not isinstance(declared, ShapeInterface) and declared.rename_from is not None:
                hinted.append((key, declared.rename_from, declared.span))
        # Hints come after all exact matches, because those win.
        for key, old_name, span in hinted:
            number = self.accepted.types.get(TypeKey(key.kind, old_name))
            if number is None:
                self._report_unknown_type(key, old_name, span)
            elif number in claims:
                both = f"{claims[number]} and {key} both claim the accepted {key.kind} '{old_name}'"
                self.report("S305", both, hint=_CLAIMED_TWICE, span=span)
            else:
                claims[number] = key
        for number, key in claims.items():
            self.numbers.types[key] = number
            if number in self.accepted.incarnations:
                self.numbers.incarnations[key] = self.accepted.incarnations[number]

    def _report_unknown_type(self, key: TypeKey, old_name: str, span: Span) -> None:
        what = f"{key} cannot be renamed from '{old_name}'"
        others = [kind for kind in TYPE_KINDS if TypeKey(kind, old_name) in self.accepted.types]
        if others:
            self.report(
                "S302",
                f"{what}: in the accepted schema that is of another kind, {others[0]}",
                hint=f"name an accepted {key.kind} type, or remove @rename_from",
                span=span,
            )
            return
        names = [known.name for known in self.accepted.types if known.kind == key.kind]
        self.report(
            "S301",
            f"{what}: the accepted schema has no such {key.kind} type",
            hint=_suggestion(old_name, names),
            span=span,
        )

    # -- properties ----------------------------------------------------------------------------

    def match_properties(self) -> None:
        for key, declared in _all_types(self.shape):
            if key in self.numbers.types:
                self._match_properties_of(key, declared)
            elif getattr(declared, "rename_from", None) is None:
                # Otherwise the type's own hint has failed, and that is reported already.
                self._report_hints_in_a_new_type(key, declared)

    def _match_properties_of(self, type_key: TypeKey, declared: ShapeType) -> None:
        known = self.accepted.properties[self.numbers.types[type_key]]
        claims = {known[p.name].property_id: p.name for p in declared.properties if p.name in known}
        for prop in sorted(declared.properties, key=lambda p: p.name):
            if prop.name in known:
                continue
            if prop.declared_directly:
                old = self._renamed_by_hint(prop, type_key, known, claims)
            else:
                old = self._renamed_by_interface(prop, known, claims)
            if old is not None:
                claims[old.property_id] = prop.name
        for number, name in claims.items():
            self.numbers.properties[type_key, name] = number

    def _renamed_by_hint(
        self,
        prop: ShapeProperty,
        type_key: TypeKey,
        known: Mapping[str, IrProperty],
        claims: Mapping[int, str],
    ) -> IrProperty | None:
        if prop.rename_from is None:
            return None
        old = known.get(prop.rename_from)
        if old is None:
            self._report_unknown_property(prop, prop.rename_from, type_key, known)
            return None
        if old.property_id in claims:
            both = f"'{claims[old.property_id]}' and '{prop.name}'"
            self.report(
                "S305",
                f"properties {both} of {type_key} both claim the accepted property '{old.name}'",
                hint=_CLAIMED_TWICE,
                span=prop.span,
            )
            return None
        return old

    def _renamed_by_interface(
        self, prop: ShapeProperty, known: Mapping[str, IrProperty], claims: Mapping[int, str]
    ) -> IrProperty | None:
        """Follow an interface's hint to where that interface had put the old property.

        A node that did not have it from there simply gets a new property: its author has no hint
        to take back.
        """
        for interface, name in prop.satisfies:
            hint = self._interface_hints.get((interface, name))
            old = known.get(hint) if hint is not None else None
            if old is None or old.property_id in claims:
                continue
            contributors = {ref.owner_type_id for ref in old.satisfies_interface_properties}
            if self.accepted.types.get(TypeKey("interface", interface)) in contributors:
                return old
        return None

    @cached_property
    def _interface_hints(self) -> dict[tuple[str, str], str | None]:
        return {
            (interface.name, p.name): p.rename_from
            for interface in self.shape.interfaces
            for p in interface.properties
        }

    def _report_hints_in_a_new_type(self, key: TypeKey, declared: ShapeType) -> None:
        for prop in declared.properties:
            if not prop.declared_directly or prop.rename_from is None:
                continue
            hint = "remove @rename_from"
            former = self._likely_former_name(prop.rename_from, key.kind)
            if former is not None and key.kind != "interface":
                hint += f', or say what the type was called: @rename_from("{former}")'
            self.report(
                "S304",
                f"property '{prop.name}' has a rename hint inside a new type, {key}",
                hint=hint,
                span=prop.span,
            )

    def _likely_former_name(self, property_name: str, kind: TypeKind) -> str | None:
        """Find a type of that kind which had the property and is about to be dropped."""
        return next(
            (
                type_key.name
                for type_key in self.accepted.types_with(property_name)
                if type_key.kind == kind and type_key not in self.numbers.types
            ),
            None,
        )

    def _report_unknown_property(
        self, prop: ShapeProperty, old_name: str, type_key: TypeKey, known: Mapping[str, IrProperty]
    ) -> None:
        what = f"property '{prop.name}' of {type_key} cannot be renamed from '{old_name}'"
        elsewhere = self.accepted.types_with(old_name)
        if elsewhere:
            self.report(
                "S303",
                f"{what}: in the accepted schema that belongs to another owner, {elsewhere[0]}",
                hint="properties do not move between types; name one of this type",
                span=prop.span,
            )
            return
        self.report(
            "S301",
            f"{what}: the accepted {type_key.kind} type has no such property",
            hint=_suggestion(old_name, known),
            span=prop.span,
        )


def _suggestion(name: str, candidates: Iterable[str]) -> str:
    names = sorted(candidates)
    near = nearest_name(name, names)
    if near is not None:
        return f"did you mean '{near}'?"
    return f"accepted names: {', '.join(names)}" if names else "remove @rename_from"
