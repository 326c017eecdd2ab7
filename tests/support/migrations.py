"""Random pairs of schemas that are near enough for most plans to be supported.

All names come from a small pool, so two independent schemas share many of them; every property
name has one family of types, whose members mostly migrate into each other. Hints are only drawn
where they are legal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import strategies as st

TYPES = {
    "p": ("String", "String?", "enum(a)", "enum(a, b)", "enum(a, c)?"),
    "q": ("I32", "I32?", "I64", "I64?"),
    "r": ("F32", "F32?", "F64", "F64?"),
    "s": ("Date", "DateTime?"),
    "v": ("Vector(2)?",),
    "w": ("[String]?",),
}
DEFAULTS = {"p": '@default("a")', "q": "@default(7)", "r": "@default(1.5)"}
DEFAULTS["s"] = '@default("2024-01-01")'
PLAIN = ("p", "q", "r", "s")
SUFFIXES = ("", "", "2")
"""A property may also be called `p2`, so that renames have somewhere to go."""


@dataclass
class Prop:
    name: str
    type: str
    annotations: list[str] = field(default_factory=list)
    hint: str | None = None

    def text(self) -> str:
        hint = [f"@rename_from({self.hint})"] if self.hint else []
        return " ".join([f"{self.name}: {self.type}", *self.annotations, *hint])


@dataclass
class Decl:
    kind: str
    name: str
    props: list[Prop] = field(default_factory=list)
    implements: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    annotations: list[str] = field(default_factory=list)
    ends: tuple[str, str] = ("", "")
    card: str = ""
    hint: str | None = None

    def text(self) -> str:
        words = [self.kind, self.name]
        if self.kind == "edge":
            words[-1] += ":"
            words += [f"{self.ends[0]} -> {self.ends[1]}", self.card]
        words += self.annotations
        if self.hint:
            words.append(f'@rename_from("{self.hint}")')
        if self.implements:
            words.append(f"implements {', '.join(self.implements)}")
        return " ".join([*words, "{", *(p.text() for p in self.props), *self.rules, "}"])


@dataclass
class Model:
    decls: list[Decl]

    def text(self) -> str:
        return "\n".join(decl.text() for decl in self.decls)

    def of(self, kind: str) -> list[Decl]:
        return [decl for decl in self.decls if decl.kind == kind]


def _subset(draw: st.DrawFn, pool: Sequence[str]) -> list[str]:
    return [item for item in pool if draw(st.booleans())]


@st.composite
def models(draw: st.DrawFn) -> Model:
    """One schema. Properties of the same name have the same type and annotations throughout."""
    shared = {name: _shared(draw, name) for name in TYPES}
    spelled = {name: name + draw(st.sampled_from(SUFFIXES)) for name in TYPES}

    def prop(name: str) -> Prop:
        kind, annotations = shared[name]
        return Prop(spelled[name], kind, list(annotations))

    decls: list[Decl] = []
    offers: dict[str, list[str]] = {}
    for name in _subset(draw, ("I", "J")):
        offers[name] = _subset(draw, ("p", "q", "v"))
        decls.append(Decl("interface", name, [prop(each) for each in offers[name]]))
    node_names = _subset(draw, ("A", "B", "C"))
    for name in node_names:
        implements = _subset(draw, tuple(offers))
        own = _subset(draw, tuple(TYPES))
        effective = {*own, *(each for interface in implements for each in offers[interface])}
        rules = _rules(draw, [spelled[each] for each in PLAIN if each in effective])
        if "q" in effective and draw(st.booleans()):
            rules.append(
                f"@range({spelled['q']}, {draw(st.sampled_from(['0..9', '..5', '0.5..']))})"
            )
        props = [prop(each) for each in own]
        for found in props:
            if found.name == spelled["v"] and "p" in effective and draw(st.booleans()):
                found.annotations.append(f"@embed({spelled['p']})")
        decls.append(
            Decl("node", name, props, implements, rules=rules, annotations=_annotations(draw))
        )
    for name in _subset(draw, ("E", "F")) if node_names else []:
        ends = draw(st.sampled_from(node_names)), draw(st.sampled_from(node_names))
        card = draw(st.sampled_from(["", "@card(0..3)", "@card(1..)"]))
        own = _subset(draw, ("q", "r", "w"))
        rules = _rules(draw, ["src", "dst"])
        decls.append(Decl("edge", name, [prop(e) for e in own], rules=rules, ends=ends, card=card))
    return Model(decls)


def _shared(draw: st.DrawFn, name: str) -> tuple[str, list[str]]:
    kind = draw(st.sampled_from(TYPES[name]))
    annotations = _annotations(draw)
    if name in DEFAULTS and (not kind.endswith("?") or draw(st.booleans())):
        annotations.append(DEFAULTS[name])
    if name in PLAIN:
        annotations += _subset(draw, ("@unique", "@index"))
    return kind, annotations


def _annotations(draw: st.DrawFn) -> list[str]:
    return draw(st.sampled_from([[], [], ['@description("x")'], ['@unit("m", si="y")']])).copy()


def _rules(draw: st.DrawFn, members: Sequence[str]) -> list[str]:
    if not members:
        return []
    kinds = draw(st.lists(st.sampled_from(["unique", "index"]), max_size=2))
    chosen = st.lists(st.sampled_from(members), min_size=1, max_size=2)
    return [f"@{kind}({', '.join(draw(chosen))})" for kind in kinds]


@st.composite
def schema_chains(draw: st.DrawFn, length: int) -> list[str]:
    """Texts of one graph over time, each with hints that fit the one before."""
    found = [draw(models()) for _ in range(length)]
    for old, new in pairwise(found):
        _hint_types(draw, old, new)
    texts = []
    for index, model in enumerate(found):
        if index:
            _hint_properties(draw, found[index - 1], model)
        texts.append(model.text())
    return texts


def _hint_types(draw: st.DrawFn, old: Model, new: Model) -> None:
    for kind in ("node", "edge"):
        before, after = [d.name for d in old.of(kind)], [d.name for d in new.of(kind)]
        free = [name for name in before if name not in after]
        for decl in new.of(kind):
            if free and decl.name not in before and draw(st.booleans()):
                decl.hint = free.pop()


def _hint_properties(draw: st.DrawFn, old: Model, new: Model) -> None:
    """Hint `p2` at `p` or back, where both types are known to have had and lost the name."""
    for decl in new.decls:
        was = next((d for d in old.of(decl.kind) if d.name == (decl.hint or decl.name)), None)
        if was is None:
            continue
        before = {p.name for p in was.props}
        effective = {p.name for p in _effective(decl, new)}
        for prop in decl.props:
            other = prop.name[0] if prop.name.endswith("2") else f"{prop.name}2"
            is_legal = other in before and other not in effective and prop.name not in before
            if is_legal and prop.name not in {p.name for p in _effective(was, old)}:
                prop.hint = other if draw(st.booleans()) else None


def _effective(decl: Decl, model: Model) -> list[Prop]:
    offered = [d for d in model.of("interface") if d.name in decl.implements]
    return [*decl.props, *(p for interface in offered for p in interface.props)]
