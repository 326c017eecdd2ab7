"""The type check, by text cases."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from omnigraph.query import compile_queries, compile_query, parse_queries, print_plan
from omnigraph.query.check.codes import TYPE_CODES
from omnigraph.query.plan.plan import Plan
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax import Diagnostic, SourceError, SourceText
from support.cases import CASES, Case, check_case, load_cases
from support.catalogs import catalog, crew_catalog, rich_catalog

FOLDERS = ("query_types", "query_plan", "mutations")


def catalog_of(case: Case) -> Catalog:
    if "schema" in case.sections:
        return catalog(case.sections["schema"])
    return {"crew": crew_catalog, "rich": rich_catalog}[case.sections.get("graph", "crew")]()


def described(diagnostic: Diagnostic) -> str:
    at = diagnostic.position
    text = diagnostic.source.text[diagnostic.span.start : diagnostic.span.end]
    hint = f"\n    help: {diagnostic.hint}" if diagnostic.hint else ""
    return f"{at.line}:{at.column} `{text}` {diagnostic.message}{hint}"


def compiled(case: Case) -> tuple[Plan, ...]:
    file = parse_queries(SourceText(case.sections["query"], "q.gq"))
    return compile_queries(file, catalog_of(case))


@pytest.mark.parametrize(
    "case", [case for folder in FOLDERS for case in load_cases(folder)], ids=str
)
def test_a_query_gives_its_plan_or_its_problems(case: Case, update_cases: bool) -> None:
    if "problems" in case.sections:
        with pytest.raises(SourceError) as raised:
            compiled(case)
        problems = "\n".join(described(found) for found in raised.value.diagnostics)
        assert all(found.phase == "type error" for found in raised.value.diagnostics), problems
        check_case(case, "problems", problems, update_cases)
    else:
        plans = "\n\n".join(print_plan(plan) for plan in compiled(case))
        check_case(case, "plan", plans, update_cases)


@pytest.mark.parametrize("code", [code for code in TYPE_CODES if code.startswith("T")])
def test_every_code_has_a_case(code: str) -> None:
    texts = [path.read_text() for folder in FOLDERS for path in (CASES / folder).glob("*.case")]
    assert any(re.search(rf"^\d+:\d+ `.*` {code}: ", text, re.MULTILINE) for text in texts)


def test_cases_use_only_documented_codes() -> None:
    found = {
        code
        for folder in FOLDERS
        for path in (CASES / folder).glob("*.case")
        for code in re.findall(r"^\d+:\d+ `.*` (\w+): ", path.read_text(), re.MULTILINE)
    }
    assert found <= set(TYPE_CODES)


def test_a_headline_names_phase_code_and_query() -> None:
    file = parse_queries("query crew_of() { match { $c: Crew } return { $c.tga } }")
    with pytest.raises(SourceError) as raised:
        compile_query(file.queries[0], crew_catalog(), file.source)
    (found,) = raised.value.diagnostics
    assert found.headline == (
        "type error: T6: node type 'Crew' has no property 'tga' (in query 'crew_of')"
    )
    assert found.code == "T6"
    assert found.subject == "query 'crew_of'"


def test_errors_survive_pickling() -> None:
    file = parse_queries("query q() { match { $c: Crw } return { $c.tag } }")
    with pytest.raises(SourceError) as raised:
        compile_queries(file, crew_catalog())
    copied = copy.deepcopy(raised.value)
    assert copied.diagnostics == raised.value.diagnostics
    assert pickle.dumps(copied) == pickle.dumps(raised.value)
