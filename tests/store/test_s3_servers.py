"""The S3 suites run against a MinIO binary as they do against moto."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from omnigraph.graph import Graph
from omnigraph.store import connect
from omnigraph.store.errors import ObjectExistsError, StoragePermissionError
from support.s3 import MINIO_VARIABLE, serve_s3

# Takes the arguments of MinIO and is moto: what is tested here is what stands before it.
STAND_IN = """\
#!{python}
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
_, command, folder, flag, address = sys.argv
assert (command, flag) == ("server", "--address")
host, _, port = address.partition(":")
app = DomainDispatcherApplication(create_backend_app)
make_server(host, int(port), app, threaded=True).serve_forever()
"""


@pytest.fixture
def binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "minio"
    path.write_text(STAND_IN.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setenv(MINIO_VARIABLE, str(path))
    return path


@pytest.mark.usefixtures("binary")
def test_a_graph_lives_on_the_server_that_the_variable_names() -> None:
    with serve_s3() as server:
        uri = f"s3://{server.bucket}/a b/graph"
        objects = connect(uri, storage_options=server.options).objects
        tag = objects.put_if_absent("__leases/a%2Fb.json", b"x")
        with pytest.raises(ObjectExistsError):
            objects.put_if_absent("__leases/a%2Fb.json", b"y")
        objects.put_if_match("__leases/a%2Fb.json", b"", tag=tag)
        assert objects.get("__leases/a%2Fb.json").data == b""
        objects.delete("__leases/a%2Fb.json")
        with server.requests() as seen:
            graph = Graph.init(uri, "node P { k: String @key }", storage_options=server.options)
            graph.mutate('query q() { insert P { k: "a" } }')
        assert {"PUT", "GET"} <= {request.method for request in seen}
        again = Graph.open(uri, storage_options=server.options)
        assert again.query("query q() { match { $p: P } return { $p.k } }").row_count == 1
        with server.refusing("__manifest"), pytest.raises(StoragePermissionError):
            Graph.open(uri, storage_options=server.options)


def test_a_binary_that_does_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "minio"
    path.write_text("#!/bin/sh\necho no license; exit 3\n")
    path.chmod(0o755)
    monkeypatch.setenv(MINIO_VARIABLE, str(path))
    with pytest.raises(AssertionError, match="no license"), serve_s3():
        pass
