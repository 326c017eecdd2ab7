"""What is particular to a graph of a server: refusals, tokens, connections, cancelling."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pytest

from omnigraph import AsyncGraph, Graph, ReadTarget, connect
from omnigraph.client import RemoteGraph, graph_url, served_graphs
from omnigraph.client.http import (
    AnswerLostError,
    AnswerMismatchError,
    ServerUnreachableError,
    StreamBrokenError,
)
from omnigraph.client.refusals import NeedsStorageError
from omnigraph.client.remote import NoGraphNamedError
from omnigraph.errors import DeniedError, OmnigraphError
from omnigraph.graph import ReservedPropertyError
from omnigraph.write.load.formats.files import InputUnreadableError
from omnigraph.write.load.formats.kinds import InputFormatError
from support.served_here import Served, serve
from support.ways import QUERIES, RECORDS

TOKEN = "a-token-that-nobody-may-see"  # noqa: S105 - the test looks for it everywhere


@pytest.fixture
def served(root: Path, tmp_path: Path) -> Iterator[Served]:
    queries = tmp_path / "stored.gq"
    queries.write_text(QUERIES, encoding="utf-8")
    with serve(root, queries=(queries,)) as found:
        yield found


@pytest.fixture
def remote(served: Served) -> Iterator[RemoteGraph]:
    with connect(served.url, graph=served.graph) as graph:
        yield graph


REFUSED: dict[str, Callable[[RemoteGraph], Any]] = {
    "actor_id": lambda g: g.branch_create("b", actor_id="me"),
    "spark": lambda g: g.load(RECORDS, mode="merge", spark=object()),
    "engine": lambda g: g.branch_merge("b", engine="spark"),
    "external_blob_bases": lambda g: g.mutate("x", external_blob_bases=["s3://b"]),
    "cancelled": lambda g: g.query("x", cancelled=threading.Event()),
    "memory_max": lambda g: g.query("x", memory_max=1),
    "tables": lambda g: g.load({"Person": pa.table({})}, mode="merge"),
    "dry_run": lambda g: g.load(RECORDS, mode="merge", reader="compatible", dry_run=True),
    "on_error": lambda g: g.load(RECORDS, mode="merge", on_error="quarantine"),
    "time": lambda g: g.snapshot_of(ReadTarget.at(1)),
    "optimize": lambda g: g.optimize(),
    "to_spark": lambda g: g.to_spark(object(), "Person"),
    "maintenance": lambda g: g.maintenance,
    "job": lambda g: g.branch_merge("b", job="x"),
    "lineage of a row": lambda g: g.lineage.show("Person:ann"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_server_cannot_honour_is_refused(remote: RemoteGraph, name: str) -> None:
    with pytest.raises(NeedsStorageError, match=name):
        REFUSED[name](remote)
    assert len(remote.list_commits()) == 2
    assert not hasattr(remote, "no_such_method")


def test_lineage_is_answered_from_the_commits_of_a_server(
    remote: RemoteGraph, root: Path, tmp_path: Path
) -> None:
    load = b'{"type": "Person", "data": {"name": "dan"}}'
    with pytest.raises(ReservedPropertyError):
        remote.load(load, mode="merge", properties={"inputs": "x"})
    remote.branch_create("draft")
    loaded = remote.load(load, mode="merge", branch="draft", job="crm").commit
    merged = remote.branch_merge("draft").commit
    assert loaded is not None
    assert merged is not None
    steps = remote.lineage.show(merged.graph_commit_id).steps
    lineages = [step.lineage for step in steps]
    assert [one.job.namespace + "/" + one.job.name for one in lineages if one is not None] == [
        "http/merge",
        "http/crm",
    ]
    [down] = remote.lineage.show(loaded.graph_commit_id, direction="down").steps
    assert down.commit == merged
    assert remote.lineage.show("Person").steps[0].commit == merged
    assert remote.lineage.show("Person", direction="down").steps == (down,)
    sent = remote.lineage.emit(f"file:{tmp_path}/events", since=loaded.parent_commit_id)
    assert (sent.sent, sent.failed) == (1, 0)


def test_a_stored_query_needs_no_text(remote: RemoteGraph) -> None:
    assert remote.query(name="everyone").row_count == 2
    assert remote.mutate(name="grow", params={"n": "ann", "a": 7}).affected_nodes == 1
    assert [one["name"] for one in remote.list_queries()] == ["everyone", "grow"]
    with pytest.raises(OmnigraphError, match="mutate"):
        remote.query(name="grow", params={"n": "ann", "a": 7})


def test_records_of_any_form_are_sent_as_lines(remote: RemoteGraph, tmp_path: Path) -> None:
    records = [json.loads(line) for line in RECORDS.splitlines()]
    array, packed, out = (tmp_path / name for name in ("a.json", "a.jsonl.gz", "out"))
    array.write_text(json.dumps(records, indent=2))
    packed.write_bytes(gzip.compress(RECORDS))
    remote.export(out, format="jsonl")
    for data in (records, array, [packed], str(out), json.dumps(records).encode()):
        result = remote.load(data, mode="merge")
        assert (result.total_entities, result.unchanged) == (3, 3)
        assert result.engine_reason
    table = tmp_path / "a.csv"
    table.write_text("name\nann\nbob\n")
    with pytest.raises(InputFormatError, match=r"a\.csv is CSV, expected graph records"):
        remote.load(table, mode="merge")
    array.write_text('[{"type": "Person"')
    with pytest.raises(InputUnreadableError, match=r"a\.json is no JSON array"):
        remote.load(array, mode="merge")


def test_an_iterator_of_bytes_is_loaded(remote: RemoteGraph) -> None:
    assert remote.load(iter([RECORDS[:40], RECORDS[40:]]), mode="merge").unchanged == 3


def test_many_threads_share_a_graph(remote: RemoteGraph) -> None:
    found: list[int] = []

    def ask() -> None:
        found.extend(remote.query(QUERIES, "everyone").row_count for _ in range(5))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2] * 20


def test_addresses_name_a_graph() -> None:
    assert graph_url("http://h/", "a b") == "http://h/graphs/a%20b"
    assert graph_url("http://h/graphs/g", None) == "http://h/graphs/g"
    with pytest.raises(NoGraphNamedError, match="which of its graphs"):
        connect("http://h")


def test_a_server_that_is_not_there_does_not_answer() -> None:
    with pytest.raises(ServerUnreachableError, match="does not answer"):
        connect("http://127.0.0.1:1", graph="g").branch_list()
    with pytest.raises(ServerUnreachableError):
        connect("http://127.0.0.1:1", graph="g").branch_create("b")


# -- tokens ---------------------------------------------------------------------------------------


def test_a_token_opens_and_is_never_shown(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serve(root, tokens={"OMNIGRAPH_SERVER_BEARER_TOKEN": TOKEN}) as found:
        nameless = connect(found.url, graph=found.graph)
        with nameless, pytest.raises(DeniedError) as missing:
            nameless.branch_list()
        with connect(found.url, graph=found.graph, token=TOKEN) as graph:
            assert graph.branch_list() == ["main"]
            with pytest.raises(DeniedError) as denied:
                graph.branch_create("b")
            with pytest.raises(DeniedError):
                served_graphs(found.url, token=TOKEN)
            with pytest.raises(OmnigraphError) as wrong:
                graph.get_commit("nope")
        shown = [repr(graph), repr(vars(graph)), str(vars(graph._connection))]
    shown += [f"{e.value!r} {e.value} {e.value.__dict__}" for e in (missing, denied, wrong)]
    shown.append(repr(AsyncGraph.connect(found.url, graph="g", token=TOKEN)))
    assert "missing bearer token" in shown[3]
    assert TOKEN not in "\n".join([*shown, caplog.text])


# -- connections ----------------------------------------------------------------------------------


class Scripted(httpx2.BaseTransport):
    """Answers requests by a script; an error is raised."""

    def __init__(self, *answers: httpx2.Response | Exception) -> None:
        self.answers = list(answers)
        self.seen: list[httpx2.Request] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.seen.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


CLOSED = httpx2.RemoteProtocolError("Server disconnected without sending a response.")


def test_a_read_is_repeated_once_on_a_closed_connection() -> None:
    http = Scripted(CLOSED, httpx2.Response(200, json={"branches": ["main"]}))
    assert RemoteGraph("http://h/graphs/g", http=http).branch_list() == ["main"]
    again = Scripted(CLOSED, CLOSED, CLOSED)
    with pytest.raises(ServerUnreachableError):
        RemoteGraph("http://h/graphs/g", http=again).branch_list()
    assert len(again.seen) == 2


def test_a_write_is_never_repeated() -> None:
    http = Scripted(CLOSED, CLOSED)
    with pytest.raises(AnswerLostError, match="was lost"):
        RemoteGraph("http://h/graphs/g", http=http).branch_create("b")
    assert len(http.seen) == 1


def test_a_baseline_without_its_end_is_an_error() -> None:
    http = Scripted(httpx2.Response(200, stream=httpx2.ByteStream(b'{"type":"Person"}\n')))
    lines, handshake = RemoteGraph("http://h/graphs/g", http=http).baseline()
    with pytest.raises(StreamBrokenError, match="last line"):
        list(lines)
    assert handshake == {}


STAT = {"etag": '"abc"', "omnigraph-snapshot-id": "c", "content-length": "5"}


@pytest.mark.parametrize(
    ("status", "changed", "what"),
    [
        (206, {"etag": '"xyz"'}, "etag"),
        (206, {"content-range": "bytes 0-1/5"}, "content-range"),
        (206, {"omnigraph-snapshot-id": ""}, "omnigraph-snapshot-id"),
        (200, {}, "status"),
    ],
)
def test_an_answer_with_other_bytes_than_asked_for_is_refused(
    status: int, changed: dict[str, str], what: str
) -> None:
    from omnigraph.graph import ByteRange

    right = {**STAT, "content-range": "bytes 1-2/5", "content-length": "2"}
    http = Scripted(
        httpx2.Response(200, headers=STAT),
        httpx2.Response(status, headers={**right, **changed}, content=b"bc"),
    )
    blob = RemoteGraph("http://h/graphs/g", http=http).blob("node", "P", "a", "p")
    with pytest.raises(AnswerMismatchError, match=what):
        list(blob.chunks(ByteRange(1, 2)))
    assert http.seen[1].headers["range"] == "bytes=1-2"


def test_an_external_blob_is_described_and_not_fetched() -> None:
    headers = {"location": "s3://b/x", "omnigraph-snapshot-id": "c"}
    http = Scripted(httpx2.Response(302, headers=headers))
    blob = RemoteGraph("http://h/graphs/g", http=http).blob("node", "P", "a", "p")
    assert (blob.stat.kind, blob.stat.uri) == ("external", "s3://b/x")
    with pytest.raises(OmnigraphError, match="external and never fetched"):
        blob.read()
    assert len(http.seen) == 1


def test_an_answer_that_is_no_json_shows_its_text() -> None:
    http = Scripted(httpx2.Response(502, content=b"<h1>bad gateway</h1>"))
    with pytest.raises(OmnigraphError, match="bad gateway") as caught:
        RemoteGraph("http://h/graphs/g", http=http).branch_list()
    assert caught.value.code == "OG-SERVER"


# -- cancelling -----------------------------------------------------------------------------------


class Slow:
    """A query of the engine that runs until it is cancelled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = threading.Event()
        self.failed = threading.Event()
        self.code = ""
        run = Graph.query

        def query(graph: Graph, *args: Any, **given: Any) -> Any:
            self.started.set()
            assert given["cancelled"].wait(30)
            try:
                return run(graph, *args, **given)
            except OmnigraphError as error:
                self.code = error.code
                self.failed.set()
                raise

        monkeypatch.setattr(Graph, "query", query)


