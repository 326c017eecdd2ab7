"""Runs the notebooks of `examples/notebooks` and writes what their cells print into them.

    python tools/run_notebooks.py            # run all and keep their outputs
    python tools/run_notebooks.py NAME.ipynb # one of them

Cells run in this process, in a temporary folder, as a notebook would run them: what a cell prints
comes first, then the value of its last expression, as text and as HTML where it has both.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"


def run_notebook(path: Path) -> dict[str, Any]:
    """Return a notebook with the outputs that its cells have now."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                number += 1
                cell["execution_count"] = number
                outputs = run_cell("".join(cell["source"]), names, number)
                # Where the folder was is of no use to a reader.
                cell["outputs"] = json.loads(json.dumps(outputs).replace(f"{folder}/", ""))
    return notebook


def run_cell(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run one cell; return what it prints and the value of its last expression."""
    tree = ast.parse(source, f"cell {number}")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)  # noqa: S102 our own notebooks
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())}
        )
    if value is not None:
        outputs.append(
            {
                "output_type": "execute_result",
                "execution_count": number,
                "metadata": {},
                "data": _forms(value),
            }
        )
    return outputs


def _forms(value: object) -> dict[str, list[str]]:
    forms = {"text/plain": _lines(repr(value))}
    as_html = getattr(value, "_repr_html_", None)
    if as_html is not None:
        forms["text/html"] = _lines(as_html())
    return forms


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Run the notebooks that are named, or all."""
    chosen = [FOLDER / name for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb"))
    for path in chosen:
        text = json.dumps(run_notebook(path), indent=1, ensure_ascii=False)
        path.write_text(text + os.linesep, encoding="utf-8")
        print(path.name)  # noqa: T201 a tool


if __name__ == "__main__":
    main()
