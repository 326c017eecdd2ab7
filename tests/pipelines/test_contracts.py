"""Contracts: what `omnigraph check` finds, and that each type is read once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.pipelines.contracts.file import read_contract_text
from omnigraph.pipelines.contracts.run import run_rules
from support.cases import Case, check_case, load_cases
from support.json_shapes import problems
from support.terminal import Terminal

CASES = load_cases("contracts")


def build(case: Case) -> None:
    with Graph.init("g.omni", case.sections["schema"], durability="process") as graph:
        graph.load(case.sections["rows"].encode(), mode="append", engine="local")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rules_hold_or_fail(case: Case, omnigraph: Terminal, update_cases: bool) -> None:
    build(case)
    Path("c.test.yaml").write_text(f"expectations:\n{case.sections['rules']}\n")
    done = omnigraph("check", "g.omni")
    shown = re.sub(r"found -?\d{8,}", "found SECONDS", done.out)
    check_case(case, "output", f"{shown}{done.err}[exit {done.code}]", update_cases)
    found = omnigraph("check", "g.omni", "--json")
    assert problems("check", found.json) == []
    assert found.json["ok"] == (found.code == 0)


def test_a_branch_and_files_are_chosen(omnigraph: Terminal) -> None:
    build(CASES[0])
    Path("rules.yaml").write_text("expectations: [{type: Person, rules: [{rows: {max: 3}}]}]\n")
    with Graph.open("g.omni", durability="process") as graph:
        graph.branches.create("less")
        graph.mutate('query q() { delete Person where name = "ann" }', branch="less")
    check = ("check", "g.omni", "--file", "rules.yaml")
    assert omnigraph(*check).code == 1
    found = omnigraph(*check, "--branch", "less", "--json")
    assert (found.code, found.json["branch"], found.json["checks"][0]["value"]) == (0, "less", 3)
    nothing = omnigraph("check", "g.omni")
    assert nothing.code == 2
    assert "no contracts (`expectations`)" in nothing.err
    Path("rules.yaml").write_text("expectations: [{typ: Person}]\n")
    broken = omnigraph(*check)
    assert broken.code == 2
    assert "rules.yaml:1:17 error unknown_key expectations[0].typ" in broken.err


def test_a_type_is_read_once_and_only_the_columns_that_rules_name(
    omnigraph: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(CASES[0])
    rules, diagnostics = read_contract_text(
        "expectations:\n"
        "- type: Person\n"
        "  rules:\n"
        "    - {unique: [email]}\n"
        "    - {range: {age: [0, 1]}}\n"
        "    - {not_null: email}\n"
        "    - {rows: {min: 1}}\n"
        "- {type: Knows, rules: [{rows: {min: 1}}]}\n"
    )
    assert diagnostics == ()
    read: list[tuple[Sequence[str], Sequence[str] | None]] = []
    scan = Graph.export_batches

    def counted(self: Graph, **kwargs: Any) -> Iterator[Any]:
        read.append((kwargs["types"], kwargs["columns"]))
        return scan(self, **kwargs)

    monkeypatch.setattr(Graph, "export_batches", counted)
    with Graph.open("g.omni") as graph:
        results = run_rules(rules, graph)
        [(_, batches)] = scan(graph, types=["Person"], columns=["age", "email", "src"])
        assert next(batches).schema.names == ["age", "email"]
    assert [one.check.value for one in results] == [1, 3, 0.5, 4, 2]
    assert read == [(["node:Person"], ["age", "email"])]


def test_the_old_name_of_lint_still_works_with_its_option(omnigraph: Terminal) -> None:
    Path("s.pg").write_text("node Person { name: String @key }\n")
    Path("q.gq").write_text("query all() { match { $p: Person } return { $p.name } }\n")
    done = omnigraph("check", "--query", "q.gq", "--schema", "s.pg")
    assert done.code == 0
    assert "`omnigraph check` is now `omnigraph lint`" in done.err
