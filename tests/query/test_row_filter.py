"""The filter of a read: what it accepts, what it means, what it says about mistakes."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.query.plan.plan import Compare, Constant, InList, Prefix, Substring
from omnigraph.query.row_filter import SourceError, compile_row_filter
from omnigraph.schema import EdgeType, NodeType, compile_schema
from omnigraph.values import Scalar
from omnigraph.write.mutate.predicates import constant_condition

CATALOG = compile_schema(
    """
    node Person {
        name: String @key
        age: I32?
        total: U64?
        share: F32?
        ratio: F64?
        born: Date?
        seen: DateTime?
        active: Bool?
        kind: enum(cat, dog)?
        tags: [String]?
        date: String?
    }
    edge Knows: Person -> Person { since: Date? }
    """,
    domain="01J" + "0" * 23,
).catalog
PERSON: NodeType = CATALOG.node_types["Person"]
KNOWS: EdgeType = CATALOG.edge_types["Knows"]


def constant_of(text: str) -> Constant:
    predicate = compile_row_filter(text, PERSON)
    assert isinstance(predicate, Compare)
    assert isinstance(predicate.right, Constant)
    return predicate.right


@pytest.mark.parametrize(
    ("text", "value", "scalar"),
    [
        ("age = 18", 18, Scalar.I32),
        ("age = 18.0", 18, Scalar.I32),
        ("age < 18.5", 18.5, Scalar.F64),
        ("18 > age", 18, Scalar.I32),
        ("total = 18446744073709551615", 2**64 - 1, Scalar.U64),
        ("share < 0.1", 0.10000000149011612, Scalar.F32),
        ("ratio > -1e3", -1000.0, Scalar.F64),
        ("name = 'it''s'", "it's", Scalar.STRING),
        ("name == '(('", "((", Scalar.STRING),
        ("born = DATE '1970-01-03'", 2, Scalar.DATE),
        ("born = '1970-01-03'", 2, Scalar.DATE),
        ("seen = TIMESTAMP '1970-01-01 00:00:01.5'", 1_500, Scalar.DATETIME),
        ("seen = timestamp '1970-01-01T01:00:00+01:00'", 0, Scalar.DATETIME),
        ("seen >= date '1970-01-02'", 86_400_000, Scalar.DATETIME),
        ("active = false", False, Scalar.BOOL),
        ("active", True, Scalar.BOOL),
        ("kind <> 'cat'", "cat", Scalar.STRING),
        ("date = 'x'", "x", Scalar.STRING),
        ("`date` = 'x'", "x", Scalar.STRING),
        ("id = 'x'", "x", Scalar.STRING),
    ],
)
def test_a_literal_gets_the_type_of_its_column_where_its_value_allows_it(
    text: str, value: object, scalar: Scalar
) -> None:
    constant = constant_of(text)
    assert constant.value == value
    assert constant.prop_type.scalar is scalar


def test_an_edge_is_filtered_by_its_ends() -> None:
    predicate = compile_row_filter("src = 'a' AND dst IN ('b', 'c')", KNOWS)
    rows = pa.table({"src": ["a", "a", "b"], "dst": ["b", "x", "b"]})
    assert constant_condition(predicate).holds(rows).to_pylist() == [True, False, False]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("name LIKE 'A%'", Prefix), ("name LIKE '%A%'", Substring), ("name LIKE 'A'", Compare)],
)
def test_like_is_a_prefix_a_part_or_an_equality(text: str, kind: type) -> None:
    assert isinstance(compile_row_filter(text, PERSON), kind)


def test_choices_that_a_column_can_never_equal_are_left_out() -> None:
    predicate = compile_row_filter("age NOT IN (1, 2.5, 3.0, 99999999999)", PERSON)
    assert isinstance(predicate, InList)
    assert isinstance(predicate.choices, Constant)
    assert predicate.choices.value == (1, 3)


@pytest.mark.parametrize(
    ("text", "code", "column", "part"),
    [
        ("", "F002", 1, "ends too early"),
        ("age >", "F002", 5, "expected `NULL`, a boolean, a date, a number"),
        ("(age = 1", "F002", 8, "expected `)`"),
        ("age = age", "F001", 7, "unexpected 'age'"),
        ("age = 1 name = 'x'", "F001", 9, "unexpected 'name', expected"),
        ('name = "x"', "F001", 8, "unexpected '\"x\"'"),
        ("name = 'abc", "F001", 8, "unexpected"),
        ("age + 1 = 2", "F001", 5, "unexpected '+'"),
        ("agee = 1", "F101", 1, "`Person` has no column `agee` among `id`, `active`, `age`"),
        ("Age = 1", "F101", 1, "has no column `Age`"),
        ("src = 'x'", "F101", 1, "has no column `src`"),
        ("tags = 'x'", "F102", 1, "`tags` is [String]?, which can only be tested for null"),
        ("age >= 'x'", "F103", 8, "`age` is I32? and cannot be compared with 'x'"),
        ("name = 1", "F103", 8, "`name` is String and cannot be compared with 1"),
        ("name", "F103", 1, "`name` is String"),
        ("born = TIMESTAMP '2020-01-01 00:00:00'", "F103", 8, "`born` is Date"),
        ("name = DATE '2020-01-01'", "F103", 8, "cannot be compared with DATE '2020-01-01'"),
        ("kind = 'cow'", "F103", 8, "'cow' is not a value of `kind`"),
        ("age LIKE '1%'", "F103", 1, "`LIKE` needs a String"),
        ("age = NULL", "F104", 7, "compared with NULL"),
        ("age IN (1, NULL)", "F104", 12, "compared with NULL"),
        ("name LIKE 'a_c'", "F105", 11, "the pattern 'a_c' is neither"),
        ("name LIKE '%c'", "F105", 11, "the pattern '%c' is neither"),
        ("born = '2020-02-30'", "F106", 8, "'2020-02-30' cannot be read as a Date"),
        ("seen = 'noon'", "F106", 8, "cannot be read as a DateTime"),
        ("age = 99999999999999999999", "F107", 7, "does not fit 64 bits"),
        ("age = " + "9" * 5_000, "F107", 7, "does not fit 64 bits"),
        ("ratio = 1e999", "F107", 9, "does not fit 64 bits"),
        ("age <=> 1", "F108", 5, "`<=>` is not supported"),
    ],
)
def test_a_mistake_is_reported_with_its_place(text: str, code: str, column: int, part: str) -> None:
    with pytest.raises(SourceError) as caught:
        compile_row_filter(text, PERSON)
    (found,) = caught.value.diagnostics
    assert (found.code, found.position.column) == (code, column)
    assert part in found.message


def test_all_mistakes_of_a_filter_are_reported_at_once() -> None:
    with pytest.raises(SourceError) as caught:
        compile_row_filter("agee = 1 OR name = 2 OR born = 'x'", PERSON)
    assert [found.code for found in caught.value.diagnostics] == ["F101", "F103", "F106"]


# -- meaning --------------------------------------------------------------------------------------

Row = dict[str, object]


@dataclass(frozen=True)
class Part:
    """A piece of filter text and what it means for a row: true, false, or None for unknown."""

    text: str
    holds: Callable[[Row], bool | None]


def comparison(name: str, spelled: str, value: object) -> st.SearchStrategy[Part]:
    tests: dict[str, Callable[[object, object], bool]] = {
        "=": lambda a, b: a == b,
        "<>": lambda a, b: a != b,
        "<": lambda a, b: a < b,  # type: ignore[operator]  # both have the column's type
        "<=": lambda a, b: a <= b,  # type: ignore[operator]  # both have the column's type
        ">": lambda a, b: a > b,  # type: ignore[operator]  # both have the column's type
        ">=": lambda a, b: a >= b,  # type: ignore[operator]  # both have the column's type
    }

    def part(operator: str) -> Part:
        def holds(row: Row) -> bool | None:
            return None if row[name] is None else tests[operator](row[name], value)

        return Part(f"{name} {operator} {spelled}", holds)

    return st.sampled_from(sorted(tests)).map(part)


NAMES = st.text("abA'%_é", max_size=3)
AGES = st.integers(-3, 3)
RATIOS = st.sampled_from([-1.5, 0.0, 0.5, 2.0])
DAYS = st.dates(datetime.date(1969, 12, 28), datetime.date(1970, 1, 3))


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


LEAVES: st.SearchStrategy[Part] = st.one_of(
    NAMES.flatmap(lambda value: comparison("name", quoted(value), value)),
    AGES.flatmap(lambda value: comparison("age", str(value), value)),
    st.sampled_from([-1.5, 0.5, 2.0]).flatmap(lambda value: comparison("age", str(value), value)),
    RATIOS.flatmap(lambda value: comparison("ratio", repr(value), value)),
    DAYS.flatmap(lambda value: comparison("born", f"DATE '{value}'", value)),
    st.sampled_from(["name", "age", "ratio", "born", "active"]).map(
        lambda name: Part(f"{name} IS NULL", lambda row: row[name] is None)
    ),
    st.just(Part("active", lambda row: row["active"])),  # type: ignore[arg-type,return-value]  # a boolean column
    st.lists(AGES, min_size=1, max_size=3).map(
        lambda values: Part(
            f"age IN ({', '.join(map(str, values))})",
            lambda row: None if row["age"] is None else row["age"] in values,
        )
    ),
    st.tuples(AGES, AGES).map(
        lambda ends: Part(
            f"age BETWEEN {ends[0]} AND {ends[1]}",
            lambda row: None if row["age"] is None else ends[0] <= row["age"] <= ends[1],  # type: ignore[operator]  # an integer column
        )
    ),
    st.text("abé", min_size=1, max_size=2).map(
        lambda part: Part(
            f"name LIKE '{part}%'",
            lambda row: None if row["name"] is None else str(row["name"]).startswith(part),
        )
    ),
)


def all_of(parts: list[Part]) -> Part:
    def holds(row: Row) -> bool | None:
        found = [part.holds(row) for part in parts]
        return False if False in found else None if None in found else True

    return Part("(" + " AND ".join(part.text for part in parts) + ")", holds)


def any_of(parts: list[Part]) -> Part:
    def holds(row: Row) -> bool | None:
        found = [part.holds(row) for part in parts]
        return True if True in found else None if None in found else False

    return Part("(" + " or ".join(part.text for part in parts) + ")", holds)


def negation(part: Part) -> Part:
    def holds(row: Row) -> bool | None:
        found = part.holds(row)
        return None if found is None else not found

    return Part(f"NOT ({part.text})", holds)


PARTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(all_of),
        st.lists(inner, min_size=2, max_size=3).map(any_of),
        inner.map(negation),
    ),
    max_leaves=6,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": NAMES | st.none(),
            "age": AGES | st.none(),
            "ratio": RATIOS | st.none(),
            "born": DAYS | st.none(),
            "active": st.booleans() | st.none(),
        }
    ),
    max_size=8,
)
COLUMNS = pa.schema(
    [PERSON.properties[name].arrow_field for name in ("name", "age", "ratio", "born", "active")]
)


@given(part=PARTS, rows=ROWS)
def test_a_filter_means_what_sql_means(part: Part, rows: list[Row]) -> None:
    condition = constant_condition(compile_row_filter(part.text, PERSON))
    table = pa.Table.from_pylist(rows, schema=COLUMNS)
    assert condition.holds(table).to_pylist() == [part.holds(row) for row in rows]
