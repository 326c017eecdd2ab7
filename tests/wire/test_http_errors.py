"""Errors as HTTP answers: those that no request reaches on purpose, and the way back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from omnigraph.errors import OmnigraphError
from omnigraph.manifest.errors import (
    BranchNotFoundError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
)
from omnigraph.merge.conflicts import ReadSetConflictError
from omnigraph.recovery.settle import RecoveryStoppedError
from omnigraph.wire.http_errors import DETAILS, error_of, http_error
from omnigraph.wire.responses import ErrorOutput
from omnigraph.write.commit.phases import WriteUnsettledError
from omnigraph.write.stage.external_blobs import BlobSourceUnreadableError

ROWS: list[tuple[OmnigraphError, int, str | None, dict[str, Any]]] = [
    (
        ExpectedVersionMismatchError("edge:Cites", 3, 4),
        409,
        "conflict",
        {
            "published_dataset_version_conflict": {
                "entity_kind": "edge",
                "type_name": "Cites",
                "expected_published_dataset_version": 3,
                "actual_published_dataset_version": 4,
            },
            "manifest_conflict": {"table_key": "edge:Cites", "expected": 3, "actual": 4},
        },
    ),
    (
        ReadSetConflictError("graph_head:main"),
        409,
        "conflict",
        {"read_set_conflict": {"member": "graph_head:main", "expected": None, "actual": None}},
    ),
    (
        BlobSourceUnreadableError("https://me:secret@host/a", "it is not there"),
        424,
        None,
        {"external_blob_source": {"uri": "https://host/a", "reason": "it is not there"}},
    ),
    (
        RecoveryStoppedError("op1", "main", ("node:Doc",)),
        503,
        None,
        {"recovery_required": {"operation_id": "op1"}},
    ),
    (
        WriteUnsettledError("op1", "c1", "storage failed"),
        503,
        None,
        {"recovery_required": {"operation_id": "op1"}},
    ),
    (
        PreconditionFailedError("a", "b"),
        412,
        None,
        {"precondition_failure": {"expected": "a", "actual": "b"}},
    ),
]


@pytest.mark.parametrize(
    ("error", "status", "code", "detail"), ROWS, ids=lambda value: type(value).__name__
)
def test_an_error_has_its_status_its_code_and_one_detail(
    error: OmnigraphError, status: int, code: str | None, detail: dict[str, Any]
) -> None:
    found, body = http_error(error)
    assert (found, body.get("code")) == (status, code)
    assert {name: body[name] for name in DETAILS if name in body} == detail
    # The record is what the OpenAPI document declares.
    msgspec.convert(body, ErrorOutput)


def test_a_client_gets_the_error_of_the_server() -> None:
    error = BranchNotFoundError("work")
    status, body = http_error(error)
    kinds = {kind.code: kind for kind in (BranchNotFoundError, ReadSetConflictError)}
    found = error_of(status, msgspec.json.encode(body), classes=kinds)
    assert type(found) is BranchNotFoundError
    assert (str(found), found.branch, found.hint) == (str(error), "work", error.hint)


def test_an_answer_that_is_no_error_of_ours_keeps_its_text() -> None:
    found = error_of(502, b"Bad Gateway\n", classes={})
    assert (found.code, str(found)) == ("OG-SERVER", "Bad Gateway")
