"""A graph for programs that await: over HTTP natively, a local one through threads.

Both have the methods of `RemoteGraph`; what yields there is an asynchronous iterator here. A task
that is cancelled cancels its query: the connection is closed, or the event of the local query set.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

import httpx2
import orjson

from omnigraph.client import calls
from omnigraph.client.blobs import BlobPart
from omnigraph.client.http import (
    BROKEN,
    NOT_FOUND,
    TIMEOUT,
    Answer,
    HttpCall,
    Lines,
    StreamBrokenError,
    headers_of,
)
from omnigraph.client.remote import BASELINE, graph_url, with_self
from omnigraph.graph import (
    BYTES_AT_ONCE,
    Blob,
    BlobStat,
    ByteRange,
    FeedPage,
    FeedRequest,
    Graph,
    OpenMode,
)
from omnigraph.names import MAIN
from omnigraph.texts import shown

P = ParamSpec("P")
T = TypeVar("T")
Make = Callable[..., HttpCall[Any]]
_END: Final = object()


@dataclass(frozen=True)
class Method:
    """One call of a method: its name, the function of `calls` that stands for it, arguments."""

    name: str
    make: Make
    args: tuple[Any, ...]
    given: Mapping[str, Any]

    def call(self) -> HttpCall[Any]:
        """Return what is sent to a server."""
        return self.make(*self.args, **self.given)

    def run(self, graph: Graph, **more: Any) -> Any:
        """Call the method of a local graph."""
        return getattr(graph, self.name)(*self.args, **self.given, **more)


class AsyncBlob(Protocol):
    """One Blob value that is not null."""

    stat: BlobStat

    def chunks(self, wanted: ByteRange | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes of a range, by default all, in parts of at most 4 MiB."""
        ...

    async def read(self) -> bytes:
        """Return all bytes at once."""
        ...


class Backend(Protocol):
    """Where a graph is."""

    uri: str

    async def run(self, method: Method) -> Any:
        """Return the result of a method."""
        ...

    def stream(self, method: Method, read: Callable[[bytes], Any]) -> AsyncIterator[Any]:
        """Yield what a method yields; `read` is for the lines of an answer."""
        ...

    async def baseline(self, method: Method) -> tuple[AsyncIterator[bytes], dict[str, str]]:
        """Return lines, and a handshake that holds when they have all come."""
        ...

    async def blob(self, method: Method) -> AsyncBlob:
        """Find a Blob value."""
        ...

    async def close(self) -> None:
        """Release everything."""
        ...


# -- over HTTP ------------------------------------------------------------------------------------


