"""Loads in this process, or by the engine that fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.engine import EngineChoice, LoadRequest, run_load
from omnigraph.graph.session import Session
from omnigraph.write.load.input.source import RecordSource
from omnigraph.write.load.input.tables import table_source
from omnigraph.write.load.loader import Loader
from omnigraph.write.load.result import LoadResult
from omnigraph.write.load.workers import LocalLoadWorkers


def load_with(session: Session, engine: EngineChoice, request: LoadRequest) -> LoadResult:
    """Load with the engine that was asked for, or with the one that fits."""
    return run_load(engine, request, lambda: _load_here(session, request))


def _load_here(session: Session, request: LoadRequest) -> LoadResult:
    loader = Loader(request.repository, request.committer, request.embedder)
    if not isinstance(request.data, Mapping):
        source = RecordSource(request.data, request.options.conversion)
        return loader.load(LocalLoadWorkers(source), request.options)
    # Tables usually bring many edges, which are traversed next: the topology is stored at once.
    options = replace(request.options, persists_topology=True)
    tables = table_source(request.data, session.catalog())
    return loader.load(LocalLoadWorkers(tables), options)
