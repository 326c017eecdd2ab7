"""Completion of words in bash, zsh and fish: the scripts, their places, and the answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.cli.app import COMMANDS, HIDDEN
from support.terminal import Terminal

OMNIGRAPH = Path(sys.executable).parent / "omnigraph"


def completed(words: str, number: int) -> list[str]:
    """Ask as the script of bash does."""
    variables = {"_OMNIGRAPH_COMPLETE": "bash_complete", "COMP_WORDS": words}
    done = subprocess.run(
        [OMNIGRAPH],
        env={**os.environ, **variables, "COMP_CWORD": str(number)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "number", "expected"),
    [
        ("omnigraph re", 1, ["recovery", "repair"]),
        ("omnigraph branch me", 2, ["merge"]),
        ("omnigraph load --mo", 2, ["--mode"]),
        ("omnigraph load --mode a", 3, ["append"]),
        ("omnigraph blob get e", 3, ["edge"]),
        ("omnigraph ing", 1, []),
    ],
)
def test_a_word_that_has_begun_is_completed(words: str, number: int, expected: list[str]) -> None:
    assert completed(words, number) == expected


def test_completing_a_command_loads_none() -> None:
    script = (
        "import json, sys\n"
        "from omnigraph.cli.app import root\n"
        "import click\n"
        "found = root.shell_complete(click.Context(root), '')\n"
        "loaded = [name for name in sys.modules if name.startswith('omnigraph.cli.commands.')]\n"
        "print(json.dumps([[item.value for item in found], loaded]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    names, loaded = json.loads(done.stdout)
    assert [name for name in names if not name.startswith("-")] == sorted(COMMANDS.keys() - HIDDEN)
    assert loaded == []


@pytest.mark.parametrize(
    ("shell", "script", "startup"),
    [
        ("bash", ".omnigraph/completion.bash", ".bashrc"),
        ("zsh", ".omnigraph/completion.zsh", ".zshrc"),
        ("fish", ".config/fish/completions/omnigraph.fish", None),
    ],
)
def test_installing_twice_is_installing_once(
    omnigraph: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    shell: str,
    script: str,
    startup: str | None,
) -> None:
    tmp_path = Path.cwd()
    for name in ("OMNIGRAPH_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    if startup is not None:
        Path(startup).write_text("export A=1", encoding="utf-8")
    shown = omnigraph("--show-completion")
    for _ in range(2):
        result = omnigraph("--install-completion")
        assert (result.code, result.out.splitlines()[0]) == (
            0,
            f"installed completion for {shell} in {tmp_path / script}",
        )
    assert Path(script).read_text(encoding="utf-8") == shown.out.removesuffix("\n")
    assert "_OMNIGRAPH_COMPLETE" in shown.out
    if startup is not None:
        first, line = Path(startup).read_text(encoding="utf-8").splitlines()
        assert first == "export A=1"
        assert line.endswith(f"source '{tmp_path / script}'")


def test_a_shell_that_is_not_known_names_those_that_are(omnigraph: Terminal) -> None:
    result = omnigraph("--install-completion", "tcsh")
    assert (result.code, result.out) == (2, "")
    assert "'tcsh' is not one of bash, zsh, fish" in result.err
