"""Blobs that a write names by address: read from below the bases of the server, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from omnigraph.graph import Graph
from support.http_graph import GRAPH_ID, Setup, TestServer
from support.served import command, environment, run_to_end

MUTATION = 'query q($b: Blob) { insert Doc { slug: "m", body: $b } }'


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder from which the server may read, with one file."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"hello")
    return folder


@pytest.fixture
def reading(root: Path, outside: Path) -> Iterator[TestServer]:
    setup = Setup(external_blob_bases=(f"{outside.as_uri()}/",))
    server = TestServer(Graph.open(str(root), durability="process"), setup)
    yield server
    server.close()


def load(server: TestServer, uri: str, **more: Any) -> httpx2.Response:
    node = json.dumps({"type": "Doc", "data": {"slug": "far", "body": uri}})
    edge = json.dumps({"edge": "Cites", "from": "far", "to": "far", "data": {"id": "self"}})
    return post(server, "/load", data=f"{node}\n{edge}\n", **more)


def post(server: TestServer, path: str, **body: Any) -> httpx2.Response:
    headers = [("Content-Type", "application/json")]
    return server.send("POST", f"/graphs/{GRAPH_ID}{path}", headers, json.dumps(body).encode())


def value(server: TestServer, slug: str) -> httpx2.Response:
    query = f"entity=node&type=Doc&id={slug}&property=body"
    return server.send("GET", f"/graphs/{GRAPH_ID}/blob?{query}")


def test_a_load_and_a_mutation_copy_what_they_name(reading: TestServer, outside: Path) -> None:
    uri = (outside / "a.bin").as_uri()
    assert load(reading, uri).status_code == 200
    assert post(reading, "/mutate", query=MUTATION, params={"b": uri}).status_code == 200
    assert [value(reading, slug).content for slug in ("far", "m")] == [b"hello", b"hello"]


def test_an_overwrite_keeps_the_address_which_is_then_a_redirect(
    reading: TestServer, outside: Path
) -> None:
    uri = (outside / "a.bin").as_uri()
    assert load(reading, uri, mode="overwrite").status_code == 200
    answer = value(reading, "far")
    assert (answer.status_code, answer.headers["location"]) == (302, uri)


@pytest.mark.parametrize("mode", ["merge", "append"])
def test_what_cannot_be_read_is_424_and_has_no_effect(
    reading: TestServer, outside: Path, mode: str
) -> None:
    head = reading.graph.head_commit_id_for_branch()
    uri = (outside / "gone.bin").as_uri()
    answer = load(reading, uri, mode=mode)
    assert answer.status_code == 424
    shape = answer.json()
    assert "code" not in shape
    assert shape["external_blob_source"]["uri"] == uri
    assert shape["external_blob_source"]["reason"]
    mutated = post(reading, "/mutate", query=MUTATION, params={"b": uri})
    assert mutated.status_code == 424
    assert reading.graph.head_commit_id_for_branch() == head


@pytest.mark.parametrize(
    "spelled", ["{}/../secret.bin", "{}/%2e%2e/secret.bin", "{}x/secret.bin", "file:///etc/passwd"]
)
def test_nothing_outside_of_a_base_is_read(
    reading: TestServer, outside: Path, spelled: str
) -> None:
    (outside.parent / "secret.bin").write_bytes(b"secret")
    answer = load(reading, spelled.format(outside.as_uri()))
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert value(reading, "far").status_code == 404


def test_without_a_base_no_address_is_taken(server: TestServer, outside: Path) -> None:
    answer = load(server, (outside / "a.bin").as_uri())
    assert answer.status_code == 400
    assert "external" in answer.json()["error"]


def test_a_server_does_not_start_with_a_base_that_is_none(root: Path) -> None:
    options = ("--bind", "127.0.0.1:0", "--unauthenticated", "--external-blob-base", "in")
    done = run_to_end(command(str(root), *options), environment())
    assert (done.returncode, done.stdout) == (1, "")
    assert "is no base of external blobs" in done.stderr
