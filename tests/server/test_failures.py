"""Failures inside of the server: a status, a sentence for the client, the rest in the log."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from omnigraph import failpoints
from support.http_graph import TestServer
from support.openapi import check_answer

JSON = [("Content-Type", "application/json")]
MUTATION = {"query": 'query q() { insert Note { name: "x" } }'}


@pytest.mark.usefixtures("disarmed")
def test_what_is_not_foreseen_is_one_sentence(
    server: TestServer, caplog: pytest.LogCaptureFixture
) -> None:
    failpoints.arm("mutation.post_stage")
    with caplog.at_level(logging.ERROR):
        answer = server.send("POST", "/graphs/demo/mutate", JSON, json.dumps(MUTATION).encode())
    assert answer.status_code == 500
    assert answer.json() == {"error": "internal error", "code": "internal"}
    assert "FailpointError" in caplog.text
    failpoints.disarm()
    answer = server.send("POST", "/graphs/demo/mutate", JSON, json.dumps(MUTATION).encode())
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "/blob?entity=node&type=Doc&id=d1&property=body",
            "internal error while reading a Blob value",
        ),
        ("/changes?start=beginning", "internal error while reading changes"),
    ],
)
def test_lost_files_show_no_path(
    server: TestServer, root: Path, path: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in (*root.glob("nodes/*/data"), *root.glob("edges/*/data")):
        shutil.rmtree(folder)
    with caplog.at_level(logging.CRITICAL):
        answer = server.send("GET", f"/graphs/demo{path}")
    assert answer.status_code == 500
    assert answer.json()["error"] == text
    assert "nodes/" not in answer.text
    raw_path = answer.request.url.raw_path.partition(b"?")[0]
    check_answer("GET", raw_path, 500, "application/json", answer.json())
