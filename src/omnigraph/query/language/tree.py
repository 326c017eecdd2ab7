"""The tree of a `.gq` text: what was written, in the order in which it was written."""

from __future__ import annotations

from typing import Literal as OneOf

from omnigraph.dataclass import dataclass
from omnigraph.syntax import SourceText, Span
from omnigraph.values import PropType

Comparator = OneOf["=", "!=", "<", "<=", ">", ">="]
StringOperator = OneOf["contains", "starts_with"]
Aggregate = OneOf["count", "sum", "avg", "min", "max"]
TextFunction = OneOf["search", "match_text", "fuzzy"]
LiteralKind = OneOf["string", "int", "float", "bool", "date", "datetime", "list"]


# -- expressions --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Literal:
    """A constant. `value` is str, int, float, bool, or for a list a tuple of literals.

    `date("…")` and `datetime("…")` keep their text; the type check converts it.
    """

    kind: LiteralKind
    value: str | int | float | bool | tuple[Literal, ...]
    span: Span


@dataclass(frozen=True)
class Variable:
    """`$name`: a parameter, a node, or the wildcard `$_`. `name` has no dollar sign."""

    name: str
    span: Span


@dataclass(frozen=True)
class PropertyRef:
    """`$variable.property`."""

    variable: str
    property: str
    span: Span


@dataclass(frozen=True)
class NameRef:
    """A bare name: the alias or header of a returned column; in a mutation a property."""

    name: str
    span: Span


@dataclass(frozen=True)
class Now:
    """`now()`: one moment per request."""

    span: Span


@dataclass(frozen=True)
class Nearest:
    """`nearest($v.vector, query)`: distance to a vector."""

    target: PropertyRef
    query: Expr
    span: Span


@dataclass(frozen=True)
class TextCall:
    """`search(f, q)`, `match_text(f, q)`, `fuzzy(f, q, edits)`."""

    function: TextFunction
    field: Expr
    query: Expr
    edits: Expr | None
    span: Span


@dataclass(frozen=True)
class Bm25:
    """`bm25(f, q)`: relevance score."""

    field: Expr
    query: Expr
    span: Span


@dataclass(frozen=True)
class Rrf:
    """`rrf(a, b, k, wa, wb)`: rank fusion. The arms are checked later: any expression fits."""

    first: Expr
    second: Expr
    k: Expr | None
    weights: tuple[Expr, Expr] | None
    span: Span


@dataclass(frozen=True)
class AllRows:
    """The `*` of `count(*)`: every row, whatever it holds."""

    span: Span


@dataclass(frozen=True)
class AllProperties:
    """`$variable.*` as a returned column: every property that is neither vector nor Blob."""

    variable: str
    span: Span


@dataclass(frozen=True)
class AggregateCall:
    """`count(x)`, `sum(x)`, `avg(x)`, `min(x)`, `max(x)`, `count(distinct x)` or `count(*)`."""

    function: Aggregate
    argument: Expr | AllRows
    distinct: bool
    span: Span


Expr = (
    Literal
    | Variable
    | PropertyRef
    | NameRef
    | Now
    | Nearest
    | TextCall
    | Bm25
    | Rrf
    | AggregateCall
)


# -- predicates ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """`left cmp right`, `left contains right`, `left starts_with right`."""

    left: Expr
    operator: Comparator | StringOperator
    right: Expr
    span: Span


@dataclass(frozen=True)
class NullTest:
    """`x is null`, `x is not null`."""

    operand: Expr
    negated: bool
    span: Span


@dataclass(frozen=True)
class Membership:
    """`x in [ … ]`, `x in $list`, `x not in …`."""

    operand: Expr
    choices: Expr
    negated: bool
    span: Span


@dataclass(frozen=True)
class Both:
    """`a and b and …`: at least two operands."""

    operands: tuple[Predicate, ...]
    span: Span


@dataclass(frozen=True)
class Either:
    """`a or b or …`: at least two operands."""

    operands: tuple[Predicate, ...]
    span: Span


@dataclass(frozen=True)
class Negated:
    """`not ( … )`."""

    operand: Predicate
    span: Span


Predicate = Comparison | NullTest | Membership | Both | Either | Negated


