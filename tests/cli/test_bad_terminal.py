"""Surroundings that are not what a command hoped for end in one message, never in a stack trace."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.manifest.format_stamp import STAMP_KEY
from omnigraph.manifest.layout import MANIFEST
from omnigraph.progress import Progress
from support.places import Place
from support.s3 import S3Server
from support.terminal import Terminal

OMNIGRAPH = str(Path(sys.executable).parent / "omnigraph")
NAMES = "query names() { match { $p: Person } return { $p.name } order { $p.name } }"
TIMEOUT_S = 120
MAKE_FOLDER = "hint: make the folder first: `mkdir -p no`\n"


def plain_environment(**extra: str) -> dict[str, str]:
    # The path stays: it says which source tree is tested.
    dropped = ("LC_", "LANG", "PYTHONUTF8", "PYTHONIOENCODING")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    return {name: value for name, value in kept.items() if name != "NO_COLOR"} | extra


def after(preparation: str, *args: str) -> list[str]:
    """Return a call of the installed command that does something to its process first."""
    script = f"import os, sys\n{preparation}\nos.execv(sys.argv[1], sys.argv[1:])\n"
    return [sys.executable, "-S", "-c", script, OMNIGRAPH, *args]


def outside(
    *args: str, environment: Mapping[str, str] | None = None, first: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run the installed command in a process of its own, without a terminal."""
    return subprocess.run(
        after(first, *args) if first else [OMNIGRAPH, *args],
        env=plain_environment() if environment is None else environment,
        timeout=TIMEOUT_S,
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.fixture
def people(omnigraph: Terminal, graph: str) -> str:
    """A graph with a name that ASCII and Latin-1 lack characters for."""
    names = ["Zoë", "→", "😀"]
    rows = [json.dumps({"type": "Person", "data": {"name": name}}) for name in names]
    Path("people.jsonl").write_text("\n".join(rows), encoding="utf-8")
    assert omnigraph("load", graph, "--data", "people.jsonl", "--mode", "append").code == 0
    return graph


def is_one_message(err: str) -> bool:
    """Whether stderr is an error with at most a hint behind it."""
    first, *others = err.splitlines()
    return first.startswith("error: ") and [o for o in others if not o.startswith("hint: ")] == []


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("load", "g.omni", "--data", "no.jsonl", "--mode", "append"),
            "no.jsonl",
        ),
        (
            ("branch", "conflicts", "draft", "--out", "no/where.jsonl", "--uri", "g.omni"),
            "cannot use `no/where.jsonl`: No such file or directory\n" + MAKE_FOLDER,
        ),
        (
            ("changes", "baseline", "--out", "no/where.jsonl", "--uri", "g.omni"),
            "cannot use `no/where.jsonl.lock`: No such file or directory\n" + MAKE_FOLDER,
        ),
        (
            ("shell", "g.omni", "--file", "latin.txt"),
            "a file is not UTF-8 text: byte 0xf6 at offset 2\nhint: convert it: `iconv ",
        ),
        (
            ("query", "-e", NAMES, "--params-file", "latin.txt", "--store", "g.omni"),
            "latin.txt is not UTF-8 text",
        ),
        (
            ("branch", "merge", "draft", "--resolve", "latin.txt", "--uri", "g.omni"),
            "cannot read latin.txt: byte 0xf6 at offset 2 is not UTF-8\n",
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_file_that_cannot_be_used_is_one_message(
    omnigraph: Terminal, graph: str, args: tuple[str, ...], message: str
) -> None:
    omnigraph("branch", "create", "draft", "--uri", graph)
    Path("latin.txt").write_bytes("größe".encode("latin-1"))
    result = omnigraph(*args, "--quiet")
    assert (result.code, result.out) == (1, "")
    assert message in result.err
    assert is_one_message(result.err)


WITHOUT_PRIVILEGES = """
# The permissions of files count for root too, once it has given up CAP_DAC_OVERRIDE and
# CAP_DAC_READ_SEARCH; PR_CAPBSET_DROP is 24.
import ctypes
if os.geteuid() == 0:
    libc = ctypes.CDLL(None)
    if any(libc.prctl(24, capability, 0, 0, 0) for capability in (1, 2)):
        sys.exit("cannot give up a capability")
"""


@cache
def can_give_up_privileges() -> bool:
    return outside("version", first=WITHOUT_PRIVILEGES).returncode == 0


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """Return a folder that this user may not enter, with a file inside."""
    if not can_give_up_privileges():
        pytest.skip("this process may not give up its privileges")
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "in.jsonl").write_text("{}", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "args",
    [
        ("snapshot", "closed/g.omni"),
        ("init", "--schema", "s.pg", "closed/g.omni"),
        ("load", "g.omni", "--data", "closed/in.jsonl", "--mode", "append"),
        ("changes", "baseline", "--out", "closed/out.jsonl", "--uri", "g.omni"),
        ("branch", "conflicts", "draft", "--out", "closed/out.jsonl", "--uri", "g.omni"),
        ("export", "g.omni", "--out", "closed/out"),
    ],
    ids=lambda args: args[0],
)
def test_a_path_without_permission_is_one_message_with_a_next_step(
    omnigraph: Terminal, graph: str, closed: Path, args: tuple[str, ...]
) -> None:
    omnigraph("branch", "create", "draft", "--uri", graph)
    closed.chmod(0)
    try:
        child = outside(*args, "--quiet", first=WITHOUT_PRIVILEGES)
    finally:
        closed.chmod(0o700)
    err = child.stderr.decode()
    assert (child.returncode, child.stdout) == (1, b"")
    assert is_one_message(err)
    assert "ermission denied" in err
    assert "closed" in err.splitlines()[0]
    assert "hint: " in err
    assert sorted(closed.iterdir()) == [closed / "in.jsonl"]


