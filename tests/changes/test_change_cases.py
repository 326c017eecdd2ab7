"""Changes as text: rows before, what happens to them, and what diff and feed report.

`happens` has one step per paragraph. A step is a load of records, a mutation, or one of these:

    optimize            maintenance, which changes no row
    branch NAME         cuts a branch from main
    on NAME             later steps go to this branch
    merge NAME          merges the branch into main
    revert              undoes the last commit of main
    schema              applies the schema that follows in the paragraph
    schema hard         the same; what it drops is removed from older versions too

`diff` is the net difference between the start and the head of main. `feed` is what a reader of main
sees, commit by commit; `delivered` what one sees who asks for schema changes, which is the same
where there are none. `filter` holds arguments of `Selection.of`. Between two states of one schema,
the difference in the other direction must be the same with inserts and deletes exchanged.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from omnigraph.changes.diff import (
    Boundary,
    ChangeGapError,
    SchemaBoundaryError,
    changed_pairs,
)
from omnigraph.changes.feed import FeedRequest
from omnigraph.changes.selection import Selection
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph, ReadTarget
from support.cases import Case, check_case, load_cases
from support.clocks import ManualClock
from support.places import Place

Change = Mapping[str, Any]
Start = Callable[[Case], Graph]

ABSENT = "<absent>"
INVERSE = {"insert": "delete", "delete": "insert", "update": "update"}


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Make the state before once; cases work on copies."""
    made: dict[tuple[str, str], Path] = {}

    def template(schema: str, records: str) -> Path:
        if (schema, records) not in made:
            path = tmp_path_factory.mktemp("template") / "graph"
            with Place(str(path)).init(schema, clock=ManualClock()) as graph:
                if records:
                    graph.load(records.encode(), mode="append")
            made[schema, records] = path
        return made[schema, records]

    return template


@pytest.fixture
def start(templates: Callable[[str, str], Path], tmp_path: Path) -> Start:
    def copy(case: Case) -> Graph:
        path = templates(case.sections["schema"], case.sections.get("before", ""))
        shutil.copytree(path, tmp_path / "graph")
        return Place(str(tmp_path / "graph")).open(clock=ManualClock(first_ulid=1_000))

    return copy


def do_all(graph: Graph, text: str) -> None:
    branch = "main"
    for step in filter(None, (part.strip("\n") for part in text.split("\n\n"))):
        first, _, rest = step.partition("\n")
        word, _, name = first.partition(" ")
        match word:
            case "optimize":
                graph.optimize()
            case "branch":
                graph.branch_create(name)
            case "on":
                branch = name
            case "merge":
                graph.branch_merge(name)
            case "revert":
                graph.commit_revert(graph.head_commit_id_for_branch())
            case "schema":
                graph.apply_schema(rest, allow_data_loss=name == "hard")
            case _ if step.startswith("{"):
                graph.load(step.encode(), mode="merge", branch=branch)
            case _:
                graph.mutate(f"query step() {{ {step} }}", branch=branch)


def selection_of(case: Case) -> Selection:
    return Selection.of(**json.loads(case.sections.get("filter") or "{}"))


def spelled(change: Change) -> str:
    """Return one line: an update shows what differs, the others show what is not null."""
    if "schema_changes" in change:
        return "\n".join(f"schema: {step['text']}" for step in change["schema_changes"])
    if change["op"] != "update":
        image = change.get("after") or change["before"]
        shown = [f"{name}={text(value)}" for name, value in image["properties"].items()]
        ends = image.get("endpoints")
        values = [one for one in shown if not one.endswith("=null")]
    else:
        old, new = change["before"], change["after"]
        ends = new.get("endpoints")
        left, right = old["properties"], new["properties"]
        values = [
            f"{name}={text(left.get(name, ABSENT))}->{text(right.get(name, ABSENT))}"
            for name in sorted({*left, *right})
            if left.get(name, ABSENT) != right.get(name, ABSENT)
        ]
    subject = f"{change['op']} {change['kind']} {change['type']['name']} {change['id']}"
    return " ".join([subject, *([f"{ends['from']}->{ends['to']}"] if ends else []), *values])


