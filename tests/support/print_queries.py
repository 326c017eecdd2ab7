"""Writes trees back as `.gq` text in one canonical layout.

Parsing what was printed gives the same tree, apart from spans. That holds for every tree that a
text can have; a tree built by hand must keep to the same rules (no infinite number, no bare
variable as the only operand of a one-part `and`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from omnigraph.query.language.tree import (
    AggregateCall,
    AllProperties,
    AllRows,
    Assignment,
    Binding,
    Bm25,
    Both,
    Clause,
    Column,
    Comparison,
    Create,
    Delete,
    Either,
    Expr,
    Filter,
    Hop,
    InlineProperty,
    Insert,
    Literal,
    Membership,
    NameRef,
    Nearest,
    Negated,
    NotBlock,
    Now,
    NullTest,
    OptionalBlock,
    OrderKey,
    Parameter,
    Predicate,
    PropertyRef,
    QueryDecl,
    QueryFile,
    ReadBody,
    Rrf,
    Statement,
    TextCall,
    Update,
    Upsert,
    Variable,
)

_INDENT: Final = "  "
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def print_queries(file: QueryFile) -> str:
    """Return the canonical text of a whole file: its queries, an empty line between them."""
    return "\n".join(print_query(query) + "\n" for query in file.queries)


def print_query(query: QueryDecl) -> str:
    """Return the canonical text of one query, without a newline at its end."""
    if isinstance(query.body, ReadBody) and not query.name:
        return "\n".join(_read_lines(query.body))
    parameters = ", ".join(print_parameter(parameter) for parameter in query.parameters)
    head = f"query {query.name}({parameters})"
    annotations = [
        f"{_INDENT}@{name}({print_string(text)})"
        for name, text in (("description", query.description), ("instruction", query.instruction))
        if text is not None
    ]
    if isinstance(query.body, ReadBody):
        body = list(_read_lines(query.body))
    else:
        body = [line for statement in query.body for line in _statement_lines(statement)]
    opening = [f"{head} {{"] if not annotations else [head, *annotations, "{"]
    return "\n".join([*opening, *_indented(body), "}"])


def print_parameter(parameter: Parameter) -> str:
    """Return `$name: Type`."""
    return f"${parameter.name}: {parameter.prop_type}"


# -- reads --------------------------------------------------------------------------------------


def _read_lines(body: ReadBody) -> Iterator[str]:
    yield "match {"
    for clause in body.clauses:
        yield from _indented(_clause_lines(clause))
    yield "}"
    yield "return distinct {" if body.distinct else "return {"
    yield from _listed(print_column(column) for column in body.columns)
    yield "}"
    if body.order:
        yield f"order {{ {', '.join(print_order_key(key) for key in body.order)} }}"
    if body.limit is not None:
        offset = "" if body.offset is None else f" offset {_number(body.offset)}"
        yield f"limit {_number(body.limit)}{offset}"


def _number(number: int | Variable) -> str:
    return f"${number.name}" if isinstance(number, Variable) else str(number)


def print_column(column: Column) -> str:
    """Return one column of `return`, with its alias."""
    alias = "" if column.alias is None else f" as {column.alias}"
    return print_expression(column.expression) + alias


def print_order_key(key: OrderKey) -> str:
    """Return one key of `order`, with its direction where one was written."""
    direction = {None: "", False: " asc", True: " desc"}[key.descending]
    return print_expression(key.expression) + direction


def print_clause(clause: Clause) -> str:
    """Return one clause of a match; a block takes several lines."""
    return "\n".join(_clause_lines(clause))


def _clause_lines(clause: Clause) -> Iterator[str]:
    match clause:
        case NotBlock():
            yield from _block_lines("not", clause.clauses)
        case OptionalBlock():
            yield from _block_lines("optional", clause.clauses)
        case Binding():
            yield _binding(clause)
        case Hop():
            yield _hop(clause)
        case Filter():
            yield _filter(clause.predicate)
        case TextCall():
            yield print_expression(clause)


def _block_lines(word: str, clauses: Iterable[Clause]) -> Iterator[str]:
    yield f"{word} {{"
    for clause in clauses:
        yield from _indented(_clause_lines(clause))
    yield "}"


def _binding(binding: Binding) -> str:
    head = f"${binding.variable}: {binding.type_name}"
    if not binding.properties:
        return head
    return f"{head} {{ {', '.join(_pair(item) for item in binding.properties)} }}"


def _pair(pair: InlineProperty | Assignment) -> str:
    return f"{pair.name}: {print_expression(pair.value)}"


def _hop(hop: Hop) -> str:
    edge = f"<{hop.edge}>" if hop.undirected else hop.edge
    if hop.bounds is not None:
        lowest, highest = hop.bounds
        edge += f"{{{lowest},{'' if highest is None else _number(highest)}}}"
    if hop.edge_variable is not None:
        edge = f"${hop.edge_variable.name}:{edge}"
    return f"${hop.source.name} {edge} ${hop.target.name}"


def _filter(predicate: Predicate) -> str:
    """At the start of a clause `$a contains $b` and `$a in $b` would be read as hops."""
    text = print_predicate(predicate)
    first = _first_test(predicate)
    if not _reads_as_hop(first):
        return text
    shown = print_predicate(first)
    return f"({shown}){text.removeprefix(shown)}"


def _first_test(predicate: Predicate) -> Predicate:
    """Return the part that a printed condition starts with, unless parentheses come first."""
    if isinstance(predicate, Either):
        first = predicate.operands[0]
        return first.operands[0] if isinstance(first, Both) else first
    return predicate.operands[0] if isinstance(predicate, Both) else predicate


def _reads_as_hop(predicate: Predicate) -> bool:
    match predicate:
        case Comparison(Variable(), "contains" | "starts_with", Variable()):
            return True
        case Membership(Variable(), Variable(), negated=False):
            return True
    return False


# -- predicates ---------------------------------------------------------------------------------


def print_predicate(predicate: Predicate) -> str:
    """Return a condition, with no more parentheses than its meaning needs."""
    match predicate:
        case Comparison():
            left, right = print_expression(predicate.left), print_expression(predicate.right)
            return f"{left} {predicate.operator} {right}"
        case NullTest():
            test = "is not null" if predicate.negated else "is null"
            return f"{print_expression(predicate.operand)} {test}"
        case Membership():
            test = "not in" if predicate.negated else "in"
            operand = print_expression(predicate.operand)
            return f"{operand} {test} {print_expression(predicate.choices)}"
        case Both():
            return " and ".join(_operand(operand, (Both, Either)) for operand in predicate.operands)
        case Either():
            return " or ".join(_operand(operand, (Either,)) for operand in predicate.operands)
        case Negated():
            return f"not ({print_predicate(predicate.operand)})"


def _operand(predicate: Predicate, grouped: tuple[type, ...]) -> str:
    text = print_predicate(predicate)
    return f"({text})" if isinstance(predicate, grouped) else text


# -- expressions --------------------------------------------------------------------------------


def print_expression(expression: Expr | AllProperties | AllRows) -> str:  # noqa: C901 - cases
    """Return one expression."""
    match expression:
        case AllProperties(variable):
            text = f"${variable}.*"
        case AllRows():
            text = "*"
        case Literal():
            text = print_literal(expression)
        case Variable(name):
            text = f"${name}"
        case PropertyRef(variable, name):
            text = f"${variable}.{name}"
        case NameRef(name):
            text = name
        case Now():
            text = "now()"
        case Nearest(target, query):
            text = _call("nearest", target, query)
        case TextCall(function, field, query, edits):
            text = _call(function, field, query, edits)
        case Bm25(field, query):
            text = _call("bm25", field, query)
        case Rrf(first, second, k, weights):
            text = _call("rrf", first, second, k, *(weights or ()))
        case AggregateCall(function, argument, distinct):
            text = f"{function}({'distinct ' if distinct else ''}{print_expression(argument)})"
    return text


def _call(function: str, *arguments: Expr | None) -> str:
    given = (print_expression(argument) for argument in arguments if argument is not None)
    return f"{function}({', '.join(given)})"


def print_literal(literal: Literal) -> str:
    """Return a constant as the source text spells it."""
    value = literal.value
    if isinstance(value, tuple):
        return f"[{', '.join(print_literal(item) for item in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = print_string(value)
        return text if literal.kind == "string" else f"{literal.kind}({text})"
    return repr(value)


def print_string(text: str) -> str:
    r"""Return a quoted string with its escapes.

    >>> print(print_string('say "hi"'))
    "say \"hi\""
    """
    return f'"{text.translate(_ESCAPES)}"'


# -- mutations ----------------------------------------------------------------------------------


def print_statement(statement: Statement) -> str:
    """Return one statement of a mutation, over several lines."""
    return "\n".join(_statement_lines(statement))


def _statement_lines(statement: Statement) -> Iterator[str]:
    match statement:
        case Insert():
            yield from _fields(f"insert {statement.type_name}", statement.assignments)
        case Create():
            yield from _fields(f"create {statement.type_name}", statement.assignments)
        case Upsert():
            yield from _fields(f"upsert {statement.type_name}", statement.assignments)
        case Update():
            *lines, _ = _fields(f"update {statement.type_name} set", statement.assignments)
            yield from lines
            yield f"}} where {print_predicate(statement.where)}"
        case Delete():
            yield f"delete {statement.type_name} where {print_predicate(statement.where)}"


def _fields(head: str, assignments: Iterable[Assignment]) -> Iterator[str]:
    yield f"{head} {{"
    yield from _listed(_pair(assignment) for assignment in assignments)
    yield "}"


# -- layout -------------------------------------------------------------------------------------


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (_INDENT + line for line in lines)


def _listed(items: Iterable[str]) -> Iterator[str]:
    """Put each item on its own line; the comma between two keeps them apart for readers."""
    shown = list(items)
    for number, item in enumerate(shown, start=1):
        yield f"{_INDENT}{item}{',' if number < len(shown) else ''}"
