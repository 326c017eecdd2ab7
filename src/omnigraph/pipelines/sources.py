"""Reads the sources of a run: all of them, or what is new since the last published run.

1. Where a read ends is fixed before any row is loaded, so rows that arrive during the run belong
   to the next one.
2. What a source reports of itself (`InputRead`) is shown and stored: it holds no secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import Final

from omnigraph.errors import InvalidInputError
from omnigraph.graph import Graph, OpenMode, all_commits
from omnigraph.lineage.inputs import address, file_hash, files_digest, without_secrets
from omnigraph.pipelines.file.model import Incremental, PipelineFile, Source
from omnigraph.pipelines.file.read import FILE_FORMATS
from omnigraph.pipelines.history import Published, pages_of
from omnigraph.pipelines.record import InputRead, Watermark
from omnigraph.spark.steps import FileInfo, SparkStepError, Workspace
from omnigraph.spark.steps.workspace import mark_literal
from omnigraph.texts import shown

_STORAGE: Final = "storage."
_COMMITS_MAX: Final = "maxcommitspertrigger"
_STARTING: Final = "startingversion"
_OF_A_STREAM: Final = (_COMMITS_MAX, _STARTING)
_PINNED_BY: Final = frozenset({"versionasof", "timestampasof", "readchangefeed"})


class SourceRowsError(InvalidInputError):
    """Rows of an incremental source cannot be placed: the column that orders them is null."""

    code = "OG-PIPELINE-ROWS"
    hint = "fill the column at the source, or read a table that leaves those rows out"
    template = "source '{source}': '{column}' orders its rows and is null in {rows} of them"
    source: str
    rows: int
    column: str


class SourceEmptyError(InvalidInputError):
    """A source has no files yet, and so no columns."""

    code = "OG-PIPELINE-NO-FILES"
    hint = "give the source a `schema:`"
    template = "source '{source}' has no files, so its columns are not known"
    source: str


@dataclass(frozen=True)
class Prepared:
    """The sources of a run: what was found, and where the next run begins."""

    inputs: tuple[InputRead, ...]
    watermarks: Mapping[str, Watermark] = field(default_factory=dict)
    files: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Hashes of the files that this run reads, for sources that read new files."""
    news: Mapping[str, bool] = field(default_factory=dict)
    """Whether there is something to read, by incremental source."""
    moved: bool = False
    """Whether the next run begins elsewhere than this one did."""
    without_columns: tuple[str, ...] = ()
    """Sources that have neither files nor a schema."""
    followed: tuple[str, ...] = ()
    """Types of other graphs of which changes are read, and not all rows."""


@dataclass(frozen=True)
class _Found:
    """What was found of one source."""

    read: InputRead
    watermark: Watermark | None = None
    files: frozenset[str] | None = None
    has_news: bool = True
    moved: bool = False
    has_columns: bool = True
    has_changes: bool = False


def prepare_sources(file: PipelineFile, workspace: Workspace, published: Published) -> Prepared:
    """Make the tables of all sources known, each with the rows that this run reads."""
    heads: dict[tuple[str, str], str] = {}
    found = {
        name: _Preparing(file, source, workspace, published, heads).prepare()
        for name, source in file.sources.items()
    }
    carried = published.watermarks
    marks = {name: one.watermark or carried.get(name) for name, one in found.items()}
    return Prepared(
        inputs=tuple(one.read for one in found.values()),
        watermarks={name: mark for name, mark in marks.items() if mark is not None},
        files={name: one.files for name, one in found.items() if one.files is not None},
        news={
            name: one.has_news
            for name, one in found.items()
            if file.sources[name].incremental is not None
        },
        moved=any(one.moved for one in found.values()),
        without_columns=tuple(name for name, one in found.items() if not one.has_columns),
    )


def prepare_batch(
    file: PipelineFile,
    workspace: Workspace,
    before: Published,
    files: Mapping[str, Sequence[str]] | None = None,
) -> Prepared:
    """Make the tables of a micro-batch known, except the rows of its streams.

    `before` is the micro-batch before it: from there on graphs are followed.
    """
    heads: dict[tuple[str, str], str] = {}
    found = {
        name: _Preparing(file, source, workspace, before, heads).prepare_for_batch()
        for name, source in file.sources.items()
    }
    return Prepared(
        inputs=tuple(
            replace(one.read, files=len(files[name])) if files and name in files else one.read
            for name, one in found.items()
        ),
        watermarks={
            name: one.watermark for name, one in found.items() if one.watermark is not None
        },
        followed=tuple(name for name, one in found.items() if one.has_changes),
    )


def as_batch(file: PipelineFile) -> PipelineFile:
    """Return a file whose streams are read as by the first run of a pipeline without a trigger."""
    kinds = {one.name: _as_batch(one) if one.is_stream else one for one in file.sources.values()}
    return replace(file, sources=kinds)


