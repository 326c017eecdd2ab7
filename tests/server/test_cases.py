"""The HTTP API, request by request: `tests/cases/http`, on a disk and on an object store."""

from __future__ import annotations

import itertools
from pathlib import Path

import boto3
import pytest

from omnigraph.graph import Graph
from support.cases import Case, check_case, load_cases
from support.http_cases import ids, run_case
from support.s3 import ACCESS_KEY, SECRET_KEY, S3Server

CASES = load_cases("http")
_NUMBERS = itertools.count()


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_a_case_holds_on_disk(case: Case, root: Path, tmp_path: Path, update_cases: bool) -> None:
    graph = Graph.open(str(root), durability="process")
    check_case(case, "answers", run_case(case, graph, tmp_path), update_cases)


@pytest.fixture(scope="module")
def filled_in_s3(s3: S3Server, filled: Path) -> list[tuple[str, bytes]]:
    """Return the objects of the graph, by their names below its root."""
    return [
        (str(path.relative_to(filled)), path.read_bytes())
        for path in sorted(filled.rglob("*"))
        if path.is_file()
    ]


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_a_case_holds_on_s3(
    case: Case, s3: S3Server, filled_in_s3: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    key = f"http{next(_NUMBERS)}/demo.omni"
    client = boto3.client(
        "s3",
        endpoint_url=s3.endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name="us-east-1",
    )
    for name, data in filled_in_s3:
        client.put_object(Bucket=s3.bucket, Key=f"{key}/{name}", Body=data)
    client.close()
    graph = Graph.open(f"s3://{s3.bucket}/{key}", storage_options=s3.options, durability="process")
    check_case(case, "answers", run_case(case, graph, tmp_path), update=False)
