"""The typed plan of one query: what an executor runs, without the text and without the catalog.

A read plan is a pipeline over a *row table*. The table starts as one row without columns; each
operator widens it, multiplies its rows or drops some. A variable `c` owns the columns `c.id` and
`c.<property>`. Terms:

- *known*: a variable is known to an operator when an earlier one, or the pipeline around, made it.
- *temporary*: `b@1` is the second half of a closed cycle, `_#1` a wildcard, and `m#2` a variable
  of a `not` block whose name also exists outside. No query can spell any of them.

Facts that hold for every plan:

1. Everything is plain, frozen data: types, property names, edge endpoints and directions are
   included, so a plan can be pickled and run elsewhere.
2. Predicates are three-valued: a null operand gives *unknown*, and only *true* keeps a row.
   `IsNull` is the exception: it is never unknown. A null on the left of `InList`, or as the item
   of `ListContains`, gives unknown even when the list is empty.
3. A constant next to a column already has the column's exact type. Where that would change its
   value (2.7 next to an I32 column) it keeps its own type, and the two compare as numbers, without
   rounding. Next to an F32 column it is rounded to F32. Parameters are converted the same way when
   their values arrive: see `omnigraph.query.check.cast`.
4. Dates are days and moments are milliseconds since 1970-01-01 UTC, as in the Arrow columns.
5. Filters over one node variable sit on the operator that introduces it, text predicates included;
   for a ranked variable they apply before the ranking cuts.
"""

from __future__ import annotations

from typing import Final, Literal, Self

from omnigraph.dataclass import dataclass
from omnigraph.query.language.tree import Aggregate, Comparator, TextFunction
from omnigraph.values import PropType, Scalar

Direction = Literal["out", "in", "both"]
"""How an edge is followed from the source of an `Expand`: `out` along, `in` against, or both."""
REVERSED: Final[dict[Direction, Direction]] = {"out": "in", "in": "out", "both": "both"}

Metric = Literal["cosine", "l2", "dot"]
EntityKind = Literal["node", "edge"]
End = Literal["from", "to"]

MIRRORED: Final[dict[Comparator, Comparator]] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
"""The comparison that holds when its two operands are exchanged."""

ConstantValue = str | int | float | bool | tuple["ConstantValue", ...]

ID_TYPE: Final = PropType(Scalar.STRING)
NULLABLE_ID_TYPE: Final = PropType(Scalar.STRING, nullable=True)
DATETIME_TYPE: Final = PropType(Scalar.DATETIME)
SCORE_TYPE: Final = PropType(Scalar.F64)
NULLABLE_SCORE_TYPE: Final = PropType(Scalar.F64, nullable=True)


# -- values -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant:
    """A value known now; lists and vectors are tuples."""

    value: ConstantValue
    prop_type: PropType


@dataclass(frozen=True, slots=True)
class ParameterValue:
    """A value that arrives with the request."""

    name: str
    prop_type: PropType


@dataclass(frozen=True, slots=True)
class CurrentTime:
    """`now()`: one moment for the whole request."""

    prop_type: PropType = DATETIME_TYPE


@dataclass(frozen=True, slots=True)
class PropertyValue:
    """A property of a variable; in a mutation `variable` is empty and means the row itself.

    The type is nullable also when the variable belongs to an optional block.
    """

    variable: str
    property: str
    prop_type: PropType


@dataclass(frozen=True, slots=True)
class EndpointValue:
    """The id at one end of an edge row, in the predicate of a mutation."""

    end: End
    prop_type: PropType = ID_TYPE


@dataclass(frozen=True, slots=True)
class EntityId:
    """The id of a node or edge variable."""

    variable: str
    prop_type: PropType = ID_TYPE


@dataclass(frozen=True, slots=True)
class Score:
    """What a ranking computes for a row: a distance, a relevance, or a fused score.

    When `ranking` is not the ranking of the plan, it is computed for the rows that are there, and
    is null for a row without vector or without a matching token.
    """

    ranking: Ranking
    prop_type: PropType = SCORE_TYPE


