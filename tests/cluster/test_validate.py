"""What `cluster validate` finds in a folder: `tests/cases/cluster_validate`.

Each section of a case is a file of the folder, but for these:

| section | holds |
|---|---|
| `setup` | a line each: `remove FILE`, `mkdir DIR`, `link NEW OLD`, `bytes FILE HEX` |
| `call` | the words behind `cluster validate`, if there are any |
| `output` | what is printed, and the exit code if it is not 0 |

`HERE` stands for the folder.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from omnigraph.cluster.load_desired import load_desired
from omnigraph.cluster.load_header import load_header
from support.cases import Case, check_case, load_cases
from support.pages import DOCS, ROOT
from support.terminal import Terminal

CASES = load_cases("cluster_validate")
NOT_FILES = {"setup", "call", "output"}
SOURCES = ROOT / "src" / "omnigraph" / "cluster"
FINDING = re.compile(r"^(?:ERROR|WARN ) (\w+) ", re.MULTILINE)


@pytest.fixture
def omnigraph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    monkeypatch.chdir(tmp_path)
    return Terminal(capsys)


def write_tree(case: Case) -> None:
    here = str(Path.cwd())
    for name, text in case.sections.items():
        if name not in NOT_FILES:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text.replace("HERE", here) + "\n", encoding="utf-8")
    for line in case.sections.get("setup", "").splitlines():
        set_up(*line.split())


def set_up(verb: str, name: str, *rest: str) -> None:
    if verb == "remove":
        Path(name).unlink()
    elif verb == "mkdir":
        Path(name).mkdir(parents=True)
    elif verb == "link":
        Path(name).symlink_to(rest[0])
    else:
        assert verb == "bytes"
        Path(name).write_bytes(bytes.fromhex("".join(rest)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_folder_is_judged(case: Case, omnigraph: Terminal, update_cases: bool) -> None:
    write_tree(case)
    result = omnigraph("cluster", "validate", *case.sections.get("call", "").split())
    assert result.err == ""
    told = result.out.replace(str(Path.cwd()), "HERE")
    if result.code:
        told += f"[exit {result.code}]\n"
    check_case(case, "output", told, update_cases)
    assert (result.code == 1) == ("\nERROR " in f"\n{told}")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_only_the_head_of_a_folder_is_read_for_its_header(case: Case, omnigraph: Terminal) -> None:
    write_tree(case)
    if case.sections.get("call"):
        return
    full, header = load_desired("."), load_header(".")
    assert full.diagnostics[: len(header.diagnostics)] == header.diagnostics
    assert (full.storage, full.is_locked) == (header.storage or "", header.is_locked)
    if full.is_valid:
        assert header.storage is not None
    assert (full.config_digest is None) != full.is_valid


def codes_in_source() -> set[str]:
    """Return the codes that the loader can report.

    They are first arguments of `error` and `warning`, and arguments called `code`. One that is no
    text is a name, or a call of one; the texts of its definition count.
    """
    paths = [*(SOURCES / "config").glob("*.py"), *SOURCES.glob("load_*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    definitions = {
        name: texts_of(node) for tree in trees for node in tree.body for name in names_of(node)
    }
    found: set[str] = set()
    for node in (each for tree in trees for each in ast.walk(tree)):
        if isinstance(node, ast.Call):
            codes = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            if ast.unparse(node.func) in ("error", "warning"):
                codes.append(node.args[0])
            for code in codes:
                name = ast.unparse(code.func if isinstance(code, ast.Call) else code)
                found |= texts_of(code) or definitions.get(name, set())
    return found


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    return [ast.unparse(node.target)] if isinstance(node, ast.AnnAssign) else []


def texts_of(node: ast.AST) -> set[str]:
    constants = (each for each in ast.walk(node) if isinstance(each, ast.Constant))
    return {each.value for each in constants if isinstance(each.value, str)}


def codes_in_reference() -> set[str]:
    page = (DOCS / "reference" / "cluster.md").read_text(encoding="utf-8")
    section = page.partition("\n## Findings\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \| (?:error|warning) \|", section, re.MULTILINE))


def test_every_code_of_the_loader_has_a_case_and_a_row_in_the_reference() -> None:
    outputs = "\n".join(case.sections.get("output", "") for case in CASES)
    assert set(FINDING.findall(outputs)) == codes_in_source() == codes_in_reference()