async def _cancelled(graph: AsyncGraph, slow: Slow) -> None:
    async with graph:
        task = asyncio.create_task(graph.query(QUERIES, "everyone"))
        assert await asyncio.to_thread(slow.started.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(slow.failed.wait, 30)
        assert slow.code == "OG-QUERY-CANCELLED"


def test_a_cancelled_task_cancels_its_query_on_the_server(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    asyncio.run(_cancelled(AsyncGraph.connect(served.url, graph=served.graph), slow))


def test_a_cancelled_task_cancels_its_query_here(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        await _cancelled(await AsyncGraph.open(root), Slow(monkeypatch))

    asyncio.run(run())


def test_many_tasks_await_one_graph_and_pages_are_followed(served: Served) -> None:
    from omnigraph.graph import FeedRequest, Selection

    async def run() -> None:
        async with AsyncGraph.connect(served.url, graph=served.graph) as graph:
            found = await asyncio.gather(*(graph.query(QUERIES, "everyone") for _ in range(8)))
            assert [one.row_count for one in found] == [2] * 8
            request = FeedRequest(Selection(), start="beginning", limit=1)
            pages = [page async for page in graph.changes.pages(request)]
            assert sum(len(block.changes) for page in pages for block in page.blocks) == 3
            assert pages[-1].cursor is not None

    asyncio.run(run())


def test_a_schema_that_is_sent_is_a_text_and_never_a_file_of_the_server(
    root: Path, tmp_path: Path
) -> None:
    path = tmp_path / "secret.pg"
    path.write_text("node Secret { name: String @key }", encoding="utf-8")
    with serve(root) as served:
        url = f"{served.url}/graphs/{served.graph}/schema/apply"
        answer = httpx2.post(url, json={"schema_source": str(path), "allow_data_loss": True})
    assert answer.status_code == 400
    assert "Secret" not in answer.text


def test_a_schema_may_be_a_file_of_the_caller(remote: RemoteGraph, tmp_path: Path) -> None:
    path = tmp_path / "people.pg"
    path.write_text(remote.schema_source().replace("age: I32?", "age: I32?  nick: String?"))
    assert remote.apply_schema(str(path)).applied
    assert not remote.apply_schema(path).applied
