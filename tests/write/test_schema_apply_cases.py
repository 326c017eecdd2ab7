"""Every case of `tests/cases/schema_apply`: stored rows, a changed schema, and what is there then.

A line of `change` is `old => new`, a replacement in the schema text, or `+ text`, an addition.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.manifest import Snapshot
from omnigraph.schema.migration.steps import UnsupportedChange
from omnigraph.store.records import ScanRequest
from support.cases import Case, check_case, load_cases
from support.places import Place
from support.step_kinds import STEP_KINDS

CASES = load_cases("schema_apply")
ULID = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """Graphs by schema and rows, made once."""
    made: dict[tuple[str, str], Path] = {}
    for case in CASES:
        key = case.sections["schema"], case.sections["rows"]
        if key not in made:
            place = Place(str(tmp_path_factory.mktemp("template") / "graph"))
            place.init(key[0]).load((key[1] + "\n").encode(), mode="append")
            made[key] = Path(place.uri)
    return made


def start(case: Case, templates: dict[tuple[str, str], Path], tmp_path: Path) -> Graph:
    root = tmp_path / "graph"
    shutil.copytree(templates[case.sections["schema"], case.sections["rows"]], root)
    return Place(str(root)).open()


def desired(case: Case) -> str:
    text = case.sections["schema"]
    pending: list[str] = []
    for line in case.sections["change"].split("\n"):
        if line.startswith("+ "):
            text += "\n" + line[2:]
            continue
        pending.append(line)
        old, arrow, new = "\n".join(pending).partition(" =>")
        if not arrow:
            continue
        assert text.count(old) == 1, f"{case}: {old!r} occurs {text.count(old)} times"
        text = text.replace(old, new.removeprefix(" "))
        pending = []
    assert not pending, f"{case}: {pending}"
    return text


def describe(snapshot: Snapshot) -> list[str]:
    lines = []
    for key in snapshot.entries:
        handle = snapshot.open(key)
        rows = handle.scan(ScanRequest(blobs_as_bytes=True)).read_all().sort_by("id")
        columns = ", ".join(_column(field) for field in handle.schema)
        lines += ["", f"{key} ({columns})"]
        lines += [json.dumps(list(row.values()), default=_plain) for row in rows.to_pylist()]
    return lines


def _column(field: pa.Field) -> str:
    kind = str(field.type).replace("extension<lance.blob.v2<BlobType>>", "blob")
    return f"{field.name}: {kind}{'' if field.nullable else ' not null'}"


def _plain(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def changed(before: list[str], after: list[str]) -> list[str]:
    """Leave out the tables that are as they were."""
    return [
        line
        for block in _blocks(after)
        if block not in _blocks(before)
        for line in ("", *block.split("\n"))
    ]


def _blocks(lines: list[str]) -> list[str]:
    return "\n".join(lines).strip("\n").split("\n\n")


def row_ids(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Stable row ids by dataset and id."""
    found = {}
    for key, entry in snapshot.entries.items():
        request = ScanRequest(columns=("id",), with_row_id=True)
        rows = snapshot.open(key).scan(request).read_all()
        found[entry.location] = dict(zip(*(c.to_pylist() for c in rows.columns), strict=True))
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_schema_apply_does_what_its_case_says(
    case: Case,
    templates: dict[tuple[str, str], Path],
    tmp_path: Path,
    update_cases: bool,
) -> None:
    graph = start(case, templates, tmp_path)
    before = graph.snapshot()
    told = describe(before)
    try:
        result = graph.apply_schema(desired(case))
    except OmnigraphError as error:
        lines = [f"{error.code}: {error}"]
        assert describe(graph.snapshot()) == told
        assert graph.snapshot().commit_id == before.commit_id
    else:
        after = graph.snapshot()
        lines = [step.kind for step in result.plan.steps] or ["nothing"]
        gone = [f"gone: {key}" for key in before.entries if key not in after.entries]
        lines += [*gone, *changed(told, describe(after))]
        kept = row_ids(after)
        for location, ids in row_ids(before).items():
            assert kept.get(location, ids) == ids, "stable row ids must stay"
        assert describe(before) == told, "an old snapshot must stay readable"
        assert graph.apply_schema(desired(case)).applied is False
        reopened = Graph.open(graph.uri, durability="process")
        assert describe(reopened.snapshot()) == describe(after)
        assert (Path(graph.uri) / "_schema.pg").read_text() == reopened.schema_source()
    assert graph.branch_list() == ["main"]
    check_case(case, "result", ULID.sub("<ulid>", "\n".join(lines)), update_cases)


def test_every_kind_of_step_is_applied_by_some_case() -> None:
    applied = {line for case in CASES for line in case.sections["result"].split("\n")}
    wanted = {kind.kind for kind in STEP_KINDS if kind is not UnsupportedChange}
    assert wanted - applied == set()