def test_a_graph_that_may_only_be_read_can_be_read_and_says_why_it_cannot_be_written(
    people: str, closed: Path
) -> None:
    paths = [Path(people), *Path(people).rglob("*")]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        read = outside(
            "query", "-e", NAMES, "--format", "csv", "--store", people, first=WITHOUT_PRIVILEGES
        )
        bob = 'query q() { insert Person { name: "bob" } }'
        written = outside("mutate", "-e", bob, "--store", people, first=WITHOUT_PRIVILEGES)
    finally:
        for path in paths:
            path.chmod(path.stat().st_mode | 0o200)
    assert (read.returncode, read.stderr) == (0, b"")
    assert read.stdout.decode().splitlines() == ["p.name", "Zoë", "→", "😀"]
    assert (written.returncode, written.stdout) == (1, b"")
    assert is_one_message(written.stderr.decode())
    assert b"ermission denied" in written.stderr
    assert sorted(Path(people).rglob("*")) == sorted(paths[1:])


@pytest.mark.parametrize("args", [("snapshot",), ("load", "--data", "d.jsonl", "--mode", "append")])
def test_a_graph_from_the_future_is_refused_and_stays_as_it_is(
    omnigraph: Terminal, graph: str, args: tuple[str, ...]
) -> None:
    Path("d.jsonl").write_text('{"type": "Person", "data": {"name": "a"}}', encoding="utf-8")
    store = Place(graph).store()
    rows = store.datasets.open(MANIFEST).scan().read_all()
    of_the_future = rows.schema.with_metadata({STAMP_KEY: "4"})
    store.objects.delete_prefix(MANIFEST)
    datasets = Place(graph).store().datasets
    datasets.commit_staged(datasets.stage_create(MANIFEST, of_the_future, rows=rows))
    before = sorted(Path(graph).rglob("*"))
    result = omnigraph(*args, "--store", graph)
    assert (result.code, result.out) == (1, "")
    assert is_one_message(result.err)
    assert result.err.rstrip().endswith("upgrade omnigraph first")
    assert sorted(Path(graph).rglob("*")) == before


BROKEN = """
import sys
from omnigraph.cli import app
def fail(context): raise {error}
app.root.invoke = fail
sys.argv = ["omnigraph", "version"]
app.main()
"""


