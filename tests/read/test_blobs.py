"""One Blob value: described without reading it, read in parts, never fetched from outside."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.graph import Graph
from omnigraph.read.access.blobs import (
    BYTES_AT_ONCE,
    BlobNotFoundError,
    BlobRangeError,
    BlobSelector,
    BlobSelectorError,
    ByteRange,
    ExternalBlobError,
    RangedExternalBlobError,
    describe,
    find_blob,
)

SCHEMA = """\
node Doc { name: String @key  body: Blob?  note: String? }
edge Next: Doc -> Doc { scan: Blob? }
"""
LARGE = struct.pack(">200000Q", *range(200_000)) * 6


def encoded(data: bytes) -> str:
    return f"base64:{base64.b64encode(data).decode()}"


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    (folder / "page.bin").write_bytes(b"elsewhere")
    return folder


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, outside: Path) -> Graph:
    root = tmp_path_factory.mktemp("blobs") / "g.omni"
    graph = Graph.init(root, SCHEMA, durability="process", auto_optimize=False)
    bodies = {
        "small": encoded(b"hello"),
        "empty": encoded(b""),
        "large": encoded(LARGE),
        "null": None,
        "external": (outside / "page.bin").as_uri(),
    }
    rows: list[dict[str, object]] = [
        {"type": "Doc", "data": {"name": name, "body": body}} for name, body in bodies.items()
    ]
    scan = {"id": "e1", "scan": encoded(b"scan")}
    rows.append({"edge": "Next", "from": "small", "to": "empty", "data": scan})
    # An overwrite keeps external values as the references that they are.
    graph.load(
        "\n".join(map(json.dumps, rows)).encode(),
        mode="overwrite",
        external_blob_bases=[outside.as_uri()],
    )
    return graph


def test_a_value_of_the_graph_has_a_size_a_tag_and_its_bytes(graph: Graph) -> None:
    small = graph.blob("node", "Doc", "small", "body")
    assert (small.stat.kind, small.stat.size, small.stat.uri) == ("managed", 5, None)
    assert small.stat.snapshot_id == graph.snapshot().commit_id
    assert small.read() == b"hello"
    assert graph.blob("edge", "Next", "e1", "scan").read() == b"scan"
    assert list(graph.blob("node", "Doc", "empty", "body").chunks()) == []


def test_a_large_value_comes_in_bounded_parts(graph: Graph) -> None:
    large = graph.blob("node", "Doc", "large", "body")
    parts = list(large.chunks())
    assert b"".join(parts) == LARGE
    assert [len(part) for part in parts] == [BYTES_AT_ONCE] * 2 + [len(LARGE) - 2 * BYTES_AT_ONCE]
    wanted = ByteRange(offset=BYTES_AT_ONCE - 3, length=8)
    assert b"".join(large.chunks(wanted)) == LARGE[BYTES_AT_ONCE - 3 : BYTES_AT_ONCE + 5]


def test_an_external_value_is_an_address_and_is_not_fetched(graph: Graph, outside: Path) -> None:
    external = graph.blob("node", "Doc", "external", "body")
    assert (external.stat.kind, external.stat.size, external.stat.etag) == ("external", None, None)
    assert external.stat.uri == (outside / "page.bin").as_uri()
    with pytest.raises(ExternalBlobError, match=r"page\.bin") as refused:
        external.chunks()
    assert "blob stat" in refused.value.hint


@pytest.mark.parametrize(("position", "size"), [(3, 0), (0, 5)])
def test_a_part_of_an_external_object_is_refused(graph: Graph, position: int, size: int) -> None:
    selector = BlobSelector("node", "Doc", "external", "body")
    described = {"blob_uri": "file:///x", "position": position, "size": size}
    with pytest.raises(RangedExternalBlobError, match="file:///x"):
        describe(graph.snapshot(), selector, described, cell="")


@pytest.mark.parametrize(
    ("entity_id", "message"), [("null", "it is null"), ("nobody", "was not found")]
)
def test_what_is_not_there_is_not_found(graph: Graph, entity_id: str, message: str) -> None:
    with pytest.raises(BlobNotFoundError, match=message):
        graph.blob("node", "Doc", entity_id, "body")


@pytest.mark.parametrize(
    ("selector", "hint"),
    [
        (BlobSelector("node", "Dok", "small", "body"), "did you mean 'Doc'?"),
        (BlobSelector("edge", "Doc", "small", "body"), "there are Next"),
        (BlobSelector("node", "Doc", "small", "bodi"), "did you mean 'body'?"),
        (BlobSelector("node", "Doc", "small", "note"), "there are body"),
    ],
    ids=str,
)
def test_a_selector_that_the_schema_does_not_know_is_refused(
    graph: Graph, selector: BlobSelector, hint: str
) -> None:
    with pytest.raises(BlobSelectorError) as refused:
        find_blob(graph.snapshot(), selector)
    assert refused.value.hint == hint


def test_the_tag_names_one_published_value(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA, durability="process", auto_optimize=False)

    def put(branch: str, text: bytes) -> None:
        row = {"type": "Doc", "data": {"name": "d", "body": encoded(text)}}
        graph.load(json.dumps(row).encode(), mode="merge", branch=branch)

    def tag() -> str | None:
        return graph.blob("node", "Doc", "d", "body").stat.etag

    put("main", b"one")
    first = tag()
    assert first == tag()
    graph.branch_create("draft")
    # Both lineages get a version of the same number.
    put("draft", b"two")
    put("main", b"ten")
    tags = [first, tag()]
    graph.sync_branch("draft")
    tags.append(tag())
    assert len(set(tags)) == 3


@given(
    size=st.integers(0, 50),
    offset=st.none() | st.integers(0, 60),
    length=st.none() | st.integers(1, 60),
)
def test_a_range_is_the_slice_that_it_names(
    size: int, offset: int | None, length: int | None
) -> None:
    value = bytes(range(size))
    start = offset or 0
    expected = value[start:] if length is None else value[start : start + length]
    wanted = ByteRange(offset, length)
    if not expected and (offset, length) != (None, None):
        with pytest.raises(BlobRangeError, match="not satisfiable"):
            wanted.within(size)
        return
    found = wanted.within(size)
    assert value[found.start : found.stop] == expected


@pytest.mark.parametrize(
    ("offset", "length"), [(None, 0), (0, -1), (2**64, None), (2**64 - 1, 1), (-1, None)]
)
def test_a_range_that_can_never_be_read_is_refused_before_anything_is_opened(
    offset: int | None, length: int | None
) -> None:
    with pytest.raises(BlobRangeError) as refused:
        ByteRange(offset, length)
    assert refused.value.length is None
