"""Routes without a graph."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from starlette.responses import Response

from omnigraph.names import INTERNAL_SCHEMA_VERSION
from omnigraph.server.call import Call, json_answer

_VERSION: Final = version("omnigraph")
"""Looked up once: it is read from files."""


async def healthz(_: Call) -> Response:
    """Say that the server lives."""
    return json_answer(
        {
            "status": "ok",
            "version": _VERSION,
            "internal_schema_version": INTERNAL_SCHEMA_VERSION,
        }
    )


async def graphs(call: Call) -> Response:
    """List the graphs that are served."""
    served_graphs = call.serving.graphs
    served_graphs.gate.require(call.actor, "graph_list")
    return json_answer(
        {
            "graphs": [
                {"graph_id": served.graph_id, "uri": served.graph.uri} for served in served_graphs
            ]
        }
    )
