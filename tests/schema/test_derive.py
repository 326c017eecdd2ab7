"""The catalog that is derived from a compiled schema."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from omnigraph.schema import Catalog, compile_schema, read_ir
from omnigraph.schema.catalog import Annotation, Cardinality, CheckRule, EmbedSource, RangeRule
from omnigraph.schema.ir.derive import derive_catalog
from omnigraph.values import PRIMARY_KEY, STABLE_PROPERTY_ID

DOMAIN = "01JDER1VE00000000000000000"

SAMPLE = r"""
interface Located { place: String @index  lat: F64?  lon: F64? }
node Station @description("Fixed measuring site") implements Located {
    code: String @key
    state: enum(active, mothballed, planned) @default(active)
    depth_m: F32?      opened: Date?      tags: [String]?   photo: Blob?
    profile: String?   profile_vec: Vector(384)? @embed("profile", model="acme/small") @index
    @range(depth_m, -50.0..4000)
    @check(code, "^[A-Z]{3}-\\d+$")
    @unique(place, opened) @index(state, opened)
}
edge Feeds: Station -> Station @card(0..3) @instruction("upstream to downstream") {
    since: DateTime
    rate: F64 @unique @index
    @unique(src, dst)
    @index(since, src)
}
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return compile_schema(SAMPLE, domain=DOMAIN).catalog


def test_a_node_says_by_name_what_its_declaration_says(catalog: Catalog) -> None:
    station = catalog.node_types["Station"]
    assert station.implements == ("Located",)
    assert list(station.properties) == sorted(station.properties)
    assert station.key == ("code",)
    assert station.unique_constraints == (("opened", "place"),)
    assert station.range_constraints == (RangeRule("depth_m", -50.0, 4000),)
    assert station.check_constraints == (CheckRule("code", r"^[A-Z]{3}-\d+$"),)
    assert station.embed_sources == {"profile_vec": EmbedSource("profile", "acme/small")}
    assert station.blob_properties == ("photo",)
    assert station.annotations == (Annotation("description", "Fixed measuring site"),)
    assert station.table_key == "node:Station"


def test_index_intents_include_the_key_and_injected_notes(catalog: Catalog) -> None:
    expected = (("code",), ("opened", "state"), ("place",), ("profile_vec",))
    assert catalog.node_types["Station"].indices == expected


def test_an_edge_says_by_name_what_its_declaration_says(catalog: Catalog) -> None:
    feeds = catalog.edge_types["Feeds"]
    assert (feeds.from_type, feeds.to_type) == ("Station", "Station")
    assert feeds.cardinality == Cardinality(0, 3)
    assert feeds.unique_constraints == (("dst", "src"), ("rate",))
    assert feeds.indices == (("rate",), ("since", "src"))
    assert feeds.table_key == "edge:Feeds"
    assert catalog.lookup_edge("feeds") is feeds


def test_ids_are_found_by_kind_and_name(catalog: Catalog) -> None:
    assert catalog.type_id("interface", "Located") == 1
    assert catalog.type_id("node", "Station") == 2
    assert catalog.type_id("edge", "Feeds") == 3
    assert catalog.type_id("node", "Feeds") is None
    located = catalog.property_id("interface", "Located", "place")
    assert located == catalog.interfaces["Located"].properties["place"].property_id == 6
    assert catalog.property_id("node", "Station", "place") not in (None, located)
    assert catalog.property_id("node", "Station", "nope") is None
    assert catalog.property_id("node", "Nope", "place") is None


def test_columns_carry_their_stable_number(catalog: Catalog) -> None:
    station = catalog.node_types["Station"]
    schema = station.arrow_schema
    assert schema.names == ["id", *sorted(station.properties)]
    assert schema.field("id").metadata == {PRIMARY_KEY: b"true"}
    for name, found in station.properties.items():
        assert schema.field(name).metadata[STABLE_PROPERTY_ID] == str(found.property_id).encode()
    edge = catalog.edge_types["Feeds"].arrow_schema
    assert edge.names == ["id", "src", "dst", "rate", "since"]
    assert edge.field("since").type == pa.date64()


def test_the_catalog_depends_on_nothing_but_the_compiled_schema() -> None:
    compiled = compile_schema(SAMPLE, domain=DOMAIN)
    again = derive_catalog(read_ir(compiled.ir.to_json()))
    assert again.node_types == compiled.catalog.node_types
    assert again.edge_types == compiled.catalog.edge_types
    assert again.interfaces == compiled.catalog.interfaces


def test_a_composite_key_is_spelled_in_the_order_of_the_types_creation() -> None:
    first = compile_schema("node A { b: String  a: I32  @key(b, a) }", domain=DOMAIN)
    assert first.catalog.node_types["A"].key == ("a", "b")
    text = "node A { z: I32 @rename_from(a)  b: String  @key(b, z) }"
    second = compile_schema(text, domain=DOMAIN, accepted=first.ir)
    assert second.catalog.node_types["A"].key == ("z", "b")
    assert second.catalog.node_types["A"].indices == (("b", "z"),)


def test_a_rule_and_a_note_that_say_the_same_count_once() -> None:
    node = compile_schema("node A { a: String @unique @index @unique(a) @index(a) }", domain=DOMAIN)
    found = node.catalog.node_types["A"]
    assert found.unique_constraints == (("a",),)
    assert found.indices == (("a",),)


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ('String @default("x")', "x"),
        ('String @default("")', ""),
        ("String @default(7)", "7"),
        ("I32 @default(7)", 7),
        ('I64 @default("-7")', -7),
        ("U64 @default(18446744073709551615)", 18446744073709551615),
        ("F32 @default(1.5)", 1.5),
        ("F64? @default(2)", 2.0),
        ("Bool @default(false)", False),
        ("enum(a, b) @default(b)", "b"),
        ('Date @default("2024-01-01")', "2024-01-01"),
        ("String", None),
    ],
)
def test_a_default_is_read_by_the_type_of_its_property(declaration: str, expected: object) -> None:
    compiled = compile_schema(f"node A {{ p: {declaration} }}", domain=DOMAIN)
    found = compiled.catalog.node_types["A"].properties["p"].default
    assert found == expected
    assert type(found) is type(expected)


def test_notes_without_meaning_stay_readable() -> None:
    compiled = compile_schema('node A { v: Vector(2) @metric("dot") @unit("m") }', domain=DOMAIN)
    annotations = compiled.catalog.node_types["A"].properties["v"].annotations
    assert annotations == (Annotation("metric", "dot"), Annotation("unit", "m"))


def test_a_catalog_travels_by_pickling(catalog: Catalog) -> None:
    copy = pickle.loads(pickle.dumps(catalog))
    assert copy == catalog
    assert copy.node_types["Station"].arrow_schema == catalog.node_types["Station"].arrow_schema
