"""Which engine does bulk work: this process, or one that an optional package has registered.

1. This module imports no engine. `omnigraph.spark.engine` registers itself when it is imported, and
   is imported only when a caller needs it.
2. `auto` takes the other engine when the caller passes one of its tables or sessions, when a
   cluster is configured and the input is in files, or when this process should not take the work
   (`weigh`) and the engine can start here. Inputs that only this process can read stay here.
3. The choice and its reason are part of the result; a choice of the other engine is logged.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import StrEnum
from importlib import import_module
from typing import Any, Final, Protocol, TypeAlias

from omnigraph.dataclass import dataclass
from omnigraph.engine.late import exporter, maintenance, merging, selections
from omnigraph.engine.memory import available_bytes
from omnigraph.engine.weigh import decide, weigh
from omnigraph.errors import InvalidInputError, OmnigraphError
from omnigraph.manifest import Repository, Snapshot
from omnigraph.names import choice
from omnigraph.progress import Report
from omnigraph.write.commit.committer import Committer
from omnigraph.write.embed.row_embedder import RowEmbedder
from omnigraph.write.load.formats.description import is_objects, spark_reason
from omnigraph.write.load.formats.kinds import Format
from omnigraph.write.load.input.source import RecordInput
from omnigraph.write.load.options import LoadOptions, LoadOptionsError
from omnigraph.write.load.result import LoadResult

_log = logging.getLogger(__name__)

MIN_BYTES: Final = 64 << 20
_MIN_BYTES_NAME: Final = "OMNIGRAPH_SPARK_MIN_BYTES"
_CLUSTER_SETTINGS: Final = ("SPARK_REMOTE", "OMNIGRAPH_SPARK_MASTER")
_ENGINE_MODULE: Final = "omnigraph.spark.engine"
_ASKED: Final = "the caller asked for it"


class EngineChoice(StrEnum):
    """What a caller may ask for."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


BulkTable: TypeAlias = object
"""A table of one type that some engine can read."""


@dataclass(frozen=True)
class LoadRequest:
    """A load that any engine could do.

    `data` is paths of graph records, or a mapping of type names to tables, paths or descriptions of
    sources. `session` is where the caller wants it to run.
    """

    repository: Repository
    committer: Committer
    data: RecordInput | Mapping[str, BulkTable]
    options: LoadOptions
    session: object | None = None
    order_by: tuple[str, ...] = ()
    shows_progress: bool = False
    report: Report | None = None
    cancelled: threading.Event | None = None
    """Once it is set, a job that has not committed ends with an error."""
    embedder: RowEmbedder | None = None
    """Fills the vectors that `@embed` asks for."""
    form: Format | None = None
    """The format of files, where the caller names it."""
    on_start: Callable[[], None] | None = None
    """Is called before another engine begins."""


@dataclass(frozen=True)
class FrameRequest:
    """Rows of one snapshot that a caller wants as a table of the engine.

    `subject` names one type, or is None for all nodes and edges together.
    """

    repository: Repository
    snapshot: Snapshot
    session: object
    subject: str | None = None
    columns: tuple[str, ...] | None = None
    where: str | None = None
    edges: tuple[str, ...] | None = None


@dataclass(frozen=True)
class DiffRequest:
    """Two snapshots to be compared."""

    repository: Repository
    before: Snapshot
    after: Snapshot
    selection: selections.Selection
    session: object | None = None


class BulkEngine(Protocol):
    """An engine that does bulk work outside of this process."""

    @property
    def name(self) -> str:
        """What results call it."""
        ...

    def problem(self) -> str | None:
        """Return in one sentence why it cannot run here, or None."""
        ...

    def is_running(self) -> bool:
        """Whether work can begin without starting anything."""
        ...

    def load(self, request: LoadRequest) -> LoadResult:
        """Load."""
        ...

    def frame(self, request: FrameRequest) -> Any:
        """Return rows as a table of the engine."""
        ...

    def changes(self, request: DiffRequest) -> Iterator[dict[str, Any]]:
        """Yield what differs between two snapshots, in the order and form of this process."""
        ...

    def changes_frame(self, request: DiffRequest) -> Any:
        """Return what differs between two snapshots as a table of the engine."""
        ...

    def maintenance_workers(
        self, repository: Repository, *, session: object | None, shows_progress: bool
    ) -> AbstractContextManager[maintenance.MaintenanceWorkers]:
        """Lend workers that rewrite fragments and build index segments for one run."""
        ...

    def merge_workers(
        self, repository: Repository, snapshots: Sequence[Snapshot], *, session: object | None
    ) -> AbstractContextManager[merging.MergeWorkers]:
        """Lend workers that compare and write rows for one merge of some snapshots."""
        ...

    def export(
        self,
        plan: exporter.ExportPlan,
        repository: Repository,
        *,
        session: object | None,
        shows_progress: bool,
    ) -> exporter.ExportResult:
        """Write the files of an export."""
        ...


class EngineMissingError(InvalidInputError):
    """The asked engine is not installed, or cannot do what was asked."""

    code = "OG-ENGINE"
    hint = "`--engine local` runs in this process"
    template = "engine '{engine}': {reason}"
    engine: str
    reason: str


class LoadCancelledError(OmnigraphError):
    """Whoever asked for a load no longer wants it; nothing was written."""

    code = "OG-LOAD-CANCELLED"
    hint = "run it again"
    template = "the load was cancelled"


class EngineDeclinedError(EngineMissingError):
    """The engine has met something that only this process can do; nothing was committed."""

    code = "OG-ENGINE-DECLINED"


_engines: dict[str, BulkEngine] = {}


def register(engine: BulkEngine) -> None:
    """Make an engine known; called by the package that has it."""
    _engines[engine.name] = engine


