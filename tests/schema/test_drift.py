"""The drift check, over values."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from omnigraph.schema import (
    SchemaDriftError,
    SchemaState,
    TableIdentity,
    compile_schema,
    open_contract,
    schema_file_warning,
)
from omnigraph.schema.ir.drift import check_drift
from omnigraph.schema.ir.state import read_state
from omnigraph.schema.migration.codes import DRIFT_CODES

DOMAIN = "01JDR1FT000000000000000000"
COMPILED = compile_schema("interface I {} node A { p: String } edge E: A -> A", domain=DOMAIN)
IR, STATE, LIVE = COMPILED.ir, COMPILED.state, COMPILED.ir.table_identities

HASH = "sha256:" + "0" * 64


def codes(run: Callable[[], object]) -> list[str]:
    with pytest.raises(
        SchemaDriftError, match=r"^accepted schema/manifest identity mismatch: "
    ) as e:
        run()
    assert pickle.loads(pickle.dumps(e.value)).findings == e.value.findings
    return [finding.code for finding in e.value.findings]


def test_what_was_stored_opens_again() -> None:
    opened = open_contract(
        ir=orjson.dumps(IR.to_json()), state=orjson.dumps(STATE.to_json()), live_tables=LIVE
    )
    assert opened == IR
    assert open_contract(ir=IR.to_json(), state=STATE.to_json(), live_tables=LIVE) == IR


def test_the_state_is_stored_with_its_versions() -> None:
    assert list(STATE.to_json().items()) == [
        ("format_version", 2),
        ("schema_shape_hash", COMPILED.shape_hash),
        ("schema_ir_hash", COMPILED.ir_hash),
        ("schema_identity_version", 2),
        ("schema_identity_domain", DOMAIN),
    ]
    assert SchemaState.of(IR) == STATE == read_state(STATE.to_json())


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (replace(STATE, schema_ir_hash=HASH), ["S403"]),
        (replace(STATE, schema_shape_hash=HASH), ["S404"]),
        (replace(STATE, schema_identity_domain="01JOTHER000000000000000000"), ["S405"]),
        (
            SchemaState(schema_shape_hash=HASH, schema_ir_hash=HASH, schema_identity_domain="x"),
            ["S403", "S404", "S405"],
        ),
    ],
)
def test_hashes_and_domain_must_agree(state: SchemaState, expected: list[str]) -> None:
    assert codes(lambda: check_drift(IR, state, LIVE)) == expected


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (LIVE[:1], ["S406"]),
        ([*LIVE, TableIdentity("node:Ghost", 50, 51)], ["S407"]),
        ([LIVE[0], replace(LIVE[1], type_id=99)], ["S408"]),
        ([LIVE[0], replace(LIVE[1], table_incarnation_id=99)], ["S408"]),
        ([TableIdentity("node:B", 2, 5), LIVE[1]], ["S406", "S407"]),
        ([], ["S406", "S406"]),
    ],
)
def test_live_tables_must_be_the_types(live: list[TableIdentity], expected: list[str]) -> None:
    assert codes(lambda: check_drift(IR, STATE, live)) == expected


@pytest.mark.parametrize(
    ("ir", "state", "expected"),
    [
        ("{", STATE.to_json(), ["S401"]),
        (IR.to_json(), "{", ["S402"]),
        (IR.to_json(), "[]", ["S402"]),
        (IR.to_json(), {**STATE.to_json(), "format_version": 1}, ["S402"]),
        (IR.to_json(), {**STATE.to_json(), "schema_ir_hash": 7}, ["S402"]),
        (IR.to_json(), {**STATE.to_json(), "more": 7}, ["S402"]),
        ({**IR.to_json(), "ir_version": 9}, {}, ["S401", "S402"]),
    ],
)
def test_malformed_records_are_drift(ir: Any, state: Any, expected: list[str]) -> None:
    assert codes(lambda: open_contract(ir=ir, state=state, live_tables=LIVE)) == expected


def test_drift_codes_are_numbered_without_gaps() -> None:
    assert list(DRIFT_CODES) == [f"S4{n:02}" for n in range(1, 10)]


# -- the file ------------------------------------------------------------------------------------


def test_an_untouched_file_gives_no_warning() -> None:
    assert schema_file_warning("node A {}\n", stored="node A {}\n") is None


def test_an_edited_file_is_quoted() -> None:
    stored = "node A {\n    p: String\n}\n"
    warning = schema_file_warning("node A {\n    p: I32\n}\n", stored=stored)
    assert warning is not None
    assert warning.startswith("_schema.pg was edited by hand; use schema apply")
    assert "_schema.pg.rejected" in warning
    assert "-    p: String\n+    p: I32" in warning


def test_line_endings_alone_are_named() -> None:
    warning = schema_file_warning("node A {}\r\n", stored="node A {}\n")
    assert warning is not None
    assert warning.endswith("only line endings differ")


def test_a_huge_difference_is_cut() -> None:
    found = "\n".join(f"node A{n} {{}} // {'x' * 500}" for n in range(500))
    warning = schema_file_warning(found, stored="")
    assert warning is not None
    assert len(warning.splitlines()) <= 42
    assert max(map(len, warning.splitlines())) <= 210
    assert warning.endswith("…")