def text(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def spelled_all(changes: Iterable[Change]) -> list[str]:
    return [spelled(change) for change in changes]


def compared(change: Change) -> tuple[object, ...]:
    """Return what two differences have in common: a type has its name of the later side."""
    return (
        change["type"]["id"],
        change["id"],
        change["op"],
        change.get("before"),
        change.get("after"),
    )


def compared_back(change: Change) -> tuple[object, ...]:
    """Return the same of a change in the other direction."""
    op = INVERSE[change["op"]]
    return change["type"]["id"], change["id"], op, change.get("after"), change.get("before")


def report(call: Callable[[], list[str]]) -> str:
    try:
        return "\n".join(call()) or "nothing"
    except OmnigraphError as error:
        return f"{error.code}"


def feed_lines(
    graph: Graph, selection: Selection, since: str, schema_changes: str = "refuse"
) -> list[str]:
    page = graph.poll_changes(
        FeedRequest(selection=selection, start=f"after:{since}", schema_changes=schema_changes)
    )
    operations = {each.graph_commit_id: each.operation for each in graph.list_commits()}
    assert page.caught_up
    lines = []
    for block in page.blocks:
        lines.append(f"{operations[str(block.cause['graph_commit_id'])]}:")
        lines += [f"  schema: {step['text']}" for step in block.schema_changes]
        lines += [f"  {line}" for line in spelled_all(block.changes)]
    return lines


@pytest.mark.parametrize("case", load_cases("changes"), ids=str)
def test_diff_and_feed_report_what_the_case_says(
    case: Case, start: Start, update_cases: bool
) -> None:
    graph, selection = start(case), selection_of(case)
    since = graph.head_commit_id_for_branch()
    do_all(graph, case.sections["happens"])
    before, after = ReadTarget.commit(since), ReadTarget.branch("main")

    def diff() -> list[str]:
        changes = list(graph.changes_between(before, after, selection))
        if selection == Selection() and "schema" not in case.sections["happens"]:
            back = list(graph.changes_between(after, before))
            assert list(map(compared_back, back)) == list(map(compared, changes))
        return spelled_all(changes)

    check_case(case, "diff", report(diff), update_cases)
    feed = report(lambda: feed_lines(graph, selection, since))
    delivered = report(lambda: feed_lines(graph, selection, since, "deliver"))
    check_case(case, "feed", feed, update_cases)
    if "schema" in case.sections["happens"]:
        check_case(case, "delivered", delivered, update_cases)
    else:
        assert delivered == feed


@pytest.mark.parametrize("call", ["diff_between", "changes_between", "diff_rows"])
def test_states_whose_rows_were_purged_cannot_be_compared(call: str, tmp_path: Path) -> None:
    with Place(str(tmp_path / "graph")).init(
        "node Doc { slug: String @key }\nnode Tag { name: String @key }"
    ) as graph:
        graph.load(b'{"type": "Tag", "data": {"name": "t"}}', mode="append")
        first = ReadTarget.commit(graph.commits.head_id())
        graph.load(b'{"type": "Tag", "data": {"name": "u"}}', mode="append")
        second = ReadTarget.commit(graph.commits.head_id())
        graph.schema.apply("node Doc { slug: String @key }", allow_data_loss=True)
        head = ReadTarget.branch("main")

        def compare(before: ReadTarget, after: ReadTarget) -> None:
            match call:
                case "diff_between":
                    graph.changes.difference(before, after)
                case "changes_between":
                    list(graph.changes.between(before, after))
                case _:
                    list(graph.changes.diff(before, after).rows(engine="local"))

        for before, after in ((first, head), (head, second)):
            with pytest.raises(SchemaBoundaryError, match="of type 'Tag'"):
                compare(before, after)
        with pytest.raises(ChangeGapError, match=str(second.value)):
            compare(first, second)


def test_a_name_that_belongs_to_another_type_now_is_a_boundary_for_the_feed(tmp_path: Path) -> None:
    """One commit does both only as a merge; the rule is the same for any two states."""
    doc, both = (
        "node Doc { slug: String @key }",
        "node Doc { slug: String @key }\nnode Tag { t: I32? }",
    )
    with Place(str(tmp_path / "graph")).init(both) as graph:
        graph.load(b'{"type": "Tag", "data": {"t": 1}}', mode="append")
        before = graph.snapshot_of(ReadTarget.branch("main"))
        graph.schema.apply(doc)
        graph.schema.apply(both)
        after = graph.snapshot_of(ReadTarget.branch("main"))
        assert [pair.table_key for pair in changed_pairs(before, after)] == ["node:Tag"]
        with pytest.raises(SchemaBoundaryError, match="of type 'Tag'"):
            list(changed_pairs(before, after, boundary=Boundary.MATCHED))
