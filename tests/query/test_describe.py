"""Operation descriptors, by text cases."""

from __future__ import annotations

import json

import pytest

from omnigraph.query import compile_queries, describe_plan, parse_queries
from omnigraph.syntax import SourceText
from support.cases import Case, check_case, load_cases
from support.catalogs import named_catalog


def lines(form: dict[str, object]) -> str:
    """Spell the descriptor with one entry per line."""
    parts = []
    for key, entries in form.items():
        assert isinstance(entries, list)
        inner = "".join(f"\n    {json.dumps(entry, ensure_ascii=False)}" for entry in entries)
        parts.append(f"{key}:{inner or ' none'}")
    return "\n".join(parts)


@pytest.mark.parametrize("case", load_cases("query_describe"), ids=str)
def test_an_operation_is_described_as_it_runs(case: Case, update_cases: bool) -> None:
    file = parse_queries(SourceText(case.sections["query"]))
    (plan,) = compile_queries(file, named_catalog(case.sections.get("graph", "crew")))
    check_case(case, "operation", lines(describe_plan(plan).as_json()), update_cases)