class HttpBackend:
    """A graph of a server. A read is repeated once when a kept connection was closed."""

    def __init__(self, url: str, *, token: str | None, verify: bool | str, http: Any) -> None:
        self.uri = url
        self._http = httpx2.AsyncClient(
            base_url=f"{url}/",
            headers=headers_of(token),
            timeout=TIMEOUT,
            verify=verify,
            transport=http,
            follow_redirects=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def run(self, method: Method) -> Any:
        """Send the call of a method."""
        return await self._send(method.call())

    async def _send(self, call: HttpCall[T]) -> T:
        found = await self._sent(call)
        answer = Answer(found.status_code, found.headers, found.content)
        if call.method == "HEAD" and call.is_refused(answer.status):
            # The answer to HEAD has no text; that to GET has it.
            return await self._send(replace(call, method="GET"))
        return call.result(answer)

    async def _sent(self, call: HttpCall[Any], *, stream: bool = False) -> httpx2.Response:
        found = await self._answered(call, stream=stream)
        if found.status_code != NOT_FOUND:
            return found
        tagged = call.with_tag(found.status_code, await found.aread())
        if tagged is None:
            return found
        other = await self._sent(tagged, stream=stream)
        if other.status_code == NOT_FOUND and call.finds_no_tag(
            other.status_code, await other.aread()
        ):
            return found
        return other

    async def _answered(self, call: HttpCall[Any], *, stream: bool) -> httpx2.Response:
        try:
            try:
                return await self._http.send(self._request(call), stream=stream)
            except BROKEN:
                if not call.is_read:
                    raise
                return await self._http.send(self._request(call), stream=stream)
        except httpx2.HTTPError as error:
            raise call.failure(error, self.uri) from error

    def _request(self, call: HttpCall[Any]) -> httpx2.Request:
        content = call.content
        if content is None or isinstance(content, bytes):
            return call.request(self._http)
        return call.request(self._http, in_threads(content))

    @asynccontextmanager
    async def opened(self, call: HttpCall[Any]) -> AsyncIterator[httpx2.Response]:
        """Open an answer that is read in parts."""
        found = await self._sent(call, stream=True)
        try:
            if call.is_refused(found.status_code):
                raise call.error(found.status_code, await found.aread())
            yield found
        except httpx2.HTTPError as error:
            raise StreamBrokenError(self.uri, str(error) or type(error).__name__) from error
        finally:
            await found.aclose()

    async def stream(self, method: Method, read: Callable[[bytes], Any]) -> AsyncIterator[Any]:
        """Yield the lines of an answer."""
        cut = Lines()
        async with self.opened(method.call()) as found:
            async for chunk in found.aiter_raw():
                for line in cut.of(chunk):
                    yield read(line)
        if cut.rest:
            yield read(cut.rest)

    async def baseline(self, method: Method) -> tuple[AsyncIterator[bytes], dict[str, str]]:
        """Return lines, and a handshake that is filled by the last of them."""
        handshake: dict[str, str] = {}
        return self._records(self.stream(method, bytes), handshake), handshake

    async def _records(
        self, lines: AsyncIterator[bytes], handshake: dict[str, str]
    ) -> AsyncIterator[bytes]:
        async for line in lines:
            if line.startswith(BASELINE):
                handshake |= orjson.loads(line)["baseline"]
            else:
                yield line
        if not handshake:
            raise StreamBrokenError(self.uri, "its last line has not come")

    async def blob(self, method: Method) -> AsyncBlob:
        """Ask what a Blob value is."""
        call = method.call()
        return HttpBlob(await self._send(call), call, self)


@dataclass
class HttpBlob:
    """A Blob value of a server."""

    stat: BlobStat
    _call: HttpCall[BlobStat]
    _backend: HttpBackend

    async def chunks(self, wanted: ByteRange | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes of a range, by default all, in parts of at most 4 MiB."""
        part = BlobPart.of(self._call, self.stat, wanted)
        if part is None:
            return
        count, url = 0, self._backend.uri
        async with self._backend.opened(part.call) as found:
            part.check(url, found.status_code, found.headers)
            async for chunk in found.aiter_raw(BYTES_AT_ONCE):
                count += len(chunk)
                yield chunk
        part.check_length(url, count)

    async def read(self) -> bytes:
        """Return all bytes at once."""
        return b"".join([chunk async for chunk in self.chunks()])


# -- in threads -----------------------------------------------------------------------------------


class ThreadBackend:
    """A local graph, whose methods run in threads."""

    def __init__(self, graph: Graph) -> None:
        self.uri = graph.uri
        self._graph = graph

    async def close(self) -> None:
        """Close the graph."""
        await asyncio.to_thread(self._graph.close)

    async def run(self, method: Method) -> Any:
        """Run a method in a thread; a query stops when its task is cancelled."""
        if method.name != "query" or "cancelled" in method.given:
            return await asyncio.to_thread(method.run, self._graph)
        cancelled = threading.Event()
        try:
            return await asyncio.to_thread(method.run, self._graph, cancelled=cancelled)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def stream(self, method: Method, read: Callable[[bytes], Any]) -> AsyncIterator[Any]:
        """Yield what a method yields, each value made in a thread."""
        del read
        found = await asyncio.to_thread(method.run, self._graph)
        async for value in in_threads(found):
            yield value

    async def baseline(self, method: Method) -> tuple[AsyncIterator[bytes], dict[str, str]]:
        """Return lines, and where the feed goes on after them."""
        lines, handshake = await asyncio.to_thread(method.run, self._graph)
        return in_threads(lines), handshake

    async def blob(self, method: Method) -> AsyncBlob:
        """Find a Blob value."""
        return ThreadBlob(await asyncio.to_thread(method.run, self._graph))


class ThreadBlob:
    """A Blob value of a local graph."""

    def __init__(self, blob: Blob) -> None:
        self.stat = blob.stat
        self._blob = blob

    def chunks(self, wanted: ByteRange | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes of a range, by default all, in parts of at most 4 MiB."""
        return in_threads(self._blob.chunks(wanted))

    async def read(self) -> bytes:
        """Return all bytes at once."""
        return await asyncio.to_thread(self._blob.read)


async def in_threads(values: Iterable[T]) -> AsyncIterator[T]:
    """Yield values, each made in a thread."""
    found: Iterator[Any] = iter(values)
    value: Any
    while (value := await asyncio.to_thread(next, found, _END)) is not _END:
        yield value


# -- the graph ------------------------------------------------------------------------------------


class AsyncPart:
    """A part of a graph."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend


def awaited(
    name: str, make: Callable[P, HttpCall[T]]
) -> Callable[Concatenate[AsyncPart, P], Coroutine[Any, Any, T]]:
    """Return the method that awaits the method `name` of a graph."""

    @wraps(make)
    async def method(self: AsyncPart, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self._backend.run(Method(name, make, args, kwargs))
        return result

    return with_self(method, make)


def streamed(
    name: str, make: Callable[P, HttpCall[None]], read: Callable[[bytes], T]
) -> Callable[Concatenate[AsyncPart, P], AsyncIterator[T]]:
    """Return the method that iterates over what the method `name` of a graph yields."""

    @wraps(make)
    def method(self: AsyncPart, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._backend.stream(Method(name, make, args, kwargs), read)

    return with_self(method, make)


def based(
    make: Callable[P, HttpCall[None]],
) -> Callable[
    Concatenate[AsyncPart, P], Coroutine[Any, Any, tuple[AsyncIterator[bytes], dict[str, str]]]
]:
    """Return the method that takes a baseline."""

    @wraps(make)
    async def method(
        self: AsyncPart, /, *args: P.args, **kwargs: P.kwargs
    ) -> tuple[AsyncIterator[bytes], dict[str, str]]:
        return await self._backend.baseline(Method("baseline", make, args, kwargs))

    return with_self(method, make)


def found(
    make: Callable[P, HttpCall[BlobStat]],
) -> Callable[Concatenate[AsyncPart, P], Coroutine[Any, Any, AsyncBlob]]:
    """Return the method that finds a Blob value."""

    @wraps(make)
    async def method(self: AsyncPart, /, *args: P.args, **kwargs: P.kwargs) -> AsyncBlob:
        return await self._backend.blob(Method("blob", make, args, kwargs))

    return with_self(method, make)


def _text(line: bytes) -> str:
    return line.decode().removesuffix("\n")


def _object(line: bytes) -> dict[str, Any]:
    shape: dict[str, Any] = orjson.loads(line)
    return shape


_CREATE = awaited("branch_create", calls.branch_create)
_CREATE_FROM = awaited("branch_create_from", calls.branch_create_from)
_LIST = awaited("branch_list", calls.branch_list)
_DELETE = awaited("branch_delete", calls.branch_delete)
_MERGE = awaited("branch_merge", calls.branch_merge)
_CONFLICTS = streamed("merge_conflicts", calls.merge_conflicts, _text)
_COMMITS = awaited("list_commits", calls.list_commits)
_COMMIT = awaited("get_commit", calls.get_commit)
_HEAD = awaited("head_commit_id_for_branch", calls.head_commit_id)
_REVERT = awaited("commit_revert", calls.commit_revert)
_TAG = awaited("tag_create", calls.tag_create)
_UNTAG = awaited("tag_delete", calls.tag_delete)
_TAGS = awaited("tag_list", calls.tag_list)
_OF_COMMIT = awaited("commit_changes", calls.commit_changes)
_POLL = awaited("poll_changes", calls.poll_changes)
_BETWEEN = streamed("changes_between", calls.changes_between, _object)
_BASE = based(calls.baseline)
_SOURCE = awaited("schema_source", calls.schema_source)
_CATALOG = awaited("catalog", calls.catalog)
_SCHEMA_DIFF = awaited("schema_diff", calls.schema_diff)
_APPLY = awaited("apply_schema", calls.apply_schema)
_APPLY_FILE = awaited("apply_schema_file", calls.apply_schema_file)


class AsyncBranches(AsyncPart):
    """Lists, creates, deletes and merges the branches of a graph."""

    create = _CREATE
    create_from = _CREATE_FROM
    list = _LIST
    delete = _DELETE
    merge = _MERGE
    conflicts = _CONFLICTS


class AsyncCommits(AsyncPart):
    """Lists, finds and reverts commits."""

    list = _COMMITS
    get = _COMMIT
    head_id = _HEAD
    revert = _REVERT


class AsyncTags(AsyncPart):
    """Names commits and keeps their versions."""

    create = _TAG
    delete = _UNTAG
    list = _TAGS


class AsyncChanges(AsyncPart):
    """Finds what changed between two states, in a commit, or since a cursor."""

    of_commit = _OF_COMMIT
    poll = _POLL
    between = _BETWEEN
    baseline = _BASE

    async def pages(
        self, request: FeedRequest, *, branch: str | None = None
    ) -> AsyncIterator[FeedPage]:
        """Yield the pages of a poll; the last one has the cursor for the next poll."""
        while True:
            page = await self.poll(request, branch=branch)
            yield page
            if page.next_page_token is None:
                return
            request = replace(request, cursor=None, start=None, page_token=page.next_page_token)


class AsyncSchema(AsyncPart):
    """Shows and applies the schema of a graph."""

    source = _SOURCE
    catalog = _CATALOG
    diff = _SCHEMA_DIFF
    apply = _APPLY
    apply_file = _APPLY_FILE


class AsyncGraph(AsyncPart):
    """A graph of a server (`connect`) or of storage (`open`), for programs that await.

    ```python
    async with AsyncGraph.connect(url, graph="people") as graph:
        result = await graph.query(text)
    ```
    """

    def __init__(self, backend: Backend) -> None:
        """Use `connect` or `open`."""
        super().__init__(backend)
        self.branches = AsyncBranches(backend)
        self.commits = AsyncCommits(backend)
        self.tags = AsyncTags(backend)
        self.changes = AsyncChanges(backend)
        self.schema = AsyncSchema(backend)

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        graph: str | None = None,
        token: str | None = None,
        verify: bool | str = True,
        http: Any = None,
    ) -> Self:
        """Return a graph of a server, as `omnigraph.connect` does; `http` is for tests."""
        address = graph_url(url, graph)
        return cls(HttpBackend(address, token=token, verify=verify, http=http))

    @classmethod
    async def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        branch: str = MAIN,
        mode: OpenMode | str = OpenMode.READ_WRITE,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Open a graph of storage; its methods run in threads."""
        graph = await asyncio.to_thread(
            lambda: Graph.open(uri, branch=branch, mode=mode, storage_options=storage_options)
        )
        return cls(ThreadBackend(graph))

    @property
    def uri(self) -> str:
        """The address or the root of the graph."""
        return self._backend.uri

    async def close(self) -> None:
        """Release the graph."""
        await self._backend.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncGraph({shown(self.uri)!r})"

    snapshot = awaited("snapshot", calls.snapshot)
    snapshot_of = awaited("snapshot_of", calls.snapshot_of)
    refresh = awaited("refresh", calls.snapshot)
    query = awaited("query", calls.query)
    mutate = awaited("mutate", calls.mutate)
    load = awaited("load", calls.load)
    export_lines = streamed("export_lines", calls.export_lines, bytes)
    blob = found(calls.blob)

    branch_create = _CREATE
    branch_create_from = _CREATE_FROM
    branch_list = _LIST
    branch_delete = _DELETE
    branch_merge = _MERGE
    merge_conflicts = _CONFLICTS
    list_commits = _COMMITS
    get_commit = _COMMIT
    head_commit_id_for_branch = _HEAD
    commit_revert = _REVERT
    tag_create = _TAG
    tag_delete = _UNTAG
    tag_list = _TAGS
    commit_changes = _OF_COMMIT
    poll_changes = _POLL
    changes_between = _BETWEEN
    baseline = _BASE
    schema_source = _SOURCE
    catalog = _CATALOG
    schema_diff = _SCHEMA_DIFF
    apply_schema = _APPLY
    apply_schema_file = _APPLY_FILE
