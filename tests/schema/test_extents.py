"""Parts of a text: cut out, each of them means what it meant."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.schema.language.extents import extents_of
from omnigraph.schema.language.parse import parse_schema
from omnigraph.schema.language.tree import NodeDecl
from omnigraph.syntax import Span
from support.schemas import layouts, schema_trees


@settings(max_examples=40)
@given(st.data())
def test_every_part_can_be_cut_out(data: st.DataObject) -> None:
    text = data.draw(layouts(data.draw(schema_trees())))

    def cut(span: Span) -> str:
        return text[span.start : span.end]

    for extent in extents_of(parse_schema(text)):
        declaration = extent.declaration
        assert parse_schema(cut(extent.whole)).declarations == (declaration,)
        for prop in extent.properties:
            [holder] = parse_schema(f"interface X {{ {cut(prop.whole)} }}").declarations
            assert holder.properties == (prop.declaration,)
            [holder] = parse_schema(f"interface X {{ p: {cut(prop.type)} }}").declarations
            assert holder.properties[0].prop_type == prop.declaration.prop_type
        for rule in extent.rules:
            [node] = parse_schema(f"node X {{ {cut(rule.whole)} }}").declarations
            assert isinstance(node, NodeDecl)
            assert node.rules == (rule.declaration,)
        annotations = getattr(declaration, "annotations", ())
        for span, written in zip(extent.annotations, annotations, strict=True):
            [node] = parse_schema(f"node X {cut(span)} {{}}").declarations
            assert isinstance(node, NodeDecl)
            assert node.annotations == (written,)


def test_brackets_in_strings_and_comments_are_no_brackets() -> None:
    text = 'node A { p: [ /* ] */ String ] ? @note(")", k="(") // )\n @check(p, "a)b") }'
    [extent] = extents_of(parse_schema(text))
    [prop], [rule] = extent.properties, extent.rules
    assert text[prop.whole.start : prop.whole.end].endswith('k="(")')
    assert text[prop.type.start : prop.type.end] == "[ /* ] */ String ] ?"
    assert text[rule.whole.start : rule.whole.end] == '@check(p, "a)b")'
    assert extent.whole == Span(0, len(text))


def test_an_edge_without_a_body_ends_with_its_header() -> None:
    text = 'node A {} edge E: A -> A @card(0..) @note("x") // done'
    _, extent = extents_of(parse_schema(text))
    assert extent.body is None
    assert text[extent.whole.start : extent.whole.end] == 'edge E: A -> A @card(0..) @note("x")'
    assert extent.card is not None
    assert text[extent.card.start : extent.card.end] == "@card(0..)"
