"""Types of mutations: what is assigned, what is required, which rows are meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph.dataclass import dataclass
from omnigraph.query.check.assignment import assigned_value, default_value
from omnigraph.query.check.cast import are_compatible
from omnigraph.query.check.expr import constant_of, required_parameter
from omnigraph.query.check.predicate import ConditionChecker
from omnigraph.query.check.scope import Context, suggestion
from omnigraph.query.language.tree import (
    Assignment,
    Create,
    Delete,
    Expr,
    Insert,
    Literal,
    NameRef,
    Now,
    Statement,
    Update,
    Upsert,
    Variable,
)
from omnigraph.query.language.tree import (
    Predicate as WrittenPredicate,
)
from omnigraph.query.plan.plan import (
    AssignedValue,
    Constant,
    CurrentTime,
    DeleteRows,
    End,
    EndpointValue,
    EntityKind,
    IncidentEdge,
    InsertEdge,
    InsertNode,
    ParameterValue,
    PlannedStatement,
    Predicate,
    PropertyValue,
    UpdateRows,
    UpsertEdge,
    UpsertNode,
    Value,
)
from omnigraph.schema.catalog import EdgeType, EntityType, NodeType
from omnigraph.syntax import Span
from omnigraph.values import PropType, Scalar

ENDS: tuple[End, ...] = ("from", "to")
_END_NAMES: Mapping[str, End] = {"src": "from", "dst": "to"}
_ID = PropType(Scalar.STRING)


def check_statement(context: Context, statement: Statement) -> PlannedStatement | None:
    """Return what a statement does, or None after its problems were reported."""
    entity = _target(context, statement)
    if entity is None:
        return None
    checker = _StatementChecker(context, entity)
    if isinstance(statement, Insert | Create):
        return checker.insert(statement)
    if isinstance(statement, Upsert):
        return checker.upsert(statement)
    if isinstance(statement, Update):
        return checker.update(statement)
    return checker.delete(statement)


def _target(context: Context, statement: Statement) -> EntityType | None:
    """Find the type by its declared name, nodes first (T10)."""
    catalog, name = context.catalog, statement.type_name
    entity = catalog.node_types.get(name) or catalog.edge_types.get(name)
    if entity is None:
        hint = suggestion(name, (*catalog.node_types, *catalog.edge_types), what="types")
        if name in catalog.interfaces:
            hint = "an interface has no rows: name a node type that implements it"
        context.report.error("T10", f"unknown type '{name}'", statement.type_span, hint)
    return entity


@dataclass(frozen=True)
class _StatementChecker:
    context: Context
    entity: EntityType

    @property
    def kind(self) -> EntityKind:
        return "node" if isinstance(self.entity, NodeType) else "edge"

    # -- statements -----------------------------------------------------------------------------

    def insert(self, statement: Insert | Create) -> InsertNode | InsertEdge | None:
        problems = len(self.context.report.found)
        given = self._assignments(statement.assignments, ends_allowed=True)
        names = {assignment.name for assignment in statement.assignments}
        ends = self._ends(statement)
        embeds = self._embeddable(names)
        self._check_required(statement, names, embeds)
        if len(self.context.report.found) > problems:
            return None
        defaults = self._defaults(names)
        if isinstance(self.entity, NodeType):
            return InsertNode(
                type_name=self.entity.name,
                key=self.entity.key,
                assignments=given,
                defaults=defaults,
                embeds=embeds,
                must_be_new=isinstance(statement, Create) and bool(self.entity.key),
            )
        return InsertEdge(
            type_name=self.entity.name,
            from_type=self.entity.from_type,
            to_type=self.entity.to_type,
            from_id=ends["from"],
            to_id=ends["to"],
            assignments=given,
            defaults=defaults,
            key=self.entity.key,
            must_be_new=isinstance(statement, Create) and bool(self.entity.key),
        )

    def upsert(self, statement: Upsert) -> UpsertNode | UpsertEdge | None:
        if not self.entity.key:
            self.context.report.error(
                "T108",
                f"`upsert` finds a row by its key, and {self.kind} type '{self.entity.name}' "
                "has none",
                statement.type_span,
                "use `insert`, or `update … where …`",
            )
            return None
        problems = len(self.context.report.found)
        given = self._assignments(statement.assignments, ends_allowed=True)
        names = {assignment.name for assignment in statement.assignments}
        ends = self._ends(statement)
        written = (_END_NAMES.get(member, member) for member in self.entity.key)
        missing = [member for member in written if member not in names]
        if missing:
            self._report_missing(statement, missing, "members of the key")
        if len(self.context.report.found) > problems:
            return None
        embeds = self._embeddable(names)
        if isinstance(self.entity, EdgeType):
            return UpsertEdge(
                type_name=self.entity.name,
                from_type=self.entity.from_type,
                to_type=self.entity.to_type,
                from_id=ends["from"],
                to_id=ends["to"],
                key=self.entity.key,
                assignments=given,
                defaults=self._defaults(names),
                required=tuple(self._missing(names, embeds)),
            )
        return UpsertNode(
            type_name=self.entity.name,
            key=self.entity.key,
            assignments=given,
            defaults=self._defaults(names),
            embeds=embeds,
            required=tuple(self._missing(names, embeds)),
        )

    def update(self, statement: Update) -> UpdateRows | None:
        self._check_immutable(statement.assignments)
        given = self._assignments(statement.assignments, ends_allowed=False)
        where = self._where(statement.where)
        if where is None:
            return None
        return UpdateRows(self.kind, self.entity.name, given, where)

    def delete(self, statement: Delete) -> DeleteRows | None:
        where = self._where(statement.where)
        if where is None:
            return None
        cascades = self._cascades() if self.kind == "node" else ()
        return DeleteRows(self.kind, self.entity.name, where, cascades)

    def _cascades(self) -> tuple[IncidentEdge, ...]:
        found: list[IncidentEdge] = []
        for name, edge in sorted(self.context.catalog.edge_types.items()):
            types: dict[End, str] = {"from": edge.from_type, "to": edge.to_type}
            ends = tuple(end for end in ENDS if types[end] == self.entity.name)
            if ends:
                found.append(IncidentEdge(name, ends))
        return tuple(found)

    # -- assignments ----------------------------------------------------------------------------

    def _is_end(self, name: str) -> bool:
        return self.kind == "edge" and name in ENDS

    def _assignments(
        self, assignments: tuple[Assignment, ...], *, ends_allowed: bool
    ) -> tuple[AssignedValue, ...]:
        seen: set[str] = set()
        found: list[AssignedValue] = []
        for assignment in assignments:
            if assignment.name in seen:
                self.context.report.error(
                    "T13",
                    f"property '{assignment.name}' is assigned twice",
                    _name_span(assignment),
                    "keep one of the two",
                )
            seen.add(assignment.name)
            if self._is_end(assignment.name):
                continue
            value = self._assigned(assignment, ends_allowed)
            if value is not None:
                found.append(value)
        return tuple(found)

    def _assigned(self, assignment: Assignment, ends_allowed: bool) -> AssignedValue | None:
        declared = self.entity.properties.get(assignment.name)
        if declared is None:
            self._report_unknown(assignment.name, _name_span(assignment), with_ends=ends_allowed)
            return None
        return assigned_value(self.context, declared, assignment)

    def _check_immutable(self, assignments: tuple[Assignment, ...]) -> None:
        for assignment in assignments:
            if assignment.name in self.entity.key:
                self.context.report.error(
                    "T107",
                    f"cannot update @key property '{assignment.name}' of '{self.entity.name}'",
                    _name_span(assignment),
                    f"delete the {self.kind} and insert it again",
                )
            elif self._is_end(assignment.name):
                self.context.report.error(
                    "T16",
                    f"cannot update the endpoint '{assignment.name}' of edge '{self.entity.name}'",
                    _name_span(assignment),
                    "delete the edge and insert it again",
                )

    # -- what must be there ---------------------------------------------------------------------

    def _embeddable(self, names: set[str]) -> tuple[str, ...]:
        if not isinstance(self.entity, NodeType):
            return ()
        return tuple(
            target
            for target, embed in sorted(self.entity.embed_sources.items())
            if target not in names
            and embed.source in names
            and not self.entity.properties[target].prop_type.nullable
        )

    def _missing(self, names: set[str], embeds: tuple[str, ...]) -> list[str]:
        missing = [
            name
            for name, declared in self.entity.properties.items()
            if name not in names
            and name not in embeds
            and not declared.prop_type.nullable
            and declared.default is None
        ]
        if not isinstance(self.entity, NodeType):
            return missing
        # With its source given, an embedding is no longer missing: asking for one is enough.
        sources = {name: embed.source for name, embed in self.entity.embed_sources.items()}
        return [name for name in missing if sources.get(name) not in missing]

    def _check_required(
        self, statement: Insert | Create, names: set[str], embeds: tuple[str, ...]
    ) -> None:
        missing = self._missing(names, embeds)
        if self.kind == "edge":
            missing = [end for end in ENDS if end not in names] + missing
        if missing:
            self._report_missing(statement, missing, "required properties")

    def _report_missing(
        self, statement: Insert | Create | Upsert, missing: list[str], what: str
    ) -> None:
        shown = ", ".join(f"'{name}'" for name in missing)
        self.context.report.error(
            "T12",
            f"'{self.entity.name}' lacks {what}: {shown}",
            statement.type_span,
            "add " + ", ".join(f"`{name}: …`" for name in missing),
        )

    def _defaults(self, names: set[str]) -> tuple[AssignedValue, ...]:
        found = (
            default_value(declared)
            for name, declared in self.entity.properties.items()
            if name not in names
        )
        return tuple(value for value in found if value is not None)

    def _ends(self, statement: Insert | Create | Upsert) -> dict[End, Constant | ParameterValue]:
        found: dict[End, Constant | ParameterValue] = {}
        for assignment in statement.assignments:
            for end in ENDS if self.kind == "edge" else ():
                if assignment.name == end:
                    value = self._end_id(assignment)
                    if value is not None:
                        found[end] = value
        return found

    def _end_id(self, assignment: Assignment) -> Constant | ParameterValue | None:
        written = assignment.value
        value: Constant | ParameterValue | None
        if isinstance(written, Literal):
            value, code = constant_of(self.context, written), "T3"
        elif isinstance(written, Variable):
            value, code = required_parameter(self.context, written), "T7"
        else:
            value, code = None, "T7"
            self._report_end(code, assignment)
        if value is None:
            return None
        if not are_compatible(value.prop_type, _ID):
            self._report_end(code, assignment)
            return None
        return value

    def _report_end(self, code: str, assignment: Assignment) -> None:
        self.context.report.error(
            code,
            f"'{assignment.name}' takes the id of a node, a String, not "
            f"`{self.context.report.text(assignment.value.span)}`",
            assignment.value.span,
        )

    # -- predicates -----------------------------------------------------------------------------

    def _where(self, written: WrittenPredicate) -> Predicate | None:
        return ConditionChecker(self.context, self._operand, self._operand).check(written)

    def _operand(self, expression: Expr) -> Value | None:
        if isinstance(expression, NameRef):
            return self._row_property(expression)
        if isinstance(expression, Literal):
            return constant_of(self.context, expression)
        if isinstance(expression, Variable):
            return required_parameter(self.context, expression)
        if isinstance(expression, Now):
            return CurrentTime()
        self.context.report.error(
            "T7",
            f"`{self.context.report.text(expression.span)}` cannot be used in a mutation",
            expression.span,
            "compare a property of the row, by its name alone",
        )
        return None

    def _row_property(self, name: NameRef) -> Value | None:
        for end in ENDS:
            if name.name == end and self.kind == "edge":
                return EndpointValue(end)
        declared = self.entity.properties.get(name.name)
        if declared is None:
            self._report_unknown(name.name, name.span, with_ends=True)
            return None
        if declared.prop_type.scalar is Scalar.BLOB:
            self.context.report.error(
                "T11", f"Blob property '{name.name}' cannot be used in a predicate", name.span
            )
            return None
        return PropertyValue("", name.name, declared.prop_type)

    def _report_unknown(self, name: str, span: Span, *, with_ends: bool) -> None:
        known: Iterable[str] = self.entity.properties
        if with_ends and self.kind == "edge":
            known = (*known, *ENDS)
        self.context.report.error(
            "T11",
            f"{self.kind} type '{self.entity.name}' has no property '{name}'",
            span,
            suggestion(name, known, what=f"properties of {self.entity.name}"),
        )


def _name_span(assignment: Assignment) -> Span:
    return Span(assignment.span.start, assignment.span.start + len(assignment.name))
