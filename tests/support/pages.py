"""Markdown pages as tests see them: fenced blocks, links, anchors, and how examples are run.

| block | what must hold |
|---|---|
| `python` | it runs; blocks of one page share a namespace and a folder |
| `output` behind `python` | what the block printed |
| `console` | each `$ command` ends with 0, or with the code of its `# exit 1`, and prints what |
| | the lines below it say, if there are any |
| `pg`, `gq` | it compiles, a query against the schema above it |
| `pg title="x.pg"` | the same, and later blocks find the file |
| `pg error`, `gq error` | it does not compile; the `text` block behind it holds the diagnostics |

In expected text `…` stands for anything within a line, and a line of nothing but `…` for any lines.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from omnigraph.cli.app import run
from omnigraph.query import compile_queries, parse_queries
from omnigraph.schema import Catalog, compile_schema
from omnigraph.syntax import SourceError, SourceText

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

DOMAIN = "01J00000000000000000000000"
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```[ ]*$", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r'title="([^"]+)"')
_EXIT = re.compile(r"\s+# exit (\d+)$")
_LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
_COMMAND_TIMEOUT_S = 600


@dataclass(frozen=True)
class Block:
    """A fenced block: its first word, the words behind it, the file it makes, where it stands."""

    page: Path
    line: int
    language: str
    words: tuple[str, ...]
    title: str | None
    body: str

    @property
    def is_error(self) -> bool:
        return "error" in self.words

    @property
    def place(self) -> str:
        return f"{os.path.relpath(self.page, ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [_block(page, text, match) for match in _FENCE.finditer(text)]


def _block(page: Path, text: str, match: re.Match[str]) -> Block:
    info = match["info"].strip()
    title = _TITLE.search(info)
    language, *words = _TITLE.sub("", info).split() or [""]
    line = text.count("\n", 0, match.start()) + 1
    return Block(page, line, language, tuple(words), title[1] if title else None, match["body"])


def prose_of(page: Path) -> str:
    """Return the text of a page without its fenced blocks and inline code."""
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))


def links_of(page: Path) -> list[str]:
    """Return the targets of the relative links of a page."""
    return [link for link in _LINK.findall(prose_of(page)) if not re.match(r"[a-z]+:", link)]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as the site spells them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {_slug(heading) for heading in _HEADING.findall(text)}


def _slug(heading: str) -> str:
    kept = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)


# -- comparing ------------------------------------------------------------------------------------


def matches(expected: str, actual: str) -> bool:
    """Whether a text is as expected, with `…` as the wildcard.

    >>> matches("commit … on main\\n…", "commit 01J on main\\na\\nb")
    True
    """
    lines = [line.rstrip() for line in expected.strip("\n").split("\n")]
    pattern = "".join(_line_pattern(line) for line in lines)
    seen = "".join(f"{line.rstrip()}\n" for line in actual.strip("\n").split("\n"))
    return re.fullmatch(pattern, seen) is not None


def _line_pattern(line: str) -> str:
    if line == "…":
        return r"(?:[^\n]*\n)*?"
    return "[^\n]*".join(re.escape(part) for part in line.split("…")) + "\n"


# -- running --------------------------------------------------------------------------------------


@dataclass
class PageRun:
    """Runs the examples of one page from top to bottom inside the current folder."""

    page: Path
    catalog: Catalog | None = None
    namespace: dict[str, object] = field(default_factory=lambda: {"__name__": "__page__"})

    def run(self) -> None:
        for block, follower in zip_longest(blocks_of(self.page), blocks_of(self.page)[1:]):
            if block.title is not None:
                Path(block.title).write_text(block.body, encoding="utf-8")
            self._run_block(block, follower)

    def _run_block(self, block: Block, follower: Block | None) -> None:
        if block.language == "python":
            self._run_python(block, follower)
        elif block.language == "console":
            for command in commands_of(block):
                command.check()
        elif block.language in ("pg", "gq"):
            self._check_source(block, follower)

    def _run_python(self, block: Block, follower: Block | None) -> None:
        # Blank lines in front make tracebacks show the lines of the page.
        code = compile("\n" * block.line + block.body, str(block.page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, self.namespace)  # noqa: S102 running the examples is the purpose
        if follower is not None and follower.language == "output":
            assert matches(follower.body, printed.getvalue()), (
                f"{follower.place} expects other output, printed was:\n{printed.getvalue()}"
            )

    def _check_source(self, block: Block, follower: Block | None) -> None:
        found = self._compile(block)
        if not block.is_error:
            assert found is None, f"{block.place} does not compile:\n{found}"
            return
        assert found is not None, f"{block.place} compiles, an error was expected"
        assert follower is not None, f"{block.place} has no `text` block behind it"
        assert follower.language == "text", f"{block.place} has no `text` block behind it"
        assert follower.body.strip("\n") == found, f"{follower.place}; found was:\n{found}"

    def _compile(self, block: Block) -> str | None:
        source = SourceText(block.body, block.title or "<text>")
        try:
            if block.language == "pg":
                catalog = compile_schema(source, domain=DOMAIN).catalog
                self.catalog = catalog
            else:
                assert self.catalog is not None, f"{block.place} has no schema above it"
                compile_queries(parse_queries(source), self.catalog)
        except SourceError as error:
            return error.render()
        return None


@dataclass(frozen=True)
class Command:
    """One `$` line of a console block and what it has to print."""

    place: str
    line: str
    exit_code: int
    expected: str

    def check(self) -> None:
        code, printed = _in_process(self.line) if self._is_plain() else _in_shell(self.line)
        assert code == self.exit_code, f"{self.place}: `{self.line}` exits with {code}:\n{printed}"
        if self.expected.strip():
            assert matches(self.expected, printed), (
                f"{self.place}: `{self.line}` prints something else:\n{printed}"
            )

    def _is_plain(self) -> bool:
        return self.line.startswith("omnigraph ") and not re.search(r"[|<>;&`$]", self.line)


def commands_of(block: Block) -> Iterator[Command]:
    """Split a console block into its commands."""
    parts = re.split(r"^\$ ", block.body, flags=re.MULTILINE)
    assert not parts[0].strip(), f"{block.place}: a console block starts with `$ command`"
    for part in parts[1:]:
        line, _, expected = part.partition("\n")
        wanted = _EXIT.search(line)
        code = int(wanted[1]) if wanted else 0
        yield Command(block.place, _EXIT.sub("", line), code, expected)


def _in_process(line: str) -> tuple[int, str]:
    return run_cli(shlex.split(line)[1:])


def run_cli(args: Sequence[str]) -> tuple[int, str]:
    """Run the command line in this process; return its exit code and both streams as one text."""
    # Bytes below text, as a real stream has them: some commands write bytes.
    bytes_below = io.BytesIO()
    printed = io.TextIOWrapper(bytes_below, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = run(list(args))
    return code, bytes_below.getvalue().decode()


def _in_shell(line: str) -> tuple[int, str]:
    scripts = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["sh", "-c", line],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_COMMAND_TIMEOUT_S,
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
    )
    return done.returncode, done.stdout
