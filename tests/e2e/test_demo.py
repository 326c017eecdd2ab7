"""`omnigraph demo` from outside: a story that can be told twice in one place."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(sys.executable).parent / "omnigraph"


def demo(folder: Path, *args: str) -> str:
    done = subprocess.run(
        [DEMO, "demo", *args], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def without_ids(text: str) -> str:
    return re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "<ulid>", text)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Run the demo twice in one folder."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, demo(folder), demo(folder)


def test_the_demo_tells_the_same_story_twice(told: tuple[Path, str, str]) -> None:
    _, first, second = told
    assert without_ids(first) == without_ids(second)


def test_every_step_is_numbered_and_shows_a_command(told: tuple[Path, str, str]) -> None:
    _, story, _ = told
    steps = re.split(r"^(\d+)\. ", story, flags=re.MULTILINE)
    numbers, texts = steps[1::2], steps[2::2]
    assert numbers == [str(number + 1) for number in range(len(texts))]
    assert len(texts) > 3
    assert all(re.search(r"^\$ (?:omnigraph|cat) ", text, re.MULTILINE) for text in texts)


def test_the_commands_of_the_story_work_when_they_are_typed(told: tuple[Path, str, str]) -> None:
    folder, story, _ = told
    hints = re.findall(r"^  (omnigraph .+)$", story, re.MULTILINE)
    assert hints
    for line in hints:
        subprocess.run([DEMO, *line.split()[1:]], cwd=folder, check=True, capture_output=True)


def test_the_demo_leaves_other_files_alone(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "notes.txt").write_text("keep", encoding="utf-8")
    demo(tmp_path, "--dir", "mine")
    assert (place / "notes.txt").read_text(encoding="utf-8") == "keep"
    assert (place / "packages.omni").is_dir()
