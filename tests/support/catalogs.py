"""Catalogs that tests of queries compile against."""

from __future__ import annotations

from functools import lru_cache

from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema

DOMAIN = "01J00000000000000000000000"

CREW = """
node Crew { tag: String @key   rank: I32?   skills: [String]? }
node Ship { hull: String @key }
edge Mentors: Crew -> Crew { since: Date? }
edge ServesOn: Crew -> Ship
"""
"""The graph of the language's own examples."""

RICH = """
interface Named { title: String @index }
node Doc implements Named {
    slug: String @key
    body: String?
    state: enum(draft, live, dropped)
    flag: Bool?
    i32: I32?   i64: I64?   u32: U32?   u64: U64?   f32: F32?   f64: F64?
    day: Date?  at: DateTime?
    words: [String]?  numbers: [I32]?  ratios: [F64]?  moments: [DateTime]?
    vec: Vector(3)? @embed("body", model="acme/small")
    far: Vector(2)? @metric("l2")
    data: Blob?
}
node Pair { left: String   right: I32   note: String?   @key(left, right) }
node Log {
    text: String
    level: I32 @default(3)
    seen: Date @default("2026-03-06")
    text_vec: Vector(3) @embed("text")
    hint: String?
}
node Tag { name: String @key   weight: F32 }
edge Cites: Doc -> Doc { page: I32?   at: DateTime   scan: Blob?   why: String? }
edge Has: Doc -> Tag { score: F64 @default(0.5) }
edge Files: Log -> Doc
edge Joins: Pair -> Pair
"""
"""Every property type, enum, vector, blob, embedding, default and composite key."""


@lru_cache(maxsize=64)
def catalog(schema: str) -> Catalog:
    return compile_schema(schema, domain=DOMAIN).catalog


def crew_catalog() -> Catalog:
    return catalog(CREW)


def rich_catalog() -> Catalog:
    return catalog(RICH)


def named_catalog(name: str) -> Catalog:
    """Return one of the catalogs above by the word that text cases use, or compile a schema."""
    return catalog({"crew": CREW, "rich": RICH}.get(name, name))