@pytest.mark.parametrize(
    ("error", "variables", "code", "shown"),
    [
        ("TypeError('no')", {}, 1, "error: TypeError: no\nhint: please report this bug"),
        ("TypeError('no')", {"OMNIGRAPH_TRACEBACK": "1"}, 1, "Traceback (most recent call last)"),
        ("RecursionError('deep')", {}, 1, "error: RecursionError: deep\nhint: "),
    ],
)
def test_a_failure_that_nobody_thought_of_is_a_message_unless_asked(
    error: str, variables: dict[str, str], code: int, shown: str
) -> None:
    child = subprocess.run(
        [sys.executable, "-c", BROKEN.format(error=error)],
        env=plain_environment(**variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert (child.returncode, child.stdout) == (code, "")
    assert child.stderr.startswith(shown)


# -- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [("query", "-e", NAMES, "--format", "csv", "--store"), ("export",)],
    ids=lambda args: args[0],
)
def test_a_reader_that_leaves_early_ends_a_command_in_silence(
    omnigraph: Terminal, graph: str, args: tuple[str, ...]
) -> None:
    # More than a pipe holds, so that the command is still writing when the reader has gone.
    rows = ({"type": "Person", "data": {"name": f"{n:0100}"}} for n in range(3000))
    Path("d.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    omnigraph("load", graph, "--data", "d.jsonl", "--mode", "append")
    child = subprocess.Popen(
        [OMNIGRAPH, *args, graph], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline()
    child.stdout.close()
    assert child.stderr is not None
    with child.stderr:
        assert child.stderr.read() == b""
    assert child.wait(TIMEOUT_S) == 1


def test_an_interrupt_in_a_load_is_one_line_and_leaves_the_graph_alone(
    omnigraph: Terminal, graph: str
) -> None:
    before = omnigraph("snapshot", graph, "--json").out
    child = subprocess.Popen(
        [
            *(OMNIGRAPH, "load", graph, "--data", "-"),
            *("--mode", "append", "--engine", "local"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stderr is not None
    assert child.stdin is not None
    target = child.stderr.readline().decode()
    assert target.startswith("omnigraph load → ")
    child.stdin.write(b'{"type": "Person", "data": {"name": "half"}}\n')
    child.stdin.flush()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=TIMEOUT_S)
    assert (child.returncode, out) == (130, b"")
    assert err.decode().startswith("interrupted: ")
    assert err.count(b"\n") == 1
    assert omnigraph("snapshot", graph, "--json").out == before
    assert omnigraph("recovery", "status", graph).out == "nothing pending\n"
    assert omnigraph("load", graph, "--data", os.devnull, "--mode", "append").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("query", "--store", "ROOT", "-e", NAMES),
        ("export", "ROOT"),
        ("load", "ROOT", "--data", "more.jsonl", "--mode", "merge"),
    ],
    ids=lambda words: words[0],
)
def test_an_interrupt_while_stored_rows_are_read_is_no_failure_of_the_storage(
    omnigraph: Terminal, bucket: S3Server, words: tuple[str, ...]
) -> None:
    root = f"s3://{bucket.bucket}/{words[0]}.omni"
    Path("more.jsonl").write_text('{"type": "Person", "data": {"name": "ann"}}\n', encoding="utf-8")
    load = ("load", root, "--data", "more.jsonl", "--mode", "append")
    assert omnigraph("init", "--schema", "s.pg", root).code == 0
    assert omnigraph(*load).code == 0
    before = omnigraph("snapshot", root, "--json").out
    with bucket.pressing_ctrl_c("/data/"):
        result = omnigraph(*(root if word == "ROOT" else word for word in words))
    assert (result.code, result.out) == (130, "")
    assert result.err.splitlines()[-1].startswith("interrupted: ")
    assert omnigraph("snapshot", root, "--json").out == before
    assert omnigraph("recovery", "status", root).out == "nothing pending\n"


def interrupt() -> None:
    failpoints.disarm()
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("step", "pending", "loaded"),
    [
        ("write.post_stage", 0, 0),
        ("write.turn_taken", 0, 0),
        ("recovery.sidecar_write", 1, 0),
        ("write.after_first_table", 1, 0),
        ("write.post_phase_b_pre_manifest_commit", 1, 2),
        ("graph_publish.after_commit_append", 1, 2),
        ("write.sidecar_deleted", 0, 2),
    ],
)
def test_a_load_that_was_interrupted_is_whole_or_absent_after_the_next_write(
    omnigraph: Terminal, graph: str, step: str, pending: int, loaded: int
) -> None:
    records = [
        '{"type": "Person", "data": {"name": "ann"}}',
        '{"edge": "Knows", "from": "ann", "to": "ann"}',
    ]
    Path("d.jsonl").write_text("\n".join(records), encoding="utf-8")
    failpoints.arm(step, interrupt)
    try:
        result = omnigraph("load", graph, "--data", "d.jsonl", "--mode", "append", "--quiet")
    finally:
        failpoints.disarm()
    assert (result.code, result.out) == (130, "")
    assert result.err.startswith("interrupted: ")
    assert result.err.count("\n") == 1
    waiting = omnigraph("recovery", "status", graph, "--json").json["pending"]
    assert len(waiting) == pending
    bob = 'query q() { insert Person { name: "bob" } }'
    assert omnigraph("mutate", "-e", bob, "--store", graph).code == 0
    datasets = omnigraph("snapshot", graph, "--json").json["datasets"]
    assert sum(dataset["entity_count"] for dataset in datasets) == loaded + 1
    assert omnigraph("recovery", "status", graph).out == "nothing pending\n"


def test_streams_that_the_caller_closed_are_empty(people: str) -> None:
    loaded = outside(
        "load", people, "--data", "-", "--mode", "append", "--json", first="os.close(0)"
    )
    assert (loaded.returncode, json.loads(loaded.stdout)["total_entities"]) == (0, 0)
    exported = outside("export", people, first="os.close(1)")
    assert (exported.returncode, exported.stderr) == (0, b"")
    shown = outside("snapshot", people, first="os.close(0); os.close(2)")
    assert (shown.returncode, shown.stdout[:12]) == (0, b"branch main ")
    assert (
        outside("snapshot", people, first="os.close(0); os.close(1); os.close(2)").returncode == 0
    )
    assert outside("snapshot", people).stdout == shown.stdout


def test_without_a_terminal_a_destructive_command_does_not_wait_for_an_answer() -> None:
    root = "s3://bucket/g.omni"
    child = outside("branch", "delete", "draft", "--uri", root)
    err = child.stderr.decode()
    assert (child.returncode, child.stdout) == (1, b"")
    assert err.startswith("error: refusing destructive `branch delete` on s3://bucket/g.omni")
    assert "--yes" in err


# -- encodings ------------------------------------------------------------------------------------

LATIN_1 = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}


@pytest.mark.parametrize(
    ("locale", "encoding", "shown"),
    [
        ({"LC_ALL": "C"}, "utf-8", ["Zoë", "→", "😀"]),
        # Nobody wants ASCII: it stands for a locale that was not set.
        ({"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}, "utf-8", ["Zoë", "→", "😀"]),
        (LATIN_1, "latin-1", ["Zoë", "\\u2192", "\\ud83d\\ude00"]),
    ],
    ids=["C", "ascii", "latin-1"],
)
def test_text_survives_a_locale_that_lacks_its_characters(
    people: str, locale: dict[str, str], encoding: str, shown: list[str]
) -> None:
    environment = plain_environment(**locale)
    child = outside(
        "query", "-e", NAMES, "--format", "csv", "--store", people, environment=environment
    )
    assert (child.returncode, child.stderr) == (0, b"")
    assert child.stdout.decode(encoding).splitlines() == ["p.name", *shown]


def test_json_means_the_same_in_every_locale(people: str) -> None:
    environment = plain_environment(**LATIN_1)
    child = outside("query", "-e", NAMES, "--json", "--store", people, environment=environment)
    rows = json.loads(child.stdout.decode("latin-1"))["rows"]
    assert [row["p.name"] for row in rows] == ["Zoë", "→", "😀"]
    wrong = outside("snapshot", people, "--branch", "→", "--json", environment=environment)
    assert wrong.returncode == 1
    assert "error" in json.loads(wrong.stderr.decode("latin-1"))


def test_an_argument_that_is_no_text_is_shown_escaped(tmp_path: Path) -> None:
    child = subprocess.run(
        [OMNIGRAPH.encode(), b"snapshot", b"caf\xe9.omni"],
        cwd=tmp_path,
        env=plain_environment(LC_ALL="C.UTF-8"),
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert (child.returncode, child.stdout) == (1, b"")
    assert b"Traceback" not in child.stderr
    assert child.stderr.startswith(b"error: ")


# -- terminals ------------------------------------------------------------------------------------


def on_a_terminal(args: list[str], columns: int, **environment: str) -> str:
    """Run the command line with a terminal of a certain width as its output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = plain_environment(**environment)
    variables.pop("COLUMNS", None)
    child = subprocess.Popen([OMNIGRAPH, *args], stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError as error:
        assert error.errno == errno.EIO  # noqa: PT017 - how Linux reports the end of a terminal
    finally:
        os.close(ours)
    assert child.wait(timeout=TIMEOUT_S) == 0
    return shown.decode().replace("\r\n", "\n")


@pytest.fixture
def wide(omnigraph: Terminal) -> list[str]:
    """Return the query of a row of two hundred columns."""
    properties = " ".join(f"p{number:03}: I32?" for number in range(200))
    Path("wide.pg").write_text(f"node Wide {{ {properties} }}", encoding="utf-8")
    row = {"type": "Wide", "data": {f"p{number:03}": number for number in range(200)}}
    Path("wide.jsonl").write_text(json.dumps(row), encoding="utf-8")
    assert omnigraph("init", "--schema", "wide.pg", "wide.omni").code == 0
    assert omnigraph("load", "wide.omni", "--data", "wide.jsonl", "--mode", "append").code == 0
    returned = ", ".join(f"$w.p{number:03}" for number in range(200))
    text = f"query all() {{ match {{ $w: Wide }} return {{ {returned} }} }}"
    return ["query", "-e", text, "--store", "wide.omni"]


def test_a_table_wider_than_the_terminal_comes_in_parts_that_fit(
    omnigraph: Terminal, wide: list[str]
) -> None:
    shown = on_a_terminal(wide, 80).splitlines()
    assert max(len(line) for line in shown) <= 80
    assert shown[:6] == [
        "1 rows from branch main via all",
        "",
        "columns 1 to 9 of 200",
        " | ".join(f"w.p{number:03}" for number in range(9)),
        "-+-".join(["-" * 6] * 9),
        " | ".join(f"{number:<6}" for number in range(9)).rstrip(),
    ]
    cells = [cell.strip() for line in shown for cell in line.split(" | ") if "w.p" in line]
    assert cells == [f"w.p{number:03}" for number in range(200)]
    # Nothing is cut where lines may have any length.
    summary, header, *_ = omnigraph(*wide).out.splitlines()
    assert summary == shown[0]
    assert len(header.split(" | ")) == 200


def test_a_table_that_fits_the_terminal_is_one(people: str) -> None:
    expected = "3 rows from branch main via names\np.name\n------\nZoë\n→\n😀\n"
    assert on_a_terminal(["query", "-e", NAMES, "--store", people], 80) == expected


@pytest.mark.parametrize(("environment", "has_colour"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_that_want_them(
    omnigraph: Terminal, people: str, environment: dict[str, str], has_colour: bool
) -> None:
    [head, base] = omnigraph("commit", "list", people, "--json").json["commits"]
    ids = [base["graph_commit_id"], head["graph_commit_id"]]
    shown = on_a_terminal(["diff", *ids, "--uri", people], 80, **environment)
    assert ("\x1b[" in shown) is has_colour
    assert "\x1b[" not in omnigraph("diff", *ids, "--uri", people).out


@pytest.mark.parametrize(("environment", "has_codes"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_progress_writes_over_its_line_with_and_without_escape_codes(
    environment: dict[str, str], has_codes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    screen = Screen()
    progress = Progress(screen)
    progress._replace("a longer line")
    progress._replace("short")
    shown = screen.getvalue()
    assert ("\x1b" in shown) is has_codes
    # Without codes, blanks cover what the longer line has left.
    assert shown.rpartition("\r")[2].rstrip() == ("\x1b[Kshort" if has_codes else "short")
    assert has_codes or len(shown.rpartition("\r")[2]) == len("a longer line")


def test_the_story_of_the_demo_has_colours_only_where_they_are_wanted(tmp_path: Path) -> None:
    def told(**environment: str) -> str:
        where = str(tmp_path / ("plain" if environment else "bright"))
        words = ["demo", "--no-spark", "--rows", "10", "--dir", where]
        return on_a_terminal(words, 80, **environment)

    assert "\x1b[1m" in told()
    assert "\x1b" not in told(NO_COLOR="1")
