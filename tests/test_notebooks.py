"""The notebooks of the examples run, and show what they are stored with."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from run_notebooks import FOLDER, run_notebook

pytest.importorskip("pandas")
pytest.importorskip("networkx")

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
_MADE = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


def shown(notebook: dict[str, Any]) -> list[str]:
    """Return the outputs of all cells, without the ids that every run makes anew."""
    outputs = [cell.get("outputs", []) for cell in notebook["cells"]]
    return [_MADE.sub("ID", json.dumps(output, sort_keys=True)) for output in outputs]


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["agents", "first_graph", "search"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_is_stored_with(path: Path) -> None:
    """`python tools/run_notebooks.py` stores the outputs of the present code."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert shown(run_notebook(path)) == shown(stored)