def _as_batch(source: Source) -> Source:
    if source.is_followed:
        return replace(followed_read(source), incremental=Incremental("version"))
    if source.format in FILE_FORMATS:
        return replace(source, incremental=Incremental("new_files"))
    return source


def graph_of(source: Source) -> tuple[str, str]:
    """Return the graph and branch that a source reads."""
    options = {name.lower(): value for name, value in source.options.items()}
    return source.paths[0], options.get("branch", "main")


def followed_read(source: Source) -> Source:
    """Return how the rows of a followed type are read."""
    return _without(source, *_OF_A_STREAM)


def noticed_read(file: PipelineFile, source: Source) -> Source:
    """Return how a stream notices that a followed graph has new commits."""
    read = _with(followed_read(source), readChangeFeed="true", startingVersion="latest")
    commits_max = _commits_max(file, source)
    return _with(read, maxCommitsPerTrigger=str(commits_max)) if commits_max else read


def _commits_max(file: PipelineFile, source: Source) -> int:
    """Return how many commits of a graph a micro-batch reads at most; 0 for all of them.

    All types of a graph are read up to the same commit, so the smallest number counts.
    """
    given = [
        int(value)
        for one in file.sources.values()
        if one.is_followed and graph_of(one) == graph_of(source)
        for name, value in one.options.items()
        if name.lower() == _COMMITS_MAX
    ]
    return min(given, default=0)


def has_nothing_new(file: PipelineFile, prepared: Prepared) -> bool:
    """Whether all sources are incremental and none of them has news."""
    return len(prepared.news) == len(file.sources) and not any(prepared.news.values())


