"""The JSON Schema of `cluster.yaml` takes what is valid, and marks mistakes of shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import write_cluster_schema
import yaml
from jsonschema import Draft202012Validator

from omnigraph.cluster.config.json_schema import cluster_json_schema
from omnigraph.cluster.config.read import RESERVED_KEYS
from support.cases import Case, load_cases

VALIDATOR = Draft202012Validator(cluster_json_schema())
CASES = [case for case in load_cases("cluster_validate") if "cluster.yaml" in case.sections]
SHAPE_CODES = (
    *("invalid_cluster_yaml", "unsupported_cluster_config_version", "future_phase_field"),
    *("empty_metadata_name", "unsupported_state_backend", "invalid_resource_id"),
    *("embedding_api_key_required", "embedding_api_key_inline", "policy_missing_applies_to"),
)
"""Findings that the text of the file alone decides."""


def document_of(case: Case) -> Any:
    return yaml.safe_load(case.sections["cluster.yaml"])


def is_judged_by_its_text(case: Case) -> bool:
    """Whether the outcome is that of the text, and YAML can say it to a JSON Schema."""
    sections = case.sections
    if "cluster.yaml" in sections.get("setup", "") or "--config" in sections.get("call", ""):
        return False
    unseen = ("anchors and aliases", "is not YAML", "duplicate_yaml_key")
    return not any(word in sections["output"] for word in unseen)


JUDGED = [case for case in CASES if is_judged_by_its_text(case)]
VALID = [case for case in JUDGED if "ERROR" not in case.sections["output"]]
MISSHAPEN = [
    case
    for case in JUDGED
    if any(f"ERROR {code}" in case.sections["output"] for code in SHAPE_CODES)
    # A JSON Schema cannot compare two keys with each other.
    and case.name != "ids that differ in the case of letters alone"
]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(cluster_json_schema())


def test_the_stored_schema_is_up_to_date() -> None:
    stored = write_cluster_schema.FILE.read_text(encoding="utf-8")
    assert stored == write_cluster_schema.schema_text(), "run `make docs`"


@pytest.mark.parametrize("case", VALID, ids=str)
def test_what_is_valid_is_taken(case: Case) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(document_of(case))] == []


@pytest.mark.parametrize("case", MISSHAPEN, ids=str)
def test_a_mistake_of_shape_is_marked(case: Case) -> None:
    assert not VALIDATOR.is_valid(document_of(case))


GOOD = {"version": 1, "graphs": {"a": {"schema": "a.pg"}}}
MISTAKES: list[dict[str, Any]] = [
    {},
    {"version": "1"},
    {"version": 1, "grahps": {}},
    *({"version": 1, key: {}} for key in RESERVED_KEYS),
    {"version": 1, "storage": ""},
    {"version": 1, "storage": "gs://lake"},
    {"version": 1, "storage": "s3://"},
    {"version": 1, "state": {"lock": "yes"}},
    {"version": 1, "graphs": {"a": {}}},
    {"version": 1, "graphs": {"my_a": {"schema": "a.pg"}}},
    {"version": 1, "graphs": {"graphs": {"schema": "a.pg"}}},
    {"version": 1, "graphs": {"a" * 65: {"schema": "a.pg"}}},
    {"version": 1, "graphs": {"a": {"schema": "a.pg", "queries": {"q": "a.gq"}}}},
    {"version": 1, "graphs": {"a": {"schema": "a.pg", "external_blobs": {"allow": [{}]}}}},
    {"version": 1, "providers": {"embedding": {"e": {"kind": "gemini"}}}},
    {"version": 1, "providers": {"embedding": {"e": {"kind": "mock", "provider": "mock"}}}},
    {"version": 1, "policies": {"p": {"file": "p.yaml", "applies_to": []}}},
    {"version": 1, "pipelines": {"p": {"file": "p.yaml", "every": "5m"}}},
]


@pytest.mark.parametrize("document", MISTAKES, ids=str)
def test_an_editor_marks_a_mistake(document: dict[str, Any]) -> None:
    assert VALIDATOR.is_valid(GOOD)
    assert not VALIDATOR.is_valid(document)


def test_the_example_names_the_schema_beside_it() -> None:
    example = Path(write_cluster_schema.FILE.parents[2], "src/omnigraph/cluster/example")
    text = (example / "cluster.yaml").read_text(encoding="utf-8")
    line = text.splitlines()[0]
    assert line == f"# yaml-language-server: $schema={write_cluster_schema.FILE.name}"
    assert VALIDATOR.is_valid(yaml.safe_load(text))
    # What is commented out is valid too.
    lines = [line.replace("# ", "", 1) if is_setting(line) else line for line in text.splitlines()]
    document = yaml.safe_load("\n".join(lines))
    assert {"providers"} <= document.keys()
    assert document["graphs"]["papers"].keys() >= {"embedding_provider", "external_blobs"}
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


def is_setting(line: str) -> bool:
    """Whether a comment is a setting that someone may turn on."""
    text = line.strip().removeprefix("# ").strip()
    return line.strip().startswith("# ") and (
        text.split(":")[0] in SETTINGS or text.startswith("- {")
    )


SETTINGS = {"providers", "embedding", "vectors", "embedding_provider", "external_blobs", "allow"}
