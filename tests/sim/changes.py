"""The graph of the simulation, and what its writes mean.

A branch writes only to keys that carry its name, so that rows of two branches never conflict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from sim.model import Change, Content, Row, Table

P, Q, E = "node:P", "node:Q", "edge:E"
SCHEMA = """\
node P { k: String @key   n: I64? @index }
node Q { k: String @key }
edge E: P -> P { no: I64 }
"""
COLUMNS = {P: frozenset({"k", "n"}), Q: frozenset({"k"}), E: frozenset({"src", "dst", "no"})}


def inserted(key: str, rows: Mapping[object, Row]) -> Change:
    """Add rows, or replace those with the same key."""

    def change(content: Content) -> Content:
        return {**content, key: content[key].with_rows(rows)}

    return change


def all_of(*changes: Change) -> Change:
    """Do one change after the other."""

    def change(content: Content) -> Content:
        for each in changes:
            content = each(content)
        return content

    return change


def updated(name: str, number: int) -> Change:
    def change(content: Content) -> Content:
        if name not in content[P].rows:
            return content
        return {**content, P: content[P].with_rows({name: (number,)})}

    return change


def deleted(key: str, name: str) -> Change:
    """Remove a node, with its edges."""

    def change(content: Content) -> Content:
        after = {**content, key: content[key].without([name])}
        if key == P:
            loose = [number for number, ends in content[E].rows.items() if name in ends]
            after[E] = content[E].without(loose)
        return after

    return change


def overwritten(key: str, rows: Mapping[object, Row]) -> Change:
    def change(content: Content) -> Content:
        return {**content, key: Table(content[key].columns, dict(rows))}

    return change


def reshaped(shape: Mapping[str, frozenset[str]]) -> Change:
    """Have exactly these tables and columns; what is new is empty."""

    def change(content: Content) -> Content:
        return {
            key: Table(columns, content[key].rows if key in content else {})
            for key, columns in shape.items()
        }

    return change


def shape_of(schema: str) -> dict[str, frozenset[str]]:
    """Return the tables of a schema text of this suite, with their columns."""
    shape: dict[str, frozenset[str]] = {E: COLUMNS[E]}
    for name, body in re.findall(r"^node (\w+) \{(.*)\}$", schema, re.MULTILINE):
        shape[f"node:{name}"] = frozenset(re.findall(r"(\w+):", body))
    return shape


def with_type(schema: str, name: str) -> str:
    return f"{schema}node {name} {{ k: String @key }}\n"


def with_property(schema: str, name: str) -> str:
    return schema.replace("node Q {", f"node Q {{ {name}: String?  ", 1)


def lines(records: Iterable[Mapping[str, object]]) -> bytes:
    """Return records as a load takes them."""
    return "".join(json.dumps(record) + "\n" for record in records).encode()
