"""Validation without reading rows: what Spark's analysis and the schema of the graph say."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.pipelines import validate_path
from support.cases import Case, check_case, load_cases


def validated(case: Case, folder: Path) -> str:
    for name in ("graph.omni", "other.omni"):
        Graph.init(folder / name, case.sections["schema"], durability="process").close()
    (folder / "people.csv").write_text("full_name,age,day\nann,30,2020-01-01\n")
    path = folder / "p.yaml"
    path.write_text(case.sections["file"])
    found = validate_path(path, environment={})
    return "\n".join(map(str, found.diagnostics)).replace(str(folder), "FOLDER") or "ok"


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("case", load_cases("pipeline_validate"), ids=str)
def test_a_file_is_checked_against_sources_and_schema(
    case: Case, tmp_path: Path, update_cases: bool
) -> None:
    check_case(case, "result", validated(case, tmp_path), update_cases)


def test_without_java_everything_else_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    cases = load_cases("pipeline_validate")
    case = next(one for one in cases if one.name == "checks that cannot be decided")
    lines = validated(case, tmp_path).splitlines()
    assert lines[0].startswith("1:1 warning not_checked: SQL and the types of columns were not")
    assert "Spark needs Java 17 and there is none here" in lines[0]
    assert [line.split()[2] for line in lines[1:]] == [*["bad_gq"] * 4, "unknown_name"]
