"""No module locks stored bytes into objects by a format that can run code.

Whoever may write objects of a graph would otherwise run code in the processes of everybody who
reads them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parents[1] / "src" / "omnigraph"

MODULES: Final = frozenset(
    {"cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "pickle", "pickletools", "shelve"}
)
CALLS: Final = frozenset({"Unpickler", "full_load", "read_pickle", "unsafe_load", "eval", "exec"})
SAFE_YAML: Final = frozenset(
    {"MarkedYAMLError", "SafeLoader", "ScalarNode", "YAMLError", "safe_dump", "safe_load"}
    | {f"{what}Event" for what in ("Alias", "Scalar", "StreamEnd")}
    | {f"{what}{end}Event" for what in ("Mapping", "Sequence") for end in ("Start", "End")}
)
"""`SafeLoader` constructs plain values only; events and nodes are what the parser has found."""

ALLOWED: Final = {
    "dataclass.py": "compiles names of fields, which the source declares",
    "syntax/parser_tables.py": "files of the installed package, as its code is",
    "spark/jobs.py": "answers of tasks, which Spark hands from worker to driver",
}
"""Modules that unpickle or compile what never came from storage, and where it comes from."""

USES_YAML: Final = {
    "cli/config/operator_config.py": "the operator's own settings",
    "cli/commands/data/embed.py": "a file that the caller names",
    "strict_yaml.py": "declared files, of which only the events of the parser are read",
}


def offences(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if set(a.name.split(".")) & MODULES)
        elif isinstance(node, ast.ImportFrom):
            parts = {*(node.module or "").split("."), *(alias.name for alias in node.names)}
            yield from parts & (MODULES | CALLS)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            if name in CALLS:
                yield name
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield "allow_pickle"


def yaml_names(source: str) -> set[str]:
    tree = ast.parse(source)
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "yaml"
    }
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return used | {a.name for node in froms if node.module == "yaml" for a in node.names}


def sources() -> dict[str, str]:
    return {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def test_only_bytes_that_never_were_in_storage_are_unpickled() -> None:
    found = {name: sorted(offences(text)) for name, text in sources().items()}
    assert {name for name, what in found.items() if what} == set(ALLOWED)


def test_yaml_is_read_safely_and_never_from_storage() -> None:
    found = {name: yaml_names(text) for name, text in sources().items()}
    assert {name for name, what in found.items() if what} == set(USES_YAML)
    assert set().union(*found.values()) <= SAFE_YAML


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "from pyspark import cloudpickle",
        "import pyspark.cloudpickle",
        "import numpy as np\nnp.load(file, allow_pickle=True)",
        "import pandas as pd\npd.read_pickle(file)",
        "eval(text)",
    ],
)
def test_the_search_finds(source: str) -> None:
    assert list(offences(source))
