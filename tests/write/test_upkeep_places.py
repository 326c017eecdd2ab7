"""Schema changes and maintenance on every kind of storage, as one story."""

from __future__ import annotations

import pytest

from omnigraph.graph import ReadTarget
from support.places import PERSON, SCHEMA, Place, add, ids
from support.scans import coverage_of

NEXT = (
    SCHEMA.replace("age: I32?", "years: I64? @rename_from(age)", 1) + "node New { c: String @key }"
)


@pytest.mark.parametrize("where", ["local", "s3"])
def test_a_graph_is_changed_tidied_and_cleaned_wherever_it_lies(
    request: pytest.FixtureRequest, where: str
) -> None:
    place: Place = request.getfixturevalue(f"{where}_place")
    graph = place.init()
    for name in ("ann", "bob", "cas"):
        add(graph, name)
    graph.tag_create("early")
    assert graph.apply_schema(NEXT).applied
    graph.load(b'{"type":"Person","data":{"name":"dan","years":5}}\n', mode="append")
    report = graph.optimize()
    assert report.commit is not None
    handle = graph.snapshot().open(PERSON)
    assert coverage_of(handle, "id") is None
    assert len(handle.fragments()) == 1
    graph.branch_create("dev")
    graph.load(b'{"type":"New","data":{"c":"x"}}\n', mode="append", branch="dev")
    result = graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert [each.error for each in result.datasets if each.error] == []
    assert sum(each.old_versions_removed for each in result.datasets) > 0
    fresh = place.open()
    assert ids(fresh.snapshot()) == ["ann", "bob", "cas", "dan"]
    assert ids(fresh.snapshot_of(ReadTarget.tag("early"))) == ["ann", "bob", "cas"]
    assert ids(fresh.snapshot_of(ReadTarget.branch("dev")), "node:New") == ["x"]
    assert fresh.repair().has_refusals is False
