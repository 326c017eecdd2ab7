"""Types of a hop: which edge, in which direction, and what its ends are."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.query.check.expr import number_parameter
from omnigraph.query.check.scope import WILDCARD, Bound, Context, Scope, suggestion
from omnigraph.query.language.tree import Hop, Variable
from omnigraph.query.plan.plan import Direction, Expand
from omnigraph.schema.catalog import EdgeType
from omnigraph.syntax import Span


@dataclass
class HopChecker:
    """Checks one hop and introduces the variables that it is the first to mention.

    Direction: a known source decides by its type, else a known target, else the hop runs along the
    edge. On an edge between equal types it therefore always runs as written.
    """

    context: Context
    scope: Scope
    hop: Hop

    def check(self) -> Expand | None:
        """Return the resolved hop, or None after a problem was reported."""
        bounds = self._bounds()
        edge = self._edge()
        ends_fit = self._end_is_node(self.hop.source) and self._end_is_node(self.hop.target)
        if edge is None or not ends_fit:
            self._introduce_unknown()
            self._edge_variable(None)
            return None
        resolved = self._resolve(edge)
        if resolved is None:
            self._introduce_unknown()
            self._edge_variable(edge)
            return None
        direction, source_type, target_type = resolved
        source = self._end(self.hop.source, source_type)
        target = self._end(self.hop.target, target_type)
        edge_variable = self._edge_variable(edge)
        if bounds is None:
            return None
        return Expand(
            source=source,
            source_type=source_type,
            target=target,
            target_type=target_type,
            edge=edge.name,
            direction=direction,
            min=bounds[0],
            max=bounds[1] if isinstance(bounds[1], int) else bounds[0],
            edge_variable=edge_variable,
            max_parameter=bounds[1] if isinstance(bounds[1], str) else None,
        )

    def _edge(self) -> EdgeType | None:
        catalog = self.context.catalog
        edge = catalog.lookup_edge(self.hop.edge)
        if edge is None:
            self.context.report.error(
                "T4",
                f"unknown edge '{self.hop.edge}'",
                self.hop.edge_span,
                suggestion(
                    self.hop.edge,
                    (name[:1].lower() + name[1:] for name in catalog.edge_types),
                    what="edges",
                ),
            )
        return edge

    # -- bounds ---------------------------------------------------------------------------------

    def _bounds(self) -> tuple[int, int | str] | None:
        """Return the bounds; the upper one may be the name of a parameter (T15, T117)."""
        if self.hop.bounds is None:
            return 1, 1
        low, high = self.hop.bounds
        if low < 1:
            problem, hint = "a hop takes at least one step", "the smallest bound is 1"
        elif high is None:
            problem, hint = "a hop needs an upper bound", f"write `{{{low},{low + 2}}}`"
        elif isinstance(high, Variable):
            name = number_parameter(self.context, high, "the bound of a hop")
            return None if name is None else (low, name)
        elif high < low:
            problem, hint = f"the upper bound {high} is below the lower bound {low}", "swap them"
        else:
            return low, high
        self.context.report.error("T15", problem, self._bounds_span(), hint)
        return None

    def _bounds_span(self) -> Span:
        text = self.context.report.source.text
        between = self.hop.edge_span.end, self.hop.target.span.start
        start, end = text.find("{", *between), text.rfind("}", *between)
        return Span(start, end + 1) if 0 <= start < end else self.hop.span

    # -- ends -----------------------------------------------------------------------------------

    def _end_is_node(self, end: Variable) -> bool:
        bound = self.scope.variables.get(end.name)
        if bound is None:
            return True
        if bound.kind == "edge":
            self.context.report.error(
                "T23",
                f"edge variable `${end.name}` cannot be an endpoint",
                end.span,
                "an endpoint is a node: give it another name",
            )
            return False
        if bound.optional_level == self.scope.level:
            report_optional(self.context, end)
            return False
        return True

    def _known(self, end: Variable) -> Bound | None:
        bound = self.scope.variables.get(end.name)
        return bound if bound is not None and bound.entity is not None else None

    def _introduce_unknown(self) -> None:
        for end in (self.hop.source, self.hop.target):
            if end.name != WILDCARD and end.name not in self.scope.variables:
                self.scope.introduce(end.name, "node", None)

    def _end(self, end: Variable, type_name: str) -> str:
        if end.name == WILDCARD:
            return self.scope.unique_name(WILDCARD)
        bound = self.scope.variables.get(end.name)
        if bound is None:
            entity = self.context.catalog.node_types.get(type_name)
            bound = self.scope.introduce(end.name, "node", entity)
        return bound.name

    # -- direction ------------------------------------------------------------------------------

    def _resolve(self, edge: EdgeType) -> tuple[Direction, str, str] | None:
        """Return the direction and the types of source and target (T5, T22)."""
        if self.hop.undirected and edge.from_type != edge.to_type:
            self.context.report.error(
                "T22",
                f"edge '{edge.name}' goes from {edge.from_type} to {edge.to_type} and cannot be "
                "followed undirected",
                self.hop.edge_span,
                f"write `{self.hop.edge}` without the angle brackets",
            )
            return None
        source, target = self._known(self.hop.source), self._known(self.hop.target)
        forward = edge.from_type, edge.to_type
        backward = edge.to_type, edge.from_type
        if source is not None:
            ends = self._matching(edge, self.hop.source, source, 0)
        elif target is not None:
            ends = self._matching(edge, self.hop.target, target, 1)
        else:
            ends = forward
        if ends is None:
            return None
        if source is not None and target is not None and target.type_name != ends[1]:
            self._report_end(edge, self.hop.target, str(target.type_name), ends[1])
            return None
        if self.hop.source.name == self.hop.target.name != WILDCARD and ends[0] != ends[1]:
            self._report_end(edge, self.hop.target, ends[0], ends[1])
            return None
        if self.hop.undirected:
            return "both", *ends
        return "in" if ends == backward != forward else "out", *ends

    def _matching(
        self, edge: EdgeType, end: Variable, bound: Bound, position: int
    ) -> tuple[str, str] | None:
        """Return the types of both ends that give `end` its own type, along the edge first."""
        for ends in ((edge.from_type, edge.to_type), (edge.to_type, edge.from_type)):
            if ends[position] == bound.type_name:
                return ends
        self._report_end(edge, end, str(bound.type_name), None)
        return None

    def _report_end(self, edge: EdgeType, end: Variable, found: str, wanted: str | None) -> None:
        expected = f", not {wanted}" if wanted else ""
        self.context.report.error(
            "T5",
            f"edge '{edge.name}' goes from {edge.from_type} to {edge.to_type}, and "
            f"`${end.name}` is {found}{expected}",
            end.span,
            self._edges_of(found),
        )

    def _edges_of(self, type_name: str) -> str | None:
        edges = [
            f"`{name[:1].lower()}{name[1:]}`"
            for name, edge in self.context.catalog.edge_types.items()
            if type_name in (edge.from_type, edge.to_type)
        ]
        return f"edges of {type_name}: {', '.join(edges)}" if edges else None

    # -- edge variable --------------------------------------------------------------------------

    def _edge_variable(self, edge: EdgeType | None) -> str | None:
        """Introduce the edge variable (T23); `edge` is None when it is not known."""
        variable = self.hop.edge_variable
        if variable is None or variable.name == WILDCARD:
            return None
        if variable.name in (self.hop.source.name, self.hop.target.name):
            problem = f"edge variable `${variable.name}` is also an endpoint of the hop"
        elif variable.name in self.scope.variables:
            problem = f"`${variable.name}` is already used and cannot name the edge"
        else:
            if self.hop.bounds is not None:
                self._report_variable(variable, "an edge variable needs a hop without bounds")
            return self.scope.introduce(variable.name, "edge", edge).name
        self._report_variable(variable, problem)
        return None

    def _report_variable(self, variable: Variable, problem: str) -> None:
        self.context.report.error("T23", problem, variable.span)


def report_optional(context: Context, variable: Variable) -> None:
    """Report that a pattern goes on outside from a variable that may be missing (T110)."""
    context.report.error(
        "T110",
        f"`${variable.name}` comes from an `optional` block and cannot be extended outside of it",
        variable.span,
        "move the clause into the block, or into another `optional { … }`",
    )
