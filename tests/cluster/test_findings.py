"""Findings about storage: all that are printed are described, and all that are described exist."""

from __future__ import annotations

import re
from pathlib import Path

from omnigraph.cluster.diagnostics import has_errors
from omnigraph.graph import Graph
from support.cases import load_cases
from support.clusters import SCHEMA, Folder, codes, faulty_work, succeeded
from support.fault_plan import FaultMode, FaultPlan, ReadFault
from support.pages import DOCS, ROOT

SOURCES = ROOT / "src" / "omnigraph" / "cluster"
PRINTED = re.compile(r'^(?:ERROR|WARN ) (\w+) |"code": "(\w+)"', re.MULTILINE)


def described(section: str) -> set[str]:
    page = (DOCS / "reference" / "cluster.md").read_text(encoding="utf-8")
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?`) \| (?:error|warning)", text, re.MULTILINE)
    return {code for row in rows for code in re.findall(r"`(\w+)`", row)}


def test_every_finding_in_a_transcript_is_in_the_reference() -> None:
    told = "\n".join(case.sections["transcript"] for case in load_cases("cluster_commands"))
    printed = {first or second for first, second in PRINTED.findall(told)}
    assert len(printed) > 25
    assert printed <= described("Findings about storage") | described("Findings")


def test_every_finding_in_the_reference_is_one_of_the_source() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    known = described("Findings about storage")
    assert len(known) > 45
    assert {code for code in known if f'"{code}"' not in text} == set()


def test_nothing_is_done_if_it_is_not_known_what_earlier_runs_left(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "here")
    folder.write({"a": (SCHEMA, {})})
    succeeded(folder.import_state())
    before = folder.ledger()
    plan = FaultPlan(reads=[ReadFault("objects.list", "__cluster/recoveries")])
    for command in (folder.apply, folder.refresh):
        report = command(faulty_work(folder.work(), plan))
        assert has_errors(report.diagnostics)
        assert codes(report) == ["recovery_sidecar_read_error"]
        assert folder.ledger() == before
    assert folder.work().graphs.look("a").state == "absent"


def test_a_lock_that_cannot_be_released_is_an_error(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "here")
    folder.write({})
    succeeded(folder.import_state())
    succeeded(folder.apply())
    # The lock is the first effect of a run that finds nothing to do, its release the second.
    plan = FaultPlan(at=2, mode=FaultMode.FAIL_BEFORE)
    assert codes(folder.apply(faulty_work(folder.work(), plan))) == ["state_lock_error"]
    assert codes(folder.apply()) == ["state_lock_held"]


def test_a_graph_is_not_deleted_while_this_process_exports_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "here")
    folder.write({"a": (SCHEMA, {})})
    succeeded(folder.import_state())
    succeeded(folder.apply())
    with Graph.open(folder.work().root.graph_uri("a")) as graph:
        graph.mutate('query q() { insert Paper { doi: "1" } }')
        graph.mutate('query q() { insert Paper { doi: "2" } }')
        lines = graph.export_lines()
        next(lines)
        folder.write({})
        succeeded(folder.approve("graph.a"))
        assert "graph_delete_export_in_progress" in codes(folder.apply())
        assert b'"2"' in next(lines)
        assert list(lines) == []
    succeeded(folder.apply())
    assert folder.work().graphs.look("a").state == "absent"