@dataclass(frozen=True, slots=True)
class AggregateValue:
    """One aggregate over a group; nulls are skipped, `count` of an id counts rows."""

    function: Aggregate
    argument: Value
    distinct: bool
    prop_type: PropType


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of the result table, as an order key of an aggregate or distinct query."""

    index: int
    header: str
    prop_type: PropType


Value = (
    Constant
    | ParameterValue
    | CurrentTime
    | PropertyValue
    | EndpointValue
    | EntityId
    | Score
    | AggregateValue
    | ResultColumn
)


# -- rankings -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NearestRanking:
    """Distance of a vector property to a vector, or to the embedding of a String; small is best.

    `model` is the embedding model recorded for the property: a String query must use the same.
    """

    variable: str
    property: str
    dimension: int
    metric: Metric
    query: Constant | ParameterValue
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Bm25Ranking:
    """Relevance of a String property; only rows with a matching token are ranked, large is best."""

    variable: str
    property: str
    query: Constant | ParameterValue


@dataclass(frozen=True, slots=True)
class RrfRanking:
    """Reciprocal rank fusion: the sum of `weight / (k + rank + 1)` over the arms; large is best.

    Without weights both are 1. Equal scores keep the order of the first arm, then of the second,
    before other keys apply.
    """

    first: NearestRanking | Bm25Ranking
    second: NearestRanking | Bm25Ranking
    k: Constant | ParameterValue
    weights: tuple[()] | tuple[Constant | ParameterValue, Constant | ParameterValue] = ()

    @property
    def variable(self) -> str:
        """The variable that both arms rank."""
        return self.first.variable


Ranking = NearestRanking | Bm25Ranking | RrfRanking


# -- predicates ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compare:
    """`left operator right` between two single values."""

    left: Value
    operator: Comparator
    right: Value


@dataclass(frozen=True, slots=True)
class ListContains:
    """`item` is an element of `items`.

    Constants that no value of the item's type can equal were left out of `items`.
    """

    items: Value
    item: Value


@dataclass(frozen=True, slots=True)
class Substring:
    """`part` occurs in `text`, byte for byte."""

    text: Value
    part: Value


@dataclass(frozen=True, slots=True)
class Prefix:
    """`text` starts with `prefix`, byte for byte."""

    text: Value
    prefix: Value


@dataclass(frozen=True, slots=True)
class IsNull:
    """Null test; never unknown."""

    operand: Value
    negated: bool


@dataclass(frozen=True, slots=True)
class InList:
    """`operand` equals one of `choices`, which is a list constant or a list parameter.

    Constants that no value of the operand's type can equal were left out.
    """

    operand: Value
    choices: Constant | ParameterValue
    negated: bool


@dataclass(frozen=True, slots=True)
class TextMatch:
    """`search`, `match_text` (a phrase) or `fuzzy`; `edits` is set for `fuzzy` only."""

    function: TextFunction
    field: PropertyValue
    query: Constant | ParameterValue
    edits: Constant | ParameterValue | None


@dataclass(frozen=True, slots=True)
class SameId:
    """Two variables hold the same node: the second half of closing a cycle."""

    left: str
    right: str


@dataclass(frozen=True, slots=True)
class AllOf:
    """Conjunction."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Disjunction."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Negation; unknown stays unknown."""

    operand: Predicate


Predicate = (
    Compare
    | ListContains
    | Substring
    | Prefix
    | IsNull
    | InList
    | TextMatch
    | SameId
    | AllOf
    | AnyOf
    | Not
)


# -- operators ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeScan:
    """All nodes of a type that pass the filters, cross-joined to the rows that exist.

    `properties` are the columns that later operators or the result need besides `id`, sorted; a
    column that only `filters` mention is not among them.
    """

    variable: str
    type_name: str
    filters: tuple[Predicate, ...] = ()
    properties: tuple[str, ...] = ()


class CycleEnd(str):
    """The name of a variable that no query declares: the far end of a hop that closes a cycle.

    >>> CycleEnd.of("b", 1), CycleEnd.of("b", 1).variable
    ('b@1', 'b')
    """

    __slots__ = ()

    @classmethod
    def of(cls, variable: str, number: int) -> Self:
        """Name the temporary that is compared with a variable."""
        return cls(f"{variable}@{number}")

    @property
    def variable(self) -> str:
        """The variable that it is compared with."""
        return self.rpartition("@")[0]


@dataclass(frozen=True, slots=True)
class Expand:
    """Per row, the nodes reached from `source` over `edge` in `min`..`max` hops (breadth first).

    Each node comes once per row; with an `edge_variable` (single hop only) once per edge record.
    `max` is at most 1 for an edge between different types; then `min > 1` reaches nothing. With a
    `max_parameter` it is not known yet: see `omnigraph.query.plan.numbers`.

    Distances are shortest ones, counted from the written source of the hop, and a self-loop may be
    the last step. With `min > 1` it therefore matters which end can have that loop: when
    `is_reversed` it is `source`, because the hop was written from `target` to `source`.
    """

    source: str
    source_type: str
    target: str
    target_type: str
    edge: str
    direction: Direction
    min: int = 1
    max: int = 1
    target_filters: tuple[Predicate, ...] = ()
    properties: tuple[str, ...] = ()
    edge_variable: str | None = None
    edge_properties: tuple[str, ...] = ()
    is_reversed: bool = False
    max_parameter: str | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows for which the predicate is true."""

    predicate: Predicate


