"""Loads in this process, or by the engine that fits."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from omnigraph.engine import EngineChoice, LoadRequest, run_load
from omnigraph.graph.session import Session
from omnigraph.lineage.openlineage import PIPELINE
from omnigraph.lineage.transport import LongJob
from omnigraph.manifest.errors import BranchNotFoundError
from omnigraph.manifest.layout import Incarnation
from omnigraph.names import BranchName
from omnigraph.policy import Action
from omnigraph.progress import Progress
from omnigraph.schema import Catalog
from omnigraph.write.load.formats.exported import exported_input
from omnigraph.write.load.input.source import RecordInput, RecordSource
from omnigraph.write.load.input.table_source import table_source
from omnigraph.write.load.loader import Loader
from omnigraph.write.load.options import LoadOptions
from omnigraph.write.load.result import LoadResult
from omnigraph.write.load.workers import LocalLoadWorkers


def load_target(
    session: Session, branch: str | None, source: BranchName | None, actor_id: str | None
) -> Incarnation | BranchName:
    """Return where to load: a branch that exists, or a name; decide about one that is made.

    Under a policy a name stands for a branch that may be made. An existing branch is resolved here,
    so that one that disappears meanwhile is not made again without a decision.
    """
    if branch is None:
        return session.binding.get()
    name = BranchName.parse(branch)
    if source is None or session.gate.policy is None:
        return name
    try:
        return session.resolve(str(name))
    except BranchNotFoundError:
        session.authorize(
            Action.BRANCH_CREATE, branch=str(source), target_branch=str(name), actor_id=actor_id
        )
        return name


LoadData: TypeAlias = "RecordInput | Mapping[str, object]"


def load_data(data: LoadData, session: Session) -> LoadData:
    """Return the input of a load; a folder that an export wrote stands for the files in it."""
    if not isinstance(data, str | os.PathLike):
        return data
    found = exported_input(os.fspath(data), session.repository.store.settings.storage_options)
    return data if found is None else found


def load_with(session: Session, engine: EngineChoice, request: LoadRequest) -> LoadResult:
    """Load with the engine that was asked for, or with the one that fits."""
    if session.live is None or request.options.is_dry_run:
        return run_load(engine, request, lambda: _load_here(session, request))
    clock, options = session.repository.clock, request.options
    job = options.job.of_run(clock.ulid())
    with LongJob(session.live, job, "LOAD", clock.now_us) as long_job:
        # A pipeline reports its whole run.
        begin = None if job.namespace == PIPELINE else long_job.begin
        reporting = replace(request, options=replace(options, job=job), on_start=begin)
        result = run_load(engine, reporting, lambda: _load_here(session, reporting))
        long_job.has_commit = result.commit is not None
    return result


def _target_catalog(session: Session, options: LoadOptions) -> Catalog:
    """Return what the branch that is loaded into declares, or the one that it will be cut from."""
    history, branches = session.repository.history, session.repository.branches
    if isinstance(options.target, Incarnation):
        return history.snapshot(options.target).catalog
    try:
        return history.snapshot(branches.resolve(options.target)).catalog
    except BranchNotFoundError:
        if options.from_branch is None:
            raise
        return history.snapshot(branches.resolve(options.from_branch)).catalog


def _load_here(session: Session, request: LoadRequest) -> LoadResult:
    stream = sys.stderr if request.shows_progress else None
    progress = Progress(stream, request.report)
    loader = Loader(request.repository, request.committer, request.embedder, progress)
    if not isinstance(request.data, Mapping):
        source = RecordSource(
            request.data,
            request.options.conversion,
            form=request.form,
            storage_options=session.repository.store.settings.storage_options,
        )
        return loader.load(LocalLoadWorkers(source), request.options)
    # Tables usually bring many edges, which are traversed next: the topology is stored at once.
    options = replace(request.options, persists_topology=True)
    tables = table_source(
        request.data,
        _target_catalog(session, request.options),
        form=request.form,
        storage_options=session.repository.store.settings.storage_options,
    )
    return loader.load(LocalLoadWorkers(tables), options)