# -- match clauses ------------------------------------------------------------------------------


@dataclass(frozen=True)
class InlineProperty:
    """`name: value` inside a binding: equality, or membership for a list property."""

    name: str
    value: Literal | Variable | Now
    span: Span


@dataclass(frozen=True)
class Binding:
    """`$variable: Type { … }`."""

    variable: str
    type_name: str
    properties: tuple[InlineProperty, ...]
    span: Span
    type_span: Span


@dataclass(frozen=True)
class Hop:
    """`$source $edge_variable:edge{min,max} $target`; `undirected` for `<edge>`.

    `bounds` is None without braces; an open upper bound is a None maximum. The maximum may be a
    parameter.
    """

    source: Variable
    edge_variable: Variable | None
    edge: str
    edge_span: Span
    undirected: bool
    bounds: tuple[int, int | Variable | None] | None
    target: Variable
    span: Span


@dataclass(frozen=True)
class Filter:
    """A predicate as a clause of its own; clauses are conjoined."""

    predicate: Predicate
    span: Span


@dataclass(frozen=True)
class NotBlock:
    """`not { … }`: no solution of the block extends the row."""

    clauses: tuple[Clause, ...]
    span: Span


@dataclass(frozen=True)
class OptionalBlock:
    """`optional { … }`: the block's variables are null where it has no solution."""

    clauses: tuple[Clause, ...]
    span: Span


Clause = Binding | Hop | Filter | TextCall | NotBlock | OptionalBlock


# -- bodies -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """One returned column; `AllProperties` without an alias stands for several."""

    expression: Expr | AllProperties
    alias: str | None
    span: Span


@dataclass(frozen=True)
class OrderKey:
    """One key of `order`; `descending` is None where no direction was written."""

    expression: Expr
    descending: bool | None
    span: Span


@dataclass(frozen=True)
class ReadBody:
    """`match { … } return { … } order { … } limit n offset m`; the numbers may be parameters."""

    clauses: tuple[Clause, ...]
    columns: tuple[Column, ...]
    distinct: bool
    order: tuple[OrderKey, ...]
    limit: int | Variable | None
    offset: int | Variable | None


@dataclass(frozen=True)
class Assignment:
    """`name: value` of a mutation."""

    name: str
    value: Literal | Variable | Now
    span: Span


@dataclass(frozen=True)
class Insert:
    """`insert Type { … }`: with a key, replaces the whole row."""

    type_name: str
    assignments: tuple[Assignment, ...]
    span: Span
    type_span: Span


@dataclass(frozen=True)
class Create:
    """`create Type { … }`: as `insert`, but a row of the same key is an error."""

    type_name: str
    assignments: tuple[Assignment, ...]
    span: Span
    type_span: Span


@dataclass(frozen=True)
class Upsert:
    """`upsert Type { … }`: changes only the named properties of an existing row."""

    type_name: str
    assignments: tuple[Assignment, ...]
    span: Span
    type_span: Span


@dataclass(frozen=True)
class Update:
    """`update Type set { … } where …`."""

    type_name: str
    assignments: tuple[Assignment, ...]
    where: Predicate
    span: Span
    type_span: Span


@dataclass(frozen=True)
class Delete:
    """`delete Type where …`."""

    type_name: str
    where: Predicate
    span: Span
    type_span: Span


Statement = Insert | Create | Upsert | Update | Delete


# -- declarations -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """`$name: Type`."""

    name: str
    prop_type: PropType
    span: Span


@dataclass(frozen=True)
class QueryDecl:
    """`query name(params) @description("…") { … }`. A mutation's body is a tuple of statements.

    A read that stands alone in its text has the name "".
    """

    name: str
    parameters: tuple[Parameter, ...]
    description: str | None
    instruction: str | None
    body: ReadBody | tuple[Statement, ...]
    span: Span
    name_span: Span

    @property
    def is_mutation(self) -> bool:
        """Whether the query writes."""
        return isinstance(self.body, tuple)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The statements of a mutation; a read has none."""
        return self.body if isinstance(self.body, tuple) else ()


@dataclass(frozen=True)
class QueryFile:
    """All queries of one text, in order."""

    source: SourceText
    queries: tuple[QueryDecl, ...]
