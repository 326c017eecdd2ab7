"""Merges two compiled schemas that have grown from one.

1. Numbers that mean the same become one identity (`pairs.py`).
2. The facts of both sides are united over those of the base (`facts.py`, `unite.py`).
3. The united facts are written as text (`wanted.py`, `text.py`), and the text is compiled; each
   problem that this shows is a conflict.
4. Everything gets the number that it has on a side (`numbering.py`).

The result is a schema, or the complete list of conflicts. Choices settle conflicts on the way; what
one of them brings about may show the next one, so steps 2 and 3 are repeated until nothing is left
that a choice could settle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from omnigraph.schema.compile import CompiledSchema
from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.ir.derive import WrittenOrder, derive_catalog
from omnigraph.schema.ir.model import SchemaIR
from omnigraph.schema.language.check import read_schema
from omnigraph.schema.language.extents import DeclarationExtent, extents_of
from omnigraph.schema.language.parse import parse_schema
from omnigraph.schema.language.problems import kind_of
from omnigraph.schema.merge.facts import (
    Declared,
    Fact,
    Identity,
    TypeFact,
    TypeIdentity,
)
from omnigraph.schema.merge.model import (
    AcceptedTexts,
    MergedSchema,
    SchemaChoices,
    Side,
)
from omnigraph.schema.merge.numbering import numbered
from omnigraph.schema.merge.pairs import united_aliases
from omnigraph.schema.merge.report import (
    ambiguous,
    dropped_by_one_side,
    respelled_keys,
    undone_drops,
)
from omnigraph.schema.merge.text import merged_text
from omnigraph.schema.merge.unite import Finding, Sides, United, settle, unite
from omnigraph.schema.merge.wanted import wanted_types
from omnigraph.syntax import SourceError, SourceText

_NO_CHOICES: Final = SchemaChoices()


def merge_schemas(
    *,
    base: AcceptedTexts,
    source: AcceptedTexts,
    target: AcceptedTexts,
    numbers: Iterator[int],
    choices: SchemaChoices = _NO_CHOICES,
) -> MergedSchema:
    """Unite what source and target have made of the base.

    `numbers` are those that no branch has; few merges need any. Nothing is raised for schemas that
    do not fit together: the conflicts say it.
    """
    aliases = united_aliases(base=base.ir, source=source.ir, target=target.ir)
    types = frozenset(aliases.canonical(each.type_id) for each in base.ir.types())
    old, ours, theirs = (Declared(each.ir, aliases, types) for each in (base, target, source))
    merge = _Merge(Sides(old, theirs, ours), source.text, target.text, numbers)
    odd = [found for each in (old, theirs, ours) for found in ambiguous(each.ir, aliases)]
    if odd:
        return merge.refused(odd)
    taken: dict[Identity, Side] = {}
    found: set[str] = set()
    while True:
        united = unite(merge.sides, choices, taken)
        found |= united.found
        if united.conflicts:
            return MergedSchema(None, aliases, united.conflicts)
        schema, findings = merge.compiled(united)
        found |= {str(finding.identity) for finding in findings}
        progress = settle(findings, choices, united.settled)
        if not progress:
            if schema is None:
                return merge.refused(findings)
            return replace(merge.accepted(schema), settled=frozenset(found))
        taken = {**united.settled, **progress}


@dataclass(frozen=True)
class _Merge:
    """The three schemas of a merge, and the steps that turn united facts into a schema."""

    sides: Sides
    source_text: str
    target_text: str
    numbers: Iterator[int]

    def compiled(self, united: United) -> tuple[CompiledSchema | None, tuple[Finding, ...]]:
        """Return the schema of the united facts, or what is wrong with it."""
        text = SourceText(self._text(united))
        try:
            shape = read_schema(text)
        except SourceError as error:
            return None, tuple(_Places(text, united.facts).findings(error))
        ir = numbered(shape, united.facts, self.sides, self.numbers)
        merged = self._declared(ir)
        drops = (found for found in undone_drops(self.sides, merged))
        findings = [
            *(found for found in drops if found.identity not in united.settled),
            *respelled_keys(self.sides, merged),
        ]
        if findings:
            return None, tuple(findings)
        return CompiledSchema(text, shape, ir, derive_catalog(ir, WrittenOrder(shape))), ()

    def accepted(self, schema: CompiledSchema) -> MergedSchema:
        """Describe a merge without conflicts."""
        sides = self.sides
        aliases = Aliases.of(sides.base.ir, sides.source.ir, sides.target.ir, schema.ir)
        return MergedSchema(
            schema,
            aliases,
            dropped=tuple(dropped_by_one_side(sides, self._declared(schema.ir))),
        )

    def refused(self, findings: Iterable[Finding]) -> MergedSchema:
        """Describe a merge with conflicts."""
        conflicts = tuple(self.sides.conflict(each) for each in findings)
        return MergedSchema(None, self.sides.target.aliases, conflicts)

    def _declared(self, ir: SchemaIR) -> Declared:
        return Declared(ir, self.sides.target.aliases)

    def _text(self, united: United) -> str:
        """Take the text of a side that says what is wanted, or write the changes into one."""
        source, target = self.sides.source, self.sides.target
        if united.facts == target.facts:
            return self.target_text
        if united.facts == source.facts:
            return self.source_text
        return merged_text(
            wanted_types(united.facts),
            target=(self.target_text, target),
            source=(self.source_text, source),
        )


@dataclass(frozen=True)
class _Places:
    """Finds the identity that a problem of the merged text is about."""

    text: SourceText
    facts: Mapping[Identity, Fact]

    def findings(self, error: SourceError) -> Iterator[Finding]:
        """Yield a finding for every problem."""
        extents = extents_of(parse_schema(self.text))
        for problem in error.diagnostics:
            at = problem.span.start
            found = next(each for each in extents if each.whole.start <= at <= each.whole.end)
            identity = self._identity(found)
            yield Finding(identity, problem.headline, frozenset(self._around(identity)))

    def _identity(self, extent: DeclarationExtent) -> TypeIdentity:
        wanted = kind_of(extent.declaration), extent.declaration.name
        return next(
            identity
            for identity, fact in self.facts.items()
            if isinstance(identity, TypeIdentity)
            and isinstance(fact, TypeFact)
            and (fact.kind, fact.name) == wanted
        )

    def _around(self, identity: TypeIdentity) -> Iterator[Identity]:
        """Yield everything of a type, and of the interfaces and nodes that it names."""
        types = {identity.type_id, *(used.type_id for used in self.facts[identity].uses)}
        yield from (each for each in self.facts if each.type_id in types)
