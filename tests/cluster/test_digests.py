"""Digests, against inputs that are spelled out byte by byte."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from omnigraph.cluster.addresses import provider_address, query_address
from omnigraph.cluster.desired import BlobBase, EmbeddingProfile
from omnigraph.cluster.digests import (
    ProviderBinding,
    config_digest,
    content_digest,
    graph_digest,
    provider_digest,
)
from omnigraph.cluster.load_desired import load_desired

A, B, C, D = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)


def hashed(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def test_a_file_is_digested_as_it_is() -> None:
    assert content_digest(b"abc") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_a_provider_leaves_absent_members_out() -> None:
    assert provider_digest(EmbeddingProfile("mock")) == hashed(
        'embedding-provider\0{"kind":"mock"}'
    )
    full = EmbeddingProfile("gemini", "https://h/é", "m", "${KEY}")
    assert provider_digest(full) == hashed(
        'embedding-provider\0{"kind":"gemini","base_url":"https://h/é","model":"m",'
        '"api_key":"${KEY}"}'
    )


def test_the_kind_of_a_provider_that_says_none_is_the_usual_one() -> None:
    assert provider_digest(EmbeddingProfile(api_key="${KEY}")) == hashed(
        'embedding-provider\0{"kind":"openai-compatible","api_key":"${KEY}"}'
    )


def test_a_graph_is_digested_from_its_parts() -> None:
    bare = graph_digest("papers", schema=A, queries={})
    assert bare == hashed(f"graph\0papers\0schema\0{A}\0")
    full = graph_digest(
        "papers",
        schema=A,
        queries={"z": B, "by_doi": C},
        provider=ProviderBinding(provider_address("emb"), D),
        blob_bases=(BlobBase("s3://a/", "server_safe"), BlobBase("s3://b/", "embedded_only")),
    )
    assert full == hashed(
        f"graph\0papers\0schema\0{A}\0query\0by_doi\0{C}\0query\0z\0{B}\0"
        f"embedding_provider\0provider.embedding.emb\0{D}\0"
        'external_blob_policy\0{"mode":"allow","bases":[{"uri":"s3://a/","scope":"server_safe"},'
        '{"uri":"s3://b/","scope":"embedded_only"}]}\0'
    )


def test_parts_that_are_not_known_are_empty() -> None:
    found = graph_digest(
        "papers", schema=None, queries={}, provider=ProviderBinding(provider_address("emb"), None)
    )
    assert found == hashed(
        "graph\0papers\0schema\0\0embedding_provider\0provider.embedding.emb\0\0"
    )


def test_a_configuration_is_digested_with_its_resources_by_address() -> None:
    digests = {query_address("a", "z"): A, query_address("a", "b"): B}
    assert config_digest({"version": 1}, digests) == hashed(
        f'cluster-config\0{{"version":1}}\0query.a.b\0{B}\0query.a.z\0{A}\0'
    )


SCHEMA = "node Paper { doi: String @key }\n"
QUERIES = "query all() { match { $p: Paper } return { $p.doi } }\n"
POLICY = "version: 1\n"
PIPELINE = """\
version: 1
name: nightly
target: {graph: papers}
sources: {rows: {format: csv, path: rows.csv}}
load: [{node: Paper, from: rows, mode: merge}]
"""
FULL = """\
version: 1
metadata: {name: lab}
storage: s3://acme/prod/
state: {backend: cluster, lock: false}
providers: {embedding: {emb: {api_key: "${KEY}", model: m}}}
policies: {readers: {file: p.yaml, applies_to: [papers]}}
graphs:
  papers:
    external_blobs: {allow: [{scope: server_safe, base: "S3://Pics"}]}
    queries: [q.gq]
    schema: s.pg
    embedding_provider: emb
  bare: {schema: s.pg}
  named: {schema: s.pg, queries: {all: {file: q.gq}}}
pipelines: {nightly: {file: n.yaml}}
"""


def write(directory: Path, config: str) -> None:
    files = {"s.pg": SCHEMA, "q.gq": QUERIES, "p.yaml": POLICY, "n.yaml": PIPELINE}
    for name, text in {**files, "cluster.yaml": config}.items():
        (directory / name).write_text(text, encoding="utf-8")


def test_an_empty_cluster_has_every_key_in_its_digest(tmp_path: Path) -> None:
    write(tmp_path, "version: 1\n")
    assert load_desired(str(tmp_path)).config_digest == hashed(
        'cluster-config\0{"version":1,"metadata":{"name":null},"storage":null,'
        '"state":{"backend":null,"lock":null},"providers":{"embedding":{}},'
        '"graphs":{},"policies":{}}\0'
    )


def test_a_whole_cluster_is_digested_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path, FULL)
    desired = load_desired(str(tmp_path))
    schema, queries, policy = hashed(SCHEMA), hashed(QUERIES), hashed(POLICY)
    provider = hashed(
        'embedding-provider\0{"kind":"openai-compatible","model":"m","api_key":"${KEY}"}'
    )
    graphs = {
        "bare": hashed(f"graph\0bare\0schema\0{schema}\0"),
        "named": hashed(f"graph\0named\0schema\0{schema}\0query\0all\0{queries}\0"),
        "papers": hashed(
            f"graph\0papers\0schema\0{schema}\0query\0all\0{queries}\0"
            f"embedding_provider\0provider.embedding.emb\0{provider}\0"
            'external_blob_policy\0{"mode":"allow","bases":'
            '[{"uri":"s3://pics/","scope":"server_safe"}]}\0'
        ),
    }
    expected = {
        "graph.bare": graphs["bare"],
        "graph.named": graphs["named"],
        "graph.papers": graphs["papers"],
        "pipeline.nightly": hashed(PIPELINE),
        "policy.readers": policy,
        "provider.embedding.emb": provider,
        "query.named.all": queries,
        "query.papers.all": queries,
        "schema.bare": schema,
        "schema.named": schema,
        "schema.papers": schema,
    }
    found = {str(address): each.digest for address, each in desired.resources.items()}
    assert found == expected
    assert list(found) == sorted(found)
    config = (
        '{"version":1,"metadata":{"name":"lab"},"storage":"s3://acme/prod/",'
        '"state":{"backend":"cluster","lock":false},'
        '"providers":{"embedding":{"emb":{"model":"m","api_key":"${KEY}"}}},'
        '"graphs":{"bare":{"schema":"s.pg","queries":{},"embedding_provider":null},'
        '"named":{"schema":"s.pg","queries":{"all":{"file":"q.gq"}},"embedding_provider":null},'
        '"papers":{"schema":"s.pg","queries":["q.gq"],"embedding_provider":"emb",'
        '"external_blobs":{"allow":[{"base":"S3://Pics","scope":"server_safe"}]}}},'
        '"policies":{"readers":{"file":"p.yaml","applies_to":["papers"]}},'
        '"pipelines":{"nightly":{"file":"n.yaml"}}}'
    )
    tail = "".join(f"{address}\0{digest}\0" for address, digest in expected.items())
    assert desired.config_digest == hashed(f"cluster-config\0{config}\0{tail}")
