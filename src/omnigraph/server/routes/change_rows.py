"""A page of the change feed as Arrow: one row per change.

A page mixes types, so the images of an entity are JSON texts. The schema metadata has the rest of
the page under `omnigraph`: cursor or page token, and every commit with its number of rows, because
a commit that changed nothing has none.
"""

from __future__ import annotations

from typing import Any, Final

import orjson
import pyarrow as pa

from omnigraph.graph import FeedPage
from omnigraph.server.routes.answers import ENVELOPE, stream_bytes

SCHEMA: Final = pa.schema(
    [
        pa.field("graph_commit_id", pa.utf8(), nullable=False),
        pa.field("kind", pa.utf8(), nullable=False),
        pa.field("type_id", pa.utf8(), nullable=False),
        pa.field("type_name", pa.utf8(), nullable=False),
        pa.field("id", pa.utf8(), nullable=False),
        pa.field("op", pa.utf8(), nullable=False),
        pa.field("before", pa.utf8()),
        pa.field("after", pa.utf8()),
    ]
)


def feed_bytes(page: FeedPage) -> bytes:
    """Return a page as an Arrow stream."""
    rows = [_row(block.cause, change) for block in page.blocks for change in block.changes]
    rest = page.to_json() | {
        "blocks": [block.header() | {"rows": len(block.changes)} for block in page.blocks]
    }
    schema = SCHEMA.with_metadata({ENVELOPE: orjson.dumps(rest)})
    return stream_bytes(pa.Table.from_pylist(rows, schema))


def _row(cause: dict[str, object], change: dict[str, Any]) -> dict[str, object]:
    return {
        "graph_commit_id": cause["graph_commit_id"],
        "kind": change["kind"],
        "type_id": str(change["type"]["id"]),
        "type_name": change["type"]["name"],
        "id": change["id"],
        "op": change["op"],
        "before": _text(change.get("before")),
        "after": _text(change.get("after")),
    }


def _text(image: object) -> str | None:
    return None if image is None else orjson.dumps(image).decode()
