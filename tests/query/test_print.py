"""What is printed reads back as the same tree."""

from __future__ import annotations

import pytest
from hypothesis import given

from omnigraph.query.language.parse import parse_queries
from omnigraph.query.language.tree import (
    Clause,
    Expr,
    Filter,
    Predicate,
    QueryDecl,
    QueryFile,
    ReadBody,
    Statement,
)
from support.print_queries import (
    print_clause,
    print_expression,
    print_predicate,
    print_queries,
    print_query,
    print_statement,
)
from support.queries import (
    clauses,
    column_expressions,
    operands,
    predicates,
    query_files,
    statements,
    without_spans,
)


def only_query(text: str) -> QueryDecl:
    (query,) = parse_queries(text).queries
    return query


def read_body(text: str) -> ReadBody:
    body = only_query(text).body
    assert isinstance(body, ReadBody)
    return body


@given(query_files)
def test_a_printed_file_reads_back_as_itself(file: QueryFile) -> None:
    printed = print_queries(file)
    again = parse_queries(printed)
    assert without_spans(again.queries) == file.queries
    assert print_queries(again) == printed


@given(clauses)
def test_a_printed_clause_reads_back_as_itself(clause: Clause) -> None:
    body = read_body(f"query q() {{ match {{ {print_clause(clause)} }} return {{ 1 }} }}")
    assert without_spans(body.clauses) == (clause,)


@given(predicates)
def test_a_printed_predicate_reads_back_as_itself(predicate: Predicate) -> None:
    text = f"query q() {{ match {{ ({print_predicate(predicate)}) }} return {{ 1 }} }}"
    (clause,) = read_body(text).clauses
    assert isinstance(clause, Filter)
    assert without_spans(clause.predicate) == predicate


@given(operands | column_expressions)
def test_a_printed_expression_reads_back_as_itself(expression: Expr) -> None:
    text = f"query q() {{ match {{ $c: C }} return {{ {print_expression(expression)} }} }}"
    (column,) = read_body(text).columns
    assert without_spans(column.expression) == expression


@given(statements)
def test_a_printed_statement_reads_back_as_itself(statement: Statement) -> None:
    body = only_query(f"query q() {{ {print_statement(statement)} }}").body
    assert without_spans(body) == (statement,)


def test_a_printed_query_ends_without_a_newline_and_a_file_with_one() -> None:
    file = parse_queries("query a() { delete T where x = 1 } query b() { delete T where x = 1 }")
    one = "query a() {\n  delete T where x = 1\n}"
    assert print_query(file.queries[0]) == one
    assert print_queries(file) == f"{one}\n\n{one.replace('query a', 'query b')}\n"


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("2.5e-3", "0.0025"),
        ("1e22", "1e+22"),
        ("-0.0", "-0.0"),
        ("1e-7", "1e-07"),
        ("-9223372036854775808", "-9223372036854775808"),
        ('"a\\"b\\\\c"', '"a\\"b\\\\c"'),
        ('date ( "2020-01-01" )', 'date("2020-01-01")'),
    ],
)
def test_literals_print_in_one_spelling(written: str, printed: str) -> None:
    (column,) = read_body(f"query q() {{ match {{ $c: C }} return {{ {written} }} }}").columns
    assert print_expression(column.expression) == printed
