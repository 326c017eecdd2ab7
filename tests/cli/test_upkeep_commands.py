"""`schema apply`, `optimize`, `repair`, `cleanup` and `recovery` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import failpoints
from omnigraph.cli.app import run
from omnigraph.cli.options.spelled import parse_duration
from omnigraph.graph import Graph
from support.places import PERSON, SCHEMA, Place, add, ids, repository_of
from support.writer import people

WIDER = SCHEMA.replace("age: I32?", "age: I32?\n    motto: String?", 1)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "graph"))


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run_it(*args: str) -> tuple[int, str, str]:
        code = run([*args])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run_it


Call = Callable[..., tuple[int, str, str]]


def shape(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def test_schema_apply_changes_the_schema_once(place: Place, call: Call, tmp_path: Path) -> None:
    place.init()
    desired = tmp_path / "next.pg"
    desired.write_text(WIDER)
    code, out, err = call("schema", "apply", place.uri, "--schema", str(desired), "--json")
    assert code == 0
    assert f"omnigraph schema apply → {place.uri} (direct, local)" in err
    found = shape(out)
    assert set(found) == {
        "uri",
        "branch",
        "supported",
        "applied",
        "step_count",
        "graph_manifest_version",
        "steps",
    }
    assert (found["applied"], found["step_count"]) == (True, 1)
    code, out, _ = call("schema", "apply", place.uri, "--schema", str(desired))
    assert code == 0
    assert "applied: no" in out
    assert "no schema changes" in out


def test_schema_apply_refuses_with_exit_1(place: Place, call: Call, tmp_path: Path) -> None:
    place.init()
    desired = tmp_path / "next.pg"
    desired.write_text(SCHEMA.replace("age: I32?", "age: String?", 1))
    code, out, err = call("schema", "apply", place.uri, "--schema", str(desired))
    assert (code, out) == (1, "")
    assert "OG-MF-106" in err


def test_optimize_reports_per_dataset(place: Place, call: Call) -> None:
    graph = place.init()
    add(graph, "ann")
    add(graph, "bob")
    code, out, _ = call("optimize", place.uri, "--json")
    assert code == 0
    found = shape(out)
    by_key = {each["type_key"]: each for each in found["datasets"]}
    assert set(by_key) == {"node:Person", "node:City", "edge:Knows", "__manifest"}
    assert by_key[PERSON]["fragments_removed"] == 2
    code, out, _ = call("optimize", place.uri)
    assert "node type 'Person': nothing to do" in out


def test_repair_previews_refuses_and_forces(place: Place, call: Call) -> None:
    graph = place.init()
    add(graph, "ann")
    datasets = repository_of(graph).store.datasets
    at = graph.snapshot().open(PERSON).at
    datasets.commit_staged(datasets.stage_append(at, people("x")))
    code, out, _ = call("repair", place.uri, "--json")
    assert code == 0
    by_key = {each["type_key"]: each for each in shape(out)["datasets"]}
    assert by_key[PERSON]["action"] == "preview"
    code, out, _ = call("repair", place.uri, "--confirm")
    assert code == 1
    assert "suspicious (append)" in out
    assert call("repair", place.uri, "--force")[0] == 2
    assert call("repair", place.uri, "--force", "--confirm")[0] == 0
    assert ids(place.open().snapshot()) == ["ann", "x"]


def test_cleanup_describes_itself_until_it_is_confirmed(place: Place, call: Call) -> None:
    graph = place.init()
    for name in ("ann", "bob", "cas"):
        add(graph, name)
    assert call("cleanup", place.uri)[0] == 2
    code, out, err = call("cleanup", place.uri, "--keep", "1", "--orphan-age", "0")
    assert (code, out) == (0, "")
    assert "would remove versions beyond the newest 1" in err
    assert "10 is the recommended value" in err
    args = ("cleanup", place.uri, "--keep", "2", "--orphan-age", "0s", "--confirm", "--json")
    code, out, err = call(*args)
    assert code == 0
    found = shape(out)
    assert (found["keep_versions"], found["older_than_secs"]) == (2, None)
    by_key = {each["type_key"]: each for each in found["datasets"]}
    assert by_key[PERSON]["old_versions_removed"] == 2
    assert ids(place.open().snapshot()) == ["ann", "bob", "cas"]


def test_cleanup_of_remote_storage_needs_consent(call: Call) -> None:
    code, _, err = call("cleanup", "s3://nowhere/graph", "--keep", "10", "--confirm", "--json")
    assert code == 1
    assert "refusing destructive" in err
    assert "--yes" in err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), (" 15m ", 900), ("2h", 7_200), ("1d", 86_400), ("0s", 0)]
)
def test_durations_are_whole_numbers_of_one_unit(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1.5h", "1h30m", "1 h", "1H", "-1s", "soon"])
def test_other_durations_are_usage_errors(text: str, call: Call) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)
    assert call("cleanup", "g", f"--older-than={text}")[0] == 2


def test_recovery_shows_what_is_pending_and_what_was_settled(place: Place, call: Call) -> None:
    graph = place.init()
    assert call("recovery", "status", place.uri)[1] == "nothing pending\n"
    failpoints.arm("write.post_phase_b_pre_manifest_commit")
    try:
        with pytest.raises(failpoints.FailpointError):
            graph.mutate('query q() { insert Person { name: "cas" } }')
    finally:
        failpoints.disarm()
    code, out, _ = call("recovery", "status", place.uri, "--json")
    (pending,) = shape(out)["pending"]
    assert (code, pending["verdict"], pending["writer_kind"]) == (0, "roll_forward", "Mutation")
    assert pending["datasets"] == [{"type_key": PERSON, "classification": "RolledPastExpected"}]
    place.open()
    code, out, _ = call("recovery", "list", place.uri, "--json")
    (record,) = shape(out)["recoveries"]
    assert record["recovery_kind"] == "RolledForward"
    assert record["commit"]["graph_commit_id"] == record["graph_commit_id"]
    assert record["commit"]["parent_commit_id"] is not None
    operation_id = record["operation_id"]
    code, out, _ = call("recovery", "show", operation_id, "--uri", place.uri)
    assert f"operation_id: {operation_id}" in out
    code, _, err = call("recovery", "show", "nope", "--uri", place.uri)
    assert code == 1
    assert "settled no operation 'nope'" in err


def test_an_unreadable_record_can_be_set_aside(place: Place, call: Call) -> None:
    place.init()
    folder = Path(place.uri) / "__recovery"
    folder.mkdir(exist_ok=True)
    (folder / "01BAD.json").write_text("{")
    code, out, _ = call("recovery", "status", place.uri)
    assert code == 0
    assert out.startswith("01BAD blocks the graph: it is not JSON")
    (pending,) = shape(call("recovery", "status", place.uri, "--json")[1])["pending"]
    assert (pending["verdict"], pending["branch"]) == ("stop", None)
    code, out, _ = call("doctor", place.uri, "--no-spark")
    assert code == 1
    assert "`omnigraph recovery quarantine 01BAD --confirm`" in out
    args = ("recovery", "quarantine", "01BAD", "--uri", place.uri)
    assert call(*args)[0] == 2
    code, out, _ = call(*args, "--confirm", "--json")
    assert code == 0
    assert shape(out)["path"] == "__recovery-quarantine/01BAD.json"
    with Graph.open(place.uri, durability="process") as graph:
        add(graph, "ann")


# -- doctor --scrub --------------------------------------------------------------------------------


def damage(place: Place, part: str) -> str:
    """Flip a bit of the first file whose path has this part."""
    objects = place.store().objects
    path = next(info.path for info in objects.list() if part in info.path)
    data = objects.get(path).data
    objects.put(path, bytes([data[0] ^ 1]) + data[1:])
    return path


def test_a_sound_graph_passes_the_scrub(place: Place, call: Call) -> None:
    with place.init() as graph:
        add(graph, "ann")
    code, out, _ = call("doctor", place.uri, "--scrub")
    assert code == 0
    assert "nothing is damaged" in out
    code, out, _ = call("doctor", place.uri, "--scrub", "--sample", "5%", "--json")
    found = shape(out)
    assert (code, found["ok"], found["share"]) == (0, True, 0.05)
    assert found["compared"] < found["files"]


def test_a_damaged_file_is_named_and_ends_with_exit_code_1(place: Place, call: Call) -> None:
    with place.init() as graph:
        kept = graph.snapshot().commit_id
        add(graph, "ann")
        graph.branch_create("dev")
    path = damage(place, "nodes/40d76f1f51639ec0/data/")
    code, out, _ = call("doctor", place.uri, "--scrub")
    assert code == 1
    assert f"PROBLEM {path}: content, the bytes are not what was written" in out
    assert "rows of node:Person: 1 rows of fragment 0, row ids 0 to 0" in out
    assert f"branch main: 1 of 2 commits readable, newest {kept}" in out
    assert f"restore `{path}` from a backup" in out
    code, out, _ = call("doctor", place.uri, "--scrub", "--branch", "dev", "--json")
    found = shape(out)
    assert (code, found["ok"], len(found["damaged"])) == (1, False, 1)
    assert set(found["damaged"][0]) == {
        "path",
        "kind",
        "table",
        "problem",
        "detail",
        "rows",
        "commits",
        "remedy",
    }


def test_files_without_a_checksum_are_adopted(place: Place, call: Call) -> None:
    with Graph.init(place.uri, SCHEMA, checksums=False) as graph:
        add(graph, "ann")
    code, out, _ = call("doctor", place.uri, "--scrub")
    assert code == 0
    assert "files have no checksum" in out
    assert "`omnigraph doctor --scrub --adopt`" in out
    code, out, _ = call("doctor", place.uri, "--scrub", "--adopt")
    assert code == 0
    assert "files have got a checksum" in out
    code, out, _ = call("doctor", place.uri, "--scrub")
    assert "no checksum" not in out


def test_a_scrub_works_on_a_graph_that_cannot_be_opened(place: Place, call: Call) -> None:
    with place.init() as graph:
        add(graph, "ann")
    objects = place.store().objects
    path = max(
        info.path for info in objects.list("__manifest/_versions") if "hint" not in info.path
    )
    objects.put(path, b"x" * 100)
    code, out, _ = call("doctor", place.uri, "--scrub")
    assert code == 1
    assert path in out


@pytest.mark.parametrize("option", ["--adopt", "--sample=5%", "--branch=dev", "--seed=x"])
def test_options_of_the_scrub_need_it(place: Place, call: Call, option: str) -> None:
    place.init()
    code, _, err = call("doctor", place.uri, "--no-spark", option)
    assert code == 2
    assert "need --scrub" in err


@pytest.mark.parametrize("sample", ["0%", "5", "101%", "many"])
def test_a_sample_is_a_percentage(place: Place, call: Call, sample: str) -> None:
    place.init()
    code, _, err = call("doctor", place.uri, "--scrub", "--sample", sample)
    assert code == 2
    assert "is not a share" in err


def test_an_index_is_built_anew(place: Place, call: Call) -> None:
    with place.init() as graph:
        add(graph, "ann")
        graph.optimize()
    path = damage(place, "/_indices/")
    code, out, _ = call("doctor", place.uri, "--scrub")
    assert code == 1
    assert f"`omnigraph optimize --rebuild-indexes {PERSON}`" in out
    code, out, _ = call("optimize", place.uri, "--rebuild-indexes", PERSON)
    assert code == 0
    assert "indexes brought up to date" in out
    uuids = {s.uuid for i in place.open().snapshot().open(PERSON).indexes() for s in i.segments}
    assert path.split("/")[-2] not in uuids
    code, _, err = call("optimize", place.uri, "--branch", "dev")
    assert code == 2
    assert "--branch needs --rebuild-indexes" in err
    code, _, err = call("optimize", place.uri, "--rebuild-indexes", "node:Nobody")
    assert code == 1
    assert "node:Nobody" in err
