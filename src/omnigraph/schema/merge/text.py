"""Writes the changes of one side into the text of the other.

The text of the target stays as it is, with its comments and its order, except for the parts that
the merged schema has otherwise. What is new comes from the text of the source, with the comments
that stand directly above it. A part that is removed takes the comments directly above it along.
Rename hints are removed: the compiled schema knows the identities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from omnigraph.schema.catalog import Annotation, Cardinality
from omnigraph.schema.language.extents import (
    DeclarationExtent,
    PropertyExtent,
    RuleExtent,
    extents_of,
)
from omnigraph.schema.language.parse import parse_schema
from omnigraph.schema.language.problems import kind_of
from omnigraph.schema.language.shape import ShapeConstraint
from omnigraph.schema.language.spell import annotation_text, cardinality_text
from omnigraph.schema.language.tree import AnnotationDecl, EdgeDecl, InterfaceDecl, NodeDecl
from omnigraph.schema.merge.edits import BodyEditor, Edit, Layout, edited
from omnigraph.schema.merge.facts import Declared
from omnigraph.schema.merge.wanted import WantedProperty, WantedType, canonical_rule
from omnigraph.syntax import SourceText, Span

_HINT: Final = "rename_from"


def merged_text(
    wanted: Mapping[int, WantedType],
    *,
    target: tuple[str, Declared],
    source: tuple[str, Declared],
) -> str:
    """Return the target's text with everything that is wanted, and nothing else."""
    kept, offered = _Written(*target), _Written(*source)
    edits: list[Edit] = []
    for number, extent in kept.extents.items():
        if number in wanted:
            edits += _Declaration(number, kept, offered, wanted[number]).edits()
        else:
            edits.append(kept.layout.removal(extent.whole))
    pieces = [edited(kept.text, edits).rstrip()]
    for number, each in wanted.items():
        if number not in kept.extents:
            whole = offered.extents[number].whole
            changes = _Declaration(number, offered, offered, each).edits()
            comments = offered.layout.comments_above(whole.start)
            pieces.append("".join([*comments, edited(offered.text, changes, whole)]))
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


@dataclass(frozen=True)
class _Written:
    """A text with the places of its parts, found by canonical numbers."""

    text: str
    declared: Declared

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.text)

    @cached_property
    def extents(self) -> dict[int, DeclarationExtent]:
        numbers = {(str(t.kind), t.name): number for number, t in self.declared.types.items()}
        found = extents_of(parse_schema(SourceText(self.text)))
        return {numbers[kind_of(each.declaration), each.declaration.name]: each for each in found}

    @cached_property
    def properties(self) -> dict[int, PropertyExtent]:
        """The properties of all bodies."""
        return {
            self.numbers_in(number)[each.declaration.name]: each
            for number, extent in self.extents.items()
            for each in extent.properties
        }

    def numbers_in(self, number: int) -> dict[str, int]:
        """Return the numbers of all properties of a type by the names that they have here."""
        canonical = self.declared.aliases.canonical
        found = self.declared.types[number].properties
        return {prop.name: canonical(prop.property_id) for prop in found}


