"""What the commands on stored state say and do: `tests/cases/cluster_commands`.

Sections named `file NAME` are files of the folder. A script has one step per line:

| step | meaning |
|---|---|
| `plan`, `apply --json`, … | `omnigraph cluster …` |
| `write FILE TEXT` | replaces a file; `\\n` is a line end |
| `copy FROM TO`, `remove PATH` | files and folders |
| `show PATH` | prints a file |
| `list DIR` | prints the paths of files below a folder |
| `migrate GRAPH FILE` | applies a schema directly to a graph, past the cluster |
| `branch GRAPH NAME` | makes a branch of a graph |
| `intent KIND GRAPH [FILE]` | writes what a dead run leaves, wanting the schema of a file |
| `make GRAPH FILE` | makes a graph with the schema of a file, past the cluster |
| `tamper DIR` | changes every file below a folder |
| `forget MEMBER` | takes a member out of the ledger, wherever it stands |
| `spoil ADDRESS` | gives a resource another digest in the ledger |
| `lock` | writes the lock of another command |

In the output `ID` is a ULID, `TIME` a moment, `D1`, `D2`, … are digests in the order in which they
come up, and `ROOT` is the storage root.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from omnigraph.cluster.commands.frame import open_workplace
from omnigraph.cluster.stored.intents import write_intent
from omnigraph.cluster.stored.json_objects import encode
from omnigraph.cluster.stored.lock import Lock
from omnigraph.graph import Graph, apply_schema_by_cluster
from support.cases import Case, check_case, load_cases
from support.clusters import an_intent
from support.terminal import Terminal

CASES = load_cases("cluster_commands")
ULID = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
STEPS = {
    *("write", "copy", "remove", "mkdir", "show", "list"),
    *("make", "migrate", "branch", "intent", "lock", "tamper", "forget", "spoil"),
}
STATE = Path("__cluster/state.json")


class Stage:
    """A folder, and a terminal in it."""

    def __init__(self, omnigraph: Terminal) -> None:
        self._omnigraph = omnigraph
        self._digests: dict[str, str] = {}

    def play(self, line: str) -> list[str]:
        verb, *rest = line.split(" ", 1)
        told = [f"$ {line}"]
        if verb in STEPS:
            return told + self._plain(str(getattr(self, f"_{verb}")(*_words(verb, rest)) or ""))
        ran = self._omnigraph("cluster", *line.split())
        told += [f"! {each}" for each in self._plain(ran.err)] + self._plain(ran.out)
        return told + ([f"[exit {ran.code}]"] if ran.code else [])

    def _plain(self, text: str) -> list[str]:
        text = ULID.sub("ID", MOMENT.sub("TIME", text.replace(str(Path.cwd()), "ROOT")))
        text = re.sub(rf"\b{os.getpid()}\b", "PID", text)
        text = re.sub(r'("lock_age_seconds": )\d+', r"\1AGE", text)
        text = DIGEST.sub(lambda found: self._digest(found[0]), text)
        return text.splitlines()

    def _digest(self, found: str) -> str:
        return self._digests.setdefault(found, f"D{len(self._digests) + 1}")

    def _write(self, name: str, text: str = "") -> None:
        Path(name).write_text(text.replace("\\n", "\n"), encoding="utf-8")

    def _copy(self, source: str, target: str) -> None:
        shutil.copyfile(source, target)

    def _remove(self, name: str) -> None:
        found = sorted(Path().glob(name))
        assert found, name
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _show(self, name: str) -> str:
        return "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path().glob(name)))

    def _list(self, name: str) -> str:
        found = [path for path in Path(name).rglob("*") if path.is_file()]
        return "\n".join(sorted(p.as_posix() for p in found if not p.name.startswith(".og-")))

    def _migrate(self, graph_id: str, name: str) -> None:
        with Graph.open(f"graphs/{graph_id}.omni") as graph:
            # As someone would who works around the cluster.
            apply_schema_by_cluster(graph.schema, Path(name).read_text(encoding="utf-8"))

    def _branch(self, graph_id: str, name: str) -> None:
        with Graph.open(f"graphs/{graph_id}.omni") as graph:
            graph.branches.create(name)

    def _intent(self, kind: str, graph_id: str, name: str = "") -> None:
        digest = sha256(Path(name).read_bytes()).hexdigest() if name else None
        root = open_workplace(str(Path.cwd())).root
        intent = an_intent(
            kind,  # type: ignore[arg-type]  # a word of the script
            graph_id,
            desired_schema_digest=digest,
            graph_uri=root.graph_uri(graph_id),
        )
        write_intent(root, intent)

    def _mkdir(self, name: str) -> None:
        Path(name).mkdir(parents=True, exist_ok=True)

    def _make(self, graph_id: str, name: str) -> None:
        schema = Path(name).read_text(encoding="utf-8")
        Graph.init(f"graphs/{graph_id}.omni", schema, by_cluster=True).close()

    def _tamper(self, name: str) -> None:
        for path in Path(name).rglob("*.*"):
            path.write_text("tampered", encoding="utf-8")

    def _forget(self, member: str) -> None:
        state = json.loads(STATE.read_text(encoding="utf-8"))
        for entry in state["applied_revision"]["resources"].values():
            entry.pop(member, None)
        STATE.write_text(json.dumps(state), encoding="utf-8")

    def _spoil(self, address: str) -> None:
        state = json.loads(STATE.read_text(encoding="utf-8"))
        state["applied_revision"]["resources"][address]["digest"] = "0" * 64
        STATE.write_text(json.dumps(state), encoding="utf-8")

    def _lock(self) -> None:
        Path("__cluster").mkdir(exist_ok=True)
        lock = Lock(1, "01HZZZZZZZZZZZZZZZZZZZZZZZ", "apply", "2026-01-01T00:00:00.000Z", 7)
        Path("__cluster/lock.json").write_bytes(encode(lock))


def _words(verb: str, rest: list[str]) -> list[str]:
    return rest[0].split(" ", 1 if verb == "write" else -1) if rest else []


@pytest.fixture
def omnigraph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    monkeypatch.chdir(tmp_path)
    return Terminal(capsys)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_commands_say_this(case: Case, omnigraph: Terminal, update_cases: bool) -> None:
    for name, text in case.sections.items():
        if name.startswith("file "):
            Path(name.removeprefix("file ")).write_text(text + "\n", encoding="utf-8")
    stage = Stage(omnigraph)
    told = [line for step in case.sections["script"].splitlines() for line in stage.play(step)]
    check_case(case, "transcript", "\n".join(told), update_cases)
