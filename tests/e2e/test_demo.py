"""`omnigraph demo` from outside: a story that can be told twice in one place."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from support.pages import DOCS

DEMO = Path(sys.executable).parent / "omnigraph"


def demo(folder: Path, *args: str) -> str:
    done = subprocess.run(
        [DEMO, "demo", *args], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


SMALL = ("--no-spark", "--rows", "2000")


def steps(text: str) -> list[str]:
    """Return the titles: what a kill does to a load is told differently each time."""
    return re.findall(r"^\d+\. .*$", text, re.MULTILINE)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Run the demo twice in one folder."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, demo(folder, *SMALL), demo(folder, *SMALL)


def test_the_demo_tells_the_same_story_twice(told: tuple[Path, str, str]) -> None:
    _, first, second = told
    assert steps(first) == steps(second)


def test_every_step_is_numbered_and_shows_a_command(told: tuple[Path, str, str]) -> None:
    _, story, _ = told
    parts = re.split(r"^(\d+)\. ", story, flags=re.MULTILINE)
    numbers, texts = parts[1::2], parts[2::2]
    assert numbers == [str(number + 1) for number in range(len(texts))]
    assert len(texts) > 3
    assert all(re.search(r"^\$ (?:omnigraph|cat) ", text, re.MULTILINE) for text in texts)


def test_the_commands_of_the_story_work_when_they_are_typed(told: tuple[Path, str, str]) -> None:
    folder, story, _ = told
    hints = re.findall(r"^  (omnigraph .+)$", story, re.MULTILINE)
    assert hints
    for line in hints:
        subprocess.run(
            [DEMO, *line.split()[1:]],
            cwd=folder,
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )


def test_the_story_has_a_conflict_a_merge_and_a_crash(told: tuple[Path, str, str]) -> None:
    _, story, _ = told
    assert "merged review into main: merged" in story
    assert "99.0      | reviewed" in story
    settled = re.search(r"^\S+ (RolledBack|RolledForward) Load: ", story, re.MULTILINE)
    assert settled or "It was faster than the kill" in story


def test_the_story_goes_to_stderr_and_the_facts_to_stdout_without_colours(tmp_path: Path) -> None:
    done = subprocess.run(
        [DEMO, "demo", *SMALL, "--json"],
        cwd=tmp_path,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    facts = json.loads(done.stdout)
    schema = json.loads((DOCS / "reference" / "json" / "demo.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(facts)
    assert (facts["engine"], facts["rows"]) == ("local", 2000)
    assert [step["title"] for step in facts["steps"]] == [
        title.partition(". ")[2] for title in steps(done.stderr)
    ]
    codes = {c["exit_code"] for step in facts["steps"] for c in step["commands"]}
    assert codes == {0, 1, None}
    assert "\x1b" not in done.stderr
    assert all((tmp_path / graph).is_dir() for graph in facts["graphs"])


@pytest.mark.spark
def test_the_network_is_loaded_and_read_by_spark(tmp_path: Path) -> None:
    story = demo(tmp_path, "--rows", "5000")
    assert "--engine spark" in story
    assert (
        sum(int(count) for count in re.findall(r"^[A-Z][a-z]+ +(\d+)$", story, re.MULTILINE))
        == 1000
    )


def test_the_demo_leaves_other_files_alone(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "notes.txt").write_text("keep", encoding="utf-8")
    demo(tmp_path, "--dir", "mine", *SMALL)
    assert (place / "notes.txt").read_text(encoding="utf-8") == "keep"
    assert (place / "packages.omni").is_dir()
