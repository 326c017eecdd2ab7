"""Numbers of several branches that mean the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph.schema import Aliases, SchemaIR, compile_schema, read_ir, schema_difference
from omnigraph.schema.ir.read import MalformedSchemaError
from omnigraph.schema.ir.state import SchemaState

DOMAIN = "01JA11ASES0000000000000000"


def schema_with_also(text: str = "interface I {} node A { p: I32 }") -> SchemaIR:
    """I is 1, A 2, A.p 3, the table of A 4."""
    ir = compile_schema(text, domain=DOMAIN).ir
    [interface], [node] = ir.interfaces, ir.nodes
    [prop] = node.properties
    return replace(
        ir,
        next_identity_id=40,
        interfaces=(replace(interface, also=(31,)),),
        nodes=(replace(node, also=(12, 14, 22, 24), properties=(replace(prop, also=(13, 23)),)),),
    )


def test_types_tables_and_properties_are_told_apart() -> None:
    aliases = Aliases.of(schema_with_also())
    found = {number: aliases.canonical(number) for number in (31, 12, 14, 22, 24, 13, 23, 99)}
    assert found == {31: 1, 12: 2, 14: 4, 22: 2, 24: 4, 13: 3, 23: 3, 99: 99}
    assert aliases.group(13) == {3, 13, 23}
    assert aliases.group(99) == {99}


@pytest.mark.parametrize(
    ("pairs", "canonical"),
    [
        ([(1, 2), (2, 3)], 1),
        ([(2, 3), (1, 2)], 1),
        ([(9, 2), (2, 3)], 9),
        # Two merges have chosen differently: one group all the same.
        ([(1, 2), (2, 1), (2, 3)], 1),
        ([(5, 2), (4, 2), (2, 3)], 4),
    ],
)
def test_chains_and_circles_are_one_group(pairs: list[tuple[int, int]], canonical: int) -> None:
    aliases = Aliases.of_pairs(pairs)
    numbers = {number for pair in pairs for number in pair}
    assert {aliases.canonical(number) for number in numbers} == {canonical}


def test_also_is_stored_and_part_of_the_ir_hash_only() -> None:
    plain = compile_schema("interface I {} node A { p: I32 }", domain=DOMAIN).ir
    united = schema_with_also()
    assert read_ir(united.to_json()) == united
    assert "also" not in str(plain.to_json())
    states = SchemaState.of(plain), SchemaState.of(united)
    assert states[0].schema_shape_hash == states[1].schema_shape_hash
    assert states[0].schema_ir_hash != states[1].schema_ir_hash


def test_compiling_against_an_accepted_schema_keeps_also() -> None:
    united = schema_with_also()
    text = 'interface I {} node B @rename_from("A") { q: I64 @rename_from(p)  r: I32? }'
    again = compile_schema(text, domain=DOMAIN, accepted=united).ir
    [interface], [node] = again.interfaces, again.nodes
    assert interface.also == (31,)
    assert node.also == (12, 14, 22, 24)
    assert {p.name: p.also for p in node.properties} == {"q": (13, 23), "r": ()}


@pytest.mark.parametrize(
    ("path", "also"),
    [
        ("$.nodes.A.also", [12]),
        ("$.nodes.A.also", [22, 24, 12, 14]),
        ("$", [12, 12]),
        ("$", [2, 14]),
        ("$.next_identity_id", [12, 41]),
        ("$.nodes[0].also", []),
        ("$.nodes[0].also[0]", [0, 1]),
    ],
)
def test_a_damaged_list_is_refused(path: str, also: list[int]) -> None:
    stored = schema_with_also().to_json()
    stored["nodes"][0]["also"] = also  # type: ignore[index,call-overload]  # JSON of a known shape
    with pytest.raises(MalformedSchemaError) as caught:
        read_ir(stored)
    assert caught.value.path == path


def test_the_difference_is_empty_where_only_the_numbers_differ() -> None:
    text = "interface I {} node A { p: I32  @unique(p) } edge E: A -> A { @unique(src, dst) }"
    ours = compile_schema(text, domain=DOMAIN).ir
    theirs = compile_schema(text, domain=DOMAIN, free=iter(range(50, 80))).ir
    assert {step.kind for step in schema_difference(ours, theirs).steps} == {
        "add_type",
        "drop_type",
    }
    pairs = Aliases.of_pairs(zip(sorted(ours.numbers), sorted(theirs.numbers), strict=True))
    assert schema_difference(ours, theirs, pairs).steps == ()
