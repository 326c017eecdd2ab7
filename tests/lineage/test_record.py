"""The lineage of a commit as properties, and back; what others wrote under our names."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.graph import InvalidTextError
from omnigraph.lineage import (
    LINEAGE_KEYS,
    CheckResult,
    InputRead,
    Job,
    Lineage,
    ReservedPropertyError,
    TypeCounts,
    check_properties,
    read_lineage,
    runtime,
)

WHOLE = Lineage(
    job=Job(
        "cli", "load", version="3", file_digest="sha256:1", run_id="01KA5CFAT00000000000000001"
    ),
    inputs=(
        InputRead("people", "file:///in/people.parquet", "parquet", None, 2, 10, 1, "sha256:2"),
        InputRead(None, "memory:Person", "arrow", rows=1, columns=("name", "age")),
    ),
    outputs=(
        TypeCounts("Person", 1, 2, 3, 4, 5),
        TypeCounts("Knows", inserted=1, is_edge=True),
    ),
    columns={"Person.name": ["people.full_name"]},
    checks=(
        CheckResult("ages", "n = 0", 0, passed=True),
        CheckResult("x", "n = 1", 2, False, True),
    ),
    engine=runtime("spark", "app-1"),
)


def test_what_is_written_is_read_again() -> None:
    properties = WHOLE.to_properties()
    assert properties.keys() == LINEAGE_KEYS
    assert read_lineage(properties) == WHOLE
    assert json.loads(properties["outputs"])["Person"] == {
        "inserted": 1,
        "updated": 2,
        "deleted": 3,
        "unchanged": 4,
        "rejected": 5,
    }


def test_what_is_too_long_for_a_commit_is_named_and_the_rest_stays() -> None:
    many = tuple(InputRead(None, f"file:///in/{n}.parquet", "parquet") for n in range(5_000))
    properties = Lineage(Job("cli", "load"), inputs=many).to_properties()
    assert json.loads(properties["inputs"]).keys() == {"truncated"}
    found = read_lineage(properties)
    assert found is not None
    assert (found.job.name, found.inputs) == ("load", ())


def test_values_without_a_form_in_json_are_stored_as_text() -> None:
    odd = CheckResult("sum", "n > 0", 1 << 80, passed=True)
    half = InputRead(None, "file:///\ud800", "jsonl")
    properties = Lineage(Job("a", "b"), (half,), checks=(odd,)).to_properties()
    assert "".join(properties.values()).isascii()
    found = read_lineage(properties)
    assert found is not None
    assert found.checks[0].value == 1 << 80


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(sorted(LINEAGE_KEYS)), json_values.map(json.dumps)))
def test_foreign_properties_are_no_error(properties: dict[str, str]) -> None:
    read_lineage(properties)
    read_lineage({**properties, "job": '{"namespace": "a", "name": "b"}'})


@pytest.mark.parametrize(
    "job", ["nightly", "[]", '{"namespace": "a"}', '{"namespace": "a", "name": 7}', "[" * 9_999]
)
def test_a_job_that_is_none_is_no_lineage(job: str) -> None:
    assert read_lineage({"job": job, "inputs": "[]"}) is None


def test_a_reserved_name_is_refused_and_named() -> None:
    check_properties({"team": "data", "inputs2": "x"})
    with pytest.raises(ReservedPropertyError, match="'engine' is reserved"):
        check_properties({"team": "data", "engine": "x"})


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 2_000])
def test_a_job_needs_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidTextError, match="the name of a job"):
        Job("python", name)
