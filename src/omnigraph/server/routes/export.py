"""Exports: the entities of a branch as a stream.

One export or baseline of a graph is open at a time: it reads a snapshot for as long as its client
takes, and what would remove that snapshot waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from starlette.responses import Response

from omnigraph.graph import ReadTarget
from omnigraph.server.call import Call
from omnigraph.server.decode import branch_name
from omnigraph.server.errors import StreamBusyError
from omnigraph.server.streams import NDJSON, chunked, streamed
from omnigraph.wire.requests import ExportRequest


async def export(call: Call) -> Response:
    """Stream the entities of a branch, by type and id."""
    request = await call.body(ExportRequest, shape_status=400)
    branch = branch_name(request.branch)
    call.authorize("export", branch=branch)
    graph = call.served.graph

    def make() -> Iterator[bytes]:
        lines = graph.export_lines(types=request.type_names, target=ReadTarget.branch(branch))
        return chunked(lines)

    return await open_stream(call, make, media_type=NDJSON)


async def open_stream(
    call: Call, make: Callable[[], Iterator[bytes]], *, media_type: str
) -> Response:
    """Answer with a stream that holds the export slot of the graph to its end."""
    slot = call.served.export_slot
    if not slot.acquire():
        raise StreamBusyError("stream_export_slots", 1, 2)
    return await streamed(call.serving.pool, make, media_type=media_type, on_end=slot.release)
