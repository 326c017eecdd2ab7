"""The in-process engine and Spark give the same graph, the same counts and the same problems."""

from __future__ import annotations

import atexit
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.graph import Graph
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.spark.load.workers import Tuning
from omnigraph.write.load.options import OnDuplicate, OnError
from omnigraph.write.load.result import LoadResult
from omnigraph.write.rules.violations import KeyConflictError, ValidationError
from omnigraph.write.stage.delta import WriteMode
from support.inline_jobs import inline_load
from support.load_inputs import (
    SCHEMAS,
    as_lines,
    as_parquet,
    as_tables,
    as_values,
    records,
    seed,
)
from support.loads import graph_lines

TUNINGS = (
    Tuning(),
    # Few hashes, so that most rows share one; everything in jobs; sets of many parts.
    Tuning(hash_bits=2, driver_rows_max=0, set_rows_max=3),
    Tuning(hash_bits=1, set_rows_max=1),
)


_MADE_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")

Load = Callable[[Path], LoadResult]


def _outcome(load: Load, quarantine: Path) -> object:
    try:
        result = load(quarantine)
    except ValidationError as error:
        found = [tuple(vars(one).values()) for one in error.violations]
        return sorted(_MADE_ID.sub("*", repr(one)) for one in found), error.total, error.totals
    except KeyConflictError as error:
        return error.key_conflict, error.total, error.is_stored, sorted(error.offenders)
    shape = result.to_json()
    counts = {name: shape[name] for name in ("nodes", "edges", "rejected", "total_entities")}
    return counts, shape["commit"] is None, shape.get("cascaded"), _quarantined(quarantine)


def _quarantined(folder: Path) -> list[str]:
    if not folder.exists():
        return []
    lines = [
        (path.name, json.dumps(json.loads(line), sort_keys=True))
        for path in folder.iterdir()
        for line in path.read_text().splitlines()
    ]
    return sorted(_MADE_ID.sub("*", f"{name} {line}") for name, line in lines)


def _check(data: st.DataObject, loads: int) -> None:
    schema = data.draw(st.sampled_from(SCHEMAS))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        here = Path(folder)
        graphs = {}
        for engine in ("local", "spark"):
            shutil.copytree(_seeded(schema), here / engine)
            graph = Graph.open(str(here / engine), durability="process", auto_optimize=False)
            graphs[engine] = stack.enter_context(graph)
        for number in range(loads):
            _check_load(data, schema, graphs, here / f"load{number}")


@cache
def _seeded(schema: str) -> Path:
    """Make a graph to copy, once: making one takes as long as two loads."""
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-seeded-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    first = as_lines(seed(schema), folder / "seed.jsonl", broken=False)
    with Graph.init(str(folder / "graph"), schema, durability="process") as graph:
        graph.load(first, mode="append", engine="local")
    return folder / "graph"


def _check_load(data: st.DataObject, schema: str, graphs: dict[str, Graph], folder: Path) -> None:
    folder.mkdir()
    given_records = data.draw(records(schema, is_tidy=data.draw(st.booleans())))
    mode = data.draw(st.sampled_from(["append", "merge", "overwrite"]))
    options: dict[str, object] = {"mode": mode}
    if mode == "merge" and data.draw(st.booleans()):
        options["on_duplicate"] = "last"
    if mode == "overwrite" and data.draw(st.booleans()):
        options["cascade"] = True
    if data.draw(st.integers(0, 2)) == 0:
        options["on_error"] = "quarantine"
    form = data.draw(st.sampled_from(["lines", "values", "parquet", "tables"]))
    source: object
    if form == "values":
        options["reader"] = "compatible"
        source = as_values(given_records, folder / "in.json", broken=data.draw(st.booleans()))
    elif form == "lines":
        source = as_lines(
            given_records,
            folder / "in.jsonl",
            broken=data.draw(st.booleans()),
            spaced=data.draw(st.booleans()),
        )
    else:
        empty = data.draw(st.sets(st.sampled_from(["Keyed", "Link"])))
        tables = as_tables(given_records, schema, empty=empty)
        source = tables if form == "tables" else as_parquet(tables, folder / "in")
    tuning = data.draw(st.sampled_from(TUNINGS))
    own: dict[str, Any] = {"mode": WriteMode(mode)} | {
        name: kind(options[name])
        for name, kind in (("on_duplicate", OnDuplicate), ("on_error", OnError), ("cascade", bool))
        if name in options
    }
    if "reader" in options:
        own["conversion"] = ConversionMode.COMPATIBLE
    sets_aside = "on_error" in options

    def local(quarantine: Path) -> LoadResult:
        place = {"quarantine": quarantine} if sets_aside else {}
        return graphs["local"].load(source, engine="local", **options, **place)

    def inline(quarantine: Path) -> LoadResult:
        place = {"quarantine": quarantine} if sets_aside else {}
        return inline_load(graphs["spark"], source, tuning=tuning, **own, **place)

    found = {
        "local": _outcome(local, folder / "local"),
        "spark": _outcome(inline, folder / "spark"),
    }
    assert found["spark"] == found["local"]
    assert graph_lines(graphs["spark"]) == graph_lines(graphs["local"])


_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=25, suppress_health_check=_CHECKS)
@given(st.data())
def test_both_engines_load_alike(data: st.DataObject) -> None:
    _check(data, loads=3)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@settings(max_examples=500, suppress_health_check=_CHECKS)
@given(st.data())
def test_both_engines_load_many_things_alike(data: st.DataObject) -> None:
    _check(data, loads=4)
