"""What a folder declares, as the value that commands work with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.cluster.addresses import provider_address
from omnigraph.cluster.config.header import storage_root
from omnigraph.cluster.desired import BlobBase, Desired, EmbeddingProfile
from omnigraph.cluster.load_desired import load_desired, load_header

FILES = {
    "papers.pg": "node Paper { doi: String @key }\n",
    "a.gq": "query all() { match { $p: Paper } return { $p.doi } }\n",
    "readers.yaml": "version: 1\n",
    "nightly.yaml": """\
version: 1
name: nightly
target: {graph: papers}
sources: {rows: {format: csv, path: rows.csv}}
load: [{node: Paper, from: rows, mode: merge}]
""",
    "cluster.yaml": """\
version: 1
providers: {embedding: {emb: {kind: gemini, model: m, api_key: "${KEY}"}, other: {kind: mock}}}
graphs:
  papers:
    schema: papers.pg
    queries: a.gq
    embedding_provider: emb
    external_blobs:
      allow:
        - {base: "s3://b", scope: server_safe}
        - {base: "S3://A/x", scope: embedded_only}
  more: {schema: papers.pg}
policies:
  readers: {file: readers.yaml, applies_to: [papers, graph.more]}
  ops: {file: readers.yaml, applies_to: [cluster]}
pipelines: {nightly: {file: nightly.yaml}}
""",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def loaded(folder: Path) -> Desired:
    desired = load_desired(str(folder))
    assert desired.diagnostics == ()
    return desired


def test_a_folder_becomes_one_value(folder: Path) -> None:
    desired = loaded(folder)
    assert desired.is_valid
    assert (desired.config_dir, desired.storage) == (str(folder), str(folder))
    assert desired.config_file == str(folder / "cluster.yaml")
    assert desired.is_locked
    assert desired.providers == {
        "emb": EmbeddingProfile("gemini", model="m", api_key="${KEY}"),
        "other": EmbeddingProfile("mock"),
    }
    assert desired.policy_targets == {
        "ops": ("cluster",),
        "readers": ("graph.more", "graph.papers"),
    }
    papers, more = desired.graphs["papers"], desired.graphs["more"]
    assert list(desired.graphs) == ["more", "papers"]
    assert papers.schema_source == FILES["papers.pg"]
    assert list(papers.queries) == ["all"]
    assert papers.embedding_provider == provider_address("emb")
    assert papers.blob_bases == (
        BlobBase("s3://a/x/", "embedded_only"),
        BlobBase("s3://b/", "server_safe"),
    )
    assert (more.embedding_provider, more.blob_bases, more.queries) == (None, (), {})


def test_each_file_of_a_resource_is_named_as_it_is_spelled_and_where_it_is(folder: Path) -> None:
    resources = {str(address): each for address, each in loaded(folder).resources.items()}
    spelled = {name: each.path for name, each in resources.items() if each.path is not None}
    assert spelled == {
        "schema.papers": "papers.pg",
        "schema.more": "papers.pg",
        "query.papers.all": "a.gq",
        "policy.readers": "readers.yaml",
        "policy.ops": "readers.yaml",
        "pipeline.nightly": "nightly.yaml",
    }
    for each in resources.values():
        assert (each.file is None) == (each.path is None)
        if each.file is not None and each.path is not None:
            assert each.file == folder / each.path


def test_dependencies_lead_to_what_is_needed(folder: Path) -> None:
    edges = [(str(each.source), str(each.target)) for each in loaded(folder).dependencies]
    assert edges == [
        ("graph.papers", "provider.embedding.emb"),
        ("pipeline.nightly", "graph.papers"),
        ("policy.readers", "graph.more"),
        ("policy.readers", "graph.papers"),
        ("query.papers.all", "graph.papers"),
        ("query.papers.all", "schema.papers"),
        ("schema.more", "graph.more"),
        ("schema.papers", "graph.papers"),
    ]


def test_what_could_be_told_of_a_folder_with_errors_is_there(folder: Path) -> None:
    (folder / "papers.pg").write_text("node", encoding="utf-8")
    (folder / "readers.yaml").unlink()
    desired = load_desired(str(folder))
    assert not desired.is_valid
    assert desired.config_digest is None
    assert {"graph.papers", "schema.papers", "query.papers.all"} <= set(map(str, desired.resources))
    assert "policy.readers" not in set(map(str, desired.resources))


def test_a_folder_without_a_file_declares_nothing(tmp_path: Path) -> None:
    desired = load_desired(str(tmp_path))
    assert [found.code for found in desired.diagnostics] == ["cluster_config_read_error"]
    assert (desired.resources, desired.graphs, desired.storage) == ({}, {}, "")
    assert load_header(str(tmp_path)).diagnostics == desired.diagnostics


def test_a_header_is_read_though_the_files_behind_it_are_broken(folder: Path) -> None:
    config = folder / "cluster.yaml"
    text = FILES["cluster.yaml"].replace("version: 1\n", "version: 1\nstate: {lock: false}\n", 1)
    config.write_text(f"{text}storage: data\n", encoding="utf-8")
    (folder / "papers.pg").unlink()
    header = load_header(str(folder))
    assert (header.storage, header.is_locked) == (str(folder / "data"), False)
    assert [found.code for found in header.diagnostics] == ["state_lock_disabled"]
    assert not load_desired(str(folder)).is_valid


@pytest.mark.parametrize(
    ("storage", "root"),
    [
        (None, "/srv/lab"),
        ("data", "/srv/lab/data"),
        ("./data/", "/srv/lab/data"),
        ("../data", "/srv/data"),
        ("/data/", "/data"),
        ("file:///data/x/", "/data/x"),
        ("FILE:///my%20data", "/my data"),
        ("s3://acme", "s3://acme"),
        ("s3://acme/", "s3://acme"),
        ("s3://acme/prod/x/", "s3://acme/prod/x"),
        ("S3://acme/prod", "s3://acme/prod"),
    ],
)
def test_storage_is_an_absolute_path_or_a_uri(storage: str | None, root: str) -> None:
    assert storage_root("/srv/lab", storage) == (root, [])


def test_a_relative_root_starts_at_the_folder_of_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "cluster.yaml").write_text("{version: 1, storage: data}", encoding="utf-8")
    monkeypatch.chdir("/")
    given = os.path.relpath(folder, "/")
    desired = load_desired(given)
    assert (desired.config_dir, desired.storage) == (given, str(folder / "data"))


def test_a_home_folder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert storage_root("/srv/lab", "~/data") == ("/home/ann/data", [])


def test_a_named_pipe_is_not_waited_for(folder: Path) -> None:
    for name in ("papers.pg", "a.gq", "readers.yaml", "nightly.yaml"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    found = {each.code for each in load_desired(str(folder)).diagnostics}
    assert found >= {
        *("schema_file_missing", "query_file_missing"),
        *("policy_file_missing", "pipeline_file_missing"),
    }
    (folder / "cluster.yaml").unlink()
    os.mkfifo(folder / "cluster.yaml")
    [only] = load_header(str(folder)).diagnostics
    assert only.code == "cluster_config_read_error"


def test_loading_needs_no_storage_engine(folder: Path) -> None:
    program = (
        "import sys; from omnigraph.cluster.load_desired import load_desired;"
        "assert load_desired(sys.argv[1]).is_valid;"
        "print([name for name in ('lance', 'obstore', 'cedarpy') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, str(folder)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"
