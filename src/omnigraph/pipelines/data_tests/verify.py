"""Compares what a test expects with the facts that its act has left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from omnigraph.names import EntityKind, TableKey
from omnigraph.pipelines.data_tests.acts import Facts, TestBranch
from omnigraph.pipelines.data_tests.compare import Mismatch, canonical, compare_rows
from omnigraph.pipelines.data_tests.model import PlanWanted, Row, Wanted
from omnigraph.pipelines.diagnostics import did_you_mean
from omnigraph.schema import Catalog


@dataclass(frozen=True)
class Problem:
    """One thing that is not as expected; for rows, those that are missing and too many."""

    message: str
    missing: tuple[Row, ...] = ()
    extra: tuple[Row, ...] = ()


@dataclass
class Verifier:
    """Verifies the acts of one test."""

    updates: bool = False
    """Whether snapshots that differ are written again."""
    updated: Path | None = None

    def problems(self, wanted: Wanted, facts: Facts, branch: TestBranch) -> list[Problem]:
        """Return everything that is not as expected."""
        if wanted.error is not None:
            return _error_problems(wanted.error, facts)
        if facts.failure is not None and wanted.conflicts is None:
            return [Problem(facts.failure.message)]
        if facts.failure is not None and facts.conflicts is None:
            return [Problem(facts.failure.message)]
        return [
            *self._row_problems(wanted, facts),
            *_number_problems(wanted, facts),
            *_list_problems(wanted, facts),
            *_plan_problems(wanted.plan, facts, branch),
            *_count_problems(wanted, branch),
        ]

    # -- rows -------------------------------------------------------------------------------------

    def _row_problems(self, wanted: Wanted, facts: Facts) -> list[Problem]:
        if facts.answer is None or (wanted.rows is None and wanted.snapshot is None):
            return []
        found = facts.answer.json_rows()
        if wanted.snapshot is not None:
            return self._snapshot_problems(wanted.snapshot, found, wanted, facts)
        assert wanted.rows is not None  # noqa: S101 - looked at above
        columns = tuple(dict.fromkeys(facts.answer.column_names))
        unknown = dict.fromkeys(name for row in wanted.rows for name in row if name not in columns)
        if unknown:
            return [
                Problem(f"'{name}' is no column of the result{did_you_mean(name, columns)}")
                for name in unknown
            ]
        return _mismatch_problems(
            compare_rows(wanted.rows, found, ordered=facts.is_ordered, exactly=wanted.exactly),
            "rows differ",
        )

    def _snapshot_problems(
        self, path: Path, found: Sequence[Row], wanted: Wanted, facts: Facts
    ) -> list[Problem]:
        stored = _read_snapshot(path)
        if isinstance(stored, Problem):
            problems = [stored]
        else:
            mismatch = compare_rows(stored, found, ordered=facts.is_ordered, exactly=wanted.exactly)
            if mismatch is None and not _same_columns(stored, found):
                mismatch = Mismatch(tuple(stored), tuple(found))
            problems = _mismatch_problems(mismatch, f"rows differ from {path}")
        if not problems or not self.updates:
            return problems
        _write_snapshot(path, found, is_ordered=facts.is_ordered)
        self.updated = path
        return []


def _error_problems(expected: str, facts: Facts) -> list[Problem]:
    if facts.failure is None:
        return [Problem(f"expected an error with '{expected}', and there was none")]
    if facts.failure.is_what(expected):
        return []
    return [Problem(f"expected an error with '{expected}', found: {facts.failure.message}")]


def _mismatch_problems(mismatch: Mismatch | None, message: str) -> list[Problem]:
    if mismatch is None:
        return []
    if mismatch.moved is not None:
        return [
            Problem(f"{message}: the rows are these in another order, from row {mismatch.moved}")
        ]
    return [Problem(message, mismatch.missing, mismatch.extra)]


# -- snapshots ------------------------------------------------------------------------------------


def _read_snapshot(path: Path) -> list[Row] | Problem:
    try:
        return [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    except FileNotFoundError:
        return Problem(f"there is no snapshot {path}: `omnigraph test --update` writes it")
    except (orjson.JSONDecodeError, OSError) as error:
        return Problem(f"cannot read {path}: {error}")


def _same_columns(stored: Sequence[Row], found: Sequence[Row]) -> bool:
    """Whether a snapshot has every column of the result; one without rows has none to compare."""
    return not stored or not found or set(stored[0]) == set(found[0])


def _write_snapshot(path: Path, rows: Sequence[Row], *, is_ordered: bool) -> None:
    """Write rows as lines of JSON; where the query has no order, in one that stays."""
    lines = [
        orjson.dumps(row).decode() for row in (rows if is_ordered else sorted(rows, key=canonical))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


# -- numbers and lists ----------------------------------------------------------------------------


def _number_problems(wanted: Wanted, facts: Facts) -> Iterator[Problem]:
    for name in ("affected_nodes", "affected_edges", "rejected"):
        expected, found = getattr(wanted, name), getattr(facts, name)
        if expected is not None and expected != found:
            yield Problem(f"{name}: expected {expected}, found {found}")


def _list_problems(wanted: Wanted, facts: Facts) -> Iterator[Problem]:
    if wanted.conflicts is not None:
        found = facts.conflicts or ()
        mismatch = compare_rows(wanted.conflicts, found, ordered=False, exactly=True)
        yield from _mismatch_problems(mismatch, "conflicts differ")
    if wanted.steps is not None:
        missing, extra = Counter(wanted.steps), Counter(facts.steps or ())
        if missing != extra:
            shown = ", ".join(facts.steps or ()) or "none"
            yield Problem(f"steps: expected {', '.join(wanted.steps) or 'none'}, found {shown}")


def _count_problems(wanted: Wanted, branch: TestBranch) -> Iterator[Problem]:
    if not wanted.nodes and not wanted.edges:
        return
    rows = branch.rows()
    kinds: tuple[tuple[EntityKind, Mapping[str, int]], ...] = (
        ("node", wanted.nodes),
        ("edge", wanted.edges),
    )
    for kind, counts in kinds:
        known = tuple(TableKey(key).type_name for key in rows if TableKey(key).kind == kind)
        for name, expected in counts.items():
            found = rows.get(TableKey.of(kind, name))
            if found is None:
                yield Problem(f"the graph has no {kind} type '{name}'{did_you_mean(name, known)}")
            elif found != expected:
                yield Problem(f"{kind}s.{name}: expected {expected}, found {found}")


# -- plans ----------------------------------------------------------------------------------------


def _plan_problems(
    wanted: PlanWanted | None, facts: Facts, branch: TestBranch
) -> Iterator[Problem]:
    if wanted is None or facts.explained is None:
        return
    catalog = branch.snapshot.catalog
    used: set[str] = set()
    scans: list[str] = []
    for access in facts.explained.node_accesses():
        indexed = [one for one in access.columns if _is_indexed(catalog, access.type_name, one)]
        used |= {f"{access.type_name}.{one}" for one in indexed}
        if access.is_scan and not indexed:
            scans.append(access.type_name)
    for name in wanted.uses_index or ():
        type_name, _, column = name.partition(".")
        if not _is_indexed(catalog, type_name, column):
            yield Problem(f"the schema has no index on {name}")
        elif name not in used:
            yield Problem(f"the plan does not use the index {name}; it uses {_listed(used)}")
    if wanted.scans is not None and Counter(wanted.scans) != Counter(scans):
        yield Problem(f"scans: expected {_listed(wanted.scans)}, found {_listed(scans)}")


def _listed(names: Sequence[str] | set[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _is_indexed(catalog: Catalog, type_name: str, column: str) -> bool:
    node_type = catalog.node_types.get(type_name)
    if node_type is None:
        return False
    return column == "id" or any(column in members for members in node_type.indices)