@dataclass(frozen=True, slots=True)
class AntiJoin:
    """Drops the rows that the inner pipeline extends to at least one row.

    `outer` lists the variables of the outer rows that the inner pipeline mentions. When
    `is_existence_test`, the inner pipeline is one unfiltered single hop from an outer variable:
    whether any adjacent edge exists decides.
    """

    outer: tuple[str, ...]
    pipeline: tuple[Operator, ...]
    is_existence_test: bool = False


@dataclass(frozen=True, slots=True)
class OptionalMatch:
    """Left outer join: each row with its extensions, or once with nulls when it has none.

    `introduces` lists the variables whose columns are null then.
    """

    outer: tuple[str, ...]
    pipeline: tuple[Operator, ...]
    introduces: tuple[str, ...]


Operator = NodeScan | Expand | Filter | AntiJoin | OptionalMatch


# -- plans --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EnumUse:
    """An enum property that a parameter is compared with."""

    property: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanParameter:
    """A declared parameter, and the enum properties that it is compared with."""

    name: str
    prop_type: PropType
    enums: tuple[EnumUse, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundVariable:
    """A variable that the finished row table holds; `nullable` if an optional block made it."""

    name: str
    kind: EntityKind
    type_name: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the result. Headers may repeat."""

    header: str
    expression: Value

    @property
    def prop_type(self) -> PropType:
        """The type of the column."""
        return self.expression.prop_type


@dataclass(frozen=True, slots=True)
class ObjectColumn:
    """Neighbouring columns of the result that are one object for the reader: `$c.* as crew`.

    `start` and `stop` are positions in `ReadPlan.columns`; the headers of these columns are the
    names of the fields. The object is null where the field at `presence` is, if there is one.
    """

    header: str
    start: int
    stop: int
    presence: int | None = None


@dataclass(frozen=True, slots=True)
class SortKey:
    """A key of the total order; null is the smallest value. `implicit` keys were not written."""

    expression: Value
    descending: bool = False
    implicit: bool = False


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A read.

    After the pipeline: project, group or de-duplicate, sort, skip `offset`, keep `limit`.

    - `ranking` decides before: the scan of its variable, which is the first operator that makes
      rows, keeps the best `candidates` nodes that pass its filters (None = all that have a rank).
      For `RrfRanking` each arm keeps that many and runs the whole pipeline. The ranking is also
      the first order key.
    - `order` is total or empty. In a plain query its keys are values of the row table, ending with
      the ids of all `variables` by name. With `is_aggregate` or `distinct` it sorts the result
      table: the keys are `ResultColumn`s, ending with the grouping keys, or with all columns of a
      distinct result, in return order. Lists compare element by element. It is empty when the
      query has neither `order` nor `limit` nor `offset`: any order will do.
    - `limit` and `offset` are None while a parameter names them (`omnigraph.query.plan.numbers`).
    - `objects` only matter to whoever shows the result: everything above works on single columns.
    """

    name: str
    parameters: tuple[PlanParameter, ...]
    pipeline: tuple[Operator, ...]
    variables: tuple[BoundVariable, ...]
    columns: tuple[OutputColumn, ...]
    ranking: Ranking | None = None
    candidates: int | None = None
    distinct: bool = False
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int | None = None
    limit_parameter: str | None = None
    offset_parameter: str | None = None
    objects: tuple[ObjectColumn, ...] = ()

    @property
    def is_aggregate(self) -> bool:
        """Whether the result has one row per group."""
        return any(isinstance(c.expression, AggregateValue) for c in self.columns)

    @property
    def group_keys(self) -> tuple[int, ...]:
        """Positions of the columns that form the groups of an aggregate query."""
        return tuple(
            index
            for index, column in enumerate(self.columns)
            if not isinstance(column.expression, AggregateValue)
        )


@dataclass(frozen=True, slots=True)
class AssignedValue:
    """A property and its new value.

    What arrives with the request is converted then: losslessly between numeric types, and null is
    an error of the request unless the property is nullable.
    """

    property: str
    prop_type: PropType
    value: Constant | ParameterValue | CurrentTime


@dataclass(frozen=True, slots=True)
class InsertNode:
    """A new row; with a `key` it replaces the whole row of the same id, or must be new.

    `defaults` fill properties that were left out and have one; every other one becomes null.
    `embeds` names vector properties that were left out although required, because their source
    text is given.
    """

    type_name: str
    key: tuple[str, ...]
    assignments: tuple[AssignedValue, ...]
    defaults: tuple[AssignedValue, ...] = ()
    embeds: tuple[str, ...] = ()
    must_be_new: bool = False
    """Whether a row of the same key is an error."""


@dataclass(frozen=True, slots=True)
class UpsertNode:
    """Changes the named properties of the row with this key, or inserts it.

    Inserting needs `required` too, the non-nullable properties that were left out: reaching that
    case is an error of the request.
    """

    type_name: str
    key: tuple[str, ...]
    assignments: tuple[AssignedValue, ...]
    defaults: tuple[AssignedValue, ...] = ()
    embeds: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InsertEdge:
    """A new edge between two node ids; with a `key` it replaces the whole edge of the same id.

    `must_be_new` refuses an id that there is already.
    """

    type_name: str
    from_type: str
    to_type: str
    from_id: Constant | ParameterValue
    to_id: Constant | ParameterValue
    assignments: tuple[AssignedValue, ...]
    defaults: tuple[AssignedValue, ...] = ()
    key: tuple[str, ...] = ()
    must_be_new: bool = False


@dataclass(frozen=True, slots=True)
class UpsertEdge:
    """Changes the named properties of the edge with this key, or inserts it.

    `required` is what it is for `UpsertNode`.
    """

    type_name: str
    from_type: str
    to_type: str
    from_id: Constant | ParameterValue
    to_id: Constant | ParameterValue
    key: tuple[str, ...]
    assignments: tuple[AssignedValue, ...]
    defaults: tuple[AssignedValue, ...] = ()
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateRows:
    """Assigns to every row for which the predicate is true."""

    kind: EntityKind
    type_name: str
    assignments: tuple[AssignedValue, ...]
    where: Predicate


@dataclass(frozen=True, slots=True)
class IncidentEdge:
    """An edge type that loses its edges with a node, and the ends at which that node can be."""

    type_name: str
    ends: tuple[End, ...]


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Deletes every row for which the predicate is true, and the edges at a deleted node."""

    kind: EntityKind
    type_name: str
    where: Predicate
    cascades: tuple[IncidentEdge, ...] = ()


PlannedStatement = InsertNode | UpsertNode | InsertEdge | UpsertEdge | UpdateRows | DeleteRows


@dataclass(frozen=True, slots=True)
class MutationPlan:
    """A mutation: statements that run in order and land as one commit."""

    name: str
    parameters: tuple[PlanParameter, ...]
    statements: tuple[PlannedStatement, ...]

    @property
    def is_strict(self) -> bool:
        """Whether a concurrent commit must fail it, because it depends on what it found."""
        return any(isinstance(s, UpdateRows | DeleteRows) for s in self.statements)


Plan = ReadPlan | MutationPlan
