from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.store import connect
from omnigraph.store.errors import InvalidLocationError
from omnigraph.store.uri import Root, join_path, normalise_options, parse_root
from support.s3 import S3Server


@pytest.mark.parametrize(
    ("text", "scheme", "bucket", "prefix", "uri"),
    [
        ("/data/graph", "file", "", "/data/graph", "/data/graph"),
        ("/data/./x/../graph/", "file", "", "/data/graph", "/data/graph"),
        ("file:///data/graph", "file", "", "/data/graph", "/data/graph"),
        ("file://localhost/data/my%20graph", "file", "", "/data/my graph", "/data/my graph"),
        ("s3://lake/brain.omni", "s3", "lake", "brain.omni", "s3://lake/brain.omni"),
        ("s3a://lake/a/b/", "s3", "lake", "a/b", "s3://lake/a/b"),
        ("S3://lake", "s3", "lake", "", "s3://lake"),
        ("gs://lake/x", "gs", "lake", "x", "gs://lake/x"),
        ("az://container/x", "az", "container", "x", "az://container/x"),
    ],
)
def test_roots_are_parsed(text: str, scheme: str, bucket: str, prefix: str, uri: str) -> None:
    root = parse_root(text)
    assert (root.scheme, root.bucket, root.prefix, root.uri) == (scheme, bucket, prefix, uri)
    assert root.is_local == (scheme == "file")
    assert str(root) == uri
    assert parse_root(uri) == root


def test_a_relative_path_is_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_root("graph").prefix == str(tmp_path / "graph")
    assert parse_root(Path("graph")).prefix == str(tmp_path / "graph")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("http://x/y", "expected a local path, file://, s3://, gs:// or az://, found `http://`"),
        ("s3://", "expected a bucket"),
        ("s3://user@bucket/x", "expected a bucket"),
        ("s3://bucket/a//b", "single slashes"),
        ("s3://bucket/../b", "single slashes"),
        ("s3://bucket/x?version=1", "no query"),
        ("file://other/data", "no other machine"),
    ],
)
def test_other_roots_are_refused_with_a_reason(text: str, said: str) -> None:
    with pytest.raises(InvalidLocationError) as caught:
        parse_root(text)
    assert said in str(caught.value)
    assert caught.value.path == text.replace("user@", "***@")


def test_paths_are_joined_under_the_root() -> None:
    assert parse_root("s3://lake").join("nodes/1") == "s3://lake/nodes/1"
    assert parse_root("/data/graph").join("nodes/1") == "/data/graph/nodes/1"
    assert parse_root("/data/graph").local_path("nodes/1") == Path("/data/graph/nodes/1")
    assert join_path("a/", "", "/b", "c") == "a/b/c"
    with pytest.raises(InvalidLocationError):
        parse_root("s3://lake").local_path("x")


S3_ROOT = Root("s3", "lake", "x")


def test_the_environment_is_spelled_as_options() -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "https://store.example",
        "AWS_S3_FORCE_PATH_STYLE": "true",
        "AWS_ALLOW_HTTP": "true",
        "HOME": "/root",
    }
    assert normalise_options(S3_ROOT, environment=environment) == {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_session_token": "token",
        "aws_region": "eu-west-1",
        "aws_endpoint": "https://store.example",
        "aws_virtual_hosted_style_request": "false",
        "allow_http": "true",
    }


def test_a_region_beats_a_default_region_and_the_service_endpoint_the_general_one() -> None:
    environment = {
        "AWS_REGION": "eu-north-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "https://any.example",
        "AWS_ENDPOINT_URL_S3": "https://s3.example",
    }
    settled = normalise_options(S3_ROOT, environment=environment)
    assert settled == {"aws_region": "eu-north-1", "aws_endpoint": "https://s3.example"}


@pytest.mark.parametrize(
    "spelling", ["endpoint", "endpoint_url", "aws_endpoint", "AWS_ENDPOINT_URL", "aws_endpoint_url"]
)
def test_what_the_caller_says_wins(spelling: str) -> None:
    environment = {"AWS_ENDPOINT_URL": "https://any.example", "AWS_REGION": "x"}
    settled = normalise_options(S3_ROOT, {spelling: "http://me:9"}, environment=environment)
    assert settled == {
        "aws_endpoint": "http://me:9",
        "aws_region": "x",
        "allow_http": "true",
    }


def test_a_contradiction_that_clients_settle_differently_is_refused() -> None:
    environment = {"AWS_ENDPOINT_URL_S3": "https://s3.example"}
    with pytest.raises(InvalidLocationError, match="unset one of them"):
        normalise_options(S3_ROOT, {"endpoint": "http://me:9"}, environment=environment)
    agreed = {"endpoint": "https://s3.example/"}
    settled = normalise_options(S3_ROOT, agreed, environment=environment)
    assert settled["aws_endpoint"] == "https://s3.example/"


def test_virtual_hosted_style_can_be_asked_for_both_ways() -> None:
    name = "aws_virtual_hosted_style_request"
    off = {"AWS_S3_FORCE_PATH_STYLE": "false"}
    assert normalise_options(S3_ROOT, environment=off)[name] == "true"
    said = {"virtual_hosted_style_request": "false"}
    assert normalise_options(S3_ROOT, said, environment=off)[name] == "false"


def test_options_of_other_clouds_pass_unchanged() -> None:
    root = parse_root("gs://lake/x")
    options = {"google_service_account": "/key.json"}
    assert normalise_options(root, options, environment={"AWS_REGION": "x"}) == options


def test_both_clients_follow_the_environment_alone(
    s3: S3Server, s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    store = connect(s3_root)
    with s3.requests() as by_objects:
        assert store.objects.list() == ()
    with s3.requests() as by_datasets:
        assert not store.datasets.exists("nodes/1")
    assert len(by_objects) == len(by_datasets) == 1