@dataclass(frozen=True)
class _Declaration:
    """Edits one declaration of a text until it says what is wanted."""

    number: int
    written: _Written
    offered: _Written
    wanted: WantedType

    def edits(self) -> Iterator[Edit]:
        yield from self._header()
        yield from self._members()

    @cached_property
    def _extent(self) -> DeclarationExtent:
        return self.written.extents[self.number]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return self.written.numbers_in(self.number)

    @property
    def _layout(self) -> Layout:
        return self.written.layout

    # -- header ----------------------------------------------------------------------------------

    def _header(self) -> Iterator[Edit]:
        declared = self._extent.declaration
        yield from _renamed(declared.span, declared.name, self.wanted.name)
        if isinstance(declared, InterfaceDecl):
            return
        anchor = declared.span
        if isinstance(declared, EdgeDecl):
            ends = (declared.from_type, declared.to_type)
            for ref, name in zip(ends, self.wanted.ends, strict=True):
                yield from _renamed(ref.span, ref.name, name)
            yield from self._cardinality(declared)
            anchor = self._extent.card or declared.to_type.span
        yield from _annotation_edits(
            self._layout,
            declared.annotations,
            self._extent.annotations,
            wanted=self.wanted.annotations,
            anchor=anchor,
        )
        if isinstance(declared, NodeDecl):
            yield from self._implements(declared)

    def _cardinality(self, declared: EdgeDecl) -> Iterator[Edit]:
        if Cardinality(*(declared.cardinality or (0, None))) == self.wanted.cardinality:
            return
        spelled = cardinality_text(self.wanted.cardinality)
        if self._extent.card is not None:
            yield Edit(self._extent.card, spelled)
        else:
            yield Edit.insertion(declared.to_type.span.end, f" {spelled}")

    def _implements(self, declared: NodeDecl) -> Iterator[Edit]:
        written = [ref.name for ref in declared.implements]
        if set(written) == set(self.wanted.implements):
            return
        kept = [name for name in dict.fromkeys(written) if name in self.wanted.implements]
        names = ", ".join([*kept, *(n for n in self.wanted.implements if n not in kept)])
        before = max([declared.span.end, *(span.end for span in self._extent.annotations)])
        if not written:
            yield Edit.insertion(before, f" implements {names}")
            return
        refs = declared.implements[0].span.to(declared.implements[-1].span)
        yield Edit(refs, names) if names else Edit(Span(before, refs.end), "")

    # -- members ---------------------------------------------------------------------------------

    def _members(self) -> Iterator[Edit]:
        kept = [each for each in self._extent.properties if self._wanted_property(each) is not None]
        rules = [each for each in self._extent.rules if self._rule(each) in self.wanted.rules]
        for prop in self._extent.properties:
            found = self._wanted_property(prop)
            if found is None:
                yield self._layout.removal(prop.whole)
            else:
                yield from _property_edits(self._layout, prop, found)
        for rule in self._extent.rules:
            yield from self._rule_edits(rule, is_kept=rule in rules)
        yield from self._additions(kept, rules)

    def _wanted_property(self, extent: PropertyExtent) -> WantedProperty | None:
        return self.wanted.properties.get(self._numbers[extent.declaration.name])

    def _rule(self, extent: RuleExtent) -> str:
        """Spell a rule with the names that its members have in the merged schema."""
        rule = extent.declaration
        fields = tuple(self._new_name(name) for name in rule.fields)
        return canonical_rule(ShapeConstraint(rule.kind, fields, rule.min, rule.max, rule.pattern))

    def _new_name(self, name: str) -> str:
        found = self.wanted.member_names.get(self._numbers.get(name, 0))
        return found or name

    def _rule_edits(self, extent: RuleExtent, *, is_kept: bool) -> Iterator[Edit]:
        if not is_kept:
            yield self._layout.removal(extent.whole)
            return
        rule = extent.declaration
        for span, name in zip(rule.field_spans, rule.fields, strict=True):
            yield from _renamed(span, name, self._new_name(name))

    def _additions(
        self, properties: Sequence[PropertyExtent], rules: Sequence[RuleExtent]
    ) -> Iterator[Edit]:
        present = {self._numbers[each.declaration.name] for each in properties}
        added = [number for number in self.wanted.properties if number not in present]
        written = {self._rule(each) for each in rules}
        new_rules = [[text] for text in self.wanted.rules if text not in written]
        pieces = [self._piece(number) for number in added]
        members = (*(each.whole for each in properties), *(each.whole for each in rules))
        body = BodyEditor(self._layout, self._extent, members)
        if not members and (pieces or new_rules):
            yield body.insertion([*pieces, *new_rules])
            return
        if pieces:
            last = max((each.whole.end for each in properties), default=None)
            yield body.insertion(pieces, behind=last)
        if new_rules:
            yield body.insertion(new_rules)

    def _piece(self, number: int) -> list[str]:
        """Return the lines of a property, with its comments if the source has it in its text."""
        wanted = self.wanted.properties[number]
        found = self.offered.properties.get(number)
        if found is None:
            annotations = (f" {annotation_text(each)}" for each in wanted.annotations)
            return [f"{wanted.name}: {wanted.type_text}{''.join(annotations)}"]
        layout = self.offered.layout
        edits = _property_edits(layout, found, wanted)
        body = edited(self.offered.text, edits, found.whole)
        comments = [line.strip() for line in layout.comments_above(found.whole.start)]
        return [*comments, body]


# -- parts of declarations -----------------------------------------------------------------------


def _renamed(span: Span, old: str, new: str) -> Iterator[Edit]:
    if old != new:
        yield Edit(span, new)


def _property_edits(
    layout: Layout, extent: PropertyExtent, wanted: WantedProperty
) -> Iterator[Edit]:
    declared = extent.declaration
    yield from _renamed(declared.span, declared.name, wanted.name)
    if str(declared.prop_type) != wanted.type_text:
        yield Edit(extent.type, wanted.type_text)
    yield from _annotation_edits(
        layout,
        declared.annotations,
        extent.annotations,
        wanted=wanted.annotations,
        anchor=extent.type,
    )


def _annotation_edits(
    layout: Layout,
    declared: Sequence[AnnotationDecl],
    spans: Sequence[Span],
    *,
    wanted: Iterable[Annotation],
    anchor: Span,
) -> Iterator[Edit]:
    """Keep what is wanted, replace what has another value, remove the rest, then add."""
    missing = list(map(_canonical, wanted))
    others: list[tuple[AnnotationDecl, Span]] = []
    for each, span in zip(declared, spans, strict=True):
        found = _canonical(Annotation(each.name, each.value, each.kwargs))
        if found in missing:
            missing.remove(found)
        else:
            others.append((each, span))
    for each, span in others:
        again = next((a for a in missing if a.name == each.name != _HINT), None)
        if again is None:
            yield layout.removal(span, whole_lines=False)
        else:
            missing.remove(again)
            yield Edit(span, annotation_text(again))
    if missing:
        at = max([anchor.end, *(span.end for span in spans)])
        yield Edit.insertion(at, "".join(f" {annotation_text(each)}" for each in missing))


def _canonical(annotation: Annotation) -> Annotation:
    return Annotation(annotation.name, annotation.value, tuple(sorted(annotation.kwargs)))
