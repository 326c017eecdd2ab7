"""Queries by name, and registries of stored queries."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from omnigraph.graph import load_queries
from omnigraph.query.language.parse import parse_queries
from omnigraph.query.language.tree import ReadBody
from omnigraph.query.registry import LoadedRegistry, RegistryEntry, RegistryError, load_registry
from omnigraph.query.select import (
    QueryKindError,
    QuerySelectionError,
    repeated_queries,
    require_kind,
    select_query,
)
from omnigraph.syntax import SourceText
from support.cases import Case, check_case, load_cases
from support.print_queries import print_column

CASES = load_cases("stored")
READ = "query r() { match { $c: Crew } return { $c } }"
WRITE = "query w() { delete Crew where tag = 1 }"


@pytest.mark.parametrize("case", [c for c in CASES if c.path.stem == "selection"], ids=str)
def test_selection(case: Case, update_cases: bool) -> None:
    file = parse_queries(case.sections["text"])
    name = case.sections["name"]
    try:
        query = select_query(file, None if name == "-" else name)
    except QuerySelectionError as error:
        outcome = f"error: {error}\nhelp: {error.hint}"
    else:
        assert isinstance(query.body, ReadBody)
        outcome = f"query {query.name} returns {print_column(query.body.columns[0])}"
    repeated = [q.name for q in repeated_queries(file)]
    check_case(case, "outcome", f"{outcome}\nrepeated: {repeated}", update_cases)


def loaded(case: Case) -> LoadedRegistry:
    return load_registry(
        RegistryEntry(
            entry["key"],
            SourceText(case.sections[entry["text"]], entry["text"]),
            entry.get("expose", True),
            entry.get("tool_name"),
        )
        for entry in json.loads(case.sections["entries"])
    )


@pytest.mark.parametrize("case", [c for c in CASES if c.path.stem == "registry"], ids=str)
def test_registry(case: Case, update_cases: bool) -> None:
    result = loaded(case)
    lines = [json.dumps(entry) for entry in result.registry.catalog()]
    lines += [f"hidden: {stored.name}" for stored in result.registry.queries if not stored.expose]
    for kind, found in (("warning", result.registry.warnings), ("problem", result.problems)):
        for problem in found:
            lines.append(f"{kind} {problem.code} {problem.key}: {problem.message}")
            lines += [f"  help: {problem.hint}"] if problem.hint else []
    check_case(case, "outcome", "\n".join(lines), update_cases)
    for stored in result.registry.queries:
        assert result.registry.find(stored.name) is stored


def test_a_registry_without_problems_is_returned_and_one_with_problems_raises_them_all() -> None:
    good = RegistryEntry("r", SourceText(READ))
    assert load_registry([good]).raise_on_errors().find("r").tool_name == "r"
    with pytest.raises(RegistryError) as caught:
        load_registry([good, RegistryEntry("x", good.source), good]).raise_on_errors()
    assert [problem.code for problem in caught.value.problems] == ["R101", "R102"]
    assert str(caught.value).startswith("stored query 'x': '<text>' has no query called 'x'")
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.problems == caught.value.problems


def test_an_unknown_stored_query_is_not_found() -> None:
    registry = load_registry([RegistryEntry("r", SourceText(READ))]).raise_on_errors()
    with pytest.raises(QuerySelectionError, match=r"^query 'x' not found"):
        registry.find("x")


def test_the_selection_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(QuerySelectionError("a", ("b",))))
    assert (error.wanted, error.known, str(error)) == ("a", ("b",), "query 'a' not found")


@pytest.mark.parametrize(
    ("text", "expect_mutation", "message"),
    [
        (READ, None, None),
        (WRITE, None, None),
        (READ, False, None),
        (WRITE, True, None),
        (READ, True, "'r' is a read — use omnigraph query r"),
        (WRITE, False, "'w' is a mutation — use omnigraph mutate w"),
    ],
)
def test_the_expected_kind(text: str, expect_mutation: bool | None, message: str | None) -> None:
    query = select_query(parse_queries(text))
    if message is None:
        require_kind(query, expect_mutation=expect_mutation)
        return
    with pytest.raises(QueryKindError) as caught:
        require_kind(query, expect_mutation=expect_mutation)
    assert str(caught.value) == message
    assert str(pickle.loads(pickle.dumps(caught.value))) == message


def test_a_read_without_a_name_cannot_be_stored(tmp_path: Path) -> None:
    (tmp_path / "one.gq").write_text("match { $p: Person } return { $p.name }", encoding="utf-8")
    with pytest.raises(RegistryError, match="has no name"):
        load_queries([tmp_path])
