"""A server of a cluster: what it serves, what it refuses, what it leaves out."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.cluster.applied import ClusterNotReadyError
from omnigraph.cluster.desired import BlobBase, EmbeddingProfile
from omnigraph.server.boot import boot
from omnigraph.server.errors import BootRefusedError
from omnigraph.server.settings import Settings
from support.applied_cluster import AppliedCluster, Bundle, GraphParts, Parts
from support.cluster_server import (
    ADA,
    ADD,
    BEN,
    LISTING,
    PAPERS,
    PEOPLE,
    SCHEMA,
    TOKENS,
    WRITING,
    ClusterServer,
)
from support.s3 import S3Server
from support.served import command, environment

BOTH = Parts(graphs={"papers": PAPERS, "people": PEOPLE})


@pytest.fixture
def cluster(tmp_path: Path) -> AppliedCluster:
    return AppliedCluster(str(tmp_path / "root"))


def refused(cluster: AppliedCluster, **settings: bool) -> list[str]:
    with pytest.raises(ClusterNotReadyError) as problem:
        ClusterServer(cluster, **settings)
    return [finding.code for finding in problem.value.findings]


# -- what is served -------------------------------------------------------------------------------


def serves_everything(cluster: AppliedCluster) -> None:
    cluster.apply(BOTH)
    server = ClusterServer(cluster)
    assert server.ready() == {"status": "ready", "graphs": 2, "revision": 1, "quarantined": 0}
    names = [one["name"] for one in server.get("/graphs/papers/queries").json()["queries"]]
    assert names == ["add", "by_doi"]
    assert server.invoke("papers", "add", {"doi": "10.1"}).status_code == 200
    rows = server.invoke("papers", "by_doi", {"doi": "10.1"}).json()["rows"]
    assert rows == [{"p.doi": "10.1", "p.title": None}]
    assert server.get("/graphs/people/schema").json() == {"schema_source": PEOPLE.schema}
    assert server.get("/graphs/people/queries").json() == {"queries": []}
    assert server.get("/graphs/none/schema").status_code == 404


def test_every_applied_graph_is_served(cluster: AppliedCluster) -> None:
    serves_everything(cluster)


def test_every_applied_graph_is_served_from_s3(bucket: S3Server, s3_root: str) -> None:
    serves_everything(AppliedCluster(s3_root))


def test_a_folder_is_served_from_its_storage(cluster: AppliedCluster, tmp_path: Path) -> None:
    cluster.apply(Parts(graphs={"people": PEOPLE}))
    (tmp_path / "cluster.yaml").write_text("version: 1\nstorage: root\n")
    server = ClusterServer(cluster, target=str(tmp_path))
    assert server.get("/graphs/people/schema").status_code == 200


def test_the_schema_is_changed_by_the_cluster_alone(cluster: AppliedCluster) -> None:
    cluster.apply(BOTH)
    answer = ClusterServer(cluster).send(
        "POST", "/graphs/people/schema/apply", {"schema_source": "node X { n: String @key }"}
    )
    assert answer.status_code == 409
    assert "cluster" in answer.json()["error"]


def test_a_branch_of_a_graph_in_a_cluster_has_a_schema_of_its_own(
    cluster: AppliedCluster,
) -> None:
    cluster.apply(BOTH)
    server = ClusterServer(cluster)
    assert server.send("POST", "/graphs/people/branches", {"name": "dev"}).status_code == 200
    source = server.get("/graphs/people/schema").json()["schema_source"]
    wider = source + "\nnode Town { code: String @key }"
    body = {"schema_source": wider, "branch": "dev"}
    answer = server.send("POST", "/graphs/people/schema/apply", body)
    assert answer.status_code == 200, answer.text
    assert server.get("/graphs/people/schema?branch=dev").json()["schema_source"] == wider
    assert server.get("/graphs/people/schema").json()["schema_source"] == source
    insert = {"query": 'query q() { insert Town { code: "t" } }', "branch": "dev"}
    assert server.send("POST", "/graphs/people/mutate", insert).status_code == 200
    read = {"query": "query q() { match { $t: Town } return { $t.code } }", "branch": "dev"}
    found = server.send("POST", "/graphs/people/query", read)
    assert (found.status_code, found.json()["row_count"]) == (200, 1)


def test_a_server_of_one_graph_leaves_the_schema_to_the_cluster_too(
    cluster: AppliedCluster,
) -> None:
    cluster.apply(BOTH)
    server = ClusterServer(cluster)
    server.app = boot(Settings(store=cluster.graph_uri("people"), unauthenticated=True))
    answer = server.send(
        "POST", "/graphs/people/schema/apply", {"schema_source": "node X { n: String @key }"}
    )
    assert answer.status_code == 409, answer.text
    assert "belongs to the cluster" in answer.json()["error"]


def test_graphs_are_listed_where_the_policy_of_the_cluster_allows_it(
    cluster: AppliedCluster,
) -> None:
    cluster.apply(BOTH)
    assert ClusterServer(cluster).get("/graphs").status_code == 403
    cluster.record(replace(BOTH, policies={"ops": Bundle(LISTING, ("cluster",))}))
    server = ClusterServer(cluster, environ=TOKENS)
    assert server.get("/graphs").status_code == 401
    assert server.get("/graphs", token=BEN).status_code == 403
    found = server.get("/graphs", token=ADA).json()
    assert found == {
        "graphs": [
            {"graph_id": "papers", "uri": cluster.graph_uri("papers")},
            {"graph_id": "people", "uri": cluster.graph_uri("people")},
        ]
    }


def test_a_graph_has_the_policy_that_is_bound_to_it(cluster: AppliedCluster) -> None:
    cluster.apply(replace(BOTH, policies={"writers": Bundle(WRITING, ("graph.papers",))}))
    server = ClusterServer(cluster, environ=TOKENS)
    assert server.invoke("papers", "add", {"doi": "1"}, token=ADA).status_code == 200
    # A name that may not be invoked and one that is not there look the same.
    assert server.invoke("papers", "add", {"doi": "2"}, token=BEN).status_code == 404
    assert server.get("/graphs/people/schema", token=BEN).status_code == 200
    insert = 'query add() { insert Person { name: "x" } }'
    answer = server.send("POST", "/graphs/people/mutate", {"query": insert}, token=ADA)
    assert answer.status_code == 403
    assert "default-deny" in answer.json()["error"]


def test_only_bases_that_are_safe_for_a_server_may_be_read(
    bucket: S3Server, s3_root: str, tmp_path: Path
) -> None:
    cluster = AppliedCluster(s3_root)
    cluster.root.objects.put("pics/a.bin", b"abc")
    (tmp_path / "a.bin").write_bytes(b"abc")
    bases = (
        BlobBase(f"file://{tmp_path}/", "embedded_only"),
        BlobBase(f"{s3_root}/pics/", "server_safe"),
    )
    graph = GraphParts("node Pic { name: String @key  body: Blob? }", bases=bases)
    cluster.apply(Parts(graphs={"pics": graph}))
    server = ClusterServer(cluster)

    def load(uri: str) -> int:
        line = f'{{"type": "Pic", "data": {{"name": "{uri}", "body": "{uri}"}}}}\n'
        body = {"data": line, "mode": "append", "branch": "main"}
        return server.send("POST", "/graphs/pics/load", body).status_code

    assert load(f"{s3_root}/pics/a.bin") == 200
    assert load(f"file://{tmp_path}/a.bin") == 400
    assert load(f"{s3_root}/__cluster/state.json") == 400


# -- refusals -------------------------------------------------------------------------------------


def test_one_source_of_graphs_is_needed() -> None:
    for given in ({}, {"store": "a", "cluster": "b"}):
        with pytest.raises(BootRefusedError, match="one source"):
            Settings(**given)
    with pytest.raises(BootRefusedError, match="of its own"):
        Settings(cluster="a", policy=Path("x"))


def test_what_is_fatal_refuses_the_start(cluster: AppliedCluster) -> None:
    assert refused(cluster) == ["cluster_state_missing"]
    cluster.record(Parts())
    assert refused(cluster) == ["cluster_empty"]


def test_the_command_ends_with_every_reason(cluster: AppliedCluster) -> None:
    def ended(*options: str, **environ: str) -> tuple[int, str]:
        words = [*command(cluster.uri, source="--cluster"), "--bind", "127.0.0.1:0", *options]
        done = subprocess.run(
            words, env=environment(**environ), capture_output=True, text=True, check=False
        )
        assert done.stdout == ""
        return done.returncode, done.stderr

    cluster.move_graphs(Parts(graphs={"people": PEOPLE}))
    cluster.record(BOTH)
    code, text = ended("--unauthenticated", OMNIGRAPH_REQUIRE_ALL_GRAPHS="1")
    assert code == 1
    assert "is not ready to serve:\n[graph_open_failed] graph.papers: " in text
    code, text = ended("--store", "x")
    assert code == 2
    assert "needs one of --cluster and --store" in text


def test_a_policy_of_the_cluster_that_does_not_load_refuses_the_start(
    cluster: AppliedCluster,
) -> None:
    cluster.apply(replace(BOTH, policies={"ops": Bundle(WRITING, ("cluster",))}))
    assert refused(cluster) == ["policy_invalid"]


def test_tokens_and_policies_decide_the_state(cluster: AppliedCluster) -> None:
    cluster.apply(BOTH)
    with pytest.raises(BootRefusedError, match="no token and no policy"):
        boot(Settings(cluster=cluster.uri))
    cluster.record(replace(BOTH, policies={"writers": Bundle(WRITING, ("graph.papers",))}))
    with pytest.raises(BootRefusedError, match="a policy and no token"):
        ClusterServer(cluster)


# -- quarantine -----------------------------------------------------------------------------------

BAD_POLICY = Bundle("version: 1\nrules: [{}]\n", ("graph.bad",))
KEYED = EmbeddingProfile(kind="openai", api_key="${NO_SUCH_KEY}")
QUARANTINES = {
    "query_parse_error": Parts(graphs={"bad": GraphParts(SCHEMA, {"q": "query ("})}),
    "query_typecheck_error": Parts(
        graphs={
            "bad": GraphParts(SCHEMA, {"q": "query q() { match { $x: Nope } return { $x.a } }"})
        }
    ),
    "policy_invalid": Parts(graphs={"bad": PAPERS}, policies={"p": BAD_POLICY}),
    "embedding_api_key_required": Parts(
        graphs={"bad": GraphParts(SCHEMA, provider="provider.embedding.emb")},
        providers={"emb": KEYED},
    ),
    "invalid_resource_id": Parts(graphs={"bad_id": PAPERS}),
    "invalid_external_blob_base": Parts(
        graphs={"bad": GraphParts(SCHEMA, bases=(BlobBase("s3://u@x/", "server_safe"),))}
    ),
}


@pytest.mark.parametrize("code", sorted(QUARANTINES))
def test_what_concerns_one_graph_quarantines_it_alone(cluster: AppliedCluster, code: str) -> None:
    bad = QUARANTINES[code]
    cluster.apply(replace(bad, graphs={**bad.graphs, "people": PEOPLE}))
    environ = TOKENS if bad.policies else None
    server = ClusterServer(cluster, environ=environ)
    token = ADA if bad.policies else None
    assert server.ready() == {"status": "ready", "graphs": 1, "revision": 1, "quarantined": 1}
    assert server.get("/graphs/people/schema", token=token).status_code == 200
    [graph_id] = bad.graphs
    expected = 400 if code == "invalid_resource_id" else 404
    assert server.get(f"/graphs/{graph_id}/schema", token=token).status_code == expected
    with pytest.raises(ClusterNotReadyError) as problem:
        ClusterServer(cluster, environ=environ, require_all_graphs=True)
    assert [finding.code for finding in problem.value.findings] == [code]
    assert "omnigraph_cluster_quarantined_graphs 1" in server.get("/metrics").text


def test_a_graph_that_does_not_open_is_quarantined(cluster: AppliedCluster) -> None:
    cluster.move_graphs(Parts(graphs={"people": PEOPLE}))
    cluster.record(BOTH)
    assert ClusterServer(cluster).ready()["quarantined"] == 1
    assert refused(cluster, require_all_graphs=True) == ["graph_open_failed"]


def test_an_unfinished_operation_quarantines_its_graph(cluster: AppliedCluster) -> None:
    cluster.apply(BOTH)
    path = cluster.begin("papers")
    server = ClusterServer(cluster)
    assert server.ready()["quarantined"] == 1
    assert server.get("/graphs/papers/schema").status_code == 404
    assert refused(cluster, require_all_graphs=True) == ["cluster_recovery_pending"]
    # It is tried again, without another revision.
    cluster.root.objects.delete(path)
    assert server.reloader.refresh(is_asked_for=True)
    assert server.ready()["quarantined"] == 0
    assert server.get("/graphs/papers/schema").status_code == 200


def test_no_graph_left_refuses_the_start(cluster: AppliedCluster) -> None:
    cluster.apply(QUARANTINES["query_parse_error"])
    assert refused(cluster) == ["cluster_no_healthy_graphs", "query_parse_error"]


def test_a_provider_is_resolved_from_the_environment(cluster: AppliedCluster) -> None:
    graph = GraphParts(
        'node Paper { doi: String @key  spot: Vector(4)? @embed("doi") }',
        {"add": ADD},
        provider="provider.embedding.emb",
    )
    profile = EmbeddingProfile(kind="mock", model="toy")
    cluster.apply(Parts(graphs={"papers": graph}, providers={"emb": profile}))
    server = ClusterServer(cluster)
    assert server.invoke("papers", "add", {"doi": "10.1"}).status_code == 200
    text = "query q() { match { $p: Paper } return { $p.spot } }"
    [row] = server.query("papers", text).json()["rows"]
    assert len(row["p.spot"]) == 4
