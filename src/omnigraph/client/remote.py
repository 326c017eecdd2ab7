"""A graph of a server, synchronously."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import chain
from typing import Any, Concatenate, Final, Literal, NoReturn, ParamSpec, Self, TypeVar

import httpx2
import orjson

from omnigraph.client import calls
from omnigraph.client.blobs import BlobPart
from omnigraph.client.calls import Target
from omnigraph.client.exports import FolderExport
from omnigraph.client.http import (
    BROKEN,
    NOT_FOUND,
    TIMEOUT,
    Answer,
    HttpCall,
    Lines,
    StreamBrokenError,
    headers_of,
    segment,
)
from omnigraph.client.refusals import NeedsStorageError, refuse_engine
from omnigraph.client.snapshot import RemoteSnapshot
from omnigraph.errors import InvalidInputError
from omnigraph.graph import (
    BYTES_AT_ONCE,
    BlobStat,
    ByteRange,
    ExportResult,
    Graph,
    GraphCommit,
    Selection,
    commits_since,
    type_asked_for,
)
from omnigraph.lineage.openlineage import Event, events_of
from omnigraph.lineage.trace import (
    STEPS_MAX,
    Direction,
    KnownCommits,
    Trace,
    parse_subject,
    steps_of,
    trace,
    trace_of_commit,
    writes_type,
)
from omnigraph.lineage.transport import Emitted, emit_events
from omnigraph.names import MAIN, choice
from omnigraph.texts import shown

P = ParamSpec("P")
T = TypeVar("T")
_GRAPHS: Final = "/graphs/"
_PARTS: Final = ("maintenance", "recovery")
"""The parts of a local graph that work on its storage."""
BASELINE: Final = b'{"baseline":'


class NoGraphNamedError(InvalidInputError):
    """A server serves several graphs, and none was named."""

    code = "OG-NO-GRAPH-NAMED"
    hint = "give `graph=`, or an address that ends with /graphs/ID"
    template = "{url} is a server: which of its graphs?"
    url: str


def connect(
    url: str, *, graph: str | None = None, token: str | None = None, verify: bool | str = True
) -> RemoteGraph:
    """Return a graph of a server.

    `url` is the address of the server, with `graph`, or that of the graph. `verify` is as for
    httpx: a file of certificates to trust, or False to trust any.
    """
    return RemoteGraph(graph_url(url, graph), token=token, verify=verify)


def graph_url(url: str, graph: str | None) -> str:
    """Return the address of a graph.

    >>> graph_url("http://127.0.0.1:8080/", "people")
    'http://127.0.0.1:8080/graphs/people'
    """
    base = url.rstrip("/")
    if graph is not None:
        return f"{base}{_GRAPHS}{segment(graph)}"
    if _GRAPHS not in base:
        raise NoGraphNamedError(url)
    return base


def served_graphs(url: str, *, token: str | None = None) -> list[dict[str, str]]:
    """Return `graph_id` and `uri` of the graphs that a server serves."""
    connection = Connection(url.rstrip("/"), token=token)
    try:
        return connection.send(calls.list_graphs())
    finally:
        connection.close()


class Connection:
    """Sends calls. A read is repeated once when a kept connection was closed, a write never."""

    def __init__(
        self, url: str, *, token: str | None = None, verify: bool | str = True, http: Any = None
    ) -> None:
        self.url = url
        self._http = httpx2.Client(
            base_url=f"{url}/",
            headers=headers_of(token),
            timeout=TIMEOUT,
            verify=verify,
            transport=http,
            follow_redirects=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: HttpCall[T]) -> T:
        """Send a call and return its result."""
        found = self._sent(call)
        answer = Answer(found.status_code, found.headers, found.content)
        if call.method == "HEAD" and call.is_refused(answer.status):
            # The answer to HEAD has no text; that to GET has it.
            return self.send(replace(call, method="GET"))
        return call.result(answer)

    @contextmanager
    def stream(self, call: HttpCall[Any]) -> Iterator[httpx2.Response]:
        """Open an answer that is read in parts."""
        found = self._sent(call, stream=True)
        try:
            if call.is_refused(found.status_code):
                raise call.error(found.status_code, found.read())
            yield found
        except httpx2.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise StreamBrokenError(self.url, reason) from error
        finally:
            found.close()

    def lines(self, call: HttpCall[Any]) -> Iterator[bytes]:
        """Return the lines of an answer; an error that stands for it raises at once."""
        lines = self._lines(call)
        return chain([first for first in (next(lines, b""),) if first], lines)

    def _lines(self, call: HttpCall[Any]) -> Iterator[bytes]:
        cut = Lines()
        with self.stream(call) as found:
            for chunk in found.iter_raw():
                yield from cut.of(chunk)
        if cut.rest:
            yield cut.rest

    def _sent(self, call: HttpCall[Any], *, stream: bool = False) -> httpx2.Response:
        found = self._answered(call, stream=stream)
        if found.status_code != NOT_FOUND:
            return found
        tagged = call.with_tag(found.status_code, found.read())
        if tagged is None:
            return found
        other = self._sent(tagged, stream=stream)
        if other.status_code == NOT_FOUND and call.finds_no_tag(other.status_code, other.read()):
            return found
        return other

    def _answered(self, call: HttpCall[Any], *, stream: bool) -> httpx2.Response:
        try:
            try:
                return self._http.send(call.request(self._http), stream=stream)
            except BROKEN:
                if not call.is_read:
                    raise
                return self._http.send(call.request(self._http), stream=stream)
        except httpx2.HTTPError as error:
            raise call.failure(error, self.url) from error


class Part:
    """A part of a served graph."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection


