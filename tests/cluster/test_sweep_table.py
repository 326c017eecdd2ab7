"""The recovery table: one row for each finding, and nothing but that."""

from __future__ import annotations

from collections import Counter

from omnigraph.cluster.sweep import TABLE, row_for

LIVE = {"recorded", "intended", "other", "broken"}


def test_each_finding_has_one_row() -> None:
    rows = Counter((row.kind, row.finding) for row in TABLE)
    assert set(rows.values()) == {1}
    assert {finding for kind, finding in rows if kind == "graph_create"} == LIVE | {"absent"}
    assert {finding for kind, finding in rows if kind == "schema_apply"} == LIVE
    deletion = {finding for kind, finding in rows if kind == "graph_delete"}
    assert deletion == {"present", "recorded", "absent"}


def test_what_waits_is_reported_and_what_is_recorded_was_intended() -> None:
    for row in TABLE:
        if row.verdict == "wait":
            assert row.warning or row.error
        if row.verdict == "roll_forward":
            assert row.finding == ("absent" if row.kind == "graph_delete" else "intended")
    assert row_for("graph_create", "broken").error == "graph_create_incomplete"
