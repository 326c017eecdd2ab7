"""Random schemas for property tests.

| strategy | gives |
|---|---|
| `schema_trees()` | trees that pass every check |
| `loose_trees()` | trees that print and parse, but may contradict themselves |
| `schema_texts()` | texts of valid schemas in one fixed layout |
| `layouts(tree)` | texts of one tree: any order, any blanks and comments |
| `edited_schemas()` | the text of a valid schema, and of the same schema after small edits |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st

from omnigraph.names import RESERVED_EDGE_PROPERTIES
from omnigraph.schema.language.check import check_schema
from omnigraph.schema.language.quote import quote
from omnigraph.schema.language.tree import (
    AnnotationDecl,
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    NodeDecl,
    PropertyDecl,
    RuleDecl,
    SchemaTree,
    TypeRef,
)
from omnigraph.syntax import SourceError, SourceText, Span
from omnigraph.values import DECLARABLE_SCALARS, PropType, Scalar
from support.print_schema import print_schema

HERE = Span(0, 0)
Item = TypeVar("Item")
Draw = st.DrawFn

KEYWORDS = ("node", "edge", "interface", "implements", "enum", "type", "true", "false", "key")


# -- words ----------------------------------------------------------------------------------------

type_names = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,5}", fullmatch=True)
property_names = st.one_of(
    st.sampled_from(KEYWORDS), st.from_regex(r"[a-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
).filter(lambda name: name not in RESERVED_EDGE_PROPERTIES)
enum_values = st.from_regex(r"[A-Za-z0-9_-]{1,5}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8"), max_size=8)
full_texts = texts.filter(bool)
bounds = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)
patterns = st.sampled_from(["^[A-Z]{3}-\\d+$", "", "a|b", '"', "\\\\", "é+", "\n"])


# -- types ----------------------------------------------------------------------------------------


@st.composite
def prop_types(draw: Draw, nullable: bool | None = None) -> PropType:
    is_nullable = draw(st.booleans()) if nullable is None else nullable
    form = draw(st.sampled_from(["scalar", "scalar", "list", "enum", "vector"]))
    if form == "enum":
        values = draw(st.lists(enum_values, min_size=1, max_size=4, unique=True))
        return PropType(Scalar.STRING, is_nullable, enum_values=tuple(sorted(values)))
    if form == "vector":
        return PropType(Scalar.VECTOR, is_nullable, dimension=draw(st.integers(1, 2**31 - 1)))
    scalar = draw(st.sampled_from(DECLARABLE_SCALARS))
    is_list = form == "list" and scalar is not Scalar.BLOB
    return PropType(scalar, is_nullable, is_list=is_list)


# -- annotations -----------------------------------------------------------------------------------


def annotation(name: str, value: str | None = None, **kwargs: str) -> AnnotationDecl:
    spans = (HERE,) * len(kwargs)
    return AnnotationDecl(name, value, tuple(kwargs.items()), HERE, kwarg_spans=spans)


@st.composite
def free_notes(draw: Draw) -> AnnotationDecl:
    """An annotation that means nothing."""
    name = "x_" + draw(property_names)
    value = draw(st.none() | texts)
    kwargs = draw(st.dictionaries(property_names, texts, max_size=2)) if value is not None else {}
    return AnnotationDecl(
        name, value, tuple(kwargs.items()), HERE, kwarg_spans=(HERE,) * len(kwargs)
    )


@st.composite
def type_notes(draw: Draw) -> tuple[AnnotationDecl, ...]:
    known = {
        name: annotation(name, draw(full_texts))
        for name in draw(
            st.sets(st.sampled_from(["description", "instruction", "rename_from"]), max_size=2)
        )
    }
    return (*known.values(), *draw(st.lists(free_notes(), max_size=2)))


@st.composite
def property_notes(draw: Draw, prop_type: PropType) -> tuple[AnnotationDecl, ...]:
    """Annotations that suit a property of this type in any declaration."""
    choices: list[AnnotationDecl] = [
        annotation("description", draw(full_texts)),
        annotation("rename_from", draw(full_texts)),
    ]
    if prop_type.is_plain_scalar:
        choices += [annotation("unique"), annotation("index")]
    if prop_type.is_vector:
        choices += [
            annotation("index"),
            annotation("metric", draw(st.sampled_from(["l2", "dot", "cosine"]))),
        ]
    if prop_type.scalar is Scalar.BOOL and not prop_type.is_list:
        choices.append(annotation("default", draw(st.sampled_from(["true", "false"]))))
    if prop_type.enum_values is not None:
        choices.append(annotation("default", draw(st.sampled_from(prop_type.enum_values))))
    chosen = draw(st.lists(st.sampled_from(choices), max_size=3, unique_by=lambda n: n.name))
    return (*chosen, *draw(st.lists(free_notes(), max_size=1)))


# -- bodies ---------------------------------------------------------------------------------------


@st.composite
def properties(draw: Draw, names: Sequence[str]) -> tuple[PropertyDecl, ...]:
    found = []
    for name in names:
        prop_type = draw(prop_types())
        annotations = draw(property_notes(prop_type))
        found.append(PropertyDecl(name, prop_type, annotations, HERE, HERE))
    return tuple(found)


def rule(kind: str, *fields: str) -> RuleDecl:
    return RuleDecl(kind, fields, HERE, (HERE,) * len(fields))  # type: ignore[arg-type]  # one of the kinds


@st.composite
def node_rules(draw: Draw, types: dict[str, PropType]) -> tuple[RuleDecl, ...]:
    found: list[RuleDecl] = []
    plain = [name for name, found_type in types.items() if found_type.is_plain_scalar]
    required = [name for name in plain if not types[name].nullable]
    indexable = [name for name, found_type in types.items() if found_type.scalar != "Blob"]
    for kind, pool in (("key", required), ("unique", plain), ("index", indexable)):
        if pool and draw(st.booleans()):
            found.append(rule(kind, *draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3))))
    for name in plain:
        if types[name].scalar.is_numeric and draw(st.booleans()):
            low, high = draw(st.tuples(bounds, bounds | st.none()) | st.tuples(st.none(), bounds))
            found.append(replace(rule("range", name), min=low, max=high))
        if types[name].scalar is Scalar.STRING and draw(st.booleans()):
            found.append(replace(rule("check", name), pattern=draw(patterns)))
    return tuple(found)


@st.composite
def edge_rules(draw: Draw, types: dict[str, PropType]) -> tuple[RuleDecl, ...]:
    pool = ["src", "dst", *(name for name, found in types.items() if found.is_plain_scalar)]
    fields = st.lists(st.sampled_from(pool), min_size=1, max_size=3)
    kinds = draw(st.lists(st.sampled_from(["unique", "index"]), max_size=2))
    return tuple(rule(kind, *draw(fields)) for kind in kinds)


def _types(items: Sequence[PropertyDecl]) -> dict[str, PropType]:
    return {item.name: item.prop_type for item in items}


# -- declarations ---------------------------------------------------------------------------------


@st.composite
def nodes(draw: Draw, name: str, interfaces: Sequence[InterfaceDecl]) -> NodeDecl:
    chosen = draw(
        st.lists(st.sampled_from(interfaces), max_size=2, unique_by=lambda i: i.name)
        if interfaces
        else st.just([])
    )
    offered = {item.name: item for interface in chosen for item in interface.properties}
    fresh = draw(st.lists(property_names, max_size=4, unique=True))
    own = list(draw(properties([each for each in fresh if each not in offered])))
    repeated = draw(st.lists(st.sampled_from(sorted(offered)), unique=True)) if offered else []
    own += [PropertyDecl(name, offered[name].prop_type, (), HERE, HERE) for name in repeated]
    types = {**_types(list(offered.values())), **_types(own)}
    return NodeDecl(
        name=name,
        annotations=draw(type_notes()),
        implements=tuple(TypeRef(interface.name, HERE) for interface in chosen),
        properties=tuple(own),
        rules=draw(node_rules(types)),
        span=HERE,
    )


@st.composite
def edges(draw: Draw, name: str, ends: Sequence[str]) -> EdgeDecl:
    own = draw(properties(draw(st.lists(property_names, max_size=3, unique=True))))
    low = draw(st.integers(0, 5))
    high = draw(st.none() | st.integers(low, 9))
    return EdgeDecl(
        name=name,
        from_type=TypeRef(draw(st.sampled_from(ends)), HERE),
        to_type=TypeRef(draw(st.sampled_from(ends)), HERE),
        cardinality=draw(st.sampled_from([None, (low, high)])),
        annotations=draw(type_notes()),
        properties=own,
        rules=draw(edge_rules(_types(own))),
        span=HERE,
    )


@st.composite
def schema_trees(draw: Draw) -> SchemaTree:
    """A valid schema. Interfaces never share a property, so any set of them can be implemented."""
    interface_names = draw(st.lists(type_names, max_size=2, unique=True))
    interfaces = [
        InterfaceDecl(name, _prefixed(draw(_some_properties()), f"i{number}_"), HERE)
        for number, name in enumerate(interface_names)
    ]
    node_names = draw(st.lists(type_names, max_size=3, unique=True))
    node_decls = [draw(nodes(name, interfaces)) for name in node_names]
    edge_names = draw(st.lists(type_names, max_size=2, unique_by=str.lower)) if node_names else []
    edge_decls = [draw(edges(name, node_names)) for name in edge_names]
    declarations: list[Declaration] = [*interfaces, *node_decls, *edge_decls]
    return _tree(draw(st.permutations(declarations)))


@st.composite
def _some_properties(draw: Draw) -> tuple[PropertyDecl, ...]:
    return draw(properties(draw(st.lists(property_names, max_size=3, unique=True))))


def _prefixed(items: Sequence[PropertyDecl], prefix: str) -> tuple[PropertyDecl, ...]:
    return tuple(replace(item, name=prefix + item.name) for item in items)


def _tree(declarations: Sequence[Declaration]) -> SchemaTree:
    tree = SchemaTree(SourceText(""), tuple(declarations))
    return replace(tree, source=SourceText(print_schema(tree), "random.pg"))


@st.composite
def loose_trees(draw: Draw) -> SchemaTree:
    """A tree of parts that do not fit together: unknown names, repeated annotations, wild rules."""
    any_notes = st.lists(
        free_notes()
        | st.builds(annotation, st.sampled_from(["key", "unique", "index", "range", "check"]))
        | st.builds(annotation, st.sampled_from(["embed", "description", "default"]), texts),
        max_size=3,
    ).map(tuple)
    some_names = st.lists(property_names | st.just("id"), min_size=1, max_size=3)
    any_rules = st.lists(
        st.builds(
            lambda kind, names: rule(kind, *names),
            st.sampled_from(["key", "unique", "index"]),
            some_names,
        )
        | st.builds(
            lambda name, low, high: replace(rule("range", name), min=low, max=high),
            property_names,
            bounds,
            bounds | st.none(),
        )
        | st.builds(
            lambda name, pattern: replace(rule("check", name), pattern=pattern),
            property_names,
            texts,
        ),
        max_size=3,
    ).map(tuple)
    any_properties = st.lists(
        st.builds(
            PropertyDecl, property_names, prop_types(), any_notes, st.just(HERE), st.just(HERE)
        ),
        max_size=3,
    ).map(tuple)
    refs = st.builds(TypeRef, type_names, st.just(HERE))
    cards = st.none() | st.tuples(st.integers(0, 9), st.none()) | st.just((1, 1))
    # An annotation that is also a rule word must not be followed by a bracket, so a header has
    # none.
    header_notes = st.lists(free_notes(), max_size=2).map(tuple)
    declarations = st.lists(
        st.builds(InterfaceDecl, type_names, any_properties, st.just(HERE))
        | st.builds(
            NodeDecl,
            type_names,
            header_notes,
            st.lists(refs, max_size=2).map(tuple),
            any_properties,
            any_rules,
            st.just(HERE),
        )
        | st.builds(
            EdgeDecl,
            type_names,
            refs,
            refs,
            cards,
            header_notes,
            any_properties,
            any_rules,
            st.just(HERE),
        ),
        max_size=4,
    )
    return _tree(draw(declarations))


def schema_texts() -> st.SearchStrategy[str]:
    """Texts of valid schemas."""
    return schema_trees().map(print_schema)


# -- other layouts of one tree --------------------------------------------------------------------

blanks = st.sampled_from([" ", "\n", "\t", "\r\n", " // a comment {\n", "/* a { comment * */"])
gaps = st.lists(blanks, min_size=1, max_size=2).map("".join)
maybe_gaps = st.just("") | gaps


@st.composite
def layouts(draw: Draw, tree: SchemaTree) -> str:
    """Write a tree with its declarations, members, annotations and values in any order."""
    return _Layout(draw).schema(tree)


class _Layout:
    """Deliberately not built on `print_schema`, which is under test itself."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw

    def schema(self, tree: SchemaTree) -> str:
        return self.gap0() + "".join(
            self.declaration(each) + self.gap() for each in self.shuffled(tree.declarations)
        )

    def declaration(self, each: Declaration) -> str:
        if isinstance(each, InterfaceDecl):
            return self.words("interface", each.name) + self.body(each.properties, ())
        if isinstance(each, EdgeDecl):
            ends = [":", each.from_type.name, "->", each.to_type.name]
            header = self.words("edge", each.name, *ends)
            if each.cardinality is not None:
                low, high = each.cardinality
                header += self.call("@card", f"{low}..{'' if high is None else high}") + self.gap()
            header += self.annotations(each.annotations)
            return header + self.body(each.properties, each.rules)
        header = self.words("node", each.name) + self.annotations(each.annotations)
        if each.implements:
            names = [ref.name for ref in self.shuffled(each.implements)]
            header += self.words("implements") + self.joined(names) + self.gap()
        return header + self.body(each.properties, each.rules)

    def body(self, items: Sequence[PropertyDecl], rules: Sequence[RuleDecl]) -> str:
        parts = [self.property(item) for item in items] + [self.rule(each) for each in rules]
        return "{" + self.gap0() + "".join(self.shuffled(parts)) + "}"

    def property(self, item: PropertyDecl) -> str:
        return (
            self.words(item.name, ":")
            + self.type(item.prop_type)
            + self.annotations(item.annotations)
        )

    def type(self, found: PropType) -> str:
        if found.enum_values is not None:
            text = self.call("enum", self.joined(self.shuffled(found.enum_values)))
        else:
            text = str(replace(found, nullable=False))
        mark = self.gap0() + "?" if found.nullable else ""
        return text + mark + self.gap()

    def annotations(self, annotations: Sequence[AnnotationDecl]) -> str:
        return "".join(self.annotation(each) + self.gap() for each in self.shuffled(annotations))

    def annotation(self, each: AnnotationDecl) -> str:
        if each.value is None:
            return f"@{each.name}"
        keywords = [f"{name}{self.gap0()}={quote(value)}" for name, value in each.kwargs]
        return self.call(f"@{each.name}", self.joined([quote(each.value), *keywords]))

    def rule(self, each: RuleDecl) -> str:
        if each.kind == "range":
            low, high = (_number(bound) for bound in (each.min, each.max))
            inside = self.joined([each.fields[0], f"{low}..{high}"])
        elif each.pattern is not None:
            inside = self.joined([each.fields[0], quote(each.pattern)])
        else:
            inside = self.joined(self.shuffled(each.fields))
        return self.call(f"@{each.kind}", inside) + self.gap()

    def call(self, word: str, inside: str) -> str:
        return f"{word}{self.gap0()}({self.gap0()}{inside}{self.gap0()})"

    def joined(self, parts: Sequence[str]) -> str:
        return f"{self.gap0()},{self.gap0()}".join(parts)

    def words(self, *words: str) -> str:
        return "".join(word + self.gap() for word in words)

    def gap(self) -> str:
        return self.draw(gaps)

    def gap0(self) -> str:
        return self.draw(maybe_gaps)

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        return self.draw(st.permutations(items))


