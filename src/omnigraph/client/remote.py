"""A graph of a server, synchronously."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, Self, TypeVar

import httpx2

from omnigraph.client import answers, calls
from omnigraph.client.http import TIMEOUT, HttpCall, error_classes, failure, segment
from omnigraph.errors import InvalidInputError
from omnigraph.graph import (
    CommitPage,
    FeedPage,
    FeedRequest,
    GraphCommit,
    LoadResult,
    MergeResult,
    MutationResult,
    QueryResult,
    ReadTarget,
    Selection,
    Tag,
)
from omnigraph.names import MAIN
from omnigraph.wire.http_errors import error_of

T = TypeVar("T")
_GRAPHS: Final = "/graphs/"


class NoGraphNamedError(InvalidInputError):
    """A server serves several graphs, and none was named."""

    code = "OG-NO-GRAPH-NAMED"
    hint = "give `graph=`, or an address that ends with /graphs/ID"

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"{url} is a server: which of its graphs?")


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


def headers_of(token: str | None) -> dict[str, str]:
    """Return the headers of every request."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


class RemoteGraph:
    """A graph of a server. Its methods are those of `Graph`, and so are results and errors.

    The server takes the actor of a write from the token. Safe to share between threads.
    """

    def __init__(
        self, url: str, *, token: str | None = None, verify: bool | str = True, http: Any = None
    ) -> None:
        """Use `connect`. `http` replaces the transport, for tests."""
        self.uri = url
        self._http = httpx2.Client(
            base_url=f"{url}/",
            headers=headers_of(token),
            timeout=TIMEOUT,
            verify=verify,
            transport=http,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _send(self, call: HttpCall[T]) -> T:
        try:
            found = self._http.send(call.request(self._http))
        except httpx2.HTTPError as error:
            raise failure(error, self.uri) from error
        return call.answer(found.status_code, found.content)

    @contextmanager
    def _streamed(self, call: HttpCall[Any]) -> Iterator[httpx2.Response]:
        try:
            found = self._http.send(call.request(self._http), stream=True)
            try:
                if found.status_code >= 300:
                    raise error_of(found.status_code, found.read(), classes=error_classes())
                yield found
            finally:
                found.close()
        except httpx2.HTTPError as error:
            raise failure(error, self.uri) from error

    # -- reading ----------------------------------------------------------------------------------

    def query(
        self,
        text: str | None = None,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        target: ReadTarget | None = None,
        explain: bool = False,
        profile: bool = False,
        timeout_s: float | None = None,
        rows_max: int | None = None,
    ) -> QueryResult:
        """Run a read of a text, or without a text the stored one of this name."""
        if text is None:
            return self._send(calls.invoke(name or "", params, target))
        options = {
            "explain": explain or None,
            "profile": profile or None,
            "timeout_ms": None if timeout_s is None else round(timeout_s * 1000),
            "max_rows": rows_max,
        }
        return self._send(calls.query(text, name, params, target, options))

    def export_lines(
        self, *, types: tuple[str, ...] = (), target: ReadTarget | None = None
    ) -> Iterator[bytes]:
        """Yield one line of graph JSONL per entity of a branch, by type and id."""
        branch = MAIN if target is None else target.value
        body = {"branch": branch, "type_names": list(types)}
        with self._streamed(HttpCall("POST", "export", bytes, json=body)) as found:
            for line in found.iter_lines():
                yield line.encode() + b"\n"

    def snapshot_json(self, branch: str | None = None) -> dict[str, Any]:
        """Return what a branch publishes."""
        return self._send(calls.snapshot(branch))

    # -- writing ----------------------------------------------------------------------------------

    def mutate(
        self,
        text: str | None = None,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        expected_head: str | None = None,
    ) -> MutationResult:
        """Run a mutation of a text, or without a text the stored one of this name."""
        if text is None:
            call = calls.invoke_mutation(name or "", params, branch, expected_head)
        else:
            call = calls.mutate(text, name, params, branch, expected_head)
        return self._send(call)

    def load(
        self,
        data: bytes | BinaryIO | Iterator[bytes],
        *,
        mode: str,
        branch: str | None = None,
        from_branch: str | None = None,
    ) -> LoadResult:
        """Load graph JSONL as one commit, or not at all; it is streamed."""
        return self._send(calls.load(data, mode, branch, from_branch))

    # -- branches ---------------------------------------------------------------------------------

    def branch_list(self) -> list[str]:
        """Return the names of all branches, `main` first."""
        return self._send(calls.branch_list())

    def branch_create(self, name: str) -> None:
        """Create a branch at the head of `main`."""
        self._send(calls.branch_create(None, name))

    def branch_create_from(self, source: str, name: str) -> None:
        """Create a branch at the head of another one."""
        self._send(calls.branch_create(source, name))

    def branch_delete(self, name: str) -> None:
        """Delete a branch."""
        self._send(calls.branch_delete(name))

    def branch_merge(
        self,
        source: str,
        target: str = MAIN,
        *,
        strategy: str = "row",
        prefer: str | None = None,
        dry_run: bool = False,
        message: str | None = None,
    ) -> MergeResult:
        """Merge a branch into another one as one commit, or not at all."""
        options = {
            "strategy": strategy,
            "prefer": prefer,
            "dry_run": dry_run or None,
            "message": message,
        }
        return self._send(calls.branch_merge(source, target, options))

    def merge_conflicts(
        self, source: str, target: str = MAIN, *, strategy: str = "row"
    ) -> Iterator[str]:
        """Yield a line of JSON for every conflict of a merge."""
        found = self._send(calls.merge_conflicts(source, target, strategy))
        return iter(found)

    # -- history ----------------------------------------------------------------------------------

    def list_commits(
        self, branch: str | None = None, *, limit: int | None = None
    ) -> list[GraphCommit]:
        """Return commits newest first, with those that the branch inherited."""
        return self._send(calls.list_commits(branch, limit))

    def get_commit(self, commit_id: str) -> GraphCommit:
        """Find one commit on any branch."""
        return self._send(calls.get_commit(commit_id))

    def head_commit_id_for_branch(self, branch: str | None = None) -> str:
        """Return the id of a branch's newest commit."""
        return self.list_commits(branch, limit=1)[0].graph_commit_id

    def commit_revert(
        self, commit_id: str, *, branch: str | None = None, prefer: str | None = None
    ) -> MergeResult:
        """Undo what one commit changed, as a new commit."""
        return self._send(calls.commit_revert(commit_id, branch, prefer))

    def tag_list(self) -> list[Tag]:
        """Return all tags, sorted by name."""
        return self._send(calls.tag_list())

    def tag_create(self, name: str, target: ReadTarget | None = None) -> Tag:
        """Name a commit, by default the head of `main`."""
        return self._send(calls.tag_create(name, None if target is None else str(target.value)))

    def tag_delete(self, name: str) -> None:
        """Forget a tag."""
        self._send(calls.tag_delete(name))

    # -- changes ----------------------------------------------------------------------------------

    def commit_changes(
        self,
        commit_id: str,
        selection: Selection | None = None,
        *,
        limit: int = 1000,
        page_token: str | None = None,
    ) -> CommitPage:
        """Return a page of what one commit changed."""
        return self._send(calls.commit_changes(commit_id, selection, limit, page_token))

    def poll_changes(self, request: FeedRequest, *, branch: str | None = None) -> FeedPage:
        """Return a page of what happened on a branch since a cursor."""
        return self._send(calls.poll_changes(request, branch))

    def diff_rows(
        self, before: str, after: str, selection: Selection | None = None
    ) -> list[dict[str, Any]]:
        """Return what differs between two states."""
        return self._send(calls.diff(before, after, selection))

    # -- schema -----------------------------------------------------------------------------------

    def schema_source(self) -> str:
        """Return the accepted schema text."""
        return self._send(calls.schema_source())

    def apply_schema(self, desired: str, *, allow_data_loss: bool = False) -> dict[str, Any]:
        """Make a desired schema the accepted one."""
        return self._send(calls.apply_schema(desired, allow_data_loss=allow_data_loss))


__all__ = ["RemoteGraph", "answers", "connect"]
