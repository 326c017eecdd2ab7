"""Bulk loads fill the vectors that `@embed` asks for, in their tasks, as one process would."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.schema.vector_key import VectorKey
from omnigraph.search.embedding.errors import (
    EmbeddingDeadlineError,
    EmbeddingKeyMissingError,
    EmbeddingModelMismatchError,
    EmbeddingRequestError,
    EmbeddingResponseError,
    EmbeddingUnreachableError,
    EmbeddingVectorError,
    LocalModelError,
    UnknownEmbeddingProviderError,
)
from omnigraph.spark.load.rejected_file import decode_rejected
from omnigraph.spark.load.side_files import SideFiles
from omnigraph.spark.load.vector_cache import SharedVectors
from omnigraph.spark.load.workers import Tuning
from omnigraph.store.errors import CorruptObjectError
from omnigraph.write.embed import row_embedder as embed
from omnigraph.write.rules.violations import ValidationError
from omnigraph.write.stage.delta import WriteMode
from support.embedding_fixtures import sent, vectors
from support.embedding_server import EmbeddingServer
from support.inline_jobs import inline_load
from support.loads import graph_lines
from support.places import repository_of, session_of

SCHEMA = """\
node Note { key: String @key  text: String?  rank: I32?  vec: Vector(4)? @embed("text") }
node Must { key: String @key  text: String  vec: Vector(4) @embed("text") }
node Pinned { key: String @key  text: String?  vec: Vector(4)? @embed("text", model="other") }
edge About: Note -> Must
"""
GIVEN = [1.0, 0.0, 0.0, 0.0]
APPEND, MERGE = WriteMode.APPEND, WriteMode.MERGE
pytestmark = pytest.mark.usefixtures("no_provider")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "g", SCHEMA, durability="process", auto_optimize=False) as made:
        yield made


def notes(*rows: dict[str, Any]) -> dict[str, pa.Table]:
    kinds = {"key": pa.utf8(), "text": pa.utf8(), "rank": pa.int32(), "vec": pa.list_(pa.float32())}
    names = {name: None for row in rows for name in row}
    columns = {name: pa.array([row.get(name) for row in rows], kinds[name]) for name in names}
    return {"Note": pa.table(columns)}


def records(path: Path, rows: list[dict[str, Any]]) -> Path:
    lines = [{"type": row.pop("type", "Note"), "data": row} for row in map(dict, rows)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


STEPS: list[tuple[str, str, list[dict[str, Any]]]] = [
    (
        "append",
        "missing",
        [
            *({"key": f"k{n}", "text": "same" if n % 2 else None} for n in range(6)),
            {"key": "given", "text": "same", "vec": GIVEN},
            {"key": "blank", "text": "  "},
            {"type": "Must", "key": "m", "text": "needed"},
        ],
    ),
    # Equal rows again, one with another text, one whose given vector replaces one of ours.
    (
        "merge",
        "missing",
        [
            {"key": "k1", "text": "same"},
            {"key": "k3", "text": "changed"},
            {"key": "k5", "text": "same", "vec": GIVEN},
            {"key": "new", "text": "same"},
        ],
    ),
    ("merge", "all", [{"key": "given", "text": "same", "vec": GIVEN}]),
    ("merge", "off", [{"key": "off", "text": "never"}]),
]


def test_both_engines_fill_the_same_vectors_and_pay_for_the_same_texts(
    tmp_path: Path, server: EmbeddingServer
) -> None:
    seen: dict[str, list[object]] = {"local": [], "spark": []}
    for engine, found in seen.items():
        with Graph.init(tmp_path / engine, SCHEMA, durability="process") as graph:
            for number, (mode, embed_mode, rows) in enumerate(STEPS):
                path = records(tmp_path / f"{engine}{number}.jsonl", rows)
                server.seen.clear()
                if engine == "local":
                    result = graph.load(path, mode=mode, embed=embed_mode, engine="local")
                else:
                    result = inline_load(graph, path, mode=WriteMode(mode), embed=embed_mode)
                counts = (result.inserted, result.updated, result.unchanged)
                key = VectorKey.of(graph.catalog().node_types["Note"], "vec")
                known = session_of(graph).embeddings_table.known(key).sort_by("id")
                found.append((counts, sorted(sent(server)), known.to_pylist(), graph_lines(graph)))
    assert seen["spark"] == seen["local"]
    assert [texts for _, texts, *_ in map(tuple, seen["spark"])] == [
        ["needed", "same"],
        ["changed"],
        [],
        [],
    ]


def test_tables_get_the_vectors_of_the_mock_provider(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    rows = notes({"key": "a", "text": "alpha"}, {"key": "b", "text": "beta"}, {"key": "c"})
    inline_load(graph, rows, mode=APPEND, embed="missing", tuning=Tuning(driver_rows_max=0))
    found = vectors(graph)
    assert found["c"] is None
    alpha = [-0.54204881, -0.47179943, 0.16090508, 0.67653376]
    assert np.allclose(found["a"], alpha, atol=1e-7)  # type: ignore[arg-type]  # it is no None


def test_a_text_that_two_tasks_meet_is_paid_for_once(
    graph: Graph, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "_TEXTS_ASKED_MAX", 2)
    rows = [{"key": f"k{n}", "text": f"t{n % 5}"} for n in range(20)]
    inline_load(graph, notes(*rows), mode=APPEND, embed="missing")
    assert sorted(sent(server)) == [f"t{n}" for n in range(5)]
    assert max(len(request.body["input"]) for request in server.seen) <= 2


def test_a_provider_that_fails_ends_the_load_with_its_error_and_is_asked_by_one_task_only(
    graph: Graph, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.reply((429, b"{}"), *[(400, b'{"error": {"message": "no"}}')] * 9)
    before = [commit.graph_commit_id for commit in graph.list_commits()]
    rows = notes(*({"key": f"k{n}", "text": f"t{n}"} for n in range(8)))
    with pytest.raises(EmbeddingRequestError, match="status 400: no") as failed:
        inline_load(graph, rows, mode=APPEND, embed="missing")
    assert failed.value.status == 400
    assert len(server.seen) == 2, "429 is tried again, and the second task asks nobody"
    assert [commit.graph_commit_id for commit in graph.list_commits()] == before
    assert graph_lines(graph) == []
    server.script.clear()
    assert inline_load(graph, rows, mode=APPEND, embed="missing").inserted == 8
    monkeypatch.setenv("OMNIGRAPH_EMBED_DEADLINE_MS", "20")
    server.hang()
    with Graph.open(graph.uri) as again, pytest.raises(EmbeddingDeadlineError):
        inline_load(again, notes({"key": "x", "text": "x"}), mode=APPEND, embed="missing")


@pytest.mark.parametrize(
    ("provider", "rows", "expected"),
    [
        ("gemini", notes({"key": "a", "text": "alpha"}), EmbeddingKeyMissingError),
        ("gemini", notes({"key": "a"}), None),
        (
            "mock",
            {"Pinned": pa.table({"key": ["a"], "text": ["alpha"]})},
            EmbeddingModelMismatchError,
        ),
        ("mock", {"Must": pa.table({"key": ["a"], "text": [" "]})}, ValidationError),
    ],
)
def test_what_is_wrong_with_a_provider_or_a_text_matters_only_where_a_vector_is_wanted(
    graph: Graph,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    rows: dict[str, pa.Table],
    expected: type[OmnigraphError] | None,
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", provider)
    if expected is None:
        assert inline_load(graph, rows, mode=APPEND, embed="missing").inserted == 1
        return
    with pytest.raises(expected):
        inline_load(graph, rows, mode=APPEND, embed="missing")
    assert graph_lines(graph) == []


def test_a_task_that_is_run_again_finds_the_vectors_that_it_has_paid_for(graph: Graph) -> None:
    files = SideFiles(repository_of(graph).store.settings, "operation")
    made = np.arange(8, dtype=np.float32).reshape(2, 4)
    SharedVectors(files).add("Note", "vec", ["a", "b"], made)
    found = SharedVectors(files).known("Note", "vec", ["b", "c"])
    assert [*found] == ["b"]
    assert found["b"].tolist() == made[1].tolist()
    assert SharedVectors(files).known("Note", "other", ["b"]) == {}


class Trap:
    """Runs code when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._mark),)


