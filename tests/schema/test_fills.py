"""`filled`: what an added property has in the rows of its time."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.schema import SchemaIR, compile_schema, plan_schema, read_ir
from omnigraph.schema.fills import fill_scalar
from omnigraph.schema.ir.read import MalformedSchemaError
from omnigraph.values import PropType, Scalar

DOMAIN = "01JF111ED00000000000000000"

STORED_IR = (
    '{"ir_version":2,"schema_identity_domain":"01JF111ED00000000000000000","next_identity_id":6,'
    '"interfaces":[],"nodes":[{"name":"A","type_id":1,"table_incarnation_id":5,"annotations":[],'
    '"implements":[],"properties":[{"name":"p","property_id":3,"prop_type":{"scalar":"I32",'
    '"nullable":false,"list":false,"enum_values":null},"annotations":[],"property_constraints":'
    '["key"],"embed_source":null,"declared_directly":true,"satisfies_interface_properties":[]}],'
    '"constraints":[]}],"edges":[]}'
)
STORED_HASH = "sha256:3af34b815bf1cfee582e661854612249563fd4ac9d6f29ee7a82f86a073ed93f"


def applied(*texts: str) -> SchemaIR:
    """Compile a chain of texts, each against the one before."""
    accepted = compile_schema(texts[0], domain=DOMAIN).ir
    for text in texts[1:]:
        accepted = plan_schema(text, accepted=accepted).desired.ir
    return accepted


def filled(ir: SchemaIR) -> dict[str, Any]:
    return {p.name: p.filled for t in ir.tables for p in t.properties}


def test_the_hash_of_a_stored_schema_stays() -> None:
    stored = read_ir(STORED_IR)
    assert stored.ir_hash == STORED_HASH


def test_what_a_type_begins_with_is_not_filled() -> None:
    assert filled(applied("node A { p: I32 @default(5) }")) == {"p": None}


@pytest.mark.parametrize(
    ("declared", "kept"),
    [
        ("p: I32?", None),
        ("p: I32? @default(5)", None),
        ("p: I32 @default(5)", 5),
        ("p: F64 @default(0.1)", 0.1),
        ("p: F32 @default(0.1)", 0.10000000149011612),
        ("p: Bool @default(false)", False),
        ("p: I64 @default(0)", 0),
        ('p: String @default("")', ""),
        ("p: enum(a, b) @default(b)", "b"),
        ('p: Date @default("20240229")', "2024-02-29"),
        ('p: Date @default("2024-02-29T23:59:59Z")', "2024-02-29"),
        ('p: DateTime @default("2024-02-29")', "2024-02-29T00:00:00.000Z"),
    ],
)
def test_an_added_property_keeps_what_its_apply_wrote(declared: str, kept: object) -> None:
    ir = applied("node A {}", f"node A {{ {declared} }}")
    assert filled(ir) == {"p": kept}
    assert type(filled(ir)["p"]) is type(kept)
    assert read_ir(ir.to_json()) == ir
    assert ("filled" in str(ir.to_json())) == (kept is not None)


def test_later_applies_keep_the_value() -> None:
    ir = applied(
        "node A {}",
        "node A { p: F32 @default(0.1)  q: enum(a, b) @default(b)  r: I32 @default(1) }",
        "node A { p: F32 @default(2)  q: enum(a, b) @default(a)  r: I64? @default(1) }",
        'node B @rename_from("A") { x: F64 @rename_from(p)  q: enum(a) @default(a)  r: I64? }',
    )
    assert filled(ir) == {"q": "b", "r": 1, "x": 0.10000000149011612}


def test_an_injected_property_is_filled_where_there_are_rows() -> None:
    ir = applied(
        "interface I {} node A implements I {}",
        "interface I { p: I32 @default(5) } node A implements I {} node B implements I {}",
    )
    assert {t.name: [p.filled for p in t.properties] for t in ir.types()} == {
        "I": [None],
        "A": [5],
        "B": [None],
    }


@pytest.mark.parametrize(
    ("prop_type", "kept", "value"),
    [
        (PropType(Scalar.F32), 0.10000000149011612, 0.10000000149011612),
        (PropType(Scalar.F64), 0.10000000149011612, 0.10000000149011612),
        (PropType(Scalar.I64), 5, 5),
        (PropType(Scalar.DATE), "2024-02-29", dt.date(2024, 2, 29)),
        (PropType(Scalar.STRING, enum_values=("a",)), "b", "b"),
    ],
)
def test_the_value_reads_back_under_the_type_of_today(
    prop_type: PropType, kept: Any, value: object
) -> None:
    assert fill_scalar(prop_type, kept).as_py() == value


@pytest.mark.parametrize("day", ["2024-02-29", "1969-12-31", "-0044-03-15", "+12024-02-29"])
def test_a_day_becomes_its_midnight(day: str) -> None:
    days = fill_scalar(PropType(Scalar.DATE), day).cast(pa.int32()).as_py()
    moment = fill_scalar(PropType(Scalar.DATETIME), day).cast(pa.int64()).as_py()
    assert moment == days * 86_400_000


def test_a_value_of_another_type_is_refused() -> None:
    stored = applied("node A {}", "node A { p: I32 @default(5) }").to_json()
    prop = stored["nodes"][0]["properties"][0]  # type: ignore[index,call-overload]  # JSON of a known shape
    for damage in ("x", None, []):
        prop["filled"] = damage  # type: ignore[index,call-overload]  # same
        with pytest.raises(MalformedSchemaError, match="filled"):
            read_ir(stored)


def test_numbers_come_from_where_the_caller_says() -> None:
    accepted = compile_schema("node A {}", domain=DOMAIN).ir
    planned = plan_schema("node A { p: I32? } node B {}", accepted=accepted, free=iter((7, 9, 12)))
    assert planned.numbers_given == 3
    assert planned.desired.ir.numbers == {1, 2, 7, 9, 12}
    assert planned.desired.ir.next_identity_id == 13
    assert read_ir(planned.desired.ir.to_json()) == planned.desired.ir
    unchanged = plan_schema("node A {}", accepted=accepted, free=iter(()))
    assert unchanged.numbers_given == 0
    assert unchanged.desired.ir == accepted
