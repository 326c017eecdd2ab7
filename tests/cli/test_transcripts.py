"""What people see, word for word, on a disk and on an object store: `tests/cases/cli`.

A script is one command per line. In a transcript, lines that begin with `! ` came on stderr, and
`[exit N]` ends a command that did not end with 0. What differs from run to run has a name instead:
`URI`, `ID` (a ULID), `TIME`, `TOKEN`, `TAG`, `TYPE`, `N bytes`, `N s`; `HERE` is the current folder
and `ACCESS` is `local` or `remote`. In a script `HEAD` and `FIRST` are the newest and the oldest
commit of main.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.cli.app import COMMANDS, run
from support.cases import Case, check_case, load_cases
from support.s3 import S3Server

CASES = load_cases("cli")
FILES = {
    "people.pg": """\
node Person { name: String @key  age: I32?  photo: Blob? }
edge Knows: Person -> Person { since: Date? }
""",
    "next.pg": """\
node Person { name: String @key  years: I32? @rename_from(age)  photo: Blob?  nick: String? }
edge Knows: Person -> Person { since: Date? }
""",
    "slim.pg": """\
node Person { name: String @key  photo: Blob? }
edge Knows: Person -> Person { since: Date? }
""",
    "no.pg": """\
node Person { name: String @key  age: Bool?  photo: Blob? }
edge Knows: Person -> Person { since: Date? }
""",
    "people.jsonl": """\
{"type": "Person", "data": {"name": "ann", "age": 41, "photo": "base64:AQIDBAU="}}
{"type": "Person", "data": {"name": "bob"}}
{"edge": "Knows", "from": "ann", "to": "bob", "data": {"id": "k1", "since": "2020-01-01"}}
""",
    "more.jsonl": '{"type": "Person", "data": {"name": "cas", "age": 7}}\n',
    "people.csv": 'name,age\nann,41\n"bob\nby",\n',
    "bad.csv": "name,age\nann,old\nbob\n",
    "knows.csv": "a,b,since,note\nann,ann,2020-01-01,x\n",
    "bad.jsonl": """\
{"type": "Person", "data": {"age": "old"}}
{"edge": "Knows", "from": "ann", "to": "nobody"}
""",
    "people.gq": """\
query all() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }
query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }
""",
    "bad.gq": "query all() { match { $p: Person } return { $p.nmae } }\n",
    "script.gq": "\\types\nmatch { $p: Person } return { $p.age }\n\\branch\n",
    "people.test.yaml": """\
schema: people.pg
queries: [people.gq]
fixtures: {ann: [{type: Person, data: {name: ann, age: 41}}]}
tests:
  - {name: holds, fixture: ann, query: all, expect: {rows: [{p.age: 41}]}}
  - {name: fails, fixture: ann, query: all, expect: {rows: [{p.age: 40}]}}
expectations: [{type: Person, rules: [{range: {age: [0, 40]}}, {rows: {min: 1}}]}]
""",
    "spec.json": '{"dimension": 4, "types": {"Person": {"target": "v", "fields": ["name"]}}}',
    "home/config.yaml": """\
operator: {actor: ada}
profiles: {good: {store: g.omni}, bad: {store: a, server: b}}
""",
}

VOLATILE = [
    (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"\b1\d{15}\b"), "TIME"),
    (re.compile(r"\b[A-Za-z0-9_-]{80,}"), "TOKEN"),
    (re.compile(r"sha256:[0-9a-f]{12,64}"), "DIGEST"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "TAG"),
    (re.compile(r'"[A-Za-z0-9_-]{43}"'), '"TYPE"'),
    (re.compile(r"\b\d{3,} bytes"), "N bytes"),
    (re.compile(r"\bin \d+\.\d\d s\b"), "in N s"),
    (re.compile(r"\b(nodes|edges)/[0-9a-f]{16}\b"), r"\1/TYPE"),
]


@dataclass(frozen=True)
class Stage:
    """A graph's address, and the runs against it."""

    uri: str

    def transcript(self, script: str) -> str:
        return "\n".join(part for line in script.splitlines() for part in self._told(line))

    def _told(self, line: str) -> Iterator[str]:
        yield f"$ omnigraph {line}"
        code, out, err = run_here([self._word(word) for word in shlex.split(line)])
        yield from (f"! {each}" for each in self._plain(err))
        yield from self._plain(out)
        if code:
            yield f"[exit {code}]"

    def _word(self, word: str) -> str:
        if word in ("HEAD", "FIRST"):
            _, out, _ = run_here(["commit", "list", self.uri, "--json"])
            found = json.loads(out)["commits"][0 if word == "HEAD" else -1]
            return str(found["graph_commit_id"])
        return word.replace("URI", self.uri)

    def _plain(self, text: str) -> list[str]:
        text = text.replace(self.uri, "URI").replace(str(Path.cwd()), "HERE")
        text = re.sub(r"\(direct, (local|remote)\)", "(direct, ACCESS)", text)
        for pattern, name in VOLATILE:
            text = pattern.sub(name, text)
        return text.splitlines()


def run_here(words: list[str]) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code and both streams."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    buffer = out.buffer
    assert isinstance(buffer, io.BytesIO)
    return code, buffer.getvalue().decode("utf-8", "backslashreplace"), err.getvalue()


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    Path("home").mkdir()
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_command_family_says_this_on_a_disk(
    case: Case, workplace: Path, update_cases: bool
) -> None:
    told = Stage(str(workplace / "g.omni")).transcript(case.sections["script"])
    check_case(case, "transcript", told, update_cases)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_command_family_says_the_same_on_an_object_store(
    case: Case, workplace: Path, bucket: S3Server
) -> None:
    name = hashlib.sha256(str(case).encode()).hexdigest()[:8]
    told = Stage(f"s3://{bucket.bucket}/{name}.omni").transcript(case.sections["script"])
    check_case(case, "transcript", told, update=False)


def test_every_command_has_a_transcript() -> None:
    lines = [line for case in CASES for line in case.sections["script"].splitlines()]
    missing = COMMANDS.keys() - {line.split()[0] for line in lines}
    # The story of the demo is told by tests/e2e, a doctor finds what the machine has. What needs
    # a server is in test_served and tests/server, what needs a policy in test_policy_commands,
    # what needs Spark in tests/spark.
    assert missing == {"alias", "demo", "doctor", "policy", "queries", "serve", "sql"}
