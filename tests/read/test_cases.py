"""Reads by example: schema, data and query in, rows out, on every access path."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.read.access.path_chooser import TRAVERSAL_MODE
from support.cases import Case, check_case, load_cases

MODES = ("indexed", "csr", "")


class Graphs:
    """Graphs by schema and data: cases of one file share theirs."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[str, Graph] = {}

    def of(self, case: Case) -> Graph:
        text = case.sections["schema"] + case.sections["data"]
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        if key not in self._made:
            graph = Graph.init(self._root / key, case.sections["schema"], durability="process")
            graph.load(case.sections["data"].encode(), mode="append")
            if "indexes" in case.sections:
                graph.ensure_indices()
            self._made[key] = graph
        return self._made[key]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Graphs:
    return Graphs(tmp_path_factory.mktemp("cases"))


@pytest.mark.parametrize("case", load_cases("read"), ids=str)
def test_rows(
    case: Case, graphs: Graphs, monkeypatch: pytest.MonkeyPatch, update_cases: bool
) -> None:
    answers = set()
    for mode in MODES:
        monkeypatch.setenv(TRAVERSAL_MODE, mode)
        answers.add(answer(graphs.of(case), case))
    assert len(answers) == 1, answers
    check_case(case, "rows", answers.pop(), update_cases)


def answer(graph: Graph, case: Case) -> str:
    params = json.loads(case.sections.get("params", "{}"))
    try:
        result = graph.query(case.sections["query"], params=params)
    except OmnigraphError as error:
        return f"error {error.code} {str(error).splitlines()[0]}"
    lines = [
        ", ".join(json.dumps(v, ensure_ascii=False) for v in row.values())
        for row in result.json_rows()
    ]
    is_ordered = any(word in case.sections["query"] for word in ("order {", "limit "))
    return "\n".join(lines if is_ordered else sorted(lines))
