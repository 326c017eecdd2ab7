"""Reading the applied revision: every finding that keeps a cluster, or one graph, from service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph.cluster.read_applied as module
from omnigraph.cluster.applied import ClusterNotReadyError
from omnigraph.cluster.desired import BlobBase, EmbeddingProfile
from omnigraph.cluster.read_applied import (
    applied_graph_uris,
    cluster_root,
    ledger_tag,
    read_applied,
)
from omnigraph.cluster.stored.ledger import LEDGER_PATH, identity_of
from support.applied_cluster import AppliedCluster, Bundle, GraphParts, Parts
from support.s3 import S3Server

SCHEMA = "node Paper { doi: String @key }"
QUERY = "query by_doi($doi: String) { match { $p: Paper { doi: $doi } } return { $p.doi } }"
POLICY = "version: 1\n"
GEMINI = EmbeddingProfile(kind="gemini", api_key="${GEMINI_KEY}")
PARTS = Parts(
    graphs={
        "papers": GraphParts(
            SCHEMA,
            {"by_doi": QUERY},
            provider="provider.embedding.emb",
            bases=(BlobBase("s3://pics/", "server_safe"),),
        ),
        "people": GraphParts("node Person { name: String @key }"),
    },
    policies={
        "ops": Bundle(POLICY, ("cluster",)),
        "readers": Bundle(f"{POLICY}groups: {{}}\n", ("graph.papers",)),
    },
    providers={"emb": GEMINI},
)


@pytest.fixture
def cluster(tmp_path: Path) -> AppliedCluster:
    made = AppliedCluster(str(tmp_path / "root"))
    made.record(PARTS)
    return made


def codes(cluster: AppliedCluster) -> list[str]:
    """Return the codes of what makes the cluster unservable; the message names all of them."""
    found = read_applied(cluster.uri)
    assert found.graphs == {}
    with pytest.raises(ClusterNotReadyError, match="not ready to serve") as refused:
        found.require_ready()
    for finding in found.fatal:
        assert f"[{finding.code}] {finding.path}: {finding.message}" in str(refused.value)
    return [finding.code for finding in found.fatal]


def resources(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = value["applied_revision"]["resources"]
    return found


def test_everything_of_a_revision_is_read(cluster: AppliedCluster) -> None:
    found = read_applied(cluster.uri).require_ready()
    data = cluster.root.objects.get(LEDGER_PATH).data
    assert (found.root, found.state_revision) == (cluster.root.uri, 1)
    assert found.identity == identity_of(data)
    assert list(found.graphs) == ["papers", "people"]
    papers = found.graphs["papers"]
    assert papers.uri == f"{cluster.root.uri}/graphs/papers.omni"
    assert papers.queries == {"by_doi": QUERY}
    assert papers.embedding == GEMINI
    assert papers.blob_bases == (BlobBase("s3://pics/", "server_safe"),)
    assert papers.policy is not None
    assert papers.policy.name == "readers"
    assert found.cluster_policy is not None
    assert found.cluster_policy.name == "ops"
    assert found.graphs["people"].policy is None
    assert found.quarantined == {}


def test_the_digest_of_a_graph_changes_with_its_policy_and_its_parts_alone(
    cluster: AppliedCluster,
) -> None:
    def digests() -> dict[str, str]:
        return {key: graph.digest for key, graph in read_applied(cluster.uri).graphs.items()}

    first = digests()
    bundle = Bundle(f"{POLICY}rules: []\n", ("graph.papers",))
    cluster.record(replace(PARTS, policies={**PARTS.policies, "readers": bundle}))
    second = digests()
    assert second["papers"] != first["papers"]
    assert second["people"] == first["people"]
    other = replace(PARTS.graphs["people"], queries={"q": QUERY})
    cluster.record(replace(PARTS, graphs={**PARTS.graphs, "people": other}))
    third = digests()
    assert third["papers"] == first["papers"]
    assert third["people"] != first["people"]


def test_a_folder_names_its_storage(cluster: AppliedCluster, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "cluster.yaml").write_text("version: 1\nstorage: ../root\ngraphs: {}\n")
    assert read_applied(str(config)).root == cluster.root.uri
    assert sorted(applied_graph_uris(str(config))) == ["papers", "people"]
    assert cluster_root(str(config)).uri == cluster.root.uri


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("version: [", "invalid_cluster_yaml"),
        ("version: 2\n", "unsupported_cluster_config_version"),
        ("version: 1\nstorage: gs://x\n", "invalid_storage_root"),
        (None, "cluster_config_read_error"),
    ],
)
def test_a_broken_file_is_an_error_and_not_ignored(
    tmp_path: Path, text: str | None, code: str
) -> None:
    AppliedCluster(str(tmp_path)).record(PARTS)
    if text is not None:
        (tmp_path / "cluster.yaml").write_text(text)
    assert [one.code for one in read_applied(str(tmp_path)).fatal] == [code]
    with pytest.raises(ClusterNotReadyError, match=code):
        cluster_root(str(tmp_path))
    with pytest.raises(ClusterNotReadyError, match=code):
        applied_graph_uris(str(tmp_path))


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    found = read_applied(str(tmp_path / "none"))
    assert [one.code for one in found.fatal] == ["config_dir_not_found"]


# -- ledger ---------------------------------------------------------------------------------------


def test_a_ledger_must_be_there(tmp_path: Path) -> None:
    cluster = AppliedCluster(str(tmp_path))
    assert codes(cluster) == ["cluster_state_missing"]
    assert ledger_tag(cluster.root) is None
    with pytest.raises(ClusterNotReadyError, match="cluster_state_missing"):
        applied_graph_uris(cluster.uri)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{", "invalid_state_json"),
        (b'{"version": 1}', "invalid_state_json"),
        (b'{"version": 1, "applied_revision": {}, "more": 1}', "invalid_state_json"),
        (b'{"version": 9}', "unsupported_state_version"),
        (b'{"version": 1, "applied_revision": {"resources": {}}}', "cluster_empty"),
    ],
)
def test_a_ledger_must_be_readable(cluster: AppliedCluster, data: bytes, code: str) -> None:
    cluster.root.objects.put(LEDGER_PATH, data)
    assert codes(cluster) == [code]


def test_a_ledger_that_storage_does_not_give_is_an_error(tmp_path: Path) -> None:
    cluster = AppliedCluster(str(tmp_path))
    (tmp_path / "__cluster").mkdir()
    (tmp_path / LEDGER_PATH).symlink_to(tmp_path / LEDGER_PATH)
    assert codes(cluster) == ["state_read_error"]


# -- unfinished operations ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{", "invalid_recovery_sidecar"),
        (b'{"schema_version": 7}', "unsupported_recovery_sidecar_version"),
    ],
)
def test_an_intent_must_be_readable(cluster: AppliedCluster, data: bytes, code: str) -> None:
    cluster.root.objects.put("__cluster/recoveries/01J.json", data)
    assert codes(cluster) == [code]


def test_an_intent_must_name_a_graph(cluster: AppliedCluster) -> None:
    cluster.begin(None)
    assert codes(cluster) == ["cluster_recovery_unattributed"]


def test_an_intent_that_storage_does_not_give_is_an_error(
    cluster: AppliedCluster, tmp_path: Path
) -> None:
    path = tmp_path / "root" / cluster.begin("papers")
    path.unlink()
    path.symlink_to("/dev/null/none")
    assert codes(cluster) == ["recovery_sidecar_read_error"]


def test_an_unfinished_operation_quarantines_its_graph_with_its_queries_and_policies(
    cluster: AppliedCluster,
) -> None:
    path = cluster.begin("papers")
    for blob in cluster.root.objects.list("__cluster/resources/query"):
        cluster.root.objects.delete(blob.path)
    cluster.root.objects.delete_prefix("__cluster/resources/policy/readers")
    found = read_applied(cluster.uri).require_ready()
    assert list(found.graphs) == ["people"]
    finding = found.quarantined["papers"]
    assert (finding.code, finding.severity, finding.path) == (
        "cluster_recovery_pending",
        "warning",
        path,
    )
    assert found.is_pending
    assert [policy.name for policy in found.policies] == ["ops"]


def test_an_operation_on_a_graph_that_is_not_applied_quarantines_nothing(
    cluster: AppliedCluster,
) -> None:
    cluster.begin("new", "graph_create")
    found = read_applied(cluster.uri).require_ready()
    assert list(found.graphs) == ["papers", "people"]
    assert not found.is_pending


def test_no_graph_left_is_fatal(tmp_path: Path) -> None:
    cluster = AppliedCluster(str(tmp_path))
    cluster.record(Parts(graphs={"only": GraphParts(SCHEMA)}))
    cluster.begin("only")
    assert codes(cluster) == ["cluster_no_healthy_graphs", "cluster_recovery_pending"]


# -- blobs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["query", "policy"])
def test_a_blob_must_be_there(cluster: AppliedCluster, kind: str) -> None:
    cluster.root.objects.delete_prefix(f"__cluster/resources/{kind}")
    assert set(codes(cluster)) == {"catalog_payload_missing"}


@pytest.mark.parametrize("kind", ["query", "policy"])
def test_a_blob_must_have_its_digest(cluster: AppliedCluster, kind: str) -> None:
    for blob in cluster.root.objects.list(f"__cluster/resources/{kind}"):
        cluster.root.objects.put(blob.path, b"other")
    assert set(codes(cluster)) == {"catalog_payload_digest_mismatch"}


def test_a_blob_must_be_text(tmp_path: Path) -> None:
    cluster = AppliedCluster(str(tmp_path))
    cluster.record(Parts(graphs={"papers": GraphParts(SCHEMA)}))

    def add(value: dict[str, Any]) -> None:
        digest = "a8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89"
        resources(value)["policy.odd"] = {"digest": digest, "applies_to": ["cluster"]}
        path = f"__cluster/resources/policy/odd/{digest}.yaml"
        cluster.root.objects.put(path, b"\xff")

    cluster.edit_ledger(add)
    assert codes(cluster) == ["catalog_payload_missing"]


# -- policies and providers -----------------------------------------------------------------------


def _without_bindings(value: dict[str, Any]) -> None:
    del resources(value)["policy.readers"]["applies_to"]


def _two_for_one_scope(value: dict[str, Any]) -> None:
    resources(value)["policy.ops"]["applies_to"] = ["cluster", "graph.papers"]


def _to_nowhere(value: dict[str, Any]) -> None:
    resources(value)["policy.readers"]["applies_to"] = ["graph.gone"]


def _to_a_schema(value: dict[str, Any]) -> None:
    resources(value)["policy.readers"]["applies_to"] = ["schema.papers"]


def _without_profile(value: dict[str, Any]) -> None:
    del resources(value)["provider.embedding.emb"]["embedding_profile"]


def _with_another_profile(value: dict[str, Any]) -> None:
    resources(value)["provider.embedding.emb"]["embedding_profile"]["model"] = "other"


def _without_provider(value: dict[str, Any]) -> None:
    del resources(value)["provider.embedding.emb"]


def _with_a_policy_as_provider(value: dict[str, Any]) -> None:
    resources(value)["graph.papers"]["embedding_provider"] = "policy.ops"


def _with_more_bases(value: dict[str, Any]) -> None:
    base = {"uri": "s3://more/", "scope": "server_safe"}
    resources(value)["graph.papers"]["external_blob_policy"]["bases"].append(base)


COMPOSITE = "external_blob_policy_digest_mismatch"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_without_bindings, ["policy_bindings_missing"]),
        (_two_for_one_scope, ["duplicate_policy_binding"]),
        (_to_nowhere, ["dangling_graph_reference"]),
        (_to_a_schema, ["wrong_kind_reference"]),
        (_without_profile, ["embedding_provider_profile_missing"]),
        (_with_another_profile, ["embedding_provider_digest_mismatch"]),
        (_without_provider, [COMPOSITE, "embedding_provider_missing"]),
        (_with_a_policy_as_provider, [COMPOSITE, "wrong_kind_reference"]),
        (_with_more_bases, [COMPOSITE]),
    ],
)
def test_what_a_ledger_says_must_fit_together(
    cluster: AppliedCluster,
    change: Callable[[dict[str, Any]], None],
    expected: list[str],
) -> None:
    cluster.edit_ledger(change)
    assert codes(cluster) == expected


def test_all_findings_are_told_at_once(cluster: AppliedCluster) -> None:
    cluster.edit_ledger(_without_bindings)
    cluster.edit_ledger(_without_profile)
    cluster.begin(None)
    assert codes(cluster) == [
        "cluster_recovery_unattributed",
        "policy_bindings_missing",
        "embedding_provider_profile_missing",
    ]


# -- one revision ---------------------------------------------------------------------------------


def test_a_ledger_that_changes_while_it_is_read_is_read_again(
    cluster: AppliedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blobs of the first ledger are gone when they are looked for: a second one is there."""
    renamed = replace(PARTS.graphs["papers"], queries={"renamed": QUERY.replace("by_doi", "n")})
    real = module.read_intents
    calls = []

    def change_meanwhile(root: Any) -> Any:
        if not calls:
            calls.append(1)
            cluster.root.objects.delete_prefix("__cluster/resources/query")
            cluster.record(replace(PARTS, graphs={**PARTS.graphs, "papers": renamed}))
        return real(root)

    monkeypatch.setattr(module, "read_intents", change_meanwhile)
    found = read_applied(cluster.uri).require_ready()
    assert found.state_revision == 2
    assert list(found.graphs["papers"].queries) == ["renamed"]


def test_a_ledger_that_never_rests_is_an_error(
    cluster: AppliedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.read_intents

    def change_meanwhile(root: Any) -> Any:
        cluster.record(PARTS)
        return real(root)

    monkeypatch.setattr(module, "read_intents", change_meanwhile)
    assert codes(cluster) == ["state_read_error"]


def test_the_tag_changes_with_every_write(cluster: AppliedCluster) -> None:
    tags = {ledger_tag(cluster.root)}
    for _ in range(5):
        cluster.record(PARTS)
        tags.add(ledger_tag(cluster.root))
    assert len(tags) == 6


# -- object storage -------------------------------------------------------------------------------


def test_a_revision_is_read_from_s3(bucket: S3Server, s3_root: str) -> None:
    cluster = AppliedCluster(s3_root)
    cluster.record(PARTS)
    found = read_applied(s3_root).require_ready()
    assert found.root == s3_root
    assert found.graphs["papers"].uri == f"{s3_root}/graphs/papers.omni"
    first = ledger_tag(cluster.root)
    cluster.record(PARTS)
    assert ledger_tag(cluster.root) != first
    cluster.root.objects.delete_prefix("__cluster/resources/query")
    assert codes(cluster) == ["catalog_payload_missing"]
