"""What `--json` prints is what the JSON Schemas in the documentation say, for every command."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest
from jsonschema import Draft202012Validator

from omnigraph import failpoints
from omnigraph.cli.app import run
from omnigraph.graph import Graph
from support.commands import all_commands
from support.json_shapes import problems, schemas
from support.pages import DOCS
from support.s3 import S3Server

PAGE = DOCS / "reference" / "json.md"
NOT_A_COMMAND = {"common", "error"}
WITHOUT_JSON = {
    *("blob get", "cluster schema", "init", "serve", "version"),
    *("policy explain", "policy test", "policy validate"),
}
"""Commands whose result is bytes, or lines that are a contract themselves."""
ELSEWHERE = {
    *("alias", "demo", "graphs-list", "queries-list", "queries-validate", "sql"),
    *("pipeline-plan", "pipeline-run", "pipeline-validate"),
    *("pipeline-history", "pipeline-status"),
}
"""Commands whose results are tested by other files: e2e, pipelines, served, clusters, spark."""

PEOPLE = """\
node Person { name: String @key  age: I32?  photo: Blob?  vector: Vector(4)? @embed(name) }
edge Knows: Person -> Person { since: Date? }
"""
RECORDS = """\
{"type": "Person", "data": {"name": "ann", "age": 1, "photo": "base64:AQID"}}
{"type": "Person", "data": {"name": "bob"}}
{"edge": "Knows", "from": "ann", "to": "bob", "data": {"since": "2020-01-01"}}
"""
QUERIES = """\
query all() { match { $p: Person } return { $p.name, $p.age } }
query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }
"""
FILES = {
    "people.pg": PEOPLE,
    "next.pg": PEOPLE.replace("age: I32?", "age: I32?  nick: String?"),
    "no.pg": PEOPLE.replace("age: I32?", "age: Bool?"),
    "people.jsonl": RECORDS,
    "people.gq": QUERIES,
    "script.gq": '\\branch\nmatch { $p: Person } return { $p.name }\ninsert Person { name: "dan" }',
    "nick.gq": 'query nick() { update Person set { nick: "a" } where name = "ann" }',
    "bad.gq": "query all() { match { $p: Person } return { $p.nmae } }",
    "people.test.yaml": """\
schema: people.pg
queries: [people.gq]
fixtures: {ann: [{type: Person, data: {name: ann, age: 41}}]}
tests:
  - {name: holds, fixture: ann, query: all, expect: {rows: [{p.age: 41}]}}
  - {name: fails, fixture: ann, query: all, expect: {rows: [{p.age: 40}]}}