def engine_named(name: str) -> BulkEngine:
    """Return an engine, importing its package on first use."""
    if name not in _engines:
        try:
            import_module(_ENGINE_MODULE)
        except ImportError as error:
            missing = EngineMissingError(name, f"it is not installed ({error})")
            extra = f"`pip install 'omnigraph[{name}]'` installs it"
            missing.hint = f"{extra}, `--engine local` runs in this process"
            raise missing from error
    if name not in _engines:
        raise EngineMissingError(name, "no installed package has it")
    return _engines[name]


# -- choosing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """The engine to use, and why it was chosen."""

    engine: EngineChoice
    reason: str = ""


def choose(
    asked: EngineChoice,
    data: object,
    *,
    session: object | None = None,
    only_local: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Choice:
    """Choose an engine for a load; `only_local` is the reason why no other can read the input."""
    environ = os.environ if environment is None else environment
    if only_local is not None:
        if asked is EngineChoice.SPARK:
            raise EngineMissingError("spark", only_local)
        return Choice(EngineChoice.LOCAL, only_local)
    if asked is not EngineChoice.AUTO:
        return Choice(asked, _ASKED)
    setting = next((name for name in _CLUSTER_SETTINGS if environ.get(name)), None)
    if session is not None or _has_foreign_table(data):
        return Choice(EngineChoice.SPARK, "the caller handed a table or session of Spark")
    weight = weigh(data)
    if setting is not None and not weight.is_in_memory:
        return Choice(EngineChoice.SPARK, f"{setting} is set")
    verdict = decide(
        weight, least=_min_bytes(environ), memory=available_bytes, is_running=_is_running
    )
    if not verdict.is_too_much:
        return Choice(EngineChoice.LOCAL, verdict.reason)
    return _if_it_runs(verdict.reason)


def _is_running() -> bool:
    """Whether a session of Spark runs in this process; never imports PySpark to find out."""
    return "pyspark" in sys.modules and engine_named("spark").is_running()


def _if_it_runs(reason: str) -> Choice:
    """Choose the other engine if it can run here."""
    try:
        problem = engine_named("spark").problem()
    except EngineMissingError as error:
        problem = str(error)
    if problem is None:
        return Choice(EngineChoice.SPARK, reason)
    return Choice(EngineChoice.LOCAL, f"{reason}, and Spark cannot run here: {problem}")


def bulk_engine(
    asked: str, size: Callable[[], int], *, session: object | None = None
) -> BulkEngine | None:
    """Return the engine for work on stored data, or None for this process; log why.

    `size` is called only when it matters. A configured cluster alone is no reason to start a job
    for what this process does in a moment.
    """
    chosen = Choice(choice(EngineChoice, asked, "engine"))
    if chosen.engine is EngineChoice.AUTO:
        handed = Choice(EngineChoice.SPARK, "the caller handed a session of Spark")
        chosen = _by_size(size(), os.environ) if session is None else handed
    note(chosen)
    return None if chosen.engine is EngineChoice.LOCAL else engine_named(chosen.engine)


def _by_size(size: int, environ: Mapping[str, str]) -> Choice:
    limit = _min_bytes(environ)
    least = MIN_BYTES if limit is None else limit
    if size <= least:
        return Choice(EngineChoice.LOCAL)
    return _if_it_runs(f"the work has more than {least} bytes")


def note(chosen: Choice) -> None:
    """Log why an engine was chosen, unless the caller chose it."""
    if chosen.reason and chosen.reason != _ASKED:
        is_usual = chosen.engine is EngineChoice.LOCAL
        level = logging.DEBUG if is_usual else logging.INFO
        _log.log(level, "engine %s: %s", chosen.engine, chosen.reason)


def run_load(
    asked: EngineChoice,
    request: LoadRequest,
    local: Callable[[], LoadResult],
) -> LoadResult:
    """Load with the engine that fits; `local` does it in this process."""
    chosen = choose(asked, request.data, session=request.session, only_local=_only_local(request))
    note(chosen)
    if chosen.engine is EngineChoice.LOCAL:
        if request.order_by:
            raise LoadOptionsError("`order_by` is for tables of Spark")
        return replace(local(), engine_reason=chosen.reason)
    bulk = engine_named(chosen.engine)
    if request.on_start is not None:
        request.on_start()
    try:
        return replace(bulk.load(request), engine_reason=chosen.reason)
    except EngineDeclinedError as error:
        if request.order_by or _has_foreign_table(request.data):
            raise
        note(Choice(EngineChoice.LOCAL, error.reason))
        return replace(local(), engine_reason=error.reason)


def _only_local(request: LoadRequest) -> str | None:
    """Return why only this process can do a load, or None."""
    if request.options.is_dry_run:
        return "dry runs are done in this process only"
    data = request.data
    tables = data.values() if isinstance(data, Mapping) else [data]
    # Tables of Spark would give every row every property.
    is_here = any(map(is_objects, tables))
    if is_here or not isinstance(data, Mapping | str | os.PathLike | list | tuple):
        return "records in memory are loaded in this process"
    return None


def _has_foreign_table(data: object) -> bool:
    """Whether only the other engine can read some table."""
    if not isinstance(data, Mapping):
        return False
    return any(spark_reason(table) is not None for table in data.values())


def _min_bytes(environ: Mapping[str, str]) -> int | None:
    """Return the limit that is set, if one is."""
    text = environ.get(_MIN_BYTES_NAME, "")
    try:
        return int(text) if text else None
    except ValueError:
        problem = f"{_MIN_BYTES_NAME} is '{text}'; expected a number of bytes"
        raise LoadOptionsError(problem) from None
