"""Text cases: an input and what must come out, readable without Python.

A `.case` file holds any number of cases. Text before the first case belongs to all of them:

    # comments before the first section are ignored
    --- schema                      <- a section shared by every case of the file
    node Crew { tag: String @key }

    === an unknown edge is T4       <- a case and its claim
    --- query
    query q() { … }
    --- diagnostics                 <- what must come out
    T4 1:30 …

A test module names the folder, builds the output of each case from its input sections, and compares
it with the expected section. `pytest --update-cases` rewrites expected sections; read the diff.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

CASES = Path(__file__).parents[1] / "cases"


@dataclass
class Case:
    path: Path
    name: str
    sections: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}: {self.name}"


def load_cases(folder: str) -> list[Case]:
    """Read every case below `tests/cases/<folder>`; an empty folder is a mistake."""
    found = [case for path in sorted((CASES / folder).glob("*.case")) for case in _read(path)]
    assert found, f"no cases in {CASES / folder}"
    return found


def _read(path: Path) -> list[Case]:
    shared: dict[str, str] = {}
    cases: list[Case] = []
    section: str | None = None
    lines: list[str] = []
    current = shared

    def close() -> None:
        if section is not None:
            current[section] = "\n".join(lines).strip("\n")

    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.startswith("=== "):
            close()
            section = None
            cases.append(Case(path, line[4:].strip(), dict(shared)))
            current = cases[-1].sections
        elif line.startswith("--- "):
            close()
            section, lines = line[4:].strip(), []
        else:
            lines.append(line)
    close()
    return cases


def check_case(case: Case, section: str, actual: str, update: bool) -> None:
    """Compare the actual text with a section, or rewrite the section when asked to."""
    actual = actual.strip("\n")
    expected = case.sections.get(section, "")
    if update and actual != expected:
        _rewrite(case, section, actual)
        return
    assert actual == expected, f"{case.path}: {case.name}"


def _rewrite(case: Case, section: str, actual: str) -> None:
    out: list[str] = []
    inside_case = inside_section = False
    for line in case.path.read_text(encoding="utf-8").split("\n"):
        if line.startswith("=== "):
            inside_case, inside_section = line[4:].strip() == case.name, False
        elif line.startswith("--- "):
            inside_section = inside_case and line[4:].strip() == section
            if inside_section:
                out += [line, actual, ""]
                continue
        if not inside_section:
            out.append(line)
    case.path.write_text("\n".join(out).rstrip("\n") + "\n", encoding="utf-8")


def difference(before: list[str], after: list[str]) -> list[str]:
    """Return the lines that are gone and those that are new; equal ones cancel each other."""
    gone, new = list(before), list(after)
    for line in before:
        if line in new:
            new.remove(line)
            gone.remove(line)
    return [f"- {line}" for line in gone] + [f"+ {line}" for line in new]
