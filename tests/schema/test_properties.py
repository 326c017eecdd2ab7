"""Claims about every schema, tried on random ones."""

from __future__ import annotations

import codecs
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.schema.language.check import check_schema, read_schema
from omnigraph.schema.language.codes import SCHEMA_CODES
from omnigraph.schema.language.parse import parse_schema
from omnigraph.schema.language.tree import SchemaTree
from omnigraph.syntax import Diagnostic, SourceError
from omnigraph.syntax.grammar import decode_source
from support.print_schema import print_schema
from support.schemas import edited_schemas, layouts, loose_trees, schema_texts, schema_trees

TOKENS = (
    *("node", "edge", "interface", "implements", "enum", "Vector", "String", "I64", "Blob", "Date"),
    *("A", "B", "Station", "a", "b", "src", "_rowid", "id", "true", "7", "-7", "1.5", "..", "->"),
    *("@key", "@unique", "@index", "@range", "@check", "@card", "@embed", "@x", "@description"),
    *("@default", "@metric", "@rename_from", "@instruction", '"x"', '"\\d"', '"(?=x)"', '"', "/*"),
    *("*/", "//", "\n", "\r\n", "\t", "{", "}", "(", ")", "[", "]", "?", ":", ",", "=", "\\", "@"),
    *("\x00", "é", "😀", "\ud800", "\ufeff", "99999999999999999999", "9" * 5000, "model"),
)


def problems(text: str) -> tuple[Diagnostic, ...]:
    """Read a text; the only way to fail is a `SourceError`."""
    try:
        read_schema(text)
    except SourceError as error:
        return error.diagnostics
    return ()


def assert_only_source_errors(text: str) -> None:
    for found in problems(text):
        start, end = found.byte_span
        assert 0 <= start < end
        assert 0 <= found.span.start < found.span.end <= max(len(text), 1)
        assert found.code in SCHEMA_CODES
        assert found.headline in found.render()


@given(schema_trees())
def test_a_printed_valid_tree_parses_to_itself(tree: SchemaTree) -> None:
    assert parse_schema(print_schema(tree)) == tree


@given(loose_trees())
def test_a_printed_tree_parses_to_itself_whether_it_makes_sense_or_not(tree: SchemaTree) -> None:
    assert parse_schema(print_schema(tree)) == tree


@given(st.data())
def test_order_blanks_and_comments_do_not_change_the_shape(data: st.DataObject) -> None:
    tree = data.draw(schema_trees())
    assert read_schema(data.draw(layouts(tree))) == check_schema(tree)


@given(edited_schemas())
def test_edited_schemas_are_valid_before_and_after(pair: tuple[str, str]) -> None:
    for text in pair:
        read_schema(text)


@given(st.text())
def test_any_text_gives_a_shape_or_a_source_error(text: str) -> None:
    assert_only_source_errors(text)


@given(st.lists(st.sampled_from(TOKENS), max_size=40), st.sampled_from(["", " "]))
def test_any_sequence_of_tokens_gives_a_shape_or_a_source_error(
    tokens: list[str], gap: str
) -> None:
    assert_only_source_errors(gap.join(tokens))


@given(schema_texts(), st.randoms(use_true_random=False))
def test_a_damaged_schema_gives_a_shape_or_a_source_error(text: str, chance: random.Random) -> None:
    assert_only_source_errors(damaged(text, chance))


@given(st.binary())
def test_any_bytes_are_text_or_a_source_error(data: bytes) -> None:
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError:
        with pytest.raises(SourceError) as caught:
            decode_source(data, "random.pg", "S")
        assert [found.code for found in caught.value.diagnostics] == ["S008"]
    else:
        assert decode_source(data, "random.pg", "S").text == text
        assert_only_source_errors(text)


def damaged(text: str, chance: random.Random) -> str:
    """Cut, repeat, swap or insert a little somewhere."""
    for _ in range(chance.randint(1, 4)):
        at, to = sorted(chance.randint(0, len(text)) for _ in range(2))
        to = min(to, at + chance.choice([0, 1, 3, 20]))
        middle = chance.choice(
            ["", chance.choice(TOKENS), f" {chance.choice(TOKENS)} ", text[at:to] * 2]
        )
        text = text[:at] + middle + text[to:]
    return text


FUZZ_INPUTS = 200_000
FUZZ_SEED = 20_260_301

SEED_SCHEMA = r"""
interface Located { place: String @index  lat: F64?  lon: F64? }
node Station @description("Fixed measuring site") implements Located {
    code: String @key
    state: enum(active, mothballed) // comment
    profile: String?   profile_vec: Vector(4)? @embed("profile", model="acme/small") @index
    @range(lat, -50.0..90)
    @check(code, "^[A-Z]{3}-\\d+$")
}
edge Feeds: Station -> Station @card(0..3) { since: DateTime @unique(src, dst) }
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_thousand_random_inputs_raise_nothing_but_source_errors() -> None:
    chance = random.Random(FUZZ_SEED)
    for number in range(FUZZ_INPUTS):
        kind = number % 3
        if kind == 0:
            data = chance.randbytes(chance.randint(0, 60))
            text = data.decode("utf-8", errors=chance.choice(["replace", "surrogateescape"]))
        elif kind == 1:
            words = chance.choices(TOKENS, k=chance.randint(0, 30))
            text = chance.choice(["", " "]).join(words)
        else:
            text = damaged(SEED_SCHEMA, chance)
        try:
            assert_only_source_errors(text)
        except Exception as error:
            error.add_note(f"input {number} of seed {FUZZ_SEED}: {text!r}")
            raise
