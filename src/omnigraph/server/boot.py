"""From settings to an application: tokens, state, graphs.

Nothing is opened, and no port is bound, when the settings are refused.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from omnigraph.cluster.read_applied import cluster_root, read_applied
from omnigraph.graph import Graph, require_queries_hold
from omnigraph.names import is_servable
from omnigraph.server.access import Gate, Mode, mode_of
from omnigraph.server.app import App
from omnigraph.server.call import Serving
from omnigraph.server.errors import BootRefusedError
from omnigraph.server.graphs import Graphs, ServedGraph
from omnigraph.server.http.origin import Origins, loopback_hosts
from omnigraph.server.pool import EnginePool
from omnigraph.server.reload import Declared, FileReloader, Reloader, Sources, Stamp
from omnigraph.server.revisions.follow import Follower, Source
from omnigraph.server.revisions.prepare import (
    CheckedRevision,
    Rules,
    check_revision,
    open_revision,
)
from omnigraph.server.settings import Settings
from omnigraph.server.shared import Shared
from omnigraph.server.tokens import LiveTokens, token_source

_SUFFIX: Final = ".omni"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CheckedStore:
    """What the settings of one graph stand for, before anything is opened."""

    tokens: LiveTokens
    uri: str
    graph_id: str
    mode: Mode
    sources: Sources
    stamp: Stamp
    declared: Declared
    blob_bases: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckedCluster:
    """What the settings of a cluster stand for, before anything is opened."""

    tokens: LiveTokens
    target: str
    checked: CheckedRevision

    @property
    def mode(self) -> Mode:
        """How the server decides."""
        return self.checked.mode


def check(settings: Settings) -> CheckedStore | CheckedCluster:
    """Read tokens, policies and stored queries, decide the state, or refuse to start."""
    if settings.cluster is not None:
        return check_cluster(settings, settings.cluster)
    assert settings.store is not None, "settings have one source"  # noqa: S101 - checked there
    return check_store(settings, settings.store)


def check_store(settings: Settings, store: str) -> CheckedStore:
    """Read what belongs to one graph."""
    tokens = LiveTokens(token_source(settings.environ))
    graph_id = graph_id_of(store)
    sources = Sources.of(settings, graph_id)
    stamp, declared = sources.stamp(), sources.read()
    mode = mode_of(
        has_tokens=bool(tokens),
        has_policy=declared.policy is not None or declared.server_policy is not None,
        unauthenticated=settings.unauthenticated,
    )
    bases = settings.external_blob_bases
    return CheckedStore(tokens, store, graph_id, mode, sources, stamp, declared, bases)


def check_cluster(settings: Settings, target: str) -> CheckedCluster:
    """Read the applied revision of a cluster."""
    revision = read_applied(target).require_ready()
    tokens = LiveTokens(token_source(settings.environ))
    rules = Rules(
        has_tokens=bool(tokens),
        unauthenticated=settings.unauthenticated,
        requires_all_graphs=settings.require_all_graphs,
        environ=settings.environ,
    )
    return CheckedCluster(tokens, target, check_revision(revision, rules))


def boot(settings: Settings, shared: Shared | None = None) -> App:
    """Return the application that serves what the settings name."""
    return boot_reloading(settings, shared)[0]


def boot_reloading(settings: Settings, shared: Shared | None = None) -> tuple[App, Reloader]:
    """Return the application, and what keeps it up to date."""
    shared = shared or Shared()
    checked = check(settings)
    _log.info("tokens: %s", checked.tokens.name)
    if checked.mode is not Mode.POLICY:
        _log.warning("no policy: the server is %s", checked.mode.replace("_", "-"))
    if isinstance(checked, CheckedCluster):
        graphs = open_revision(checked.checked, shared)
    else:
        graphs = Graphs(
            {checked.graph_id: serve_store(checked, shared)},
            Gate(checked.mode, checked.declared.server_policy),
        )
    serving = Serving(
        tokens=checked.tokens,
        graphs=graphs,
        admission=shared.admission(settings.limits),
        pool=EnginePool(),
        requires_bearer=checked.mode is not Mode.OPEN,
        query_limits=settings.query_limits,
    )
    reloader = _reloader(serving, checked, shared)
    app = App(serving, origins=origins_of(settings, checked.mode), metrics=shared.metrics())
    return app, reloader


def _reloader(serving: Serving, checked: CheckedStore | CheckedCluster, shared: Shared) -> Reloader:
    if isinstance(checked, CheckedStore):
        return FileReloader(serving, checked.mode, checked.sources, checked.stamp)
    source = Source(cluster_root(checked.target), checked.checked.rules, shared)
    follower = Follower(serving, source, shared.agreement())
    follower.wait_until_in_force()
    serving.follow = follower.switch
    follower.say_what_is_served()
    return follower


def serve_store(checked: CheckedStore, shared: Shared) -> ServedGraph:
    """Open one graph; its policy is asked by the routes first, and by the engine again."""
    graph_id, declared = checked.graph_id, checked.declared
    graph = Graph.open(checked.uri, policy=declared.policy, external_blob_bases=checked.blob_bases)
    require_queries_hold(declared.queries, graph.schema_source())
    _log.info("graph routed", extra={"graph_id": graph_id})
    for warning in declared.queries.warnings:
        _log.warning("stored query '%s': %s", warning.key, warning.message)
    gate = Gate(checked.mode, declared.policy)
    return ServedGraph(graph_id, graph, gate, declared.queries, shared.export_slot(graph_id))


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
