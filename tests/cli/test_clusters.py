"""Commands on the graphs, stored queries and policies of a cluster."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from omnigraph.graph import Graph, apply_schema_by_cluster
from support.applied_cluster import AppliedCluster, Bundle, GraphParts, Parts
from support.pages import DOCS
from support.s3 import S3Server
from support.terminal import Terminal

SCHEMA = "node Person { name: String @key  age: I32? }\n"
ALL = """\
query all($least: I32?) @description("Everyone.")
{ match { $p: Person } return { $p.name } }
"""
GROW = 'query grow() { update Person set { age: 1 } where name = "x" }\n'
READERS = """\
version: 1
groups: { all: [ada, ben] }
protected_branches: [main]
rules:
  - { id: readers, allow: { actors: { group: all }, actions: [read], branch_scope: any } }
  - { id: drafts, allow: { actors: { group: all }, actions: [change], branch_scope: unprotected } }
"""
OPS = """\
version: 1
groups: { ops: [ada] }
rules: [{ id: list, allow: { actors: { group: ops }, actions: [graph_list] } }]
"""
PEOPLE = GraphParts(SCHEMA, {"all": ALL, "grow": GROW})
PETS = GraphParts(
    "node Pet { name: String @key }\n",
    {"pets": "query pets() { match { $p: Pet } return { $p.name } }\n"},
)
ONE = Parts(graphs={"people": PEOPLE})
TWO = Parts(
    graphs={"people": PEOPLE, "pets": PETS},
    policies={
        "readers": Bundle(READERS, ("graph.people",)),
        "ops": Bundle(OPS, ("cluster",)),
    },
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's file is in the working directory."""
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))


