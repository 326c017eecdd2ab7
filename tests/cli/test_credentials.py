"""Tokens of servers: one file, for nobody else to read."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from support.terminal import Terminal


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_token_comes_from_stdin_replaces_the_old_one_and_leaves_the_others(
    omnigraph: Terminal, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = "# mine\n[lab]\ntoken = old\n\n[ other ]  \ntoken = 'x'\n"
    home.mkdir()
    (home / "credentials").write_text(kept, encoding="utf-8")
    (home / "credentials").chmod(0o600)
    monkeypatch.setattr("sys.stdin", io.StringIO("  s3cret \nnot read\n"))
    result = omnigraph("login", "lab", "--json")
    assert (result.code, result.json["declared"]) == (0, False)
    assert result.err.startswith("note: ")
    written = (home / "credentials").read_text(encoding="utf-8")
    assert written == "# mine\n[ other ]  \ntoken = 'x'\n[lab]\ntoken = s3cret\n"
    assert (home / "credentials").stat().st_mode & 0o777 == 0o600
    assert omnigraph("logout", "lab").code == omnigraph("logout", "lab").code == 0
    assert (home / "credentials").read_text() == "# mine\n[ other ]  \ntoken = 'x'\n"
    assert [each.name for each in home.iterdir()] == ["credentials"]


def test_a_server_that_the_operator_has_named_is_declared(omnigraph: Terminal, home: Path) -> None:
    home.mkdir()
    config = "servers: {lab: {url: 'https://graph.lab.test'}}"
    (home / "config.yaml").write_text(config, encoding="utf-8")
    result = omnigraph("login", "lab", "--token", "t", "--json")
    assert (result.json["declared"], result.err) == (True, "")


@pytest.mark.parametrize("args", [("login", "lab", "--token", "t"), ("logout", "lab")])
def test_a_file_that_others_may_read_is_not_used(
    omnigraph: Terminal, home: Path, args: tuple[str, ...]
) -> None:
    home.mkdir()
    path = home / "credentials"
    path.write_text("[lab]\ntoken = seen\n", encoding="utf-8")
    path.chmod(0o640)
    result = omnigraph(*args)
    assert (result.code, result.out) == (1, "")
    assert f"`chmod 600 {path}`" in result.err
    assert path.read_text(encoding="utf-8") == "[lab]\ntoken = seen\n"


@pytest.mark.parametrize(
    ("name", "token"), [("lab", " "), ("lab", "a\nb"), ("[x]", "t"), ("", "t")]
)
def test_what_cannot_be_stored_is_refused(
    omnigraph: Terminal, home: Path, name: str, token: str
) -> None:
    assert omnigraph("login", name, "--token", token).code == 1
    assert not home.exists()
