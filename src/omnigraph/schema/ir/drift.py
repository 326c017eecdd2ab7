"""The drift check: whether a stored schema agrees with itself and with the live tables.

Runs at open and on refresh, over values that the caller has read. All findings are reported at
once, because each of them alone may mislead the person who repairs the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from difflib import unified_diff
from itertools import islice
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.errors import ConflictError
from omnigraph.records import JsonObject
from omnigraph.schema.ir.model import SchemaIR, TableIdentity
from omnigraph.schema.ir.read import MalformedSchemaError, read_ir
from omnigraph.schema.ir.state import SchemaState, read_state
from omnigraph.schema.ir.to_shape import shape_of
from omnigraph.schema.language.canonical import shape_hash

SCHEMA_FILE: Final = "_schema.pg"
REJECTED_FILE: Final = "_schema.pg.rejected"

_DIFFERENCE_LINES_MAX: Final = 40
_DIFFERENCE_WIDTH_MAX: Final = 200


@dataclass(frozen=True)
class DriftFinding:
    """One disagreement."""

    code: str
    message: str


class SchemaDriftError(ConflictError):
    """The accepted schema and the manifest disagree; nothing was changed."""

    code = "OG-SCHEMA-DRIFT"
    hint = "open the graph again; if this stays, keep the files and restore the manifest"

    def __init__(self, findings: Iterable[DriftFinding]) -> None:
        self.findings = tuple(findings)
        listed = "; ".join(f"[{found.code}] {found.message}" for found in self.findings)
        super().__init__(f"accepted schema/manifest identity mismatch: {listed}")


def open_contract(
    *,
    ir: str | bytes | JsonObject | Callable[[], SchemaIR],
    state: str | bytes | JsonObject,
    live_tables: Iterable[TableIdentity],
) -> SchemaIR:
    """Read a stored schema and return it if nothing has drifted, else raise `SchemaDriftError`.

    `ir` is the compiled schema as it is stored, or what reads it.
    """
    findings: list[DriftFinding] = []
    accepted = _read_ir(ir, findings)
    expected = _read_state(state, findings)
    if accepted is None or expected is None:
        raise SchemaDriftError(findings)
    check_drift(accepted, expected, live_tables)
    return accepted


def check_drift(ir: SchemaIR, state: SchemaState, live_tables: Iterable[TableIdentity]) -> None:
    """Raise `SchemaDriftError` unless hashes, domain and live tables all agree."""
    findings = [*_state_findings(ir, state), *_table_findings(ir, live_tables)]
    if findings:
        raise SchemaDriftError(findings)


def schema_file_warning(found: str, *, stored: str) -> str | None:
    """Compare the text of `_schema.pg` with the stored one; quote the difference, if any.

    The caller keeps the found text as `_schema.pg.rejected` and writes the stored one.
    """
    if found == stored:
        return None
    difference = unified_diff(
        stored.splitlines(),
        found.splitlines(),
        "accepted schema",
        SCHEMA_FILE,
        lineterm="",
        n=1,
    )
    lines = [_cut(line) for line in islice(difference, _DIFFERENCE_LINES_MAX + 1)]
    if len(lines) > _DIFFERENCE_LINES_MAX:
        lines[-1] = "…"
    quoted = lines or ["only line endings differ"]
    headline = (
        f"{SCHEMA_FILE} was edited by hand; use schema apply. The accepted schema is unchanged, "
        f"the edited text is kept as {REJECTED_FILE}:"
    )
    return "\n".join([headline, *quoted])


def _cut(line: str) -> str:
    return line if len(line) <= _DIFFERENCE_WIDTH_MAX else f"{line[:_DIFFERENCE_WIDTH_MAX]}…"


def _read_ir(
    stored: str | bytes | JsonObject | Callable[[], SchemaIR], findings: list[DriftFinding]
) -> SchemaIR | None:
    try:
        return stored() if callable(stored) else read_ir(stored)
    except MalformedSchemaError as error:
        findings.append(DriftFinding("S401", str(error)))
        return None


def _read_state(
    stored: str | bytes | JsonObject, findings: list[DriftFinding]
) -> SchemaState | None:
    try:
        return read_state(stored)
    except ValueError as error:
        findings.append(DriftFinding("S402", f"malformed schema state: {error}"))
        return None


def _state_findings(ir: SchemaIR, state: SchemaState) -> Iterator[DriftFinding]:
    if ir.ir_hash != state.schema_ir_hash:
        yield DriftFinding(
            "S403", f"the state records IR hash {state.schema_ir_hash}, found {ir.ir_hash}"
        )
    shape = shape_hash(shape_of(ir))
    if shape != state.schema_shape_hash:
        yield DriftFinding(
            "S404", f"the state records shape hash {state.schema_shape_hash}, found {shape}"
        )
    if ir.schema_identity_domain != state.schema_identity_domain:
        yield DriftFinding(
            "S405",
            f"the state belongs to identity domain {state.schema_identity_domain}, "
            f"the schema to {ir.schema_identity_domain}",
        )


def _table_findings(ir: SchemaIR, live_tables: Iterable[TableIdentity]) -> Iterator[DriftFinding]:
    declared = {table.table_key: table for table in ir.table_identities}
    live = {table.table_key: table for table in live_tables}
    for key in sorted(declared.keys() | live.keys()):
        if key not in live:
            yield DriftFinding("S406", f"type {key} has no live dataset")
        elif key not in declared:
            yield DriftFinding("S407", f"live dataset {key} has no type in the schema")
        elif live[key] != declared[key]:
            yield DriftFinding(
                "S408",
                f"dataset {key} is {_numbers(live[key])}, the schema has {_numbers(declared[key])}",
            )


def _numbers(table: TableIdentity) -> str:
    return f"type {table.type_id}, incarnation {table.table_incarnation_id}"
