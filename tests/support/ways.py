"""A graph, reached in four ways."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omnigraph import AsyncGraph, Graph, connect
from support.awaiting import Awaiting
from support.served_here import serve

SCHEMA = """\
node Person { name: String @key  age: I32?  born: Date?  photo: Blob?  note: String? }
edge Knows: Person -> Person { since: Date? }
"""
RECORDS = b"""\
{"type": "Person", "data": {"name": "ann", "age": 1, "born": "1990-02-03", "photo": "base64:AQID"}}
{"type": "Person", "data": {"name": "bob", "photo": "base64:", "note": "a\xe2\x80\xa8b"}}
{"edge": "Knows", "from": "ann", "to": "bob", "data": {"id": "k1", "since": "2020-01-01"}}
"""
QUERIES = """\
query everyone() { match { $p: Person } return { $p.name, $p.age, $p.born } order { $p.name } }
query grow($n: String, $a: I32) { update Person set { age: $a } where name = $n }
"""
WAYS = ("local", "remote", "async local", "async remote")


@contextmanager
def reached(way: str, root: Path) -> Iterator[Any]:
    """Open a graph in one of the ways."""
    if way == "local":
        with Graph.open(root) as graph:
            yield graph
        return
    with asyncio.Runner() as runner:
        if way == "async local":
            opened: Any = runner.run(AsyncGraph.open(root))
            yield Awaiting(runner, opened)
            runner.run(opened.close())
            return
        queries = root.parent / "stored.gq"
        queries.write_text(QUERIES, encoding="utf-8")
        with serve(root, queries=(queries,)) as served:
            if way == "remote":
                with connect(served.url, graph=served.graph) as remote:
                    yield remote
                return
            opened = AsyncGraph.connect(served.url, graph=served.graph)
            yield Awaiting(runner, opened)
            runner.run(opened.close())
