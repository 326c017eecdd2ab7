"""From settings to an application: tokens, state, graphs.

Nothing is opened, and no port is bound, when the settings are refused.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from omnigraph.graph import Graph, blob_bases, require_queries_hold
from omnigraph.server.access import Gate, Mode, mode_of
from omnigraph.server.app import App
from omnigraph.server.call import Serving
from omnigraph.server.errors import BootRefusedError
from omnigraph.server.graphs import Graphs, ServedGraph, is_servable
from omnigraph.server.origin import Origins, loopback_hosts
from omnigraph.server.pool import EnginePool
from omnigraph.server.reload import Declared, Reloader, Sources, Stamp
from omnigraph.server.settings import Settings
from omnigraph.server.shared import Shared
from omnigraph.server.tokens import LiveTokens, token_source

_SUFFIX: Final = ".omni"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checked:
    """What the settings stand for, before anything is opened."""

    tokens: LiveTokens
    graph_id: str
    mode: Mode
    sources: Sources
    stamp: Stamp
    declared: Declared


def check(settings: Settings) -> Checked:
    """Read tokens, policies and stored queries, decide the state, or refuse to start."""
    tokens = LiveTokens(token_source(settings.environ))
    graph_id = graph_id_of(settings.store)
    sources = Sources.of(settings, graph_id)
    stamp, declared = sources.stamp(), sources.read()
    mode = mode_of(
        has_tokens=bool(tokens),
        has_policy=declared.policy is not None or declared.server_policy is not None,
        unauthenticated=settings.unauthenticated,
    )
    return Checked(tokens, graph_id, mode, sources, stamp, declared)


def boot(settings: Settings, shared: Shared | None = None) -> App:
    """Return the application that serves one graph."""
    return boot_reloading(settings, shared)[0]


def boot_reloading(settings: Settings, shared: Shared | None = None) -> tuple[App, Reloader]:
    """Return the application that serves one graph, and what reads its files again."""
    shared = shared or Shared()
    checked = check(settings)
    mode, graph_id = checked.mode, checked.graph_id
    _log.info("tokens: %s", checked.tokens.name)
    if mode is not Mode.POLICY:
        _log.warning("no policy: the server is %s", mode.replace("_", "-"))
    served = serve_store(settings, checked, shared)
    serving = Serving(
        tokens=checked.tokens,
        graphs=Graphs({graph_id: served}),
        server_gate=Gate(mode, checked.declared.server_policy),
        admission=shared.admission(settings.limits),
        pool=EnginePool(),
        requires_bearer=mode is not Mode.OPEN,
    )
    app = App(serving, origins=origins_of(settings, mode), metrics=shared.metrics())
    return app, Reloader(serving, mode, checked.sources, checked.stamp)


def serve_store(settings: Settings, checked: Checked, shared: Shared) -> ServedGraph:
    """Open one graph; its policy is asked by the routes first, and by the engine again."""
    graph_id, declared = checked.graph_id, checked.declared
    graph = Graph.open(settings.store, policy=declared.policy)
    require_queries_hold(declared.queries, graph.schema_source())
    _log.info("graph routed", extra={"graph_id": graph_id})
    for warning in declared.queries.warnings:
        _log.warning("stored query '%s': %s", warning.key, warning.message)
    gate = Gate(checked.mode, declared.policy)
    return ServedGraph(
        graph_id,
        graph,
        gate,
        declared.queries,
        shared.export_slot(graph_id),
        external_blob_bases=blob_bases(settings.external_blob_bases),
    )


def graph_id_of(store: str) -> str:
    """Return the id of a graph that is served by its address: the name of its folder."""
    name = PurePosixPath(store).name.removesuffix(_SUFFIX)
    graph_id = "".join(c if c.isascii() and c.isalnum() else "-" for c in name)[:64]
    if not is_servable(graph_id):
        raise BootRefusedError(
            f"'{graph_id}' cannot be the id of a graph", "rename the folder of the graph"
        )
    return graph_id


def origins_of(settings: Settings, mode: Mode) -> Origins:
    """Return which pages may call the server."""
    is_open = mode is Mode.OPEN
    guards_host = is_open and settings.is_loopback
    return Origins(
        settings.cors_origins,
        is_open=is_open,
        hosts=loopback_hosts(settings.allowed_hosts) if guards_host else None,
    )
