"""Vectors for the records of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.clock import SystemClock
from omnigraph.search.embedding import file as module
from omnigraph.search.embedding.client import EmbeddingClient
from omnigraph.search.embedding.config import EmbeddingConfig, Provider
from omnigraph.search.embedding.file import (
    EmbedFileError,
    EmbedFileRequest,
    EmbedSpec,
    Selector,
    embed_file,
    text_of,
)
from omnigraph.search.embedding.vectors import mock_vectors

SPEC = EmbedSpec.of(
    {"dimension": 3, "types": {"Note": {"target": "vec", "fields": ["title", "tags"]}}}, "spec"
)
RECORDS = (
    {"type": "Note", "data": {"title": " One ", "tags": ["a", "", "b"], "n": 1}},
    {"type": "Note", "data": {"title": "Two", "vec": [1.0, 0.0, 0.0]}},
    {"type": "Note", "data": {"title": "Three", "vec": []}},
    {"type": "Other", "data": {"title": "One"}},
    {"edge": "Cites", "from": "a", "to": "b"},
)


def client() -> EmbeddingClient:
    return EmbeddingClient(EmbeddingConfig(Provider.MOCK, "m"), SystemClock())


def no_client() -> EmbeddingClient:
    raise AssertionError("no provider is needed")


@pytest.fixture(params=[1, 1_024])
def source(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_BATCH_RECORDS", request.param)
    path = tmp_path / "in.jsonl"
    path.write_text("\n\n".join(json.dumps(record) for record in RECORDS) + "\n\n")
    return path


def asked(source: Path, **options: Any) -> EmbedFileRequest:
    return EmbedFileRequest(source, source.parent / "deep" / "out.jsonl", SPEC, **options)


def written(request: EmbedFileRequest) -> list[dict[str, Any]]:
    return [json.loads(line) for line in request.output.read_text().splitlines()]


def of(text: str) -> list[float]:
    found: list[float] = mock_vectors([text], 3)[0].tolist()
    return found


ONE = "type: Note\ntitle: One\ntags: a, b"
TWO = "type: Note\ntitle: Two"
THREE = "type: Note\ntitle: Three"


def test_missing_vectors_are_filled_and_the_rest_passes_through(source: Path) -> None:
    request = asked(source)
    result = embed_file(request, client)
    assert [record.get("data", {}).get("vec") for record in written(request)] == [
        pytest.approx(of(ONE)),
        [1.0, 0.0, 0.0],
        pytest.approx(of(THREE)),
        None,
        None,
    ]
    assert written(request)[3:] == list(RECORDS[3:])
    counts = (result.records, result.selected_records, result.embedded_records)
    assert counts == (5, 4, 2)
    assert (result.mode, result.model, result.dimension) == ("fill_missing", "m", 3)
    assert not request.output.with_name("out.jsonl.tmp").exists()


@pytest.mark.parametrize(
    ("options", "mode", "embedded", "selected"),
    [
        ({"reembed_all": True}, "reembed_all", {0, 1, 2}, 4),
        ({"selectors": (Selector.parse("title=Two"),)}, "reembed_selected", {1}, 1),
        ({"selectors": (Selector.parse("Note:title = One"),)}, "reembed_selected", {0}, 1),
        ({"selectors": (Selector.parse("title=One"),)}, "reembed_selected", {0}, 2),
        (
            {"selectors": (Selector.parse("n=1"), Selector.parse("title=Two"))},
            "reembed_selected",
            {0, 1},
            2,
        ),
        ({"selectors": (Selector.parse("Other:title=Two"),)}, "reembed_selected", set(), 0),
        ({"types": ("Other",)}, "fill_missing", set(), 1),
        ({"types": ("Note",), "reembed_all": True}, "reembed_all", {0, 1, 2}, 3),
    ],
)
def test_records_are_selected_by_type_and_value(
    source: Path, options: dict[str, Any], mode: str, embedded: set[int], selected: int
) -> None:
    request = asked(source, **options)
    result = embed_file(request, client)
    assert (result.mode, result.embedded_records) == (mode, len(embedded))
    assert result.selected_records == selected
    texts = {0: ONE, 1: TWO, 2: THREE}
    for number, record in enumerate(written(request)):
        if number in embedded:
            assert record["data"]["vec"] == pytest.approx(of(texts[number]))
        else:
            assert record == RECORDS[number]


def test_cleaning_needs_no_provider(source: Path) -> None:
    request = asked(source, clean=True)
    result = embed_file(request, no_client)
    assert (result.mode, result.model, result.cleaned_records) == ("clean", "", 2)
    assert all("vec" not in record.get("data", {}) for record in written(request))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"type": "Note"}', "line 1 is missing object field 'data'"),
        ('{"type": "Note", "data": []}', "line 1 is missing object field 'data'"),
        ("[]", "line 1 is not a JSON object"),
        ("{", "line 1 is not JSON"),
    ],
)
def test_a_bad_record_leaves_the_output_as_it_was(tmp_path: Path, line: str, problem: str) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(line)
    request = EmbedFileRequest(source, tmp_path / "out.jsonl", SPEC)
    request.output.write_text("old")
    with pytest.raises(EmbedFileError, match=problem.replace("[", "\\[")):
        embed_file(request, client)
    assert request.output.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_values_are_spelled_as_text() -> None:
    data = {"s": " x ", "b": False, "f": 1.5, "n": None, "l": [" a ", None, 2], "o": {"k": [1]}}
    lines = text_of("T", data, tuple(data)).splitlines()
    assert lines == ["type: T", "s: x", "b: false", "f: 1.5", "l: a, 2", 'o: {"k":[1]}']


@pytest.mark.parametrize("text", ["", "title", "=x", ":title=x", "Note:=x"])
def test_a_selector_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(EmbedFileError, match="not understood"):
        Selector.parse(text)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ([], "must be an object"),
        ({"types": {}}, "dimension"),
        ({"dimension": 0, "types": {}}, "dimension"),
        ({"dimension": True, "types": {}}, "dimension"),
        ({"dimension": 2}, "'types' must be an object"),
        ({"dimension": 2, "types": {"T": {"fields": ["a"]}}}, "target"),
        ({"dimension": 2, "types": {"T": {"target": "v"}}}, "fields"),
    ],
)
def test_a_spec_that_lacks_something_says_what(spec: object, problem: str) -> None:
    with pytest.raises(EmbedFileError, match=problem):
        EmbedSpec.of(spec, "spec")
