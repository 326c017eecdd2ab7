"""Types of a match: bindings, hops, filters and the blocks around them, in textual order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from omnigraph.query.check.checked import CheckedBinding, CheckedBlock
from omnigraph.query.check.connected import connected
from omnigraph.query.check.expr import entity_id, filter_operand, report_bare_edge
from omnigraph.query.check.hop import HopChecker, report_optional
from omnigraph.query.check.inline import check_inline_property
from omnigraph.query.check.predicate import ConditionChecker
from omnigraph.query.check.scope import WILDCARD, Bound, Context, Scope, suggestion
from omnigraph.query.check.search import check_text_match
from omnigraph.query.language.tree import (
    Binding,
    Both,
    Clause,
    Comparison,
    Either,
    Expr,
    Filter,
    Hop,
    Membership,
    Negated,
    NotBlock,
    NullTest,
    OptionalBlock,
    PropertyRef,
    TextCall,
    Variable,
)
from omnigraph.query.language.tree import (
    Predicate as WrittenPredicate,
)
from omnigraph.query.plan.plan import Expand, Predicate, Value
from omnigraph.schema.catalog import NodeType


def check_block(context: Context, scope: Scope, clauses: tuple[Clause, ...]) -> CheckedBlock:
    """Check the clauses of one block and add what they introduce to the scope.

    After a reported problem the result is incomplete and must not be lowered.
    """
    checker = _BlockChecker(context, scope, frozenset(scope.variables), _introduced(clauses))
    for clause in clauses:
        checker.check(clause)
    checker.check_components()
    return checker.finish()


@dataclass
class _BlockChecker:
    context: Context
    scope: Scope
    outer: frozenset[str]
    own_names: frozenset[str]
    bindings: list[CheckedBinding] = field(default_factory=list)
    hops: list[Expand] = field(default_factory=list)
    filters: list[Predicate] = field(default_factory=list)
    optionals: list[CheckedBlock] = field(default_factory=list)
    nots: list[CheckedBlock] = field(default_factory=list)
    written_hops: list[Hop] = field(default_factory=list)
    anchored: set[str] = field(default_factory=set)

    def check(self, clause: Clause) -> None:
        if isinstance(clause, Binding):
            self._binding(clause)
        elif isinstance(clause, Hop):
            self._hop(clause)
        elif isinstance(clause, Filter):
            self._filter(clause)
        elif isinstance(clause, TextCall):
            self._keep_filter(check_text_match(self.context, self.scope, clause))
        elif isinstance(clause, NotBlock):
            self._not(clause)
        else:
            self._optional(clause)

    def finish(self) -> CheckedBlock:
        return CheckedBlock(
            tuple(self.bindings),
            tuple(self.hops),
            tuple(self.filters),
            tuple(self.optionals),
            tuple(self.nots),
            tuple(b.name for n, b in self.scope.variables.items() if n not in self.outer),
        )

    # -- bindings -------------------------------------------------------------------------------

    def _binding(self, clause: Binding) -> None:
        if clause.variable == WILDCARD:
            self.context.report.error(
                "T109", "the wildcard `$_` cannot be bound to a type", clause.span, "name it"
            )
            return
        entity = self._node_type(clause)
        bound = self._bind(clause, entity)
        if bound is None:
            return
        self.anchored.add(clause.variable)
        if entity is None or bound.entity is not entity:
            return
        found = [
            check_inline_property(self.context, bound, entity, item) for item in clause.properties
        ]
        filters = tuple(item for item in found if item is not None)
        self.bindings.append(CheckedBinding(bound.name, entity.name, filters))

    def _node_type(self, clause: Binding) -> NodeType | None:
        catalog = self.context.catalog
        entity = catalog.node_types.get(clause.type_name)
        if entity is not None:
            return entity
        if clause.type_name in catalog.interfaces:
            hint: str | None = "an interface cannot be queried: bind a type that implements it"
        elif clause.type_name in catalog.edge_types:
            hint = "an edge type is matched by a hop: `$a edge $b`, or `$a $e:edge $b`"
        else:
            hint = suggestion(clause.type_name, catalog.node_types, what="node types")
        self.context.report.error(
            "T1", f"'{clause.type_name}' is not a node type", clause.type_span, hint
        )
        return None

    def _bind(self, clause: Binding, entity: NodeType | None) -> Bound | None:
        name = clause.variable
        bound = self.scope.variables.get(name)
        if bound is None:
            return self.scope.introduce(name, "node", entity)
        if bound.kind == "edge":
            self.context.report.error(
                "T23",
                f"edge variable `${name}` cannot be bound to a node type",
                clause.span,
                "give the node another name",
            )
            return None
        if bound.optional_level == self.scope.level:
            report_optional(self.context, Variable(name, clause.span))
            return None
        if bound.entity is None and entity is not None:
            bound = replace(bound, entity=entity)
            self.scope.variables[name] = bound
        elif entity is not None and bound.entity is not entity:
            self.context.report.error(
                "T102",
                f"`${name}` is already bound to '{bound.type_name}' and cannot be '{entity.name}'",
                clause.type_span,
                f"use another variable, or write `{bound.type_name}`",
            )
        return bound

    # -- hops, filters, blocks ------------------------------------------------------------------

    def _hop(self, clause: Hop) -> None:
        checked = HopChecker(self.context, self.scope, clause).check()
        self.written_hops.append(clause)
        if checked is not None:
            self.hops.append(checked)
        else:
            # A reported hop must not also be blamed for what it would have connected.
            self.anchored |= {clause.source.name, clause.target.name}

    def _filter(self, clause: Filter) -> None:
        checker = ConditionChecker(
            self.context,
            lambda expression: filter_operand(self.context, self.scope, expression),
            self._null_operand,
        )
        self._keep_filter(checker.check(clause.predicate))

    def _null_operand(self, expression: Expr) -> Value | None:
        """Accept also a node: a null test says whether an optional block found it."""
        if isinstance(expression, Variable) and expression.name not in self.context.parameters:
            bound = self.scope.variables.get(expression.name)
            if bound is not None and bound.kind == "node":
                return entity_id(bound)
            if bound is not None:
                report_bare_edge(self.context, expression)
                return None
        return filter_operand(self.context, self.scope, expression)

    def _keep_filter(self, predicate: Predicate | None) -> None:
        if predicate is not None:
            self.filters.append(predicate)

    def _optional(self, clause: OptionalBlock) -> None:
        inner = self.scope.inner(self.own_names, is_negated=False)
        self.optionals.append(check_block(self.context, inner, clause.clauses))
        self.scope.adopt_optional(inner)

    def _not(self, clause: NotBlock) -> None:
        visible = self.scope.variables
        inner = self.scope.inner(self.own_names, is_negated=True)
        problems = len(self.context.report.found)
        self.nots.append(check_block(self.context, inner, clause.clauses))
        if len(self.context.report.found) > problems:
            return
        if not any(name in visible for item in clause.clauses for name in self._mentions(item)):
            self.context.report.error(
                "T9",
                "a `not` block must mention a variable that was bound before it",
                clause.span,
                suggestion_of_variables(visible),
            )

    def _mentions(self, clause: Clause) -> Iterator[str]:
        if isinstance(clause, Binding):
            yield clause.variable
        elif isinstance(clause, Hop):
            yield clause.source.name
            yield clause.target.name
        elif isinstance(clause, Filter):
            yield from self._read_by(_operands(clause.predicate))
        elif isinstance(clause, TextCall):
            yield from self._read_by([clause.field])

    def _read_by(self, operands: Iterable[Expr]) -> Iterator[str]:
        for operand in operands:
            if isinstance(operand, PropertyRef):
                yield operand.variable
            elif isinstance(operand, Variable) and operand.name not in self.context.parameters:
                yield operand.name

    # -- components -----------------------------------------------------------------------------

    def check_components(self) -> None:
        """Every part of the pattern needs a variable that is typed here or known from outside."""
        links: list[tuple[str, str]] = []
        names: list[str] = []
        for hop in self.written_hops:
            ends = [end.name for end in (hop.source, hop.target) if end.name != WILDCARD]
            names += ends
            if len(ends) == 2:
                links.append((ends[0], ends[1]))
        parts = connected(names, links)
        anchored = {number for name, number in parts.items() if self._is_anchored(name)}
        for hop in self.written_hops:
            part = parts.get(hop.source.name, parts.get(hop.target.name))
            if part not in anchored:
                self._report_unanchored(hop)
            if part is not None:
                anchored.add(part)

    def _is_anchored(self, name: str) -> bool:
        bound = self.scope.variables.get(name)
        is_unknown = bound is None or bound.entity is None
        return is_unknown or name in self.outer or name in self.anchored

    def _report_unanchored(self, hop: Hop) -> None:
        named = next((e.name for e in (hop.source, hop.target) if e.name != WILDCARD), None)
        bound = self.scope.variables.get(named) if named else None
        self.context.report.error(
            "T103",
            f"no variable connected to `{self.context.report.text(hop.span)}` has a typed binding",
            hop.span,
            f"add `${named}: {bound.type_name}`" if bound else "name an end and bind it to a type",
        )


def suggestion_of_variables(variables: Iterable[str]) -> str | None:
    """Return a hint that lists what a block could mention."""
    shown = ", ".join(f"`${name}`" for name in sorted(variables))
    return f"bound variables: {shown}" if shown else "bind a variable before the block"


def _introduced(clauses: tuple[Clause, ...]) -> frozenset[str]:
    """Return every name that a block uses as a variable, its optional blocks included."""
    found: set[str] = set()
    for clause in clauses:
        if isinstance(clause, Binding):
            found.add(clause.variable)
        elif isinstance(clause, Hop):
            found |= {clause.source.name, clause.target.name}
            if clause.edge_variable is not None:
                found.add(clause.edge_variable.name)
        elif isinstance(clause, OptionalBlock):
            found |= _introduced(clause.clauses)
    return frozenset(found)


def _operands(predicate: WrittenPredicate) -> Iterator[Expr]:
    if isinstance(predicate, Comparison):
        yield predicate.left
        yield predicate.right
    elif isinstance(predicate, NullTest):
        yield predicate.operand
    elif isinstance(predicate, Membership):
        yield predicate.operand
        yield predicate.choices
    elif isinstance(predicate, Negated):
        yield from _operands(predicate.operand)
    elif isinstance(predicate, Both | Either):
        for operand in predicate.operands:
            yield from _operands(operand)
