"""Every file and function that the architecture pages name is in the source tree.

A hop is written `path/below/omnigraph.py:function` or `path.py:Class.method`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "omnigraph"
PAGES = (ROOT / "docs" / "architecture.md", ROOT / "docs" / "internals" / "walks.md")
HOP = re.compile(r"`([\w/]+\.py):([A-Za-z_][\w.]*)`")
FILE = re.compile(r"`([\w/]+\.py)`")
HOPS_MIN, HOPS_MAX = 8, 15
SHOWN_MAX = 8

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def definitions(path: Path) -> frozenset[str]:
    """Return the functions, classes and methods of a file."""
    return frozenset(_names(ast.parse(path.read_text(encoding="utf-8")), ""))


def _names(body: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for node in body.body:
        if isinstance(node, Definition):
            yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from _names(node, f"{prefix}{node.name}.")


def elsewhere(name: str) -> list[str]:
    """Return where a name, or its last part, is defined: a hop may only have moved."""
    last = f".{name}".rpartition(".")[2]
    found = [
        (f"{path.relative_to(PACKAGE)}:{each}", each == name)
        for path in sorted(PACKAGE.rglob("*.py"))
        for each in sorted(definitions(path))
        if f".{each}".endswith(f".{last}")
    ]
    exact = [hop for hop, is_exact in found if is_exact]
    return exact or [hop for hop, _ in found][:SHOWN_MAX]


def problem(file: str, name: str) -> str | None:
    path = PACKAGE / file
    if path.is_file() and name in definitions(path):
        return None
    places = " or ".join(elsewhere(name)) or "nowhere"
    return f"{file}:{name} is not there; it may be {places}"


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_hop_is_in_the_source_tree(page: Path) -> None:
    problems = [problem(file, name) for file, name in HOP.findall(text_of(page))]
    assert [found for found in problems if found is not None] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_is_in_the_source_tree(page: Path) -> None:
    named = [*FILE.findall(text_of(page)), *(file for file, _ in HOP.findall(text_of(page)))]
    missing = [file for file in named if not (PACKAGE / file).is_file() and not is_ours(file)]
    assert missing == []


def is_ours(file: str) -> bool:
    """Whether a file is named from the root of the repository: a test or a tool."""
    return (ROOT / file).is_file()


def test_each_walk_has_its_hops() -> None:
    walks = text_of(PAGES[1]).split("\n## ")[1:]
    hops = {walk.split("\n")[0]: len(HOP.findall(walk)) for walk in walks}
    assert len(hops) == 7
    assert all(HOPS_MIN <= count <= HOPS_MAX for count in hops.values()), hops


def test_a_hop_that_does_not_exist_is_found() -> None:
    assert problem("engine/__init__.py", "run_load") is None
    assert "engine/__init__.py:run_load" in (problem("graph/core.py", "run_load") or "")
    assert "merge/rows.py:Clash.where" in (problem("merge/rows.py", "Clashes.where") or "")
    assert "nowhere" in (problem("engine/__init__.py", "no_such_function") or "")
    assert problem("merge/rows.py", "Clash.where") is None
