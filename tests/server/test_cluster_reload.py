"""A running server follows its cluster: what changes, what stays, what is refused."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.cluster.diagnostics import error
from omnigraph.graph import Graph
from omnigraph.server.call import Serving
from omnigraph.server.revisions import follow
from omnigraph.server.revisions.agreement import AGREE_MAX_S, SharedAgreement
from support.applied_cluster import AppliedCluster, Bundle, GraphParts, Parts
from support.clocks import ManualClock
from support.cluster_server import (
    ADA,
    ADD,
    BEN,
    BY_DOI,
    LISTING,
    PAPERS,
    PEOPLE,
    TOKENS,
    WRITING,
    ClusterServer,
)
from support.s3 import S3Server

BOTH = Parts(graphs={"papers": PAPERS, "people": PEOPLE})
DROPPED = GraphParts(
    "node Paper { doi: String @key }",
    {
        "by_doi": "query by_doi($doi: String) {"
        " match { $p: Paper { doi: $doi } } return { $p.doi } }",
        "add": ADD,
    },
)


@pytest.fixture
def cluster(tmp_path: Path) -> AppliedCluster:
    return AppliedCluster(str(tmp_path / "root"))


def serving_of(server: ClusterServer) -> Serving:
    return server.app._serving


# -- what changes, and what stays -----------------------------------------------------------------


def follows(cluster: AppliedCluster) -> None:
    cluster.apply(Parts(graphs={"papers": PAPERS}))
    server = ClusterServer(cluster)
    assert server.get("/graphs/people/schema").status_code == 404
    assert not server.refresh()
    cluster.apply(BOTH)
    assert server.refresh()
    assert server.get("/graphs/people/schema").status_code == 200
    assert server.ready() == {"status": "ready", "graphs": 2, "revision": 2, "quarantined": 0}
    assert "omnigraph_cluster_revision 2\n" in server.get("/metrics").text
    cluster.record(
        Parts(graphs={"papers": replace(PAPERS, queries={"renamed": _named("renamed")})})
    )
    assert server.refresh()
    assert server.get("/graphs/people/schema").status_code == 404
    assert server.invoke("papers", "by_doi", {"doi": "1"}).status_code == 404
    assert server.invoke("papers", "renamed", {"doi": "1"}).status_code == 200
    assert not server.refresh()


def _named(name: str) -> str:
    return BY_DOI.replace("by_doi", name)


def test_graphs_and_queries_follow_the_ledger(cluster: AppliedCluster) -> None:
    follows(cluster)


def test_graphs_and_queries_follow_the_ledger_on_s3(bucket: S3Server, s3_root: str) -> None:
    follows(AppliedCluster(s3_root))


def test_policies_follow_the_ledger(cluster: AppliedCluster) -> None:
    cluster.apply(replace(BOTH, policies={"w": Bundle(WRITING, ("graph.papers",))}))
    server = ClusterServer(cluster, environ=TOKENS)
    assert server.invoke("papers", "add", {"doi": "1"}, token=ADA).status_code == 200
    assert server.get("/graphs", token=ADA).status_code == 403
    other = WRITING.replace("[ada]", "[ben]")
    policies = {"w": Bundle(other, ("graph.papers",)), "ops": Bundle(LISTING, ("cluster",))}
    cluster.record(replace(BOTH, policies=policies))
    server.refresh()
    assert server.invoke("papers", "add", {"doi": "2"}, token=ADA).status_code == 404
    assert server.invoke("papers", "add", {"doi": "2"}, token=BEN).status_code == 200
    assert server.get("/graphs", token=ADA).status_code == 200
    # The engine asks the new policy too: it was given to the handle.
    cluster.record(BOTH)
    server.refresh()
    assert server.get("/graphs", token=ADA).status_code == 403
    assert server.get("/graphs/papers/schema", token=ADA).status_code == 200


def test_a_graph_that_has_not_changed_keeps_its_handle(cluster: AppliedCluster) -> None:
    cluster.apply(BOTH)
    server = ClusterServer(cluster)
    before = serving_of(server).graphs
    cluster.record(replace(BOTH, graphs={**BOTH.graphs, "people": replace(PEOPLE, queries={})}))
    cluster.record(
        replace(BOTH, graphs={**BOTH.graphs, "papers": replace(PAPERS, queries={"add": ADD})})
    )
    server.refresh()
    after = serving_of(server).graphs
    assert after is not before
    assert after.get("people") is before.get("people")
    assert after.get("papers") is not before.get("papers")
    assert after.get("papers").opened is before.get("papers").opened
    assert after.get("papers").export_slot is before.get("papers").export_slot


def test_a_removed_graph_is_closed_after_its_last_request(
    cluster: AppliedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = threading.Event()
    real = Graph.close

    def close(graph: Graph) -> None:
        real(graph)
        if graph.uri == cluster.graph_uri("papers"):
            closed.set()

    cluster.apply(BOTH)
    server = ClusterServer(cluster)
    monkeypatch.setattr(Graph, "close", close)
    in_flight = serving_of(server).graphs.get("papers")
    cluster.record(Parts(graphs={"people": PEOPLE}))
    server.refresh()
    gc.collect()
    assert not closed.is_set()
    assert in_flight.graph.query(BY_DOI, params={"doi": "1"}).row_count == 0
    del in_flight
    gc.collect()
    assert closed.wait(30)


def test_a_graph_that_was_deleted_and_made_again_is_opened_again(cluster: AppliedCluster) -> None:
    """Both may have happened since the ledger was looked at last."""
    cluster.apply(BOTH)
    server = ClusterServer(cluster)
    assert server.invoke("papers", "add", {"doi": "1"}).status_code == 200
    cluster.root.objects.delete_prefix("graphs/papers.omni")
    cluster.parts = Parts(graphs={"people": PEOPLE})
    cluster.apply(BOTH)
    # The new graph has as many versions as the old one, of which the server knows the last.
    with Graph.open(cluster.graph_uri("papers")) as graph:
        graph.mutate(ADD, params={"doi": "2"})
    server.refresh()
    assert server.invoke("papers", "by_doi", {"doi": "1"}).json()["row_count"] == 0
    assert server.invoke("papers", "by_doi", {"doi": "2"}).json()["row_count"] == 1
    assert server.invoke("papers", "add", {"doi": "3"}).status_code == 200


# -- what is refused ------------------------------------------------------------------------------


def test_a_revision_that_cannot_be_served_changes_nothing(
    cluster: AppliedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.apply(BOTH)
    server = ClusterServer(cluster)
    cluster.record(Parts())
    assert not server.refresh()
    assert "cannot be served" in caplog.text
    assert "cluster_empty" in caplog.text
    assert server.ready() == {
        "status": "ready",
        "graphs": 2,
        "revision": 1,
        "quarantined": 0,
        "refused_revision": 2,
    }
    assert "omnigraph_cluster_revision_refused 1" in server.get("/metrics").text
    assert server.get("/graphs/papers/schema").status_code == 200
    cluster.record(BOTH)
    assert server.refresh()
    assert "refused_revision" not in server.ready()
    assert "omnigraph_cluster_revision_refused 0" in server.get("/metrics").text


def test_a_policy_cannot_come_to_a_server_without_tokens(cluster: AppliedCluster) -> None:
    cluster.apply(BOTH)
    server = ClusterServer(cluster)
    cluster.record(replace(BOTH, policies={"w": Bundle(WRITING, ("graph.papers",))}))
    assert not server.refresh()
    assert server.ready()["refused_revision"] == 2
    assert server.invoke("papers", "add", {"doi": "1"}).status_code == 200


def test_a_new_quarantine_takes_one_graph_away_unless_all_are_required(
    cluster: AppliedCluster,
) -> None:
    cluster.apply(BOTH)
    server, strict = ClusterServer(cluster), ClusterServer(cluster, require_all_graphs=True)
    broken = replace(PAPERS, queries={"q": "query ("})
    cluster.record(replace(BOTH, graphs={**BOTH.graphs, "papers": broken}))
    server.refresh()
    strict.refresh()
    assert server.ready()["quarantined"] == 1
    assert server.get("/graphs/papers/schema").status_code == 404
    assert strict.ready()["refused_revision"] == 2
    assert strict.get("/graphs/papers/schema").status_code == 200


def test_a_graph_in_quarantine_is_tried_again(
    cluster: AppliedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.move_graphs(Parts(graphs={"people": PEOPLE}))
    cluster.record(BOTH)
    server = ClusterServer(cluster)
    server.refresh()
    cluster.parts = Parts(graphs={"people": PEOPLE})
    cluster.move_graphs(BOTH)
    server.refresh()
    assert server.get("/graphs/papers/schema").status_code == 404
    now = follow.SystemClock().monotonic_s() + follow.RETRY_MIN_S
    monkeypatch.setattr(follow.SystemClock, "monotonic_s", lambda _: now)
    assert server.refresh()
    assert server.get("/graphs/papers/schema").status_code == 200


def test_a_revision_that_could_not_be_read_is_tried_again(
    cluster: AppliedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The ledger has not changed since: storage has failed, not the cluster."""
    cluster.apply(Parts(graphs={"papers": PAPERS}))
    server = ClusterServer(cluster)
    cluster.apply(BOTH)
    broken = follow.read_applied_in(cluster.root)
    finding = error("catalog_payload_missing", "query.papers.add", "timeout")
    with monkeypatch.context() as patched:
        patched.setattr(follow, "read_applied_in", lambda _: replace(broken, fatal=(finding,)))
        assert not server.refresh()
        later = follow.SystemClock().monotonic_s() + follow.RETRY_MIN_S
        patched.setattr(follow.SystemClock, "monotonic_s", lambda _: later)
        assert not server.refresh()
    assert caplog.text.count("cannot be served") == 1
    assert server.ready()["refused_revision"] == 2
    assert not server.refresh()
    much_later = later + 2 * follow.RETRY_MIN_S
    monkeypatch.setattr(follow.SystemClock, "monotonic_s", lambda _: much_later)
    assert server.refresh()
    assert server.ready() == {"status": "ready", "graphs": 2, "revision": 2, "quarantined": 0}


