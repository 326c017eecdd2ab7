"""Types of order keys, the ranking that the first of them may ask for, and the total order."""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.query.check.columns import CheckedColumn, report_rrf_without_limit
from omnigraph.query.check.expr import entity_id, property_of, report_unbound
from omnigraph.query.check.scope import Context, Scope, suggestion
from omnigraph.query.check.search import check_ranking
from omnigraph.query.language.tree import (
    AggregateCall,
    Bm25,
    Expr,
    NameRef,
    Nearest,
    OrderKey,
    PropertyRef,
    ReadBody,
    Rrf,
    TextCall,
    Variable,
)
from omnigraph.query.plan.numbers import candidates_of
from omnigraph.query.plan.plan import (
    SCORE_TYPE,
    AggregateValue,
    NearestRanking,
    Ranking,
    ResultColumn,
    Score,
    SortKey,
    Value,
)
from omnigraph.values import Scalar


@dataclass(frozen=True, slots=True)
class CheckedOrder:
    """The total order of a read and what ranks it."""

    keys: tuple[SortKey, ...]
    ranking: Ranking | None
    candidates: int | None


@dataclass
class OrderChecker:
    """Checks the keys of one read, then completes them to a total order."""

    context: Context
    scope: Scope
    body: ReadBody
    columns: tuple[CheckedColumn, ...]

    @property
    def _sorts_result(self) -> bool:
        written = (column.expression for column in self.body.columns)
        return self.body.distinct or any(isinstance(e, AggregateCall) for e in written)

    def check(self) -> CheckedOrder:
        """Return the total order; incomplete after a reported problem."""
        keys: list[SortKey] = []
        ranking: Ranking | None = None
        for position, written in enumerate(self.body.order):
            key = self._key(written, position)
            if key is None:
                continue
            score = self._score_behind(key) if position == 0 else None
            if score is not None:
                ranking = score.ranking
                key = self._ranking_key(written, key, ranking)
            keys.append(key)
        self._check_alias_beside_nearest(ranking)
        is_ordered = bool(self.body.order) or self._is_cut
        order = (*keys, *self._implicit_keys(keys)) if is_ordered else ()
        return CheckedOrder(order, ranking, self._candidates(ranking))

    @property
    def _is_cut(self) -> bool:
        return self.body.limit is not None or self.body.offset is not None

    # -- one key --------------------------------------------------------------------------------

    def _key(self, written: OrderKey, position: int) -> SortKey | None:
        expression = written.expression
        descending = written.descending is True
        if isinstance(expression, NameRef):
            value = self._named_column(expression)
        elif isinstance(expression, PropertyRef):
            value = self._property(expression)
        elif isinstance(expression, Nearest | Bm25 | Rrf):
            value = self._search_function(expression, position)
        else:
            self._report_no_key(expression)
            return None
        if value is None or not self._is_sortable(expression, value):
            return None
        return SortKey(value, descending)

    def _named_column(self, name: NameRef) -> Value | None:
        """Find a column by its header; of several with the same, the last wins, as in JSON rows."""
        for index in range(len(self.columns) - 1, -1, -1):
            column = self.columns[index]
            if column.object is None and column.header == name.name:
                return self._column_key(index, column)
            if column.object == name.name:
                self._report_object(name)
                return None
        headers = [c.header for c in self.columns if "." not in c.header and c.object is None]
        self.context.report.error(
            "T106",
            f"no returned column is called '{name.name}'",
            name.span,
            suggestion(name.name, headers, what="columns")
            or f"order by a property, or return one `as {name.name}`",
        )
        return None

    def _column_key(self, index: int, column: CheckedColumn) -> Value | None:
        if self._sorts_result and column.value is not None:
            return ResultColumn(index, column.header, column.value.prop_type)
        return column.value

    def _property(self, reference: PropertyRef) -> Value | None:
        value = property_of(self.context, self.scope, reference)
        if value is None or not self._sorts_result:
            return value
        for index, column in enumerate(self.columns):
            is_alone = column.written.alias is None and column.object is None
            if column.value == value and is_alone:
                return self._column_key(index, column)
        alone = (c for c in self.columns if c.object is None)
        alias = next((c.header for c in alone if c.value == value), None)
        self._report_not_returned(reference, alias)
        return None

    def _search_function(self, call: Nearest | Bm25 | Rrf, position: int) -> Value | None:
        ranking = check_ranking(self.context, self.scope, call)
        if position > 0:
            self.context.report.error(
                "T113",
                "only the first order key can be a search function",
                call.span,
                "put it first, or return the score `as score` and order by `score`",
            )
            return None
        if isinstance(call, Rrf) and self.body.limit is None:
            report_rrf_without_limit(self.context, call)
            return None
        if self._sorts_result:
            alias = next(
                (c.header for c in self.columns if _score_of(c) == ranking is not None), None
            )
            self._report_not_returned(call, alias)
            return None
        return None if ranking is None else Score(ranking)

    def _is_sortable(self, expression: Expr, value: Value) -> bool:
        prop_type = value.prop_type
        if prop_type.scalar is Scalar.BLOB:
            self._report_blob(expression)
            return False
        if not prop_type.is_plain_scalar:
            self.context.report.error(
                "T112",
                f"`{self.context.report.text(expression.span)}` is {prop_type} and has no order",
                expression.span,
                "order by a single value",
            )
            return False
        return True

    # -- rankings -------------------------------------------------------------------------------

    def _score_behind(self, key: SortKey) -> Score | None:
        """Return the score that a key stands for, also through a column of the result."""
        value: Value | None = key.expression
        if isinstance(value, ResultColumn):
            value = self.columns[value.index].value
        return value if isinstance(value, Score) else None

    def _ranking_key(self, written: OrderKey, key: SortKey, ranking: Ranking) -> SortKey:
        is_distance = isinstance(ranking, NearestRanking)
        if is_distance and self.body.limit is None:
            self.context.report.error(
                "T17", "ordering by `nearest` needs a limit", written.span, "add `limit 10`"
            )
        if is_distance and written.descending:
            self.context.report.error(
                "T116",
                "`nearest` orders by distance, closest first, and cannot be reversed",
                written.span,
                "leave `desc` out",
            )
        self._check_ranked_variable(written, ranking)
        if isinstance(key.expression, ResultColumn):
            return SortKey(key.expression, not is_distance)
        return SortKey(Score(ranking, SCORE_TYPE), not is_distance)

    def _check_ranked_variable(self, written: OrderKey, ranking: Ranking) -> None:
        for name, bound in self.scope.variables.items():
            if bound.name == ranking.variable and bound.nullable:
                self.context.report.error(
                    "T116",
                    f"`${name}` comes from an `optional` block and cannot be ranked",
                    written.span,
                    "bind it outside of the block",
                )

    def _check_alias_beside_nearest(self, ranking: Ranking | None) -> None:
        if not isinstance(ranking, NearestRanking):
            return
        for written in self.body.order[1:]:
            if isinstance(written.expression, NameRef):
                self.context.report.error(
                    "T18",
                    f"`{written.expression.name}` cannot be an order key beside `nearest`",
                    written.span,
                    "break ties by a property",
                )

    def _candidates(self, ranking: Ranking | None) -> int | None:
        """Return how many nodes are ranked; with a parameter that is known with the request."""
        limit, offset = self.body.limit, self.body.offset
        if isinstance(limit, Variable) or isinstance(offset, Variable):
            return None
        return candidates_of(ranking, limit, offset)

    # -- total order ----------------------------------------------------------------------------

    def _implicit_keys(self, keys: list[SortKey]) -> list[SortKey]:
        used = {key.expression for key in keys}
        if not self._sorts_result:
            ids = [
                entity_id(bound)
                for _, bound in sorted(self.scope.variables.items())
                if bound.entity is not None
            ]
            return [SortKey(value, implicit=True) for value in ids if value not in used]
        columns = [
            self._column_key(index, column)
            for index, column in enumerate(self.columns)
            if not isinstance(column.value, AggregateValue)
        ]
        return [SortKey(v, implicit=True) for v in columns if v is not None and v not in used]

    # -- messages -------------------------------------------------------------------------------

    def _report_not_returned(self, expression: Expr, alias: str | None) -> None:
        written = self.context.report.text(expression.span)
        kind = "a distinct" if self.body.distinct else "an aggregate"
        hint = f"order by `{alias}`" if alias else f"return `{written} as name`, order by `name`"
        self.context.report.error(
            "T111",
            f"{kind} query orders its result, and `{written}` is not a column of it",
            expression.span,
            hint,
        )

    def _report_blob(self, expression: Expr) -> None:
        written = self.context.report.text(expression.span)
        message = f"`{written}` is a Blob and cannot be ordered by"
        self.context.report.error("T24", message, expression.span)

    def _report_object(self, name: NameRef) -> None:
        message = f"`{name.name}` is an object and has no order"
        self.context.report.error("T112", message, name.span, "order by one of its properties")

    def _report_no_key(self, expression: Expr) -> None:
        written = self.context.report.text(expression.span)
        if isinstance(expression, TextCall):
            self.context.report.error(
                "T114",
                f"`{expression.function}` is a condition and cannot be returned or ordered by",
                expression.span,
                "write it as a clause of the match, and order by `bm25`",
            )
            return
        if isinstance(expression, Variable):
            names = {*self.context.parameters, *self.scope.variables}
            if expression.name not in names:
                report_unbound(self.context, self.scope, expression)
                return
            parameter = self.context.parameters.get(expression.name)
            if parameter is not None and parameter.prop_type.scalar is Scalar.BLOB:
                self._report_blob(expression)
                return
        self.context.report.error(
            "T112",
            f"`{written}` cannot be an order key",
            expression.span,
            "order by a property, or by the name of a returned column",
        )


def _score_of(column: CheckedColumn) -> Ranking | None:
    return column.value.ranking if isinstance(column.value, Score) else None
