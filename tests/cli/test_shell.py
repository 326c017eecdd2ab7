"""`omnigraph shell`, as a script and on a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.cli.shell.statements import Statements
from support.terminal import Terminal

OMNIGRAPH = str(Path(sys.executable).parent / "omnigraph")


def test_a_script_changes_and_asks(omnigraph: Terminal, graph: str, tmp_path: Path) -> None:
    script = tmp_path / "script.gq"
    script.write_text('insert Person { name: "bo }" }\nmatch { $p: Person }\nreturn { $p.name }\n')
    result = omnigraph("shell", graph, "--file", str(script))
    assert result.code == 0, result.err
    assert result.out.startswith("1 nodes, 0 edges changed\n1 rows from branch main\n")
    assert "bo }" in result.out


def test_commands_show_types_branches_and_forms(
    omnigraph: Terminal, graph: str, tmp_path: Path
) -> None:
    assert omnigraph("branch", "create", "draft", "--uri", graph).code == 0
    script = tmp_path / "script"
    script.write_text(
        "\\branch draft\n"
        'insert Person { name: "ann" }\n'
        "\\branch\n"
        "\\types\n"
        "\\format csv\n"
        "match { $p: Person } return { $p.name }\n"
        "\\branch main\n"
        "match { $p: Person } return { $p.name }\n"
        "\\quit\n"
        "this is never read\n"
    )
    result = omnigraph("shell", graph, "--file", str(script))
    assert result.code == 0, result.err
    assert result.out == (
        "1 nodes, 0 edges changed\n"
        "  main\n* draft\n"
        "edge:Knows  0\nnode:Person  1\n"
        "p.name\nann\n"
        "p.name\n"
    )


def test_the_first_problem_ends_a_script(omnigraph: Terminal, graph: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("match { $p: Nobody } return { $p.name }\n\\types\n")
    result = omnigraph("shell", graph, "--file", str(script))
    assert (result.code, result.out) == (1, "")
    assert "Nobody" in result.err


def test_a_script_that_stops_in_a_statement_says_so(
    omnigraph: Terminal, graph: str, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text("match { $p: Person\n")
    result = omnigraph("shell", graph, "--file", str(script))
    assert result.code == 1
    assert "is not complete" in result.err


def test_a_terminal_gets_a_prompt_and_answers(graph: str) -> None:
    terminal, there = pty.openpty()
    shell = subprocess.Popen(
        [OMNIGRAPH, "shell", graph], stdin=there, stdout=there, stderr=there, close_fds=True
    )
    os.close(there)
    try:
        _read_until(terminal, "main>")
        os.write(terminal, b"\\types\r")
        assert "node:Person  0" in _read_until(terminal, "node:Person  0")
        os.write(terminal, b"\\quit\r")
        assert shell.wait(60) == 0
    finally:
        os.close(terminal)
        shell.kill()


def _read_until(terminal: int, text: str) -> str:
    seen, deadline = "", time.monotonic() + 60
    while text not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 4096).decode("utf-8", "replace")
    return seen


@given(st.lists(st.sampled_from(["{", "}", '"a}"', "// }", "x", ""]), max_size=12))
def test_no_line_is_lost_and_none_is_given_twice(lines: list[str]) -> None:
    statements = Statements()
    given = [statement for line in lines for statement in statements.feed(line)]
    kept = [*given, statements.rest] if statements.is_open else given
    assert [line for text in kept for line in text.split("\n") if line] == [
        line for line in lines if line
    ]