def test_files_that_are_being_edited_do_not_matter(cluster: AppliedCluster, tmp_path: Path) -> None:
    cluster.apply(Parts(graphs={"papers": PAPERS}))
    (tmp_path / "cluster.yaml").write_text("version: 1\nstorage: root\n")
    server = ClusterServer(cluster, target=str(tmp_path))
    (tmp_path / "cluster.yaml").write_text("version: [")
    cluster.apply(BOTH)
    assert server.refresh()
    assert server.ready()["revision"] == 2


# -- schema and queries move together -------------------------------------------------------------


def test_between_schema_and_ledger_reads_see_the_old_pair_and_writes_wait(
    cluster: AppliedCluster,
) -> None:
    cluster.apply(Parts(graphs={"papers": PAPERS}))
    server = ClusterServer(cluster)
    assert server.invoke("papers", "add", {"doi": "1"}).status_code == 200
    old = server.invoke("papers", "by_doi", {"doi": "1"}).json()
    new = Parts(graphs={"papers": DROPPED})
    cluster.move_graphs(new)
    server.refresh()
    # The stored read names a property that the graph has not any more.
    assert server.invoke("papers", "by_doi", {"doi": "1"}).json() == old
    assert server.get("/graphs/papers/schema").json() == {"schema_source": PAPERS.schema}
    assert server.query("papers", "query q() { match { $p: Paper } return { $p.title } }").json()[
        "rows"
    ] == [{"p.title": None}]
    for path, body in (
        ("queries/add", {"params": {"doi": "2"}}),
        ("mutate", {"query": ADD, "params": {"doi": "2"}}),
        ("load", {"data": '{"type": "Paper", "data": {"doi": "2"}}', "mode": "append"}),
    ):
        answer = server.send("POST", f"/graphs/papers/{path}", body)
        assert answer.status_code == 409, answer.text
        assert answer.json()["code"] == "conflict"
    cluster.record(new)
    server.refresh()
    assert server.invoke("papers", "by_doi", {"doi": "1"}).json()["rows"] == [{"p.doi": "1"}]
    assert server.get("/graphs/papers/schema").json() == {"schema_source": DROPPED.schema}
    assert server.invoke("papers", "add", {"doi": "2"}).status_code == 200