def test_what_somebody_leaves_among_the_side_files_runs_no_code(
    graph: Graph, tmp_path: Path
) -> None:
    files = SideFiles(repository_of(graph).store.settings, "operation")
    mark = tmp_path / "code has run"
    trap = pickle.dumps(Trap(mark))
    files.write_bytes("embedding/failure/error", trap)
    with pytest.raises(EmbeddingResponseError, match="cannot be read"):
        SharedVectors(files).known("Note", "vec", ["text"])
    with pytest.raises(CorruptObjectError, match="no file of rejected records"):
        list(decode_rejected("rejected", trap))
    assert not mark.exists()
    pickle.loads(trap)
    assert mark.exists(), "the trap is one"


@pytest.mark.parametrize(
    "error",
    [
        UnknownEmbeddingProviderError("x", ("a", "b")),
        EmbeddingKeyMissingError("openai", ("KEY",)),
        EmbeddingModelMismatchError("vec", recorded="a", resolved="b"),
        EmbeddingRequestError(400, "no"),
        EmbeddingUnreachableError("http://x", "refused"),
        EmbeddingDeadlineError(20, provider="openai", model="m"),
        EmbeddingResponseError("it is no JSON"),
        EmbeddingVectorError("too short"),
        LocalModelError("m", "absent"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_failure_of_a_provider_reaches_other_tasks_as_it_was(
    graph: Graph, error: OmnigraphError
) -> None:
    files = SideFiles(repository_of(graph).store.settings, "operation")
    SharedVectors(files).fail(error)
    with pytest.raises(type(error)) as caught:
        SharedVectors(files).known("Note", "vec", ["text"])
    assert (str(caught.value), caught.value.hint) == (str(error), error.hint)
    assert vars(caught.value) == vars(error)


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"[]",
        b"3",
        b'{"code": 3}',
        b'{"code": "OG-EMBED-REQUEST", "facts": []}',
        b'{"code": "OG-EMBED-REQUEST", "facts": {"status": {}, "message": null}}',
    ],
)
def test_an_unreadable_note_of_a_failure_is_an_error_that_says_so(
    graph: Graph, note: bytes
) -> None:
    files = SideFiles(repository_of(graph).store.settings, "operation")
    files.write_bytes("embedding/failure/error", note)
    with pytest.raises(EmbeddingResponseError, match="cannot be read"):
        SharedVectors(files).known("Note", "vec", ["text"])


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_workers_of_a_session_ask_the_provider_that_the_driver_has_configured(
    graph: Graph, server: EmbeddingServer, spark: SparkSession
) -> None:
    frame = spark.range(0, 40, 1, 4).selectExpr(
        "concat('k', id) AS key", "concat('t', id % 4) AS text"
    )
    result = graph.load({"Note": frame}, mode="append")
    assert (result.engine, result.inserted) == ("spark", 40)
    assert set(sent(server)) == {f"t{n}" for n in range(4)}
    found = vectors(graph)
    assert None not in found.values()
    assert found["k0"] == found["k4"]
    server.reply(*[(400, b"{}")] * 9)
    more = spark.range(50, 60).selectExpr("concat('k', id) AS key", "'other' AS text")
    with pytest.raises(EmbeddingRequestError):
        graph.load({"Note": more}, mode="append")
    assert len(vectors(graph)) == 40
