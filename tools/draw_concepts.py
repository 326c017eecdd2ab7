"""Draws the pictures of the concept pages: a history, the write protocol, the way through Spark.

The steps of the write protocol are those of the docstring of `write/commit/committer.py`; what a
crash in each of them leads to is written here, and a missing or new step is an error.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
PROTOCOL = ROOT / "src" / "omnigraph" / "write" / "commit" / "committer.py"
PICTURES = ROOT / "docs" / "pictures"

STYLE = (
    "text{font-family:ui-sans-serif,system-ui,sans-serif;fill:#0f172a;font-size:13px}"
    ".head{font-size:14px;font-weight:600}.note{font-size:12px;fill:#475569}"
    ".code{font-family:ui-monospace,monospace;font-size:12px}"
)
INK = "#475569"
PAPER = "#ffffff"
BLUE, GREEN, YELLOW, ORANGE, GREY = "#dbeafe", "#dcfce7", "#fef9c3", "#ffedd5", "#f1f5f9"
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker>'
)
LINE = 16
"""Height of a line of text."""


# -- shapes ---------------------------------------------------------------------------------------


def svg(*, title: str, width: int, height: int, parts: Iterable[str]) -> str:
    """Return a whole picture."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f"<defs>{TIP}</defs>",
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def text(x: float, y: float, words: str, *, kind: str = "", anchor: str = "start") -> str:
    """Return one line of text."""
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def lines_of(x: float, y: float, words: str, *, columns: int, kind: str = "") -> list[str]:
    """Return a paragraph, wrapped."""
    wrapped = textwrap.wrap(words, columns)
    return [text(x, y + LINE * number, line, kind=kind) for number, line in enumerate(wrapped)]


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    """Return a rectangle."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}" '
        f'stroke="{INK}"/>'
    )


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """Return a line with a tip at its end."""
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{INK}" '
        'stroke-width="1.5" marker-end="url(#tip)"/>'
    )


# -- a history ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Commit:
    """A commit of the example: where it stands, what came before it, what it publishes."""

    name: str
    operation: str
    lane: Literal["main", "draft"]
    parents: tuple[str, ...]
    person: str
    knows: str


HISTORY = (
    Commit("c1", "init", "main", (), "1", "1"),
    Commit("c2", "load", "main", ("c1",), "2", "2"),
    Commit("c3", "mutation", "draft", ("c2",), "draft: 3", "2"),
    Commit("c4", "mutation", "main", ("c2",), "2", "3"),
    Commit("c5", "mutation", "draft", ("c3",), "draft: 4", "2"),
    Commit("c6", "merge", "main", ("c4", "c5"), "3", "3"),
)
NAMES = {"c4": "tag v1", "c5": "draft", "c6": "main"}
LANES = {"main": 60.0, "draft": 140.0}


def draw_history() -> str:
    """Return a small history: commits, names, and the versions that each commit publishes."""
    step, left = 132, 150
    places = {
        commit.name: (left + step * number, LANES[commit.lane])
        for number, commit in enumerate(HISTORY)
    }
    parts = [text(16, y + 5, f"branch {lane}", kind="head") for lane, y in LANES.items()]
    for commit in HISTORY:
        here = places[commit.name]
        parts += [_to_parent(here, places[parent]) for parent in commit.parents]
    for commit in HISTORY:
        x, y = places[commit.name]
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="15" fill="{BLUE}" stroke="{INK}"/>')
        parts.append(text(x, y + 5, commit.name, anchor="middle"))
        parts.append(text(x, y - 24, commit.operation, kind="note", anchor="middle"))
        if commit.name in NAMES:
            parts.append(text(x, y + 32, NAMES[commit.name], kind="code", anchor="middle"))
    rows = [("node:Person", "person", 220.0), ("edge:Knows", "knows", 260.0)]
    parts.append(text(16, 196, "publishes version", kind="note"))
    for label, field, y in rows:
        parts.append(text(16, y + 5, label, kind="code"))
        parts += list(_versions(field, y, places))
    parts.append(
        text(
            16,
            305,
            "The same version under several commits is one set of files: nothing is copied.",
            kind="note",
        )
    )
    return svg(title="Commits, branches and what they publish", width=900, height=318, parts=parts)


def _to_parent(child: tuple[float, float], parent: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = child, parent
    length = ((x1 - x2) ** 2 + (y1 - y2) ** 2) ** 0.5
    dx, dy = (x2 - x1) / length * 17, (y2 - y1) / length * 17
    return arrow(x1 + dx, y1 + dy, x2 - dx, y2 - dy)


def _versions(field: str, y: float, places: dict[str, tuple[float, float]]) -> Iterator[str]:
    """Yield a box per version; neighbours with the same one share it."""
    runs: list[tuple[str, float, float]] = []
    for commit in HISTORY:
        value, (x, _) = getattr(commit, field), places[commit.name]
        if runs and runs[-1][0] == value:
            runs[-1] = (value, runs[-1][1], x)
        else:
            runs.append((value, x, x))
    for value, first, last in runs:
        yield box(first - 42, y - 12, last - first + 84, 26, GREEN if "draft" in value else YELLOW)
        yield text((first + last) / 2, y + 6, value, anchor="middle")


# -- the write protocol ---------------------------------------------------------------------------

CRASH = {
    "prepare": ("files that nothing names", "nothing happened; cleanup removes the files"),
    "lock": ("the same", "nothing happened; the lock ends with its holder"),
    "phase A": ("and the record of the write", "no table moved: rolled back"),
    "phase B": ("and tables ahead of the manifest", "all moved: rolled forward, else back"),
    "phase C": ("and the commit in the manifest", "committed; only the record is left over"),
    "phase D": ("the commit, and nothing else", "committed"),
}
"""Per step: what is in storage at its end, and what recovery makes of a crash then."""


def protocol_steps() -> dict[str, str]:
    """Return the steps of a write and what they do, as the module that takes them says."""
    docstring = ast.get_docstring(ast.parse(PROTOCOL.read_text(encoding="utf-8"))) or ""
    found = dict(re.findall(r"^ +(prepare|lock|phase [A-Z]) +(\S.*)$", docstring, re.MULTILINE))
    if list(found) != list(CRASH):
        raise ValueError(f"the steps are {list(found)}; mend CRASH in {Path(__file__).name}")
    return found


def draw_write() -> str:
    """Return the steps of a write, what each leaves in storage, and what a crash leads to."""
    width, left, gap = 152, 118, 8
    parts: list[str] = []
    rows = [("step", 12.0, 128.0), ("in storage", 154.0, 66.0), ("crash after it", 234.0, 66.0)]
    for label, y, _ in rows:
        parts.append(text(12, y + 20, label, kind="head"))
    for number, (name, doing) in enumerate(protocol_steps().items()):
        x = left + number * (width + gap)
        stored, outcome = CRASH[name]
        is_visible = name in ("phase C", "phase D")
        cells = [(doing, BLUE), (stored, GREY), (outcome, GREEN if is_visible else ORANGE)]
        for (words, fill), (_, y, height) in zip(cells, rows, strict=True):
            parts.append(box(x, y, width, height, fill))
            top = y + 20
            if fill == BLUE:
                parts.append(text(x + 8, top, name, kind="head"))
                top += 20
            parts += lines_of(x + 8, top, words, columns=19)
    edge = left + 4 * (width + gap) + width + gap / 2
    seen = left + 4 * (width + gap) - gap / 2
    parts.append(arrow(left, 322, seen - 6, 322))
    parts.append(text(left, 340, "readers see the state before", kind="note"))
    parts.append(arrow(seen + 6, 322, edge + width, 322))
    parts.append(text(seen + 6, 340, "readers see all of it", kind="note"))
    height, total = 352, left + 6 * (width + gap) + 4
    return svg(title="How a write becomes visible", width=total, height=height, parts=parts)


# -- Spark ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A step of a load on Spark: who takes it, and what it does."""

    lane: Literal["driver", "executors", "storage"]
    title: str
    words: str