class _Preparing:
    """Prepares one source."""

    def __init__(
        self,
        file: PipelineFile,
        source: Source,
        workspace: Workspace,
        published: Published,
        heads: dict[tuple[str, str], str],
    ) -> None:
        self._file = file
        self._source = source
        self._workspace = workspace
        self._published = published
        self._heads = heads
        """Where reads of graphs end: the same for all types of one graph."""
        self._mark = published.watermarks.get(source.name)

    def prepare(self) -> _Found:
        incremental = self._source.incremental
        if incremental is None:
            return self._whole()
        if self._mark is not None and self._mark.kind != incremental.kind:
            # The file asks for another way than the last run went: it begins anew.
            self._mark = None
        if incremental.kind == "by":
            return self._by(incremental)
        return self._new_files() if incremental.kind == "new_files" else self._changes()

    def prepare_for_batch(self) -> _Found:
        """Prepare a source of a stream; new rows of a stream are tables already."""
        if self._source.is_followed:
            return self._followed()
        return _Found(self._described()) if self._source.is_stream else self._whole()

    def _described(
        self,
        *,
        version: str | None = None,
        rows: int | None = None,
        files: Sequence[FileInfo] | None = None,
    ) -> InputRead:
        source = self._source
        uri = shown(source.table) if source.table else ", ".join(map(address, source.paths))
        if source.format == "jdbc":
            query = source.options.get("dbtable") or source.options.get("query")
            uri = shown(f"{without_secrets(source.options['url'])}#{query}")
        elif source.format == "omnigraph":
            kind = "node" if "node" in source.options else "edge"
            type_name = source.options.get(kind)
            uri += "" if type_name is None else f"#{kind}:{type_name}"
            uri += "" if version is None else f"@{version}"
        uri = self._file.variables.hide(uri)
        if files is None:
            return InputRead(source.name, uri, source.format, version, rows)
        size = sum(one.bytes for one in files)
        return InputRead(
            source.name,
            uri,
            source.format,
            rows=rows,
            bytes=size,
            files=len(files),
            digest=files_digest(map(_hash, files)),
        )

    # -- everything -------------------------------------------------------------------------------

    def _whole(self) -> _Found:
        read = self._source
        if self._source.format in FILE_FORMATS:
            files = self._workspace.files(read)
            self._workspace.add_source(read)
            return _Found(self._described(files=files))
        if self._source.format == "omnigraph" and not self._is_pinned:
            head = self._head()
            self._workspace.add_source(_with(read, versionAsOf=head))
            return _Found(self._described(version=head))
        self._workspace.add_source(read)
        return _Found(self._described())

    @property
    def _is_pinned(self) -> bool:
        return bool(_PINNED_BY & {name.lower() for name in self._source.options})

    # -- by a column ------------------------------------------------------------------------------

    def _by(self, incremental: Incremental) -> _Found:
        name, column, workspace = self._source.name, incremental.by, self._workspace
        workspace.add_source(self._source)
        sql_type = workspace.mark_type(name, column)
        after = least = None
        if self._mark is not None:
            after = mark_literal(self._mark.value, sql_type, incremental.overlap_s)
            least = mark_literal(self._mark.value, sql_type)
        high = workspace.high_mark(name, column, after=after, least=least)
        if high.rows_without:
            raise SourceRowsError(name, high.rows_without, column)
        if high.value is None or high.mark is None:
            workspace.leave_no_row(name)
            return _Found(self._described(rows=0), self._mark, has_news=False)
        workspace.narrow(name, column, after, mark_literal(high.value, sql_type))
        mark = Watermark("by", high.mark, sql_type)
        moved = self._mark is None or mark.value != self._mark.value
        return _Found(self._described(rows=high.rows), mark, moved=moved)

    # -- by files ---------------------------------------------------------------------------------

    def _new_files(self) -> _Found:
        name, workspace, read = self._source.name, self._workspace, self._source
        files = self._listed()
        seen = self._published.files(name)
        new = [one for one in files if _hash(one) not in seen]
        described = self._described(files=new)
        if not new:
            if files:
                workspace.add_source(read)
                workspace.leave_no_row(name)
            elif read.schema is not None:
                workspace.add_empty(name, read.schema)
            has_columns = bool(files) or read.schema is not None
            none: frozenset[str] = frozenset()
            return _Found(described, self._mark, none, has_news=False, has_columns=has_columns)
        options = dict(read.options)
        if len(read.paths) == 1 and not read.is_pattern:
            # Without it, columns that are names of folders would be lost.
            options.setdefault("basePath", read.paths[0])
        paths = tuple(one.path for one in new)
        workspace.add_source(replace(read, paths=paths, options=options))
        newest = max(one.modified_us for one in new)
        mark = Watermark("new_files", datetime.fromtimestamp(newest / 1e6, UTC).isoformat())
        return _Found(described, mark, frozenset(_hash(one) for one in new), moved=True)

    def _listed(self) -> list[FileInfo]:
        try:
            return self._workspace.files(self._source)
        except SparkStepError:
            if self._source.is_pattern:
                # No file matches yet.
                return []
            raise

    # -- by commits of another graph --------------------------------------------------------------

    def _changes(self) -> _Found:
        name, read, head = self._source.name, self._source, self._head()
        mark = Watermark("version", head)
        described = self._described(version=head)
        if self._mark is None:
            self._workspace.add_source(_with(read, versionAsOf=head))
            return _Found(described, mark, moved=True)
        start = self._mark.value
        if start == head:
            self._workspace.add_source(_with(read, versionAsOf=head))
            self._workspace.leave_no_row(name)
            return _Found(described, mark, has_news=False)
        feed = _with(read, readChangeFeed="true", startingVersion=start, endingVersion=head)
        self._workspace.add_source(feed)
        self._workspace.fold_changes(name, start)
        return _Found(described, mark, moved=True)

    def _followed(self) -> _Found:
        """Read what has changed since the micro-batch before; at first all rows."""
        source, name = self._source, self._source.name
        options = {key.lower(): value for key, value in source.options.items()}
        read = followed_read(source)
        starting = options.get(_STARTING)
        start = None if self._mark is None else self._mark.value
        end = self._head(start, _commits_max(self._file, source))
        self._workspace.keep_source(_with(read, versionAsOf=end))
        found = _Found(self._described(version=end), Watermark("version", end))
        begins = start is None and starting is not None and starting != "latest"
        if start == end or (start is None and starting == "latest"):
            self._workspace.add_source(_with(read, versionAsOf=end))
            self._workspace.leave_no_row(name)
            return found
        if start is None and not begins:
            self._workspace.add_source(_with(read, versionAsOf=end))
            return found
        first = start or starting or ""
        feed = _with(read, readChangeFeed="true", startingVersion=first, endingVersion=end)
        self._workspace.add_source(feed)
        self._workspace.fold_changes(name, start)
        return replace(found, has_changes=True)

    def _head(self, after: str | None = None, commits_max: int = 0) -> str:
        """Return where a read of the graph that is the source ends: at its newest commit.

        With a maximum, at most so many commits after another one.
        """
        key = graph_of(self._source)
        if key not in self._heads:
            self._heads[key] = self._look_up_head(*key, after, commits_max)
        return self._heads[key]

    def _look_up_head(self, path: str, branch: str, after: str | None, commits_max: int) -> str:
        storage = {
            key[len(_STORAGE) :]: value
            for key, value in self._source.options.items()
            if key.lower().startswith(_STORAGE)
        }
        with Graph.open(
            path, branch=branch, mode=OpenMode.READ_ONLY, storage_options=storage or None
        ) as graph:
            if after is None or not commits_max:
                return graph.commits.head_id()
            newer = takewhile(
                lambda commit: commit.graph_commit_id != after,
                all_commits(pages_of(graph, branch)),
            )
            ids = [commit.graph_commit_id for commit in newer]
            return ids[max(len(ids) - commits_max, 0)] if ids else after


def _with(read: Source, **options: str) -> Source:
    return replace(read, options={**read.options, **options})


def _without(read: Source, *names: str) -> Source:
    kept = {key: value for key, value in read.options.items() if key.lower() not in names}
    return replace(read, options=kept)


def _hash(one: FileInfo) -> str:
    return file_hash(one.path, one.bytes, one.modified_us)
