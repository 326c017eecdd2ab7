"""Watching a query, blobs on a stream, filtered commits, pages, CSV, clusters in the way."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.graph import FeedPage, Graph
from support.terminal import Terminal

OMNIGRAPH = str(Path(sys.executable).parent / "omnigraph")
SCHEMA = """\
node Doc { name: String @key  body: Blob?  note: String?  at: DateTime?  tags: [String]? }
edge Next: Doc -> Doc { on: Date? }
"""
NAMES = "query names() { match { $d: Doc } return { $d.name } order { $d.name } }"
ADD = 'query add() { insert Doc { name: "b" } }'
ROWS = b"""\
{"type": "Doc", "data": {"name": "a", "body": "base64:AP8K", "note": "", "tags": ["x,y", "z"],\
 "at": "2026-01-02T03:04:05.678Z"}}
{"type": "Doc", "data": {"name": "b", "note": "say \\"hi\\""}}
{"edge": "Next", "from": "a", "to": "b", "data": {"id": "e", "on": "2026-01-02"}}
"""


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.chdir(tmp_path)
    graph = Graph.init("docs.omni", SCHEMA, durability="process", auto_optimize=False)
    graph.load(ROWS, mode="append", actor_id="ada", properties={"batch": "nightly"})
    return graph


def test_a_watched_query_answers_after_each_commit_until_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = Graph.init("docs.omni", SCHEMA, durability="process")
    words = ["query", "-e", NAMES, "--watch", "--format", "jsonl", "--store", "docs.omni"]
    child = subprocess.Popen(
        [OMNIGRAPH, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert json.loads(child.stdout.readline())["row_count"] == 0
    graph.mutate(ADD)
    assert child.stdout.readline() == "\n"
    assert json.loads(child.stdout.readline())["row_count"] == 1
    assert child.stdout.readline() == '{"d.name":"b"}\n'
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert (child.returncode, out, err) == (0, "", "")


def test_the_bytes_of_a_blob_reach_a_pipe_as_they_are(docs: Graph) -> None:
    words = ["blob", "get", "node", "Doc", "a", "body", "--store", docs.uri]
    whole = subprocess.run([OMNIGRAPH, *words], capture_output=True, check=True)
    assert (whole.stdout, whole.stderr) == (b"\x00\xff\n", b"")


def test_a_file_is_opened_only_when_there_is_something_to_write(
    omnigraph: Terminal, docs: Graph
) -> None:
    path = Path("kept.bin")
    path.write_bytes(b"old")
    words = ("blob", "get", "node", "Doc", "a", "body", "--out", "kept.bin", "--store", docs.uri)
    assert omnigraph(*words, "--offset", "3").code == 1
    assert path.read_bytes() == b"old"
    assert omnigraph(*words, "--offset", "1").code == 0
    assert path.read_bytes() == b"\xff\n"


@pytest.mark.parametrize(
    ("filters", "operations"),
    [
        (["actor=ada"], ["load"]),
        (["actor=ada", "operation=load"], ["load"]),
        (["actor=ada", "operation=init"], []),
        (["properties.batch=nightly"], ["load"]),
        (["properties.batch=daily"], []),
        (["actor="], ["mutation", "init"]),
        (["branch=main"], ["mutation", "load", "init"]),
    ],
)
def test_commits_are_listed_that_pass_every_filter(
    omnigraph: Terminal, docs: Graph, filters: list[str], operations: list[str]
) -> None:
    docs.mutate('query add() { insert Doc { name: "c" } }')
    words = [word for text in filters for word in ("--filter", text)]
    result = omnigraph("commit", "list", docs.uri, "--json", *words)
    found = [commit["graph_commit_id"] for commit in result.json["commits"]]
    known = {commit.graph_commit_id: commit.operation for commit in docs.list_commits()}
    assert [known[commit_id] for commit_id in found] == operations
    limited = omnigraph("commit", "list", docs.uri, "--json", "--limit", "1", *words)
    assert len(limited.json["commits"]) == min(1, len(operations))


def test_the_settled_writes_of_recovery_can_be_filtered(omnigraph: Terminal, docs: Graph) -> None:
    result = omnigraph("commit", "list", docs.uri, "--filter", "actor=omnigraph:recovery")
    assert (result.code, result.out) == (0, "(no commits)\n")


@pytest.mark.parametrize("command", ["commit changes HEAD", "changes poll --start beginning"])
def test_pages_make_one_document_and_none_is_held_back(
    omnigraph: Terminal, docs: Graph, command: str
) -> None:
    head = docs.head_commit_id_for_branch("main")
    words = [*command.replace("HEAD", head).split(), "--uri", docs.uri]
    whole = omnigraph(*words, "--json").json
    paged = omnigraph(*words, "--json", "--limit", "1").json
    whole.pop("cursor", None)
    paged.pop("cursor", None)
    assert paged == whole
    changes = paged["changes"] if "changes" in paged else paged["blocks"][0]["changes"]
    assert len(changes) == 3
    assert (
        omnigraph(*words).out.splitlines()[-2:]
        == omnigraph(*words, "--limit", "1").out.split("\n")[-3:-1]
    )


def test_a_page_that_fails_later_leaves_no_cursor(
    omnigraph: Terminal, docs: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = Graph.poll_changes
    pages: list[FeedPage] = []

    def failing(self: Graph, *args: object, **kwargs: object) -> FeedPage:
        if pages:
            raise OSError(5, "Input/output error")
        pages.append(poll(self, *args, **kwargs))  # type: ignore[arg-type]  # passed through
        return pages[0]

    monkeypatch.setattr(Graph, "poll_changes", failing)
    words = ("changes", "poll", "--start", "beginning", "--limit", "1", "--uri", docs.uri)
    for extra in ((), ("--json",)):
        pages.clear()
        result = omnigraph(*words, *extra)
        assert result.code == 1
        assert "insert" in result.out
        assert "cursor" not in result.out


def test_people_see_dates_and_the_size_of_large_blobs(omnigraph: Terminal, docs: Graph) -> None:
    large = {"type": "Doc", "data": {"name": "big", "body": "base64:" + "QUJD" * 100}}
    docs.load(json.dumps(large).encode(), mode="append")
    first = docs.list_commits()[-1].graph_commit_id
    lines = omnigraph("diff", first, "main", "--uri", docs.uri).out.splitlines()
    assert "  + on: 2026-01-02" in lines
    assert "  + at: 2026-01-02T03:04:05.678Z" in lines
    assert "  + body: base64:AP8K" in lines
    assert "  + body: (300 bytes)" in lines


def test_two_versions_of_main_can_be_compared(omnigraph: Terminal, docs: Graph) -> None:
    assert omnigraph("diff", "1", "2", "--stat", "--uri", docs.uri).out == (
        "Doc: +2 ~0 -0\nNext: +1 ~0 -0\n"
    )
    missing = omnigraph("diff", "1", "9", "--uri", docs.uri)
    assert (missing.code, missing.out) == (1, "")
    assert "version 9" in missing.err


def test_csv_keeps_nulls_apart_from_empty_texts(omnigraph: Terminal, docs: Graph) -> None:
    assert omnigraph("export", docs.uri, "--format", "csv", "--out", "out").code == 0
    text = Path("out/nodes/Doc/part-00000.csv").read_text(encoding="utf-8")
    header, *rows = csv.reader(text.splitlines())
    first, second = (dict(zip(header, row, strict=True)) for row in rows)
    assert first == {
        "id": "a",
        "at": "2026-01-02T03:04:05.678Z",
        "body": "base64:AP8K",
        "name": "a",
        "note": "",
        "tags": '["x,y","z"]',
    }
    assert (second["note"], second["tags"], second["body"]) == ('say "hi"', "", "")
    # A text that is empty is quoted, a null is not.
    assert ',"",' in text
    assert Path("out/edges/Next/part-00000.csv").read_text(encoding="utf-8").splitlines() == [
        '"id","src","dst","on"',
        '"e","a","b",2026-01-02',
    ]


@pytest.mark.parametrize("words", [("init",), ("schema", "apply")])
def test_a_graph_that_a_cluster_has_declared_is_left_to_the_cluster(
    omnigraph: Terminal, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "lab" / "__cluster").mkdir(parents=True)
    (tmp_path / "lab" / "__cluster" / "state.json").touch()
    root = str(tmp_path / "lab" / "graphs" / "papers.omni")
    if words != ("init",):
        Graph.init(root, SCHEMA, durability="process", by_cluster=True).close()
    result = omnigraph(*words, root, "--schema", "s.pg")
    assert (result.code, result.out) == (1, "")
    assert f"belongs to the cluster at {tmp_path / 'lab'}" in result.err
    assert "`omnigraph cluster apply`" in result.err
    # The same place without a ledger, and another shape of path, are nobody's.
    (tmp_path / "lab" / "__cluster" / "state.json").unlink()
    assert (
        omnigraph("init", str(tmp_path / "lab" / "graphs" / "new.omni"), "--schema", "s.pg").code
        == 0
    )
