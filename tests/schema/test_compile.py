"""Text to catalog in one call."""

from __future__ import annotations

import pickle

import pytest

from omnigraph.schema import SchemaDriftError, compile_schema, compile_stored, stored_catalog
from omnigraph.schema.compile import IdentityDomainError
from omnigraph.syntax import SourceError, SourceText

DOMAIN = "01JC0MP1LE0000000000000000"


def test_the_source_stays_verbatim() -> None:
    text = "// hello\nnode A { p: String }\n"
    assert compile_schema(text, domain=DOMAIN).source.text == text
    named = SourceText(text, "graph.pg")
    assert compile_schema(named, domain=DOMAIN).source is named


def test_mistakes_of_the_text_are_source_errors() -> None:
    with pytest.raises(SourceError) as caught:
        compile_schema("node A { p: Strng  q: Sting }", domain=DOMAIN)
    assert len(caught.value.diagnostics) >= 1


def test_another_graphs_schema_is_no_base() -> None:
    accepted = compile_schema("node A {}", domain=DOMAIN).ir
    with pytest.raises(IdentityDomainError, match=DOMAIN) as caught:
        compile_schema("node A {}", domain="01JOTHER000000000000000000", accepted=accepted)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.domain, copy.accepted) == (caught.value.domain, DOMAIN)


def test_a_stored_schema_compiles_to_itself_once() -> None:
    first = compile_schema("node A { p: String }", domain=DOMAIN)
    text = 'node B @rename_from("A") { q: String @rename_from(p) }'
    accepted = compile_schema(text, domain=DOMAIN, accepted=first.ir)
    stored = compile_stored(text, accepted.ir)
    assert stored.ir == accepted.ir
    assert compile_stored(text, accepted.ir) is stored


def test_a_stored_text_that_means_something_else_is_drift() -> None:
    accepted = compile_schema("node A { p: String }", domain=DOMAIN)
    with pytest.raises(SchemaDriftError, match="S409"):
        compile_stored("node A { p: String? }", accepted.ir)


def test_the_catalog_of_a_stored_schema_is_that_of_its_text() -> None:
    text = "node A { q: String @key p: I32? }\nedge E: A -> A { z: I32? a: I32? }"
    accepted = compile_schema(text, domain=DOMAIN)
    stored = stored_catalog(text, accepted.ir)
    assert stored == accepted.catalog
    assert stored.node_types["A"].declared_order == ("q", "p")
    assert pickle.loads(pickle.dumps(stored)).edge_types["E"].declared_order == ("z", "a")


def test_a_stored_text_is_read_only_for_the_order_of_properties() -> None:
    accepted = compile_schema("node A { p: String }", domain=DOMAIN)
    stored = stored_catalog("node A { p: String? }", accepted.ir)
    assert not stored.node_types["A"].properties["p"].prop_type.nullable
    with pytest.raises(SchemaDriftError, match="S409"):
        stored.node_types["A"].declared_order  # noqa: B018 - to read it is the test
