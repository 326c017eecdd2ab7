"""Exports: the entities of a branch as a stream.

One export or baseline of a graph is open at a time: it reads a snapshot for as long as its client
takes, and what would remove that snapshot waits for it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

import pyarrow as pa
from starlette.responses import Response

from omnigraph.server.call import Call
from omnigraph.server.errors import StreamBusyError
from omnigraph.server.http.streams import ARROW, NDJSON, chunked, cut, streamed
from omnigraph.server.http.transport import LINES_SHARE
from omnigraph.server.routes.answers import accepted
from omnigraph.wire.requests import ExportRequest

TYPE_KEY: Final = b"omnigraph.type_key"
"""The key of the schema metadata that holds the type of an Arrow stream."""
SCHEMA_SOURCE: Final = b"omnigraph.schema_source"
"""The key of the schema metadata that holds the schema of the graph."""


async def export(call: Call) -> Response:
    """Stream the entities of a branch, by type and id."""
    request = await call.body(ExportRequest, shape_status=400)
    named, branch = await call.read_target(
        request.branch, request.snapshot, request.tag, request.at
    )
    call.authorize("export", branch=branch)
    graph = call.served.graph
    # One state: that of the headers is that of the rows.
    target = await call.run(graph.snapshot_of, named)
    headers = {
        "Omnigraph-Graph-Commit": target.commit_id,
        "Omnigraph-Graph-Branch": quote(str(target.branch)),
    }
    if accepted(call.request.headers.get("accept", ""), (ARROW,), NDJSON) == ARROW:

        def make_arrow() -> Iterator[bytes]:
            tables = graph.export_batches(types=request.type_names, target=target)
            return cut(arrow_streams(tables, target.schema.source))

        return await open_stream(call, make_arrow, media_type=ARROW, headers=headers)

    def make() -> Iterator[bytes]:
        return chunked(graph.export_lines(types=request.type_names, target=target))

    return await open_stream(call, make, media_type=NDJSON, headers=headers)


def arrow_streams(
    tables: Iterable[tuple[str, Iterator[pa.RecordBatch]]], schema_source: str
) -> Iterator[bytes]:
    """Yield an Arrow stream for each type, one after the other; its metadata names the type."""
    for key, batches in tables:
        metadata = {TYPE_KEY: key.encode(), SCHEMA_SOURCE: schema_source.encode()}
        sink, writer = io.BytesIO(), None
        for batch in batches:
            named = batch.replace_schema_metadata(metadata)
            if writer is None:
                writer = pa.ipc.new_stream(sink, named.schema)
            writer.write_batch(named)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
        if writer is not None:
            writer.close()
            yield sink.getvalue()


async def open_stream(
    call: Call,
    make: Callable[[], Iterator[bytes]],
    *,
    media_type: str,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Answer with a stream that holds the export slot of the graph to its end."""
    slot = call.served.export_slot
    if not slot.acquire():
        raise StreamBusyError("stream_export_slots", 1, 2)
    memory = call.serving.transport.lines
    try:
        await memory.reserve(LINES_SHARE)
    except BaseException:
        slot.release()
        raise

    def end() -> None:
        memory.release(LINES_SHARE)
        slot.release()

    return await streamed(
        call.serving.pool, make, media_type=media_type, headers=headers, on_end=end
    )


async def line_stream(
    call: Call, make: Callable[[], Iterator[bytes]], *, media_type: str
) -> Response:
    """Answer with a stream that needs no slot, only its share of the transport's memory."""
    memory = call.serving.transport.lines
    await memory.reserve(LINES_SHARE)
    return await streamed(
        call.serving.pool, make, media_type=media_type, on_end=lambda: memory.release(LINES_SHARE)
    )