expectations: [{type: Person, rules: [{range: {age: [0, 40]}}, {rows: {min: 1}}]}]
""",
    "broken.test.yaml": "tset: []",
    "spec.json": '{"dimension": 4, "types": {"Person": {"target": "vector", "fields": ["name"]}}}',
    "home/config.yaml": "profiles: {good: {store: g.omni}, bad: {store: a, server: b}}",
}

WRITES = """
load URI --data people.jsonl --mode append --as ada
load URI --data people.jsonl --mode merge --branch etl --from main
mutate age --query people.gq --params '{"n": "ann", "a": 2}' --store URI
mutate age --query people.gq --params '{"n": "nobody", "a": 2}' --store URI
mutate age --query people.gq --params '{"n": "ann", "a": 2}' --if-commit NO --store URI  # exit 4
branch create draft --uri URI --as ada
branch list --uri URI
mutate age --query people.gq --params '{"n": "bob", "a": 3}' --branch draft --store URI
branch merge draft --dry-run --uri URI
branch merge draft --uri URI
branch merge draft --uri URI
"""
READS = """
query all --query people.gq --store URI
query all --query people.gq --snapshot HEAD --store URI
query all --query people.gq --explain --store URI
query all --query people.gq --analyze --store URI
snapshot URI
commit list URI
blob stat node Person ann photo --store URI
shell URI --file script.gq
commit show HEAD --uri URI
commit changes HEAD --uri URI
log URI
diff FIRST main --uri URI
"""
OTHERS = """
ingest URI --data people.jsonl
mutate age --query people.gq --params '{"n": "bob", "a": 4}' --branch draft --store URI
mutate age --query people.gq --params '{"n": "bob", "a": 5}' --store URI
branch merge draft --dry-run --uri URI  # exit 1
branch merge draft --uri URI  # exit 1
branch conflicts draft --uri URI
branch conflicts draft --out conflicts.jsonl --uri URI
branch merge draft --prefer source --delete-branch --uri URI
branch delete etl --uri URI
diff FIRST main --stat --uri URI
commit changes HEAD --limit 1 --page-token NO --uri URI  # exit 1
commit revert HEAD --uri URI
lineage show HEAD --uri URI
lineage show Person --uri URI
lineage show Persn --uri URI  # exit 1
lineage emit --to file:events --uri URI
tag create v1 --uri URI
tag list --uri URI
tag delete v1 --uri URI
changes poll --uri URI
changes poll --start beginning --uri URI
changes baseline --out baseline.jsonl --uri URI
export URI --out out
embed --input people.jsonl --output embedded.jsonl --spec spec.json
embed --store URI
schema show URI
schema check people.pg
schema plan URI --schema next.pg
schema plan URI --schema no.pg
branch create wide --uri URI
schema apply URI --schema next.pg --branch wide
schema diff main wide --uri URI
schema apply URI --schema people.pg --branch wide --allow-data-loss
schema show URI --branch wide
schema apply URI --schema next.pg
diff FIRST main --uri URI
commit changes HEAD --uri URI
changes poll --start beginning --schema-changes deliver --uri URI
branch create slim --uri URI
schema apply URI --schema people.pg --branch slim
mutate nick --query nick.gq --store URI
branch merge slim --dry-run --uri URI  # exit 1
branch conflicts slim --uri URI
branch merge slim --schema source --allow-data-loss --uri URI
schema apply URI --schema next.pg --branch slim
branch merge slim --dry-run --uri URI
branch merge slim --delete-branch --uri URI
schema apply URI --schema no.pg  # exit 1
schema show URI
test people.test.yaml  # exit 1
test people.test.yaml -k holds
test broken.test.yaml  # exit 2
test --scaffold all --schema people.pg --query people.gq
check URI --file people.test.yaml
schema plan URI --schema people.pg --tests people.test.yaml
lint URI --query people.gq
lint --query bad.gq --schema people.pg  # exit 1
optimize URI
repair URI
cleanup URI --keep 1 --confirm
recovery status URI
recovery list URI
login lab --token t
logout lab
load --frobnicate  # exit 2
cluster validate  # exit 1
cluster graph  # exit 1
cluster init lab
cluster init lab  # exit 1
cluster validate --config lab
cluster graph --config lab
cluster plan  # exit 1
cluster plan --config lab
cluster apply --config lab  # exit 1
cluster status --config lab
cluster import --config lab
cluster import --config lab  # exit 1
cluster apply --config lab --as ada
cluster apply --config lab
cluster refresh --config lab
cluster status --config lab
cluster plan --config lab
cluster approve graph.papers --config lab  # exit 1
cluster approve graph.papers --config lab --as ada  # exit 1
cluster force-unlock NO --config lab  # exit 1
profile list
profile show
profile show good
doctor URI --no-spark
doctor nowhere.omni --no-spark  # exit 1
doctor URI --scrub
doctor URI --scrub --sample 5% --seed x
snapshot nowhere.omni  # exit 1
"""


# -- schemas --------------------------------------------------------------------------------------


def has_json(command: click.Command) -> bool:
    return any("--json" in parameter.opts for parameter in command.params)


def test_every_command_with_json_has_a_schema_and_every_schema_a_command() -> None:
    speaking = {words.replace(" ", "-") for words, command in all_commands() if has_json(command)}
    assert speaking == set(schemas()) - NOT_A_COMMAND
    assert {words for words, command in all_commands() if not has_json(command)} == WITHOUT_JSON


@pytest.mark.parametrize("name", sorted(schemas()))
def test_a_schema_is_well_formed_and_listed(name: str) -> None:
    schema = schemas()[name]
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"{name}.json"
    assert f"](json/{name}.json)" in PAGE.read_text(encoding="utf-8")


def test_a_field_too_many_or_too_few_is_found() -> None:
    assert problems("branch-list", {"branches": ["main"]}) == []
    assert problems("branch-list", {"branches": []}) != []
    assert problems("branch-list", {"branches": ["main"], "more": 1}) != []
    assert problems("commit-list", {"commits": [{"graph_commit_id": "x"}]}) != []


# -- results --------------------------------------------------------------------------------------


@dataclass
class Session:
    """Runs commands with `--json` on one graph, and holds each result against its schema."""

    uri: str
    checked: set[str] = field(default_factory=set)

    def check(self, script: str) -> None:
        for line in script.strip().splitlines():
            text, _, exit_code = line.partition("  # exit ")
            self._check_line(text, int(exit_code or 0))

    def _check_line(self, line: str, exit_code: int) -> None:
        words = [self._word(word) for word in shlex.split(line)]
        code, out, err = self.run(*words, "--json")
        assert code == exit_code, f"{line} ends with {code}:\n{out}{err}"
        name, found = self._schema_of(words), out
        if not out:
            name, found = "error", err[err.index("{") :]
        assert problems(name, json.loads(found)) == [], f"{line} prints:\n{found}"
        self.checked.add(name)

    def _word(self, word: str) -> str:
        commits = {"HEAD": 0, "FIRST": -1}
        if word in commits:
            _, out, _ = self.run("commit", "list", self.uri, "--json")
            found: str = json.loads(out)["commits"][commits[word]]["graph_commit_id"]
            return found
        return self.uri if word == "URI" else word

    @staticmethod
    def _schema_of(words: list[str]) -> str:
        both = "-".join(words[:2])
        return both if both in schemas() else words[0]

    @staticmethod
    def run(*words: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([*words, "--quiet"])
        return code, out.getvalue(), err.getvalue()


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.delenv("OMNIGRAPH_PROFILE", raising=False)
    Path("home").mkdir()
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    return tmp_path


def crash_a_write(uri: str) -> None:
    """Leave a record of a write that was never published, and one that cannot be read."""
    with Graph.open(uri, durability="process") as graph:
        failpoints.arm("write.post_phase_b_pre_manifest_commit")
        try:
            with pytest.raises(failpoints.FailpointError):
                graph.mutate('query q() { insert Person { name: "cas" } }')
        finally:
            failpoints.disarm()


def test_every_result_on_a_disk_is_what_its_schema_says(workplace: Path) -> None:
    session = Session(str(workplace / "g.omni"))
    assert session.run("init", "--schema", "people.pg", session.uri)[0] == 0
    session.check(WRITES)
    session.check(READS)
    crash_a_write(session.uri)
    session.check("recovery status URI")
    Graph.open(session.uri, durability="process").close()
    _, out, _ = session.run("recovery", "list", session.uri, "--json")
    [record] = json.loads(out)["recoveries"]
    session.check(f"recovery list URI\nrecovery show {record['operation_id']} --uri URI")
    (workplace / "g.omni" / "__recovery" / "01BAD.json").write_text("{", encoding="utf-8")
    session.check("recovery quarantine 01BAD --confirm --uri URI")
    session.check(OTHERS)
    assert session.checked == set(schemas()) - {"common"} - ELSEWHERE


def test_results_on_an_object_store_have_the_same_shapes(workplace: Path, bucket: S3Server) -> None:
    session = Session(f"s3://{bucket.bucket}/people.omni")
    assert session.run("init", "--schema", "people.pg", session.uri)[0] == 0
    session.check(WRITES)
    session.check(READS)
    session.check("branch delete draft --uri URI  # exit 1\nbranch delete draft --yes --uri URI")
    with bucket.refusing("people.omni"):
        code, out, err = session.run("snapshot", session.uri, "--json")
    refused = json.loads(err)
    assert (code, out, problems("error", refused)) == (1, "", [])
    assert refused["code"] == "OG-STORE-PERMISSION"
    assert "credentials" in refused["hint"]
