"""Random schemas that two branches have changed, each by a few edits of a common one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import count

from hypothesis import strategies as st

from omnigraph.schema import (
    AcceptedTexts,
    MergedSchema,
    MigrationPlan,
    SchemaChoices,
    SchemaIR,
    compile_schema,
    merge_schemas,
    plan_schema,
    schema_difference,
)
from omnigraph.schema.language.parse import parse_schema
from omnigraph.syntax import SourceError
from support.migrations import DEFAULTS, TYPES, Decl, Model, Prop, models
from support.schemas import layouts

DOMAIN = "01JD1VERGED000000000000000"

BASE_NUMBERS = 1
SOURCE_NUMBERS = 1000
TARGET_NUMBERS = 2000
MERGE_NUMBERS = 3000

NEW_NAMES = ("x", "y", "z")
NEW_TYPES = ("I32?", "I32?", "String?", "I64 @default(3)", "F32 @default(0.1)")


@dataclass(frozen=True)
class Diverged:
    base: AcceptedTexts
    source: AcceptedTexts
    target: AcceptedTexts

    def swapped(self) -> Diverged:
        return Diverged(self.base, self.target, self.source)

    def merged(self, choices: SchemaChoices = SchemaChoices()) -> MergedSchema:  # noqa: B008  # frozen
        return self.merged_with(count(MERGE_NUMBERS), choices)

    def merged_with(self, numbers: Iterator[int], choices: SchemaChoices) -> MergedSchema:
        return merge_schemas(
            base=self.base,
            source=self.source,
            target=self.target,
            numbers=numbers,
            choices=choices,
        )

    def numbers_taken(self, choices: SchemaChoices = SchemaChoices()) -> int:  # noqa: B008  # frozen
        """How many new numbers the merge has taken."""
        numbers = count(MERGE_NUMBERS)
        self.merged_with(numbers, choices)
        return next(numbers) - MERGE_NUMBERS


def steps_from(side: AcceptedTexts, merged: MergedSchema) -> MigrationPlan:
    """The way from a side to the merged schema."""
    assert merged.schema is not None
    return schema_difference(side.ir, merged.schema.ir, merged.aliases)


def accepted(text: str, *, base: SchemaIR | None = None, free: int = BASE_NUMBERS) -> AcceptedTexts:
    """Compile a text as an apply on one branch would, with numbers of its own."""
    numbers = count(free)
    if base is None:
        return AcceptedTexts(text, compile_schema(text, domain=DOMAIN, free=numbers).ir)
    return AcceptedTexts(text, plan_schema(text, accepted=base, free=numbers).desired.ir)


def diverged_texts(base: str, source: str, target: str) -> Diverged:
    old = accepted(base)
    return Diverged(
        old,
        accepted(source, base=old.ir, free=SOURCE_NUMBERS),
        accepted(target, base=old.ir, free=TARGET_NUMBERS),
    )


@st.composite
def diverged(draw: st.DrawFn, edits_max: int = 3) -> Diverged:
    model = draw(models().filter(lambda found: bool(found.of("node"))))
    old = accepted(model.text())
    sides = [
        _side(draw, model, old.ir, free, edits_max) for free in (SOURCE_NUMBERS, TARGET_NUMBERS)
    ]
    return Diverged(old, *sides)


def _side(
    draw: st.DrawFn, model: Model, base: SchemaIR, free: int, edits_max: int
) -> AcceptedTexts:
    """Edit a model; an edit that makes no schema, or one that no apply reaches, is left out.

    The text is in one layout, or in any other with its comments.
    """
    current = model
    for _ in range(draw(st.integers(0, edits_max))):
        candidate = deepcopy(current)
        draw(st.sampled_from(EDITS))(draw, candidate)
        if candidate.decls and _is_reached(candidate, base):
            current = candidate
    text = current.text()
    if draw(st.booleans()):
        text = draw(layouts(parse_schema(text)))
    return accepted(text, base=base, free=free)


def _is_reached(model: Model, base: SchemaIR) -> bool:
    try:
        return plan_schema(model.text(), accepted=base).plan.supported
    except SourceError:
        return False


# -- edits ---------------------------------------------------------------------------------------


def _with_properties(model: Model) -> list[Decl]:
    return [decl for decl in model.decls if decl.props]


def add_property(draw: st.DrawFn, model: Model) -> None:
    decl = draw(st.sampled_from(model.decls))
    name = draw(st.sampled_from(NEW_NAMES))
    decl.props.append(Prop(name, draw(st.sampled_from(NEW_TYPES))))


def drop_property(draw: st.DrawFn, model: Model) -> None:
    for decl in _chosen(draw, _with_properties(model)):
        dropped = draw(st.sampled_from(decl.props))
        decl.props.remove(dropped)
        decl.rules = [rule for rule in decl.rules if dropped.name not in _members(rule)]


def rename_property(draw: st.DrawFn, model: Model) -> None:
    for decl in _chosen(draw, _with_properties(model)):
        prop = draw(st.sampled_from(decl.props))
        new = draw(st.sampled_from(NEW_NAMES))
        decl.rules = [_renamed_member(rule, prop.name, new) for rule in decl.rules]
        prop.hint, prop.name = prop.hint or prop.name, new


def retype_property(draw: st.DrawFn, model: Model) -> None:
    for decl in _chosen(draw, _with_properties(model)):
        prop = draw(st.sampled_from(decl.props))
        if prop.name[0] in TYPES:
            prop.type = draw(st.sampled_from(TYPES[prop.name[0]]))


def note_property(draw: st.DrawFn, model: Model) -> None:
    for decl in _chosen(draw, _with_properties(model)):
        prop = draw(st.sampled_from(decl.props))
        note = draw(st.sampled_from(["@index", '@unit("m")', DEFAULTS.get(prop.name, "@seen")]))
        if note in prop.annotations:
            prop.annotations.remove(note)
        else:
            prop.annotations.append(note)


def add_type(draw: st.DrawFn, model: Model) -> None:
    name = draw(st.sampled_from(("M", "N")))
    kind = draw(st.sampled_from(("interface", "node", "edge")))
    props = [Prop(each, "I32?") for each in draw(st.sets(st.sampled_from(NEW_NAMES), max_size=2))]
    nodes = [decl.name for decl in model.of("node")] or ["A"]
    ends = draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes))
    model.decls.append(Decl(kind, name, props, ends=ends))


def drop_type(draw: st.DrawFn, model: Model) -> None:
    if len(model.decls) == 1:
        return
    dropped = draw(st.sampled_from(model.decls))
    model.decls.remove(dropped)
    if dropped.kind == "node":
        model.decls = [decl for decl in model.decls if dropped.name not in decl.ends]
    if dropped.kind == "interface":
        for decl in model.decls:
            decl.implements = [name for name in decl.implements if name != dropped.name]


def rename_type(draw: st.DrawFn, model: Model) -> None:
    decl = draw(st.sampled_from(model.decls))
    new = draw(st.sampled_from(("M", "N", "K")))
    for edge in model.of("edge"):
        edge.ends = tuple(new if end == decl.name else end for end in edge.ends)  # type: ignore[assignment]  # still two
    decl.hint, decl.name = decl.hint or decl.name, new


def note_type(draw: st.DrawFn, model: Model) -> None:
    decl = draw(st.sampled_from(model.decls))
    note = draw(st.sampled_from(['@description("new")', '@unit("s")']))
    decl.annotations = [each for each in decl.annotations if each != note] or [note]


def change_rules(draw: st.DrawFn, model: Model) -> None:
    decl = draw(st.sampled_from(model.decls))
    if decl.rules and draw(st.booleans()):
        decl.rules.remove(draw(st.sampled_from(decl.rules)))
    elif decl.props:
        name = draw(st.sampled_from(decl.props)).name
        rules = [
            f"@unique({name})",
            f"@index({name})",
            f"@range({name}, 0..)",
            f"@range({name}, ..9)",
        ]
        decl.rules.append(draw(st.sampled_from(rules)))


def change_interfaces(draw: st.DrawFn, model: Model) -> None:
    interfaces = [decl.name for decl in model.of("interface")]
    for decl in _chosen(draw, model.of("node")):
        decl.implements = (
            draw(st.lists(st.sampled_from(interfaces), unique=True)) if interfaces else []
        )


def change_cardinality(draw: st.DrawFn, model: Model) -> None:
    for decl in _chosen(draw, model.of("edge")):
        decl.card = draw(st.sampled_from(["", "@card(0..3)", "@card(0..5)", "@card(1..)"]))


EDITS: tuple[Callable[[st.DrawFn, Model], None], ...] = (
    add_property,
    add_property,
    drop_property,
    rename_property,
    retype_property,
    note_property,
    add_type,
    drop_type,
    rename_type,
    note_type,
    change_rules,
    change_interfaces,
    change_cardinality,
)


def _chosen(draw: st.DrawFn, decls: list[Decl]) -> Iterator[Decl]:
    if decls:
        yield draw(st.sampled_from(decls))


def _members(rule: str) -> list[str]:
    return [each.strip(" )") for each in rule.partition("(")[2].split(",")]


def _renamed_member(rule: str, old: str, new: str) -> str:
    head, _, rest = rule.partition("(")
    return (
        head
        + "("
        + ", ".join(new if m.strip(" )") == old else m.strip(" )") for m in rest.split(","))
        + ")"
    )
