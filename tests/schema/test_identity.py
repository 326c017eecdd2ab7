"""Who gets which number; wrong hints are text cases of `migrations/identity.case`."""

from __future__ import annotations

import pickle

import pytest

from omnigraph.schema import IdentityResolutionError, SchemaIR, compile_schema
from omnigraph.schema.ir.identity import resolve_identities
from omnigraph.schema.language.shape import SchemaShape, ShapeInterface, ShapeNode, ShapeProperty
from omnigraph.schema.migration.codes import IDENTITY_CODES
from omnigraph.syntax import SourceText
from omnigraph.values import PropType, Scalar
from support.cases import load_cases

DOMAIN = "01J1DENT1TY000000000000000"


def compiled(text: str, accepted: SchemaIR | None = None) -> SchemaIR:
    return compile_schema(text, domain=DOMAIN, accepted=accepted).ir


def property_numbers(ir: SchemaIR) -> dict[str, int]:
    return {f"{t.name}.{p.name}": p.property_id for t in ir.types() for p in t.properties}


def test_new_types_come_first_then_properties_by_owner_then_tables() -> None:
    first = compiled("node M { m: String? }")
    second = compiled(
        "node M { a: I32?  m: String? } node A { z: I32 } interface Q { q: I32 }", first
    )
    assert {t.name: t.type_id for t in second.types()} == {"Q": 4, "A": 5, "M": 1}
    # M is the owner with the lowest number, so its new property is numbered before the others.
    assert property_numbers(second) == {"M.a": 6, "M.m": 2, "Q.q": 7, "A.z": 8}
    assert {t.name: t.table_incarnation_id for t in second.tables} == {"A": 9, "M": 3}
    assert second.next_identity_id == 10


def test_the_same_name_in_another_kind_is_another_thing() -> None:
    first = compiled("node A {} node N {} edge B: A -> A")
    second = compiled("node B {} node N {} edge A: N -> N", first)
    assert first.next_identity_id == 7
    assert {(t.kind, t.name): t.type_id for t in second.types()} == {
        ("node", "B"): 7,
        ("node", "N"): 2,
        ("edge", "A"): 8,
    }


def test_a_hint_moves_the_numbers_and_uses_none() -> None:
    first = compiled("node A { p: String }")
    second = compiled('node B @rename_from("A") { q: String @rename_from(p) }', first)
    assert property_numbers(second) == {"B.q": 2}
    assert second.next_identity_id == first.next_identity_id


def test_a_hint_that_has_done_its_work_may_stay() -> None:
    first = compiled("node A { p: String }")
    text = 'node B @rename_from("A") { q: String @rename_from(p) }'
    second = compiled(text, first)
    assert compiled(text, second) == second


def test_an_injected_property_follows_its_interface_even_without_a_hint_of_its_own() -> None:
    """The hint is the interface's; the shape need not repeat it in the node."""
    text = PropType(Scalar.STRING)
    accepted = compiled("interface I { p: String } node A implements I {}")
    hinted = ShapeProperty("q", text, rename_from="p")
    injected = ShapeProperty("q", text, declared_directly=False, satisfies=(("I", "q"),))
    shape = SchemaShape(
        interfaces=(ShapeInterface("I", (hinted,)),),
        nodes=(ShapeNode("A", (), ("I",), (injected,), ()),),
    )
    ir = resolve_identities(shape, accepted=accepted, domain=DOMAIN, source=SourceText(""))
    assert property_numbers(ir) == {"I.q": 3, "A.q": 4}
    assert property_numbers(accepted) == {"I.p": 3, "A.p": 4}


def test_the_order_of_a_hand_made_shape_does_not_matter() -> None:
    text = PropType(Scalar.STRING)
    nodes = [
        ShapeNode(name, (), (), tuple(ShapeProperty(p, text) for p in order), ())
        for name, order in (("B", "yx"), ("A", "ba"))
    ]
    shape = SchemaShape(nodes=tuple(nodes))
    ir = resolve_identities(shape, accepted=None, domain=DOMAIN, source=SourceText(""))
    assert ir == compiled("node A { a: String b: String } node B { x: String y: String }")


def test_the_error_survives_pickling_with_all_its_problems() -> None:
    accepted = compiled("node A {}")
    with pytest.raises(IdentityResolutionError) as caught:
        compiled('node B @rename_from("X") {} node C @rename_from("Y") {}', accepted)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copy, IdentityResolutionError)
    assert copy.diagnostics == caught.value.diagnostics
    assert len(copy.diagnostics) == 2


def test_the_cases_show_every_identity_code() -> None:
    shown = "\n".join(case.sections.get("plan", "") for case in load_cases("migrations"))
    assert [code for code in IDENTITY_CODES if f"{code} catalog error" not in shown] == []
