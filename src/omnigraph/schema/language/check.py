"""From a tree to a shape: names, annotations, rules and interfaces, with every problem reported.

The passes run in this order, each on what the one before it made:

1. interfaces, each alone;
2. nodes: interfaces resolved and expanded, then annotations and rules against the effective
   properties;
3. edges: endpoints, annotations and rules;
4. names across declarations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from omnigraph.names import (
    LANCE_COLUMNS,
    RESERVED_EDGE_PROPERTIES,
    RESERVED_NODE_PROPERTIES,
    TypeKind,
)
from omnigraph.schema.catalog import Cardinality
from omnigraph.schema.language import codes
from omnigraph.schema.language.annotations import (
    check_property_annotations,
    check_type_annotations,
    read_property_annotations,
    read_type_annotations,
)
from omnigraph.schema.language.embeds import check_interface_embeds, check_node_embeds
from omnigraph.schema.language.interfaces import Implementation, expand, resolve_interfaces
from omnigraph.schema.language.parse import ParsedSchema, parse_schema_tolerant
from omnigraph.schema.language.problems import Problem, Suggester, diagnostics_of, kind_of
from omnigraph.schema.language.rules import Members, check_edge_rules, check_node_rules, read_rules
from omnigraph.schema.language.shape import (
    SchemaShape,
    ShapeEdge,
    ShapeInterface,
    ShapeNode,
    ShapeProperty,
)
from omnigraph.schema.language.tree import (
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    NodeDecl,
    PropertyDecl,
    SchemaTree,
    TypeRef,
)
from omnigraph.syntax import Diagnostic, SourceError, SourceText, Span

_RESERVED: Final[Mapping[TypeKind, frozenset[str]]] = {
    "interface": LANCE_COLUMNS,
    "node": RESERVED_NODE_PROPERTIES,
    "edge": RESERVED_EDGE_PROPERTIES,
}


def read_schema(source: SourceText | str) -> SchemaShape:
    """Parse and check a `.pg` text; raises `SourceError` with the problems of both steps.

    >>> read_schema("node Station { code: String @key }").nodes[0].properties[0].name
    'code'
    """
    parsed = parse_schema_tolerant(source)
    shape, diagnostics = _check(parsed)
    _raise_if_any((*parsed.diagnostics, *diagnostics))
    return shape


def check_schema(tree: SchemaTree) -> SchemaShape:
    """Check the declarations of a tree and return what they mean; raises `SourceError`."""
    shape, diagnostics = _check(ParsedSchema(tree, (), frozenset()))
    _raise_if_any(diagnostics)
    return shape


def _raise_if_any(diagnostics: Sequence[Diagnostic]) -> None:
    if diagnostics:
        raise SourceError(diagnostics)


def _check(parsed: ParsedSchema) -> tuple[SchemaShape, tuple[Diagnostic, ...]]:
    checker = _Checker(parsed)
    return checker.shape(), tuple(checker.diagnostics)


@dataclass
class _Checker:
    """One run over one tree; collects diagnostics on the way."""

    parsed: ParsedSchema
    diagnostics: list[Diagnostic] = field(default_factory=list)
    suggester: Suggester = field(default_factory=Suggester)

    def shape(self) -> SchemaShape:
        """Run all passes."""
        declarations = self.parsed.tree.declarations
        interface_decls = [d for d in declarations if isinstance(d, InterfaceDecl)]
        node_decls = [d for d in declarations if isinstance(d, NodeDecl)]
        edge_decls = [d for d in declarations if isinstance(d, EdgeDecl)]
        interfaces = _first_by_name(self._interface(d) for d in interface_decls)
        nodes = _first_by_name(self._node(d, interfaces) for d in node_decls)
        edges = _first_by_name(self._edge(d, nodes, interfaces) for d in edge_decls)
        for group in (interface_decls, node_decls, edge_decls):
            self._check_type_names(group)
        self._check_folded_names(edge_decls)
        return SchemaShape(_sorted(interfaces), _sorted(nodes), _sorted(edges))

    def _report(self, declaration: Declaration, problems: Iterable[Problem]) -> None:
        self.diagnostics += diagnostics_of(problems, self.parsed.tree.source, declaration)

    # -- declarations -----------------------------------------------------------------------------

    def _interface(self, declaration: InterfaceDecl) -> ShapeInterface:
        own = self._own_properties(declaration, "interface")
        types = {name: item.prop_type for name, item in own.items()}
        self._report(declaration, check_interface_embeds(declaration, types, self.suggester))
        return ShapeInterface(declaration.name, _sorted(own), declaration.span)

    def _node(self, declaration: NodeDecl, interfaces: Mapping[str, ShapeInterface]) -> ShapeNode:
        own = self._own_properties(declaration, "node")
        resolved = resolve_interfaces(
            declaration.implements,
            interfaces,
            unread_names=self.parsed.unread_names,
            suggester=self.suggester,
        )
        properties, clashes = expand(own, resolved.implementations)
        types = {name: item.prop_type for name, item in properties.items()}
        members = Members(types, resolved.is_complete)
        self._report(declaration, (*resolved.problems, *clashes))
        self._report(declaration, check_type_annotations(declaration.annotations, "node"))
        self._report(declaration, check_node_rules(declaration.rules, members, self.suggester))
        self._report(declaration, _repeated_keys(declaration, own, resolved.implementations))
        if resolved.is_complete:
            embeds = check_node_embeds(declaration, resolved.implementations, types, self.suggester)
            self._report(declaration, embeds)
        annotations = read_type_annotations(declaration.annotations)
        return ShapeNode(
            name=declaration.name,
            annotations=annotations.annotations,
            implements=tuple(sorted(item.interface.name for item in resolved.implementations)),
            properties=_sorted(properties),
            constraints=read_rules(declaration.rules),
            rename_from=annotations.rename_from,
            span=declaration.span,
        )

    def _edge(
        self,
        declaration: EdgeDecl,
        nodes: Mapping[str, ShapeNode],
        interfaces: Mapping[str, ShapeInterface],
    ) -> ShapeEdge:
        own = self._own_properties(declaration, "edge")
        types = {name: item.prop_type for name, item in own.items()}
        for role, ref in (("source", declaration.from_type), ("target", declaration.to_type)):
            self._report(declaration, self._check_endpoint(role, ref, nodes, interfaces))
        self._report(declaration, check_type_annotations(declaration.annotations, "edge"))
        self._report(declaration, check_edge_rules(declaration.rules, types, self.suggester))
        self._report(declaration, _repeated_edge_keys(declaration))
        annotations = read_type_annotations(declaration.annotations)
        return ShapeEdge(
            name=declaration.name,
            from_type=declaration.from_type.name,
            to_type=declaration.to_type.name,
            cardinality=Cardinality(*(declaration.cardinality or (0, None))),
            annotations=annotations.annotations,
            properties=_sorted(own),
            constraints=read_rules(declaration.rules),
            rename_from=annotations.rename_from,
            span=declaration.span,
        )

    def _check_endpoint(
        self,
        role: str,
        reference: TypeRef,
        nodes: Mapping[str, ShapeNode],
        interfaces: Mapping[str, ShapeInterface],
    ) -> Iterator[Problem]:
        if reference.name in nodes or reference.name in self.parsed.unread_names:
            return
        message = f"references unknown {role} type '{reference.name}'"
        if reference.name in interfaces:
            hint: str | None = f"'{reference.name}' is an interface; an edge joins node types"
        else:
            hint = self.suggester.hint(reference.name, nodes)
        yield Problem(codes.ENDPOINT_UNKNOWN, message, reference.span, hint)

    # -- properties -------------------------------------------------------------------------------

    def _own_properties(self, declaration: Declaration, kind: TypeKind) -> dict[str, ShapeProperty]:
        own: dict[str, ShapeProperty] = {}
        for item in declaration.properties:
            self._report(declaration, _check_property_name(item, own, kind))
            self._report(declaration, check_property_annotations(item, kind))
            own.setdefault(item.name, _shape_property(item))
        return own

    # -- names across declarations ----------------------------------------------------------------

    def _check_type_names(self, declarations: Sequence[Declaration]) -> None:
        first: dict[str, Declaration] = {}
        for declaration in declarations:
            earlier = first.setdefault(declaration.name, declaration)
            if earlier is not declaration:
                kind = kind_of(declaration)
                message = f"duplicate {kind} type '{declaration.name}'"
                hint = f"the first one is on line {self._line(earlier.span)}"
                problem = Problem(codes.TYPE_DUPLICATE, message, declaration.span, hint)
                self._report(declaration, (problem,))

    def _check_folded_names(self, edges: Sequence[EdgeDecl]) -> None:
        first: dict[str, EdgeDecl] = {}
        for edge in edges:
            earlier = first.setdefault(edge.name.lower(), edge)
            if earlier.name != edge.name:
                message = (
                    f"edge name collision after case folding: '{edge.name}' and '{earlier.name}'"
                )
                hint = "edge names are looked up without regard to case; rename one of the two"
                problem = Problem(codes.EDGE_NAME_COLLISION, message, edge.span, hint)
                self._report(edge, (problem,))

    def _line(self, span: Span) -> int:
        return self.parsed.tree.source.position(span.start).line


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Item = TypeVar("_Item", bound=_Named)


def _first_by_name(items: Iterable[_Item]) -> dict[str, _Item]:
    found: dict[str, _Item] = {}
    for item in items:
        found.setdefault(item.name, item)
    return found


def _sorted(items: Mapping[str, _Item]) -> tuple[_Item, ...]:
    return tuple(items[name] for name in sorted(items))


def _shape_property(declaration: PropertyDecl) -> ShapeProperty:
    annotations = read_property_annotations(declaration.annotations)
    return ShapeProperty(
        name=declaration.name,
        prop_type=declaration.prop_type,
        annotations=annotations.annotations,
        property_constraints=annotations.constraints,
        embed=annotations.embed,
        rename_from=annotations.rename_from,
        span=declaration.span,
    )


def _check_property_name(
    declaration: PropertyDecl, earlier: Mapping[str, ShapeProperty], kind: TypeKind
) -> Iterator[Problem]:
    name = declaration.name
    if name in earlier:
        yield Problem(codes.PROPERTY_DUPLICATE, f"duplicate property '{name}'", declaration.span)
    if name in _RESERVED[kind]:
        message = f"property name '{name}' is reserved"
        hint = "choose another name: the engine has a column or field of this name"
        yield Problem(codes.PROPERTY_RESERVED, message, declaration.span, hint)


def _repeated_keys(
    declaration: NodeDecl,
    own: Mapping[str, ShapeProperty],
    implementations: Sequence[Implementation],
) -> Iterator[Problem]:
    places = [
        next(annotation.span for annotation in item.annotations if annotation.name == "key")
        for item in declaration.properties
        if any(annotation.name == "key" for annotation in item.annotations)
    ]
    places += [rule.span for rule in declaration.rules if rule.kind == "key"]
    places += _injected_keys(own, implementations)
    for span in places[1:]:
        hint = "name all members in one rule: `@key(a, b)`"
        yield Problem(codes.KEY_REPEATED, "node has multiple @key constraints", span, hint)


def _repeated_edge_keys(declaration: EdgeDecl) -> Iterator[Problem]:
    keys = [rule.span for rule in declaration.rules if rule.kind == "key"]
    for span in keys[1:]:
        hint = "name all members in one rule: `@key(src, dst, a)`"
        yield Problem(codes.KEY_REPEATED, "edge has multiple @key constraints", span, hint)


def _injected_keys(
    own: Mapping[str, ShapeProperty], implementations: Sequence[Implementation]
) -> Iterator[Span]:
    seen = set(own)
    for implementation in implementations:
        for item in implementation.interface.properties:
            if item.name not in seen and "key" in item.property_constraints:
                yield implementation.span
            seen.add(item.name)