LOAD: Sequence[Step] = (
    Step("driver", "1 plan", "Files become splits, by their footers. No row is read."),
    Step("executors", "2 stage", "Read once. Rules of single rows. What passes becomes fragments."),
    Step("storage", "fragments", "Data files that no version names, and sorted runs of hashes."),
    Step("driver", "3 prove", "No hash occurs twice: no key does. Otherwise the rules look at it."),
    Step("executors", "4 match", "In a merge: compare with stored rows, rewrite what differs."),
    Step("driver", "5 commit", "The same lock and phases A to D as for one row."),
    Step("storage", "one commit", "All types at once. As small for a billion rows as for one."),
)
LANE_Y = {"driver": 14.0, "executors": 124.0, "storage": 234.0}
LANE_FILL = {"driver": BLUE, "executors": GREEN, "storage": YELLOW}


def draw_spark() -> str:
    """Return the way of a bulk load: what driver, executors and storage do."""
    width, height, left, gap = 178, 84, 110, -34
    parts = [text(12, y + 46, lane, kind="head") for lane, y in LANE_Y.items()]
    places = [
        (left + number * (width + gap), LANE_Y[step.lane]) for number, step in enumerate(LOAD)
    ]
    for (x1, y1), (x2, y2) in pairwise(places):
        down = y2 > y1
        start = (x1 + width - 20, y1 + height if down else y1)
        end = (x2 + 20, y2 if down else y2 + height)
        parts.append(arrow(*start, *end))
    for step, (x, y) in zip(LOAD, places, strict=True):
        parts.append(box(x, y, width, height, LANE_FILL[step.lane]))
        parts.append(text(x + 8, y + 18, step.title, kind="head"))
        parts += lines_of(x + 8, y + 36, step.words, columns=24, kind="note")
    total = left + len(LOAD) * (width + gap) - gap + 10
    return svg(title="A bulk load on Spark", width=total, height=332, parts=parts)


DRAWINGS = {
    PICTURES / "commits.svg": draw_history,
    PICTURES / "writes.svg": draw_write,
    PICTURES / "spark.svg": draw_spark,
}


def main() -> None:
    """Write all pictures."""
    for path, draw in DRAWINGS.items():
        path.write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
