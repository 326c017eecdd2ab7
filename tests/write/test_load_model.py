"""Random loads against a model of what a load means."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from omnigraph.graph import Graph
from omnigraph.write.load import loader, match_edges, stage
from omnigraph.write.load.check import cardinality, endpoints, tuples
from omnigraph.write.load.check.hashing import HashScheme
from omnigraph.write.load.rows import intake, row_parts
from omnigraph.write.load.rows.spool import MEMORY_MAX, SpoolBudget
from omnigraph.write.rules.violations import KeyConflictError, ValidationError
from omnigraph.write.stage import columns
from omnigraph.write.stage.stored_rows import PROBES_MAX
from support.load_model import Model, ModelType, Outcome, model_lines
from support.loads import graph_lines
from support.places import Place

MODES = ("append", "merge", "overwrite")


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, ModelType]:
    """Two node types and up to two edge types, with any mix of rules."""
    keyed = ModelType(
        "Keyed",
        required=("k", *draw(st.sampled_from([(), ("m",)]))),
        optional=draw(st.sampled_from([("p",), ("p", "q")])),
        key=("k",),
        unique=draw(st.sampled_from([(), (("p",),)])),
    )
    if "m" in keyed.required and draw(st.booleans()):
        keyed = ModelType("Keyed", keyed.required, keyed.optional, ("k", "m"), keyed.unique)
    free = ModelType(
        "Free",
        optional=("p", "q"),
        unique=draw(st.sampled_from([(), (("p", "q"),), (("p",), ("q",))])),
    )
    types = {"Keyed": keyed, "Free": free}
    for name in draw(st.sampled_from([("Link",), ("Link", "Away")])):
        types[name] = ModelType(
            name,
            optional=("w",),
            unique=draw(st.sampled_from([(), (("dst", "src"),), (("w",),)])),
            ends=draw(st.sampled_from([("Keyed", "Free"), ("Keyed", "Keyed"), ("Free", "Keyed")])),
            card=draw(st.sampled_from([(0, None), (0, None), (0, 2), (1, 2), (2, None)])),
        )
    return types


@st.composite
def inputs(
    draw: st.DrawFn, types: dict[str, ModelType], *, is_tidy: bool
) -> list[dict[str, object]]:
    """Records that mostly fit together, and to the graph of `seed`."""
    records: list[dict[str, object]] = []
    values = st.integers(0, 9)
    if not is_tidy:
        values |= st.sampled_from([12, "x", None])
    for name in draw(st.lists(st.sampled_from(sorted(types)), max_size=6)):
        kind = types[name]
        data: dict[str, object] = {
            member: draw(values)
            for member in kind.properties
            if (is_tidy and member in kind.required) or draw(st.integers(0, 3))
        }
        if not kind.key and draw(st.booleans()):
            data["id"] = f"{name[0].lower()}{draw(st.integers(0, 7))}"
        if kind.ends is None:
            records.append({"type": name, "data": data})
        else:
            source, target = (draw(_identities(types[end])) for end in kind.ends)
            records.append({"edge": name, "from": source, "to": target, "data": data})
    return records


def seed(types: dict[str, ModelType]) -> list[dict[str, object]]:
    """A few nodes of each type; the ends of edges are mostly among them."""
    keyed = [dict.fromkeys(types["Keyed"].required, n) | {"p": n} for n in range(5)]
    free = [{"id": f"f{n}", "p": n, "q": n} for n in range(5)]
    records: list[dict[str, object]] = [{"type": "Keyed", "data": data} for data in keyed]
    records += [{"type": "Free", "data": data} for data in free]
    return records


def _identities(kind: ModelType) -> st.SearchStrategy[str]:
    numbers = st.integers(0, 4) | st.integers(0, 6)
    if not kind.key:
        return numbers.map(lambda n: f"f{n}")
    if len(kind.key) == 1:
        return numbers.map(str)
    return numbers.map(lambda n: f'["{n}","{n}"]')


def _lines(records: list[dict[str, object]]) -> bytes:
    return b"\n".join(json.dumps(record).encode() for record in records)


def _check(data: st.DataObject) -> None:
    types = data.draw(schemas())
    model = Model(types)
    schema = "\n".join(kind.text() for kind in types.values())
    probes = data.draw(st.sampled_from([0, PROBES_MAX]))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for module in (cardinality, endpoints, tuples, stage, match_edges):
            patch.setattr(module, "PROBES_MAX", probes)
        # Little memory divides hashes of more than two rows; few bits let them collide.
        memory = data.draw(st.sampled_from([64, 64, MEMORY_MAX]))
        patch.setattr(loader, "SpoolBudget", lambda _: SpoolBudget(memory))
        patch.setattr(columns, "SLAB_ROWS", data.draw(st.sampled_from([2, columns.SLAB_ROWS])))
        bits = data.draw(st.sampled_from([2, 64])) if not _counts_edges(types) else 64
        patch.setattr(intake, "HashScheme", lambda seed: HashScheme(seed, bits))
        patch.setattr(row_parts, "_STREAM_BYTES_MIN", data.draw(st.sampled_from([1, 8 << 20])))
        with Place(str(Path(folder) / "graph")).init(schema) as graph:
            graph.load(_lines(seed(types)), mode="append")
            model.graph = model.load(seed(types), "append").graph
            for number in range(data.draw(st.integers(1, 4))):
                _check_load(data, model, graph, Path(folder) / str(number))


def _counts_edges(types: dict[str, ModelType]) -> bool:
    return any(kind.card != (0, None) for kind in types.values())


def _check_load(data: st.DataObject, model: Model, graph: Graph, quarantine: Path) -> None:
    records = data.draw(inputs(model.types, is_tidy=data.draw(st.booleans())))
    mode = data.draw(st.sampled_from(MODES))
    keeps_last = mode == "merge" and data.draw(st.booleans())
    cascades = mode == "overwrite" and data.draw(st.booleans())
    adds_edges = mode == "merge" and data.draw(st.integers(0, 3)) == 0
    options = {
        "mode": mode,
        "edges": "add" if adds_edges else None,
        "on_duplicate": "last" if keeps_last else "error",
        "cascade": cascades,
        "missing": "null" if mode == "merge" else None,
    }
    if data.draw(st.booleans()):
        expected = model.load(
            records, mode, keeps_last=keeps_last, cascades=cascades, adds_edges=adds_edges
        )
        answer = expected.answer if expected.answer != "loaded" else _counts(expected)
        before = graph.head_commit_id_for_branch("main")
        assert _load(graph, records, {**options, "dry_run": True}) == answer
        assert graph.head_commit_id_for_branch("main") == before
        assert _load(graph, records, options) == answer
        is_loaded = expected.is_legal
    else:
        expected = model.load(
            records,
            mode,
            keeps_last=keeps_last,
            quarantines=True,
            cascades=cascades,
            adds_edges=adds_edges,
        )
        found = _load(graph, records, options, quarantine)
        is_loaded = not expected.is_hopeless
        if is_loaded:
            assert found == _counts(expected)
            assert _quarantined(quarantine) == expected.rejected
        else:
            assert isinstance(found, list)
    if is_loaded:
        model.graph = expected.graph
    assert graph_lines(graph) == model_lines(model)


def _counts(outcome: Outcome) -> tuple[int, int, int, int, int]:
    return (
        outcome.inserted,
        outcome.updated,
        outcome.unchanged,
        len(outcome.rejected),
        outcome.removed,
    )


def _quarantined(folder: Path) -> set[int]:
    """Return the lines that were left out; each has a reason and its record."""
    lines: set[int] = set()
    for path in folder.iterdir():
        for text in path.read_text().splitlines():
            found = json.loads(text)
            assert found["reason"]
            assert isinstance(found["record"], dict)
            assert found["position"] not in lines
            lines.add(found["position"])
    return lines


def _load(
    graph: Graph,
    records: list[dict[str, object]],
    options: dict[str, Any],
    quarantine: Path | None = None,
) -> object:
    try:
        result = graph.load(
            _lines(records),
            **options,
            on_error="fail" if quarantine is None else "quarantine",
            quarantine=quarantine,
        )
    except (ValidationError, KeyConflictError) as error:
        event(type(error).__name__)
        return sorted((one.rule, one.position or 0) for one in error.violations)
    event(f"loaded, {options['mode']}" if records else "empty")
    removed = sum((result.cascaded or {}).values())
    if removed:
        event("cascaded")
    return result.inserted, result.updated, result.unchanged, result.rejected, removed


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_loads_agree_with_the_model(data: st.DataObject) -> None:
    _check(data)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@settings(
    max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.data())
def test_many_loads_agree_with_the_model(data: st.DataObject) -> None:
    _check(data)
