"""The documentation is true: examples run, references are complete, links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import draw_architecture
import draw_concepts
import pytest
import write_cli_reference
import yaml
from _pytest.mark.structures import ParameterSet
from rooms import ROOMS

import omnigraph
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from support.optional import importable_modules
from support.pages import DOCS, ROOT, PageRun, anchors_of, blocks_of, links_of, matches
from support.s3 import serve_s3

PACKAGE = ROOT / "src" / "omnigraph"
PAGES = sorted(DOCS.rglob("*.md"))
ENTRANCES = sorted({*ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md")})
"""Pages outside the site: those beside the source tree, and the templates of the forge."""
ERRORS = DOCS / "reference" / "errors.md"
ENVIRONMENT = DOCS / "reference" / "environment.md"
PYTHON = DOCS / "reference" / "python.md"
LAKE = "lake"
"""The bucket of the examples: a page that names it runs against a server of its own."""

CODE = re.compile(r"\b(?:[FSQPRVLW]\d{3}|T\d{1,3}|OG-[A-Z][A-Z0-9-]*[A-Z0-9])\b")
VARIABLE = re.compile(
    r'"((?:OMNIGRAPH|AWS|SPARK|PYSPARK|JAVA)_[A-Z0-9_]+|[A-Z]+_API_KEY|NO_COLOR)"'
)


Navigation: TypeAlias = "str | list[Navigation] | dict[str, Navigation]"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def first_cells(page: Path) -> list[str]:
    """Return the code spans that open the rows of the tables of a page."""
    return re.findall(r"^\| `([^`]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)


# -- examples -------------------------------------------------------------------------------------


def run_pages() -> list[ParameterSet]:
    """Return the pages with examples; those that start Spark are marked so."""
    pages = [*PAGES, ROOT / "README.md"]
    marks = {True: [pytest.mark.spark], False: []}
    needs_spark = ["get_spark(" in page.read_text(encoding="utf-8") for page in pages]
    return [
        pytest.param(page, marks=marks[needed], id=name_of(page))
        for page, needed in zip(pages, needs_spark, strict=True)
    ]


@pytest.mark.parametrize("page", run_pages())
def test_the_examples_of_a_page_hold(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    if f"s3://{LAKE}/" not in "".join(block.body for block in blocks_of(page)):
        PageRun(page).run()
        return
    with serve_s3() as server:
        server.make_bucket(LAKE)
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        PageRun(page).run()


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("a", "a\n", True),
        ("a", "b", False),
        ("a", "a\nb", False),
        ("a … c", "a b c", True),
        ("a … c", "a b\nc", False),
        ("a\n…", "a\nb\nc", True),
        ("a\n…\nd", "a\nd", True),
        ("a\n…\nd", "a\nb", False),
        ("(a).*", "(a).*", True),
        ("(a).*", "a", False),
    ],
)
def test_expected_text_is_compared_exactly_but_for_the_wildcard(
    expected: str, actual: str, same: bool
) -> None:
    assert matches(expected, actual) is same


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```python\nassert 1 == 2, 'no'\n```", "no"),
        ("```python\nprint(1)\n```\n\n```output\n2\n```", "expects other output"),
        ("```console\n$ omnigraph version\nomnigraph 9\n```", "prints something else"),
        ("```console\n$ omnigraph snapshot nowhere\n```", "exits with 1"),
        ("```console\n$ omnigraph version  # exit 1\n```", "exits with 0"),
        ("```console\n$ echo a | grep b\n```", "exits with 1"),
        ("```console\nomnigraph version\n```", "starts with `\\$ command`"),
        ("```pg\nnode a {}\n```", "does not compile"),
        ("```pg error\nnode A {}\n```\n\n```text\nx\n```", "compiles, an error was expected"),
        ("```pg error\nnode a {}\n```", "has no `text` block"),
        ("```pg error\nnode a {}\n```\n\n```text\nx\n```", "found was"),
        ("```gq\nquery q() { }\n```", "has no schema above it"),
        ("```pg\nnode A {}\n```\n\n```gq\nquery q() { }\n```", "does not compile"),
    ],
)
def test_an_example_that_does_not_hold_is_found(
    page: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("page.md").write_text(page, encoding="utf-8")
    with pytest.raises(AssertionError, match=complaint):
        PageRun(tmp_path / "page.md").run()


# -- codes ----------------------------------------------------------------------------------------


def subclasses(kind: type[OmnigraphError]) -> set[type[OmnigraphError]]:
    below = {one for child in kind.__subclasses__() for one in subclasses(child)}
    return {kind} | below


def modules() -> Iterator[ModuleType]:
    """Import everything that can be, also what no package lists."""
    yield from map(import_module, importable_modules())


def registries() -> dict[str, set[str]]:
    """Return the codes of every constant called `…_CODES`, by its name."""
    constants = ((name, value) for module in modules() for name, value in vars(module).items())
    return {
        name: {code for code in value if CODE.fullmatch(code)}
        for name, value in constants
        if re.fullmatch(r"[A-Z]+_CODES", name) and isinstance(value, dict)
    }


@cache
def registered_codes() -> frozenset[str]:
    found = set().union(*registries().values())
    ours = [kind for kind in subclasses(OmnigraphError) if kind.__module__.startswith("omnigraph")]
    return frozenset(found | {kind.code for kind in ours})


def test_the_registries_of_codes_are_found() -> None:
    known = {"SCHEMA_CODES", "PLAN_CODES", "QUERY_CODES", "TYPE_CODES", "VALUE_CODES"}
    assert known <= set(registries())
    assert {"S001", "S301", "OG-MF-103", "Q001", "P101", "T1", "L201", "V101", "OG-SOURCE"} <= (
        registered_codes()
    )


def test_every_code_has_exactly_one_row_in_the_page_of_errors() -> None:
    listed = Counter(cell for cell in first_cells(ERRORS) if CODE.fullmatch(cell))
    assert sorted(registered_codes() - set(listed)) == []
    assert [code for code, count in listed.items() if count > 1] == []


@pytest.mark.parametrize("page", [*PAGES, *ENTRANCES], ids=name_of)
def test_no_page_names_a_code_that_does_not_exist(page: Path) -> None:
    named = set(CODE.findall(page.read_text(encoding="utf-8")))
    assert sorted(named - registered_codes()) == []


# -- generated parts ------------------------------------------------------------------------------


def test_the_command_line_reference_is_what_the_help_says() -> None:
    page = write_cli_reference.PAGE.read_text(encoding="utf-8")
    assert page == write_cli_reference.page(), "run `make docs`"


def test_the_picture_of_the_architecture_is_up_to_date() -> None:
    picture = draw_architecture.PICTURE.read_text(encoding="utf-8")
    assert picture == draw_architecture.draw(), "run `make docs`"


def test_the_picture_of_the_architecture_has_every_room() -> None:
    drawn = [name for _, _, names in draw_architecture.LAYERS for name in names]
    assert sorted(drawn) == sorted(room.name for room in ROOMS)


@pytest.mark.parametrize("picture", sorted(draw_concepts.DRAWINGS), ids=lambda path: path.name)
def test_a_picture_of_a_concept_is_up_to_date(picture: Path) -> None:
    drawn = draw_concepts.DRAWINGS[picture]()
    assert picture.read_text(encoding="utf-8") == drawn, "run `make docs`"


def test_the_table_of_rooms_is_up_to_date() -> None:
    page = draw_architecture.PAGE.read_text(encoding="utf-8")
    assert page == draw_architecture.page(), "run `make docs`"


# -- names of the package -------------------------------------------------------------------------


def public_members(kind: type) -> set[str]:
    bases = [base for base in kind.__mro__ if base.__module__.startswith("omnigraph.")]
    return {name for base in bases for name in vars(base) if not name.startswith("_")}


def listed_members(text: str) -> dict[str, str | None]:
    """Return the code spans in the first cells of tables: names, and what is in their brackets.

    >>> listed_members("| `load(data, *, mode)`, `uri` | `close()` |")
    {'load': 'data, *, mode', 'uri': None}
    """
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    spans = (span for cell in cells for span in re.findall(r"`(?:Graph\.)?([^`]+)`", cell))
    matches_of = (re.fullmatch(r"(\w+)(?:\((.*)\))?", span) for span in spans)
    return {found[1]: found[2] for found in matches_of if found}


def section(page: Path, heading: str) -> str:
    text = page.read_text(encoding="utf-8")
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def parameters_of(member: object) -> list[str]:
    assert callable(member)
    return [name for name in signature(member).parameters if name != "self"]


def test_every_public_name_is_in_the_python_reference() -> None:
    listed = listed_members(PYTHON.read_text(encoding="utf-8").partition("\n## ")[0])
    assert sorted(listed) == sorted(omnigraph.__all__)


def test_every_member_of_a_graph_is_in_the_python_reference() -> None:
    assert {"init", "open", "load", "query", "mutate", "uri"} <= public_members(Graph)
    assert sorted(public_members(Graph) - set(listed_members(section(PYTHON, "Graph")))) == []


@pytest.mark.parametrize("name", sorted(public_members(Graph)))
def test_the_python_reference_names_the_parameters_of_a_member(name: str) -> None:
    listed = listed_members(section(PYTHON, "Graph"))[name]
    member = getattr(Graph, name)
    if isinstance(member, property):
        assert listed is None
        return
    assert listed is not None, f"`{name}` is a call"
    named = [word for word in listed.split(", ") if word not in ("*", "")]
    assert named == parameters_of(member)


# -- links ----------------------------------------------------------------------------------------


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", [*PAGES, *ENTRANCES], ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def linked_pages(page: Path, folder: Path) -> set[Path]:
    paths = (link.partition("#")[0] for link in links_of(page))
    targets = {(page.parent / path).resolve() for path in paths if path.endswith(".md")}
    return {target for target in targets if target.is_relative_to(folder) and target.exists()}


def reachable_from(first: Path, folder: Path) -> set[Path]:
    """Return the pages of a folder that links lead to."""
    seen: set[Path] = set()
    waiting = [first]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            waiting += linked_pages(page, folder)
    return seen


def test_every_page_can_be_reached_from_the_first_one() -> None:
    seen = reachable_from(DOCS / "index.md", DOCS)
    assert sorted(name_of(page) for page in set(PAGES) - seen) == []


def test_every_document_beside_the_source_can_be_reached_from_the_readme() -> None:
    documents = {page for page in [*PAGES, *ENTRANCES] if ".github" not in page.parts}
    seen = reachable_from(ROOT / "README.md", ROOT)
    assert sorted(name_of(page) for page in documents - seen) == []


def listed_pages(entry: Navigation) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [page for child in children for page in listed_pages(child)]


def test_the_navigation_lists_every_page_once() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = sorted(listed_pages(settings["nav"]))
    assert listed == sorted(str(page.relative_to(DOCS)) for page in PAGES)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)
    # A fence that the site's Markdown does not understand stays in the text.
    assert [page for page in pages if "```" in page.read_text(encoding="utf-8")] == []


# -- environment ----------------------------------------------------------------------------------


def variables_read() -> set[str]:
    texts = (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    return {name for text in texts for name in VARIABLE.findall(text)}


def test_every_environment_variable_is_listed() -> None:
    assert "AWS_REGION" in variables_read()
    assert sorted(variables_read() - set(first_cells(ENVIRONMENT))) == []


def test_no_environment_variable_is_listed_that_nothing_reads() -> None:
    assert sorted(set(first_cells(ENVIRONMENT)) - variables_read()) == []