def _number(bound: int | float | None) -> str:
    if bound is None:
        return ""
    return str(bound) if isinstance(bound, int) else f"{bound:.1074f}"


# -- edits ----------------------------------------------------------------------------------------


def _add_property(draw: Draw, each: Declaration) -> Declaration:
    extra = PropertyDecl(
        "added_" + draw(property_names), draw(prop_types(nullable=True)), (), HERE, HERE
    )
    return replace(each, properties=(*each.properties, extra))


def _drop_property(draw: Draw, each: Declaration) -> Declaration:
    if not each.properties:
        return each
    gone = draw(st.sampled_from(each.properties))
    return replace(each, properties=tuple(item for item in each.properties if item is not gone))


def _rename_property(draw: Draw, each: Declaration) -> Declaration:
    if not each.properties:
        return each
    old = draw(st.sampled_from(each.properties))
    hints = (
        *(n for n in old.annotations if n.name != "rename_from"),
        annotation("rename_from", old.name),
    )
    new = replace(old, name="renamed_" + old.name, annotations=hints)
    return replace(each, properties=tuple(new if item is old else item for item in each.properties))


def _change_type(draw: Draw, each: Declaration) -> Declaration:
    if not each.properties:
        return each
    old = draw(st.sampled_from(each.properties))
    new = replace(old, prop_type=draw(prop_types()))
    return replace(each, properties=tuple(new if item is old else item for item in each.properties))