@pytest.fixture
def cluster(omnigraph: Terminal, tmp_path: Path) -> AppliedCluster:
    """A cluster whose folder `lab` names its storage."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "cluster.yaml").write_text("version: 1\nstorage: ../root\n")
    return AppliedCluster(str(tmp_path / "root"))


def assert_shape(name: str, found: object) -> None:
    """Compare a result with its published JSON Schema."""
    schema = json.loads((DOCS / "reference" / "json" / f"{name}.json").read_text())
    Draft202012Validator(schema).validate(found)


# -- direct commands ------------------------------------------------------------------------------


def test_a_direct_command_finds_the_graph_in_the_ledger(
    omnigraph: Terminal, cluster: AppliedCluster
) -> None:
    cluster.apply(ONE)
    for address in ("lab", cluster.uri):
        done = omnigraph("optimize", "--cluster", address, "--graph", "people", "--json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["uri"] == cluster.graph_uri("people")
    # The only graph needs no name.
    assert omnigraph("optimize", "--cluster", "lab").code == 0
    assert omnigraph("lint", "--query", "q.gq", "--cluster", "lab").code == 0
    assert omnigraph("repair", "--cluster", "lab").code == 0
    assert omnigraph("cleanup", "--keep", "5", "--cluster", "lab").code == 0


def test_a_direct_command_finds_the_graph_in_s3(omnigraph: Terminal, bucket: S3Server) -> None:
    root = f"s3://{bucket.bucket}/cli-cluster"
    AppliedCluster(root).apply(ONE)
    Path("config.yaml").write_text(f"clusters: {{lab: {{root: '{root}'}}}}\n")
    for address in (root, "lab"):
        done = omnigraph("optimize", "--cluster", address, "--json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["uri"] == f"{root}/graphs/people.omni"


def test_settings_of_the_storage_reach_the_ledger_and_the_graphs_of_a_cluster(
    omnigraph: Terminal, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    root = f"s3://{s3.bucket}/cli-cluster-options"
    lab = Path("declared")
    lab.mkdir()
    (lab / "people.pg").write_text(SCHEMA)
    (lab / "cluster.yaml").write_text(
        f"version: 1\nstorage: {root}\ngraphs: {{people: {{schema: people.pg}}}}\n"
    )
    given = [
        word
        for name, value in s3.options.items()
        for word in ("--storage-option", f"{name}={value}")
    ]
    here = ("--config", str(lab))
    for words in (("import",), ("apply",), ("plan",), ("status",), ("refresh",)):
        done = omnigraph("cluster", *words, *here, *given)
        assert done.code == 0, done.err
    done = omnigraph("optimize", "--cluster", root, *given, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["uri"] == f"{root}/graphs/people.omni"


def test_only_the_ledger_is_read_for_a_direct_command(
    omnigraph: Terminal, cluster: AppliedCluster
) -> None:
    cluster.apply(ONE)
    cluster.begin(None)
    cluster.root.objects.delete_prefix("__cluster/resources")
    assert omnigraph("optimize", "--cluster", "lab").code == 0
    assert omnigraph("queries", "list", "--cluster", "lab").code == 1


def test_a_graph_that_is_not_applied_is_told_with_those_that_are(
    omnigraph: Terminal, cluster: AppliedCluster
) -> None:
    cluster.record(TWO)
    done = omnigraph("optimize", "--cluster", "lab", "--graph", "none", "--json")
    assert done.code == 1
    assert json.loads(done.err)["code"] == "OG-GRAPH-NOT-APPLIED"
    assert "[graph_not_applied] graph.none: " in done.err
    assert "is not applied in cluster" in done.err
    assert "people, pets" in done.err
    done = omnigraph("optimize", "--cluster", "lab")
    assert done.code == 1
    assert "2 applied graphs (people, pets)" in done.err
    assert "--graph <id>" in done.err
    cluster.record(Parts())
    done = omnigraph("optimize", "--cluster", "lab")
    assert "cluster apply" in done.err


def test_a_cluster_that_is_none_is_told(omnigraph: Terminal, tmp_path: Path) -> None:
    for address, code in (
        (str(tmp_path), "cluster_config_read_error"),
        ("none", "config_dir_not_found"),
    ):
        done = omnigraph("optimize", "--cluster", address)
        assert done.code == 1
        assert f"[{code}]" in done.err


def test_a_profile_names_a_cluster(omnigraph: Terminal, cluster: AppliedCluster) -> None:
    cluster.apply(TWO)
    Path("config.yaml").write_text(
        "clusters: {lab: {root: lab}}\nprofiles: {lab: {cluster: lab, default_graph: people}}\n"
    )
    done = omnigraph("optimize", "--profile", "lab", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["uri"] == cluster.graph_uri("people")
    done = omnigraph("optimize", "--profile", "lab", "--graph", "pets", "--json")
    assert json.loads(done.out)["uri"] == cluster.graph_uri("pets")
    assert omnigraph("policy", "validate", "--profile", "lab").code == 0
    done = omnigraph("graphs", "list", "--profile", "lab")
    assert done.code == 1
    assert "requires a server" in done.err
    assert "cluster status" in done.err
    done = omnigraph("snapshot", "--profile", "lab")
    assert "not valid for graph data commands" in done.err


# -- stored queries -------------------------------------------------------------------------------


def test_stored_queries_are_listed_by_name(omnigraph: Terminal, cluster: AppliedCluster) -> None:
    cluster.apply(TWO)
    done = omnigraph("queries", "list", "--cluster", "lab", "--graph", "people")
    assert done.out == "read  all($least: int?)\n  description: Everyone.\nmutation  grow()\n"
    found = json.loads(
        omnigraph("queries", "list", "--cluster", "lab", "--graph", "people", "--json").out
    )
    assert found["queries"][0] == {
        "name": "all",
        "tool_name": "all",
        "description": "Everyone.",
        "mutation": False,
        "params": [{"name": "least", "type": "int", "nullable": True}],
        "mcp_expose": True,
    }
    assert_shape("queries-list", found)
    assert_shape("queries-list", omnigraph("queries", "list", "--cluster", "lab", "--json").json)
    every = omnigraph("queries", "list", "--cluster", "lab")
    assert [line.split()[-1] for line in every.out.splitlines() if "(" in line] == [
        "(people)",
        "(people)",
        "(pets)",
    ]
    cluster.record(Parts(graphs={"people": GraphParts(SCHEMA)}))
    assert (
        omnigraph("queries", "list", "--cluster", "lab").out == "(no stored queries registered)\n"
    )


def test_stored_queries_are_checked_against_the_live_schema(
    omnigraph: Terminal, cluster: AppliedCluster
) -> None:
    cluster.apply(TWO)
    done = omnigraph("queries", "validate", "--cluster", "lab", "--json")
    assert (done.code, json.loads(done.out)) == (0, {"ok": True, "breakages": [], "warnings": []})
    with Graph.open(cluster.graph_uri("people")) as graph:
        apply_schema_by_cluster(graph.schema, "node Person { name: String @key }\n")
    done = omnigraph("queries", "validate", "--cluster", "lab", "--graph", "people", "--json")
    found = json.loads(done.out)
    assert done.code == 1
    assert_shape("queries-validate", found)
    both = omnigraph("queries", "validate", "--cluster", "lab", "--json").json
    assert_shape("queries-validate", both)
    assert both["breakages"] == [{"graph_id": "people", **found["breakages"][0]}]
    assert [one["query"] for one in found["breakages"]] == ["grow"]
    assert not found["ok"]
    done = omnigraph("queries", "validate", "--cluster", "lab")
    assert done.code == 1
    assert done.out.startswith("ERROR people.grow: ")
    assert omnigraph("queries", "validate", "--cluster", "lab", "--graph", "pets").code == 0


def test_a_query_that_does_not_parse_is_a_breakage(
    omnigraph: Terminal, cluster: AppliedCluster
) -> None:
    cluster.apply(Parts(graphs={"people": GraphParts(SCHEMA, {"q": "query ("})}))
    done = omnigraph("queries", "validate", "--cluster", "lab", "--json")
    assert done.code == 1
    assert [one["query"] for one in json.loads(done.out)["breakages"]] == ["q"]


def test_queries_and_policies_need_a_cluster_that_can_be_served(
    omnigraph: Terminal, cluster: AppliedCluster
) -> None:
    for command in (("queries", "list"), ("queries", "validate"), ("policy", "validate")):
        done = omnigraph(*command, "--cluster", "lab")
        assert done.code == 1
        assert "not ready to serve" in done.err
        assert "[cluster_state_missing] __cluster/state.json: " in done.err
        done = omnigraph(*command, "--cluster", "none")
        assert "[config_dir_not_found]" in done.err
    cluster.apply(TWO)
    cluster.begin("people")
    done = omnigraph("queries", "list", "--cluster", "lab", "--graph", "people")
    assert done.code == 1
    assert "[cluster_recovery_pending]" in done.err
    done = omnigraph("queries", "validate", "--cluster", "lab", "--graph", "none")
    assert "is not applied in cluster" in done.err
    for command in (("queries", "validate"), ("policy", "validate")):
        assert "needs a cluster" in omnigraph(*command).err


# -- policies -------------------------------------------------------------------------------------


def test_the_applied_policy_is_checked_tested_and_explained(
    omnigraph: Terminal, cluster: AppliedCluster
) -> None:
    cluster.record(TWO)
    people = ("--cluster", "lab", "--graph", "people")
    done = omnigraph("policy", "validate", *people)
    assert (done.code, done.out) == (0, "policy valid: bundle 'readers' [2 actors]\n")
    Path("cases.yaml").write_text(
        "version: 1\ncases: [{ id: c, actor: ben, action: change, branch: main, expect: deny }]\n"
    )
    done = omnigraph("policy", "test", "--tests", "cases.yaml", *people)
    assert (done.code, done.out) == (0, "policy tests passed: 1 cases\n")
    done = omnigraph(
        *("policy", "explain", "--actor", "ben", "--action", "change", "--branch", "draft"), *people
    )
    assert done.out.splitlines()[0] == "decision: allow"
    assert "matched_rule: drafts" in done.out


def test_the_working_tree_is_not_looked_at(omnigraph: Terminal, cluster: AppliedCluster) -> None:
    cluster.record(TWO)
    Path("lab/readers.yaml").write_text("version: 7\n")
    assert omnigraph("policy", "validate", "--cluster", "lab", "--graph", "people").code == 0


def test_the_bundle_of_the_graph_wins_and_that_of_the_cluster_is_of_a_server(
    omnigraph: Terminal, cluster: AppliedCluster
) -> None:
    cluster.record(TWO)
    done = omnigraph("policy", "validate", "--cluster", "lab")
    assert done.code == 1
    assert "2 policies (ops, readers)" in done.err
    done = omnigraph("policy", "validate", "--cluster", "lab", "--graph", "pets")
    assert "no policy is applied for graph 'pets'" in done.err
    done = omnigraph("policy", "validate", "--cluster", "lab", "--graph", "none")
    assert "is not applied in cluster" in done.err
    cluster.record(replace(TWO, policies={"ops": Bundle(OPS, ("cluster",))}))
    done = omnigraph("policy", "validate", "--cluster", "lab")
    assert done.out == "policy valid: bundle 'ops' [1 actors]\n"
    done = omnigraph("policy", "validate", "--cluster", "lab", "--policy", "lab/cluster.yaml")
    assert "mutually exclusive" in done.err


# -- graphs that the cluster owns -----------------------------------------------------------------


def test_init_and_schema_apply_are_left_to_the_cluster(
    omnigraph: Terminal, cluster: AppliedCluster
) -> None:
    cluster.apply(ONE)
    before = cluster.root.objects.list("graphs")
    for words in (
        ("schema", "apply", cluster.graph_uri("people"), "--schema", "next.pg"),
        ("init", "--schema", "s.pg", cluster.graph_uri("new")),
    ):
        done = omnigraph(*words)
        assert done.code == 1
        assert f"belongs to the cluster at {cluster.root.uri}" in done.err
        assert "`omnigraph cluster apply`" in done.err
    assert cluster.root.objects.list("graphs") == before
    # Reading and writing rows is not the cluster's business.
    done = omnigraph(
        "mutate",
        "-e",
        'query a() { insert Person { name: "x" } }',
        "--store",
        cluster.graph_uri("people"),
    )
    assert done.code == 0, done.err


def test_init_and_schema_apply_are_left_to_the_cluster_in_s3(
    omnigraph: Terminal, bucket: S3Server
) -> None:
    cluster = AppliedCluster(f"s3://{bucket.bucket}/cli-owned")
    cluster.apply(ONE)
    for words in (
        ("schema", "apply", cluster.graph_uri("people"), "--schema", "next.pg"),
        ("init", "--schema", "s.pg", cluster.graph_uri("new")),
    ):
        done = omnigraph(*words)
        assert done.code == 1
        assert "`omnigraph cluster apply`" in done.err
