"""No public name has a word that the glossary has a better one for.

`python tests/test_glossary.py` prints the leftovers that can be taken from the list.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "omnigraph"
GLOSSARY = ROOT / "docs" / "internals" / "glossary.md"

ALLOWED = {"owner_branch"}
"""Names that the glossary itself has."""

LEFTOVERS = {
    # Names that are still to be changed. Take a line away with the name; add none.
    "is_kept",
    "kept",
    "kept_rows",
    "owner_id",
    "place",
    "places",
    "places_in",
    "room",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def banned_words() -> set[str]:
    text = GLOSSARY.read_text(encoding="utf-8")
    table = text.split("## Words that are not used in names")[1]
    return set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def glossary_words() -> list[str]:
    text = GLOSSARY.read_text(encoding="utf-8")
    table = text.split("## Words that are not used in names")[0]
    cells = re.findall(r"^\| ([^|`]+) \|", table, re.MULTILINE)
    return [word for word in cells if word != "word" and not word.startswith("-")]


def public_names() -> Iterator[tuple[str, Path]]:
    """Yield the names of modules and packages, and of classes, functions and parameters in them."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.parent.name if path.name == "__init__.py" else path.stem, path
        for name in names_in(ast.parse(path.read_text(encoding="utf-8"))):
            yield name, path


def names_in(body: ast.Module | ast.ClassDef) -> Iterator[str]:
    for node in body.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
            yield from names_in(node)
        elif isinstance(node, Function) and (is_dunder(node.name) or node.name[0] != "_"):
            yield node.name
            arguments = node.args
            for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                yield each.arg


def is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def words_of(name: str) -> set[str]:
    """Split a name into its words.

    >>> sorted(words_of("LoadJudge")), sorted(words_of("kept_rows"))
    (['judge', 'load'], ['kept', 'rows'])
    """
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def offences() -> dict[str, set[str]]:
    """Return the names with a banned word, and where they stand."""
    banned = banned_words()
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in public_names():
        if name not in ALLOWED and words_of(name) & banned:
            found[name].add(str(path.relative_to(PACKAGE)))
    return found


def test_no_public_name_has_a_word_that_is_not_used() -> None:
    new = {name: sorted(paths) for name, paths in offences().items() if name not in LEFTOVERS}
    assert new == {}, f"{GLOSSARY.relative_to(ROOT)} has better words"


def test_a_word_has_one_meaning() -> None:
    words = glossary_words()
    assert len(words) >= 30
    assert len(set(words)) == len(words)
    assert not set(words) & banned_words()


def test_names_are_split_into_words() -> None:
    assert words_of("LoadJudge") == {"load", "judge"}
    assert words_of("set_aside_rows") == {"set", "aside", "rows"}
    assert words_of("IRNode") & {"ir", "node"}
    assert not words_of("returned") & banned_words()


if __name__ == "__main__":
    print("\n".join(sorted(LEFTOVERS - offences().keys())))  # noqa: T201 - what it is run for