def sent(make: Callable[P, HttpCall[T]]) -> Callable[Concatenate[Part, P], T]:
    """Return the method that sends what a function of `calls` makes."""

    @wraps(make)
    def method(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._connection.send(make(*args, **kwargs))

    return with_self(method, make)


def lined(make: Callable[P, HttpCall[None]]) -> Callable[Concatenate[Part, P], Iterator[bytes]]:
    """Return the method that yields the lines of an answer."""

    @wraps(make)
    def method(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[bytes]:
        return self._connection.lines(make(*args, **kwargs))

    return with_self(method, make)


M = TypeVar("M", bound=Callable[..., Any])


def with_self(method: M, make: Callable[..., Any]) -> M:
    """Give a method the parameters of the function that it stands for."""
    own = signature(make)
    first = Parameter("self", Parameter.POSITIONAL_ONLY)
    parameters = [first, *own.parameters.values()]
    vars(method)["__signature__"] = Signature(parameters)
    return method


@dataclass(frozen=True)
class RemoteBlob:
    """One Blob value that is not null."""

    stat: BlobStat
    _call: HttpCall[BlobStat]
    _connection: Connection

    def chunks(self, wanted: ByteRange | None = None) -> Iterator[bytes]:
        """Yield the bytes of a range, by default all, in parts of at most 4 MiB."""
        part = BlobPart.of(self._call, self.stat, wanted)
        return iter(()) if part is None else self._parts(part)

    def read(self) -> bytes:
        """Return all bytes at once."""
        return b"".join(self.chunks())

    def _parts(self, part: BlobPart) -> Iterator[bytes]:
        count, url = 0, self._connection.url
        with self._connection.stream(part.call) as found:
            part.check(url, found.status_code, found.headers)
            for chunk in found.iter_raw(BYTES_AT_ONCE):
                count += len(chunk)
                yield chunk
        part.check_length(url, count)


@dataclass(frozen=True)
class RemoteDiff:
    """What differs between two states, asked for when its rows are."""

    _changes: RemoteChanges
    before: Target
    after: Target
    selection: Selection | None

    def rows(
        self, *, engine: str = "auto", spark: object | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield what differs, with the rows of both sides."""
        return self._changes.between(
            self.before, self.after, self.selection, engine=engine, spark=spark
        )


class RemoteBranches(Part):
    """Lists, creates, deletes and merges the branches of a graph."""

    create = sent(calls.branch_create)
    create_from = sent(calls.branch_create_from)
    list = sent(calls.branch_list)
    delete = sent(calls.branch_delete)
    merge = sent(calls.branch_merge)

    def conflicts(self, source: str, target: str = MAIN, *, strategy: str = "row") -> Iterator[str]:
        """Yield a line of JSON for every row in conflict, with its images on all sides."""
        lines = self._connection.lines(calls.merge_conflicts(source, target, strategy=strategy))
        return (line.decode().removesuffix("\n") for line in lines)


class RemoteCommits(Part):
    """Lists, finds and reverts commits."""

    list = sent(calls.list_commits)
    get = sent(calls.get_commit)
    head_id = sent(calls.head_commit_id)
    revert = sent(calls.commit_revert)


class RemoteTags(Part):
    """Names commits and keeps their versions."""

    create = sent(calls.tag_create)
    delete = sent(calls.tag_delete)
    list = sent(calls.tag_list)


class RemoteChanges(Part):
    """Finds what changed between two states, in a commit, or since a cursor."""

    of_commit = sent(calls.commit_changes)
    poll = sent(calls.poll_changes)

    def between(
        self,
        before: Target,
        after: Target,
        selection: Selection | None = None,
        *,
        engine: str = "auto",
        spark: object | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield what differs between two states, with the rows of both sides."""
        call = calls.changes_between(before, after, selection, engine=engine, spark=spark)
        return map(orjson.loads, self._connection.lines(call))

    def diff(self, before: Target, after: Target, selection: Selection | None = None) -> RemoteDiff:
        """Return what differs between two states, as rows."""
        return RemoteDiff(self, before, after, selection)

    def baseline(
        self, *, branch: str | None = None, selection: Selection | None = None
    ) -> tuple[Iterator[bytes], dict[str, str]]:
        """Return every entity of a branch as lines of JSON, and where the feed goes on after them.

        The second part is filled when all lines have come: use it only then.
        """
        handshake: dict[str, str] = {}
        lines = self._connection.lines(calls.baseline(branch=branch, selection=selection))
        return self._records(lines, handshake), handshake

    def _records(self, lines: Iterator[bytes], handshake: dict[str, str]) -> Iterator[bytes]:
        for line in lines:
            if line.startswith(BASELINE):
                handshake |= orjson.loads(line)["baseline"]
            else:
                yield line
        if not handshake:
            raise StreamBrokenError(self._connection.url, "its last line has not come")


class RemoteSchema(Part):
    """Shows and applies the schema of a graph."""

    source = sent(calls.schema_source)
    catalog = sent(calls.catalog)
    diff = sent(calls.schema_diff)
    apply = sent(calls.apply_schema)
    apply_file = sent(calls.apply_schema_file)


class RemoteLineage(Part):
    """Answers from the commits of a server where rows came from."""

    def show(
        self,
        subject: str,
        *,
        direction: str = Direction.UP,
        branch: str | None = None,
        limit: int = STEPS_MAX,
    ) -> Trace:
        """Return the commits that a commit or a type came from (`up`), or that read it (`down`).

        A commit without lineage does not say which types it wrote, and is not among them.
        """
        way, asked = choice(Direction, direction, "direction"), parse_subject(subject)
        if asked.entity_id is not None:
            reason = "a server does not tell which version wrote a row"
            raise NeedsStorageError("the lineage of a row", reason)
        if asked.commit_id is not None:
            found = trace_of_commit(self._known(), asked.commit_id, way)
            return trace(asked, way, *found, limit=limit)
        name = type_asked_for(asked, self._connection.send(calls.catalog(branch=branch))).name
        prop = asked.property_name
        if way is Direction.DOWN:
            commits = self._known().readers_of_type(name, prop)
        else:
            listed = self._connection.send(calls.list_commits(branch))
            commits = [one for one in listed if writes_type(one, name, prop)]
        return trace(asked, way, list(steps_of(commits)), [], limit=limit)

    def events(self, *, since: str | None = None, branch: str | None = None) -> Iterator[Event]:
        """Yield the OpenLineage events of the commits of a branch, oldest first."""
        listed = self._connection.send(calls.list_commits(branch))
        for commit in commits_since(listed, since):
            yield from events_of(commit, self._connection.url)

    def emit(
        self, to: str | None = None, *, since: str | None = None, branch: str | None = None
    ) -> Emitted:
        """Send the events of a branch to `file:DIR` or a URL, from this machine."""
        return emit_events(to, self.events(since=since, branch=branch))

    def _known(self) -> KnownCommits:
        commits: dict[str, GraphCommit] = {}
        for name in self._connection.send(calls.branch_list()):
            listed = self._connection.send(calls.list_commits(name))
            commits |= {one.graph_commit_id: one for one in listed}
        return KnownCommits(commits)


class RemoteGraph(Part):
    """A graph of a server. Its methods are those of `Graph`, and so are results and errors.

    The server takes the actor of a write from the token. Safe to share between threads. What
    needs storage at hand (`optimize`, `to_spark` and so on) is an error of its own.
    """

    def __init__(
        self, url: str, *, token: str | None = None, verify: bool | str = True, http: Any = None
    ) -> None:
        """Use `connect`. `http` replaces the transport, for tests."""
        super().__init__(Connection(url, token=token, verify=verify, http=http))
        self.branches = RemoteBranches(self._connection)
        self.commits = RemoteCommits(self._connection)
        self.tags = RemoteTags(self._connection)
        self.changes = RemoteChanges(self._connection)
        self.schema = RemoteSchema(self._connection)
        self.lineage = RemoteLineage(self._connection)

    @property
    def uri(self) -> str:
        """The address of the graph."""
        return self._connection.url

    @property
    def branch(self) -> str:
        """The branch that calls mean which name none."""
        return MAIN

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteGraph({shown(self.uri)!r})"

    def __getattr__(self, name: str) -> NoReturn:
        if name not in _PARTS and (name.startswith("_") or not hasattr(Graph, name)):
            raise AttributeError(f"'RemoteGraph' has no attribute {name!r}")
        raise NeedsStorageError(f"`{name}`")

    # -- reading and writing ----------------------------------------------------------------------

    snapshot = sent(calls.snapshot)
    snapshot_of = sent(calls.snapshot_of)
    query = sent(calls.query)
    list_queries = sent(calls.list_queries)
    export_lines = lined(calls.export_lines)
    mutate = sent(calls.mutate)
    load = sent(calls.load)

    def export(
        self,
        out: str | os.PathLike[str],
        *,
        format: str = "jsonl",  # noqa: A002 - the usual name
        types: Sequence[str] = (),
        target: Target = None,
        engine: str = "auto",
        spark: object | None = None,
        progress: bool = False,
    ) -> ExportResult:
        """Write one state to an empty folder of this machine, as a local graph does."""
        refuse_engine(engine, spark)
        del progress
        folder = FolderExport(out, format)
        with self._connection.stream(calls.export_arrow(types=types, target=target)) as found:
            return folder.write(found.headers, found.iter_raw())

    def refresh(self) -> RemoteSnapshot:
        """Ask for the newest state of `main`; the server keeps itself up to date."""
        return self.snapshot()

    def blob(
        self,
        entity: Literal["node", "edge"],
        type_name: str,
        entity_id: str,
        property: str,  # noqa: A002 - what the schema calls it
        *,
        target: Target = None,
    ) -> RemoteBlob:
        """Return one Blob value of a node or an edge: what it is, and its bytes in parts."""
        call = calls.blob(entity, type_name, entity_id, property, target=target)
        return RemoteBlob(self._connection.send(call), call, self._connection)

    # -- flat names of the parts ------------------------------------------------------------------

    branch_create = sent(calls.branch_create)
    branch_create_from = sent(calls.branch_create_from)
    branch_list = sent(calls.branch_list)
    branch_delete = sent(calls.branch_delete)
    branch_merge = sent(calls.branch_merge)
    list_commits = sent(calls.list_commits)
    get_commit = sent(calls.get_commit)
    head_commit_id_for_branch = sent(calls.head_commit_id)
    commit_revert = sent(calls.commit_revert)
    tag_create = sent(calls.tag_create)
    tag_delete = sent(calls.tag_delete)
    tag_list = sent(calls.tag_list)
    commit_changes = sent(calls.commit_changes)
    poll_changes = sent(calls.poll_changes)
    schema_source = sent(calls.schema_source)
    catalog = sent(calls.catalog)
    schema_diff = sent(calls.schema_diff)
    apply_schema = sent(calls.apply_schema)
    apply_schema_file = sent(calls.apply_schema_file)

    def merge_conflicts(
        self, source: str, target: str = MAIN, *, strategy: str = "row"
    ) -> Iterator[str]:
        """Yield a line of JSON for every row in conflict, with its images on all sides."""
        return self.branches.conflicts(source, target, strategy=strategy)

    def changes_between(
        self,
        before: Target,
        after: Target,
        selection: Selection | None = None,
        *,
        engine: str = "auto",
        spark: object | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield what differs between two states, with the rows of both sides."""
        return self.changes.between(before, after, selection, engine=engine, spark=spark)

    def diff(self, before: Target, after: Target, selection: Selection | None = None) -> RemoteDiff:
        """Return what differs between two states, as rows."""
        return self.changes.diff(before, after, selection)

    def baseline(
        self, *, branch: str | None = None, selection: Selection | None = None
    ) -> tuple[Iterator[bytes], dict[str, str]]:
        """Return every entity of a branch as lines of JSON, and where the feed goes on after."""
        return self.changes.baseline(branch=branch, selection=selection)
