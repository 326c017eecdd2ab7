"""Crashes as stories: a process dies at a named point, and what everyone sees afterwards.

`rows` are loaded into `main`. `earlier` and `operation` hold operations, one per paragraph:

    on BRANCH           where the operations that follow are done; `main` at first
    branch NAME         cuts a branch from main
    merge NAME          merges a branch into the current one
    schema, load MODE   applies the schema, or loads the records, that follow in the paragraph
    optimize
    everything else is a mutation

A child process does the operation and dies at the point in `dies at`. If there is a section
`recovery dies at`, the process that opens the graph next dies at that point.

`story` is what is seen then. A *reader* has opened the graph for reading, so that it changes
nothing, and sees how the branch differs from before. *status* is what the reader is told about
unfinished writes. *open* lists the recoveries that opening for writing has recorded, *retry* is
what comes of the same operation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from crash.cases import message
from crash.checks import check_opening_changes_nothing, check_sound, pending_records
from crash.child import Form, run_operation
from crash.nursery import Nursery
from omnigraph.errors import OmnigraphError
from omnigraph.failpoints import FAILPOINTS
from omnigraph.graph import Graph
from omnigraph.manifest import OpenMode
from support.cases import Case, check_case, difference, load_cases
from support.entities import entities
from support.places import Place

STORIES = load_cases("crash")
ELSEWHERE = {
    # `tests/recovery/test_strays.py`.
    "strays.after_restore",
}


def operations(text: str) -> Iterator[Form]:
    """Yield the operations of a section, as a child understands them."""
    branch = "main"
    for step in filter(None, (part.strip("\n") for part in text.split("\n\n"))):
        first, _, rest = step.partition("\n")
        word, _, name = first.partition(" ")
        match word:
            case "on":
                branch = name
            case "branch":
                yield {"kind": "branch_create", "source": "main", "name": name}
            case "merge":
                yield {"kind": "branch_merge", "source": name, "branch": branch}
            case "schema":
                yield {"kind": "schema", "text": rest, "allow_data_loss": False}
            case "load":
                records = [json.loads(line) for line in rest.split("\n")]
                yield {"kind": "load", "mode": name, "branch": branch, "records": records}
            case "optimize":
                yield {"kind": "optimize"}
            case _:
                yield {"kind": "mutate", "branch": branch, "text": f"query q() {{ {step} }}"}


class Story:
    """One case, as it is played."""

    def __init__(self, case: Case, place: Place, nursery: Nursery) -> None:
        self.case = case
        self.place = place
        self.nursery = nursery
        (self.operation,) = operations(case.sections["operation"])
        self.branch = str(self.operation.get("branch", "main"))
        self.lines: list[str] = []
        self.before: list[str] = []

    def play(self) -> str:
        self._begin()
        self._die()
        self._look("reader")
        self._look_at_status()
        if "recovery dies at" in self.case.sections:
            self._die_in_recovery()
            self._look("reader")
            self._look_at_status()
        self._open()
        self._retry()
        self._look("reader")
        return "\n".join(self.lines)

    def _begin(self) -> None:
        with self.place.init(self.case.sections["schema"]) as graph:
            graph.load(self.case.sections["rows"].encode(), mode="append")
            for form in operations(self.case.sections.get("earlier", "")):
                run_operation(graph, form)
        self.before = self._rows()

    def _rows(self) -> list[str]:
        with self._reader() as graph:
            return [*entities(graph), *graph.schema_source().split("\n")]

    def _reader(self) -> Graph:
        return self.place.open(self.branch, mode=OpenMode.READ_ONLY)

    def _tell(self, who: str, lines: list[str], *, if_none: str) -> None:
        for line in lines or [if_none]:
            self.lines.append(f"{who:<8}{line}")
            who = ""

    def _die(self) -> None:
        point = self.case.sections["dies at"]
        with self.nursery.child() as child:
            child.ask(message(self.place))
            child.ask({"do": "arm", "points": f"{point}=die"})
            child.send({"do": "run", "number": 0, "operation": self.operation})
            said = list(child.rest())
            assert said == [{"begin": 0}], f"{point} is not on the way: {said}"

    def _die_in_recovery(self) -> None:
        point = self.case.sections["recovery dies at"]
        with self.nursery.child() as child:
            child.ask({"do": "arm", "points": f"{point}=die"})
            child.send(message(self.place))
            assert list(child.rest()) == [], f"{point} is not on the way"
        self.lines.append("a process that opens the graph dies too")

    def _look(self, who: str) -> None:
        self._tell(who, difference(self.before, self._rows()), if_none="nothing has changed")

    def _look_at_status(self) -> None:
        with self._reader() as graph:
            pending = [
                f"{each.intent.writer_kind} on {each.branch}: {each.verdict}"
                for each in graph.recovery_status()
                if each.intent is not None
            ]
        self._tell("status", pending, if_none="nothing is unfinished")

    def _open(self) -> None:
        audited = set(pending_records(self.place))
        with self.place.open() as graph:
            recorded = [
                f"{row.recovery_kind} {row.sidecar_writer_kind}:"
                f" {', '.join(sorted(each.table_key for each in row.per_table_outcomes))}"
                for row in graph.recovery_list()
                if row.operation_id in audited
            ]
            check_sound(graph)
        self._tell("open", recorded, if_none="records no recovery")
        self._look("reader")
        check_opening_changes_nothing(self.place)

    def _retry(self) -> None:
        try:
            with self.place.open() as graph:
                commit = run_operation(graph, self.operation)
                check_sound(graph)
        except OmnigraphError as error:
            self._tell("retry", [f"{error.code} {error}"], if_none="")
        else:
            self._tell("retry", [] if commit is None else ["makes a commit"], if_none="no commit")


@pytest.mark.parametrize("case", STORIES, ids=str)
def test_a_crash_ends_as_its_story_says(
    case: Case, local_place: Place, nursery: Nursery, update_cases: bool
) -> None:
    check_case(case, "story", Story(case, local_place, nursery).play(), update_cases)


def test_every_failpoint_has_a_story() -> None:
    points = {case.sections["dies at"] for case in STORIES}
    points |= {case.sections.get("recovery dies at", "") for case in STORIES}
    assert points - {""} == set(FAILPOINTS) - ELSEWHERE
