"""The compiled schema: stored form, hashes, reading back."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.names import TableKey
from omnigraph.records import to_json
from omnigraph.schema import SchemaIR, compile_schema, read_ir
from omnigraph.schema.ir.model import SystemRole
from omnigraph.schema.ir.read import MalformedSchemaError
from omnigraph.schema.ir.to_shape import shape_of
from omnigraph.schema.language.canonical import shape_hash
from omnigraph.schema.language.check import check_schema, read_schema
from omnigraph.schema.language.shape import Bound
from support.cases import Case, check_case, load_cases
from support.schemas import layouts, schema_texts, schema_trees

DOMAIN = "01JDOMA1N00000000000000000"
CASES = load_cases("ir")

SAMPLE = """
interface I { i: String? @index  v: Vector(2)? @embed(text) }
node A @description("a") implements I {
    code: String @key  n: F64 @unit("m", si="yes")  s: enum(x, y) @default(y)  text: String?
    @range(n, 0..9.5) @check(code, "x") @unique(n, s)
}
edge E: A -> A @card(0..3) { w: U64 @default(1)  @unique(src, dst) @index(src, w) }
"""


def compiled(text: str) -> SchemaIR:
    return compile_schema(text, domain=DOMAIN).ir


@pytest.mark.parametrize("case", CASES, ids=str)
def test_ir(case: Case, update_cases: bool) -> None:
    found = compile_schema(case.sections["schema"], domain=DOMAIN)
    stored = orjson.dumps(found.ir.to_json(), option=orjson.OPT_INDENT_2).decode()
    check_case(case, "ir", stored, update_cases)
    check_case(case, "hashes", f"shape {found.shape_hash}\nir    {found.ir_hash}", update_cases)
    assert read_ir(stored) == found.ir


def test_the_numbering_example_gives_the_documented_numbers() -> None:
    ir = compiled("interface Z {p: String} node A {} node B implements Z {} edge E: A -> B")
    assert {t.name: t.type_id for t in ir.types()} == {"Z": 1, "A": 2, "B": 3, "E": 4}
    numbers = {(t.name, p.name): p.property_id for t in ir.types() for p in t.properties}
    assert numbers == {("Z", "p"): 5, ("B", "p"): 6}
    assert {t.name: t.table_incarnation_id for t in ir.tables} == {"A": 7, "B": 8, "E": 9}
    assert ir.next_identity_id == 10


def test_live_tables_are_the_nodes_and_edges() -> None:
    ir = compiled("interface Z {p: String} node A {} node B implements Z {} edge E: A -> B")
    found = [(t.table_key, t.type_id, t.table_incarnation_id) for t in ir.table_identities]
    assert found == [("node:A", 2, 7), ("node:B", 3, 8), ("edge:E", 4, 9)]
    assert TableKey.of("edge", "E") == "edge:E"


def test_the_hash_is_taken_over_compact_json_in_stored_order() -> None:
    from hashlib import sha256

    ir = compiled(SAMPLE)
    text = orjson.dumps(ir.to_json())
    assert b'", "' not in text
    assert ir.ir_hash == f"sha256:{sha256(text).hexdigest()}"
    reordered = dict(reversed(list(ir.to_json().items())))
    assert sha256(orjson.dumps(reordered)).hexdigest() != ir.ir_hash.removeprefix("sha256:")


def test_integer_and_float_bounds_differ_but_both_zeros_are_one() -> None:
    assert Bound.of(1) != Bound.of(1.0)
    assert orjson.dumps(to_json(Bound.of(-0.0))) == b'{"Float":0.0}'
    assert Bound.of(None) is None


def test_system_roles_are_the_structural_columns() -> None:
    from typing import get_args

    from omnigraph.names import EDGE_COLUMNS

    assert get_args(SystemRole) == EDGE_COLUMNS


# -- properties of all schemas -------------------------------------------------------------------


@settings(max_examples=50)
@given(schema_texts())
def test_the_stored_form_reads_back(text: str) -> None:
    ir = compiled(text)
    stored = orjson.dumps(ir.to_json())
    assert read_ir(stored) == ir
    assert orjson.dumps(read_ir(stored).to_json()) == stored


@settings(max_examples=50)
@given(st.data())
def test_hashes_are_stable_under_reordering(data: st.DataObject) -> None:
    tree = data.draw(schema_trees())
    first, second = data.draw(layouts(tree)), data.draw(layouts(tree))
    assert shape_hash(read_schema(first)) == shape_hash(check_schema(tree))
    assert compiled(first).ir_hash == compiled(second).ir_hash


@settings(max_examples=50)
@given(schema_texts())
def test_a_compiled_schema_remembers_its_shape(text: str) -> None:
    assert shape_hash(shape_of(compiled(text))) == shape_hash(read_schema(text))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("node A { p: String }", "node A { p: String? }"),
        ("node A { p: String }", "node A { q: String }"),
        ("node A { p: String @unique }", "node A { p: String @unique(p) }"),
        ("node A { p: enum(x) }", "node A { p: enum(y) }"),
        ("node A { p: I32 @range(p, 0..1) }", "node A { p: I32 @range(p, 0..) }"),
        ("node A { p: F64 @range(p, 0..1) }", "node A { p: F64 @range(p, 0.0..1.0) }"),
        ("node A {} edge E: A -> A", "node A {} edge E: A -> A @card(0..1)"),
        ("interface I {} node A {}", "interface I {} node A implements I {}"),
        ('node A @description("x") {}', 'node A @description("y") {}'),
        ("node A { t: String v: Vector(2) }", "node A { t: String v: Vector(2) @embed(t) }"),
    ],
)
def test_the_shape_hash_sees_every_difference_in_meaning(before: str, after: str) -> None:
    assert shape_hash(read_schema(before)) != shape_hash(read_schema(after))


def test_the_shape_hash_ignores_rename_hints_and_identities() -> None:
    plain = compile_schema("node B { q: String }", domain=DOMAIN)
    old = compile_schema("node A { p: String }", domain=DOMAIN)
    text = 'node B @rename_from("A") { q: String @rename_from(p) }'
    hinted = compile_schema(text, domain=DOMAIN, accepted=old.ir)
    added = compile_schema("node B { q: String }", domain=DOMAIN, accepted=old.ir)
    assert plain.shape_hash == hinted.shape_hash == added.shape_hash
    assert len({plain.ir_hash, added.ir_hash}) == 2


# -- refusing what we did not write --------------------------------------------------------------

Damage = Callable[[dict[str, Any]], object]

DAMAGES: dict[str, tuple[Damage, str]] = {
    "other version": (lambda ir: ir.update(ir_version=1), "$.ir_version"),
    "member missing": (lambda ir: ir.pop("edges"), "$"),
    "member unknown": (lambda ir: ir.update(extra=1), "$"),
    "name of another alphabet": (lambda ir: ir["nodes"][0].update(name="é"), "$.nodes[0].name"),
    "number as text": (lambda ir: ir["nodes"][0].update(type_id="2"), "$.nodes[0].type_id"),
    "number as boolean": (lambda ir: ir["nodes"][0].update(type_id=True), "$.nodes[0].type_id"),
    "number given twice": (lambda ir: ir["edges"][0].update(type_id=1), "$"),
    "number not given out": (lambda ir: ir.update(next_identity_id=3), "$.next_identity_id"),
    "types out of order": (lambda ir: ir["interfaces"].insert(0, _interface("J", 500)), "$"),
    "properties out of order": (lambda ir: ir["nodes"][0]["properties"].reverse(), "$.nodes.A"),
    "constraints out of order": (lambda ir: ir["nodes"][0]["constraints"].reverse(), "$.nodes.A"),
    "dangling interface": (
        lambda ir: ir["nodes"][0]["implements"][0].update(type_id=99),
        "$.nodes.A.implements",
    ),
    "stale endpoint name": (
        lambda ir: ir["edges"][0]["from_type"].update(type_name="Old"),
        "$.edges.E.from_type",
    ),
    "stale member name": (
        lambda ir: ir["nodes"][0]["constraints"][0]["field"].update(property_name="old"),
        "$.nodes.A.constraints",
    ),
    "system column of another lifetime": (
        lambda ir: ir["edges"][0]["constraints"][1]["fields"][0].update(table_incarnation_id=1),
        "$.edges.E.constraints",
    ),
    "unknown scalar": (
        lambda ir: ir["nodes"][0]["properties"][0]["prop_type"].update(scalar="I128"),
        "$.nodes[0].properties[0].prop_type.scalar",
    ),
    "vector of nothing": (
        lambda ir: ir["nodes"][0]["properties"][0]["prop_type"].update(scalar={"Vector": 0}),
        "$.nodes[0].properties[0].prop_type.scalar.Vector",
    ),
    "list of blobs": (
        lambda ir: ir["nodes"][0]["properties"][0]["prop_type"].update(scalar="Blob", list=True),
        "$.nodes[0].properties[0].prop_type",
    ),
    "typed note among the annotations": (
        lambda ir: ir["nodes"][0]["annotations"].append({"name": "rename_from", "value": "X"}),
        "$.nodes.A.annotations",
    ),
    "default that does not fit": (
        lambda ir: ir["edges"][0]["properties"][0]["annotations"][0].update(value="x"),
        "$.edges.E.w.annotations",
    ),
    "bound of no kind": (
        lambda ir: ir["nodes"][0]["constraints"][1].update(min={"Number": 1}),
        "$.nodes[0].constraints[1].min",
    ),
    "integer bound with a fraction": (
        lambda ir: ir["nodes"][0]["constraints"][1].update(min={"Integer": 1.5}),
        "$.nodes[0].constraints[1].min.Integer",
    ),
    "cardinality upside down": (
        lambda ir: ir["edges"][0]["cardinality"].update(min=9),
        "$.edges[0].cardinality",
    ),
    "unknown source of an embedding": (
        lambda ir: ir["nodes"][0]["properties"][-1]["embed_source"]["source"].update(
            property_id=None
        ),
        "$.nodes.A.v.embed_source",
    ),
}


def _interface(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "type_id": number, "properties": []}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_schema_is_refused_with_its_place(name: str) -> None:
    damage, place = DAMAGES[name]
    stored = deepcopy(orjson.loads(orjson.dumps(compiled(SAMPLE).to_json())))
    damage(stored)
    with pytest.raises(MalformedSchemaError) as caught:
        read_ir(stored)
    assert caught.value.path.startswith(place)
    assert pickle.loads(pickle.dumps(caught.value)).path == caught.value.path


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"x"', "\ud800"])
def test_something_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(MalformedSchemaError):
        read_ir(text)
