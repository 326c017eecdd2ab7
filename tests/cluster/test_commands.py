"""`omnigraph cluster init`, `graph` and `schema`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.cluster.config.json_schema import cluster_json_schema
from omnigraph.cluster.write_example import EXAMPLE_FILES, SCHEMA_FILE
from support.terminal import Terminal

TREE = """\
policy.ops
provider.embedding.emb
  graph.papers
    pipeline.nightly
    policy.readers
    schema.papers
      query.papers.all
"""
DOT = """\
digraph cluster {
  rankdir=LR;
  node [shape=box];
  "graph.papers";
  "pipeline.nightly";
  "policy.ops";
  "policy.readers";
  "provider.embedding.emb";
  "query.papers.all";
  "schema.papers";
  "graph.papers" -> "provider.embedding.emb";
  "pipeline.nightly" -> "graph.papers";
  "policy.readers" -> "graph.papers";
  "query.papers.all" -> "schema.papers";
  "schema.papers" -> "graph.papers";
}
"""
MERMAID = """\
flowchart LR
  r0["graph.papers"]
  r1["pipeline.nightly"]
  r2["policy.ops"]
  r3["policy.readers"]
  r4["provider.embedding.emb"]
  r5["query.papers.all"]
  r6["schema.papers"]
  r0 --> r4
  r1 --> r0
  r3 --> r0
  r5 --> r6
  r6 --> r0
"""


@pytest.fixture
def omnigraph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    monkeypatch.chdir(tmp_path)
    return Terminal(capsys)


@pytest.fixture
def lab(omnigraph: Terminal) -> Terminal:
    files = {
        "papers.pg": "node Paper { doi: String @key }\n",
        "a.gq": "query all() { match { $p: Paper } return { $p.doi } }\n",
        "p.yaml": "version: 1\n",
        "n.yaml": """\
version: 1
name: nightly
target: {graph: papers}
sources: {rows: {format: csv, path: rows.csv}}
load: [{node: Paper, from: rows, mode: merge}]
""",
        "cluster.yaml": """\
version: 1
state: {lock: false}
providers: {embedding: {emb: {kind: mock}}}
graphs: {papers: {schema: papers.pg, queries: a.gq, embedding_provider: emb}}
policies:
  readers: {file: p.yaml, applies_to: [papers]}
  ops: {file: p.yaml, applies_to: [cluster]}
pipelines: {nightly: {file: n.yaml}}
""",
    }
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    return omnigraph


def test_what_init_writes_is_valid(omnigraph: Terminal) -> None:
    result = omnigraph("cluster", "init", "lab/inner")
    assert (result.code, result.err) == (0, "")
    written = {str(path.relative_to("lab/inner")) for path in Path().rglob("*") if path.is_file()}
    assert written == {*EXAMPLE_FILES, SCHEMA_FILE}
    assert result.out.splitlines()[-1] == "next: `omnigraph cluster validate --config lab/inner`"
    checked = omnigraph("cluster", "validate", "--config", "lab/inner")
    assert checked.code == 0
    assert checked.out.splitlines()[-1] == (
        "lab/inner/cluster.yaml is valid: 1 graph, 3 queries, 2 policies"
    )


def test_what_init_writes_can_be_applied(omnigraph: Terminal) -> None:
    assert omnigraph("cluster", "init").code == 0
    assert omnigraph("cluster", "apply").code == 1  # There is no ledger yet.
    assert (
        omnigraph("cluster", "import", "--json").json["state_observations"]["state_revision"] == 1
    )
    planned = omnigraph("cluster", "plan", "--json").json
    assert {each["operation"] for each in planned["changes"]} == {"create"}
    applied = omnigraph("cluster", "apply", "--json").json
    assert (applied["ok"], applied["converged"], applied["applied_count"]) == (True, True, 7)
    assert Path("data/graphs/papers.omni").is_dir()
    assert omnigraph("cluster", "plan", "--json").json["changes"] == []


def test_init_writes_into_the_current_folder_and_keeps_what_is_there(omnigraph: Terminal) -> None:
    Path("README.md").write_text("mine", encoding="utf-8")
    assert omnigraph("cluster", "init", "--json").json["files"] == [*EXAMPLE_FILES, SCHEMA_FILE]
    assert omnigraph("cluster", "validate").code == 0
    assert Path("README.md").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("name", [*EXAMPLE_FILES, SCHEMA_FILE])
def test_init_replaces_nothing(omnigraph: Terminal, name: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("mine", encoding="utf-8")
    result = omnigraph("cluster", "init", "--json")
    assert (result.code, result.out) == (1, "")
    assert json.loads(result.err)["code"] == "OG-CLUSTER-EXISTS"
    assert [path for path in Path().rglob("*") if path.is_file()] == [Path(name)]
    assert Path(name).read_text(encoding="utf-8") == "mine"


def test_init_does_not_follow_a_broken_link(omnigraph: Terminal) -> None:
    Path("papers.pg").symlink_to("elsewhere.pg")
    assert omnigraph("cluster", "init").code == 1
    assert not Path("elsewhere.pg").exists()
    assert not Path("cluster.yaml").exists()


@pytest.mark.parametrize(("form", "drawing"), [("text", TREE), ("dot", DOT), ("mermaid", MERMAID)])
def test_dependencies_are_drawn_without_findings(lab: Terminal, form: str, drawing: str) -> None:
    result = lab("cluster", "graph", "--format", form)
    assert (result.code, result.out, result.err) == (0, drawing, "")


def test_dependencies_as_json_are_those_of_validate(lab: Terminal) -> None:
    drawn = lab("cluster", "graph", "--format", "json").json
    checked = lab("cluster", "validate", "--json").json
    assert drawn == lab("cluster", "graph", "--json").json
    assert drawn["resources"] == checked["resources"]
    assert drawn["dependencies"] == checked["dependencies"]
    assert [found["code"] for found in drawn["diagnostics"]] == ["state_lock_disabled"]


@pytest.mark.parametrize("form", ["text", "dot", "mermaid"])
def test_what_is_wrong_is_not_drawn(lab: Terminal, form: str) -> None:
    Path("papers.pg").unlink()
    result = lab("cluster", "graph", "--format", form)
    assert result.code == 1
    assert [line.split()[1] for line in result.out.splitlines()] == [
        "state_lock_disabled",
        "schema_file_missing",
        "query_typecheck_skipped",
    ]


def test_the_schema_is_printed(omnigraph: Terminal) -> None:
    assert omnigraph("cluster", "schema").json == cluster_json_schema()


@pytest.mark.parametrize("words", ["validate", "graph", "init", "schema"])
@pytest.mark.parametrize("flag", ["server", "cluster", "graph", "store", "as", "profile"])
def test_no_address_applies(omnigraph: Terminal, words: str, flag: str) -> None:
    result = omnigraph("cluster", words, f"--{flag}", "x")
    assert (result.code, result.out) == (1, "")
    assert f"`cluster` is a cluster control command and --{flag} does not apply" in result.err
    assert "give `--config <dir>`" in result.err


def test_a_misspelt_command_is_recognised(omnigraph: Terminal) -> None:
    result = omnigraph("cluster", "validat")
    assert result.code == 2
    assert "did you mean `omnigraph cluster validate`?" in result.err