def _drop_rule(draw: Draw, each: Declaration) -> Declaration:
    if isinstance(each, InterfaceDecl) or not each.rules:
        return each
    gone = draw(st.sampled_from(each.rules))
    return replace(each, rules=tuple(item for item in each.rules if item is not gone))


def _describe(draw: Draw, each: Declaration) -> Declaration:
    if isinstance(each, InterfaceDecl):
        return each
    kept = tuple(n for n in each.annotations if n.name != "description")
    return replace(each, annotations=(*kept, annotation("description", draw(full_texts))))


EDITS: Sequence[Callable[[Draw, Declaration], Declaration]] = (
    _add_property,
    _drop_property,
    _rename_property,
    _change_type,
    _drop_rule,
    _describe,
)


@st.composite
def edited_schemas(draw: Draw) -> tuple[str, str]:
    """A valid schema before and after one to three edits; an edit that breaks it is left out."""
    before = draw(schema_trees().filter(lambda tree: bool(tree.declarations)))
    after = before
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(after.declarations) - 1))
        edit = draw(st.sampled_from(EDITS))
        changed = list(after.declarations)
        changed[at] = edit(draw, changed[at])
        candidate = _tree(changed)
        if _is_valid(candidate):
            after = candidate
    return print_schema(before), print_schema(after)


def _is_valid(tree: SchemaTree) -> bool:
    try:
        check_schema(tree)
    except SourceError:
        return False
    return True