def test_a_revision_whose_schema_the_graph_has_left_already_is_served_with_its_own(
    cluster: AppliedCluster,
) -> None:
    """The next apply has begun before this revision was opened."""
    cluster.apply(Parts(graphs={"papers": PAPERS}))
    assert ClusterServer(cluster).invoke("papers", "add", {"doi": "1"}).status_code == 200
    cluster.move_graphs(Parts(graphs={"papers": DROPPED}))
    server = ClusterServer(cluster)
    [row] = server.invoke("papers", "by_doi", {"doi": "1"}).json()["rows"]
    assert row == {"p.doi": "1", "p.title": None}
    assert server.invoke("papers", "add", {"doi": "2"}).status_code == 409


def test_a_ledger_whose_command_is_not_finished_is_waited_for(
    cluster: AppliedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.apply(Parts(graphs={"papers": PAPERS}))
    server = ClusterServer(cluster)
    path = cluster.begin("papers")
    cluster.apply(Parts(graphs={"papers": DROPPED}))
    assert not server.refresh()
    assert server.ready() == {"status": "ready", "graphs": 1, "revision": 1, "quarantined": 0}
    assert "title" in server.get("/graphs/papers/schema").text
    cluster.root.objects.delete(path)
    assert server.refresh()
    assert server.ready()["revision"] == 2
    # One that is never finished is no reason to serve an old revision for ever.
    cluster.begin("papers")
    cluster.apply(Parts(graphs={"papers": PAPERS, "people": PEOPLE}))
    assert not server.refresh()
    monkeypatch.setattr(follow, "SETTLE_MAX_S", 0.0)
    assert server.refresh()
    assert server.ready() == {"status": "ready", "graphs": 1, "revision": 3, "quarantined": 1}
    assert server.get("/graphs/papers/schema").status_code == 404


def test_the_log_says_that_workers_do_not_agree(
    cluster: AppliedCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.apply(Parts(graphs={"papers": PAPERS}))
    server = ClusterServer(cluster)
    graphs = serving_of(server).graphs
    assert graphs.revision is not None
    (tmp_path / "shared").mkdir()
    one, two = (SharedAgreement(tmp_path / "shared", worker) for worker in ("1", "2"))
    two.propose(graphs.revision.key)
    clock = ManualClock()
    assert isinstance(server.reloader, follow.Follower)
    follower = follow.Follower(serving_of(server), server.reloader._source, one, clock)
    cluster.apply(BOTH)
    assert follower.refresh()
    for _ in range(3):
        follower.refresh()
        clock.advance(AGREE_MAX_S)
    assert caplog.text.count("this worker could serve revision 2") == 1
    assert server.ready()["revision"] == 1
