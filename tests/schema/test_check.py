from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from omnigraph.schema.language.check import check_schema, read_schema
from omnigraph.schema.language.codes import SCHEMA_CODES
from omnigraph.schema.language.parse import parse_schema
from omnigraph.schema.language.shape import SchemaShape
from omnigraph.syntax import Phase, SourceError, SourceText
from omnigraph.syntax.grammar import SYNTAX_CODES


def problems(text: str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read_schema(text)
    return caught.value


def test_an_empty_schema_has_an_empty_shape() -> None:
    assert read_schema("") == SchemaShape()


def test_checking_a_tree_is_the_second_half_of_reading_a_text() -> None:
    text = "interface I { a: I32 } node N implements I { b: String @key } edge E: N -> N"
    assert check_schema(parse_schema(text)) == read_schema(text)


def test_reading_reports_problems_of_the_text_and_between_declarations_together() -> None:
    error = problems("node A { x: enum(a, a) }\nedge E: A -> B\nnode C { : }")
    assert [(found.code, found.phase) for found in error.diagnostics] == [
        ("S101", Phase.PARSE),
        ("S205", Phase.CATALOG),
        ("S001", Phase.PARSE),
    ]


def test_checking_a_tree_reports_all_problems() -> None:
    with pytest.raises(SourceError) as caught:
        check_schema(parse_schema("edge E: A -> B\nnode N { id: I32 @key @key }"))
    assert [found.code for found in caught.value.diagnostics] == ["S205", "S205", "S204", "S110"]


@pytest.mark.parametrize(
    "hint", ['@rename_from("Old")', '@rename_from("Older")', "/* none */"], ids=str
)
def test_rename_hints_are_no_part_of_the_meaning(hint: str) -> None:
    plain = read_schema("interface I { i: I32 } node N implements I { a: I32 } edge E: N -> N")
    hinted = read_schema(
        f"interface I {{ i: I32 {hint} }}\n"
        f"node N {hint} implements I {{ a: I32 {hint} }}\n"
        f"edge E: N -> N {hint}"
    )
    assert hinted == plain


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("node N { a: I32 }", "node N { a: I32? }"),
        ("node N { a: I32 @unique }", "node N { a: I32 @unique(a) }"),
        ("node N { a: I32 @x }", "node N { a: I32 @y }"),
        ("node N { a: I32 @range(a, 0..1) }", "node N { a: I32 @range(a, 0..2) }"),
        ("node N { a: enum(x) }", "node N { a: enum(y) }"),
        ("node N { } edge E: N -> N", "node N { } edge E: N -> N @card(0..1)"),
        (
            "interface I { a: I32 } node N { a: I32 }",
            "interface I { a: I32 } node N implements I {}",
        ),
        (
            "interface I { a: I32 } node N implements I { a: I32 }",
            "interface I { a: I32 } node N implements I { }",
        ),
    ],
)
def test_different_meanings_have_different_shapes(one: str, other: str) -> None:
    assert read_schema(one) != read_schema(other)


def test_card_zero_or_more_is_what_an_edge_has_anyway() -> None:
    plain = read_schema("node N { } edge E: N -> N")
    assert read_schema("node N { } edge E: N -> N @card(0..)") == plain


def test_every_problem_has_a_place_and_a_subject() -> None:
    error = problems(
        "interface I { a: I32 a: I32 }\n"
        "node N implements J { b: I32? @key @range(c, 0..) v: Vector(2) @embed(x) }\n"
        'edge E: N -> M { @check(a, "(") d: I32 @key }'
    )
    codes = [found.code for found in error.diagnostics]
    assert codes == ["S203", "S206", "S215", "S205", "S210", "S211"]
    for found in error.diagnostics:
        assert found.span.end > found.span.start
        assert found.subject in ("interface 'I'", "node 'N'", "edge 'E'")


def test_a_problem_in_an_interface_is_not_repeated_in_its_nodes() -> None:
    error = problems(
        "interface I { a: I32? @key }\n"
        + "".join(f"node N{i} implements I {{}}\n" for i in range(5))
    )
    assert [found.code for found in error.diagnostics] == ["S215"]


def test_hints_are_given_for_the_first_unknown_names_only() -> None:
    edges = "".join(f"edge E{i}: Statoin -> Station\n" for i in range(200))
    found = problems("node Station {}\n" + edges).diagnostics
    assert len(found) == 200
    assert found[0].hint == "did you mean 'Station'?"
    assert found[-1].hint is None


def test_errors_of_a_schema_survive_pickling() -> None:
    error = problems("edge E: A -> B")
    again = pickle.loads(pickle.dumps(error))
    assert again.diagnostics == error.diagnostics


def test_places_are_those_of_the_source() -> None:
    source = SourceText("// é\nnode N {}\nedge E: N -> Ñ", "a.pg")
    with pytest.raises(SourceError) as caught:
        read_schema(source)
    [found] = caught.value.diagnostics
    assert source.text.encode()[slice(*found.byte_span)].decode() == "Ñ"


def test_codes_are_documented_and_continue_the_shared_ones() -> None:
    assert {f"S{suffix}" for suffix in SYNTAX_CODES} <= set(SCHEMA_CODES)
    assert list(SCHEMA_CODES) == sorted(SCHEMA_CODES)
    assert all(meaning and "\n" not in meaning for meaning in SCHEMA_CODES.values())


def test_reading_a_schema_does_not_load_pandas() -> None:
    script = (
        "import sys; from omnigraph.schema.language.check import read_schema; "
        'read_schema(\'node N { a: String @check(a, "x") d: Date @default("2024-01-01") }\'); '
        "print('pandas' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
