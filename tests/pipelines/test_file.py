"""Pipeline files: text in, values or diagnostics out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.pipelines.diagnostics import Findings
from omnigraph.pipelines.file.expect import ExpectError, parse_expect
from omnigraph.pipelines.file.model import PipelineFile
from omnigraph.pipelines.file.read import read_pipeline
from omnigraph.pipelines.file.variables import Variables
from omnigraph.pipelines.file.view_order import tables_read
from support.cases import Case, check_case, load_cases


@pytest.mark.parametrize("case", load_cases("pipeline_file"), ids=str)
def test_a_file_says_what_it_declares_or_what_is_wrong(case: Case, update_cases: bool) -> None:
    lines = case.sections.get("environment", "").splitlines()
    environment = dict(line.split("=", 1) for line in lines)
    file, diagnostics = read_pipeline(
        case.sections["file"],
        path=Path("work/p.yaml"),
        folder=Path("work"),
        environment=environment,
    )
    shown = list(map(str, diagnostics)) + ([] if file is None else list(_declared(file)))
    check_case(case, "result", "\n".join(shown), update_cases)


def _declared(file: PipelineFile) -> Iterator[str]:
    target = file.target
    yield f"{file.name} -> {target.graph} {target.branch} {target.publish}"
    yield f"branch of its own: {file.uses_branch}"
    if file.trigger is not None:
        yield f"{file.trigger} at {file.checkpoint}"
    for source in file.sources.values():
        yield file.variables.hide(f"source {source}")
    for name, text in file.views.items():
        yield f"view {name}: {text}"
    for step in file.load:
        yield f"load {step.table_key} from {step.source} {step.mode} {step.mapping} {step.ends}"
    for check in file.checks:
        severity = "warn" if check.is_warning else "error"
        yield f"check {check.name}: {check.language} {check.text} | {check.expect.text} {severity}"
    if file.on_error.quarantines:
        yield f"quarantine {file.on_error.folder} {file.on_error.rows_max}"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM a LEFT JOIN b ON a.x = b.x", "a b"),
        ("SELECT * FROM (SELECT * FROM a), b", "a b"),
        ("FROM a SELECT x", "a"),
        ("SELECT x IS DISTINCT FROM y FROM a", "a"),
        ("SELECT * FROM catalog.a, range(3), b", "b"),
        ("SELECT x, y FROM a WHERE x IN (SELECT y FROM b) ORDER BY x, y", "a b"),
        ('/* FROM b */ SELECT "FROM c", substring(x FROM 2) FROM `a``b`', "a`b"),
        ("WITH x AS (SELECT * FROM a), y AS (SELECT * FROM x) SELECT * FROM y", "a"),
        ("SELECT * FROM a UNION ALL SELECT * FROM b", "a b"),
        ("SELECT", ""),
        (") FROM (", ""),
    ],
)
def test_the_tables_of_a_query_are_found_in_its_text(sql: str, expected: str) -> None:
    assert " ".join(sorted(tables_read(sql))) == expected


@pytest.mark.parametrize(
    ("text", "rows", "outcome"),
    [
        ("n = 0", [{"n": 0}], (0, True)),
        ("n <= 0.1", [{"n": 0.1}], (0.1, True)),
        ("n > m and m >= 1", [{"n": 3, "m": 1}], ({"n": 3, "m": 1}, True)),
        ("name = 'it''s'", [{"name": "it's"}], ("it's", True)),
        ("done = true", [{"done": False}], (False, False)),
        ("n >= 0", [{"n": None}], (None, False)),
        ("rows = 0", [], (0, True)),
        ("rows >= 2", [{"x": 1}, {"x": 2}], (2, True)),
        ("rows = 7", [{"rows": 7}], (7, True)),
    ],
)
def test_an_expectation_is_decided(
    text: str, rows: list[dict[str, object]], outcome: tuple[object, bool]
) -> None:
    columns = list(rows[0]) if rows else ["x"]
    found = parse_expect(text).decide(columns, rows)
    assert (found.value, found.passed) == outcome


@pytest.mark.parametrize(
    ("text", "rows", "problem"),
    [
        ("n = 0", [], "returns 0 rows; 'n = 0' needs one"),
        ("n = 0", [{"n": 1}, {"n": 2}], "returns 2 rows"),
        ("m = 0", [{"n": 1}], "'m' is no column of the result: n"),
        ("n < 'x'", [{"n": 1}], "int and str cannot be compared"),
    ],
)
def test_an_expectation_that_cannot_be_decided_says_why(
    text: str, rows: list[dict[str, object]], problem: str
) -> None:
    with pytest.raises(ExpectError, match=problem):
        parse_expect(text).decide(["n"], rows)


def test_a_secret_leaves_no_part_of_itself() -> None:
    environment = {"A_KEY": "abc", "B_TOKEN": "abcdef", "PLAIN": "abcdef"}
    variables = Variables(environment)
    filled = str(variables.fill("${A_KEY} ${B_TOKEN} ${PLAIN}", "", Findings()))
    assert variables.hide_secrets(filled) == "${A_KEY} ${B_TOKEN} ${B_TOKEN}"
    assert variables.hide(filled) == "${A_KEY} ${B_TOKEN} ${B_TOKEN}"


def test_contracts_of_several_files_have_names_of_their_own(tmp_path: Path) -> None:
    rules = "expectations: [{type: P, rules: [{rows: {min: 1}}, {rows: {max: 9}}]}]\n"
    (tmp_path / "a.yaml").write_text(rules)
    text = (
        "version: 1\nname: p\ntarget: {graph: g}\nsources: {s: {format: csv, path: x}}\n"
        "load: [{node: P, from: s, mode: merge}]\nchecks: [{contracts: a.yaml}]\n" + rules
    )
    file, diagnostics = read_pipeline(text, path=tmp_path / "p.yaml")
    assert file is not None, diagnostics
    assert [check.name for check in file.checks] == [
        "P: rows",
        "P: rows (2)",
        "P: rows (3)",
        "P: rows (2) (2)",
    ]
